//! Sections that block, and the threads that step in meanwhile.

use crate::worker::{Worker, with_current};

/// Calls `body`, which may block: read a file, wait for a lock, sleep.
///
/// On a worker this says that its processor is free. Another thread of the pool takes its place
/// until `body` returns; a spare one is started if all others are awake or blocked too, up to the
/// number of workers. Anywhere else, and inside another such section, it just calls `body`.
///
/// ```
/// # let pool = loxley_pool::Pool::new()?;
/// let text = pool.spawn(|| loxley_pool::blocking(|| std::fs::read_to_string("Cargo.toml")));
/// assert!(text.wait().is_ok());
/// # Ok::<(), loxley_pool::BuildError>(())
/// ```
pub fn blocking<R>(body: impl FnOnce() -> R) -> R {
    with_current(|worker| match worker {
        Some(worker) if !worker.is_away.get() => {
            let _away = Away::new(worker);
            body()
        }
        _ => body(),
    })
}

/// While it lives, the worker does not count as active.
struct Away<'a, 'p>(&'a Worker<'p>);

impl<'a, 'p> Away<'a, 'p> {
    fn new(worker: &'a Worker<'p>) -> Self {
        worker.is_away.set(true);
        worker.shared.step_away();
        Self(worker)
    }
}

impl Drop for Away<'_, '_> {
    fn drop(&mut self) {
        self.0.shared.sleep.enter();
        self.0.shared.come_back();
        self.0.is_away.set(false);
    }
}

/// Calls `body`, which needs the worker to count as active, also from within a blocking section.
pub(crate) fn present<R>(worker: &Worker<'_>, body: impl FnOnce() -> R) -> R {
    struct Again<'a, 'p>(&'a Worker<'p>);
    impl Drop for Again<'_, '_> {
        fn drop(&mut self) {
            self.0.is_away.set(true);
            self.0.shared.step_away();
        }
    }
    if !worker.is_away.replace(false) {
        return body();
    }
    worker.shared.sleep.enter();
    worker.shared.come_back();
    let _again = Again(worker);
    body()
}
