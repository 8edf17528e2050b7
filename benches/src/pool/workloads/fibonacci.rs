//! Fibonacci by definition, with a `join` at every call: nothing but forks.

use std::hint::black_box;
use std::time::Instant;

use crate::pool::contract::{ForkJoin, ForkJoinWorkload};
#[cfg(feature = "peers")]
use crate::pool::peers::Tokio;

/// The number that the design asks for; the figure is milliseconds.
pub(crate) struct Fibonacci;

const NUMBER: u32 = 32;

impl ForkJoinWorkload for Fibonacci {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        let number = pool.run(|context| fibonacci::<P>(context, black_box(NUMBER)));
        let elapsed = start.elapsed();
        assert_eq!(number, closed_form(NUMBER));
        elapsed.as_secs_f64() * 1e3
    }

    #[cfg(feature = "peers")]
    fn on_tokio(&self) -> Option<fn(&Tokio) -> f64> {
        Some(|tokio| tokio.fibonacci_ms(NUMBER, 20))
    }
}

pub(super) fn fibonacci<P: ForkJoin>(context: &mut P::Context<'_>, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (left, right) = P::join(
        context,
        |context| fibonacci::<P>(context, n - 1),
        |context| fibonacci::<P>(context, n - 2),
    );
    left + right
}

pub(super) fn closed_form(n: u32) -> u64 {
    (0..n).fold((0, 1), |(low, high), _| (high, low + high)).0
}
