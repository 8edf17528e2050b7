//! Attempts that were not the last of their task, found in the facts of a journal.
//!
//! The history keeps a row for each task, which tells of its last attempt. Those before it (that failed and were tried
//! again, that were lost with their agent, that were given back while they ran) and copies that were not the first to
//! succeed are in the facts alone. This follows the facts, and nothing else: no decision is made again, so that a long
//! journal is read as fast as its bytes come.
//!
//! What must stay true: what is remembered is bounded by what runs at once and by the tasks that did not succeed.

use std::collections::HashMap;

use loxley_driver::IdMap;
use loxley_journal::Position;
use loxley_model::{AgentId, Lease, Outcome, TaskId, Time};

use crate::fact::{Fact, GroupError, GroupReader};

/// An attempt that was not the last of its task, or not the first of two copies to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierAttempt {
    /// The task.
    pub task: TaskId,
    /// Who ran it.
    pub agent: AgentId,
    /// When it began.
    pub start: Time,
    /// When it ended, as far as anybody knows.
    pub end: Time,
    /// Which attempt of the task this was, from 1; a copy has the number of the one that it copies.
    pub attempt: u32,
    /// What became of it.
    pub fate: AttemptFate,
}

/// What became of an attempt that does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFate {
    /// It failed, and the task was tried again.
    Failed,
    /// Another copy of the task was first.
    Outrun,
    /// It was stopped, and the task went on elsewhere.
    GivenBack,
    /// Its agent was lost, or left.
    Lost,
}

/// An attempt that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningAttempt {
    /// The task.
    pub task: TaskId,
    /// Who runs it.
    pub agent: AgentId,
    /// Since when.
    pub start: Time,
    /// Whether it is a second copy.
    pub is_copy: bool,
}

/// Follows the facts of a journal from its beginning, or from as far back as it goes.
#[derive(Debug, Default)]
pub struct AttemptFollower {
    running: HashMap<Lease, Running>,
    /// The leases under which a task runs: one, or two with a second copy.
    of_task: IdMap<TaskId, Vec<Lease>>,
    /// Attempts that came to nothing: whether one was the last of its task shows when there is another.
    ended: IdMap<TaskId, EarlierAttempt>,
    /// How many attempts of a task came to nothing.
    before: IdMap<TaskId, u32>,
    /// Agents that are away, and since when.
    away: IdMap<AgentId, Time>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    task: TaskId,
    agent: AgentId,
    start: Time,
}

impl AttemptFollower {
    /// Hears a group of facts, and returns the time of the last one. What it tells of attempts is added to `found`.
    ///
    /// # Errors
    /// When the group does not hold facts.
    pub fn hear_group(
        &mut self,
        position: Position,
        group: &[u8],
        found: &mut Vec<EarlierAttempt>,
    ) -> Result<Option<Time>, GroupError> {
        let mut reader = GroupReader::new(position, group)?;
        let mut last = None;
        while let Some((now, fact)) = reader.next_fact()? {
            self.hear(now, &fact, found);
            last = Some(now);
        }
        Ok(last)
    }

    /// What runs: who runs which task, since when, and whether it is a copy of one that began before.
    pub fn running(&self) -> impl Iterator<Item = RunningAttempt> {
        self.running.iter().map(|(lease, running)| {
            let first = self.of_task.get(&running.task).and_then(|all| all.first());
            RunningAttempt {
                task: running.task,
                agent: running.agent,
                start: running.start,
                is_copy: first != Some(lease),
            }
        })
    }

    fn hear(&mut self, now: Time, fact: &Fact, found: &mut Vec<EarlierAttempt>) {
        match fact {
            Fact::Started { agent, task, lease } => self.started(now, *agent, *task, *lease, found),
            Fact::Finished {
                agent,
                task,
                lease,
                outcome,
                ran,
            }
            | Fact::GuestFinished {
                agent,
                task,
                lease,
                outcome,
                ran,
                ..
            } => {
                // Of a short task nobody told that it began.
                if !self.running.contains_key(lease) {
                    let start = Time(now.0.saturating_sub(ran.0));
                    self.started(start, *agent, *task, *lease, found);
                }
                self.finished(now, *task, *lease, *outcome, found);
            }
            Fact::Yielded {
                lease,
                yielded: true,
                ..
            } => self.end(now, *lease, AttemptFate::GivenBack, found),
            Fact::AgentLeft(agent) => {
                self.lose(now, *agent, &[], found);
                self.away.remove(agent);
            }
            Fact::AgentResumed { agent, leases } => {
                let since = self.away.remove(agent).unwrap_or(now);
                self.lose(since, *agent, leases, found);
            }
            Fact::AgentSilent(agent) => _ = self.away.entry(*agent).or_insert(now),
            Fact::Restarted => {
                for running in self.running.values() {
                    self.away.entry(running.agent).or_insert(now);
                }
            }
            Fact::Resubmitted(_)
            | Fact::Cancelled(_)
            | Fact::Yielded { .. }
            | Fact::Tick
            | Fact::AgentHeard { .. }
            | Fact::AgentJoined(_)
            | Fact::AgentDrained(_)
            | Fact::JobSubmitted { .. }
            | Fact::JobExtended { .. }
            | Fact::JobClosed(_)
            | Fact::Checkpoint { .. }
            | Fact::ConfigChanged(_)
            | Fact::RebalanceRequested
            | Fact::AgentForgotten(_)
            | Fact::StoodStill(_)
            | Fact::ConfigGiven(_)
            | Fact::SelfTuningSet(_)
            | Fact::ForecastSet(_)
            | Fact::SettingTuned(_)
            | Fact::NumberedFrom(_)
            | Fact::AddedRulesSet(_)
            | Fact::SkillRevoked { .. }
            | Fact::UserWeightSet { .. }
            | Fact::TasksAsked { .. }
            | Fact::TasksGiven { .. }
            | Fact::LetterReceived(_)
            | Fact::LettersRead { .. }
            | Fact::LettersSent
            | Fact::GuestUnwanted(_)
            | Fact::BudgetsReviewed => {}
        }
    }

    fn started(
        &mut self,
        now: Time,
        agent: AgentId,
        task: TaskId,
        lease: Lease,
        found: &mut Vec<EarlierAttempt>,
    ) {
        // Whoever ran it and is away has lost it; whoever is here runs a copy.
        let earlier = self.of_task.get(&task).cloned().unwrap_or_default();
        for other in earlier {
            let since = self
                .running
                .get(&other)
                .and_then(|running| self.away.get(&running.agent).copied());
            if let Some(since) = since {
                self.end(since, other, AttemptFate::Lost, found);
            }
        }
        if let Some(ended) = self.ended.remove(&task) {
            *self.before.entry(task).or_default() += 1;
            found.push(ended);
        }
        let start = now;
        self.running.insert(lease, Running { task, agent, start });
        self.of_task.entry(task).or_default().push(lease);
    }

    fn finished(
        &mut self,
        now: Time,
        task: TaskId,
        lease: Lease,
        outcome: Outcome,
        found: &mut Vec<EarlierAttempt>,
    ) {
        if outcome != Outcome::Succeeded {
            return self.end(now, lease, AttemptFate::Failed, found);
        }
        self.forget(lease);
        for other in self.of_task.get(&task).cloned().unwrap_or_default() {
            self.end(now, other, AttemptFate::Outrun, found);
        }
        self.before.remove(&task);
    }

    /// An attempt came to nothing.
    fn end(&mut self, now: Time, lease: Lease, fate: AttemptFate, found: &mut Vec<EarlierAttempt>) {
        let Some(running) = self.forget(lease) else {
            return;
        };
        let ended = EarlierAttempt {
            task: running.task,
            agent: running.agent,
            start: running.start,
            end: now.max(running.start),
            attempt: self.before.get(&running.task).copied().unwrap_or(0) + 1,
            fate,
        };
        // While a copy runs on, or has succeeded, this one is not the last.
        if fate == AttemptFate::Outrun || self.of_task.contains_key(&running.task) {
            found.push(ended);
        } else {
            self.ended.insert(running.task, ended);
        }
    }

    /// An agent has nothing any more but these leases.
    fn lose(&mut self, now: Time, agent: AgentId, but: &[Lease], found: &mut Vec<EarlierAttempt>) {
        let lost = |(lease, running): (&Lease, &Running)| {
            (running.agent == agent && !but.contains(lease)).then_some(*lease)
        };
        let mut lost: Vec<Lease> = self.running.iter().filter_map(lost).collect();
        lost.sort_unstable();
        for lease in lost {
            self.end(now, lease, AttemptFate::Lost, found);
        }
    }

    fn forget(&mut self, lease: Lease) -> Option<Running> {
        let running = self.running.remove(&lease)?;
        if let Some(leases) = self.of_task.get_mut(&running.task) {
            leases.retain(|other| *other != lease);
            if leases.is_empty() {
                self.of_task.remove(&running.task);
            }
        }
        Some(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_model::{Failure, Span};

    const TASK: TaskId = TaskId(7);

    fn started(agent: u64, lease: u64) -> Fact {
        Fact::Started {
            agent: AgentId(agent),
            task: TASK,
            lease: Lease(lease),
        }
    }

    fn finished(agent: u64, lease: u64, outcome: Outcome, ran: u64) -> Fact {
        Fact::Finished {
            agent: AgentId(agent),
            task: TASK,
            lease: Lease(lease),
            outcome,
            ran: Span(ran),
        }
    }

    /// What is found, as (agent, start, end, attempt, fate).
    fn follow(facts: &[(u64, Fact)]) -> Vec<(u64, u64, u64, u32, AttemptFate)> {
        let mut follower = AttemptFollower::default();
        let mut found = Vec::new();
        for (now, fact) in facts {
            follower.hear(Time(*now), fact, &mut found);
        }
        let told = found
            .iter()
            .map(|one| (one.agent.0, one.start.0, one.end.0, one.attempt, one.fate));
        told.collect()
    }

    const FAILED: Outcome = Outcome::Failed(Failure::Error);

    #[test]
    fn what_failed_is_told_of_when_it_is_tried_again() {
        let mut facts = vec![(10, started(1, 1)), (15, finished(1, 1, FAILED, 5))];
        assert_eq!(follow(&facts), [], "it may have been the last");
        facts.push((20, started(2, 2)));
        facts.push((25, finished(2, 2, FAILED, 5)));
        // Nobody told that the third began.
        facts.push((40, finished(1, 3, Outcome::Succeeded, 4)));
        let told = [
            (1, 10, 15, 1, AttemptFate::Failed),
            (2, 20, 25, 2, AttemptFate::Failed),
        ];
        assert_eq!(follow(&facts), told);
    }

    #[test]
    fn the_copy_that_was_not_the_first_is_told_of() {
        let facts = [
            (10, started(1, 1)),
            (30, started(2, 2)),
            (40, finished(2, 2, Outcome::Succeeded, 10)),
        ];
        assert_eq!(follow(&facts), [(1, 10, 40, 1, AttemptFate::Outrun)]);
        let mut follower = AttemptFollower::default();
        for (now, fact) in &facts[..2] {
            follower.hear(Time(*now), fact, &mut Vec::new());
        }
        let mut running: Vec<_> = follower.running().collect();
        running.sort_unstable_by_key(|one| one.agent);
        let told: Vec<_> = running
            .iter()
            .map(|one| (one.start.0, one.is_copy))
            .collect();
        assert_eq!(told, [(10, false), (30, true)]);
    }

    #[test]
    fn what_was_lost_ends_when_its_agent_was_last_there() {
        let facts = [
            (10, started(1, 1)),
            (12, Fact::AgentSilent(AgentId(1))),
            (60, started(2, 2)),
            (70, finished(2, 2, Outcome::Succeeded, 10)),
        ];
        assert_eq!(follow(&facts), [(1, 10, 12, 1, AttemptFate::Lost)]);
        let facts = [
            (10, started(1, 1)),
            (20, Fact::AgentLeft(AgentId(1))),
            (30, started(2, 2)),
        ];
        assert_eq!(follow(&facts), [(1, 10, 20, 1, AttemptFate::Lost)]);
    }

    #[test]
    fn an_agent_that_comes_back_with_its_work_lost_nothing() {
        let facts = [
            (10, started(1, 1)),
            (12, Fact::AgentSilent(AgentId(1))),
            (
                20,
                Fact::AgentResumed {
                    agent: AgentId(1),
                    leases: vec![Lease(1)],
                },
            ),
            (30, finished(1, 1, Outcome::Succeeded, 20)),
        ];
        assert_eq!(follow(&facts), []);
    }

    #[test]
    fn what_was_given_back_while_it_ran_is_told_of() {
        let given_back = Fact::Yielded {
            agent: AgentId(1),
            task: TASK,
            lease: Lease(1),
            yielded: true,
        };
        let facts = [
            (10, started(1, 1)),
            (15, given_back),
            (20, finished(2, 2, Outcome::Succeeded, 4)),
        ];
        assert_eq!(follow(&facts), [(1, 10, 15, 1, AttemptFate::GivenBack)]);
    }
}
