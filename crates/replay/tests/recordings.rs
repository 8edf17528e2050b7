//! Journals that were written in virtual time, read as workloads: what is predicted must be what happened.

mod virtual_server;

use loxley_balance::advice::Strategy;
use loxley_engine::{cut, replay_exactly};
use loxley_journal::MemoryJournal;
use loxley_model::{Failure, Outcome, Span, Time};
use loxley_policy::Config;
use loxley_replay::{Figure, Impossible, Known, ReadError, Recording, WhatIf, advise, simulate};
use virtual_server::{MS, Step, array, recorded, recording};

const NO_SKILLS: &[&str] = &[];

/// Durations that are all different, in milliseconds.
fn heavy_tailed(task: u64) -> u64 {
    let chance = task.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    50 + chance % 100 + if chance.is_multiple_of(13) { 900 } else { 0 }
}

fn always(task: u64, _: u32, _: &str) -> (u64, Outcome) {
    (heavy_tailed(task), Outcome::Succeeded)
}

fn makespan(recording: &Recording, what_if: &WhatIf) -> f64 {
    let run = simulate(recording, what_if, 0).expect("it can be run");
    run.figures.get(Figure::Makespan)
}

/// By which share the makespan as recorded is off.
fn error(recording: &Recording) -> f64 {
    let real = recording.figures().get(Figure::Makespan);
    makespan(recording, &WhatIf::as_recorded()) / real - 1.0
}

#[test]
fn what_happened_is_what_is_simulated() {
    let steps = vec![
        (0, Step::Join("a", 2, NO_SKILLS)),
        (0, Step::Join("b", 1, NO_SKILLS)),
        (10, Step::Submit(array("work", 60, |_| {}))),
        (900, Step::Submit(array("more", 30, |_| {}))),
    ];
    let recording = recording(&Config::default(), steps, &always);
    assert_eq!((recording.task_count(), recording.agent_count()), (90, 2));
    let error = error(&recording);
    assert!(error.abs() < 0.01, "{error}");
    let real = recording.figures();
    let again = simulate(&recording, &WhatIf::as_recorded(), 0)
        .unwrap()
        .figures;
    for figure in [Figure::MeanWait, Figure::P99Wait, Figure::Utilization] {
        let (real, again) = (real.get(figure), again.get(figure));
        assert!(
            (again / real - 1.0).abs() < 0.03,
            "{figure:?}: {again} and {real}"
        );
    }
}

#[test]
fn edges_waits_failures_and_retries_come_along() {
    let mut graph = array("first", 6, |task| {
        task.name = Some("first".to_owned());
        task.retry.retries = 3;
        task.retry.base_sec = 0.05;
    });
    let second = array("second", 6, |task| {
        task.name = Some("second".to_owned());
        task.depends_on = vec!["first".to_owned()];
        task.retry.retries = 3;
        task.retry.base_sec = 0.05;
    });
    graph.tasks.extend(second.tasks);
    let mut later = array("later", 4, |_| {});
    later.after = vec![loxley_model::JobId(1)];
    let steps = vec![
        (0, Step::Join("a", 2, NO_SKILLS)),
        (5, Step::Submit(graph)),
        (6, Step::Submit(later)),
    ];
    let flaky = |task: u64, attempt: u32, _: &str| match (task % 5, attempt) {
        (0, 1) => (30, Outcome::Failed(Failure::Error)),
        _ => (heavy_tailed(task), Outcome::Succeeded),
    };
    let recording = recording(&Config::default(), steps, &flaky);
    assert_eq!(recording.task_count(), 16);
    // Retries wait for a time that chance has a part in.
    let error = error(&recording);
    assert!(error.abs() < 0.1, "{error}");
    let run = simulate(&recording, &WhatIf::as_recorded(), 0).unwrap();
    let pairs = run.trace.tasks.iter().zip(&recording.actual().tasks);
    assert!(pairs.clone().all(|(one, real)| one.ok == real.ok));
    assert!(
        pairs.clone().any(|(one, _)| !one.ok),
        "one without a second chance"
    );
    let first_end = run.trace.tasks[..12]
        .iter()
        .filter_map(|task| task.ended)
        .max();
    let later = run.trace.tasks[12..].iter().filter_map(|task| task.started);
    let later = later.map(|(at, _)| at).min();
    assert!(
        later >= first_end,
        "a job that waits for another: {later:?} {first_end:?}"
    );
}

#[test]
fn agents_that_come_late_are_lost_and_leave_do_so_again() {
    let steps = vec![
        (0, Step::Join("a", 2, NO_SKILLS)),
        (0, Step::Join("b", 2, NO_SKILLS)),
        (1, Step::Submit(array("work", 120, |_| {}))),
        (1_500, Step::Die("b")),
        (2_000, Step::Join("c", 2, NO_SKILLS)),
    ];
    let mut config = Config::default();
    config.heartbeats.suspect_after = Span::from_secs(2);
    config.heartbeats.lost_after = Span::from_secs(3);
    let recording = recording(&config, steps, &always);
    let error = error(&recording);
    assert!(error.abs() < 0.05, "{error}");
    let without = makespan(&recording, &WhatIf::without("c"));
    let real = recording.figures().get(Figure::Makespan);
    assert!(without > real * 1.2, "{without} {real}");
}

#[test]
fn speeds_are_found_in_what_tasks_of_a_kind_took() {
    let steps = vec![
        (0, Step::Join("fast", 1, NO_SKILLS)),
        (0, Step::Join("slow", 1, NO_SKILLS)),
        (1, Step::Submit(array("work", 100, |_| {}))),
    ];
    let slow = |task: u64, _: u32, agent: &str| {
        let factor = if agent == "slow" { 3 } else { 1 };
        (factor * (90 + task % 20), Outcome::Succeeded)
    };
    let recording = recording(&Config::default(), steps, &slow);
    assert!(recording.notes().iter().any(|note| note.contains("speeds")));
    let error = error(&recording);
    assert!(error.abs() < 0.05, "{error}");
    // One of the two alone: the fast one needs a third of what the slow one does.
    let fast = makespan(&recording, &WhatIf::without("slow"));
    let slow = makespan(&recording, &WhatIf::without("fast"));
    assert!((slow / fast - 3.0).abs() < 0.3, "{slow} {fast}");
}

#[test]
fn what_was_cancelled_is_drawn_from_its_like_and_said() {
    let steps = vec![
        (0, Step::Join("a", 1, NO_SKILLS)),
        (1, Step::Submit(array("work", 20, |_| {}))),
        (2, Step::Submit(array("work", 20, |_| {}))),
        (1_000, Step::CancelJob(1)),
    ];
    let recording = recording(&Config::default(), steps, &always);
    let notes = recording.notes().join("; ");
    assert!(notes.contains("of their kind"), "{notes}");
    let error = error(&recording);
    assert!(error.abs() < 0.1, "{error}");
    // With a second agent more of it is done before it is cancelled, and all of it ends sooner.
    let two = makespan(&recording, &WhatIf::agents("+1").unwrap());
    assert!(two < recording.figures().get(Figure::Makespan), "{two}");
}

#[test]
fn more_agents_help_and_more_load_hurts() {
    let steps = vec![
        (0, Step::Join("a", 2, NO_SKILLS)),
        (1, Step::Submit(array("work", 100, |_| {}))),
    ];
    let recording = recording(&Config::default(), steps, &always);
    let real = makespan(&recording, &WhatIf::as_recorded());
    let more = makespan(&recording, &WhatIf::agents("+1").unwrap());
    assert!((more / real - 0.5).abs() < 0.1, "{more} {real}");
    let load = makespan(&recording, &WhatIf::load("x2").unwrap());
    assert!((load / real - 2.0).abs() < 0.1, "{load} {real}");
    let both = WhatIf::agents("+1")
        .unwrap()
        .and(WhatIf::load("x2").unwrap());
    assert!((makespan(&recording, &both) / real - 1.0).abs() < 0.1);
}

#[test]
fn a_fleet_that_cannot_do_the_work_is_said_so() {
    let steps = vec![
        (0, Step::Join("a", 1, &["gpu"])),
        (0, Step::Join("b", 1, NO_SKILLS)),
        (
            1,
            Step::Submit(array("work", 8, |task| {
                task.skills = vec!["gpu".to_owned()];
            })),
        ),
    ];
    let recording = recording(&Config::default(), steps, &always);
    let error = simulate(&recording, &WhatIf::without("gpu"), 0).unwrap_err();
    assert!(
        matches!(
            error,
            Impossible::LeftOver {
                left: 8,
                all: 8,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("gpu"), "{error}");
    let error = simulate(&recording, &WhatIf::without("nobody"), 0).unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
}

#[test]
fn an_empty_journal_is_said_to_be_empty() {
    let nothing = recorded(
        &Config::default(),
        vec![(0, Step::Join("a", 1, NO_SKILLS))],
        &always,
    );
    for mut journal in [MemoryJournal::new(), nothing] {
        let error = Recording::read(&mut journal).unwrap_err();
        assert!(matches!(error, ReadError::Empty), "{error}");
    }
}

#[test]
fn seeds_are_deterministic_and_differ() {
    let steps = vec![
        (0, Step::Join("a", 2, NO_SKILLS)),
        (1, Step::Submit(array("work", 40, |_| {}))),
    ];
    let recording = recording(&Config::default(), steps, &always);
    let run = |seed| {
        let run = simulate(&recording, &WhatIf::as_recorded(), seed).unwrap();
        run.figures.get(Figure::Makespan)
    };
    assert_eq!(run(3).to_bits(), run(3).to_bits());
    assert_ne!(run(3).to_bits(), run(4).to_bits());
}

#[test]
fn a_part_is_a_journal_and_an_anonymous_one_has_no_names() {
    let mut job = array("secret-command", 40, |task| {
        task.skills = vec!["secret-skill".to_owned()];
    });
    job.name = Some("secret-job".to_owned());
    let steps = vec![
        (0, Step::Join("secret-agent", 2, &["secret-skill"])),
        (1, Step::Submit(job)),
        (500, Step::Submit(array("secret-other", 10, |_| {}))),
    ];
    let mut journal = recorded(&Config::default(), steps, &always);
    let whole = Recording::read(&mut journal).unwrap();
    for (from, anonymous) in [(0, true), (700, true), (700, false)] {
        let mut part = MemoryJournal::new();
        let from = Time(from * MS);
        let cut = cut(&mut journal, &mut part, from, Time::MAX, anonymous).unwrap();
        assert!(cut.same_decisions);
        let again = replay_exactly(&mut part).unwrap();
        assert!(again.differs.is_none() && again.decisions > 0);
        let text = format!("{part:?}");
        let holds = |name: &str| {
            let bytes: Vec<String> = name.bytes().map(|byte| byte.to_string()).collect();
            text.contains(&bytes.join(", "))
        };
        assert_eq!(holds("secret"), !anonymous, "from {from:?}");
        let recording = Recording::read(&mut part).unwrap();
        assert!(recording.task_count() <= whole.task_count());
        let error = error(&recording);
        assert!(error.abs() < 0.05, "from {from:?}: {error}");
    }
    let mut part = MemoryJournal::new();
    let late = Time(u64::MAX / 2);
    assert!(cut(&mut journal, &mut part, late, Time::MAX, false).is_err());
}

#[test]
fn another_decision_is_named() {
    let steps = vec![
        (0, Step::Join("a", 1, NO_SKILLS)),
        (0, Step::Join("b", 1, NO_SKILLS)),
        (1, Step::Submit(array("work", 20, |_| {}))),
    ];
    let mut journal = recorded(&Config::default(), steps, &always);
    let exact = replay_exactly(&mut journal).unwrap();
    assert!(exact.differs.is_none() && exact.decisions >= 20);
    // One digest is another: as if the version that wrote it had decided otherwise.
    let mut changed = MemoryJournal::new();
    use loxley_journal::{Group, Journal, Limit, Position};
    let mut position = Position::START;
    for stored in journal.read(Position::START, Limit::default()).unwrap() {
        let mut facts = stored.facts.clone();
        if stored.position.0 >= 4 {
            let last = facts.len() - 1;
            facts[last] ^= 1;
        }
        let group = Group {
            facts,
            fact_count: stored.fact_count,
            ..Group::default()
        };
        position = changed.append(position, &group).unwrap();
    }
    let exact = replay_exactly(&mut changed).unwrap();
    let differs = exact.differs.expect("a digest was changed");
    assert_eq!(differs.position, Position(4));
    assert!(
        Recording::read(&mut changed).is_err(),
        "and it is no workload"
    );
}

#[test]
fn the_advice_is_of_the_work_and_the_workers_that_were_recorded() {
    // Alike on equal agents: nothing to take into account.
    let steps = vec![
        (0, Step::Join("a", 2, NO_SKILLS)),
        (0, Step::Join("b", 2, NO_SKILLS)),
        (10, Step::Submit(array("work", 80, |_| {}))),
    ];
    let alike = recording(&Config::default(), steps, &|_, _, _| {
        (100, Outcome::Succeeded)
    });
    let advice = advise(&alike, &Known::default()).unwrap();
    assert_eq!(advice.division.strategy, Strategy::EqualChunks);
    assert_eq!(
        advice.division.evidence.parts, 4,
        "as many as there are slots"
    );
    assert_eq!(advice.workers, None);
    assert!(
        (advice.division.evidence.mean - 0.1).abs() < 0.01,
        "in seconds"
    );

    // One agent is ten times slower, and did enough for that to be told from noise: it is noticed, and the costs are those of a normal one.
    let steps = vec![
        (0, Step::Join("fast", 2, NO_SKILLS)),
        (0, Step::Join("slow", 1, NO_SKILLS)),
        (10, Step::Submit(array("work", 300, |_| {}))),
    ];
    let slow = |task: u64, _: u32, agent: &str| {
        let factor = if agent == "slow" { 10 } else { 1 };
        ((100 + task % 3) * factor, Outcome::Succeeded)
    };
    let unequal = recording(&Config::default(), steps, &slow);
    let advice = advise(&unequal, &Known::default()).unwrap();
    let workers = advice.workers.expect("they are unequal");
    assert!(
        workers.reasons[0].contains("workers are unequal"),
        "{workers}"
    );
    assert!(
        advice.division.evidence.largest < 0.3,
        "a slow agent does not make tasks large: {}",
        advice.division.evidence
    );
    let few = Known {
        parts: Some(7),
        ..Known::default()
    };
    let advice = advise(&unequal, &few).unwrap();
    assert_eq!((advice.division.evidence.parts, advice.workers), (7, None));
}

#[test]
fn a_stream_of_two_kinds_is_seen_to_be_one() {
    let mut steps = vec![(0, Step::Join("a", 2, NO_SKILLS))];
    for number in 0..12 {
        let command = if number % 2 == 0 { "short" } else { "long" };
        steps.push((10 + number * 200, Step::Submit(array(command, 4, |_| {}))));
    }
    let took = |task: u64, _: u32, _: &str| {
        let is_long = (task - 1) / 4 % 2 == 1;
        (
            if is_long { 300 } else { 20 } + task % 5,
            Outcome::Succeeded,
        )
    };
    let recording = recording(&Config::default(), steps, &took);
    let advice = advise(&recording, &Known::default()).unwrap();
    let notes = advice.notes.join("; ");
    assert!(
        notes.contains("a stream: tasks came at 12 moments"),
        "{notes}"
    );
}
