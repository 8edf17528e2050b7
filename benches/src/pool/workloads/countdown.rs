//! Waiting for a known number of closures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;

/// Consecutive closures that count in the same place.
const RUN: usize = 32;
/// How many places there are.
const PLACES: usize = 64;

/// Counts closures down to none and then wakes the thread that waits.
///
/// A single counter would be fought over and cost more than the pools that are measured, so there
/// are many: closures submitted one after the other, which mostly run on one worker, share one.
/// It is shared as `&'static`, because a counted pointer would be such a counter again.
pub(crate) struct Countdown {
    places: [Place; PLACES],
    /// Places that are not at zero.
    open: AtomicUsize,
    waiter: Mutex<Option<Thread>>,
}

/// A counter on a cache line of its own.
#[repr(align(128))]
struct Place(AtomicUsize);

impl Countdown {
    /// One that is never freed; a case needs a single one.
    pub(crate) fn leaked() -> &'static Self {
        Box::leak(Box::new(Self {
            places: std::array::from_fn(|_| Place(AtomicUsize::new(0))),
            open: AtomicUsize::new(0),
            waiter: Mutex::new(None),
        }))
    }

    /// Expects [`done`](Self::done) once for each index below `count`; the calling thread is the
    /// one that waits.
    pub(crate) fn start(&self, count: usize) {
        *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        let mut open = 0;
        for (number, place) in self.places.iter().enumerate() {
            let expected = expected(number, count);
            place.0.store(expected, Ordering::Relaxed);
            open += usize::from(expected > 0);
        }
        self.open.store(open, Ordering::Release);
    }

    #[inline]
    pub(crate) fn done(&self, index: usize) {
        let place = &self.places[index / RUN % PLACES];
        if place.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close_one();
        }
    }

    #[cold]
    fn close_one(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            let waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
            waiter.as_ref().expect("a start comes first").unpark();
        }
    }

    pub(crate) fn wait(&self) {
        while self.open.load(Ordering::Acquire) != 0 {
            std::thread::park();
        }
    }
}

/// How many of the indexes below `count` count in this place.
fn expected(place: usize, count: usize) -> usize {
    let whole = count / (RUN * PLACES) * RUN;
    let rest = (count % (RUN * PLACES))
        .saturating_sub(place * RUN)
        .min(RUN);
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_expected_in_its_place() {
        for count in [0, 1, 31, 32, 33, 2047, 2048, 2049, 100_000] {
            let mut counted = [0; PLACES];
            for index in 0..count {
                counted[index / RUN % PLACES] += 1;
            }
            let expected: [usize; PLACES] = std::array::from_fn(|place| expected(place, count));
            assert_eq!(counted, expected, "{count}");
        }
    }

    #[test]
    fn the_waiter_goes_on_after_the_last() {
        let countdown = Countdown::leaked();
        countdown.start(5_000);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2_500).for_each(|index| countdown.done(index)));
            scope.spawn(|| (2_500..5_000).for_each(|index| countdown.done(index)));
            countdown.wait();
        });
    }
}
