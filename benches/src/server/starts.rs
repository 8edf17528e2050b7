//! How long a server takes to start again: after a long history, and with many tasks that are not over.

use std::time::{Duration, Instant};

use anyhow::Result;
use loxley_api::JobRequest;
use loxley_engine::replay;
use loxley_journal::{Options as JournalOptions, SqliteJournal};
use tempfile::TempDir;

use super::{Fleet, array, command, function};
use crate::Options;
use crate::measure::{Role, Samples};
use crate::report::{Goal, Report};

/// The design's goal for a start, in seconds.
const START: Goal = Goal::AtMost(3.0);

/// A start after so many finished tasks, beside a replay of everything they left in the journal.
pub(super) fn after_finished_tasks(options: &Options, report: &mut Report) -> Result<()> {
    let count = if options.quick { 100_000 } else { 1_000_000 };
    let fleet = Fleet::start(true, 2, 100, 1)?;
    fleet.time(&array(function("no-op"), count));
    let directory = fleet.stop();
    let whole = time_of(|| {
        let opened = SqliteJournal::open(directory.path(), &JournalOptions::default())?;
        let mut journal = opened.journal;
        anyhow::ensure!(replay(&mut journal)?.counts.finished == count as u64);
        Ok(())
    })?;
    let (start, _) = start_again(directory)?;
    let samples = [
        Samples::single("loxley", Role::Subject, start),
        Samples::single("replay of everything", Role::Peer, whole),
    ];
    report.case("start, finished tasks", "s", Some(START), &samples);
    Ok(())
}

/// A start with many live tasks, and how long questions wait while a snapshot of them is taken.
pub(super) fn with_live_tasks(options: &Options, report: &mut Report) -> Result<()> {
    let scale = if options.quick { 1 } else { 10 };
    let fleet = Fleet::start(true, 0, 0, 0)?;
    // All of a small job is with the scheduler at once.
    submit_all(&fleet, &array(command(&["true"]), 1_000), 20 * scale)?;
    submit_all(&fleet, &array(command(&["true"]), 1), 10_000 * scale)?;
    let live = 30_000 * scale as u64;
    let pause = longest_wait(&fleet)?;
    let (start, fleet) = start_again(fleet.stop())?;
    let found = fleet.runtime.block_on(fleet.handle().fleet())?.tasks;
    anyhow::ensure!(found.total - found.succeeded == live, "{found:?}");
    let samples = [Samples::single("loxley", Role::Subject, start)];
    report.case("start, live tasks", "s", Some(START), &samples);
    let samples = [Samples::single("loxley", Role::Subject, pause * 1e3)];
    let goal = Some(Goal::AtMost(20.0));
    report.case("snapshot, live tasks", "ms", goal, &samples);
    Ok(())
}

fn time_of(run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    run()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds until a server on this directory answers.
fn start_again(directory: TempDir) -> Result<(f64, Fleet)> {
    let begun = Instant::now();
    let fleet = Fleet::start_in(directory, true)?;
    fleet.runtime.block_on(fleet.handle().fleet())?;
    Ok((begun.elapsed().as_secs_f64(), fleet))
}

fn submit_all(fleet: &Fleet, job: &JobRequest, times: usize) -> Result<()> {
    const AT_ONCE: usize = 500;
    fleet.runtime.block_on(async {
        let mut submissions = tokio::task::JoinSet::new();
        for _ in 0..times {
            if submissions.len() >= AT_ONCE
                && let Some(accepted) = submissions.join_next().await
            {
                accepted??;
            }
            let (handle, job) = (fleet.handle().clone(), job.clone());
            submissions.spawn(async move { handle.submit(&job, "bench").await });
        }
        while let Some(accepted) = submissions.join_next().await {
            accepted??;
        }
        Ok(())
    })
}

/// The longest that a question waits for its answer around a snapshot, in seconds.
fn longest_wait(fleet: &Fleet) -> Result<f64> {
    let handle = fleet.handle();
    fleet.runtime.block_on(async {
        let mut longest = Duration::ZERO;
        let taking = tokio::spawn({
            let handle = handle.clone();
            async move { handle.take_snapshot().await }
        });
        // Until it is on disk, whatever of it one has to wait for. Each waits for a write of its own.
        while !taking.is_finished() {
            let begun = Instant::now();
            handle.rebalance().await?;
            longest = longest.max(begun.elapsed());
        }
        taking.await??;
        Ok(longest.as_secs_f64())
    })
}
