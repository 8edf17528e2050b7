//! What is said at the end of a run.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};
use loxley_model::WorkKey;
use serde_json::json;

use super::halt::Tally;

/// How a run went.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) tally: Tally,
    /// Tasks that were neither finished nor failed when the run was stopped.
    pub(super) left: u64,
    pub(super) retries: u64,
    pub(super) stolen: u64,
    pub(super) copies: u64,
    pub(super) copies_won: u64,
    pub(super) deadline_misses: u64,
    pub(super) interrupted: bool,
    /// Whether it was stopped early because enough had succeeded.
    pub(super) is_enough: bool,
    /// The exit code of the failure that stopped it early.
    pub(super) halted_by: Option<u8>,
    pub(super) agents: usize,
    pub(super) busy_ns: Vec<u64>,
    pub(super) wall: Duration,
    pub(super) durations: Sketch,
    /// The same for each kind of work: what is of another kind may well take longer.
    pub(super) of_kind: BTreeMap<Option<WorkKey>, Sketch>,
    pub(super) depths: QueueDepths,
}

impl Summary {
    /// Of a run on so many slots that has not begun.
    pub(super) fn new(slots: usize, agents: usize) -> Self {
        Self {
            tally: Tally::default(),
            left: 0,
            retries: 0,
            stolen: 0,
            copies: 0,
            copies_won: 0,
            deadline_misses: 0,
            interrupted: false,
            is_enough: false,
            halted_by: None,
            agents,
            busy_ns: vec![0; slots],
            wall: Duration::ZERO,
            durations: Sketch::default(),
            of_kind: BTreeMap::new(),
            depths: QueueDepths::default(),
        }
    }

    /// The four balance figures.
    pub(super) fn balance(&self) -> BalanceReport {
        BalanceReport::new(&Observations {
            busy_ns: &self.busy_ns,
            wall_ns: u64::try_from(self.wall.as_nanos()).unwrap_or(u64::MAX),
            durations: &self.durations,
            queue_depths: &self.depths,
        })
        .with_kinds(self.of_kind.values())
    }

    /// The report for a person.
    pub(super) fn show(&self, to: &mut dyn Write) -> io::Result<()> {
        let tally = self.tally;
        write!(
            to,
            "{} succeeded, {} failed in {:.2} s on {} slots",
            tally.succeeded,
            tally.failed,
            self.wall.as_secs_f64(),
            self.busy_ns.len()
        )?;
        if self.agents < self.busy_ns.len() {
            write!(to, " of {} agents", self.agents)?;
        }
        for (count, what) in [
            (tally.skipped, "skipped"),
            (self.retries, "tried again"),
            (self.stolen, "stolen"),
            (self.copies, "copied"),
            (self.copies_won, "won by the copy"),
            (self.deadline_misses, "after their deadline"),
            (self.left, "not finished"),
        ] {
            if count > 0 {
                write!(to, ", {count} {what}")?;
            }
        }
        writeln!(to, "\n{}", self.balance())
    }

    /// The same as one JSON object.
    pub(super) fn show_json(&self, to: &mut dyn Write) -> io::Result<()> {
        let balance = self.balance();
        let figures: serde_json::Map<_, _> = balance
            .figures()
            .into_iter()
            .map(|figure| {
                let name = figure.name.replace([' ', '-'], "_");
                (name, json!({"value": figure.value, "met": figure.met()}))
            })
            .collect();
        let row = json!({"summary": {
            "succeeded": self.tally.succeeded,
            "failed": self.tally.failed,
            "skipped": self.tally.skipped,
            "left": self.left,
            "retries": self.retries,
            "stolen": self.stolen,
            "copies": self.copies,
            "copies_won": self.copies_won,
            "deadline_misses": self.deadline_misses,
            "interrupted": self.interrupted,
            "seconds": self.wall.as_secs_f64(),
            "slots": self.busy_ns.len(),
            "agents": self.agents,
            "balance": figures,
        }});
        serde_json::to_writer(&mut *to, &row).map_err(io::Error::from)?;
        writeln!(to)
    }
}

#[cfg(test)]
mod tests {
    use loxley_balance::Verdict;

    use super::*;

    #[test]
    fn a_long_task_of_another_kind_is_no_straggler() {
        let mut summary = Summary::new(2, 2);
        summary.wall = Duration::from_secs(5);
        for (kind, tasks, nanos) in [(1, 12, 400_000_000), (2, 1, 4_000_000_000)] {
            for _ in 0..tasks {
                summary.durations.record(nanos);
                let of_kind = summary.of_kind.entry(Some(WorkKey(kind))).or_default();
                of_kind.record(nanos);
            }
        }
        let ratio = summary.balance().straggler_ratio;
        assert_eq!((ratio.value, ratio.verdict()), (Some(1.0), Verdict::Met));
    }
}
