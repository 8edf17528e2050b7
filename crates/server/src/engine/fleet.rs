//! The agents as the engine knows them: names, processes, and which leases each has in hand.
//!
//! The policy keeps its own books; these are for what it does not care about: which name stands behind a
//! number, which process speaks for it, and what an agent must hold when it comes back.

use std::collections::HashMap;

use loxley_model::{AgentId, Lease, TaskId, Time};
use serde::{Deserialize, Serialize};

use super::fact::AgentRecord;
use super::ids::IdMap;

/// An agent that was here once.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) record: AgentRecord,
    /// Whether the policy has it.
    pub(crate) registered: bool,
    pub(crate) draining: bool,
    pub(crate) heard: Time,
    pub(crate) throttle: f64,
    pub(crate) round_trip_ns: u64,
    pub(crate) in_hand: IdMap<Lease, InHand>,
}

/// A task that an agent has under a lease.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct InHand {
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    /// None until it says so.
    pub(crate) started: Option<Time>,
}

/// All agents, by number.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(super) agents: Vec<Agent>,
    pub(super) by_name: HashMap<String, AgentId>,
    /// Slots of all agents that the policy has.
    slots: u64,
}

impl Fleet {
    pub(crate) fn id(&self, name: &str) -> Option<AgentId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, id: AgentId) -> Option<&Agent> {
        self.agents.get(usize::try_from(id.0.checked_sub(1)?).ok()?)
    }

    pub(crate) fn get_mut(&mut self, id: AgentId) -> Option<&mut Agent> {
        let at = usize::try_from(id.0.checked_sub(1)?).ok()?;
        self.agents.get_mut(at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        (1..).map(AgentId).zip(&self.agents)
    }

    /// The number behind a name: a new one if it was never seen. The agent starts with nothing.
    pub(crate) fn admit(&mut self, record: AgentRecord, now: Time) -> (AgentId, bool) {
        let known = self.id(&record.name);
        if let Some(id) = known {
            self.set_registered(id, false);
        }
        let agent = Agent {
            registered: false,
            draining: false,
            heard: now,
            throttle: 0.0,
            round_trip_ns: 0,
            in_hand: IdMap::default(),
            record,
        };
        if let Some(id) = known {
            let place = self.get_mut(id).expect("a name leads to an agent");
            // What the earlier process had is taken off the books by the policy's own cancellations.
            let in_hand = std::mem::take(&mut place.in_hand);
            *place = Agent { in_hand, ..agent };
            return (id, false);
        }
        let id = AgentId(self.agents.len() as u64 + 1);
        self.by_name.insert(agent.record.name.clone(), id);
        self.agents.push(agent);
        (id, true)
    }

    pub(crate) fn name(&self, id: AgentId) -> String {
        self.get(id)
            .map_or_else(|| id.to_string(), |agent| agent.record.name.clone())
    }

    pub(crate) fn holds(&self, agent: AgentId, lease: Lease) -> Option<InHand> {
        self.get(agent)?.in_hand.get(&lease).copied()
    }

    /// Slots of all agents that the policy has.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    /// Notes whether the policy has an agent.
    pub(crate) fn set_registered(&mut self, id: AgentId, registered: bool) {
        let Some(agent) = self.get_mut(id) else {
            return;
        };
        let slots = u64::from(agent.record.slots);
        match (
            std::mem::replace(&mut agent.registered, registered),
            registered,
        ) {
            (false, true) => self.slots += slots,
            (true, false) => self.slots -= slots,
            _ => {}
        }
    }
}
