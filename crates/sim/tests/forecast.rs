//! Forecasts [S19] around the real scheduler: where work comes at the same time of each day they help it, and where it
//! comes at random they change nothing.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use loxley_sim::fleet::{FleetOutcome, run};
use loxley_sim::{Change, Happening, Observer, Scenario, World, library, storm};

/// How long tasks take from when they come to their end: long ones, short ones.
struct Responses {
    submitted: Vec<u64>,
    started: Vec<u64>,
    sums: [f64; 2],
    counts: [u64; 2],
}

impl Responses {
    fn new(tasks: usize) -> Self {
        Self {
            submitted: vec![0; tasks],
            started: vec![0; tasks],
            sums: [0.0; 2],
            counts: [0; 2],
        }
    }

    /// The mean of the long tasks, of the short ones, and of all, in seconds.
    fn means(&self) -> [f64; 3] {
        let mean = |sum: f64, count: u64| sum / count as f64 / 1e9;
        let [long, short] = [0, 1].map(|at| mean(self.sums[at], self.counts[at]));
        let all = mean(self.sums.iter().sum(), self.counts.iter().sum());
        [long, short, all]
    }
}

impl Observer for Responses {
    fn see(&mut self, now: u64, happening: &Happening) {
        match *happening {
            Happening::Submitted { task } => self.submitted[task as usize] = now,
            Happening::Started { task, .. } => self.started[task as usize] = now,
            Happening::Ended { task, .. } => {
                let ran = now - self.started[task as usize];
                let at = usize::from(ran < 100_000_000_000);
                self.sums[at] += (now - self.submitted[task as usize]) as f64;
                self.counts[at] += 1;
            }
            _ => {}
        }
    }
}

fn outcome(
    scenario: &Scenario,
    seed: u64,
    change: &str,
    observer: &mut impl Observer,
) -> FleetOutcome {
    let changes = Change::policy(change).unwrap();
    let World::Fleet(setup) = scenario.build(&changes).unwrap() else {
        panic!("a fleet")
    };
    run(&setup, seed, observer)
}

#[test]
fn a_burst_that_comes_every_day_waits_less_and_the_rest_hardly_more() {
    let scenario = library::ready("daily_burst").unwrap();
    let (mut with, mut without) = ([0.0; 3], [0.0; 3]);
    let (mut misses, mut misses_without) = (0, 0);
    for seed in 1..=3 {
        let mut seen = Responses::new(7440);
        let outcome_with = outcome(&scenario, seed, "forecast", &mut seen);
        let means = seen.means();
        let mut seen = Responses::new(7440);
        let outcome_without = outcome(&scenario, seed, "no_forecast", &mut seen);
        let means_without = seen.means();
        assert!(
            outcome_with.kept_room.0 > 20,
            "{:?}",
            outcome_with.kept_room
        );
        assert_eq!(outcome_without.kept_room, (0, 0));
        for at in 0..3 {
            with[at] += means[at] / 3.0;
            without[at] += means_without[at] / 3.0;
        }
        misses += outcome_with.statistics.deadline_misses;
        misses_without += outcome_without.statistics.deadline_misses;
    }
    println!("long, burst, all: {with:?}; without: {without:?}; misses {misses}, {misses_without}");
    assert!(with[1] < 0.7 * without[1], "{with:?} {without:?}");
    assert!(with[0] < 1.01 * without[0], "{with:?} {without:?}");
    assert!(with[2] < without[2], "{with:?} {without:?}");
    assert!(2 * misses < misses_without, "{misses} {misses_without}");
}

/// The same work, at random times.
const AT_RANDOM: &str = "
about: a
look_for: b
fleet:
  agents:
    - {count: 3, skills: [gpu]}
    - {count: 5}
  tasks:
    - {count: 3000, work: {uniform: [600, 1800]}, arrivals: {poisson: 0.004}, declared: false}
    - {count: 600, work: {uniform: [20, 40]}, arrivals: {poisson: 0.0008}, skills: [gpu], declared: false}
  load_balancing:
    metrics: {utilization_sample_interval_sec: 60}
    forecast: {horizon_sec: 1200, share_max: 1.0}
";

#[test]
fn where_work_comes_at_random_forecasts_cost_nothing() {
    let scenario = Scenario::parse("test", AT_RANDOM).unwrap();
    for seed in 1..=8 {
        let mut with = Responses::new(3600);
        outcome(&scenario, seed, "forecast", &mut with);
        let mut without = Responses::new(3600);
        outcome(&scenario, seed, "no_forecast", &mut without);
        let (with, without) = (with.means(), without.means());
        for at in 0..3 {
            assert!(
                with[at] < 1.01 * without[at],
                "{seed}: {with:?} {without:?}"
            );
        }
    }
}

#[test]
fn storms_keep_room_too() {
    let seeds = 0..100;
    let on = seeds.filter(|seed| storm::setup(*seed).config.forecast.enabled);
    let kept = on.map(|seed| run(&storm::setup(seed), seed, &mut ()).kept_room.0);
    let kept: Vec<u64> = kept.collect();
    assert!(kept.len() > 20, "{kept:?}");
    let some = kept.iter().filter(|times| **times > 0).count();
    assert!(some > 2, "{kept:?}");
}
