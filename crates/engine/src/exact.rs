//! The very inputs of a journal again, and the first decision that differs.

use loxley_journal::{Journal, Limit, Position};
use loxley_model::{AgentId, Lease, TaskId, Time};

use crate::effects::Effects;
use crate::fact::{Fact, GroupReader};
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
/// known in which group it is, and what this version decides there.
#[derive(Debug)]
pub struct FirstDifference {
    /// The group.
    pub position: Position,
    /// Its first fact was at this time.
    pub at: Time,
    /// What this version decides in it (the first hundred).
    pub decisions: Vec<String>,
    /// The first fact from there on that speaks of a lease which this version has not given: who holds it instead.
    pub contradiction: Option<String>,
}

/// Drives the inputs of a journal again, from as far back as it goes, and compares the decisions.
///
/// # Errors
/// When it cannot be read. A decision that differs is no error.
pub fn replay_exactly(journal: &mut dyn Journal) -> Result<Exact, RecoverError> {
    const SHOWN: usize = 100;
    let Begin {
        mut state,
        mut position,
    } = beginning(journal)?;
    let mut exact = Exact::default();
    let mut effects = Effects::of_the_past();
    effects.wants_decisions = true;
    loop {
        let read = journal.read(position, Limit::default())?;
        let Some(last) = read.last() else {
            return Ok(exact);
        };
        position = last.position.next();
        for group in &read {
            let mut reader = GroupReader::new(group.position, &group.facts)?;
            let (mut at, mut decided) = (None, Vec::new());
            while let Some((now, fact)) = reader.next_fact()? {
                at.get_or_insert(now);
                if let Some(differs) = &mut exact.differs {
                    let said = contradiction(&state, &fact, now);
                    if said.is_some() && differs.contradiction.is_none() {
                        differs.contradiction = said;
                        return Ok(exact);
                    }
                }
                let _ = state.apply(now, fact, None, &mut effects);
                let made = std::mem::take(&mut effects.decisions);
                exact.decisions += made.len() as u64;
                let room = SHOWN.saturating_sub(decided.len());
                let made = made.iter().take(room);
                decided.extend(made.map(|(_, action)| format!("{action:?}")));
                effects.clear();
                exact.facts += 1;
            }
            exact.groups += 1;
            if exact.differs.is_none() && reader.digest != state.digest.0 {
                exact.differs = Some(FirstDifference {
                    position: group.position,
                    at: at.unwrap_or(Time::ZERO),
                    decisions: decided,
                    contradiction: None,
                });
            }
        }
    }
}

/// An answer about a lease that its agent does not hold: who wrote the journal had given it.
fn contradiction(state: &State, fact: &Fact, now: Time) -> Option<String> {
    let (agent, task, lease): (AgentId, TaskId, Lease) = match *fact {
        Fact::Started { agent, task, lease }
        | Fact::Finished {
            agent, task, lease, ..
        }
        | Fact::Yielded {
            agent, task, lease, ..
        } => (agent, task, lease),
        _ => return None,
    };
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
