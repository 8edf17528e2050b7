//! Panics: what is thrown away must not throw, and what must not unwind does not.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value whose destructor may panic: a result or a panic's payload that nobody wants. A panic
/// in there goes no further than the panic hook; its own payload is leaked, which is the one thing that
/// cannot panic again.
pub(crate) fn discard<T>(value: T) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(again);
    }
}

/// A value that is kept while something else is called. If that unwinds, the value is discarded: dropped in the
/// usual way, a panic of its destructor would end the process.
pub(crate) struct Held<T>(ManuallyDrop<T>);

impl<T> Held<T> {
    #[inline(always)]
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    #[inline(always)]
    pub(crate) fn release(self) -> T {
        let mut held = ManuallyDrop::new(self);
        // SAFETY: `held` is not dropped, so it is taken once.
        unsafe { ManuallyDrop::take(&mut held.0) }
    }
}

impl<T> Drop for Held<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: it was not released, and is not used after this.
            discard(unsafe { ManuallyDrop::take(&mut self.0) });
        }
    }
}

/// Calls `body`, which must not unwind: others still use what is on the stack below it. Ends the
/// process if it does.
#[inline]
pub(crate) fn without_unwinding<R>(body: impl FnOnce() -> R) -> R {
    struct Abort;
    impl Drop for Abort {
        #[cold]
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let abort = Abort;
    let result = body();
    std::mem::forget(abort);
    result
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Self(self.0 - 1));
            }
        }
    }

    #[test]
    fn what_is_discarded_may_panic_and_its_payload_too() {
        discard(Bomb(0));
        discard(Bomb(1));
        discard(Bomb(7));
    }
}
