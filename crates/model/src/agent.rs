//! What an agent says of itself when it registers.

use alloc::vec::Vec;

use crate::{AgentId, DataKey, Resources, SkillSet, ZoneId};

/// An agent as it registers.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AgentSpec {
    /// Its id. Registering again under the same id is a new incarnation.
    pub id: AgentId,
    /// What it can do.
    pub skills: SkillSet,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Its speed as it claims; 1.0 runs a task in its expected cost. Learned speed replaces it.
    pub speed: f64,
    /// What it has. See [`Resources`] for what zero means.
    pub resources: Resources,
    /// Where it stands.
    pub zone: Option<ZoneId>,
    /// The data it holds.
    pub holds: Vec<DataKey>,
    /// Who starts a hand-over: the agent or the scheduler.
    pub dispatch: Dispatch,
    /// Whether silence means that it is gone.
    pub heartbeats: bool,
    /// Whether it says when nothing is left of a task that it was told to end. Until then the task counts as
    /// running there. Of an agent that does not say so, such a task counts as over when it is told.
    pub confirms_ends: bool,
}

/// Who starts the hand-over of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Dispatch {
    /// The agent asks (`WorkRequested`) and gets no more than it asked for.
    #[default]
    OnRequest,
    /// The scheduler keeps every slot of the agent busy, and a small backlog behind them whose
    /// depth follows task length and round-trip time.
    KeepFull,
}

impl AgentSpec {
    /// An agent with one slot, normal speed and nothing special.
    #[must_use]
    pub fn new(id: AgentId, skills: SkillSet) -> Self {
        Self {
            id,
            skills,
            slots: 1,
            speed: 1.0,
            resources: Resources::default(),
            zone: None,
            holds: Vec::new(),
            dispatch: Dispatch::OnRequest,
            heartbeats: false,
            confirms_ends: false,
        }
    }
}
