//! What is said at the end of a run.

use std::io::{self, Write};

use loxley_balance::{BalanceReport, Observations};
use serde_json::json;

use super::engine::Summary;

impl Summary {
    fn balance(&self) -> BalanceReport {
        BalanceReport::new(&Observations {
            busy_ns: &self.busy_ns,
            wall_ns: u64::try_from(self.wall.as_nanos()).unwrap_or(u64::MAX),
            durations: &self.durations,
            queue_depths: &self.depths,
        })
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
        for (count, what) in [
            (self.retries, "tried again"),
            (self.stolen, "stolen"),
            (self.copies, "second copies"),
            (self.copies_won, "second copies won"),
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
            "left": self.left,
            "retries": self.retries,
            "stolen": self.stolen,
            "copies": self.copies,
            "copies_won": self.copies_won,
            "interrupted": self.interrupted,
            "seconds": self.wall.as_secs_f64(),
            "slots": self.busy_ns.len(),
            "balance": figures,
        }});
        serde_json::to_writer(&mut *to, &row).map_err(io::Error::from)?;
        writeln!(to)
    }
}
