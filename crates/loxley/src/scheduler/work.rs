//! Work for agents: the next task, and what became of it.

use std::mem;
use std::ops::Deref;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use loxley_driver::{Vocabulary, Why};
use loxley_model::{AgentId, Failure, Lease, Outcome, TaskId, Time};
use loxley_policy::Input;

use super::Scheduler;
use crate::error::{AskError, StaleLease};
use crate::state::{CancelSignal, Ready, State};
use crate::task::{Name, TaskRef};

/// A task in an agent's hands. Answer it with [`Scheduler::complete`] or [`Scheduler::fail`].
#[derive(Debug)]
#[must_use = "the scheduler waits for an answer"]
pub struct Assignment<T> {
    /// The task.
    pub task: TaskRef,
    /// Who has it.
    pub agent: Name,
    /// The number of this assignment.
    pub lease: Lease,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Why this agent got it.
    pub why: Why,
    /// What was submitted with it.
    pub payload: Arc<T>,
    /// Says when nobody wants the result any more.
    pub signal: CancelSignal,
}

/// Names one assignment: all that is needed to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The task.
    pub task: TaskId,
    /// The number of the assignment.
    pub lease: Lease,
}

impl<T> From<&Assignment<T>> for Ticket {
    fn from(assignment: &Assignment<T>) -> Self {
        Self {
            task: assignment.task.id,
            lease: assignment.lease,
        }
    }
}

impl<T> Deref for Assignment<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.payload
    }
}

/// Work for agents.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// The next task for an agent, waiting for it no longer than `timeout`: from its own queue, or
    /// stolen from another one's. Several threads may wait for one agent.
    pub fn next_task(
        &self,
        agent: &str,
        timeout: Duration,
    ) -> Result<Option<Assignment<T>>, AskError> {
        let end = Instant::now().checked_add(timeout);
        let (id, found) = self.shared.with(|state, now| {
            let id = registered(state, agent)?;
            state.ask(now, id);
            Ok((id, pick_up(state, now, id)))
        })?;
        match found {
            Some(assignment) => Ok(Some(assignment)),
            None => self.wait_for_task(agent, id, end),
        }
    }

    /// Waits for the answer to a request that was made. Holds no lock while it waits.
    fn wait_for_task(
        &self,
        agent: &str,
        id: AgentId,
        end: Option<Instant>,
    ) -> Result<Option<Assignment<T>>, AskError> {
        let Some(bell) = self.bell(id) else {
            return Err(AskError::NotRegistered(agent.into()));
        };
        loop {
            let is_over = end.is_some_and(|end| Instant::now() >= end);
            let step = self.shared.with(|state, now| {
                if state.stopped {
                    state.withdraw(now, id);
                    return Some(Err(AskError::Stopped));
                }
                let is_same = state
                    .desks
                    .get(&id)
                    .is_some_and(|desk| Arc::ptr_eq(&desk.bell, &bell));
                if !is_same {
                    return Some(Err(AskError::NotRegistered(agent.into())));
                }
                if let Some(assignment) = pick_up(state, now, id) {
                    return Some(Ok(Some(assignment)));
                }
                is_over.then(|| {
                    state.withdraw(now, id);
                    Ok(None)
                })
            });
            if let Some(step) = step {
                return step;
            }
            self.doze(id, &bell, end);
        }
    }

    fn bell(&self, id: AgentId) -> Option<Arc<Condvar>> {
        let state = self.shared.lock();
        state.desks.get(&id).map(|desk| Arc::clone(&desk.bell))
    }

    /// Sleeps until the bell rings, unless something lies ready (or the desk is gone) already.
    fn doze(&self, id: AgentId, bell: &Arc<Condvar>, end: Option<Instant>) {
        let state = self.shared.lock();
        if !state.is_quiet(id, bell) {
            return;
        }
        let longest = Duration::from_secs(3600);
        let span = end.map_or(longest, |end| {
            end.saturating_duration_since(Instant::now()).min(longest)
        });
        drop(bell.wait_timeout(state, span));
    }

    /// The next task for an agent if there is one now.
    pub fn try_next_task(&self, agent: &str) -> Result<Option<Assignment<T>>, AskError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent)?;
            state.ask(now, id);
            let found = pick_up(state, now, id);
            if found.is_none() {
                state.withdraw(now, id);
            }
            Ok(found)
        })
    }

    /// One explicit pull: takes a task from another agent's queue, or nothing. The agent's own
    /// queue does not count, and no request stays open.
    pub fn request_work(&self, agent: &str) -> Result<Option<Assignment<T>>, AskError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent)?;
            let before = state.inbox_len(id);
            let onto_queue = false;
            state.feed(
                now,
                Input::StealRequested {
                    agent: id,
                    onto_queue,
                },
            );
            if state.inbox_len(id) <= before {
                return Ok(None);
            }
            let ready = state.pick_up_newest(now, id);
            Ok(ready.map(|ready| assignment(state, id, ready)))
        })
    }

    /// The task is done. An error says that somebody else has it by now and this result must not
    /// count.
    pub fn complete(&self, ticket: impl Into<Ticket>) -> Result<(), StaleLease> {
        self.answer(ticket.into(), Outcome::Succeeded, None)
    }

    /// The attempt failed; the task is tried again if it has retries left.
    pub fn fail(
        &self,
        ticket: impl Into<Ticket>,
        message: impl Into<Arc<str>>,
    ) -> Result<(), StaleLease> {
        let outcome = Outcome::Failed(Failure::Error);
        self.answer(ticket.into(), outcome, Some(message.into()))
    }

    /// The attempt failed and would fail again: there are no retries.
    pub fn fail_for_good(
        &self,
        ticket: impl Into<Ticket>,
        message: impl Into<Arc<str>>,
    ) -> Result<(), StaleLease> {
        let outcome = Outcome::Failed(Failure::Permanent);
        self.answer(ticket.into(), outcome, Some(message.into()))
    }

    fn answer(
        &self,
        ticket: Ticket,
        outcome: Outcome,
        message: Option<Arc<str>>,
    ) -> Result<(), StaleLease> {
        let Ticket { task, lease } = ticket;
        self.shared.with(|state, now| {
            // The message must be there when the core reports the end; a stale one is taken back.
            let before = state
                .tasks
                .get_mut(&task)
                .map(|entry| mem::replace(&mut entry.message, message));
            state.answered(lease);
            let input = Input::TaskFinished {
                task,
                lease,
                outcome,
            };
            let answer = state.feed(now, input);
            if !answer.stale && answer.rejected.is_none() {
                return Ok(());
            }
            if let (Some(entry), Some(before)) = (state.tasks.get_mut(&task), before) {
                entry.message = before;
            }
            let task = state.task_ref(task);
            Err(StaleLease { task, lease })
        })
    }
}

pub(super) fn registered<T>(state: &State<T>, agent: &str) -> Result<AgentId, AskError> {
    if state.stopped {
        return Err(AskError::Stopped);
    }
    let known = state.directory.agent_id(agent);
    known
        .filter(|id| state.desks.contains_key(id))
        .ok_or_else(|| AskError::NotRegistered(agent.into()))
}

fn pick_up<T>(state: &mut State<T>, now: Time, agent: AgentId) -> Option<Assignment<T>> {
    let ready = state.pick_up(now, agent)?;
    Some(assignment(state, agent, ready))
}

fn assignment<T>(state: &State<T>, agent: AgentId, ready: Ready) -> Assignment<T> {
    let entry = state
        .tasks
        .get(&ready.task)
        .expect("an assigned task is in the scheduler");
    Assignment {
        task: state.task_ref(ready.task),
        agent: state.directory.agent_name(agent),
        lease: ready.lease,
        attempt: ready.attempt,
        why: Why::new(ready.reason, state.directory.directory()),
        payload: Arc::clone(&entry.payload),
        signal: ready.signal,
    }
}
