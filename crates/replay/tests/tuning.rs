//! The search on journals of which the best setting is known, and on such where there is none.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]
#![expect(
    dead_code,
    reason = "not every test lets agents die or reads the journal itself"
)]

mod virtual_server;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use loxley_model::Outcome;
use loxley_policy::{Config, Strategy};
use loxley_replay::tune::{Measured, Objective, Search, TuneError, tune};
use loxley_replay::{Figure, Recording, WhatIf, simulate};
use loxley_sim::experiment::one_by_one;
use virtual_server::{Step, array, recording};

fn search(seed: u64, candidates: usize) -> Search {
    Search {
        objective: Objective::parse("makespan").unwrap(),
        candidates,
        seed,
        seeds: 16,
    }
}

/// Twelve jobs for one fast and one slow agent.
fn two_kinds_of_agents(config: &Config) -> Recording {
    let mut steps = vec![
        (0, Step::Join("a", 2, &[][..])),
        (0, Step::Join("b", 2, &[][..])),
    ];
    steps.extend((0..12).map(|n| (10 + n * 700, Step::Submit(array("work", 12, |_| {})))));
    recording(config, steps, &|task, _, agent| {
        let chance = task.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let tail = if chance.is_multiple_of(13) { 150 } else { 0 };
        let factor = if agent == "b" { 3 } else { 1 };
        (factor * (50 + chance % 100 + tail), Outcome::Succeeded)
    })
}

fn mean_wait(recording: &Recording, what_if: &WhatIf) -> f64 {
    let seeds = 1..9;
    let all = seeds.map(|seed| simulate(recording, what_if, seed).unwrap().figures);
    all.map(|figures| figures.get(Figure::MeanWait))
        .sum::<f64>()
        / 8.0
}

#[test]
fn a_bad_setting_is_found() {
    let bad = Config {
        strategy: Strategy::Push,
        ..Config::default()
    };
    let recording = two_kinds_of_agents(&bad);
    let best = mean_wait(&recording, &WhatIf::set("strategy=pull").unwrap());
    let was = mean_wait(&recording, &WhatIf::as_recorded());
    assert!(was > best * 1.2, "the setting is bad: {was} {best}");
    let mut measured = Measured::new();
    let stop = AtomicBool::new(false);
    let search = Search {
        objective: Objective::parse("mean_wait").unwrap(),
        ..search(5, 64)
    };
    let recordings = [recording];
    let tuned = tune(
        &recordings,
        &search,
        &mut measured,
        &one_by_one,
        &stop,
        &|_, _, _| {},
    );
    let tuned = tuned.unwrap();
    assert!(tuned.is_better(), "{tuned:?}");
    let found = WhatIf {
        set: tuned.keys.clone(),
        ..WhatIf::default()
    };
    let found = mean_wait(&recordings[0], &found);
    assert!(
        found < best * 1.02,
        "within 2 %: {found} {best}, {:?}",
        tuned.keys
    );
    assert_eq!(tuned.sensitivity.len(), tuned.keys.len());
}

#[test]
fn nothing_is_found_where_there_is_nothing() {
    // Equal tasks one after the other on equal agents: no setting makes them shorter.
    let tries = match std::env::var_os("LOXLEY_TEST_LONG") {
        Some(_) => 50,
        None => 4,
    };
    let steps = vec![
        (0, Step::Join("a", 1, &[][..])),
        (0, Step::Join("b", 1, &[][..])),
        (1, Step::Submit(array("work", 60, |_| {}))),
    ];
    let recordings = [recording(&Config::default(), steps, &|_, _, _| {
        (100, Outcome::Succeeded)
    })];
    let mut discoveries = 0;
    for seed in 0..tries {
        let mut measured = Measured::new();
        let stop = AtomicBool::new(false);
        let search = search(seed, 24);
        let tuned = tune(
            &recordings,
            &search,
            &mut measured,
            &one_by_one,
            &stop,
            &|_, _, _| {},
        );
        let tuned = tuned.unwrap();
        discoveries += usize::from(tuned.is_better() && tuned.gain.mean > 0.05);
    }
    assert_eq!(discoveries, 0, "of {tries} tries");
}

#[test]
fn a_search_that_was_stopped_says_so_and_goes_on() {
    let recordings = [two_kinds_of_agents(&Config::default())];
    let search = search(1, 16);
    let mut measured = Measured::new();
    let stop = AtomicBool::new(false);
    let seen = AtomicUsize::new(0);
    let stopped = tune(
        &recordings,
        &search,
        &mut measured,
        &one_by_one,
        &stop,
        &|_, _, _| {
            if seen.fetch_add(1, Ordering::Relaxed) == 4 {
                stop.store(true, Ordering::Relaxed);
            }
        },
    );
    assert!(!stopped.unwrap().is_complete);
    assert_eq!(measured.len(), 5, "what was measured is kept");
    let go_on = AtomicBool::new(false);
    let resumed = tune(
        &recordings,
        &search,
        &mut measured,
        &one_by_one,
        &go_on,
        &|_, _, _| {},
    );
    let resumed = resumed.unwrap();
    assert!(resumed.is_complete);
    let mut anew = Measured::new();
    let whole = tune(
        &recordings,
        &search,
        &mut anew,
        &one_by_one,
        &go_on,
        &|_, _, _| {},
    );
    let whole = whole.unwrap();
    assert_eq!(resumed.keys, whole.keys, "as one that was never stopped");
    assert_eq!(measured, anew);
    assert!(resumed.runs < whole.runs);
}

#[test]
fn a_journal_that_is_too_short_is_said_to_be() {
    let steps = vec![
        (0, Step::Join("a", 1, &[][..])),
        (1, Step::Submit(array("work", 5, |_| {}))),
    ];
    let recordings = [recording(&Config::default(), steps, &|_, _, _| {
        (10, Outcome::Succeeded)
    })];
    let stop = AtomicBool::new(false);
    let tuned = tune(
        &recordings,
        &search(1, 4),
        &mut Measured::new(),
        &one_by_one,
        &stop,
        &|_, _, _| {},
    );
    assert!(matches!(tuned, Err(TuneError::TooShort(5, _))));
}

/// Labels are shuffled: what each candidate measured is drawn at random, so the search is led astray, and the part that it
/// did not see has to say so. Durations are drawn anew in each try, all tasks and agents are alike, and no setting knows
/// which task is long.
#[test]
fn with_shuffled_labels_no_gain_is_reported() {
    const TRIES: u64 = 50;
    let mut discoveries = Vec::new();
    for seed in 0..TRIES {
        let mut rng = loxley_balance::Rng::new(seed);
        let durations: Vec<u64> = (0..160)
            .map(|_| (40.0 / (1.0 - 0.98 * rng.unit_f64())) as u64)
            .collect();
        let mut steps: Vec<(u64, Step)> = ["a", "b", "c", "d"]
            .map(|name| (0, Step::Join(name, 1, &[][..])))
            .into();
        steps.extend((0..16).map(|n| (10 + n * 300, Step::Submit(array("work", 10, |_| {})))));
        let recordings = [recording(&Config::default(), steps, &|task, _, _| {
            let at = task as usize % durations.len();
            (durations[at], Outcome::Succeeded)
        })];
        let mut measured = Measured::new();
        for rung in 0..3 {
            for candidate in 0..24 {
                let label = format!("{rung}/{candidate}");
                measured.insert(label, 0.8 + 0.4 * rng.unit_f64());
            }
        }
        let stop = AtomicBool::new(false);
        let tuned = tune(
            &recordings,
            &search(seed, 24),
            &mut measured,
            &one_by_one,
            &stop,
            &|_, _, _| {},
        );
        let tuned = tuned.unwrap();
        assert_eq!(tuned.runs, 0, "all scores are those that were given");
        if tuned.is_better() {
            discoveries.push((tuned.keys, tuned.gain));
        }
    }
    assert!(discoveries.len() as u64 * 20 <= TRIES, "{discoveries:?}");
}
