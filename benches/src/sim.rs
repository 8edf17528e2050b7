//! The simulator beside SimPy and asimpy, and beside a bare heap, which no simulator can beat.
//!
//! An event is one entry taken from the event queue; drawing the tasks beforehand is not counted, for
//! anybody. The peers run the same model (64 workers, tasks
//! dealt out in turn, random stealing) in `benches/peers/sim_peers.py`, in a virtual environment that
//! is made on first use under the target folder.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use loxley_balance::Rng;
use loxley_model::{Dispatch, Priority};
use loxley_sim::deque_world::DequeWorld;
use loxley_sim::fleet::{self, FleetLoad, FleetSetup, TaskGroup};
use loxley_sim::{Arrivals, DequeSetup, Distribution, Load};

use crate::Options;
use crate::measure::{self, Contender, Role, Samples};
use crate::report::{Goal, Report};

/// Options of `loxley-bench sim`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave out the peers in Python (they need pip and take most of the time).
    #[arg(long)]
    no_peers: bool,
}

const WORKERS: usize = 64;

pub(crate) fn run(arguments: &Arguments, options: &Options, report: &mut Report) -> Result<()> {
    let tasks: u32 = if options.quick { 100_000 } else { 1_000_000 };
    if options.wants("sim/deque") {
        deque(arguments, options, tasks, report)?;
    }
    if options.wants("sim/deque-memory") {
        deque_memory(tasks, report);
    }
    for (case, agents, goal) in [
        ("sim/fleet-64", 64, 1_000.0),
        ("sim/fleet-10000", 10_000, 3_333.0),
    ] {
        if options.wants(case) {
            let mut contenders = [Contender::new("loxley", Role::Subject, || {
                fleet_ns_per_task(agents, tasks / 4)
            })];
            let samples = measure::interleaved(options.effort(), &mut contenders);
            report.case(case, "ns/task", Some(Goal::AtMost(goal)), &samples);
        }
    }
    Ok(())
}

fn deque(arguments: &Arguments, options: &Options, tasks: u32, report: &mut Report) -> Result<()> {
    let mut contenders = vec![
        Contender::new("loxley", Role::Subject, || deque_ns_per_event(tasks)),
        Contender::new("bare heap", Role::Floor, || heap_ns_per_event(tasks)),
    ];
    if !arguments.no_peers {
        let python = environment()?;
        for name in ["simpy", "asimpy"] {
            // Fewer tasks than ours: the figure is per event, and Python takes long enough.
            peer_ns_per_event(&python, name, 1_000)?;
            let python = python.clone();
            contenders.push(Contender::new(name, Role::Peer, move || {
                peer_ns_per_event(&python, name, tasks / 5).unwrap_or(f64::NAN)
            }));
        }
    }
    contenders.retain(|contender| options.admits(contender.name()));
    let samples = measure::interleaved(options.effort(), &mut contenders);
    report.case("sim/deque", "ns/event", Some(Goal::AtMost(100.0)), &samples);
    Ok(())
}

fn deque_setup(tasks: u32) -> DequeSetup {
    let mut setup = DequeSetup::new(
        WORKERS,
        Load::Stream {
            count: tasks,
            work: Distribution::Exponential(0.001),
            arrivals: Arrivals::AtOnce,
        },
    );
    if let Some(stealing) = &mut setup.stealing {
        stealing.probe_costs = [1_000; 5];
    }
    setup
}

fn deque_ns_per_event(tasks: u32) -> f64 {
    let setup = deque_setup(tasks);
    let mut nobody = ();
    let world = DequeWorld::new(&setup, 1, &mut nobody);
    let start = Instant::now();
    let statistics = world.run();
    let took = start.elapsed().as_nanos() as f64;
    assert_eq!(statistics.executed(), u64::from(tasks));
    took / statistics.events as f64
}

fn deque_memory(tasks: u32, report: &mut Report) {
    let (setup, mut nobody) = (deque_setup(tasks), ());
    let bytes = DequeWorld::new(&setup, 1, &mut nobody).bytes_per_task();
    let samples = Samples::single("loxley", Role::Subject, bytes);
    // A deque has room for a whole number of tasks, so a few of 64 deques have one place to spare.
    report.case(
        "sim/deque-memory",
        "B/task",
        Some(Goal::AtMost(32.01)),
        &[samples],
    );
}

fn fleet_ns_per_task(agents: usize, tasks: u32) -> f64 {
    let group = TaskGroup {
        count: tasks,
        // Nobody takes twice the median: what is measured is the plain path, without stragglers.
        work: Distribution::Uniform(0.005, 0.015),
        arrivals: Arrivals::AtOnce,
        kind: Arc::default(),
        priorities: vec![Priority::NORMAL],
        declared: true,
        deadline: None,
        onto: None,
    };
    let mut setup = FleetSetup::new(agents, FleetLoad::Groups(vec![group]));
    // As the agents of a server: fed without asking.
    for agent in &mut setup.agents {
        agent.spec.dispatch = Dispatch::KeepFull;
    }
    setup.config.speculation.enabled = false;
    // The tasks are drawn beforehand: what is measured is the run.
    let drawn = setup.tasks(&Rng::new(1));
    setup.load = FleetLoad::Given(drawn);
    let start = Instant::now();
    let outcome = fleet::run(&setup, 1, &mut ());
    let took = start.elapsed().as_nanos() as f64;
    assert_eq!(outcome.statistics.executed(), u64::from(tasks));
    took / f64::from(tasks)
}

/// What the queue alone costs: take the earliest, put another one in.
fn heap_ns_per_event(events: u32) -> f64 {
    let mut rng = Rng::new(1);
    let mut heap: BinaryHeap<Reverse<(u64, u64, u32)>> = (0..WORKERS as u32)
        .map(|worker| Reverse((rng.below(1_000_000), u64::from(worker), worker)))
        .collect();
    let start = Instant::now();
    for sequence in 0..u64::from(events) {
        let Some(Reverse((time, _, worker))) = heap.pop() else {
            break;
        };
        let next = time + rng.below(1_000_000);
        heap.push(Reverse((next, sequence + WORKERS as u64, worker)));
    }
    black_box(&heap);
    start.elapsed().as_nanos() as f64 / f64::from(events)
}

/// A Python with the peers in it, made on first use.
fn environment() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/sim-peers");
    let python = folder.join("bin/python");
    if !folder.join("installed").exists() {
        call(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        call(Command::new(&python).args(["-m", "pip", "install", "--quiet", "simpy", "asimpy"]))?;
        std::fs::write(folder.join("installed"), "")?;
    }
    Ok(python)
}

fn peer_ns_per_event(python: &Path, name: &str, tasks: u32) -> Result<f64> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/sim_peers.py");
    let output = Command::new(python)
        .arg(script)
        .args([name, &tasks.to_string()])
        .output()?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .with_context(|| format!("{name} printed {text:?}"))
}

fn call(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
