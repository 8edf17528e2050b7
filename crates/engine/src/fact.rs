//! What the engine is told, and how it is written down.
//!
//! A fact is a thing that happened, with names spelled out: applying the same facts in the same order
//! to an empty state gives the same state and the same decisions, whatever process does it. A *group*
//! is what one commit writes:
//!
//! ```text
//!   version  first time   facts: each a time since the one before and the fact itself   digest
//!   1 byte   8 bytes      postcard                                                      8 bytes
//! ```
//!
//! The digest is that of all decisions up to the end of the group. Whoever replays a journal must come
//! to the same one, or the program that replays decides otherwise than the one that wrote.

use bytes::Bytes;
use loxley_api::Entries;
use loxley_cluster::moves::{Letter, Wish};
use loxley_cluster::shard::ShardId;
use loxley_driver::self_tuning::Step;
use loxley_journal::{Group, Position, Rows};
use loxley_model::{AgentId, JobId, Lease, Outcome, Span, TaskId, Time};
use loxley_policy::{AddedRules, Config, ForecastRules, Selection, SelfTuning, Vitals};
use serde::{Deserialize, Serialize};

use crate::moving::GuestFinish;
use crate::submission::Submission;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// An attempt ended.
    Finished {
        /// Which agent.
        agent: AgentId,
        /// Which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// How.
        outcome: Outcome,
        /// How long it ran, by the clock of the agent.
        ran: Span,
    },
    /// An agent began to run a task.
    Started {
        /// Which agent.
        agent: AgentId,
        /// Which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
    },
    /// An agent gave a task back, or says that it cannot.
    Yielded {
        /// Which agent.
        agent: AgentId,
        /// Which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// Whether it did.
        yielded: bool,
    },
    /// A timer of the policy was due.
    Tick,
    /// A heartbeat.
    AgentHeard {
        /// Which agent.
        agent: AgentId,
        /// What it says of itself.
        vitals: Vitals,
    },
    /// A process came that was not here before.
    AgentJoined(Box<AgentRecord>),
    /// A process that was away is back, and holds these leases and no others.
    AgentResumed {
        /// Which agent.
        agent: AgentId,
        /// Its leases.
        leases: Vec<Lease>,
    },
    /// The connection to an agent ended.
    AgentSilent(AgentId),
    /// An agent is to finish what it has and get nothing new.
    AgentDrained(AgentId),
    /// An agent ended in good order, or was told to.
    AgentLeft(AgentId),
    /// A job was asked for.
    JobSubmitted {
        /// The job.
        request: Submission,
        /// For whom it counts, when it does not say so itself.
        user: String,
    },
    /// Entries were added to an array of an open job.
    JobExtended {
        /// The job.
        job: JobId,
        /// Which of the tasks of its request, from 0.
        task: u32,
        /// The entries.
        entries: Entries,
        /// What each is expected to cost, if that is known.
        cost: Option<Span>,
    },
    /// Nothing more is added to a job.
    JobClosed(JobId),
    /// Somebody does not want this any more.
    Cancelled(Selection),
    /// Failed tasks were given another chance.
    Resubmitted(Vec<TaskId>),
    /// A running task saved its state.
    Checkpoint {
        /// Which agent.
        agent: AgentId,
        /// Which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// Its state.
        state: Bytes,
    },
    /// The configuration changed.
    ConfigChanged(Box<Config>),
    /// Somebody asked for a rebalancing pass.
    RebalanceRequested,
    /// The server started again: every agent is away until it says otherwise.
    Restarted,
    /// The name of an agent that is not here is anybody's again.
    AgentForgotten(AgentId),
    /// Whoever decides did not run for so long, and heard nobody.
    StoodStill(Span),
    /// A start was given this configuration. It counts, unless the last start was given the same: then what was
    /// changed since stays.
    ConfigGiven(Box<Config>),
    /// What self-tuning may do. It stands before the change of the configuration that it is part of: the configurations
    /// in `ConfigChanged` and `ConfigGiven` are written without it, as they always were.
    SelfTuningSet(Box<SelfTuning>),
    /// Self-tuning changed a setting, or took the change back.
    SettingTuned(Box<Step>),
    /// Jobs, tasks and agents are numbered from the number after this: the first fact of a journal that is one of several.
    NumberedFrom(u64),
    /// How work that is due is forecast. It stands before the change of the configuration that it is part of, as
    /// `SelfTuningSet` does.
    ForecastSet(Box<ForecastRules>),
    /// Rules that came after the format of configurations was fixed. It stands before the change of the configuration
    /// that it is part of, as `SelfTuningSet` does.
    AddedRulesSet(Box<AddedRules>),
    /// A skill that an agent earned was taken back.
    SkillRevoked {
        /// Whose.
        agent: AgentId,
        /// Which one.
        skill: String,
    },
    /// A user's share of the slots is proportional to this weight from now on.
    UserWeightSet {
        /// Who.
        user: String,
        /// How much.
        weight: u32,
    },
    /// Another shard was asked for tasks.
    TasksAsked {
        /// Which one.
        donor: ShardId,
        /// For what.
        wish: Wish,
    },
    /// Tasks of this shard went to another one that asked for them, or none did. It stands right behind the letter that asked.
    TasksGiven {
        /// To which one.
        to: ShardId,
        /// Which tasks.
        tasks: Vec<TaskId>,
    },
    /// A letter of another shard was read: the one that comes next.
    LetterReceived(Box<Letter>),
    /// Another shard has read our letters so far.
    LettersRead {
        /// Which one.
        by: ShardId,
        /// Up to this letter.
        number: u64,
    },
    /// Letters that were due were written.
    LettersSent,
    /// A task of another shard goes home: nobody here can run it.
    GuestUnwanted(TaskId),
    /// An attempt of a task of another shard ended. What its agent said goes to its home.
    GuestFinished {
        /// Which agent.
        agent: AgentId,
        /// Which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
        /// How.
        outcome: Outcome,
        /// How long it ran, by the clock of the agent.
        ran: Span,
        /// What the agent said beyond that.
        finish: Box<GuestFinish>,
    },
    /// It was time to look at what this shard has and wants of groups whose limits hold in all shards together.
    BudgetsReviewed,
}

/// An agent as it introduced itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// What it is called.
    pub name: String,
    /// Whose name that is: what the token is called with which it came. Nobody's when empty.
    pub owner: String,
    /// Tells one process of this name from the next.
    pub process: u64,
    /// What it can do.
    pub skills: Vec<String>,
    /// How many tasks it runs at once.
    pub slots: u32,
    /// Its speed as it claims.
    pub speed: f64,
    /// Processors, in thousandths.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Everything else that it has, by name.
    pub resources: Vec<(String, u64)>,
    /// Where it is.
    pub zone: Option<String>,
    /// The data that it has.
    pub holds: Vec<String>,
}

/// A journal whose group cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// It was written by a newer Loxley.
    #[error("group {position} has version {found}; this program knows version {VERSION}")]
    Version {
        /// Where.
        position: Position,
        /// What it says.
        found: u8,
    },
    /// It holds bytes that are no facts.
    #[error("group {0} does not hold facts")]
    Malformed(Position),
}

const VERSION: u8 = 4;
const HEADER: usize = 9;
const TRAILER: usize = 8;

/// A group while it grows.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    bytes: Vec<u8>,
    last: Time,
    count: u32,
}

impl GroupWriter {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            last: Time::ZERO,
            count: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a fact. Times must not run backwards.
    pub(crate) fn push(&mut self, now: Time, fact: &Fact) {
        if self.count == 0 {
            self.bytes.push(VERSION);
            self.bytes.extend_from_slice(&now.0.to_le_bytes());
            self.last = now;
        }
        let entry = (now.since(self.last).0, fact);
        self.bytes = postcard::to_extend(&entry, std::mem::take(&mut self.bytes))
            .expect("memory takes every fact");
        self.last = now;
        self.count += 1;
    }

    /// The whole group, ready to be written; the writer is empty again.
    pub(crate) fn finish(&mut self, digest: u64, rows: Rows) -> Group {
        let mut facts = std::mem::take(&mut self.bytes);
        facts.extend_from_slice(&digest.to_le_bytes());
        Group {
            facts,
            fact_count: std::mem::take(&mut self.count),
            rows,
        }
    }
}

/// A group as it is read back.
#[derive(Debug)]
pub(crate) struct GroupReader<'a> {
    position: Position,
    facts: &'a [u8],
    now: Time,
    pub(crate) digest: u64,
}

impl<'a> GroupReader<'a> {
    pub(crate) fn new(position: Position, bytes: &'a [u8]) -> Result<Self, GroupError> {
        let malformed = || GroupError::Malformed(position);
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or_else(malformed)?;
        if header[0] != VERSION {
            let found = header[0];
            return Err(GroupError::Version { position, found });
        }
        let facts = rest.len().checked_sub(TRAILER).ok_or_else(malformed)?;
        let (facts, trailer) = rest.split_at(facts);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Ok(Self {
            position,
            facts,
            now: Time(number(&header[1..])),
            digest: number(trailer),
        })
    }

    /// The next fact, and when it was.
    pub(crate) fn next_fact(&mut self) -> Result<Option<(Time, Fact)>, GroupError> {
        if self.facts.is_empty() {
            return Ok(None);
        }
        let (entry, rest) = postcard::take_from_bytes::<(u64, Fact)>(self.facts)
            .map_err(|_| GroupError::Malformed(self.position))?;
        self.facts = rest;
        self.now = self.now + Span(entry.0);
        Ok(Some((self.now, entry.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Vec<(Time, Fact)> {
        let (agent, task, lease) = (AgentId(1), TaskId(7), Lease(9));
        vec![
            (Time(1_000), Fact::Tick),
            (Time(1_000), Fact::Started { agent, task, lease }),
            (
                Time(5_000),
                Fact::Finished {
                    agent,
                    task,
                    lease,
                    outcome: Outcome::Succeeded,
                    ran: Span(3_000),
                },
            ),
            (Time(5_001), Fact::ConfigChanged(Box::default())),
        ]
    }

    #[test]
    fn a_group_is_read_back_as_it_was_written() {
        let mut writer = GroupWriter::new();
        for (now, fact) in facts() {
            writer.push(now, &fact);
        }
        let group = writer.finish(42, Rows::default());
        assert_eq!(group.fact_count, 4);
        let mut reader = GroupReader::new(Position(0), &group.facts).unwrap();
        assert_eq!(reader.digest, 42);
        let mut read = Vec::new();
        while let Some(entry) = reader.next_fact().unwrap() {
            read.push(entry);
        }
        assert_eq!(read, facts());
    }

    #[test]
    fn no_cut_or_change_of_a_group_is_a_panic() {
        let mut writer = GroupWriter::new();
        for (now, fact) in facts() {
            writer.push(now, &fact);
        }
        let bytes = writer.finish(42, Rows::default()).facts;
        let read = |bytes: &[u8]| {
            let mut reader = GroupReader::new(Position(3), bytes)?;
            while reader.next_fact()?.is_some() {}
            Ok::<(), GroupError>(())
        };
        for length in 0..HEADER + TRAILER {
            assert!(read(&bytes[..length]).is_err());
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let _ = read(&changed);
            }
        }
    }
}
