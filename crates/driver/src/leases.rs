//! Which agent holds which task under which lease, as far as it has been carried out.
//!
//! The core keeps its own books, which are ahead of these by what has not been carried out yet. What must
//! stay true: a lease is here from the moment its assignment was handed to the carrier until an answer
//! ends it or the core takes it back.

use loxley_model::{AgentId, Lease, TaskId, Time};

use crate::ids::{IdMap, IdSet};

/// A task that an agent has under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// Who has it.
    pub agent: AgentId,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// When the agent said that it began; none until then.
    pub started: Option<Time>,
}

/// All leases that are in force.
#[derive(Debug, Default)]
pub struct Leases {
    held: IdMap<Lease, Held>,
    of_agent: IdMap<AgentId, IdSet<Lease>>,
    /// The last lease of each task whose lease ended while the present fact was carried out.
    ended: IdMap<TaskId, (Lease, Held)>,
}

impl Leases {
    /// What is held under a lease.
    #[must_use]
    pub fn get(&self, lease: Lease) -> Option<&Held> {
        self.held.get(&lease)
    }

    /// What this agent holds under a lease; none when the lease is another one's, or over.
    #[must_use]
    pub fn held_by(&self, agent: AgentId, lease: Lease) -> Option<&Held> {
        self.get(lease).filter(|held| held.agent == agent)
    }

    /// The leases of an agent.
    pub fn of(&self, agent: AgentId) -> impl Iterator<Item = (Lease, &Held)> {
        let leases = self.of_agent.get(&agent).into_iter().flatten();
        leases.map(|lease| (*lease, &self.held[lease]))
    }

    /// Whether an agent holds nothing.
    #[must_use]
    pub fn is_free(&self, agent: AgentId) -> bool {
        self.of_agent.get(&agent).is_none_or(IdSet::is_empty)
    }

    /// The last lease of a task that ended while the present fact was carried out.
    #[must_use]
    pub fn just_ended(&self, task: TaskId) -> Option<(Lease, Held)> {
        self.ended.get(&task).copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Lease, &Held)> {
        self.held.iter().map(|(lease, held)| (*lease, held))
    }

    pub(crate) fn insert(&mut self, lease: Lease, held: Held) {
        self.held.insert(lease, held);
        self.of_agent.entry(held.agent).or_default().insert(lease);
    }

    pub(crate) fn start(&mut self, lease: Lease, now: Time) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.started.get_or_insert(now);
        }
    }

    pub(crate) fn end(&mut self, lease: Lease) {
        if let Some(held) = self.held.remove(&lease) {
            if let Some(leases) = self.of_agent.get_mut(&held.agent) {
                leases.remove(&lease);
            }
            self.ended.insert(held.task, (lease, held));
        }
    }

    /// A new fact is taken in.
    pub(crate) fn forget_ended(&mut self) {
        if !self.ended.is_empty() {
            self.ended.clear();
        }
    }
}

impl FromIterator<(Lease, Held)> for Leases {
    fn from_iter<I: IntoIterator<Item = (Lease, Held)>>(all: I) -> Self {
        let mut leases = Self::default();
        for (lease, held) in all {
            leases.insert(lease, held);
        }
        leases
    }
}
