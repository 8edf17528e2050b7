//! The desk of an agent: what was assigned to it and has not begun, what its slots run, and what is to be told.
//!
//! ```text
//!   assign ──▶ waiting ──▶ slot (running) ──▶ reports ──▶ whoever assigned
//!                 └─ retract: back to whoever assigned
//! ```
//!
//! Slots come here once for each task: they hand in the end of the last one and take the next, under one lock.
//! Whoever assigns is woken by the desk's bell, at most once until it takes the reports. Where tasks are short,
//! waking it for each costs more than all it does for it; so the end of a short task that succeeded is kept
//! back, for as long as its recipe says, while more tasks wait here than have ended.
//!
//! What waits here starts in the order of priority, and in the order in which it came within one.
//!
//! What must stay true: an end that is kept back is told before its slots run dry, and no later than the hold
//! after the last one that was told, or when whatever the slot runs next turns out not to be short. Of a lease
//! that was cancelled nothing is told any more; but nothing else is begun before its process is gone, for it may
//! be the same task again. What is put on a closed desk is never begun.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use loxley_model::{Lease, Outcome, TaskId};

use crate::report::{AgentsFault, End, Reports, SavedState, ShownOutput, Started, Yielded};
use crate::slot::{Killer, Urgency};
use crate::task_command::{Assignment, Work};

/// What is larger than this is not kept back.
const LARGE: usize = 32 << 10;

/// A task that ends within this time is told of once, at its end.
pub const START_NOTICE: Duration = Duration::from_millis(2);

/// What an agent has to do, and what it has to tell.
pub struct Desk {
    /// The number of its first slot, from 0.
    first_slot: usize,
    state: Mutex<DeskState>,
    work: Condvar,
    bell: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct DeskState {
    waiting: VecDeque<Assignment>,
    seats: Vec<Seat>,
    reports: Reports,
    /// When an end was last told.
    told_at: Option<Instant>,
    /// When the ends that are kept back must be told.
    due: Option<Instant>,
    /// How long the last success might have been kept back.
    hold: Duration,
    /// Whether the bell was rung and nobody has come yet.
    rung: bool,
    closed: bool,
    /// How many processes run that nobody wants any more.
    unwanted: usize,
    /// When the system last refused what a task needs.
    short_at: Option<Instant>,
}

/// A slot as the desk sees it.
#[derive(Debug)]
struct Seat {
    killer: Killer,
    running: Option<Running>,
    /// What it runs is to end: a function cannot be stopped, but it can ask.
    cancelled: Arc<AtomicBool>,
}

/// What becomes of a task that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// Nobody here knows it, or it has ended already.
    Unknown,
    /// It had not begun, or it is a function, which nobody can stop: nothing more is told of it.
    Over,
    /// Its end is told when nothing is left of it.
    Underway,
}

/// A task that an agent gives up and of which nothing more is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The task.
    pub task: TaskId,
    /// Its lease.
    pub lease: Lease,
    /// Whether it had begun.
    pub begun: bool,
}

/// A task that a slot runs.
#[derive(Debug)]
struct Running {
    task: TaskId,
    lease: Lease,
    since: Instant,
    /// Whether it was told that it runs.
    told: bool,
    /// How long its end may be kept back.
    hold: Duration,
    /// Somebody asked for it back: if it is stopped for that, it is as if it had not begun.
    retracted: bool,
    /// Nobody wants to hear how it ends.
    unwanted: bool,
    /// It is stopped because the agent gives it up: that is no fault of its own.
    given_up: bool,
    /// Whether it is a process, which can be stopped.
    is_process: bool,
}

impl Seat {
    /// Has what it runs end.
    fn stop(&mut self, urgency: Urgency) {
        if let Some(running) = &self.running {
            self.cancelled.store(true, Ordering::Relaxed);
            self.killer.kill(running.lease.0, urgency);
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// For whoever assigns.
impl Desk {
    /// A desk for the slots of these killers. The bell is rung, by a slot's thread, when there is something to
    /// tell.
    pub(crate) fn new(
        first_slot: usize,
        killers: Vec<Killer>,
        bell: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let seat = |killer| Seat {
            killer,
            running: None,
            cancelled: Arc::default(),
        };
        Self {
            first_slot,
            state: Mutex::new(DeskState {
                waiting: VecDeque::new(),
                seats: killers.into_iter().map(seat).collect(),
                reports: Reports::default(),
                told_at: None,
                due: None,
                hold: Duration::ZERO,
                rung: false,
                closed: false,
                unwanted: 0,
                short_at: None,
            }),
            work: Condvar::new(),
            bell: Box::new(bell),
        }
    }

    /// Puts tasks on the desk.
    pub fn assign(&self, assignments: impl IntoIterator<Item = Assignment>) {
        let mut state = self.lock();
        let before = state.waiting.len();
        for assignment in assignments {
            state.put(assignment);
        }
        let arrived = state.waiting.len() - before;
        let idle = state.seats.iter().filter(|seat| seat.running.is_none());
        let woken = arrived.min(idle.count());
        drop(state);
        for _ in 0..woken {
            self.work.notify_one();
        }
    }

    /// Takes a task back that has not begun; with `running`, one that runs is stopped for it. Whether it was
    /// given back; nothing when that is told later, or when nobody here knows the lease.
    pub fn retract(&self, lease: Lease, running: bool) -> Option<bool> {
        let mut state = self.lock();
        if state.take_back(lease) {
            return Some(true);
        }
        if let Some(seat) = state.seat_of(lease) {
            if !running {
                return Some(false);
            }
            if let Some(held) = &mut seat.running {
                held.retracted = true;
            }
            seat.killer.kill(lease.0, Urgency::Gentle);
            return None;
        }
        let has_ended = |end: &End| end.lease == lease;
        state.reports.ended.iter().any(has_ended).then_some(false)
    }

    /// Forgets a task, begun or not: what its process still does is nobody's business any more.
    pub fn cancel(&self, lease: Lease) {
        let mut state = self.lock();
        if state.take_back(lease) {
            return;
        }
        state.abandon(lease, Urgency::Gentle);
        state.reports.ended.retain(|end| end.lease != lease);
        state.reports.saved.retain(|saved| saved.lease != lease);
    }

    /// Stops a task. The end of a process is told as always, when nothing is left of it.
    pub fn stop(&self, lease: Lease, urgency: Urgency) -> Stopping {
        let mut state = self.lock();
        if state.take_back(lease) {
            return Stopping::Over;
        }
        let Some(seat) = state.seat_of(lease) else {
            return Stopping::Unknown;
        };
        match &seat.running {
            Some(running) if running.unwanted => Stopping::Unknown,
            Some(running) if running.is_process => {
                seat.stop(urgency);
                Stopping::Underway
            }
            _ => {
                state.abandon(lease, urgency);
                Stopping::Over
            }
        }
    }

    /// Stops everything that runs, or is about to. Ends are told as always.
    pub fn stop_all(&self, urgency: Urgency) {
        for seat in &mut self.lock().seats {
            seat.stop(urgency);
        }
    }

    /// Stops everything, because the agent may not go on with it. The ends of processes are told, as given up;
    /// these are the tasks of which nothing is told.
    pub fn give_up(&self, urgency: Urgency) -> Vec<GivenUp> {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting).into_iter();
        let mut given_up: Vec<GivenUp> = waiting
            .map(|waiting| GivenUp {
                task: waiting.task,
                lease: waiting.lease,
                begun: false,
            })
            .collect();
        let mut functions = Vec::new();
        for seat in &mut state.seats {
            let Some(running) = &mut seat.running else {
                continue;
            };
            if running.is_process {
                running.given_up = true;
                seat.stop(urgency);
            } else if !running.unwanted {
                functions.push((running.task, running.lease));
            }
        }
        for (task, lease) in functions {
            state.abandon(lease, urgency);
            let begun = true;
            given_up.push(GivenUp { task, lease, begun });
        }
        given_up
    }

    /// Forgets everything. What runs is stopped, and nothing is told of it.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        state.reports = Reports {
            closed_slots: state.reports.closed_slots,
            ..Reports::default()
        };
        for lease in state.running_leases() {
            state.abandon(lease, Urgency::Gentle);
        }
    }

    /// Whether the system refused something that a task needs (descriptors, processes, memory) so lately.
    pub fn was_short_within(&self, span: Duration) -> bool {
        let short_at = self.lock().short_at;
        short_at.is_some_and(|at| at.elapsed() < span)
    }

    /// Begins nothing more: the desk is cleared, what runs goes on, slots that are free end.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        drop(state);
        self.work.notify_all();
    }

    /// What there is to tell. Ends that may be kept back stay here, unless there is something else to tell; and
    /// of tasks that merely began nothing is told alone, unless `starts_alone`.
    pub fn reports(&self, starts_alone: bool) -> Reports {
        let mut state = self.lock();
        state.rung = false;
        if state.reports.ended.is_empty() {
            state.due = None;
        }
        if state.has_only_held() && !starts_alone {
            return Reports::default();
        }
        let started = state.starts(self.first_slot);
        if state.has_only_held() && started.is_empty() {
            return Reports::default();
        }
        state.due = None;
        if !state.reports.ended.is_empty() {
            state.told_at = Some(Instant::now());
        }
        let mut reports = std::mem::take(&mut state.reports);
        reports.started = started;
        reports
    }

    /// Whether a task has begun of which nothing was told, or is about to.
    pub fn has_starts_to_tell(&self) -> bool {
        let state = self.lock();
        let mut running = state.seats.iter().filter_map(|seat| seat.running.as_ref());
        !state.waiting.is_empty() || running.any(|running| !running.told)
    }

    /// What runs is told again: whoever heard of it may have forgotten.
    pub fn tell_starts_again(&self) {
        for seat in &mut self.lock().seats {
            if let Some(running) = &mut seat.running {
                running.told = false;
            }
        }
    }

    /// When the ends that are kept back must be told.
    pub fn due(&self) -> Option<Instant> {
        self.lock().due
    }

    /// How long ends are kept back at present.
    pub fn hold(&self) -> Duration {
        self.lock().hold
    }

    /// How many tasks lie on the desk.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// How many tasks run, told or not.
    pub fn running(&self) -> usize {
        let state = self.lock();
        let running = state.seats.iter().filter_map(|seat| seat.running.as_ref());
        running.filter(|running| !running.unwanted).count()
    }

    /// All leases that are known here: waiting, running, or ended and not told.
    pub fn leases(&self) -> Vec<Lease> {
        let state = self.lock();
        let waiting = state.waiting.iter().map(|waiting| waiting.lease);
        let running = state.seats.iter();
        let running = running.filter_map(|seat| seat.running.as_ref());
        let running = running.filter(|running| !running.unwanted);
        let ended = state.reports.ended.iter().map(|end| end.lease);
        let leases = waiting.chain(running.map(|running| running.lease));
        leases.chain(ended).collect()
    }

    /// Whether nothing is left to do or to tell.
    pub fn is_empty(&self) -> bool {
        let state = self.lock();
        state.waiting.is_empty()
            && state.reports.is_empty()
            && state.seats.iter().all(|seat| seat.running.is_none())
    }

    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For slots.
impl Desk {
    /// The flag that says of what a slot runs that it is to end.
    pub(crate) fn cancelled(&self, slot: usize) -> Arc<AtomicBool> {
        Arc::clone(&self.lock().seats[slot].cancelled)
    }

    /// Hands in how the last task of a slot ended, and waits for the next; none once the desk is closed. Where
    /// the next has to wait for more than this desk, nothing is kept back.
    pub(crate) fn next(
        &self,
        slot: usize,
        ended: Option<End>,
        may_hold: bool,
    ) -> Option<Assignment> {
        let mut state = self.lock();
        if let Some(end) = ended {
            let before = state.unwanted;
            state.hand_in(slot, end, may_hold);
            if state.unwanted < before {
                // Whoever had to wait for it to be gone looks again.
                self.work.notify_all();
            }
        }
        let mut ring = state.must_ring();
        loop {
            let next = state.take(slot);
            if next.is_some() || state.closed {
                drop(state);
                self.ring(ring);
                return next;
            }
            if ring {
                drop(state);
                self.ring(std::mem::take(&mut ring));
                state = self.lock();
                continue;
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A slot ends.
    pub(crate) fn leave(&self) {
        let mut state = self.lock();
        state.reports.closed_slots += 1;
        state.due = None;
        self.ring_if_needed(state);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// What a slot runs is not short: whatever is kept back has waited long enough.
    pub(crate) fn runs_on(&self) {
        let mut state = self.lock();
        state.due = None;
        let rings = !std::mem::replace(&mut state.rung, true);
        drop(state);
        self.ring(rings);
    }

    /// A running task saved its state.
    pub(crate) fn save(&self, task: TaskId, lease: Lease, state_saved: Bytes) {
        let mut state = self.lock();
        if state.is_wanted(lease) {
            let state_of = SavedState {
                task,
                lease,
                state: state_saved,
            };
            state.reports.saved.push(state_of);
            self.ring_if_needed(state);
        }
    }

    /// A running task printed something.
    pub(crate) fn show(&self, shown: ShownOutput) {
        let mut state = self.lock();
        if state.is_wanted(shown.lease) {
            state.reports.shown.push(shown);
            self.ring_if_needed(state);
        }
    }

    fn ring_if_needed(&self, mut state: MutexGuard<'_, DeskState>) {
        let rings = state.must_ring();
        drop(state);
        self.ring(rings);
    }

    fn ring(&self, rings: bool) {
        if rings {
            (self.bell)();
        }
    }
}

impl DeskState {
    /// Lays a task down before all that is less urgent.
    fn put(&mut self, assignment: Assignment) {
        let priority = assignment.command.recipe.priority;
        let is_before = |other: &Assignment| other.command.recipe.priority >= priority;
        if self.waiting.back().is_none_or(is_before) {
            return self.waiting.push_back(assignment);
        }
        let at = self.waiting.partition_point(is_before);
        self.waiting.insert(at, assignment);
    }

    /// What lies on a closed desk came too late, and stays there. What lies here while a process ends that nobody
    /// wants may be the same task once more, and waits.
    fn take(&mut self, slot: usize) -> Option<Assignment> {
        if self.closed || self.unwanted > 0 {
            return None;
        }
        let next = self.waiting.pop_front()?;
        let seat = &mut self.seats[slot];
        seat.cancelled.store(false, Ordering::Relaxed);
        seat.running = Some(Running {
            task: next.task,
            lease: next.lease,
            since: Instant::now(),
            told: false,
            hold: next.command.recipe.hold,
            retracted: false,
            unwanted: false,
            given_up: false,
            is_process: matches!(next.command.recipe.work, Work::Command { .. }),
        });
        Some(next)
    }

    fn running_leases(&self) -> Vec<Lease> {
        let running = self.seats.iter().filter_map(|seat| seat.running.as_ref());
        running.map(|running| running.lease).collect()
    }

    /// Has what runs under a lease end, and tells nothing of it.
    fn abandon(&mut self, lease: Lease, urgency: Urgency) {
        let Some(seat) = self.seat_of(lease) else {
            return;
        };
        seat.stop(urgency);
        if let Some(running) = &mut seat.running
            && !std::mem::replace(&mut running.unwanted, true)
            && running.is_process
        {
            self.unwanted += 1;
        }
    }

    fn take_back(&mut self, lease: Lease) -> bool {
        let at = self.waiting.iter().position(|next| next.lease == lease);
        at.is_some_and(|at| self.waiting.remove(at).is_some())
    }

    fn seat_of(&mut self, lease: Lease) -> Option<&mut Seat> {
        let holds = |seat: &&mut Seat| {
            let running = seat.running.as_ref();
            running.is_some_and(|running| running.lease == lease)
        };
        self.seats.iter_mut().find(holds)
    }

    fn is_wanted(&mut self, lease: Lease) -> bool {
        let running = self.seat_of(lease).and_then(|seat| seat.running.as_ref());
        running.is_some_and(|running| !running.unwanted)
    }

    /// Books the end of what a slot ran.
    fn hand_in(&mut self, slot: usize, mut end: End, may_hold: bool) {
        let seat = &mut self.seats[slot];
        let running = seat.running.take().expect("the slot ran something");
        let fault = end.agents_fault();
        if fault.is_some() {
            self.short_at = Some(Instant::now());
        }
        if running.unwanted {
            self.unwanted -= usize::from(running.is_process);
            return;
        }
        end.given_up = running.given_up && end.was_killed();
        if let Some(AgentsFault::NotBegun) = fault {
            let (task, lease) = (running.task, running.lease);
            self.reports.yielded.push(Yielded { task, lease });
            return;
        }
        end.given_up |= fault.is_some();
        if running.retracted && end.was_killed() {
            let (task, lease) = (running.task, running.lease);
            self.reports.yielded.push(Yielded { task, lease });
            return;
        }
        let hold = hold_of(&end, running.hold);
        if !hold.is_zero() {
            self.hold = hold;
        }
        // Others are about to be told, and take this one along.
        let is_late = !self.reports.ended.is_empty() && self.due.is_none();
        let may_hold = may_hold && !hold.is_zero() && !is_late && end.size() <= LARGE;
        self.reports.ended.push(end);
        self.due = match self.told_at {
            Some(at) if may_hold && self.has_enough_to_do() => {
                let due = at + hold;
                Some(self.due.map_or(due, |before| before.min(due)))
            }
            _ => None,
        };
    }

    /// Whether the ends that were not told can wait for others: as long as more tasks wait here than have
    /// ended, and enough for every slot, an answer comes before the slots run dry.
    fn has_enough_to_do(&self) -> bool {
        let needed = self.reports.ended.len().max(self.seats.len());
        self.waiting.len() >= needed
    }

    /// Whether nothing is there to tell but ends that may be kept back for longer.
    fn has_only_held(&self) -> bool {
        let is_holding = self.due.is_some_and(|due| Instant::now() < due);
        let reports = &self.reports;
        (reports.ended.is_empty() || is_holding)
            && reports.yielded.is_empty()
            && reports.saved.is_empty()
            && reports.shown.is_empty()
            && reports.closed_slots == 0
    }

    /// Whether somebody has to be told now and was not called yet.
    fn must_ring(&mut self) -> bool {
        !self.has_only_held() && !std::mem::replace(&mut self.rung, true)
    }

    fn starts(&mut self, first_slot: usize) -> Vec<Started> {
        let mut starts = Vec::new();
        for (slot, seat) in self.seats.iter_mut().enumerate() {
            if let Some(running) = &mut seat.running
                && !running.unwanted
                && !running.told
                && running.since.elapsed() >= START_NOTICE
            {
                running.told = true;
                starts.push(Started {
                    task: running.task,
                    lease: running.lease,
                    slot: first_slot + slot,
                    at: running.since,
                });
            }
        }
        starts
    }
}

/// How long the end of a task may be kept back. How long those of short ones may wait is for whoever assigns
/// to say.
fn hold_of(end: &End, of_short_ones: Duration) -> Duration {
    if of_short_ones.is_zero() || end.outcome() != Outcome::Succeeded {
        Duration::ZERO
    } else if end.duration() < START_NOTICE {
        of_short_ones
    } else {
        of_short_ones.min(START_NOTICE)
    }
}

#[cfg(test)]
mod tests;
