//! The very inputs of a journal again, and the first decision that differs.

use std::collections::HashMap;

use loxley_journal::{Journal, Limit, Position};
use loxley_model::{AgentId, Lease, TaskId, Time};
use loxley_policy::Action;

use crate::digest::Digest;
use crate::effects::Effects;
use crate::fact::{Fact, GroupReader};
use crate::first_difference;
use crate::recover::{Begin, RecoverError, beginning};
use crate::state::State;

/// What driving the inputs again came to.
#[derive(Debug, Default)]
pub struct Exact {
    /// How many groups were read.
    pub groups: u64,
    /// How many facts they held.
    pub facts: u64,
    /// How many decisions followed.
    pub decisions: u64,
    /// The first that differs from the one that was made.
    pub differs: Option<FirstDifference>,
}

/// Where decisions begin to differ. A journal keeps a digest of the decisions of each group, not themselves: so it is
/// known in which group it is, and what this version decides there. Which of them it is follows from the digest where
/// only one differs, else from what agents said later, where they did.
#[derive(Debug)]
pub struct FirstDifference {
    /// The group.
    pub position: Position,
    /// Its first fact was at this time.
    pub at: Time,
    /// The first decision that differs, where it can be told.
    pub decision: Option<DifferentDecision>,
    /// What this version decides in the group (the first hundred).
    pub decisions: Vec<String>,
    /// The first fact from there on that speaks of a lease which this version has not given: who holds it instead.
    pub contradiction: Option<String>,
}

/// One decision, and what was decided instead when the journal was written.
#[derive(Debug)]
pub struct DifferentDecision {
    /// Its number among the decisions of the group, from 1.
    pub number: usize,
    /// What this version decides.
    pub here: String,
    /// What was decided then.
    pub then: String,
    /// Whether the digest proves it; else it follows from what agents said later, and an earlier one that nobody spoke
    /// of may differ too.
    pub is_certain: bool,
}

/// How much further a journal is read to hear of the leases of a group: agents speak of them soon, or never.
const GROUPS_HEARD: u64 = 100_000;

/// Drives the inputs of a journal again, from as far back as it goes, and compares the decisions.
///
/// # Errors
/// When it cannot be read. A decision that differs is no error.
pub fn replay_exactly(journal: &mut dyn Journal) -> Result<Exact, RecoverError> {
    let Begin {
        mut state,
        mut position,
    } = beginning(journal)?;
    let mut exact = Exact::default();
    let mut effects = Effects::of_the_past();
    effects.wants_decisions = true;
    let mut suspect: Option<Suspect> = None;
    loop {
        let read = journal.read(position, Limit::default())?;
        let Some(last) = read.last() else { break };
        position = last.position.next();
        for group in &read {
            let mut reader = GroupReader::new(group.position, &group.facts)?;
            let (mut at, mut decided) = (None, Vec::new());
            let before = state.digest;
            while let Some((now, fact)) = reader.next_fact()? {
                at.get_or_insert(now);
                if let Some(suspect) = &mut suspect {
                    suspect.hear(&state, &fact, now);
                    // From the first contradiction on, what is decided here has nothing to do with what was.
                    if suspect.contradiction.is_some() {
                        continue;
                    }
                }
                let _ = state.apply(now, fact, None, &mut effects);
                let made = std::mem::take(&mut effects.decisions);
                if suspect.is_none() {
                    exact.decisions += made.len() as u64;
                    exact.facts += 1;
                    decided.extend(made.into_iter().map(|(_, action)| action));
                }
                effects.clear();
            }
            match &mut suspect {
                Some(suspect) => suspect.groups_heard += 1,
                None => exact.groups += 1,
            }
            if suspect.is_none() && reader.digest != state.digest.0 {
                suspect = Some(Suspect {
                    position: group.position,
                    at: at.unwrap_or(Time::ZERO),
                    before,
                    written: reader.digest,
                    decided,
                    told: HashMap::new(),
                    contradiction: None,
                    groups_heard: 0,
                });
            }
        }
        let is_heard = |one: &Suspect| one.groups_heard > GROUPS_HEARD;
        if suspect.as_ref().is_some_and(is_heard) {
            break;
        }
    }
    exact.differs = suspect.map(|suspect| suspect.judge(&state));
    Ok(exact)
}

/// The first group whose decisions differ, and what is heard of it afterwards.
struct Suspect {
    position: Position,
    at: Time,
    before: Digest,
    written: u64,
    decided: Vec<Action>,
    /// Who held which lease when the journal was written.
    told: HashMap<Lease, (TaskId, AgentId)>,
    contradiction: Option<String>,
    groups_heard: u64,
}

impl Suspect {
    fn hear(&mut self, state: &State, fact: &Fact, now: Time) {
        let Some((agent, task, lease)) = spoken_of(fact) else {
            return;
        };
        self.told.entry(lease).or_insert((task, agent));
        if self.contradiction.is_none() {
            self.contradiction = contradiction(state, fact, now);
        }
    }

    fn judge(self, state: &State) -> FirstDifference {
        const SHOWN: usize = 100;
        let agents: Vec<AgentId> = state.names.agents.iter().map(|(id, _)| id).collect();
        let found = first_difference::find(
            self.before,
            self.written,
            &self.decided,
            &self.told,
            &agents,
        );
        let decision = found.map(|one| DifferentDecision {
            number: one.number,
            here: format!("{:?}", one.here),
            then: format!(
                "task {} went to {}",
                one.then.0.0,
                state.agent_name(one.then.1)
            ),
            is_certain: one.is_certain,
        });
        let counted = self.decided.iter().filter(|action| Digest::counts(action));
        FirstDifference {
            position: self.position,
            at: self.at,
            decision,
            decisions: counted
                .take(SHOWN)
                .map(|action| format!("{action:?}"))
                .collect(),
            contradiction: self.contradiction,
        }
    }
}

/// The lease that a fact speaks of, as it was when the journal was written.
fn spoken_of(fact: &Fact) -> Option<(AgentId, TaskId, Lease)> {
    match *fact {
        Fact::Started { agent, task, lease }
        | Fact::Finished {
            agent, task, lease, ..
        }
        | Fact::Yielded {
            agent, task, lease, ..
        } => Some((agent, task, lease)),
        _ => None,
    }
}

/// An answer about a lease that its agent does not hold: who wrote the journal had given it.
fn contradiction(state: &State, fact: &Fact, now: Time) -> Option<String> {
    let (agent, task, lease) = spoken_of(fact)?;
    let leases = state.driver.leases();
    let held = leases.held_by(agent, lease);
    if held.is_some_and(|held| held.task == task) {
        return None;
    }
    let ours = match leases.get(lease) {
        Some(held) => format!(
            "here it is task {} on {}",
            held.task.0,
            state.agent_name(held.agent)
        ),
        None => "here nobody holds it".to_owned(),
    };
    Some(format!(
        "at {} ns lease {} was that of task {} on {}; {ours}",
        now.0,
        lease.0,
        task.0,
        state.agent_name(agent)
    ))
}
