//! The agents as the engine knows them: which process speaks for a number, and how it is.
//!
//! Names are in the directory and leases with the driver; these are the things that neither cares about.

use std::sync::Arc;

use loxley_model::{AgentId, Time};

use crate::fact::AgentRecord;

/// An agent that was here once.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Shared, so that a snapshot is taken quickly.
    pub(crate) record: Arc<AgentRecord>,
    /// Whether the policy has it.
    pub(crate) registered: bool,
    /// Whether it was told to end. One that the policy does not have any more left when it was, and is lost when not.
    pub(crate) draining: bool,
    pub(crate) heard: Time,
    pub(crate) throttle: f64,
    pub(crate) round_trip_ns: u64,
}

impl Agent {
    fn new(record: Arc<AgentRecord>, now: Time) -> Self {
        Self {
            registered: false,
            draining: false,
            heard: now,
            throttle: 0.0,
            round_trip_ns: 0,
            record,
        }
    }
}

/// All agents, by number.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(super) agents: Vec<Agent>,
    /// The number before that of the first.
    base: u64,
    /// Slots of all agents that the policy has.
    slots: u64,
}

impl Fleet {
    pub(crate) fn get(&self, id: AgentId) -> Option<&Agent> {
        self.agents.get(self.place(id)?)
    }

    pub(crate) fn get_mut(&mut self, id: AgentId) -> Option<&mut Agent> {
        let at = self.place(id)?;
        self.agents.get_mut(at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.ids().zip(&self.agents)
    }

    /// The numbers of agents, from the first on, given out or not.
    pub(super) fn ids(&self) -> impl Iterator<Item = AgentId> + use<> {
        (self.base + 1..).map(AgentId)
    }

    /// A fleet whose first agent has the number after this.
    pub(crate) fn counted_from(base: u64) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    fn place(&self, id: AgentId) -> Option<usize> {
        let number = id.0.checked_sub(self.base)?.checked_sub(1)?;
        usize::try_from(number).ok()
    }

    /// A process came under this number, and starts with nothing. Whether the number is new.
    pub(crate) fn admit(&mut self, id: AgentId, record: AgentRecord, now: Time) -> bool {
        self.set_registered(id, false);
        let agent = Agent::new(Arc::new(record), now);
        if let Some(place) = self.get_mut(id) {
            *place = agent;
            return false;
        }
        self.agents.push(agent);
        let last = self.base + self.agents.len() as u64;
        assert_eq!(id.0, last, "numbers have no gaps");
        true
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
