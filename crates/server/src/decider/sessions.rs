//! What agents say, made into facts, and what the engine knows of their connections.
//!
//! What must stay true: an agent is heard only over its newest connection, and only of leases that it holds.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use loxley_api::{AgentInfo, ApiError, ErrorCode};
use loxley_engine::{Applied, Engine, Fact};
use loxley_model::{AgentId, Lease, Span, TaskId};
use loxley_policy::Vitals;
use loxley_protocol as wire;

use super::{Decider, Link, View, frames};

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

impl Decider {
    pub(super) fn is_current(&self, agent: AgentId, session: u64) -> bool {
        self.sessions
            .get(&agent)
            .is_some_and(|known| known.link.session == session)
    }

    pub(super) fn connect(&mut self, hello: wire::Hello, link: Link) -> Result<AgentId, ApiError> {
        let known = self.engine.agent_named(&hello.name);
        if let Some(owner) = known.and_then(|id| self.engine.owner(id))
            && *owner != *link.token
        {
            let name = &hello.name;
            let message = format!("the name `{name}` belongs to the token `{owner}`");
            return Err(ApiError::new(ErrorCode::Forbidden, message).with_help(format!(
                "give this agent another name, or have an admin free it: `loxley agent forget {name}`"
            )));
        }
        let is_known = self.knows_what_it_saw(&hello)?;
        let earlier = known.and_then(|id| self.engine.registered(id));
        // Leases of another shard have the numbers that ours have.
        let is_ours = match hello.shard {
            Some(shard) => shard == self.instances.shard,
            None => self.instances.is_only_shard,
        };
        let same =
            is_ours && is_known && earlier.is_some_and(|agent| agent.process == hello.process);
        let is_other = earlier.is_none_or(|agent| agent.process != hello.process);
        if let Some(id) = known.filter(|_| is_other)
            && self.sessions.contains_key(&id)
            && self.was_heard_lately(id)
        {
            let message = format!("an agent named `{}` is connected", hello.name);
            return Err(
                ApiError::new(ErrorCode::Conflict, message).with_help("give this one another name")
            );
        }
        let fact = match known.filter(|_| same) {
            Some(agent) => Fact::AgentResumed {
                agent,
                leases: hello.leases.iter().copied().map(Lease).collect(),
            },
            None => Fact::AgentJoined(Box::new(frames::record(&hello, &link.token))),
        };
        let Applied::Agent(agent) = self.record_and_apply(fact)? else {
            unreachable!("an agent that joins has a number");
        };
        let (heartbeat_ns, lease_ns) = self.pace();
        let servers = self.instance_urls();
        let epoch = self.instances.epoch.load(Ordering::Relaxed);
        self.frame(agent).welcome = Some(wire::Welcome {
            version: wire::common_version(hello.version).unwrap_or(wire::VERSION),
            agent: agent.0,
            heartbeat_ns,
            resumed: same,
            lease_ns,
            servers,
            epoch,
            shard: self.instances.shard,
            holder: self.instances.holder.load(Ordering::Relaxed),
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

    /// How often agents are to be heard, and after how much silence they are given up, in nanoseconds.
    fn pace(&self) -> (u64, u64) {
        let heartbeats = self.engine.config().heartbeats;
        let often = heartbeats.suspect_after.0 / 3;
        (often.max(1), heartbeats.lost_after.0)
    }

    /// Tells everybody who is connected how often it is to be heard from now on.
    pub(super) fn tell_pace(&mut self) {
        let (heartbeat_ns, lease_ns) = self.pace();
        let connected: Vec<AgentId> = self.sessions.keys().copied().collect();
        for agent in connected {
            let frame = self.frame(agent);
            frame.heartbeat_ns = heartbeat_ns;
            frame.lease_ns = lease_ns;
        }
    }

    fn was_heard_lately(&self, agent: AgentId) -> bool {
        let silence = self.engine.config().heartbeats.suspect_after;
        let heard = self.engine.last_heard(agent);
        heard.is_some_and(|heard| self.clock.peek().since(heard) < silence)
    }

    /// What goes to an agent next, beside its orders.
    pub(super) fn frame(&mut self, agent: AgentId) -> &mut wire::ServerFrame {
        self.frames.entry(agent).or_default()
    }

    pub(super) fn hear(&mut self, agent: AgentId, frame: wire::AgentFrame) {
        let now = self.clock.now();
        let engine = &mut self.engine;
        for started in frame.started {
            engine.started(now, agent, TaskId(started.task), Lease(started.lease));
        }
        for saved in frame.checkpoints {
            let (task, lease) = (TaskId(saved.task), Lease(saved.lease));
            engine.checkpoint_saved(now, agent, task, lease, saved.state);
        }
        for finished in frame.finished {
            let (task, lease) = (TaskId(finished.task), Lease(finished.lease));
            let outcome = frames::outcome(&finished);
            let ran = Span(finished.duration_ns);
            let finish = frames::finish(finished);
            engine.finished(now, agent, task, lease, outcome, ran, finish);
        }
        for answer in frame.yielded {
            let (task, lease) = (TaskId(answer.task), Lease(answer.lease));
            engine.yielded(now, agent, task, lease, answer.yielded);
        }
        if let Some(vitals) = frame.vitals {
            self.heartbeat(agent, vitals);
        }
        if frame.leaving {
            let _ = self.record_and_apply(Fact::AgentDrained(agent));
            self.frame(agent).nothing_new = true;
        }
        if frame.number > 0 {
            self.frame(agent).acknowledged = frame.number;
        }
    }

    fn heartbeat(&mut self, agent: AgentId, vitals: wire::Vitals) {
        // A task that is given back takes a write as well as a round trip, and its end may be kept back.
        let commit = self.progress.commit_ns.load(Ordering::Relaxed);
        let delay = commit.saturating_add(vitals.hold_ns);
        let throttle = match vitals.throttle.is_finite() {
            true => vitals.throttle.clamp(0.0, 1.0),
            false => 0.0,
        };
        let said = Vitals {
            throttle,
            round_trip: Span(vitals.round_trip_ns.saturating_add(delay)),
        };
        let now = self.clock.now();
        self.engine.heard(now, agent, said);
        if let Some(session) = self.sessions.get_mut(&agent) {
            session.vitals = vitals;
        }
    }

    pub(super) fn disconnect(&mut self, agent: AgentId, session: u64) {
        if !self.is_current(agent, session) {
            return;
        }
        self.sessions.remove(&agent);
        if self.engine.registered(agent).is_none() {
            return;
        }
        let fact = match self.engine.is_drained(agent) {
            true => Fact::AgentLeft(agent),
            false => Fact::AgentSilent(agent),
        };
        let _ = self.record_and_apply(fact);
    }

    /// Has an agent that is here go to another shard, once it has finished what it has. It says itself when it leaves, so
    /// nothing needs to be known of this later.
    #[cfg(feature = "postgres")]
    pub(super) fn send_away(&mut self, agent: AgentId, shard: u32) {
        if self.sessions.contains_key(&agent) {
            self.frame(agent).move_to_shard = Some(shard);
        }
    }

    pub(super) fn dismiss(
        &mut self,
        agent: AgentId,
        farewell: wire::Farewell,
    ) -> Result<(), ApiError> {
        // One that is connected says itself when nothing is left of what it ran, and leaves.
        let is_away = !self.sessions.contains_key(&agent);
        let fact = match farewell {
            wire::Farewell::Stop if is_away => Fact::AgentLeft(agent),
            _ => Fact::AgentDrained(agent),
        };
        self.record_and_apply(fact)?;
        self.frame(agent).farewell = farewell.into();
        Ok(())
    }
}

impl View<'_> {
    /// An agent, with what it last said of itself.
    pub(crate) fn agent_info(&self, agent: AgentId) -> Option<AgentInfo> {
        let mut info = self.engine.agent_info(agent)?;
        if let Some(session) = self.sessions.and_then(|known| known.get(&agent)) {
            let vitals = &session.vitals;
            let said = [
                ("load", Some(vitals.load)),
                (
                    "memory_available_bytes",
                    Some(vitals.memory_available_bytes as f64),
                ),
                ("cpu_pressure", vitals.cpu_pressure),
                ("memory_pressure", vitals.memory_pressure),
                ("io_pressure", vitals.io_pressure),
                ("context_switches_per_sec", vitals.context_switches_per_sec),
                ("temperature_celsius", vitals.temperature_celsius),
                ("power_watts", vitals.power_watts),
                ("cache_misses_per_sec", vitals.cache_misses_per_sec),
                ("memory_bytes_per_sec", vitals.memory_bytes_per_sec),
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

impl Session {
    /// Adds the templates that a session needs for its frame and has not been sent.
    pub(super) fn add_templates(&mut self, engine: &Engine, frame: &mut wire::ServerFrame) {
        if self.templates.len() > TEMPLATES_MAX {
            self.templates.clear();
        }
        let mut last = 0;
        for assign in &frame.assign {
            if assign.template != last && self.templates.insert(assign.template) {
                let part = engine.part(TaskId(assign.template));
                frame.templates.extend(part.as_ref().map(frames::template));
            }
            last = assign.template;
        }
    }
}
