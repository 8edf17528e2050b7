//! What changed hands before it ran, and why: found by replaying the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use loxley_api::EventKind;
use loxley_engine::run_figures::Counted;
use loxley_engine::{Retold, retell};
use loxley_journal::{History, View};
use loxley_model::{AgentId, JobId, Time};
use serde_json::{Value, json};

/// Everything that moved, as far back as the facts are kept, and what was counted on the way.
pub(super) struct Moves {
    all: Vec<(Time, u64, AgentId, AgentId, String)>,
    retold: Retold,
}

/// A task that went from one agent to another, by their lanes.
pub(super) struct Move {
    pub(super) at: Time,
    pub(super) task: u64,
    pub(super) from: u32,
    pub(super) to: u32,
    reason: String,
}

impl Move {
    pub(super) fn is_stolen(&self) -> bool {
        self.reason == "stolen"
    }
}

impl Moves {
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let mut moves = Vec::new();
        let mut view = View(History::open(directory)?);
        let told = retell(&mut view, &mut |now, event| {
            if let EventKind::TaskMoved {
                task,
                from,
                to,
                reason,
            } = event
            {
                moves.push((now, task.0, *from, *to, reason.clone()));
            }
        });
        let retold = told.context("cannot tell what moved")?;
        Ok(Self { all: moves, retold })
    }

    /// What was counted of a job, or of everything.
    pub(super) fn counted(&self, job: Option<JobId>) -> Counted {
        self.retold.counted(job)
    }

    /// Those of some tasks; whoever is new gets a lane.
    pub(super) fn of(
        self,
        tasks: impl Iterator<Item = u64>,
        lanes: &mut BTreeMap<AgentId, u32>,
    ) -> Vec<Move> {
        let tasks: BTreeSet<u64> = tasks.collect();
        let mut lane = |agent| {
            let next = lanes.len() as u32;
            *lanes.entry(agent).or_insert(next)
        };
        let wanted = self
            .all
            .into_iter()
            .filter(|moved| tasks.contains(&moved.1));
        let moves = wanted.map(|(at, task, from, to, reason)| Move {
            at,
            task,
            from: lane(from),
            to: lane(to),
            reason,
        });
        moves.collect()
    }
}

/// How many moved, for which reason, between whom; the most first.
pub(super) fn print(
    moves: &[Move],
    agents: &[(String, u32)],
    out: &mut dyn Write,
) -> io::Result<()> {
    if moves.is_empty() {
        return writeln!(out, "nothing moved from one agent to another");
    }
    let mut ways: BTreeMap<(&str, u32, u32), u64> = BTreeMap::new();
    for moved in moves {
        *ways
            .entry((&moved.reason, moved.from, moved.to))
            .or_default() += 1;
    }
    let mut ways: Vec<_> = ways.into_iter().collect();
    ways.sort_by_key(|(way, count)| (std::cmp::Reverse(*count), *way));
    writeln!(out, "what moved, and why: {} tasks", moves.len())?;
    for ((reason, from, to), count) in ways.iter().take(WAYS_MAX) {
        let name = |lane: &u32| printable(&agents[*lane as usize].0);
        writeln!(
            out,
            "{count:>7} from {} to {}: {}",
            name(from),
            name(to),
            why(reason)
        )?;
    }
    match ways.len().checked_sub(WAYS_MAX) {
        Some(more @ 1..) => writeln!(out, "        and {more} other ways"),
        _ => Ok(()),
    }
}

/// So many ways are listed.
const WAYS_MAX: usize = 12;

/// What a terminal shows as it is.
fn printable(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).collect()
}

fn why(reason: &str) -> &str {
    match reason {
        "stolen" => "stolen by one who had nothing to do",
        "rebalanced" => "moved when the fleet was out of balance",
        "behind_straggler" => "moved from behind a straggler",
        other => other,
    }
}

pub(super) fn json(moves: &[Move], agents: &[(String, u32)], begin: Time) -> Vec<Value> {
    let each = moves.iter().map(|moved| {
        json!({
            "task": moved.task,
            "at_seconds": moved.at.since(begin).as_secs_f64(),
            "from": agents[moved.from as usize].0,
            "to": agents[moved.to as usize].0,
            "reason": moved.reason,
        })
    });
    each.collect()
}
