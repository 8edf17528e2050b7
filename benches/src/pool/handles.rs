//! Closures with a result: handles that are dropped, waited for, or wait for each other. Not every pool has
//! handles; rayon does the nearest thing, a scope whose closures write into places.

use std::hint::black_box;
use std::time::Instant;

use loxley_pool::{Handle, Pool};

use super::workloads::{count, counted, wait_for};
use crate::measure::{Contender, Role};

/// Handles are made and waited for so many at a time.
const BATCH: usize = 1_000;

fn loxley(workers: usize) -> Pool {
    let pool = Pool::builder().workers(workers).build();
    pool.expect("threads can be started")
}

fn contender<'a>(
    name: &'static str,
    role: Role,
    count: usize,
    body: impl Fn(usize) + 'a,
) -> Contender<'a> {
    Contender::new(name, role, move || {
        let start = Instant::now();
        body(count);
        start.elapsed().as_nanos() as f64 / count as f64
    })
}

/// `total` closures spawned on the pool whose handles are dropped; the figure is nanoseconds each.
pub(super) fn dropped(total: usize, workers: usize) -> Vec<Contender<'static>> {
    let pool = loxley(workers);
    let mut contenders = vec![contender("loxley", Role::Subject, total, move |total| {
        let end = counted() + total as u64;
        pool.install(|| (0..total).for_each(|_| drop(loxley_pool::spawn(count))));
        wait_for(end);
    })];
    contenders.extend(peers::dropped(total, workers));
    contenders
}

/// `total` closures spawned on the pool and waited for in batches; the figure is nanoseconds each.
pub(super) fn waited(total: usize, workers: usize) -> Vec<Contender<'static>> {
    let pool = loxley(workers);
    let mut contenders = vec![contender("loxley", Role::Subject, total, move |total| {
        let spawn = |n| loxley_pool::spawn(move || black_box(n));
        pool.install(|| (0..total / BATCH).for_each(|_| batch(spawn)));
    })];
    contenders.extend(peers::waited(total, workers));
    contenders
}

/// The same by a thread that is not in the pool.
pub(super) fn waited_outside(total: usize, workers: usize) -> Vec<Contender<'static>> {
    let pool = loxley(workers);
    let mut contenders = vec![contender("loxley", Role::Subject, total, move |total| {
        let spawn = |n| pool.spawn(move || black_box(n));
        (0..total / BATCH).for_each(|_| batch(spawn));
    })];
    contenders.extend(peers::waited_outside(total, workers));
    contenders
}

/// Spawns a batch with `spawn`, each with a number, and waits for all.
fn batch(spawn: impl Fn(usize) -> Handle<usize>) {
    let handles: Vec<Handle<usize>> = (0..BATCH).map(spawn).collect();
    let sum: usize = handles.into_iter().map(Handle::wait).sum();
    assert_eq!(sum, BATCH * (BATCH - 1) / 2);
}

/// Chains in which each closure waits for the one before it; the figure is nanoseconds a link.
pub(super) fn chained(total: usize, workers: usize) -> Vec<Contender<'static>> {
    let pool = loxley(workers);
    let mut contenders = vec![contender("loxley", Role::Subject, total, move |total| {
        pool.install(|| {
            for _ in 0..total / BATCH {
                let mut last = loxley_pool::spawn(|| 0);
                for _ in 0..BATCH {
                    let before = last;
                    last = loxley_pool::spawn(move || before.wait() + 1);
                }
                assert_eq!(last.wait(), BATCH);
            }
        });
    })];
    contenders.extend(peers::chained(total, workers));
    contenders
}

#[cfg(not(feature = "peers"))]
mod peers {
    use super::Contender;

    pub(super) fn dropped(_: usize, _: usize) -> Vec<Contender<'static>> {
        Vec::new()
    }

    pub(super) use dropped as waited;
    pub(super) use dropped as waited_outside;
    pub(super) use dropped as chained;
}

#[cfg(feature = "peers")]
mod peers {
    use super::*;

    fn rayon(workers: usize) -> rayon::ThreadPool {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        pool.expect("threads can be started")
    }

    fn tokio(workers: usize) -> tokio::runtime::Runtime {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .build();
        runtime.expect("threads can be started")
    }

    pub(super) fn dropped(total: usize, workers: usize) -> Vec<Contender<'static>> {
        let (pool, runtime) = (rayon(workers), tokio(workers));
        vec![
            contender("rayon", Role::Peer, total, move |total| {
                let end = counted() + total as u64;
                pool.install(|| (0..total).for_each(|_| rayon::spawn(count)));
                wait_for(end);
            }),
            contender("tokio", Role::Peer, total, move |total| {
                let end = counted() + total as u64;
                runtime.spawn(async move {
                    (0..total).for_each(|_| drop(tokio::spawn(async { count() })));
                });
                wait_for(end);
            }),
        ]
    }

    /// A scope whose closures write into places.
    fn batch_in_scope() {
        let mut places = vec![0; BATCH];
        rayon::scope(|scope| {
            for (n, place) in places.iter_mut().enumerate() {
                scope.spawn(move |_| *place = black_box(n));
            }
        });
        assert_eq!(places.iter().sum::<usize>(), BATCH * (BATCH - 1) / 2);
    }

    async fn batch_of_tasks() {
        let spawn = |n| tokio::spawn(async move { black_box(n) });
        let tasks: Vec<_> = (0..BATCH).map(spawn).collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.expect("the workloads do not panic");
        }
        assert_eq!(sum, BATCH * (BATCH - 1) / 2);
    }

    pub(super) fn waited(total: usize, workers: usize) -> Vec<Contender<'static>> {
        let (pool, runtime) = (rayon(workers), tokio(workers));
        vec![
            contender("rayon", Role::Peer, total, move |total| {
                pool.install(|| (0..total / BATCH).for_each(|_| batch_in_scope()));
            }),
            contender("tokio", Role::Peer, total, move |total| {
                let batches = async move {
                    for _ in 0..total / BATCH {
                        batch_of_tasks().await;
                    }
                };
                let ended = runtime.block_on(runtime.spawn(batches));
                ended.expect("the workloads do not panic");
            }),
        ]
    }

    pub(super) fn waited_outside(total: usize, workers: usize) -> Vec<Contender<'static>> {
        let (pool, runtime) = (rayon(workers), tokio(workers));
        vec![
            contender("rayon", Role::Peer, total, move |total| {
                (0..total / BATCH).for_each(|_| pool.install(batch_in_scope));
            }),
            contender("tokio", Role::Peer, total, move |total| {
                (0..total / BATCH).for_each(|_| runtime.block_on(batch_of_tasks()));
            }),
        ]
    }

    pub(super) fn chained(total: usize, workers: usize) -> Vec<Contender<'static>> {
        let runtime = tokio(workers);
        let chain = || async {
            let mut last = tokio::spawn(async { 0 });
            for _ in 0..BATCH {
                let before = last;
                last =
                    tokio::spawn(
                        async move { before.await.expect("the workloads do not panic") + 1 },
                    );
            }
            assert_eq!(last.await.expect("the workloads do not panic"), BATCH);
        };
        vec![contender("tokio", Role::Peer, total, move |total| {
            let chains = async move {
                for _ in 0..total / BATCH {
                    chain().await;
                }
            };
            let ended = runtime.block_on(runtime.spawn(chains));
            ended.expect("the workloads do not panic");
        })]
    }
}
