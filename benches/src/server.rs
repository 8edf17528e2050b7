//! The server: durable, over TLS, with agents in processes of their own, beside what the system itself
//! needs.
//!
//! The server runs in this process and is asked through its handle; agents are this program again
//! (`server-agents`), so that every task crosses two process boundaries and the journal.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use loxley_agent::{Agent, AgentOptions, Functions};
use loxley_api::{
    Access, CommandRequest, Entries, FunctionRequest, JobInfo, JobRequest, TaskRequest, Work,
};
use loxley_policy::Config;
use loxley_server::engine::Handle;
use loxley_server::{Context, Server, ServerOptions};
use tokio::runtime::Runtime;

use crate::Options;
use crate::measure::{Contender, Role, Samples, interleaved};
use crate::report::{Goal, Report};
use crate::run::{heavy_tailed, seconds, spawn_loop};

type Case = fn(&Options, &mut Report) -> Result<()>;

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let cases: [(&str, Case); 6] = [
        ("no-op functions", no_op_functions),
        ("processes", processes),
        ("round trip", round_trip),
        ("memory", memory),
        ("heavy tail", heavy_tail),
        ("two hundred agents", two_hundred_agents),
    ];
    for (name, case) in cases {
        if options.wants(name) {
            case(options, report).with_context(|| name.to_owned())?;
        }
    }
    Ok(())
}

/// As many agents as are asked for, until this process is killed.
#[derive(clap::Args)]
pub(crate) struct AgentArguments {
    access: std::path::PathBuf,
    count: u32,
    slots: u32,
}

pub(crate) fn agents(arguments: &AgentArguments) -> Result<()> {
    let access = Access::read(&arguments.access)?;
    let functions = Functions::default()
        .with("no-op", |_| Ok(Vec::new()))
        .with("sleep", |call| {
            let seconds: f64 = std::str::from_utf8(call.input)?.parse()?;
            std::thread::sleep(Duration::from_secs_f64(seconds));
            Ok(Vec::new())
        });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut agents = tokio::task::JoinSet::new();
        for number in 0..arguments.count {
            let name = format!("{}-{number}", std::process::id());
            agents.spawn(
                Agent::new(AgentOptions {
                    slots: arguments.slots,
                    functions: functions.clone(),
                    ..AgentOptions::new(access.clone(), &name)
                })
                .run(),
            );
        }
        while let Some(ended) = agents.join_next().await {
            ended??;
        }
        Ok(())
    })
}

/// A server with its agents. They end with it.
struct Fleet {
    runtime: Runtime,
    context: Context,
    serving: Option<tokio::task::JoinHandle<Result<(), loxley_server::ServerError>>>,
    agents: Vec<Child>,
    // Kept until everything else is gone.
    _directory: tempfile::TempDir,
}

impl Fleet {
    /// `processes` agents' processes of `count` agents with `slots` slots each.
    fn start(durable: bool, processes: u32, count: u32, slots: u32) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let options = ServerOptions {
            directory: directory.path().to_owned(),
            listen: "127.0.0.1:0".parse()?,
            url: None,
            config: Config::default(),
        };
        let server = runtime.block_on(async {
            match durable {
                true => Server::start(options, |_| axum::Router::new()).await,
                false => Server::start_in_memory(options, |_| axum::Router::new()).await,
            }
        })?;
        let context = server.context().clone();
        let serving = Some(runtime.spawn(server.run()));
        let mut fleet = Self {
            runtime,
            context,
            serving,
            agents: Vec::new(),
            _directory: directory,
        };
        let access = fleet._directory.path().join(Access::FILE);
        for _ in 0..processes {
            fleet.agents.push(start_agents(&access, count, slots)?);
        }
        fleet.wait_for_agents(u64::from(processes * count))?;
        Ok(fleet)
    }

    fn handle(&self) -> &Handle {
        &self.context.handle
    }

    fn wait_for_agents(&self, count: u64) -> Result<()> {
        let begun = Instant::now();
        self.runtime.block_on(async {
            while self.handle().fleet().await?.agent_count < count {
                anyhow::ensure!(
                    begun.elapsed() < Duration::from_secs(60),
                    "agents are missing"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        })
    }

    /// Seconds from the submission of a job to its end.
    fn time(&self, job: &JobRequest) -> f64 {
        let begun = Instant::now();
        let ended = self.runtime.block_on(async {
            let accepted = self.handle().submit(job, "bench").await?;
            self.handle().wait(accepted.id).await
        });
        let took = begun.elapsed().as_secs_f64();
        let ended: JobInfo = ended.expect("the job is accepted and ends");
        assert_eq!(
            ended.tasks.succeeded, ended.tasks.total,
            "every task succeeds"
        );
        took
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        self.context.stop();
        if let Some(serving) = self.serving.take() {
            let _ = self.runtime.block_on(serving);
        }
    }
}

fn start_agents(access: &Path, count: u32, slots: u32) -> Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("server-agents").arg(access);
    command.args([count.to_string(), slots.to_string()]);
    Ok(command.stdin(Stdio::null()).spawn()?)
}

fn array(run: Work, count: usize) -> JobRequest {
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

fn function(name: &str) -> Work {
    Work::Function(FunctionRequest {
        name: name.to_owned(),
        ..FunctionRequest::default()
    })
}

fn command(words: &[&str]) -> Work {
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

/// `true`, on one agent with two slots.
fn processes(options: &Options, report: &mut Report) -> Result<()> {
    let count = if options.quick { 500 } else { 5_000 };
    let per_task = |seconds: f64| seconds * 1e6 / count as f64;
    let job = array(command(&["true"]), count);
    let fleet = Fleet::start(true, 1, 1, 2)?;
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || per_task(fleet.time(&job))),
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

/// One function that does nothing, from its submission to its result, again and again.
fn round_trip(options: &Options, report: &mut Report) -> Result<()> {
    let rounds = if options.quick { 200 } else { 2_000 };
    let fleet = Fleet::start(true, 1, 1, 1)?;
    let job = JobRequest {
        tasks: vec![TaskRequest::new(function("no-op"))],
        ..JobRequest::default()
    };
    let mut times: Vec<f64> = (0..rounds).map(|_| fleet.time(&job) * 1e3).collect();
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| times[((rounds as f64 * share) as usize).min(rounds - 1)];
    let median = [Samples::single("loxley", Role::Subject, at(0.5))];
    report.case("round trip, p50", "ms", Some(Goal::AtMost(0.3)), &median);
    let worst = [Samples::single("loxley", Role::Subject, at(0.99))];
    report.case("round trip, p99", "ms", Some(Goal::AtMost(2.0)), &worst);
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

/// Sleeps of a heavy-tailed length on two agents with two slots each: the makespan over the floor.
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
