//! What a workload asks of a pool, so that each workload is written once for everyone.
//!
//! The two traits are thin: adapters hand the closures on without wrapping them in anything that
//! survives inlining, so a peer pays only for what it does itself.

/// Fork-join: two closures that may run in parallel, both borrowing from the caller.
///
/// Pools differ in how a worker is found again inside a closure (thread-local, or a context that
/// is passed along), hence the [`Context`](Self::Context).
pub(crate) trait ForkJoin: Sized {
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
