//! The server: durable, over TLS, with agents in processes of their own, beside what the system itself
//! needs.
//!
//! The server runs in this process and is asked through its handle; agents are this program again
//! (`server-agents`), so that every task crosses two process boundaries and the journal.

mod fleet;
mod round_trips;
mod starts;

use std::process::Command;

use anyhow::{Context as _, Result};
use loxley_api::{CommandRequest, Entries, FunctionRequest, JobRequest, TaskRequest, Work};

use crate::Options;
use crate::measure::{Contender, Role, Samples, interleaved};
use crate::report::{Goal, Report};
use crate::run::{heavy_tailed, seconds, spawn_loop};

pub(crate) use fleet::{AgentArguments, Fleet, agents};

type Case = fn(&Options, &mut Report) -> Result<()>;

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let cases: [(&str, Case); 10] = [
        ("no-op functions", no_op_functions),
        ("processes", processes),
        ("four agents", four_agents),
        ("round trip", round_trips::native),
        ("memory", memory),
        ("heavy tail", heavy_tail),
        ("two hundred agents", two_hundred_agents),
        ("command line", round_trips::by_command_line),
        ("start, finished tasks", starts::after_finished_tasks),
        ("start, live tasks", starts::with_live_tasks),
    ];
    for (name, case) in cases {
        if options.wants(name) {
            case(options, report).with_context(|| name.to_owned())?;
        }
    }
    Ok(())
}

pub(crate) fn array(run: Work, count: usize) -> JobRequest {
    let last = count as u64;
    entries(
        run,
        Entries::Range {
            first: 1,
            last,
            step: 1,
        },
    )
}

fn entries(run: Work, entries: Entries) -> JobRequest {
    JobRequest {
        tasks: vec![TaskRequest {
            entries: Some(entries),
            ..TaskRequest::new(run)
        }],
        ..JobRequest::default()
    }
}

pub(crate) fn function(name: &str) -> Work {
    Work::Function(FunctionRequest {
        name: name.to_owned(),
        ..FunctionRequest::default()
    })
}

pub(crate) fn command(words: &[&str]) -> Work {
    Work::Command(CommandRequest {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        ..CommandRequest::default()
    })
}

/// Functions that do nothing, on two agents: with the journal and without.
fn no_op_functions(options: &Options, report: &mut Report) -> Result<()> {
    let count = if options.quick { 50_000 } else { 200_000 };
    let job = array(function("no-op"), count);
    let per_task = |seconds: f64| seconds * 1e6 / count as f64;
    let durable = Fleet::start(true, 2, 1, 1)?;
    let volatile = Fleet::start(false, 2, 1, 1)?;
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || per_task(durable.time(&job))),
        Contender::new("without a journal", Role::Floor, || {
            per_task(volatile.time(&job))
        }),
    ];
    let samples = interleaved(options.effort(), &mut contenders);
    report.case(
        "no-op functions",
        "µs/task",
        Some(Goal::AtMost(10.0)),
        &samples,
    );
    Ok(())
}

/// `true`, on one agent with two slots: with the journal and without.
fn processes(options: &Options, report: &mut Report) -> Result<()> {
    let count = if options.quick { 500 } else { 5_000 };
    let per_task = |seconds: f64| seconds * 1e6 / count as f64;
    let job = array(command(&["true"]), count);
    let fleet = Fleet::start(true, 1, 1, 2)?;
    let volatile = Fleet::start(false, 1, 1, 2)?;
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || per_task(fleet.time(&job))),
        Contender::new("without a journal", Role::Floor, || {
            per_task(volatile.time(&job))
        }),
        Contender::new("spawn loop", Role::Floor, || per_task(spawn_loop(count, 2))),
        Contender::new("xargs", Role::Peer, || {
            let line = format!("seq {count} | xargs -P 2 -I @ true");
            per_task(seconds(Command::new("sh").args(["-c", &line])))
        }),
    ];
    let samples = interleaved(options.effort(), &mut contenders);
    let goal = Goal::Times(1.15, "spawn loop");
    report.case("processes", "µs/task", Some(goal), &samples);
    Ok(())
}

/// `true`, on four agents with one slot each, in processes of their own, on however few cores there are.
fn four_agents(options: &Options, report: &mut Report) -> Result<()> {
    let count = if options.quick { 400 } else { 2_000 };
    let per_task = |seconds: f64| seconds * 1e6 / count as f64;
    let job = array(command(&["true"]), count);
    let fleet = Fleet::start(true, 4, 1, 1)?;
    let volatile = Fleet::start(false, 4, 1, 1)?;
    let one = Fleet::start(true, 1, 1, 2)?;
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || per_task(fleet.time(&job))),
        Contender::new("without a journal", Role::Floor, || {
            per_task(volatile.time(&job))
        }),
        Contender::new("one agent with two slots", Role::Floor, || {
            per_task(one.time(&job))
        }),
        Contender::new("spawn loop", Role::Floor, || per_task(spawn_loop(count, 2))),
        Contender::new("spawn loop, four at once", Role::Floor, || {
            per_task(spawn_loop(count, 4))
        }),
    ];
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = interleaved(options.effort(), &mut contenders);
    let goal = Goal::Times(1.15, "spawn loop");
    report.case("four agents", "µs/task", Some(goal), &samples);
    Ok(())
}

/// What a hundred thousand queued tasks take, as an array of numbers and as one of lines.
fn memory(_options: &Options, report: &mut Report) -> Result<()> {
    const COUNT: usize = 100_000;
    let fleet = Fleet::start(true, 0, 0, 0)?;
    let lines = (0..COUNT)
        .map(|line| format!("input-{line:06}.dat"))
        .collect();
    let jobs = [
        ("memory, a range", array(command(&["true"]), COUNT)),
        (
            "memory, lines",
            entries(command(&["true"]), Entries::Lines(lines)),
        ),
    ];
    for (name, job) in jobs {
        let before = resident_bytes()?;
        fleet
            .runtime
            .block_on(fleet.handle().submit(&job, "bench"))?;
        let grown = resident_bytes()?.saturating_sub(before) as f64 / COUNT as f64;
        let samples = [Samples::single("loxley", Role::Subject, grown)];
        report.case(name, "bytes/task", Some(Goal::AtMost(300.0)), &samples);
    }
    Ok(())
}

fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text
        .split_whitespace()
        .nth(1)
        .context("statm has a second field")?;
    Ok(pages.parse::<u64>()? * rustix::param::page_size() as u64)
}

/// Sleeps of a heavy-tailed length on two agents with two slots each, and on four with one: the makespan over the floor.
fn heavy_tail(options: &Options, report: &mut Report) -> Result<()> {
    let count = if options.quick { 300 } else { 2_000 };
    let costs = heavy_tailed(count);
    let floor = (costs.iter().sum::<f64>() / 4.0).max(costs.iter().copied().fold(0.0, f64::max));
    let lines: Vec<String> = costs.iter().map(|cost| format!("{cost:.4}")).collect();
    let fleet = Fleet::start(true, 2, 1, 2)?;
    let inside = entries(function("sleep"), Entries::Lines(lines.clone()));
    let mut contenders = vec![Contender::new("loxley", Role::Subject, || {
        fleet.time(&inside) / floor
    })];
    let samples = interleaved(options.effort(), &mut contenders);
    report.case(
        "heavy tail, functions",
        "x floor",
        Some(Goal::AtMost(1.10)),
        &samples,
    );
    let outside = entries(command(&["sleep", "{}"]), Entries::Lines(lines.clone()));
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || fleet.time(&outside) / floor),
        Contender::new("xargs", Role::Peer, || {
            let line = format!("printf '%s\\n' {} | xargs -P 4 -n 1 sleep", lines.join(" "));
            seconds(Command::new("sh").args(["-c", &line])) / floor
        }),
    ];
    let samples = interleaved(options.effort(), &mut contenders);
    let goal = Goal::Times(1.0, "xargs");
    report.case("heavy tail, processes", "x floor", Some(goal), &samples);
    let four = Fleet::start(true, 4, 1, 1)?;
    let mut contenders = vec![Contender::new("loxley", Role::Subject, || {
        four.time(&outside) / floor
    })];
    let samples = interleaved(options.effort(), &mut contenders);
    let goal = Goal::AtMost(1.10);
    report.case("heavy tail, four agents", "x floor", Some(goal), &samples);
    Ok(())
}

/// A million functions through two hundred agents.
fn two_hundred_agents(options: &Options, report: &mut Report) -> Result<()> {
    let count = if options.quick { 100_000 } else { 1_000_000 };
    let fleet = Fleet::start(true, 2, 100, 1)?;
    let job = array(function("no-op"), count);
    let per_task = fleet.time(&job) * 1e6 / count as f64;
    let samples = [Samples::single("loxley", Role::Subject, per_task)];
    report.case("two hundred agents", "µs/task", None, &samples);
    Ok(())
}
