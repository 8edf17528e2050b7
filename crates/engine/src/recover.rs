//! From a journal back to the state it tells of.

use std::io;

use loxley_api::EventKind;
use loxley_journal::{Journal, Limit, Position, ReadError, Snapshot, StoredGroup};
use loxley_model::{JobId, Time};
use loxley_policy::{Action, Counts};

use crate::effects::Effects;
use crate::fact::{Fact, GroupError, GroupReader};
use crate::run_figures::Counted;
use crate::snapshot::SnapshotError;
use crate::state::State;

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
    /// The snapshot that everything begins with cannot be used.
    #[error("the newest snapshot in the journal cannot be used, and what led to it is gone")]
    Snapshot(#[from] SnapshotError),
    /// Its numbers are those of another shard.
    #[error(
        "the journal numbers jobs from {found} on, and should from {base}: it is that of another shard"
    )]
    Numbers {
        /// The number before its first.
        found: u64,
        /// The one before the first of the shard.
        base: u64,
    },
    /// Tasks of it may be with other shards, which are not here.
    #[error(
        "the journal is that of one of several shards, and cannot be served by itself: `loxley journal copy` brings all of them \
         into another database"
    )]
    OneOfSeveral,
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
    pub(crate) replayed: Replayed,
}

/// Replays all of a journal that is there through the policy and compares every decision.
///
/// # Errors
/// When it cannot be read, or a decision differs.
pub fn replay(journal: &mut dyn Journal) -> Result<Replayed, RecoverError> {
    let begin = beginning(journal)?;
    Ok(replay_from(journal, begin, None)?.replayed)
}

/// As [`replay`], from the newest snapshot on: what a start does.
///
/// # Errors
/// When it cannot be read, or a decision differs.
pub fn replay_from_snapshot(journal: &mut dyn Journal) -> Result<Replayed, RecoverError> {
    Ok(bring_back(journal)?.replayed)
}

/// As [`replay`], telling everything that happened, in order, with its time.
///
/// # Errors
/// When it cannot be read, or a decision differs.
pub fn retell(
    journal: &mut dyn Journal,
    listener: &mut Listener<'_>,
) -> Result<Retold, RecoverError> {
    let begin = beginning(journal)?;
    Ok(Retold(replay_from(journal, begin, Some(listener))?.state))
}

/// What a journal led to, with what was counted on the way.
#[derive(Debug)]
pub struct Retold(State);

impl Retold {
    /// What was counted of a job, or of everything.
    #[must_use]
    pub fn counted(&self, job: Option<JobId>) -> Counted {
        self.0.counted(job)
    }
}

/// One fact of a journal with everything that followed from it.
pub(crate) struct Step<'a> {
    pub(crate) now: Time,
    pub(crate) fact: &'a Fact,
    /// Whether the fact made sense.
    pub(crate) taken: bool,
    /// The state after it.
    pub(crate) state: &'a mut State,
    /// What the core decided because of it.
    pub(crate) decisions: &'a [(Time, Action)],
}

/// Walks through a journal fact by fact, from as far back as it goes. `begin` sees the state before the first of
/// them. With `compare`, a decision that differs from the one that was made is an error.
pub(crate) fn walk(
    journal: &mut dyn Journal,
    compare: bool,
    begin: &mut dyn FnMut(&mut State),
    each: &mut dyn FnMut(Step<'_>),
) -> Result<State, RecoverError> {
    let Begin {
        mut state,
        mut position,
    } = beginning(journal)?;
    begin(&mut state);
    let mut effects = Effects::of_the_past();
    effects.wants_decisions = true;
    loop {
        let read = journal.read(position, Limit::default())?;
        let Some(last) = read.last() else {
            return Ok(state);
        };
        position = last.position.next();
        for group in &read {
            let mut reader = GroupReader::new(group.position, &group.facts)?;
            while let Some((now, fact)) = reader.next_fact()? {
                let taken = state.apply(now, fact.clone(), None, &mut effects).is_ok();
                let decisions = std::mem::take(&mut effects.decisions);
                effects.clear();
                each(Step {
                    now,
                    fact: &fact,
                    taken,
                    state: &mut state,
                    decisions: &decisions,
                });
            }
            if compare {
                compare_digests(&state, group.position, reader.digest)?;
            }
        }
    }
}

/// Hears what happened, and when.
pub type Listener<'a> = dyn FnMut(Time, &EventKind) + 'a;

/// As far back as the journal goes.
pub(crate) fn beginning(journal: &mut dyn Journal) -> Result<Begin, RecoverError> {
    let begin = match journal.read(Position::START, Limit::ONE) {
        Ok(_) => Begin::nothing(),
        Err(ReadError::Dropped { .. }) => oldest_snapshot(journal)?,
        Err(error) => return Err(error.into()),
    };
    Ok(begin)
}

/// The state that a journal leads to, from its newest snapshot on.
///
/// A snapshot that cannot be used is told of and passed over, as long as the groups are there that lead to
/// the same state from an older one, or from nothing.
pub(crate) fn bring_back(journal: &mut dyn Journal) -> Result<Recovered, RecoverError> {
    let mut unusable = None;
    for position in journal.snapshots()? {
        match read_snapshot(journal, position) {
            Ok(begin) => return replay_from(journal, begin, None),
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(
                    error = cause,
                    position = position.0,
                    "a snapshot cannot be used"
                );
                unusable.get_or_insert(error);
            }
        }
    }
    match (replay_from(journal, Begin::nothing(), None), unusable) {
        // The groups before it are gone: there is nothing else to begin with.
        (Err(RecoverError::Read(ReadError::Dropped { .. })), Some(error)) => Err(error),
        (replayed, _) => replayed,
    }
}

/// Where a replay begins.
pub(crate) struct Begin {
    pub(crate) state: State,
    pub(crate) position: Position,
}

impl Begin {
    fn nothing() -> Self {
        Self {
            state: State::new(Time::ZERO),
            position: Position::START,
        }
    }
}

fn oldest_snapshot(journal: &mut dyn Journal) -> Result<Begin, RecoverError> {
    let kept = journal.snapshots()?;
    let oldest = kept.last().copied().unwrap_or(Position::START);
    read_snapshot(journal, oldest)
}

fn read_snapshot(journal: &mut dyn Journal, at: Position) -> Result<Begin, RecoverError> {
    let Snapshot { position, state } = journal.snapshot(at)?;
    let state = State::unpack(&state)?;
    Ok(Begin { state, position })
}

fn replay_from(
    journal: &mut dyn Journal,
    begin: Begin,
    mut listener: Option<&mut Listener<'_>>,
) -> Result<Recovered, RecoverError> {
    let Begin {
        mut state,
        mut position,
    } = begin;
    let mut effects = match listener {
        Some(_) => Effects::retold(),
        None => Effects::of_the_past(),
    };
    let (mut groups, mut facts) = (0, 0);
    loop {
        let read = journal.read(position, Limit::default())?;
        let Some(last) = read.last() else { break };
        position = last.position.next();
        for group in &read {
            facts += apply_group(&mut state, group, &mut effects, listener.as_deref_mut())?;
            groups += 1;
        }
    }
    let replayed = Replayed {
        groups,
        facts,
        digest: state.digest.0,
        counts: state.driver.scheduler().counts(),
    };
    Ok(Recovered { state, replayed })
}

/// Applies the facts of a group, and returns how many there were.
fn apply_group(
    state: &mut State,
    group: &StoredGroup,
    effects: &mut Effects,
    mut listener: Option<&mut Listener<'_>>,
) -> Result<u64, RecoverError> {
    let mut facts = 0;
    let mut reader = GroupReader::new(group.position, &group.facts)?;
    while let Some((now, fact)) = reader.next_fact()? {
        // What was refused then is refused now.
        let _ = state.apply(now, fact, None, effects);
        if let Some(listener) = &mut listener {
            effects.events.iter().for_each(|event| listener(now, event));
        }
        effects.clear();
        facts += 1;
    }
    compare_digests(state, group.position, reader.digest)?;
    Ok(facts)
}

/// Whether everything was decided as it was when the journal was written.
fn compare_digests(state: &State, position: Position, expected: u64) -> Result<(), RecoverError> {
    let found = state.digest.0;
    if found == expected {
        return Ok(());
    }
    Err(RecoverError::Diverged {
        position,
        expected,
        found,
    })
}
