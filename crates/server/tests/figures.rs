//! How balanced work was, and what became of single tasks: what a server tells those who ask.

mod support;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::Path;
use std::time::Duration;

use loxley_api::{
    DependencyFailure, Explanation, FallbackRequest, JobRequest, JobState, SpanKind, TaskRequest,
    TaskState, TimelineFilter,
};
use loxley_engine::{AgentRecord, Engine, Fact, Finish, Flushed, Submission};
use loxley_journal::{Journal, SqliteJournal, Usage};
use loxley_model::{AgentId, Failure, Outcome, Priority, Span, TaskId, Time};
use loxley_policy::Config;
use support::{PATIENCE, TestServer, array, command, job};

fn named(name: &str, task: TaskRequest) -> TaskRequest {
    TaskRequest {
        name: Some(name.to_owned()),
        ..task
    }
}

fn after(name: &str, task: TaskRequest) -> TaskRequest {
    TaskRequest {
        depends_on: vec![name.to_owned()],
        ..task
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_and_the_fleet_have_their_figures() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agents = [server.agent("a", 1), server.agent("b", 1)];
    let request = array(command(&["sleep", "0.2"]), 8);
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    let ended = server.over(accepted.id).await;
    assert_eq!(ended.state, JobState::Succeeded);

    let figures = server.handle.job_figures(accepted.id).await.unwrap();
    let names: Vec<&str> = figures.balance.iter().map(|f| f.name.as_str()).collect();
    let expected = [
        "load imbalance",
        "straggler ratio",
        "worker utilization",
        "queue-depth variance",
    ];
    assert_eq!(names, expected);
    // Ends are heard a little late: no slot was ever busy for longer than there was time.
    let utilization = figures.balance[2].value.unwrap();
    assert!(utilization > 0.1 && utilization <= 1.0, "{figures:?}");
    assert!(figures.balance.iter().all(|figure| figure.value.is_some()));
    assert!(figures.balance[0].verdict != "unknown", "{figures:?}");
    assert_eq!(figures.tasks_ended, 8);
    assert!(
        figures.slots <= 2 && figures.task_mean_sec >= Some(0.2),
        "{figures:?}"
    );
    assert!(figures.tasks_per_sec > Some(0.0) && figures.assign_p99_sec.is_some());
    assert!(figures.steal_rate.is_some());

    let fleet = server.handle.figures().await.unwrap();
    assert_eq!((fleet.slots, fleet.tasks_ended), (2, 8));
    assert!(fleet.balance[3].value.is_some(), "{fleet:?}");
    assert!(fleet.idle_sec >= 0.0 && fleet.assign_p50_sec.is_some());
    server.stop().await;
}

async fn explained(server: &TestServer, task: TaskId) -> Explanation {
    server
        .handle
        .explain(task)
        .await
        .expect("the task is known")
}

fn says(explanation: &Explanation, place: &str, command: &str) {
    assert!(explanation.place.contains(place), "{explanation:?}");
    let names = |remedy: &String| remedy.contains(command);
    assert!(explanation.remedies.iter().any(names), "{explanation:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_over_says_what_happened_and_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 2);
    let failing = || named("first", command(&["sh", "-c", "exit 3"]));
    let graph = |rule| JobRequest {
        on_dependency_failure: rule,
        ..job(vec![
            failing(),
            after("first", named("second", command(&["true"]))),
        ])
    };
    let fails = graph(DependencyFailure::Fail);
    let fails = server.handle.submit(&fails, "me").await.unwrap();
    server.over(fails.id).await;
    let (first, second) = (fails.first_task, TaskId(fails.first_task.0 + 1));
    let failed = explained(&server, first).await;
    says(
        &failed,
        "failed on `a`",
        &format!("`loxley task retry {}`", first.0),
    );
    says(
        &failed,
        "exit code 3",
        &format!("`loxley task logs {}`", first.0),
    );
    let dependent = explained(&server, second).await;
    let culprit = format!("task {} did not succeed", first.0);
    says(
        &dependent,
        &culprit,
        &format!("`loxley task explain {}`", first.0),
    );

    let skips = graph(DependencyFailure::Skip);
    let skips = server.handle.submit(&skips, "me").await.unwrap();
    server.over(skips.id).await;
    let skipped = explained(&server, TaskId(skips.first_task.0 + 1)).await;
    assert_eq!(skipped.state, TaskState::Cancelled);
    says(&skipped, "was skipped", "submit the job again");

    let held = TaskRequest {
        skills: vec!["juggling".to_owned()],
        hold_limit_sec: Some(0.05),
        ..command(&["true"])
    };
    let held = server.handle.submit(&job(vec![held]), "me").await.unwrap();
    server.over(held.id).await;
    let given_up = explained(&server, held.first_task).await;
    says(
        &given_up,
        "hold limit of",
        "`loxley agent start --skills juggling`",
    );

    let slow = TaskRequest {
        time_limit_sec: Some(0.1),
        fallback: Some(FallbackRequest::Value(loxley_api::Blob(b"plan b".to_vec()))),
        ..command(&["sleep", "600"])
    };
    let slow = server.handle.submit(&job(vec![slow]), "me").await.unwrap();
    server.over(slow.id).await;
    says(
        &explained(&server, slow.first_task).await,
        "its fallback stood in",
        "time_limit",
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn remedies_name_the_command_that_does_them() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 2);
    let mut limited = array(
        TaskRequest {
            group: Some("disk".to_owned()),
            ..command(&["sleep", "600"])
        },
        30,
    );
    limited.limits.insert("disk".to_owned(), 1);
    let limited = server.handle.submit(&limited, "me").await.unwrap();
    let convoy = async {
        loop {
            let health = server.handle.health().await.unwrap();
            if let Some(convoy) = health.problems.iter().find(|p| p.kind == "convoy") {
                return convoy.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let convoy = tokio::time::timeout(PATIENCE, convoy).await;
    let convoy = convoy.expect("tasks wait behind their group");
    assert!(convoy.message.contains("`disk`"), "{convoy:?}");
    assert!(
        convoy.remedies[0].contains("loxley submit --limit"),
        "{convoy:?}"
    );
    let last = explained(&server, limited.last_task).await;
    let raises = |remedy: &String| remedy.contains("`loxley submit --limit disk=2 -- true`");
    assert!(last.remedies.iter().any(raises), "{last:?}");
    // What it names does it: two of the group run at once.
    let mut raise = job(vec![command(&["true"])]);
    raise.limits.insert("disk".to_owned(), 2);
    server.handle.submit(&raise, "me").await.unwrap();
    let running = async {
        while server.handle.job(limited.id).await.unwrap().tasks.running < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let running = tokio::time::timeout(PATIENCE, running).await;
    running.expect("the limit was raised");
    let all = loxley_policy::Selection::Job(limited.id);
    server.handle.cancel(all).await.unwrap();
    server.over(limited.id).await;
    server.stop().await;
}

/// Writes the journal that a fleet of eight leaves behind after so many tasks of a millisecond, every hundredth of which
/// failed at first: as a server would have, in virtual time. Returns how many failed.
fn write_journal(directory: &Path, tasks: u64) -> u64 {
    let opened = SqliteJournal::open(directory, &loxley_journal::Options::default());
    let mut journal = opened.expect("it is new").journal;
    let mut engine = Engine::open(&mut journal, 0).expect("it is empty");
    let mut config = Config::default();
    config.heartbeats.suspect_after = Span::MAX;
    let mut now = Time(1);
    engine.begin(now, &config);
    for number in 1..=8 {
        let record = AgentRecord {
            name: format!("agent {number}"),
            owner: String::new(),
            process: number,
            skills: Vec::new(),
            slots: 1,
            speed: 1.0,
            cpu_milli: 0,
            memory_bytes: 0,
            resources: Vec::new(),
            zone: None,
            holds: Vec::new(),
        };
        let joined = engine.record_and_apply(now, Fact::AgentJoined(Box::new(record)), None);
        joined.expect("it is the first of its name");
    }
    let mut task = command(&["true"]);
    task.retry.retries = 1;
    let request = Submission::new(array(task, tasks)).expect("it makes sense");
    let user = "me".to_owned();
    let accepted = engine.record_and_apply(now, Fact::JobSubmitted { request, user }, None);
    accepted.expect("it is accepted");
    // What agents will say, in the order of time: whether it began or ended, which attempt it was.
    let mut coming = BinaryHeap::new();
    let mut free: HashMap<AgentId, Time> = HashMap::new();
    let mut failed = 0;
    loop {
        let Flushed { group, effects } = engine.flush();
        if let Some(group) = group {
            let at = journal.next_position();
            journal.append(at, &group).expect("there is room");
        }
        for (agent, orders) in effects.orders {
            for asked in orders.retract {
                engine.yielded(now, agent, asked.task, asked.lease, false);
            }
            for given in orders.assign {
                let start = now.max(free.get(&agent).copied().unwrap_or(now));
                let end = start + Span::from_millis(1);
                free.insert(agent, end);
                for (at, is_end) in [(start, false), (end, true)] {
                    let lease = given.lease;
                    coming.push(Reverse((
                        at,
                        lease,
                        is_end,
                        agent,
                        given.task,
                        given.attempt,
                    )));
                }
            }
        }
        let next = coming.peek().map(|Reverse(next)| next.0);
        let Some(next) = next.into_iter().chain(engine.next_timer()).min() else {
            return failed;
        };
        if engine.open_jobs() == 0 {
            return failed;
        }
        now = now.max(next);
        engine.tick_if_due(now);
        while let Some(Reverse((at, lease, is_end, agent, task, attempt))) = coming.peek().copied()
            && at <= now
        {
            coming.pop();
            if !is_end {
                engine.started(now, agent, task, lease);
                continue;
            }
            let fails = attempt == 1 && task.0.is_multiple_of(100);
            failed += u64::from(fails);
            let outcome = match fails {
                true => Outcome::Failed(Failure::Error),
                false => Outcome::Succeeded,
            };
            let ran = Span::from_millis(1);
            let finish = Finish {
                usage: Usage {
                    duration: ran,
                    ..Usage::default()
                },
                ..Finish::default()
            };
            engine.finished(now, agent, task, lease, outcome, ran, finish);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_journal_opens_and_nothing_of_it_is_left_out() {
    let tasks = match std::env::var_os("LOXLEY_TEST_LONG") {
        Some(_) => 1_000_000,
        None => 6000,
    };
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().to_owned();
    let written = tokio::task::spawn_blocking(move || write_journal(&directory, tasks));
    let failed = written.await.unwrap();
    assert_eq!(failed, tasks / 100);
    let server = TestServer::start(scratch.path()).await;
    let ask = async |from_unix_ms: f64, to_unix_ms: f64, cursor| {
        let filter = TimelineFilter {
            from_unix_ms,
            to_unix_ms,
            columns: None,
            cursor,
        };
        server.handle.timeline(filter).await.unwrap()
    };
    let far = 4e12;
    // The journal is read for earlier attempts some at a time, and says so until it is through.
    while ask(0.0, far, None).await.attempts_pending {}
    let (mut seen, mut earlier, mut busy, mut added_up) = (0, 0, 0.0, 0);
    let (mut cursor, mut first) = (None, f64::MAX);
    loop {
        let part = ask(0.0, far, cursor).await;
        seen += part.tasks;
        earlier += part.earlier_attempts;
        added_up += part.spans_omitted;
        first = part.first_unix_ms.unwrap_or(first);
        let rows = part.agents.iter().flat_map(|agent| &agent.columns);
        busy += rows.map(|column| column.1 + column.2).sum::<f64>();
        let spans: usize = part.agents.iter().map(|agent| agent.spans.len()).sum();
        assert_eq!(part.spans_omitted == 0, spans > 0, "one or the other");
        cursor = part.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((seen, earlier), (tasks, failed));
    assert!(added_up > 0 && added_up <= seen + earlier, "{added_up}");
    // A millisecond each, but for what the window is cut into.
    let expected = (tasks + failed) as f64;
    assert!((busy / expected - 1.0).abs() < 0.01, "{busy} of {expected}");
    // Near enough, each is told by itself, those that failed at first with what became of them.
    let near = ask(first + 20.0, first + 60.0, None).await;
    assert_eq!((near.spans_omitted, near.agents.len()), (0, 8));
    let spans: Vec<_> = near.agents.iter().flat_map(|agent| &agent.spans).collect();
    assert_eq!(spans.len() as u64, near.tasks + near.earlier_attempts);
    let retried: Vec<_> = spans.iter().filter(|span| span.kind.is_some()).collect();
    assert!(!retried.is_empty(), "every hundredth of some 320");
    for span in retried {
        assert_eq!(span.kind, Some(SpanKind::Retried));
        assert_eq!((span.attempt, span.task.0 % 100), (1, 0));
        assert!(span.job.0 > 0, "whose it was is known");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_tells_waits_by_priority_shares_of_users_and_deadlines() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 2);
    let urgent = TaskRequest {
        priority: Priority::HIGHEST,
        deadline_sec: Some(600.0),
        ..command(&["true"])
    };
    let fails = TaskRequest {
        deadline_sec: Some(600.0),
        ..command(&["false"])
    };
    for (user, request) in [
        ("ada", job(vec![urgent])),
        ("grace", array(command(&["sleep", "0.1"]), 3)),
        ("grace", job(vec![fails])),
    ] {
        let accepted = server.handle.submit(&request, user).await.unwrap();
        server.over(accepted.id).await;
    }
    let figures = server.handle.figures().await.unwrap();
    let waits: Vec<(u8, u64)> = figures
        .waits
        .iter()
        .map(|waits| (waits.priority, waits.tasks))
        .collect();
    assert_eq!(waits, [(5, 1), (3, 4)]);
    assert!(
        figures
            .waits
            .iter()
            .all(|waits| waits.p50_sec <= waits.p99_sec)
    );
    let users: Vec<(&str, u64)> = figures
        .users
        .iter()
        .map(|share| (share.user.as_str(), share.tasks))
        .collect();
    assert_eq!(users, [("grace", 4), ("ada", 1)], "who had the most first");
    let shares: f64 = figures.users.iter().filter_map(|share| share.share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{figures:?}");
    // As the server saw it: a start is told a moment after it was.
    assert!(figures.users[0].busy_sec > 0.2, "{figures:?}");
    assert_eq!((figures.deadlines_met, figures.deadlines_missed), (1, 1));
    server.stop().await;
}
