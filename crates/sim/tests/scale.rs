//! Many workers [X8]. What takes minutes or gigabytes runs with `LOXLEY_TEST_LONG=1`, one at a time and with
//! `--nocapture` for its figures:
//!
//! ```sh
//! LOXLEY_TEST_LONG=1 cargo test --release -p loxley-sim --test scale -- --nocapture --test-threads 1
//! ```
#![expect(clippy::print_stdout, reason = "a test shows what it measured")]

use std::sync::Arc;
use std::time::Instant;

use loxley_balance::VictimOrder;
use loxley_model::Priority;
use loxley_sim::deque_world::{DequeWorld, Stealing};
use loxley_sim::fleet::{self, FleetLoad, FleetSetup, TaskGroup};
use loxley_sim::statistics::RunStatistics;
use loxley_sim::{Arrivals, DequeSetup, Distribution, Load};

fn is_long() -> bool {
    let asked = std::env::var_os("LOXLEY_TEST_LONG").is_some();
    if !asked {
        println!("skipped: set LOXLEY_TEST_LONG=1");
    }
    asked
}

fn deques(workers: usize, tasks: u32, probe_cost: u64) -> DequeSetup {
    let mut setup = DequeSetup::new(
        workers,
        Load::Stream {
            count: tasks,
            work: Distribution::Exponential(0.001),
            arrivals: Arrivals::AtOnce,
        },
    );
    setup.stealing = Some(Stealing {
        probe_costs: [probe_cost; 5],
        ..Stealing::default()
    });
    setup
}

/// Seconds of the run alone, and what it came to.
fn timed(setup: &DequeSetup) -> (f64, RunStatistics) {
    let mut nobody = ();
    let world = DequeWorld::new(setup, 1, &mut nobody);
    let start = Instant::now();
    let statistics = world.run();
    (start.elapsed().as_secs_f64(), statistics)
}

/// The most memory that this process ever had, in bytes; nothing where the system does not say.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1_024)
}

/// When every failed search visited everyone, thirty thousand workers did not come to an end.
#[test]
fn fifty_thousand_workers_of_every_order_come_to_an_end() {
    let workers = 50_000;
    for order in [
        VictimOrder::Random,
        VictimOrder::Nearest,
        VictimOrder::MostLoaded,
        VictimOrder::Hierarchical,
    ] {
        let mut setup = deques(workers, 200_000, 0);
        if let Some(stealing) = &mut setup.stealing {
            stealing.order = order;
        }
        let (_, statistics) = timed(&setup);
        assert_eq!(statistics.executed(), 200_000, "{order:?}");
        assert!(statistics.stolen() > 10_000, "{order:?}");
        // Free probes of everyone: nobody idles while something waits.
        let bound = statistics.total_work / workers as u64 + statistics.critical_path;
        assert!(statistics.makespan <= bound, "{order:?}");
    }
}

/// All work comes to one worker of many: everyone else lives by stealing.
#[test]
fn a_hundred_thousand_workers_live_on_one() {
    let mut setup = deques(100_000, 300_000, 0);
    setup.placement = loxley_sim::deque_world::Placement::On(7);
    let (_, statistics) = timed(&setup);
    assert_eq!(statistics.executed(), 300_000);
    assert!(
        statistics
            .workers
            .iter()
            .filter(|worker| worker.stolen > 0)
            .count()
            > 60_000
    );
}

#[test]
fn a_million_workers_run_a_hundred_million_tasks() {
    if !is_long() {
        return;
    }
    let start = Instant::now();
    let (seconds, statistics) = timed(&deques(1_000_000, 100_000_000, 1_000));
    let memory = peak_memory().map_or(f64::NAN, |bytes| bytes as f64 / f64::from(1 << 30));
    println!(
        "1,000,000 workers, 100,000,000 tasks: {:.0} s in all, {seconds:.0} s the run, {:.0} ns/event, {memory:.1} GiB",
        start.elapsed().as_secs_f64(),
        seconds * 1e9 / statistics.events as f64,
    );
    assert_eq!(statistics.executed(), 100_000_000);
}

#[test]
fn cost_per_event_by_the_number_of_workers() {
    if !is_long() {
        return;
    }
    for workers in [1_000_usize, 10_000, 100_000, 1_000_000] {
        // The best of some runs of the same work for each worker.
        let tasks = (workers * 20).max(2_000_000) as u32;
        let setup = deques(workers, tasks, 1_000);
        let runs = (0..3).map(|_| {
            let (seconds, statistics) = timed(&setup);
            seconds * 1e9 / statistics.events as f64
        });
        let best = runs.fold(f64::MAX, f64::min);
        println!("{workers:>9} workers, {tasks:>10} tasks: {best:.0} ns/event");
    }
}

#[test]
fn a_fleet_whose_tasks_stream_in() {
    if !is_long() {
        return;
    }
    for (agents, tasks) in [(1_000_000_usize, 1_000_u32), (1_000_000, 10_000_000)] {
        let group = TaskGroup {
            count: tasks,
            work: Distribution::Uniform(0.5, 1.5),
            arrivals: Arrivals::Poisson(agents as f64 * 0.7),
            kind: Arc::default(),
            priorities: vec![Priority::NORMAL],
            declared: true,
            deadline: None,
            onto: None,
        };
        let mut setup = FleetSetup::new(agents, FleetLoad::Groups(vec![group]));
        setup.config.speculation.enabled = false;
        let start = Instant::now();
        let outcome = fleet::run(&setup, 1, &mut ());
        assert_eq!(outcome.statistics.executed(), u64::from(tasks));
        println!(
            "{agents} agents, {tasks} tasks: {:.0} s, peak {} MB",
            start.elapsed().as_secs_f64(),
            peak_memory().unwrap_or(0) / 1_000_000,
        );
    }
}
