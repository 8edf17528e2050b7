//! Several threads that are not of the pool and compute on it at once.

use std::hint::black_box;
use std::time::Instant;

use super::fibonacci::{closed_form, fibonacci};
use crate::pool::contract::{ForkJoin, ForkJoinWorkload};

/// Each thread computes a Fibonacci number by definition, several times; the figure is milliseconds for all.
pub(crate) struct Guests {
    pub(crate) threads: usize,
    pub(crate) repeats: usize,
}

const NUMBER: u32 = 24;

impl ForkJoinWorkload for Guests {
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    for _ in 0..self.repeats {
                        let number = pool.run(|context| fibonacci::<P>(context, black_box(NUMBER)));
                        assert_eq!(number, closed_form(NUMBER));
                    }
                });
            }
        });
        start.elapsed().as_secs_f64() * 1e3
    }
}
