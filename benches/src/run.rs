//! `loxley run` beside what people use today, with real processes.
//!
//! The floor of no-op tasks is what the system itself needs: two threads that start a process and
//! wait for it (through `posix_spawn`, the cheapest way there is), and nothing else. The floor of
//! the heavy tail is the sum of all costs over the slots. The floor of the start-up is a shell that
//! starts one program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use loxley_balance::Rng;

use crate::Options;
use crate::measure::{Contender, Role, interleaved};
use crate::report::{Goal, Report};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The `loxley` to measure [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    loxley: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let loxley = match &arguments.loxley {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("loxley"),
    };
    Command::new(&loxley)
        .arg("--version")
        .output()
        .with_context(|| format!("build loxley first: {} does not run", loxley.display()))?;
    if options.wants("no-op tasks") {
        no_op_tasks(options, &loxley, report);
    }
    if options.wants("heavy tail") {
        heavy_tail(options, &loxley, report)?;
    }
    if options.wants("start-up") {
        start_up(options, &loxley, report);
    }
    Ok(())
}

/// 2 slots, `true` with an item each, as people use it: the loop passes an argument, too. (With one, `true`
/// reads its translations, so each takes longer than without, in every row.) Once with items that are known at
/// once, once with items that come through a pipe.
fn no_op_tasks(options: &Options, loxley: &Path, report: &mut Report) {
    let count: usize = if options.quick { 300 } else { 5_000 };
    // GNU parallel takes several times as long: a fifth of the tasks is enough to see.
    let few = count / 5;
    let per_task = |seconds: f64| seconds * 1e6 / count as f64;
    let shell = |line: String| seconds(Command::new("sh").args(["-c", &line]));
    let array = format!("1-{count}");
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || {
            let words = ["run", "--jobs", "2", "--array", &array, "true"];
            per_task(seconds(Command::new(loxley).args(words)))
        }),
        Contender::new("loxley, items by a pipe", Role::Subject, || {
            let line = format!("seq {count} | {} run --jobs 2 true", loxley.display());
            per_task(shell(line))
        }),
        Contender::new("spawn loop", Role::Floor, || {
            per_task(spawn_loop_with_items(count, 2))
        }),
        Contender::new("xargs", Role::Peer, || {
            per_task(shell(format!("seq {count} | xargs -P 2 -n 1 true")))
        }),
    ];
    if has_gnu_parallel() {
        contenders.push(Contender::new("GNU parallel", Role::Peer, move || {
            shell(format!("seq {few} | parallel -j 2 true")) * 1e6 / few as f64
        }));
    }
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = interleaved(options.effort(), &mut contenders);
    let goal = Goal::Times(1.05, "spawn loop");
    report.case("no-op tasks", "µs/task", Some(goal), &samples);
}

fn has_gnu_parallel() -> bool {
    let version = Command::new("parallel").arg("--version").output();
    version.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel"))
}

/// Sleeps of a heavy-tailed length (mean about 5 ms) on 4 slots: the makespan over the sum of all
/// lengths divided by the slots.
fn heavy_tail(options: &Options, loxley: &Path, report: &mut Report) -> Result<()> {
    let count = if options.quick { 200 } else { 1_000 };
    let costs = heavy_tailed(count);
    let floor = (costs.iter().sum::<f64>() / 4.0).max(costs.iter().copied().fold(0.0, f64::max));
    let items = std::env::temp_dir().join(format!("loxley-bench-{}", std::process::id()));
    let lines: String = costs.iter().map(|cost| format!("{cost:.4}\n")).collect();
    fs::write(&items, lines)?;
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || {
            let mut command = Command::new(loxley);
            command
                .args(["run", "--jobs", "4", "--each-line"])
                .arg(&items);
            seconds(command.arg("sleep")) / floor
        }),
        Contender::new("xargs", Role::Peer, || {
            let mut command = Command::new("xargs");
            command.args(["-P", "4", "-n", "1", "-a"]).arg(&items);
            seconds(command.arg("sleep")) / floor
        }),
    ];
    if has_gnu_parallel() {
        contenders.push(Contender::new("GNU parallel", Role::Peer, || {
            let mut command = Command::new("parallel");
            command.args(["-j", "4", "-a"]).arg(&items);
            seconds(command.arg("sleep")) / floor
        }));
    }
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = interleaved(options.effort(), &mut contenders);
    let goal = Goal::Times(1.0, "xargs");
    report.case("heavy tail", "x floor", Some(goal), &samples);
    fs::remove_file(&items)?;
    Ok(())
}

/// Pareto-distributed seconds with a mean of 5 ms, none above 250 ms.
pub(crate) fn heavy_tailed(count: usize) -> Vec<f64> {
    let mut rng = Rng::new(5);
    let cost = |_| (0.001_67 / (1.0 - rng.unit_f64()).powf(1.0 / 1.5)).min(0.25);
    (0..count).map(cost).collect()
}

/// One task, from the command line to the prompt; then what of that is more than a shell takes.
fn start_up(options: &Options, loxley: &Path, report: &mut Report) {
    let run = || {
        let words = ["run", "--no-item", "true", ":::", "1"];
        seconds(Command::new(loxley).args(words)) * 1e3
    };
    let shell = || seconds(Command::new("sh").args(["-c", "/bin/true; exit 0"])) * 1e3;
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, run),
        Contender::new("shell", Role::Floor, shell),
    ];
    if has_gnu_parallel() {
        contenders.push(Contender::new("GNU parallel", Role::Peer, || {
            let words = ["-n0", "true", ":::", "1"];
            seconds(Command::new("parallel").args(words)) * 1e3
        }));
    }
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = interleaved(options.effort(), &mut contenders);
    report.case("start-up", "ms", None, &samples);
    let more = || run() - shell();
    let samples = interleaved(
        options.effort(),
        &mut [Contender::new("loxley", Role::Subject, more)],
    );
    let goal = Goal::AtMost(10.0);
    report.case("start-up, more than a shell", "ms", Some(goal), &samples);
}

/// Starts so many processes, a few at once, and waits for each: what the system itself needs.
pub(crate) fn spawn_loop(count: usize, slots: usize) -> f64 {
    spawn_each(count, slots, |_, command| command)
}

/// The same, with an argument for each.
fn spawn_loop_with_items(count: usize, slots: usize) -> f64 {
    spawn_each(count, slots, |number, command| {
        command.arg((number + 1).to_string())
    })
}

fn spawn_each(
    count: usize,
    slots: usize,
    prepare: impl Fn(usize, &mut Command) -> &mut Command + Sync,
) -> f64 {
    let started = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..slots {
            scope.spawn(|| {
                loop {
                    let number = started.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    seconds(prepare(number, &mut Command::new("/bin/true")));
                }
            });
        }
    });
    begun.elapsed().as_secs_f64()
}

/// Runs a command whose output nobody wants; gives the seconds it took.
pub(crate) fn seconds(command: &mut Command) -> f64 {
    let begun = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
    begun.elapsed().as_secs_f64()
}
