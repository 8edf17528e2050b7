//! The pool's own sorts beside rayon's and the standard library's, on inputs that sorts know and on
//! ones they do not.

use std::hint::black_box;
use std::time::Instant;

use loxley_balance::Rng;
use loxley_pool::Pool;

use crate::measure::{Contender, Role};

/// What is to be sorted; the figure is nanoseconds per item.
#[derive(Clone, Copy)]
pub(super) enum Input {
    /// Random numbers.
    Random,
    /// Numbers in order.
    Sorted,
    /// Random numbers, of which there are a hundred different ones.
    FewDistinct,
    /// Records of 128 bytes with a random key.
    Heavy,
}

/// Which kind of sort.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Stable,
    Unstable,
}

/// A record that costs to move.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Record([u64; 16]);

/// Everyone who can sort, at one input of `len` items (a tenth of that for heavy ones).
pub(super) fn contenders(
    input: Input,
    kind: Kind,
    len: usize,
    workers: usize,
) -> Vec<Contender<'static>> {
    let mut rng = Rng::new(3);
    let mut numbers = |range: u64| -> Vec<u64> { (0..len).map(|_| rng.below(range)).collect() };
    match input {
        Input::Random => sorting(numbers(u64::MAX), kind, workers),
        Input::Sorted => sorting((0..len as u64).collect(), kind, workers),
        Input::FewDistinct => sorting(numbers(100), kind, workers),
        Input::Heavy => {
            let keys = numbers(u64::MAX);
            let record = |&key: &u64| Record([key; 16]);
            sorting(keys[..len / 10].iter().map(record).collect(), kind, workers)
        }
    }
}

fn sorting<T>(items: Vec<T>, kind: Kind, workers: usize) -> Vec<Contender<'static>>
where
    T: Ord + Clone + Send + 'static,
{
    let items: &'static [T] = Vec::leak(items);
    let pool = Pool::builder().workers(workers).build();
    let pool = pool.expect("threads can be started");
    let loxley = move |items: &mut [T]| match kind {
        Kind::Stable => pool.sort(items),
        Kind::Unstable => pool.sort_unstable(items),
    };
    let sequential = move |items: &mut [T]| match kind {
        Kind::Stable => items.sort(),
        Kind::Unstable => items.sort_unstable(),
    };
    [
        contender("loxley", Role::Subject, items, loxley),
        contender("sequential", Role::Floor, items, sequential),
    ]
    .into_iter()
    .chain(rayon(items, kind, workers))
    .collect()
}

#[cfg(feature = "peers")]
fn rayon<T>(items: &'static [T], kind: Kind, workers: usize) -> Option<Contender<'static>>
where
    T: Ord + Clone + Send + 'static,
{
    use rayon::slice::ParallelSliceMut as _;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
    let pool = pool.expect("threads can be started");
    let sort = move |items: &mut [T]| match kind {
        Kind::Stable => pool.install(|| items.par_sort()),
        Kind::Unstable => pool.install(|| items.par_sort_unstable()),
    };
    Some(contender("rayon", Role::Peer, items, sort))
}

#[cfg(not(feature = "peers"))]
fn rayon<T>(_: &'static [T], _: Kind, _: usize) -> Option<Contender<'static>> {
    None
}

fn contender<T>(
    name: &'static str,
    role: Role,
    items: &'static [T],
    sort: impl Fn(&mut [T]) + 'static,
) -> Contender<'static>
where
    T: Ord + Clone,
{
    Contender::new(name, role, move || {
        let mut mine = items.to_vec();
        let start = Instant::now();
        sort(black_box(&mut mine));
        let elapsed = start.elapsed();
        assert!(mine.is_sorted());
        elapsed.as_nanos() as f64 / items.len() as f64
    })
}
