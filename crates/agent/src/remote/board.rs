//! What the conversation with the server and the slots share: what waits, what runs, and what is to be
//! said.
//!
//! ```text
//!   server ──assign──▶ waiting ──▶ slot (running) ──▶ to say ──frame──▶ unacknowledged ──ack──▶ gone
//!                         └─ retract: back to the server
//! ```
//!
//! A lease is known here from its assignment until the server has acknowledged its end, so that after a
//! reconnect both sides can compare. A lease that was cancelled is forgotten at once; what its process
//! still does is nobody's business any more.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use loxley_protocol as wire;
use tokio::sync::Notify;

use crate::{Killer, Urgency};

/// A task that an agent was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) task: u64,
    pub(super) lease: u64,
    pub(super) attempt: u32,
    pub(super) position: u64,
    pub(super) entry: Option<Bytes>,
    pub(super) checkpoint: Option<Bytes>,
    pub(super) template: Arc<wire::Template>,
}

/// A task that a slot runs.
#[derive(Debug)]
struct Running {
    task: u64,
    lease: u64,
    since: Instant,
    /// Whether the server knows.
    told: bool,
    /// Nobody wants its end any more.
    cancelled: Arc<AtomicBool>,
    /// How long its end may be kept back.
    hold: Duration,
    /// The server asked for it back: its end is an answer to that.
    retracted: bool,
}

/// Where a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    Running(usize),
    Ended,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Given>,
    slots: Vec<Option<Running>>,
    killers: Vec<Killer>,
    leases: HashMap<u64, Place>,
    templates: HashMap<u64, Arc<wire::Template>>,
    template_order: VecDeque<u64>,
    finished: Vec<wire::Finished>,
    yielded: Vec<wire::Yielded>,
    checkpoints: Vec<wire::Checkpoint>,
    outputs: Vec<wire::Output>,
    unacknowledged: VecDeque<wire::AgentFrame>,
    last_number: u64,
    /// When the end of a task was last told.
    said_at: Option<Instant>,
    /// When the ends that are kept back must be told.
    due: Option<Instant>,
    /// How long the last success might have been kept back.
    hold: Duration,
    /// Whether the conversation was told that there is something to say.
    rung: bool,
    closed: bool,
}

/// What the conversation and the slots share.
#[derive(Debug)]
pub(super) struct Board {
    inner: Mutex<Inner>,
    work: Condvar,
    /// Rung when there is something to say.
    pub(super) bell: Notify,
}

/// How many templates are remembered: twice as many as the server believes we remember.
const TEMPLATES_MAX: usize = 3 * 4096;
/// A frame is sent when it has grown to this.
const FRAME_BYTES: usize = 4 << 20;
/// What is larger than this is not kept back.
const LARGE: usize = 32 << 10;
/// A task that runs longer than this is reported as started even if there is nothing else to say.
pub(super) const START_NOTICE: Duration = Duration::from_millis(2);

/// How long the end of a task may be kept back while there is enough other work, so that one frame, one group
/// and one write of the server serve several ends. Where tasks are short this is most of what they cost. How long
/// short ones may wait is for the server to say.
fn hold_of(ended: &wire::Finished, of_short_ones: Duration) -> Duration {
    const SHORT: Duration = Duration::from_millis(2);
    if ended.outcome() != wire::Outcome::Succeeded {
        Duration::ZERO
    } else if ended.duration_ns < SHORT.as_nanos() as u64 {
        of_short_ones
    } else {
        of_short_ones.min(SHORT)
    }
}

impl Board {
    pub(super) fn new(killers: Vec<Killer>) -> Self {
        let inner = Inner {
            slots: killers.iter().map(|_| None).collect(),
            killers,
            ..Inner::default()
        };
        Self {
            inner: Mutex::new(inner),
            work: Condvar::new(),
            bell: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, inner: &mut Inner) {
        if !std::mem::replace(&mut inner.rung, true) {
            self.bell.notify_one();
        }
    }

    // For slots.

    /// Hands in how the last task of a slot ended, and waits for the next. None when the agent ends.
    pub(super) fn next(
        &self,
        slot: usize,
        ended: Option<wire::Finished>,
    ) -> Option<(Given, Arc<AtomicBool>)> {
        let mut inner = self.lock();
        if let Some(ended) = ended
            && inner.take_in(slot, ended)
        {
            self.ring(&mut inner);
        }
        loop {
            if inner.closed {
                return None;
            }
            if let Some(given) = inner.waiting.pop_front() {
                let cancelled = Arc::new(AtomicBool::new(false));
                inner.leases.insert(given.lease, Place::Running(slot));
                inner.slots[slot] = Some(Running {
                    task: given.task,
                    lease: given.lease,
                    since: Instant::now(),
                    told: false,
                    cancelled: Arc::clone(&cancelled),
                    hold: Duration::from_nanos(given.template.hold_ns),
                    retracted: false,
                });
                return Some((given, cancelled));
            }
            inner = self
                .work
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A running task saved its state.
    pub(super) fn save_checkpoint(&self, given: &Given, state: Bytes) {
        let mut inner = self.lock();
        if inner.leases.contains_key(&given.lease) {
            inner.checkpoints.push(wire::Checkpoint {
                task: given.task,
                lease: given.lease,
                state,
            });
            self.ring(&mut inner);
        }
    }

    /// A running task printed something.
    pub(super) fn show_output(&self, output: wire::Output) {
        let mut inner = self.lock();
        if inner.leases.contains_key(&output.lease) {
            inner.outputs.push(output);
            self.ring(&mut inner);
        }
    }

    // For the conversation.

    /// Takes in what the server says.
    pub(super) fn hear(&self, frame: wire::ServerFrame) {
        let mut inner = self.lock();
        for template in frame.templates {
            inner.remember(template);
        }
        for cancel in frame.cancel {
            inner.cancel(cancel.lease);
        }
        for retract in &frame.retract {
            let answer = inner.retract(retract);
            if let Some(yielded) = answer {
                inner.yielded.push(wire::Yielded {
                    task: retract.task,
                    lease: retract.lease,
                    yielded,
                });
            }
        }
        let arrived = frame.assign.len();
        for assign in frame.assign {
            inner.assign(assign);
        }
        if frame.acknowledged > 0 {
            inner.acknowledge(frame.acknowledged);
        }
        if !inner.yielded.is_empty() {
            self.ring(&mut inner);
        }
        let idle = inner.slots.iter().filter(|slot| slot.is_none()).count();
        drop(inner);
        for _ in 0..arrived.min(idle) {
            self.work.notify_one();
        }
    }

    /// What there is to say now, if anything. What must not be lost is kept until it is acknowledged.
    pub(super) fn next_frame(&self, even_starts_alone: bool) -> Option<wire::AgentFrame> {
        let mut inner = self.lock();
        inner.rung = false;
        if inner.finished.is_empty() {
            inner.due = None;
        }
        let nothing = (inner.finished.is_empty() || inner.is_holding())
            && inner.yielded.is_empty()
            && inner.checkpoints.is_empty()
            && inner.outputs.is_empty();
        let started = if nothing && !even_starts_alone {
            Vec::new()
        } else {
            inner.starts()
        };
        if nothing && started.is_empty() {
            return None;
        }
        inner.due = None;
        let mut frame = wire::AgentFrame {
            started,
            yielded: std::mem::take(&mut inner.yielded),
            outputs: std::mem::take(&mut inner.outputs),
            ..wire::AgentFrame::default()
        };
        frame.checkpoints = take_some(&mut inner.checkpoints, |checkpoint| checkpoint.state.len());
        frame.finished = take_some(&mut inner.finished, size_of);
        if !inner.finished.is_empty() || !inner.checkpoints.is_empty() {
            self.ring(&mut inner);
        }
        if !frame.finished.is_empty() {
            inner.said_at = Some(Instant::now());
        }
        if !frame.finished.is_empty() || !frame.checkpoints.is_empty() {
            inner.last_number += 1;
            frame.number = inner.last_number;
            inner.unacknowledged.push_back(wire::AgentFrame {
                number: frame.number,
                finished: frame.finished.clone(),
                checkpoints: frame.checkpoints.clone(),
                ..wire::AgentFrame::default()
            });
        }
        let empty = frame == wire::AgentFrame::default();
        (!empty).then_some(frame)
    }

    /// Whether a task has begun of which the server does not know, or is about to.
    pub(super) fn starts_to_tell(&self) -> bool {
        let inner = self.lock();
        let running = inner.slots.iter().flatten();
        !inner.waiting.is_empty() || running.into_iter().any(|running| !running.told)
    }

    /// When the ends that are kept back must be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lock().due
    }

    /// How long ends are kept back at present.
    pub(super) fn hold(&self) -> Duration {
        self.lock().hold
    }

    /// All leases that are known here.
    pub(super) fn leases(&self) -> Vec<u64> {
        self.lock().leases.keys().copied().collect()
    }

    /// What the server has not acknowledged.
    pub(super) fn unacknowledged(&self) -> Vec<wire::AgentFrame> {
        let mut inner = self.lock();
        // What runs may have been told to a server that forgot it again.
        for running in inner.slots.iter_mut().flatten() {
            running.told = false;
        }
        inner.unacknowledged.iter().cloned().collect()
    }

    /// The server does not know us any more: nothing that we have counts.
    pub(super) fn drop_everything(&self) {
        let mut inner = self.lock();
        let leases: Vec<u64> = inner.leases.keys().copied().collect();
        for lease in leases {
            inner.cancel(lease);
        }
        inner.finished.clear();
        inner.yielded.clear();
        inner.checkpoints.clear();
        inner.outputs.clear();
        inner.unacknowledged.clear();
    }

    /// Whether nothing is left to do or to say.
    pub(super) fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.leases.is_empty() && inner.slots.iter().all(Option::is_none)
    }

    /// Ends the slots: at once, what runs is killed.
    pub(super) fn close(&self, urgency: Urgency) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.waiting.clear();
        for (slot, killer) in inner.slots.iter().zip(&inner.killers) {
            if let Some(running) = slot {
                running.cancelled.store(true, Ordering::Relaxed);
                killer.kill(running.lease, urgency);
            }
        }
        drop(inner);
        self.work.notify_all();
    }
}

impl Inner {
    /// Books the end of what a slot ran. Whether it has to be told now.
    fn take_in(&mut self, slot: usize, ended: wire::Finished) -> bool {
        let running = self.slots[slot].take().expect("the slot ran something");
        if running.cancelled.load(Ordering::Relaxed) {
            return false;
        }
        if running.retracted {
            self.leases.remove(&running.lease);
            self.yielded.push(wire::Yielded {
                task: running.task,
                lease: running.lease,
                yielded: true,
            });
            return true;
        }
        let is_large = size_of(&ended) > LARGE;
        // Others are about to be told, and take this one along.
        let is_late = !self.finished.is_empty() && self.due.is_none();
        let hold = hold_of(&ended, running.hold);
        if !hold.is_zero() {
            self.hold = hold;
        }
        self.leases.insert(running.lease, Place::Ended);
        self.finished.push(ended);
        self.due = match self.said_at {
            Some(at) if !is_large && !is_late && self.has_enough_to_do() => {
                let due = at + hold;
                Some(self.due.map_or(due, |before| before.min(due)))
            }
            _ => None,
        };
        !self.is_holding()
    }

    /// Whether the ends that were not told can wait for others: as long as more tasks wait here than have
    /// ended, and enough for every slot, an answer comes before the slots run dry.
    fn has_enough_to_do(&self) -> bool {
        let needed = self.finished.len().max(self.slots.len());
        self.waiting.len() >= needed
    }

    /// Whether ends are kept back, and may be for longer.
    fn is_holding(&self) -> bool {
        self.due.is_some_and(|due| Instant::now() < due)
    }

    fn remember(&mut self, template: wire::Template) {
        self.template_order.push_back(template.id);
        self.templates.insert(template.id, Arc::new(template));
        if self.template_order.len() > TEMPLATES_MAX
            && let Some(oldest) = self.template_order.pop_front()
            && !self.template_order.contains(&oldest)
        {
            self.templates.remove(&oldest);
        }
    }

    fn assign(&mut self, assign: wire::Assign) {
        let Some(template) = self.templates.get(&assign.template) else {
            // The server always sends it first; if it did not, the task is better off elsewhere.
            self.yielded.push(wire::Yielded {
                task: assign.task,
                lease: assign.lease,
                yielded: true,
            });
            return;
        };
        self.leases.insert(assign.lease, Place::Waiting);
        self.waiting.push_back(Given {
            task: assign.task,
            lease: assign.lease,
            attempt: assign.attempt,
            position: assign.position,
            entry: assign.entry,
            checkpoint: assign.checkpoint,
            template: Arc::clone(template),
        });
    }

    fn cancel(&mut self, lease: u64) {
        match self.leases.remove(&lease) {
            Some(Place::Waiting) => self.waiting.retain(|given| given.lease != lease),
            Some(Place::Running(slot)) => {
                if let Some(running) = &self.slots[slot] {
                    running.cancelled.store(true, Ordering::Relaxed);
                    self.killers[slot].kill(lease, Urgency::Gentle);
                }
            }
            Some(Place::Ended) => self.finished.retain(|finished| finished.lease != lease),
            None => {}
        }
    }

    /// The answer to a retraction; none when it comes later.
    fn retract(&mut self, retract: &wire::Retract) -> Option<bool> {
        match self.leases.get(&retract.lease) {
            Some(Place::Waiting) => {
                self.waiting.retain(|given| given.lease != retract.lease);
                self.leases.remove(&retract.lease);
                Some(true)
            }
            Some(Place::Running(slot)) if retract.running => {
                let slot = *slot;
                if let Some(running) = &mut self.slots[slot] {
                    running.retracted = true;
                    self.killers[slot].kill(retract.lease, Urgency::Gentle);
                }
                None
            }
            Some(Place::Running(_) | Place::Ended) => Some(false),
            // Given back already, or cancelled: the server knows better by now.
            None => None,
        }
    }

    fn acknowledge(&mut self, number: u64) {
        while let Some(frame) = self.unacknowledged.front()
            && frame.number <= number
        {
            for finished in &frame.finished {
                self.leases.remove(&finished.lease);
            }
            self.unacknowledged.pop_front();
        }
    }

    fn starts(&mut self) -> Vec<wire::Started> {
        let untold = self.slots.iter_mut().flatten().filter(|running| {
            !running.told
                && !running.cancelled.load(Ordering::Relaxed)
                && running.since.elapsed() >= START_NOTICE
        });
        let starts = untold.map(|running| {
            running.told = true;
            wire::Started {
                task: running.task,
                lease: running.lease,
            }
        });
        starts.collect()
    }
}

/// About how many bytes a frame grows by this.
fn size_of(finished: &wire::Finished) -> usize {
    64 + finished.stdout.len() + finished.stderr.len() + finished.result.len()
}

/// Takes as many from the front as fit into a frame, and at least one.
fn take_some<T>(all: &mut Vec<T>, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fitting = all.iter().take_while(|item| {
        let fits = bytes < FRAME_BYTES;
        bytes += size(item);
        fits
    });
    let count = fitting.count();
    if count == all.len() {
        return std::mem::take(all);
    }
    all.drain(..count).collect()
}

#[cfg(test)]
mod tests;
