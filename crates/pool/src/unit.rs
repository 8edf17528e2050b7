//! A unit of work, seen from the outside: one pointer.
//!
//! Units live in three places: on the stack of a `join` ([`crate::join`]), in a heap block of a
//! `scope` or detached spawn ([`crate::spawn`]), in an `Arc` with a handle. The queues hold a
//! pointer to the [`Header`] each of them begins with.
//!
//! # Lineage
//! A waiting worker may only run what its wait depends on: anything else could want a lock that it
//! holds, and nested foreign work could overflow its stack. So each unit knows its *origin*: the
//! join or scope inside which it was made. Origins form a chain up to the root, and a unit may be
//! run by whoever waits for one of its ancestors.
//!
//! The chain can be followed as long as the unit has not run: a join does not return before its
//! unit has, a scope not before all of its units have, and each of those runs inside the next.

use std::ptr::NonNull;

use crate::sync::{AtomicBool, Ordering};
use crate::worker::Worker;

/// The beginning of every unit.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header {
    /// Runs the unit and disposes of it. To be called once.
    run: RunUnit,
    /// The join or scope this unit was made in; null for detached units.
    origin: *const Lineage,
    kind: Kind,
}

/// How a unit is run.
pub(crate) type RunUnit = unsafe fn(NonNull<Header>, &Worker<'_>);

/// Where a unit lives, which tells what to do with one that must not be run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// On the stack of a join that waits for it: it goes back to its owner.
    Join,
    /// On the heap: it may wait anywhere.
    Heap,
}

/// A join or scope that somebody waits for.
#[derive(Debug)]
pub(crate) struct Lineage {
    parent: *const Self,
    /// The seat of whoever waits.
    home: usize,
    /// A unit of this scope was put into the injector.
    strayed: AtomicBool,
}

// SAFETY: `parent` is only followed under the rules of the module's header, which do not depend on
// the thread; the rest is atomic or constant.
unsafe impl Send for Lineage {}
// SAFETY: as above.
unsafe impl Sync for Lineage {}

impl Lineage {
    pub(crate) fn new(worker: &Worker<'_>) -> Self {
        Self {
            parent: worker.lineage(),
            home: worker.index,
            strayed: AtomicBool::new(false),
        }
    }

    /// A lineage that descends from nothing. Its units never stray home.
    pub(crate) fn root() -> Self {
        Self {
            parent: std::ptr::null(),
            home: 0,
            strayed: AtomicBool::new(false),
        }
    }

    pub(crate) fn parent(&self) -> *const Self {
        self.parent
    }

    pub(crate) fn home(&self) -> usize {
        self.home
    }

    /// Has a unit strayed since the last time somebody asked?
    pub(crate) fn take_strayed(&self) -> bool {
        self.strayed.load(Ordering::Acquire) && self.strayed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn has_strayed(&self) -> bool {
        self.strayed.load(Ordering::SeqCst)
    }

    pub(crate) fn set_strayed(&self) {
        self.strayed.store(true, Ordering::SeqCst);
    }
}

impl Header {
    pub(crate) const fn new(run: RunUnit, origin: *const Lineage, kind: Kind) -> Self {
        Self { run, origin, kind }
    }

    /// Is this how it is run? A `false` may be wrong.
    #[inline]
    pub(crate) fn is_run_by(&self, run: RunUnit) -> bool {
        std::ptr::fn_addr_eq(self.run, run)
    }
}

/// A unit that has not run yet, owned by whoever holds this.
#[derive(Debug)]
pub(crate) struct UnitRef(NonNull<Header>);

impl UnitRef {
    /// # Safety
    /// `header` begins a unit that nobody else will run, that stays alive until it has run, and
    /// whose origin does so too. It may be run by any thread. The pointer may be used for the
    /// whole unit, not only for its header.
    pub(crate) unsafe fn new(header: NonNull<Header>) -> Self {
        Self(header)
    }

    pub(crate) fn into_raw(self) -> NonNull<Header> {
        self.0
    }

    pub(crate) fn kind(&self) -> Kind {
        self.header().kind
    }

    pub(crate) fn run(self, worker: &Worker<'_>) {
        let run = self.header().run;
        // SAFETY: the unit has not run, and `self` is consumed, so it runs once.
        unsafe { run(self.0, worker) }
    }

    /// The join or scope it was made in.
    pub(crate) fn origin(&self) -> Option<&Lineage> {
        // SAFETY: the unit has not run, so its origin is alive.
        unsafe { self.header().origin.as_ref() }
    }

    /// Was it made, directly or not, inside `ancestor`?
    pub(crate) fn descends_from(&self, ancestor: *const Lineage) -> bool {
        let mut origin = self.origin();
        while let Some(lineage) = origin {
            if std::ptr::eq(lineage, ancestor) {
                return true;
            }
            // SAFETY: joins and scopes outlive the units made in them; see the module's header.
            origin = unsafe { lineage.parent.as_ref() };
        }
        false
    }

    fn header(&self) -> &Header {
        // SAFETY: the unit has not run, so it is alive, by the promise made in `new`.
        unsafe { self.0.as_ref() }
    }
}
