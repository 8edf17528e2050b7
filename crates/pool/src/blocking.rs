//! Sections that block, and the threads that step in meanwhile.

use crate::worker::with_current;

/// Calls `body`, which may block: read a file, wait for a lock, sleep.
///
/// On a worker this says that its processor is free. Another thread of the pool takes its place
/// until `body` returns; a spare one is started if all others are awake or blocked too, up to the
/// number of workers. Anywhere else it just calls `body`.
pub fn blocking<R>(body: impl FnOnce() -> R) -> R {
    with_current(|worker| {
        let Some(worker) = worker else { return body() };
        let _away = Away::new(worker);
        body()
    })
}

/// Counts a worker as not active.
struct Away<'w>(&'w crate::pool::Shared);

impl<'w> Away<'w> {
    fn new(worker: &crate::worker::Worker<'w>) -> Self {
        let shared = worker.shared;
        shared.sleep.leave();
        shared.ensure_stand_in();
        shared.wake_if_work();
        Self(shared)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.sleep.enter();
    }
}
