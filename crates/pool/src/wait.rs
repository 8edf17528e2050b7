//! Waiting without idling, and without touching what is none of the waiter's business.
//!
//! A worker that waits for a join, a scope or a handle runs parts of what it waits for, if it finds
//! any: units made inside it ([`crate::unit`], *lineage*). It never runs anything else. So a lock
//! held across `join` can only be wanted by the holder's own descendants, and the stack grows no
//! deeper than the recursion of the program itself. (In the drop-in for rayon it also runs what the very
//! thread put into its own deque meanwhile, [`Company::OwnToo`]: rayon's order of units demands it.)
//!
//! When it finds nothing for a while it sleeps. Three things wake it: the end of its wait; a worker
//! it *follows* showing new units; a unit of its scope entering the injector.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::blocking::present;
use crate::pool::Shared;
use crate::priority::Priority;
use crate::seat::Seat;
use crate::sync::{AtomicU32, Ordering, fence, park, spin, yield_now};
use crate::trace::{self, Event};
use crate::unit::{Header, Kind, Lineage, UnitRef};
use crate::worker::{FUTILE, Worker, claim};

/// How many fruitless looks come before sleeping.
const LOOKS: u32 = if cfg!(shuttle) { 2 } else { 200 };
/// Whoever runs a stolen join is left alone for [`FUTILE`] at first, which is when dividing it begins
/// to pay, for longer after parts that were too small, up to this, and not at all after a large one.
const MOST_PATIENCE: Duration = Duration::from_micros(24);

/// What a waiting worker runs besides parts of what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Nothing.
    PartsOnly,
    /// Whatever it put into its own deque since what it waits for began.
    OwnToo,
}

/// Something that a worker can wait for.
pub(crate) trait Awaited {
    /// What its parts descend from.
    fn lineage(&self) -> &Lineage;
    /// Is there nothing to wait for any more?
    fn is_over(&self) -> bool;
    /// Who may have parts of it.
    fn runner(&self) -> Runner;
    /// The waiter is about to park and wants to be unparked at the end. `false`: it is over.
    fn announce_sleep(&self) -> bool;
    /// The waiter is awake again.
    fn announce_awake(&self);
    /// It takes so long that the waiter runs parts of it, or sleeps. Told once.
    fn is_late(&self, _waiter: &Worker<'_>) {}
    /// May its end depend on units that the waiter will not run?
    fn needs_others(&self) -> bool {
        false
    }
}

/// Where to look for parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// It was taken but has not begun.
    NotYet,
    /// The worker in this seat runs it.
    Seat(usize),
    /// Anyone may have parts.
    Anyone,
    /// It has no parts.
    Nobody,
}

impl Runner {
    /// Reads a mark: zero, one more than a seat, or the largest number for nobody.
    pub(crate) fn from_mark(mark: &AtomicU32) -> Self {
        match mark.load(Ordering::Relaxed) {
            0 => Self::NotYet,
            u32::MAX => Self::Nobody,
            seat => Self::Seat(seat as usize - 1),
        }
    }
}

impl Worker<'_> {
    /// Returns when `awaited` is over; runs parts of it meanwhile.
    pub(crate) fn wait_for(&self, awaited: &impl Awaited) {
        self.wait_for_since(awaited, self.deque.mark());
    }

    /// As `wait_for`, when everything pushed since `mark` may be part of what is awaited.
    pub(crate) fn wait_for_since(&self, awaited: &impl Awaited, mark: usize) {
        present(self, || self.wait_present(awaited, mark));
    }

    fn wait_present(&self, awaited: &impl Awaited, mark: usize) {
        let mut wait = Wait {
            worker: self,
            patient_until: None,
            awaited,
            is_late: false,
            mark,
            barren: 0,
            was_misled: false,
            heir_of: None,
        };
        let mut fruitless = 0;
        let mut idle_since = None;
        loop {
            let own = wait.own_part();
            // What has parts that have not run is not over: not looked at, the count stays in the caches of those
            // who change it.
            if own.is_none() && awaited.is_over() {
                break;
            }
            if let Some(part) = own.or_else(|| wait.part_elsewhere()) {
                self.count_wait(&mut idle_since);
                wait.runner_is_late();
                wait.run(part);
                fruitless = 0;
                continue;
            }
            if idle_since.is_none() && self.shared.meter.is_on() {
                idle_since = Some(Instant::now());
            }
            if fruitless < LOOKS {
                fruitless += 1;
                pause(fruitless);
            } else {
                wait.runner_is_late();
                wait.sleep();
                wait.barren = 0;
                fruitless = 0;
            }
        }
        self.count_wait(&mut idle_since);
    }

    /// Notes, for the balance figures, how long this wait found nothing to do.
    fn count_wait(&self, idle_since: &mut Option<Instant>) {
        if let Some(start) = idle_since.take() {
            self.waited.set(self.waited.get() + start.elapsed());
        }
    }

    /// Puts a unit that this worker must not run now where others will find it.
    fn give_back(&self, unit: UnitRef) {
        match unit.kind() {
            Kind::Join => crate::join::JoinHead::give_back(unit, self.shared),
            Kind::Heap => self.shared.stray(unit),
        }
    }
}

impl Shared {
    /// Puts a unit into the injector and tells whoever waits for its scope.
    pub(crate) fn stray(&self, unit: UnitRef) {
        // The lineage may be gone as soon as the unit is in the queue.
        let origin = unit.origin().map(std::ptr::from_ref);
        let home = unit.origin().map(Lineage::home);
        self.inject(Priority::Normal, unit, || {
            if let Some(origin) = origin {
                // SAFETY: the unit has not run and is not yet in the queue, so its origin is alive.
                unsafe { &*origin }.set_strayed();
            }
        });
        if let Some(home) = home {
            // The one who waits for the scope may be the only one free to run it.
            self.seats[home].unpark();
        }
    }
}

fn pause(fruitless: u32) {
    if fruitless % 64 == 63 {
        yield_now();
    } else {
        for _ in 0..4 {
            spin();
        }
    }
}

/// One wait.
struct Wait<'a, 'p, A> {
    worker: &'a Worker<'p>,
    awaited: &'a A,
    /// It was told that it is late.
    is_late: bool,
    /// Until when whoever runs the awaited unit is left alone.
    patient_until: Option<Instant>,
    /// Older units in the own deque are not ours to touch.
    mark: usize,
    /// Seats (modulo 64) that had only foreign units; not asked again before the next sleep.
    barren: u64,
    /// A runner had foreign units: we must not be called in the place of those who could run them.
    was_misled: bool,
    /// The seat whose heir we are, while we sleep.
    heir_of: Option<&'a Seat>,
}

impl<A: Awaited> Wait<'_, '_, A> {
    fn runner_is_late(&mut self) {
        if !self.is_late {
            self.is_late = true;
            self.awaited.is_late(self.worker);
        }
    }

    fn part_elsewhere(&mut self) -> Option<UnitRef> {
        self.ordered_part()
            .or_else(|| self.strayed_part())
            .or_else(|| self.stolen_part())
    }

    /// A part that waits in our own deque, or with [`Company::OwnToo`] whatever we put there, unless it is over.
    fn own_part(&self) -> Option<UnitRef> {
        self.worker.note_queue();
        loop {
            let unit = self.worker.deque.pop_above(self.mark)?;
            // SAFETY: it was just taken out of the deque.
            let unit = unsafe { claim(unit) };
            if unit.descends_from(self.awaited.lineage()) {
                return Some(unit);
            }
            if self.awaited.is_over() {
                self.worker.deque.push(unit.into_raw());
                return None;
            }
            if self.worker.shared.settings.company == Company::OwnToo {
                return Some(unit);
            }
            self.worker.give_back(unit);
        }
    }

    /// Is this unit, which waits in some queue, a part?
    fn is_part(&self, unit: NonNull<Header>) -> bool {
        // SAFETY: it is in the queue, and stays there while we look at it: it has not run.
        unsafe { claim(unit) }.descends_from(self.awaited.lineage())
    }

    fn ordered_part(&self) -> Option<UnitRef> {
        let orders = &self.worker.seat.orders;
        let unit = orders.pop_where(|unit| self.is_part(unit))?;
        // SAFETY: it was just taken out of the orders.
        Some(unsafe { claim(unit) })
    }

    fn strayed_part(&self) -> Option<UnitRef> {
        let lineage = self.awaited.lineage();
        if !lineage.take_strayed() {
            return None;
        }
        let worker = self.worker;
        let injector = &worker.shared.injector;
        let unit = injector.pop_where(|unit| self.is_part(unit))?;
        // There may be more.
        lineage.set_strayed();
        // SAFETY: it was just taken out of the injector.
        Some(unsafe { claim(unit) })
    }

    fn stolen_part(&mut self) -> Option<UnitRef> {
        match self.awaited.runner() {
            Runner::NotYet | Runner::Nobody => None,
            Runner::Seat(_) if self.is_patient() => None,
            Runner::Seat(index) => self.steal_from(index),
            Runner::Anyone => {
                (0..self.worker.shared.used_seats().len()).find_map(|index| self.steal_from(index))
            }
        }
    }

    /// Is it too early to disturb the runner? It may be done in a moment, and small parts are not worth
    /// taking from it.
    fn is_patient(&mut self) -> bool {
        let now = Instant::now();
        now < *self
            .patient_until
            .get_or_insert(now + self.worker.patience.get())
    }

    /// Runs a part and learns from it.
    fn run(&mut self, part: UnitRef) {
        if part.kind() != Kind::Join {
            self.worker.run(part);
            return;
        }
        let start = Instant::now();
        self.worker.run(part);
        let end = Instant::now();
        let patience = if end.duration_since(start) < FUTILE {
            (self.worker.patience.get() * 2).clamp(FUTILE, MOST_PATIENCE)
        } else {
            Duration::ZERO
        };
        self.worker.patience.set(patience);
        self.patient_until = Some(end + patience);
    }

    fn steal_from(&mut self, index: usize) -> Option<UnitRef> {
        let worker = self.worker;
        let bit = 1 << (index % 64);
        if index == worker.index || self.barren & bit != 0 {
            return None;
        }
        let seat = &worker.shared.seats[index];
        if !shows(seat) {
            seat.ask();
            return None;
        }
        let unit = worker.steal_one(seat)?;
        if unit.descends_from(self.awaited.lineage()) {
            return Some(unit);
        }
        self.barren |= bit;
        self.was_misled = true;
        worker.give_back(unit);
        None
    }

    fn sleep(&mut self) {
        if self.awaited.runner() == Runner::NotYet {
            yield_now();
            return;
        }
        self.follow();
        // Pairs with the fence in `Worker::tell`: either a runner sees us following, or we see
        // what it shows.
        fence(Ordering::SeqCst);
        // Even foreign units keep us awake: one of ours may be behind them, and nobody else free.
        let sleeps =
            !self.runners().any(shows) && !self.is_called() && self.awaited.announce_sleep();
        if sleeps {
            self.park();
            self.awaited.announce_awake();
        }
        let is_counted = self.unfollow();
        let shared = self.worker.shared;
        if sleeps && !is_counted {
            shared.sleep.enter();
        } else if is_counted && !sleeps {
            // Called before we lay down, and now counted twice.
            shared.sleep.leave();
            shared.wake_if_work();
        }
    }

    /// Parks until the wait is over or somebody calls; not counted as active meanwhile.
    fn park(&self) {
        let shared = self.worker.shared;
        self.worker.counters().parks.add(1);
        let needs_others = self.awaited.needs_others();
        if needs_others {
            shared.step_away();
        } else {
            shared.sleep.leave();
            shared.wake_if_work();
        }
        self.worker.without_number(|| {
            trace::span(self.worker, Event::Asleep, || {
                while !self.awaited.is_over() && !self.is_called() {
                    park();
                }
            });
        });
        if needs_others {
            shared.come_back();
        }
    }

    /// Was a unit shown or did one stray since we began to follow?
    fn is_called(&self) -> bool {
        let own = self.worker.index;
        self.awaited.lineage().has_strayed()
            || (self.worker.seat.orders).has_where(|unit| self.is_part(unit))
            || match self.heir_of {
                Some(seat) => !seat.followers.is_heir(own),
                None => self.runners().any(|seat| !seat.followers.contains(own)),
            }
    }

    fn follow(&mut self) {
        let own = self.worker.index;
        if let Runner::Seat(index) = self.awaited.runner()
            && !self.was_misled
        {
            let seat = &self.worker.shared.seats[index];
            if seat.followers.become_heir(own) {
                self.heir_of = Some(seat);
                seat.ask();
                return;
            }
        }
        for seat in self.runners() {
            seat.followers.add(own);
            seat.ask();
        }
    }

    /// `true`: somebody called, and counted us as active.
    fn unfollow(&mut self) -> bool {
        let own = self.worker.index;
        if let Some(seat) = self.heir_of.take() {
            return seat.followers.resign(own);
        }
        for seat in self.runners() {
            seat.followers.remove(own);
        }
        false
    }

    fn runners(&self) -> impl Iterator<Item = &Seat> {
        let runner = self.awaited.runner();
        let own = self.worker.index;
        let wanted = move |index: usize| match runner {
            Runner::NotYet | Runner::Nobody => false,
            Runner::Seat(seat) => index == seat,
            Runner::Anyone => index != own,
        };
        self.worker
            .shared
            .used_seats()
            .iter()
            .enumerate()
            .filter(move |(index, _)| wanted(*index))
            .map(|(_, seat)| seat)
    }
}

/// Does a seat show something that a waiter could take?
fn shows(seat: &Seat) -> bool {
    seat.ring.shared_len() != 0 || seat.deque.len() != 0
}
