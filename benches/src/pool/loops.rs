//! Loops as programs write them: a map that is collected, a filter that is summed, items of unequal cost,
//! and loops so short that calling them is the work.

use std::hint::black_box;
use std::time::Instant;

use loxley_pool::Pool;

use crate::measure::{Contender, Role};

/// Nanoseconds per item of something that runs over so many.
fn nanoseconds(items: usize, body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_nanos() as f64 / items as f64
}

fn loxley(workers: usize) -> Pool {
    let pool = Pool::builder().workers(workers).build();
    pool.expect("threads can be started")
}

fn numbers(count: usize) -> &'static [u32] {
    let number = |n: u32| n.wrapping_mul(2_654_435_761);
    (0..count as u32).map(number).collect::<Vec<_>>().leak()
}

#[inline]
fn square(n: u32) -> u64 {
    u64::from(n) * u64::from(n)
}

/// What passes, squared, and nothing otherwise.
#[inline]
fn part(&n: &u32) -> u64 {
    if n % 3 == 0 { square(n) } else { 0 }
}

/// `count` squares in a new vector.
pub(super) fn map_collect(count: usize, workers: usize) -> Vec<Contender<'static>> {
    let input = numbers(count);
    let pool = loxley(workers);
    let mut contenders = vec![
        mapping("loxley", Role::Subject, count, move || {
            pool.par_map(input, |&n| square(n))
        }),
        mapping("sequential", Role::Floor, count, move || {
            input.iter().map(|&n| square(n)).collect()
        }),
    ];
    contenders.extend(peers::map_collect(input, workers));
    contenders
}

fn mapping(
    name: &'static str,
    role: Role,
    count: usize,
    mut map: impl FnMut() -> Vec<u64> + 'static,
) -> Contender<'static> {
    Contender::new(name, role, move || {
        nanoseconds(count, || assert_eq!(black_box(map()).len(), count))
    })
}

/// The sum of those of `count` numbers that pass a test.
pub(super) fn filter_sum(count: usize, workers: usize) -> Vec<Contender<'static>> {
    let input = numbers(count);
    let pool = loxley(workers);
    let mut contenders = vec![
        summing("loxley", Role::Subject, input, move || {
            pool.map_reduce(input, || 0, part, u64::wrapping_add)
        }),
        summing("sequential", Role::Floor, input, move || {
            let passing = input.iter().filter(|n| *n % 3 == 0);
            passing.map(|&n| square(n)).fold(0, u64::wrapping_add)
        }),
    ];
    contenders.extend(peers::filter_sum(input, workers));
    contenders
}

fn summing(
    name: &'static str,
    role: Role,
    input: &'static [u32],
    mut sum: impl FnMut() -> u64 + 'static,
) -> Contender<'static> {
    let expected = input.iter().map(part).fold(0, u64::wrapping_add);
    Contender::new(name, role, move || {
        nanoseconds(input.len(), || assert_eq!(black_box(sum()), expected))
    })
}

/// How many items a tiny loop has.
const TINY: usize = 100;

fn tiny_body(n: &u32) {
    black_box(square(*n));
}

/// A loop over 100 items, called `calls` times by a thread that is in the pool, or that is not.
pub(super) fn tiny(calls: usize, workers: usize, inside: bool) -> Vec<Contender<'static>> {
    let input = numbers(TINY);
    let pool = loxley(workers);
    let mut contenders = vec![
        calling("loxley", Role::Subject, calls, move || {
            let all = || (0..calls).for_each(|_| pool.par_for(black_box(input), tiny_body));
            if inside { pool.install(all) } else { all() }
        }),
        calling("sequential", Role::Floor, calls, move || {
            (0..calls).for_each(|_| black_box(input).iter().for_each(tiny_body));
        }),
    ];
    contenders.extend(peers::tiny(input, calls, workers, inside));
    contenders
}

fn calling(
    name: &'static str,
    role: Role,
    calls: usize,
    mut run: impl FnMut() + 'static,
) -> Contender<'static> {
    Contender::new(name, role, move || nanoseconds(calls, &mut run))
}

/// Those who have loops and nothing else, at one whose items grow dearer; the figure is milliseconds.
pub(super) fn heavy_tail<'a>(
    costs: &'a [u64],
    workers: usize,
    body: fn(u64),
) -> Vec<Contender<'a>> {
    peers::heavy_tail(costs, workers, body)
}

#[cfg(not(feature = "peers"))]
mod peers {
    use super::Contender;

    pub(super) fn map_collect(_: &'static [u32], _: usize) -> Vec<Contender<'static>> {
        Vec::new()
    }

    pub(super) use map_collect as filter_sum;

    pub(super) fn tiny(_: &[u32], _: usize, _: usize, _: bool) -> Vec<Contender<'static>> {
        Vec::new()
    }

    pub(super) fn heavy_tail<'a>(_: &'a [u64], _: usize, _: fn(u64)) -> Vec<Contender<'a>> {
        Vec::new()
    }
}

/// The peers' ways. The threads of forkunion never stop looking for work, so that it gets a pool of its own for
/// each round: between rounds it would take a processor from all others.
#[cfg(feature = "peers")]
mod peers {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn rayon(workers: usize) -> rayon::ThreadPool {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        pool.expect("threads can be started")
    }

    fn paralight(workers: usize) -> paralight::threads::ThreadPool {
        use paralight::threads::{CpuPinningPolicy, RangeStrategy, ThreadCount, ThreadPoolBuilder};
        ThreadPoolBuilder {
            num_threads: ThreadCount::try_from(workers).expect("there are workers"),
            range_strategy: RangeStrategy::WorkStealing,
            cpu_pinning: CpuPinningPolicy::No,
        }
        .build()
    }

    /// A figure taken with a pool that is started and ended around it.
    fn forkunion<'a>(
        workers: usize,
        mut figure: impl FnMut(&mut forkunion::ThreadPool) -> f64 + 'a,
    ) -> Contender<'a> {
        Contender::new("forkunion", Role::Peer, move || {
            let topology = forkunion::Topology::new().expect("a machine");
            let mut pool = forkunion::spawn(&topology, workers);
            // The first loop waits for its threads to begin.
            pool.for_n(workers, |_| ());
            figure(&mut pool)
        })
    }

    pub(super) fn map_collect(input: &'static [u32], workers: usize) -> Vec<Contender<'static>> {
        let count = input.len();
        let (pool, mut light) = (rayon(workers), paralight(workers));
        vec![
            mapping("rayon", Role::Peer, count, move || {
                use rayon::prelude::*;
                pool.install(|| input.par_iter().map(|&n| square(n)).collect())
            }),
            mapping("orx-parallel", Role::Peer, count, move || {
                use orx_parallel::*;
                let items = input.par().num_threads(workers);
                items.map(|&n| square(n)).collect()
            }),
            mapping("paralight", Role::Peer, count, move || {
                use paralight::prelude::*;
                let mut results = vec![0; count];
                (results.par_iter_mut(), input.par_iter())
                    .zip_eq()
                    .with_thread_pool(&mut light)
                    .for_each(|(result, &n)| *result = square(n));
                results
            }),
            forkunion(workers, move |pool| {
                nanoseconds(count, || {
                    let mut results = vec![0; count];
                    forkunion::for_each_prong_mut(pool, &mut results, |result, prong| {
                        *result = square(input[prong.task_index]);
                    });
                    assert_eq!(black_box(results).len(), count);
                })
            }),
        ]
    }

    pub(super) fn filter_sum(input: &'static [u32], workers: usize) -> Vec<Contender<'static>> {
        let (pool, mut light) = (rayon(workers), paralight(workers));
        vec![
            summing("rayon", Role::Peer, input, move || {
                use rayon::prelude::*;
                pool.install(|| {
                    let passing = input.par_iter().filter(|n| *n % 3 == 0);
                    passing.map(|&n| square(n)).reduce(|| 0, u64::wrapping_add)
                })
            }),
            summing("orx-parallel", Role::Peer, input, move || {
                use orx_parallel::*;
                let passing = input.par().num_threads(workers).filter(|n| *n % 3 == 0);
                let sum = passing.map(|&n| square(n)).reduce(u64::wrapping_add);
                sum.unwrap_or(0)
            }),
            summing("paralight", Role::Peer, input, move || {
                use paralight::prelude::*;
                let parts = input.par_iter().with_thread_pool(&mut light).map(part);
                parts.reduce(|| 0, u64::wrapping_add)
            }),
            forkunion(workers, move |pool| {
                nanoseconds(input.len(), || {
                    let sum = AtomicU64::new(0);
                    pool.for_slices(input.len(), |prong, count| {
                        let slice = &input[prong.task_index..][..count];
                        let here = slice.iter().map(part).fold(0, u64::wrapping_add);
                        sum.fetch_add(here, Ordering::Relaxed);
                    });
                    black_box(sum.into_inner());
                })
            }),
        ]
    }

    pub(super) fn tiny(
        input: &'static [u32],
        calls: usize,
        workers: usize,
        inside: bool,
    ) -> Vec<Contender<'static>> {
        let pool = rayon(workers);
        let mut contenders = vec![calling("rayon", Role::Peer, calls, move || {
            use rayon::prelude::*;
            let one = || black_box(input).par_iter().for_each(tiny_body);
            if inside {
                pool.install(|| (0..calls).for_each(|_| one()));
            } else {
                (0..calls).for_each(|_| pool.install(one));
            }
        })];
        if inside {
            return contenders;
        }
        contenders.push(forkunion(workers, move |pool| {
            nanoseconds(calls, || {
                for _ in 0..calls {
                    pool.for_n(TINY, |prong| tiny_body(&black_box(input)[prong.task_index]));
                }
            })
        }));
        let mut light = paralight(workers);
        contenders.push(calling("paralight", Role::Peer, calls, move || {
            use paralight::prelude::*;
            for _ in 0..calls {
                let items = black_box(input).par_iter();
                items.with_thread_pool(&mut light).for_each(tiny_body);
            }
        }));
        contenders
    }

    pub(super) fn heavy_tail<'a>(
        costs: &'a [u64],
        workers: usize,
        body: fn(u64),
    ) -> Vec<Contender<'a>> {
        let milliseconds = |run: &mut dyn FnMut()| nanoseconds(1_000_000, run);
        let mut light = paralight(workers);
        vec![
            Contender::new("orx-parallel", Role::Peer, move || {
                use orx_parallel::*;
                milliseconds(&mut || {
                    let items = costs.par().num_threads(workers);
                    items.for_each(|&cost| body(cost));
                })
            }),
            Contender::new("paralight", Role::Peer, move || {
                use paralight::prelude::*;
                milliseconds(&mut || {
                    let items = costs.par_iter().with_thread_pool(&mut light);
                    items.for_each(|&cost| body(cost));
                })
            }),
            forkunion(workers, move |pool| {
                milliseconds(&mut || {
                    pool.for_n_dynamic(costs.len(), |prong| body(costs[prong.task_index]));
                })
            }),
        ]
    }
}
