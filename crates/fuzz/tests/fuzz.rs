//! A short run of every target, the same every time; and everything that longer runs have found.

use std::time::Duration;

use loxley_fuzz::{Bound, TARGETS, drive};

/// `LOXLEY_FUZZ_SECONDS` has each target run for so long instead; `LOXLEY_FUZZ_SEED` names another seed.
#[expect(clippy::print_stdout, reason = "how far it got, for whoever asks")]
fn run(name: &str, inputs: u64) {
    let target = loxley_fuzz::target(name).expect("it is in the list");
    let seconds = std::env::var("LOXLEY_FUZZ_SECONDS");
    let bound = match seconds.ok().and_then(|text| text.parse().ok()) {
        Some(seconds) => Bound::Time(Duration::from_secs_f64(seconds)),
        None => Bound::Inputs(inputs),
    };
    let seed = std::env::var("LOXLEY_FUZZ_SEED");
    let seed = seed.ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let seen = drive(target, seed, bound);
    println!("{name}: {seen} inputs");
}

#[test]
fn frames() {
    run("frames", 300);
}

#[test]
fn http() {
    run("http", 400);
}

#[test]
fn job_files() {
    run("job_file", 1500);
}

#[test]
fn configurations() {
    run("config", 300);
}

#[test]
fn workloads() {
    run("workload", 3000);
}

#[test]
fn journals() {
    run("journal", 60);
}

#[test]
fn groups() {
    run("group", 2000);
}

#[test]
fn every_target_has_a_test_and_seeds() {
    let tested = [
        "frames", "http", "job_file", "config", "workload", "journal", "group",
    ];
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, tested);
    assert!(TARGETS.iter().all(|target| !(target.seeds)().is_empty()));
}

/// What a run once found: each was mended, and comes back here.
#[test]
fn what_was_found_stays_mended() {
    let found: [(&str, &[u8]); 1] = [
        // A tick at the end of time: the periodic alarms were due again as soon as they were set.
        (
            "group",
            b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\x00\x03\0\0\0\0\0\0\0\0",
        ),
    ];
    for (name, input) in found {
        (loxley_fuzz::target(name).expect("it is in the list").run)(input);
    }
}
