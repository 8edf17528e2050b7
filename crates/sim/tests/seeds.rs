//! Seeded storms over the real scheduler [X7]. A failure prints one line that reproduces it.

use std::collections::BTreeMap;
use std::ops::Range;

use loxley_balance::Rng;
use loxley_sim::checkers::FleetCheckers;
use loxley_sim::{EventLog, storm};

/// Seeds that found something once, each with the sentence that explains it.
const KEPT: &str = include_str!("../seeds.txt");

fn kept_seeds() -> impl Iterator<Item = u64> {
    KEPT.lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
        .map(|line| line.parse().expect("seeds.txt holds one number per line"))
}

fn sweep(seeds: impl Iterator<Item = u64>) {
    let mut failures = Vec::new();
    for seed in seeds {
        if let Err(failure) = storm::run(seed, &mut ()) {
            failures.push(failure.to_string());
        }
    }
    assert!(
        failures.is_empty(),
        "{} storms failed:\n{}",
        failures.len(),
        failures[..failures.len().min(30)].join("\n")
    );
}

/// `LOXLEY_STORMS=5000..10000`: other seeds than those of a normal or a long run.
fn asked_for() -> Option<Range<u64>> {
    let text = std::env::var("LOXLEY_STORMS").ok()?;
    let (from, to) = text.split_once("..").expect("FROM..TO");
    Some(from.parse().expect("a seed")..to.parse().expect("a seed"))
}

#[test]
fn every_task_ends_once_in_every_storm() {
    let count = if std::env::var_os("LOXLEY_TEST_LONG").is_some() {
        20_000
    } else {
        200
    };
    sweep(asked_for().unwrap_or(0..count));
}

/// A claim that holds only where nothing goes wrong is worth nothing if there is always something that does.
#[test]
fn every_claim_is_checked_in_some_of_the_storms() {
    let mut counts = BTreeMap::new();
    for seed in 0..200 {
        let setup = storm::setup(seed);
        let tasks = setup.tasks(&Rng::new(seed));
        for (claim, is_checked) in FleetCheckers::new(&setup, &tasks).conditional() {
            *counts.entry(claim).or_insert(0) += u32::from(is_checked);
        }
    }
    assert!(counts.values().all(|count| *count >= 5), "{counts:?}");
}

#[test]
fn seeds_that_found_something_stay_quiet() {
    sweep(kept_seeds());
}

#[test]
fn a_storm_can_be_repeated_to_the_last_byte() {
    for seed in 0..10 {
        let log = || {
            let mut log = EventLog::new(Vec::new());
            let _ = storm::run(seed, &mut log);
            log.finish().unwrap()
        };
        assert_eq!(log(), log(), "seed {seed}");
    }
}
