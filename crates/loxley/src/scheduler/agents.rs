//! Agents come, go, and give signs of life.

use std::mem;
use std::sync::Arc;

use loxley_model::AgentId;
use loxley_policy::{Input, InputError, Leftovers, Vitals};

use super::Scheduler;
use super::submission::{Leftover, leftover};
use super::work::registered;
use crate::error::{AgentError, AskError};
use crate::event::Event;
use crate::task::{Agent, Name};

/// Agents.
impl<T: Send + Sync + 'static> Scheduler<T> {
    /// Registers an agent. Under a name that is already registered this is a new incarnation: what
    /// the old one had goes elsewhere, and its answers are stale.
    pub fn register_agent(&self, agent: impl Into<Agent>) -> Result<(), AgentError> {
        let agent = agent.into();
        self.shared.with(|state, now| {
            if state.stopped {
                return Err(AgentError::Stopped);
            }
            let spec = state.directory.agent_spec(&agent)?;
            let id = spec.id;
            check_agent(&spec, &state.directory.agent_name(id))?;
            state.open_desk(id);
            let answer = state.feed(now, Input::AgentJoined(spec.into()));
            assert!(
                answer.rejected.is_none(),
                "a checked agent was rejected: {:?}",
                answer.rejected
            );
            state.notify(|state| Event::AgentJoined {
                agent: state.directory.agent_name(id),
            });
            Ok(())
        })
    }

    /// Unregisters an agent and returns what it still had, running tasks first. These tasks have
    /// left the scheduler: they are the caller's now.
    pub fn unregister_agent(&self, agent: &str) -> Result<Vec<Leftover<T>>, AgentError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent).map_err(not_registered)?;
            let mut answer = state.feed(
                now,
                Input::AgentLeft {
                    agent: id,
                    tasks: Leftovers::Return,
                },
            );
            let mut taken = mem::take(&mut answer.taken_along);
            let leftovers = answer.returned.iter().map(|task| {
                let entry = taken.remove(task).expect("what was returned was finished");
                let mut leftover = leftover(state, *task, entry);
                leftover.description.again = Some(*task);
                leftover
            });
            Ok(leftovers.collect())
        })
    }

    /// Unregisters an agent; what it still had goes to other agents. Answers that it still gives
    /// are stale.
    pub fn remove_agent(&self, agent: &str) -> Result<(), AgentError> {
        self.tell_agent(agent, |agent| Input::AgentLeft {
            agent,
            tasks: Leftovers::Requeue,
        })
    }

    /// Gives an agent nothing new; it finishes what it has.
    pub fn drain_agent(&self, agent: &str) -> Result<(), AgentError> {
        self.tell_agent(agent, Input::AgentDrained)
    }

    /// A sign of life. `throttle` says how much heat, power or other load slow the agent down: 0
    /// not at all, 1 stands still.
    pub fn heartbeat(&self, agent: &str, throttle: f64) -> Result<(), AgentError> {
        let vitals = Vitals {
            throttle,
            ..Vitals::default()
        };
        self.tell_agent(agent, |agent| Input::AgentHeard { agent, vitals })
    }

    fn tell_agent(
        &self,
        agent: &str,
        input: impl FnOnce(AgentId) -> Input,
    ) -> Result<(), AgentError> {
        self.shared.with(|state, now| {
            let id = registered(state, agent).map_err(not_registered)?;
            match state.feed(now, input(id)).rejected {
                None => Ok(()),
                Some(InputError::BadThrottle(_)) => Err(AgentError::BadThrottle(agent.into())),
                Some(_) => Err(AgentError::NotRegistered(agent.into())),
            }
        })
    }
}

fn check_agent(spec: &loxley_model::AgentSpec, name: &Name) -> Result<(), AgentError> {
    if spec.slots == 0 {
        return Err(AgentError::NoSlots(Arc::clone(name)));
    }
    if !(spec.speed.is_finite() && spec.speed > 0.0) {
        return Err(AgentError::BadSpeed(Arc::clone(name)));
    }
    Ok(())
}

fn not_registered(error: AskError) -> AgentError {
    match error {
        AskError::NotRegistered(agent) => AgentError::NotRegistered(agent),
        AskError::Stopped => AgentError::Stopped,
    }
}
