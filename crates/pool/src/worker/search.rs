//! How a worker without work finds some, and how it sleeps when there is none.

use std::time::{Duration, Instant};

use loxley_balance::{Backoff, Step};

use super::{Worker, most_eager};
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
/// One steal in so many is timed.
const TIMED_STEALS: u64 = 16;

impl Worker<'_> {
    /// Looks for work until there is some, sleeping in between. `None`: the pool is closing.
    pub(super) fn search(&self) -> Option<UnitRef> {
        self.shared.sleep.start_searching();
        let start = self.is_timed().then(Instant::now);
        let mut backoff = Backoff::default();
        let mut has_slept = false;
        let mut patience = self.shared.settings.patience;
        patience.searches = patience.searches.min(self.eagerness.get());
        patience.pauses = patience.pauses.min(self.eagerness.get());
        loop {
            if let Some(unit) = self.next_own().or_else(|| self.steal_round()) {
                self.finish_search(start, has_slept);
                return Some(unit);
            }
            let step = if self.shared.sleep.is_crowded() {
                Step::Park
            } else if self.futile.get() >= DOZES_FROM && self.leaves_joins_alone() {
                self.doze();
                continue;
            } else if self.leaves_joins_alone() && self.shared.has_work() {
                // Not to bed: whoever shows something would have to wake us.
                Step::Pause { ns: RESTING_NS }
            } else {
                backoff.next(&patience, &mut self.rng.borrow_mut())
            };
            match step {
                Step::Search => spin(),
                Step::Pause { ns } => self.pause(ns),
                Step::Park => {
                    self.eagerness.set(self.eagerness.get() / 2);
                    has_slept = true;
                    if !self.sleep() {
                        return None;
                    }
                    backoff.reset();
                }
            }
        }
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

    /// Parks until woken. `false`: the pool is closing and nothing is left to do.
    fn sleep(&self) -> bool {
        let sleep = &self.shared.sleep;
        let look = sleep.lie_down(self.index) == LieDown::LookOnceMore;
        self.shared.detached.tell_if_idle(self.shared);
        // First this, so that what was submitted before the pool began to close is seen below.
        let closing = self.shared.is_closing();
        // Looked at once: a unit that is there, and then taken by somebody else who leaves, must not
        // put us to bed in a closing pool, where nobody would wake us.
        let has_work = self.shared.has_work();
        let leave = closing && !has_work && self.shared.nobody_is_absent();
        // For the same reason nobody is too many while the pool closes.
        let look = look || closing;
        if (leave || look && has_work) && sleep.stay_awake(self.index) {
            if leave {
                // A searcher that leaves is like one that found something.
                let _ = sleep.stop_searching();
            }
            return !leave;
        }
        self.counters().parks.add(1);
        trace::span(self, Event::Asleep, || {
            while !sleep.take_woken(self.index) {
                park();
            }
        });
        self.counters().wakes.add(1);
        true
    }

    /// Sleeps until the joins of others are worth another look, or somebody has something else.
    fn doze(&self) {
        let sleep = &self.shared.sleep;
        let rest = self.rests_until.get().duration_since(Instant::now());
        sleep.doze(self.index);
        let is_needed = self.shared.has_spawned() || self.shared.is_closing();
        if is_needed && sleep.stay_awake(self.index) {
            return;
        }
        self.counters().parks.add(1);
        trace::span(self, Event::Asleep, || {
            park_timeout(rest);
            if !sleep.get_up(self.index) {
                while !sleep.take_woken(self.index) {
                    park();
                }
            }
        });
        self.counters().wakes.add(1);
    }

    fn steal_round(&self) -> Option<UnitRef> {
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
                self.steal_more(victim);
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
        let unit = self.claim(stolen?);
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

/// Steals until there is a clear answer.
fn persist<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Taken(unit) => return Some(unit),
            Steal::Empty => return None,
            Steal::Retry => spin(),
        }
    }
}
