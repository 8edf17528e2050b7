//! Self-tuning [M6] around the real scheduler: bad settings recover, good ones stay, and load that swings moves nothing.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use loxley_driver::self_tuning::{Setting, Step, What};
use loxley_model::Time;
use loxley_sim::fleet::{FleetOutcome, run};
use loxley_sim::{Change, Happening, Observer, Scenario, World};

const OFF: &str = "load_balancing.self_tuning.enabled=false";

fn outcome(scenario: &str, seed: u64, changes: &[&str]) -> FleetOutcome {
    watched(scenario, seed, changes, &mut ())
}

fn watched(
    scenario: &str,
    seed: u64,
    changes: &[&str],
    observer: &mut impl Observer,
) -> FleetOutcome {
    let scenario = Scenario::parse("test", scenario).unwrap();
    let changes: Vec<Change> = changes
        .iter()
        .map(|change| Change::parse(change).unwrap())
        .collect();
    let World::Fleet(setup) = scenario.build(&changes).unwrap() else {
        panic!("a fleet")
    };
    run(&setup, seed, observer)
}

/// Changes that were kept: of which setting, from what, to what.
fn kept(outcome: &FleetOutcome) -> Vec<(Setting, f64, f64)> {
    let is_kept = |step: &Step| matches!(step.what, What::Kept { .. });
    let kept = outcome.tuning.iter().filter(|(_, step)| is_kept(step));
    kept.map(|(_, step)| (step.setting, step.from, step.to))
        .collect()
}

fn story(outcome: &FleetOutcome) -> String {
    let line = |(at, step): &(Time, Step)| {
        let (path, word) = (step.setting.path(), step.word());
        let (from, to, because) = (step.from, step.to, step.because());
        let at = at.as_secs_f64();
        format!("{at:>9.1} {word} {path} {from} -> {to}: {because}\n")
    };
    outcome.tuning.iter().map(line).collect()
}

fn makespan(outcome: &FleetOutcome) -> f64 {
    outcome.statistics.makespan as f64
}

/// From ready to finished, on average.
fn response(outcome: &FleetOutcome) -> f64 {
    outcome.statistics.responses.mean().unwrap()
}

/// A bad setting with self-tuning is within 5 % of the `good` one without, and far from itself without.
fn recovers(scenario: &str, good: &[&str], cost: fn(&FleetOutcome) -> f64) {
    let bad = outcome(scenario, 7, &[OFF]);
    let changes: Vec<&str> = [OFF].into_iter().chain(good.iter().copied()).collect();
    let good = outcome(scenario, 7, &changes);
    let tuned = outcome(scenario, 7, &[]);
    let (bad, good, now) = (cost(&bad), cost(&good), cost(&tuned));
    let story = story(&tuned);
    assert!(bad > 1.2 * good, "the setting is bad: {bad} {good}");
    assert!(now < 1.05 * good, "{} of the good one\n{story}", now / good);
}

/// Short tasks on agents that are far away: with no backlog, every slot idles for a round trip after each.
const NO_BACKLOG: &str = "
about: a
look_for: b
fleet:
  agents: [{count: 4, slots: 2, heartbeat: 1}]
  tasks: [{count: 120000, work: {fixed: 0.01}}]
  network: {delay: {fixed: 0.005}}
  load_balancing:
    prefetch: {max_depth: 0}
    self_tuning: {enabled: true, window_sec: 0.5}
";

#[test]
fn a_backlog_that_is_too_shallow_recovers() {
    recovers(
        NO_BACKLOG,
        &["load_balancing.prefetch.max_depth=256"],
        makespan,
    );
}

/// One task in twenty takes twenty times as long, and nobody helps.
const NO_COPIES: &str = "
about: a
look_for: b
fleet:
  agents: [{count: 8, straggler: [0.05, 20.0]}]
  tasks: [{count: 80000, work: {uniform: [0.8, 1.2]}, speculate: true, arrivals: {poisson: 2.0}}]
  load_balancing:
    speculation: {straggler_ratio: 1000.0}
    self_tuning: {enabled: true, window_sec: 100}
";

#[test]
fn stragglers_that_nobody_copies_recover() {
    recovers(
        NO_COPIES,
        &["load_balancing.speculation.straggler_ratio=2.0"],
        response,
    );
}

/// How long tasks take from when they come to their end, of those that come once settings had time to recover.
#[derive(Default)]
struct Later {
    submitted: Vec<u64>,
    sum: f64,
    count: u64,
}

/// The tasks from this one on count.
const LATER: u64 = 40_000;

impl Observer for Later {
    fn see(&mut self, now: u64, happening: &Happening) {
        match *happening {
            Happening::Submitted { task } if task >= LATER => {
                let place = (task - LATER) as usize;
                let all = self.submitted.len().max(place + 1);
                self.submitted.resize(all, 0);
                self.submitted[place] = now;
            }
            Happening::Ended { task, .. } if task >= LATER => {
                self.sum += (now - self.submitted[(task - LATER) as usize]) as f64;
                self.count += 1;
            }
            _ => {}
        }
    }
}

/// As [`recovers`], by how long the later tasks take, within so many times the good one; before that, much of what came
/// waited as the setting says.
fn recovers_later(scenario: &str, good: &str, within: f64) {
    let late = |changes: &[&str]| {
        let mut later = Later::default();
        let outcome = watched(scenario, 7, changes, &mut later);
        assert!(later.count > 10_000, "{}", later.count);
        (later.sum / later.count as f64, story(&outcome))
    };
    let ((bad, _), (good, _), (now, story)) = (late(&[OFF]), late(&[OFF, good]), late(&[]));
    assert!(bad > 1.2 * good, "the setting is bad: {bad} {good}");
    assert!(
        now < within * good,
        "{} of the good one\n{story}",
        now / good
    );
}

/// Everything comes to one agent, and the others take from it only what is beyond 64 tasks: the rest waits for long. As
/// many tasks finish as come, all the same.
const LATE_HELP: &str = "
about: a
look_for: b
fleet:
  agents: [{count: 8}]
  tasks: [{count: 80000, work: {exponential: 1.0}, onto: 0, arrivals: {poisson: 5.0}}]
  load_balancing:
    thresholds: {busy_threshold: 64}
    work_stealing: {steal_below_busy: false}
    self_tuning: {enabled: true, window_sec: 60}
";

#[test]
fn help_that_comes_too_late_recovers() {
    recovers_later(
        LATE_HELP,
        "load_balancing.thresholds.busy_threshold=2",
        1.05,
    );
}

/// Nobody takes anything by himself, and what came to one agent is spread every ten minutes.
const RARE_REBALANCING: &str = "
about: a
look_for: b
fleet:
  agents: [{count: 8}]
  tasks: [{count: 90000, work: {fixed: 1.0}, onto: 0, arrivals: {poisson: 1.2}}]
  load_balancing:
    strategy: push
    thresholds: {rebalance_interval_sec: 600}
    work_stealing: {max_steal_per_cycle: 64}
    self_tuning: {enabled: true, window_sec: 300}
";

/// Tasks that waited for a quarter of an hour and more wait for seconds. It does not come within 5 % yet: from 30 seconds on,
/// what piled up before makes the pairs of a trial too different for a further step to be certain.
#[test]
fn rebalancing_that_is_too_rare_nearly_recovers() {
    recovers_later(
        RARE_REBALANCING,
        "load_balancing.thresholds.rebalance_interval_sec=1",
        2.0,
    );
}

#[test]
fn good_settings_stay() {
    for (scenario, good, cost) in [
        (
            NO_BACKLOG,
            "load_balancing.prefetch.max_depth=256",
            makespan as fn(&_) -> _,
        ),
        (
            NO_COPIES,
            "load_balancing.speculation.straggler_ratio=2.0",
            response,
        ),
    ] {
        let (alone, tuned) = (
            outcome(scenario, 3, &[good, OFF]),
            outcome(scenario, 3, &[good]),
        );
        assert!(tuned.tuning.len() > 4, "it tries: {}", story(&tuned));
        let ratio = cost(&tuned) / cost(&alone);
        assert!(ratio < 1.02, "{ratio}\n{}", story(&tuned));
        assert_eq!(kept(&tuned), [], "{}", story(&tuned));
    }
}

/// Load that goes up and down, with a period that windows do not see.
const SWINGING: &str = "
about: a
look_for: b
fleet:
  agents: [{count: 8, slots: 2}]
  tasks:
    - count: 60000
      work: {exponential: 1.0}
      arrivals: {bursty: {rate: 3.0, burst_rate: 17.0, every: 130.0, lasting: 50.0}}
  load_balancing:
    self_tuning: {enabled: true, window_sec: 60}
";

#[test]
fn load_that_swings_does_not_make_settings_swing() {
    for seed in 1..=3 {
        let alone = outcome(SWINGING, seed, &[OFF]);
        let tuned = outcome(SWINGING, seed, &[]);
        let tried = |step: &Step| matches!(step.what, What::Tried { .. });
        let trials = tuned.tuning.iter().filter(|(_, step)| tried(step)).count();
        assert!(trials > 4, "it tries: {}", story(&tuned));
        // No setting goes to and fro.
        let kept = kept(&tuned);
        for (setting, from, to) in &kept {
            let back = |(other, _, back): &&(Setting, f64, f64)| other == setting && back == from;
            assert_eq!(kept.iter().find(back), None, "{to}\n{}", story(&tuned));
        }
        assert!(kept.len() <= 1, "{}", story(&tuned));
        let ratio = response(&tuned) / response(&alone);
        assert!(ratio < 1.05, "{ratio}\n{}", story(&tuned));
    }
}

#[test]
fn the_same_seed_tunes_the_same() {
    let changes = ["tasks.0.count=8000"];
    let two = [0, 1].map(|_| outcome(NO_COPIES, 5, &changes));
    assert!(!two[0].tuning.is_empty());
    assert_eq!(two[0].tuning, two[1].tuning);
    assert_eq!(makespan(&two[0]), makespan(&two[1]));
}
