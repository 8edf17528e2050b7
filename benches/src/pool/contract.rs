//! What a workload asks of a pool, so that each workload is written once for everyone.
//!
//! The two traits are thin: adapters hand the closures on without wrapping them in anything that
//! survives inlining, so a peer pays only for what it does itself.

#[cfg(feature = "peers")]
use super::peers::Tokio;

/// Fork-join: two closures that may run in parallel, both borrowing from the caller.
///
/// Pools differ in how a worker is found again inside a closure (thread-local, or a context that
/// is passed along), hence the [`Context`](Self::Context).
pub(crate) trait ForkJoin: Sized + Sync {
    type Context<'a>;

    /// Runs `root` on the pool and returns its result.
    fn run<R, F>(&self, root: F) -> R
    where
        F: FnOnce(&mut Self::Context<'_>) -> R + Send,
        R: Send;

    /// Runs both closures, in parallel where that pays.
    fn join<A, B, RA, RB>(context: &mut Self::Context<'_>, left: A, right: B) -> (RA, RB)
    where
        A: FnOnce(&mut Self::Context<'_>) -> RA + Send,
        B: FnOnce(&mut Self::Context<'_>) -> RB + Send,
        RA: Send,
        RB: Send;

    /// Calls `body` for every index below `count`, in the pool's own way; by default in halves.
    fn for_each<F>(&self, count: usize, body: F)
    where
        F: Fn(usize) + Sync,
    {
        self.run(|context| halves::<Self, F>(context, 0, count, &body));
    }
}

fn halves<P, F>(context: &mut P::Context<'_>, start: usize, end: usize, body: &F)
where
    P: ForkJoin,
    F: Fn(usize) + Sync,
{
    if end - start <= 1 {
        (start..end).for_each(body);
        return;
    }
    let middle = start + (end - start) / 2;
    P::join(
        context,
        |context| halves::<P, F>(context, start, middle, body),
        |context| halves::<P, F>(context, middle, end, body),
    );
}

/// Something to measure on any fork-join pool.
pub(crate) trait ForkJoinWorkload {
    /// Runs the workload once and returns its figure, in the unit of the case.
    fn figure<P: ForkJoin>(&self, pool: &P) -> f64;

    /// Whether both sides of every join cost the same, so that halves on plain threads are ideal.
    fn is_balanced(&self) -> bool {
        false
    }

    /// The same with a tokio task per fork, where that can be written at all.
    #[cfg(feature = "peers")]
    fn on_tokio(&self) -> Option<fn(&Tokio) -> f64> {
        None
    }
}

/// Code without a pool: the cost of the work itself.
pub(crate) struct Sequential;

impl ForkJoin for Sequential {
    type Context<'a> = ();

    fn run<R, F>(&self, root: F) -> R
    where
        F: FnOnce(&mut ()) -> R + Send,
        R: Send,
    {
        root(&mut ())
    }

    #[inline]
    fn join<A, B, RA, RB>(context: &mut (), left: A, right: B) -> (RA, RB)
    where
        A: FnOnce(&mut ()) -> RA + Send,
        B: FnOnce(&mut ()) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        (left(context), right(context))
    }
}

/// The ideal split of balanced work: plain threads for the first levels, then sequential code.
pub(crate) struct Halves {
    forks: u32,
}

impl Halves {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            forks: workers.next_power_of_two().ilog2(),
        }
    }
}

impl ForkJoin for Halves {
    /// How many levels still fork.
    type Context<'a> = u32;

    fn run<R, F>(&self, root: F) -> R
    where
        F: FnOnce(&mut u32) -> R + Send,
        R: Send,
    {
        root(&mut self.forks.clone())
    }

    #[inline]
    fn join<A, B, RA, RB>(forks: &mut u32, left: A, right: B) -> (RA, RB)
    where
        A: FnOnce(&mut u32) -> RA + Send,
        B: FnOnce(&mut u32) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        if *forks == 0 {
            return (left(forks), right(forks));
        }
        let below = *forks - 1;
        std::thread::scope(|scope| {
            let right = scope.spawn(move || right(&mut below.clone()));
            let left = left(&mut below.clone());
            (left, right.join().expect("the workloads do not panic"))
        })
    }
}

/// Independent closures, submitted from outside the pool or by one that runs on it.
pub(crate) trait Spawner: Sync {
    /// What a running closure spawns through.
    type Inside<'a>;

    /// Submits from any thread.
    fn spawn(&self, unit: impl FnOnce() + Send + 'static);

    /// Submits a closure that will spawn others.
    fn enter(&self, root: impl FnOnce(&Self::Inside<'_>) + Send + 'static);

    /// Submits from a closure that runs on the pool.
    fn spawn_inside(inside: &Self::Inside<'_>, unit: impl FnOnce() + Send + 'static);

    /// Submits ahead of everything that waits, where the pool has a way to say so.
    fn spawn_urgent(&self, unit: impl FnOnce() + Send + 'static) {
        self.spawn(unit);
    }
}

/// Something to measure on any pool that takes independent closures.
pub(crate) trait SpawnWorkload {
    /// Runs the workload once and returns its figure, in the unit of the case.
    fn figure<P: Spawner>(&self, pool: &P) -> f64;
}

/// Closures that somebody waits for together, each of which may spawn more.
pub(crate) trait Scoping: Spawner {
    type Scope;

    /// Calls `body` and returns when everything spawned in the scope is done. To be called on the pool.
    fn scope(body: impl FnOnce(&Self::Scope) + Send);

    fn spawn_scoped(scope: &Self::Scope, unit: impl FnOnce(&Self::Scope) + Send + 'static);
}

/// Something to measure on any pool that has scopes.
pub(crate) trait ScopeWorkload {
    /// Runs the workload once and returns its figure, in the unit of the case.
    fn figure<P: Scoping>(&self, pool: &P) -> f64;
}
