//! What agents say, made into facts, and what the engine knows of their connections.
//!
//! What must stay true: an agent is heard only over its newest connection, and only of leases that it holds.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use loxley_api::{AgentInfo, ApiError};
use loxley_model::{AgentId, Lease, Outcome, Span, TaskId};
use loxley_policy::Vitals;
use loxley_protocol as wire;

use super::effects::Finish;
use super::fact::{AgentRecord, Fact};
use super::state::{Applied, State};
use super::{Engine, Link};

/// After so many templates a session is told again what it needs.
const TEMPLATES_MAX: usize = 4096;

/// A connection that stands.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: Link,
    /// Templates it was sent.
    templates: HashSet<u64>,
    vitals: wire::Vitals,
    /// How it keeps limits, for people.
    notes: Vec<String>,
}

impl Engine {
    pub(super) fn is_current(&self, agent: AgentId, session: u64) -> bool {
        self.sessions
            .get(&agent)
            .is_some_and(|known| known.link.session == session)
    }

    pub(super) fn connect(&mut self, hello: wire::Hello, link: Link) -> Result<AgentId, ApiError> {
        let known = self.state.fleet.id(&hello.name);
        let earlier = known.and_then(|id| self.state.fleet.get(id));
        let same =
            earlier.is_some_and(|agent| agent.registered && agent.record.process == hello.process);
        if let Some(id) = known.filter(|_| !same)
            && self.sessions.contains_key(&id)
            && self.was_heard_lately(id)
        {
            let message = format!("an agent named `{}` is connected", hello.name);
            return Err(ApiError::new(loxley_api::ErrorCode::Conflict, message)
                .with_help("give this one another name"));
        }
        let fact = match known.filter(|_| same) {
            Some(agent) => Fact::AgentResumed {
                agent,
                leases: hello.leases.iter().copied().map(Lease).collect(),
            },
            None => Fact::AgentJoined(Box::new(record(&hello))),
        };
        let Applied::Agent(agent) = self.tell(fact, None)? else {
            unreachable!("an agent that joins has a number");
        };
        let heartbeat = self.state.scheduler.config().heartbeats.suspect_after.0 / 3;
        self.effects.frame(agent).welcome = Some(wire::Welcome {
            version: wire::VERSION,
            agent: agent.0,
            heartbeat_ns: heartbeat.max(1),
            resumed: same,
        });
        let session = Session {
            link,
            templates: HashSet::new(),
            vitals: wire::Vitals::default(),
            notes: hello.notes,
        };
        self.sessions.insert(agent, session);
        Ok(agent)
    }

    fn was_heard_lately(&self, agent: AgentId) -> bool {
        let silence = self.state.scheduler.config().heartbeats.suspect_after;
        let heard = self.state.fleet.get(agent).map(|agent| agent.heard);
        heard.is_some_and(|heard| self.clock.peek().since(heard) < silence)
    }

    pub(super) fn hear(&mut self, agent: AgentId, frame: wire::AgentFrame) {
        for started in frame.started {
            let (task, lease) = (TaskId(started.task), Lease(started.lease));
            if self.holds(agent, task, lease) {
                let _ = self.tell(Fact::Started { agent, task, lease }, None);
            }
        }
        for checkpoint in frame.checkpoints {
            let (task, lease) = (TaskId(checkpoint.task), Lease(checkpoint.lease));
            if self.holds(agent, task, lease) {
                let fact = Fact::Checkpoint {
                    agent,
                    task,
                    lease,
                    state: checkpoint.state,
                };
                let _ = self.tell(fact, None);
            }
        }
        for finished in frame.finished {
            self.finished(agent, finished);
        }
        for yielded in frame.yielded {
            let (task, lease) = (TaskId(yielded.task), Lease(yielded.lease));
            if self.holds(agent, task, lease) {
                let fact = Fact::Yielded {
                    agent,
                    task,
                    lease,
                    yielded: yielded.yielded,
                };
                let _ = self.tell(fact, None);
            }
        }
        if let Some(vitals) = frame.vitals {
            self.heartbeat(agent, vitals);
        }
        if frame.leaving {
            let _ = self.tell(Fact::AgentDrained(agent), None);
        }
        if frame.number > 0 {
            self.effects.frame(agent).acknowledged = frame.number;
        }
    }

    /// Whether an agent may say something of a lease. What it says of others is old news.
    fn holds(&mut self, agent: AgentId, task: TaskId, lease: Lease) -> bool {
        let held = self.state.fleet.holds(agent, lease);
        let holds = held.is_some_and(|held| held.task == task);
        self.stale_answers += u64::from(!holds);
        holds
    }

    fn finished(&mut self, agent: AgentId, finished: wire::Finished) {
        let (task, lease) = (TaskId(finished.task), Lease(finished.lease));
        if !self.holds(agent, task, lease) {
            return;
        }
        use loxley_model::Failure;
        let outcome = match finished.outcome() {
            wire::Outcome::Succeeded => Outcome::Succeeded,
            wire::Outcome::Failed => Outcome::Failed(Failure::Error),
            wire::Outcome::FailedForGood => Outcome::Failed(Failure::Permanent),
            wire::Outcome::TimeLimit => Outcome::Failed(Failure::TimeLimit),
        };
        let fact = Fact::Finished {
            agent,
            task,
            lease,
            outcome,
            ran: Span(finished.duration_ns),
        };
        let _ = self.tell(fact, Some(Finish::new(finished)));
    }

    fn heartbeat(&mut self, agent: AgentId, vitals: wire::Vitals) {
        // A task that is given back takes a write as well as a round trip, and its end may be kept back.
        let commit = self.progress.commit_ns.load(Ordering::Relaxed);
        let delay = commit.saturating_add(vitals.hold_ns);
        let fact = Fact::AgentHeard {
            agent,
            vitals: Vitals {
                throttle: if vitals.throttle.is_finite() {
                    vitals.throttle.clamp(0.0, 1.0)
                } else {
                    0.0
                },
                round_trip: Span(vitals.round_trip_ns.saturating_add(delay)),
            },
        };
        let _ = self.tell(fact, None);
        if let Some(session) = self.sessions.get_mut(&agent) {
            session.vitals = vitals;
        }
    }

    pub(super) fn disconnect(&mut self, agent: AgentId, session: u64) {
        if !self.is_current(agent, session) {
            return;
        }
        self.sessions.remove(&agent);
        let Some(this) = self.state.fleet.get(agent).filter(|agent| agent.registered) else {
            return;
        };
        let fact = if this.draining && this.in_hand.is_empty() {
            Fact::AgentLeft(agent)
        } else {
            Fact::AgentSilent(agent)
        };
        let _ = self.tell(fact, None);
    }

    pub(super) fn dismiss(
        &mut self,
        agent: AgentId,
        farewell: wire::Farewell,
    ) -> Result<(), ApiError> {
        let fact = match farewell {
            wire::Farewell::Stop => Fact::AgentLeft(agent),
            wire::Farewell::Drain | wire::Farewell::Stay => Fact::AgentDrained(agent),
        };
        self.tell(fact, None)?;
        self.effects.frame(agent).farewell = farewell.into();
        Ok(())
    }

    /// An agent, with what it last said of itself.
    pub(crate) fn agent_info(&self, agent: AgentId) -> Option<AgentInfo> {
        let mut info = self.state.agent_info(agent)?;
        if let Some(session) = self.sessions.get(&agent) {
            let vitals = &session.vitals;
            let said = [
                ("load", Some(vitals.load)),
                (
                    "memory_available_bytes",
                    Some(vitals.memory_available_bytes as f64),
                ),
                ("cpu_pressure", vitals.cpu_pressure),
                ("memory_pressure", vitals.memory_pressure),
            ];
            let said = said
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)));
            info.vitals = said.collect();
            info.notes.clone_from(&session.notes);
        }
        Some(info)
    }
}

/// Adds the templates that a session needs for its frame and has not been sent.
pub(super) fn add_templates(state: &State, session: &mut Session, frame: &mut wire::ServerFrame) {
    if session.templates.len() > TEMPLATES_MAX {
        session.templates.clear();
    }
    let mut last = 0;
    for assign in &frame.assign {
        if assign.template != last && session.templates.insert(assign.template) {
            frame
                .templates
                .extend(state.template(TaskId(assign.template)));
        }
        last = assign.template;
    }
}

fn record(hello: &wire::Hello) -> AgentRecord {
    AgentRecord {
        name: hello.name.clone(),
        process: hello.process,
        skills: hello.skills.clone(),
        slots: hello.slots,
        speed: hello.speed,
        cpu_milli: hello.cpu_milli,
        memory_bytes: hello.memory_bytes,
        resources: hello
            .resources
            .iter()
            .map(|amount| (amount.name.clone(), amount.amount))
            .collect(),
        zone: Some(hello.zone.clone()).filter(|zone| !zone.is_empty()),
        holds: hello.holds.clone(),
    }
}
