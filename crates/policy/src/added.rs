//! Rules and facts that came after the formats of journals and snapshots were fixed.
//!
//! Earlier journals are read as they were written, so nothing can be added to the types in them. What came since stands
//! beside them: [`AddedRules`] are a fact of their own in a journal, [`SnapshotAdditions`] stand behind a snapshot.

use alloc::vec::Vec;

use loxley_model::{SkillId, SkillSet, ZoneId};

use crate::facts::{Facts, Snapshot, SnapshotError};
use crate::kind_outcomes::KindOutcomes;
use crate::refs::{AgentRef, KindRef};

/// Rules that are not in the configurations of earlier journals.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AddedRules {
    /// When an agent earns a skill that it did not declare.
    pub earning: Earning,
    /// Whether an agent whose slots are taken is given no more ahead of its time than its share of what waits.
    pub agent_shares: bool,
    /// How much of what it is worth to have a task's data counts for agents in the zone of the one that has it.
    pub near_share: f64,
}

impl Default for AddedRules {
    fn default() -> Self {
        Self {
            earning: Earning::default(),
            agent_shares: true,
            near_share: 0.5,
        }
    }
}

/// When an agent earns a skill that it did not declare: tasks that need several skills may be tried by whoever has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Earning {
    /// Whether any is earned. What was earned before stays.
    pub enabled: bool,
    /// After so many successes in a row at tasks that need the skill.
    pub successes: u32,
}

impl Default for Earning {
    fn default() -> Self {
        Self {
            enabled: true,
            successes: 20,
        }
    }
}

/// What was added to the facts about an agent.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct AgentAdditions {
    /// Where it is: agents of one zone are near each other.
    pub(crate) zone: Option<ZoneId>,
    /// Skills that it did not declare and has all the same.
    pub(crate) earned: SkillSet,
    /// Skills that were taken back: it does not earn them again.
    pub(crate) revoked: SkillSet,
    /// Skills that it neither declared nor earned, with its successes in a row.
    pub(crate) tried: Vec<(SkillId, u32)>,
}

/// What stands behind a serialised [`Snapshot`]: without it, a scheduler has forgotten what it learned of kinds of work and
/// of skills that nobody declared, and has the added rules as they are by default.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SnapshotAdditions {
    rules: AddedRules,
    agents: Vec<(AgentRef, AgentAdditions)>,
    kinds: Vec<(KindRef, KindOutcomes)>,
}

impl Snapshot {
    /// What is not part of its serialised form.
    #[must_use]
    pub fn additions(&self) -> SnapshotAdditions {
        let facts: &Facts = &self.0;
        let agents = facts.agents.iter();
        let agents = agents.filter(|(_, agent)| *agent.added != AgentAdditions::default());
        let kinds = (0..facts.classes.kind_count()).map(KindRef::new);
        let kinds = kinds.map(|kind| (kind, &facts.classes.kind_at(kind).outcomes));
        let kinds = kinds.filter(|(_, outcomes)| !outcomes.is_empty());
        SnapshotAdditions {
            rules: facts.config.added,
            agents: agents
                .map(|(at, agent)| (at, (*agent.added).clone()))
                .collect(),
            kinds: kinds
                .map(|(kind, outcomes)| (kind, outcomes.clone()))
                .collect(),
        }
    }

    /// The whole snapshot again.
    ///
    /// # Errors
    /// When they are those of another snapshot.
    pub fn with_additions(mut self, additions: SnapshotAdditions) -> Result<Self, SnapshotError> {
        let facts: &mut Facts = &mut self.0;
        facts.config.added = additions.rules;
        for (agent, added) in additions.agents {
            if facts.agents.get(agent).is_none() {
                return Err(SnapshotError::Unknown("an agent"));
            }
            *facts.agents[agent].added = added;
        }
        for (kind, outcomes) in additions.kinds {
            if kind.index() >= facts.classes.kind_count() {
                return Err(SnapshotError::Unknown("a kind of task"));
            }
            facts.classes.kind_at_mut(kind).outcomes = outcomes;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use loxley_model::Time;

    use super::*;
    use crate::{Config, Scheduler};

    #[test]
    fn additions_that_speak_of_what_is_not_in_the_snapshot_are_refused() {
        let snapshot = || Scheduler::new(Config::default(), Time::ZERO).snapshot();
        let refused = |additions| snapshot().with_additions(additions).err();
        let of_kind = SnapshotAdditions {
            kinds: [(KindRef::new(0), KindOutcomes::default())].into(),
            ..SnapshotAdditions::default()
        };
        let unknown = |what| Some(SnapshotError::Unknown(what));
        assert_eq!(refused(of_kind), unknown("a kind of task"));
        let of_agent = SnapshotAdditions {
            agents: [(AgentRef::new(0), AgentAdditions::default())].into(),
            ..SnapshotAdditions::default()
        };
        assert_eq!(refused(of_agent), unknown("an agent"));
        assert_eq!(refused(SnapshotAdditions::default()), None);
    }
}
