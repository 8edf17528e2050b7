//! How a worker without work finds some, and how it sleeps when there is none.

use std::time::{Duration, Instant};

use loxley_balance::{Backoff, Step};

use super::{Worker, claim, most_eager};
use crate::machine::{TICKS_PER_NS, ticks};
use crate::seat::Seat;
use crate::sleep::LieDown;
use crate::sync::{park, park_timeout, spin, yield_now};
use crate::top::Steal;
use crate::trace::{self, Event};
use crate::unit::UnitRef;

/// A stolen join that takes less than this was not worth stealing: handing it over and back costs
/// both sides about as much.
pub(crate) const FUTILE: Duration = Duration::from_micros(6);
/// How long a thief leaves joins alone after a futile one; twice as long after each further one, up
/// to 128 times.
const REST: Duration = Duration::from_micros(2);
const MOST_FUTILE: u32 = 8;
/// From so many futile ones on it sleeps meanwhile.
const DOZES_FROM: u32 = 6;
/// A thief that leaves joins alone looks for other units this often; long enough to let others run.
const RESTING_NS: u64 = 5_000;
/// So many ticks asleep are about what looking for work with all eagerness takes: some 30 µs.
const SHORT_SLEEP: u64 = 30_000 * TICKS_PER_NS;
/// One steal in so many is timed.
const TIMED_STEALS: u64 = 16;

impl Worker<'_> {
    /// Looks for work until there is some, sleeping in between. `None`: the pool is closing; or, for a
    /// worker in the middle of something that waits for it, it `is_over`.
    pub(super) fn search_until(&self, is_over: Option<&dyn Fn() -> bool>) -> Option<UnitRef> {
        self.shared.sleep.start_searching();
        let start = self.is_timed().then(Instant::now);
        let mut backoff = Backoff::default();
        let mut has_slept = false;
        let mut patience = self.shared.settings.patience;
        patience.searches = patience.searches.min(self.eagerness.get());
        patience.pauses = patience.pauses.min(self.eagerness.get());
        loop {
            let found = match is_over {
                Some(is_over) if is_over() => {
                    self.finish_search(start, has_slept);
                    return None;
                }
                Some(_) => self.take_any(),
                None => self.next_own().or_else(|| self.steal_round(Spoils::Many)),
            };
            if found.is_some() {
                self.finish_search(start, has_slept);
                return found;
            }
            let step = if self.shared.sleep.is_crowded() {
                Step::Park
            } else if self.futile.get() >= DOZES_FROM && self.leaves_joins_alone() {
                self.doze(is_over);
                continue;
            } else if self.leaves_joins_alone() && self.shared.shows_work() {
                // Not to bed: whoever shows something would have to wake us.
                Step::Pause { ns: RESTING_NS }
            } else {
                backoff.next(&patience, &mut self.rng.borrow_mut())
            };
            match step {
                Step::Search => spin(),
                Step::Pause { ns } => self.pause(ns),
                Step::Park => {
                    has_slept = true;
                    let since = ticks();
                    if !self.sleep(is_over) {
                        return None;
                    }
                    self.learn_from_sleep(ticks().wrapping_sub(since));
                    backoff.reset();
                }
            }
        }
    }

    /// Work that comes right after going to sleep was worth looking for a little longer; work that comes later was
    /// not worth looking for at all.
    fn learn_from_sleep(&self, ticks: u64) {
        let before = self.eagerness.get();
        let most = most_eager(&self.shared.settings.patience);
        let is_short = ticks < SHORT_SLEEP && !self.shared.sleep.is_crowded();
        let eagerness = if is_short { before + 2 } else { before / 2 };
        self.eagerness.set(eagerness.min(most));
    }

    /// Are idle times to be measured?
    fn is_timed(&self) -> bool {
        self.shared.settings.is_metered || trace::is_on(self.shared)
    }

    fn finish_search(&self, start: Option<Instant>, has_slept: bool) {
        if let Some(start) = start {
            let waited = start.elapsed();
            self.counters().idle_ns.add(waited.as_nanos() as u64);
            trace::record(self, Event::Idle, start, waited);
        }
        if !has_slept {
            let most = most_eager(&self.shared.settings.patience);
            self.eagerness.set((self.eagerness.get() + 1).min(most));
        }
        self.victims.borrow_mut().found();
        if self.shared.sleep.stop_searching() {
            self.shared.wake_if_work();
        }
    }

    /// Waits so long without sleeping, but lets others run.
    fn pause(&self, ns: u64) {
        let start = Instant::now();
        let pause = Duration::from_nanos(ns);
        loop {
            for _ in 0..8 {
                spin();
            }
            let passed = start.elapsed();
            if passed >= pause {
                return;
            }
            if passed > Duration::from_micros(4) {
                yield_now();
            }
        }
    }

    /// Parks until woken. `false`: the pool is closing and nothing is left to do, which does not matter
    /// to one that waits until something `is_over`.
    fn sleep(&self, is_over: Option<&dyn Fn() -> bool>) -> bool {
        let sleep = &self.shared.sleep;
        let look = sleep.lie_down(self.index) == LieDown::LookOnceMore;
        self.shared.detached.tell_if_idle(self.shared);
        // First this, so that what was submitted before the pool began to close is seen below.
        let closing = self.shared.is_closing();
        // Looked at once: a unit that is there, and then taken by somebody else who leaves, must not
        // put us to bed in a closing pool, where nobody would wake us.
        let has_work = self.shared.has_work();
        let is_ordered = !self.seat.orders.is_empty();
        let is_over_now = is_over.is_some_and(|is_over| is_over());
        let leave = closing
            && is_over.is_none()
            && !has_work
            && !is_ordered
            && self.shared.nobody_is_absent();
        // For the same reason nobody is too many while the pool closes.
        let look = look || closing;
        let stays = leave || is_over_now || is_ordered || look && has_work;
        if stays && sleep.stay_awake(self.index) {
            if leave {
                // A searcher that leaves is like one that found something.
                let _ = sleep.stop_searching();
            }
            return !leave;
        }
        self.counters().parks.add(1);
        self.asleep(|| {
            while !sleep.take_woken(self.index) {
                park();
            }
        });
        true
    }

    /// Sleeps until the joins of others are worth another look, or somebody has something else.
    fn doze(&self, is_over: Option<&dyn Fn() -> bool>) {
        let sleep = &self.shared.sleep;
        let rest = self.rests_until.get().duration_since(Instant::now());
        sleep.doze(self.index);
        let is_needed = self.shared.has_spawned()
            || self.shared.is_closing()
            || !self.seat.orders.is_empty()
            || is_over.is_some_and(|is_over| is_over());
        if is_needed && sleep.stay_awake(self.index) {
            return;
        }
        self.counters().parks.add(1);
        self.asleep(|| {
            park_timeout(rest);
            if !sleep.get_up(self.index) {
                while !sleep.take_woken(self.index) {
                    park();
                }
            }
        });
    }

    /// Calls `body`, which sleeps for want of work.
    fn asleep(&self, body: impl FnOnce()) {
        trace::span(self, Event::Asleep, body);
        self.counters().wakes.add(1);
    }

    pub(super) fn steal_round(&self, spoils: Spoils) -> Option<UnitRef> {
        let shared = self.shared;
        let load = |index: usize| shared.seats[index].load();
        let round = self.victims.borrow_mut().round(
            &shared.settings.topology,
            &mut self.rng.borrow_mut(),
            load,
        );
        let used = shared.used_seats().len();
        let rests = self.leaves_joins_alone();
        for index in round.filter(|&index| index < used) {
            let victim = &shared.seats[index];
            if rests && !victim.has_spawned() {
                continue;
            }
            if let Some(unit) = self.steal_one(victim) {
                if spoils == Spoils::Many {
                    self.steal_more(victim);
                }
                return Some(unit);
            }
            victim.ask();
        }
        None
    }

    /// One unit from that seat: a join, a spawned unit, or mail nobody fetched.
    pub(crate) fn steal_one(&self, victim: &Seat) -> Option<UnitRef> {
        if !victim.has_work() {
            return None;
        }
        let start = self.is_steal_timed().then(Instant::now);
        self.counters().steals_tried.add(1);
        let stolen = persist(|| victim.ring.steal());
        let stolen = match stolen {
            Some(unit) => {
                // The owner should show the next one.
                victim.ask();
                Some(unit)
            }
            None => persist(|| victim.deque.steal()).or_else(|| victim.mailbox.pop()),
        };
        // SAFETY: it was just taken out of one of the queues.
        let unit = unsafe { claim(stolen?) };
        self.counters().steals.add(1);
        if let Some(start) = start {
            let latency = start.elapsed();
            self.counters().steal_ns.add(latency.as_nanos() as u64);
            self.counters().steals_timed.add(1);
            trace::record(self, Event::Steal, start, latency);
        }
        Some(unit)
    }

    /// Is the next steal to be timed? Each one while tracing, else one in [`TIMED_STEALS`]: reading
    /// the clock takes as long as stealing.
    fn is_steal_timed(&self) -> bool {
        let is_due = self
            .counters()
            .steals_tried
            .get()
            .is_multiple_of(TIMED_STEALS);
        self.shared.settings.is_metered && is_due || trace::is_on(self.shared)
    }

    /// Moves as many more as the steal amount says into the own deque.
    fn steal_more(&self, victim: &Seat) {
        let len = victim.deque.len();
        let amount = self
            .shared
            .settings
            .steal_amount
            .take(len + 1)
            .saturating_sub(1);
        let mut moved = 0;
        while moved < amount {
            let Some(unit) = persist(|| victim.deque.steal()) else {
                break;
            };
            self.deque.push(unit);
            moved += 1;
        }
        if moved > 0 {
            self.counters().steals.add(moved as u64);
            self.note_queue();
        }
    }

    /// Runs a join and learns from it. What was stolen is the largest piece that its owner had, so
    /// when it is small all of them are, and the owner is better left alone for a while.
    pub(super) fn run_stolen_join(&self, unit: UnitRef) {
        let start = Instant::now();
        self.run(unit);
        let end = Instant::now();
        if end.duration_since(start) >= FUTILE {
            // Not at once to zero: small ones take long, too, when the thread is interrupted.
            self.futile.set(self.futile.get() / 2);
            return;
        }
        let futile = (self.futile.get() + 1).min(MOST_FUTILE);
        self.futile.set(futile);
        self.rests_until.set(end + REST * (1 << (futile - 1)));
    }

    /// Are joins left alone for now?
    fn leaves_joins_alone(&self) -> bool {
        self.futile.get() != 0 && Instant::now() < self.rests_until.get()
    }
}

/// How much a thief takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoils {
    One,
    /// As many as the steal amount says.
    Many,
}

/// Steals until there is a clear answer.
pub(super) fn persist<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Taken(unit) => return Some(unit),
            Steal::Empty => return None,
            Steal::Retry => spin(),
        }
    }
}
