//! From a journal back to the state it tells of.

use std::io;

use loxley_journal::{Journal, Limit, Position, ReadError};
use loxley_model::Time;
use loxley_policy::Counts;

use super::effects::Effects;
use super::fact::{GroupError, GroupReader};
use super::state::State;

/// Why a journal does not lead to a state.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// It cannot be read.
    #[error("the journal cannot be read")]
    Read(#[from] ReadError),
    /// It holds something that is no group of facts.
    #[error("the journal cannot be understood")]
    Group(#[from] GroupError),
    /// This program decides otherwise than the one that wrote the journal.
    #[error(
        "the decisions in group {position} of the journal cannot be reproduced: \
         expected {expected:016x}, came to {found:016x}; \
         it was written by another version of the program"
    )]
    Diverged {
        /// The first group where it shows.
        position: Position,
        /// What the journal says.
        expected: u64,
        /// What came out.
        found: u64,
    },
    /// No thread could be made.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// How many groups were read.
    pub groups: u64,
    /// How many facts they held.
    pub facts: u64,
    /// The digest of all decisions.
    pub digest: u64,
    /// Where all tasks are.
    pub counts: Counts,
}

pub(crate) struct Recovered {
    pub(crate) state: State,
    replayed: Replayed,
}

/// Replays a whole journal through the policy and compares every decision.
///
/// # Errors
/// When it cannot be read, or a decision differs.
pub fn replay(journal: &mut dyn Journal) -> Result<Replayed, RecoverError> {
    Ok(bring_back(journal)?.replayed)
}

pub(crate) fn bring_back(journal: &mut dyn Journal) -> Result<Recovered, RecoverError> {
    let mut state = State::new(Time::ZERO);
    let mut effects = Effects::of_the_past();
    let mut position = Position::START;
    let (mut groups, mut facts) = (0, 0);
    loop {
        let read = journal.read(position, Limit::default())?;
        let Some(last) = read.last() else { break };
        position = last.position.next();
        for group in &read {
            let mut reader = GroupReader::new(group.position, &group.facts)?;
            while let Some((now, fact)) = reader.next_fact()? {
                // What was refused then is refused now.
                let _ = state.apply(now, fact, None, &mut effects);
                effects.clear();
                facts += 1;
            }
            if reader.digest != state.digest.0 {
                return Err(RecoverError::Diverged {
                    position: group.position,
                    expected: reader.digest,
                    found: state.digest.0,
                });
            }
            groups += 1;
        }
    }
    let replayed = Replayed {
        groups,
        facts,
        digest: state.digest.0,
        counts: state.scheduler.counts(),
    };
    Ok(Recovered { state, replayed })
}
