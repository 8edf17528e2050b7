//! Quicksort with pivots that split one to seven: deep, lopsided forks.

use std::time::Instant;

use crate::pool::contract::{ForkJoin, ForkJoinWorkload, Sequential};

/// Below this length a slice is sorted where it is.
const SEQUENTIAL_BELOW: usize = 2048;

/// The numbers to sort; the figure is milliseconds.
pub(crate) struct Quicksort {
    numbers: Vec<u32>,
}

impl Quicksort {
    /// `count` numbers from a fixed seed.
    pub(crate) fn random(count: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        Self {
            numbers: std::iter::repeat_with(next).take(count).collect(),
        }
    }
}

impl Quicksort {
    /// What `workers` cannot beat, in milliseconds: until the first split is done nobody else has
    /// anything to do, and from then on all are busy to the end. Taken from a sequential run, whose
    /// thread has the caches and the memory to itself.
    pub(crate) fn bound(&self, workers: usize) -> f64 {
        let mut numbers = self.numbers.clone();
        let start = Instant::now();
        let (low, high) = split(&mut numbers);
        let first = start.elapsed();
        sort::<Sequential>(&mut (), low);
        sort::<Sequential>(&mut (), high);
        let rest = start.elapsed() - first;
        (first + rest / workers as u32).as_secs_f64() * 1e3
    }
}

impl ForkJoinWorkload for Quicksort {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let mut numbers = self.numbers.clone();
        let start = Instant::now();
        pool.run(|context| sort::<P>(context, &mut numbers));
        let elapsed = start.elapsed();
        assert!(numbers.is_sorted());
        elapsed.as_secs_f64() * 1e3
    }
}

fn sort<P: ForkJoin>(context: &mut P::Context<'_>, numbers: &mut [u32]) {
    if numbers.len() < SEQUENTIAL_BELOW {
        numbers.sort_unstable();
        return;
    }
    let (low, high) = split(numbers);
    P::join(
        context,
        |context| sort::<P>(context, low),
        |context| sort::<P>(context, high),
    );
}

/// Parts the slice around a pivot with about an eighth of the numbers below it; the pivot itself
/// stays between the two parts.
fn split(numbers: &mut [u32]) -> (&mut [u32], &mut [u32]) {
    let step = numbers.len() / 16;
    let mut sample: [(u32, usize); 15] = std::array::from_fn(|i| {
        let index = (i + 1) * step;
        (numbers[index], index)
    });
    sample.sort_unstable();
    let (pivot, index) = sample[1];
    let last = numbers.len() - 1;
    numbers.swap(index, last);
    let mut below = 0;
    for index in 0..last {
        let is_below = numbers[index] < pivot;
        numbers.swap(index, below);
        below += usize::from(is_below);
    }
    numbers.swap(below, last);
    let (low, rest) = numbers.split_at_mut(below);
    (low, &mut rest[1..])
}
