//! Queue lengths at every submission, worked out when somebody looks.
//!
//! A sample of every agent at every submission would make a submission look at every agent. So a sample
//! notes only whose queue changed since the one before, and how long each of those is now. Reading them
//! goes through the changes from the oldest on.
//!
//! ```text
//! before:  {ann: 0, bob: 2}        the lengths just before the oldest sample
//! samples: [ann = 1] [bob = 1] …   each with its moment and the sum of all lengths
//! stale:   {ann}                   changed since the last sample
//! ```
//!
//! What must stay true: every agent whose queue changed since the last sample is in `stale`.

use std::collections::{BTreeMap, HashSet, VecDeque};

use loxley_model::AgentId;

/// So many samples are kept; the oldest make room.
const KEPT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct QueueSamples {
    before: BTreeMap<AgentId, u64>,
    samples: VecDeque<Sample>,
    stale: HashSet<AgentId>,
    taken: u64,
}

#[derive(Debug)]
struct Sample {
    /// Seconds since the epoch.
    at: f64,
    total: u64,
    changes: Vec<(AgentId, Option<u64>)>,
}

/// One sample, worked out.
#[derive(Debug)]
pub(crate) struct QueueLengths {
    pub(crate) at: f64,
    pub(crate) total: u64,
    pub(crate) lengths: Vec<(AgentId, u64)>,
}

impl QueueSamples {
    /// The queue of this agent is not what it was, or the agent came or went.
    pub(crate) fn changed(&mut self, agent: AgentId) {
        self.stale.insert(agent);
    }

    /// Takes a sample. `length` says how long a queue is now; none for an agent that is not there.
    pub(crate) fn take(&mut self, at: f64, total: u64, length: impl Fn(AgentId) -> Option<u64>) {
        let changes = self.stale.drain().map(|agent| (agent, length(agent)));
        let changes = changes.collect();
        self.samples.push_back(Sample { at, total, changes });
        self.taken += 1;
        if self.samples.len() > KEPT_MAX
            && let Some(oldest) = self.samples.pop_front()
        {
            apply(&mut self.before, &oldest.changes);
        }
    }

    /// How many were taken, those that made room included.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// All that are kept, the oldest first.
    pub(crate) fn work_out(&self) -> Vec<QueueLengths> {
        let mut lengths = self.before.clone();
        let samples = self.samples.iter().map(|sample| {
            apply(&mut lengths, &sample.changes);
            QueueLengths {
                at: sample.at,
                total: sample.total,
                lengths: lengths.iter().map(|(agent, len)| (*agent, *len)).collect(),
            }
        });
        samples.collect()
    }
}

fn apply(lengths: &mut BTreeMap<AgentId, u64>, changes: &[(AgentId, Option<u64>)]) {
    for (agent, length) in changes {
        match length {
            Some(length) => lengths.insert(*agent, *length),
            None => lengths.remove(agent),
        };
    }
}
