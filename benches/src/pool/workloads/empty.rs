//! A million closures that do nothing but count: the price of a spawn.

use std::time::Instant;

use super::countdown::Countdown;
use crate::pool::contract::{SpawnWorkload, Spawner};

/// Closures submitted by a thread that is not a worker; the figure is nanoseconds each.
pub(crate) struct FromOutside {
    count: usize,
    left: &'static Countdown,
}

/// Closures spawned by one closure on the pool; the figure is nanoseconds each.
pub(crate) struct FromInside {
    count: usize,
    left: &'static Countdown,
}

impl FromOutside {
    pub(crate) fn new(count: usize) -> Self {
        let left = Countdown::leaked();
        Self { count, left }
    }

    /// The same closures boxed and called by the same thread.
    pub(crate) fn floor(&self) -> f64 {
        let left = self.left;
        left.start(self.count);
        let start = Instant::now();
        for index in 0..self.count {
            let unit: Box<dyn FnOnce()> = Box::new(move || left.done(index));
            std::hint::black_box(unit)();
        }
        left.wait();
        start.elapsed().as_nanos() as f64 / self.count as f64
    }
}

impl FromInside {
    pub(crate) fn new(count: usize) -> Self {
        let left = Countdown::leaked();
        Self { count, left }
    }
}

impl SpawnWorkload for FromOutside {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        let left = self.left;
        left.start(self.count);
        let start = Instant::now();
        for index in 0..self.count {
            pool.spawn(move || left.done(index));
        }
        left.wait();
        start.elapsed().as_nanos() as f64 / self.count as f64
    }
}

impl SpawnWorkload for FromInside {
    fn figure<P: Spawner>(&self, pool: &P) -> f64 {
        let (left, count) = (self.left, self.count);
        left.start(count);
        let start = Instant::now();
        pool.enter(move |inside| {
            for index in 0..count {
                P::spawn_inside(inside, move || left.done(index));
            }
        });
        left.wait();
        start.elapsed().as_nanos() as f64 / count as f64
    }
}
