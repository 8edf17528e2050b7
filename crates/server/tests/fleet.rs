//! Server and agents over loopback: what users are promised.

mod support;

use std::time::{Duration, Instant};

use loxley_agent::AgentError;
use loxley_api::{
    AgentState, ErrorCode, JobState, RetryRequest, Role, TaskRequest, TaskState, TokenRequest,
};
use loxley_engine::replay;
use loxley_journal::{Options, SqliteJournal};
use loxley_model::{Span, TaskId};
use loxley_policy::{Config, Selection};
use loxley_server::ServerOptions;
use support::{TestAgent, TestServer, array, command, function, job};

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_with_their_surroundings_and_leave_their_output() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let agent = server.agent("a", 2);
    let line =
        "echo $LOXLEY_JOB_ID $LOXLEY_TASK_ID $LOXLEY_ENTRY $LOXLEY_ATTEMPT; echo bad >&2; exit 3";
    let shell = array(command(&["sh", "-c", line, "{#}"]), 3);
    let accepted = server.handle.submit(&shell, "me").await.unwrap();
    let ended = server.over(accepted.id).await;
    assert_eq!((ended.state, ended.tasks.failed), (JobState::Failed, 3));
    for position in 0..3 {
        let id = TaskId(accepted.first_task.0 + position);
        let output = server.handle.output(id).await.unwrap();
        let expected = format!("{} {} {} 1\n", accepted.id.0, id.0, position + 1);
        assert_eq!((output.stdout, output.stderr.as_str()), (expected, "bad\n"));
        let task = server.handle.task(id).await.unwrap();
        assert_eq!(task.does[3], (position + 1).to_string());
        assert_eq!(
            (task.state, task.agent.as_deref()),
            (TaskState::Failed, Some("a"))
        );
        let last = task.last.unwrap();
        assert_eq!(
            (last.exit_code, last.failure.as_deref()),
            (Some(3), Some("error"))
        );
        assert!(last.usage.unwrap().memory_max_bytes > 0);
    }
    let page = server
        .handle
        .tasks(accepted.id, Default::default())
        .await
        .unwrap();
    assert_eq!((page.items.len(), page.next), (3, None));
    agent.stopper.drain();
    agent.ended().await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_says_how_its_machine_is_and_how_it_keeps_limits() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 1);
    let mut info = None;
    while info.is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let agents = server.handle.agents().await.unwrap();
        // The first heartbeat comes after the hello.
        info = agents
            .into_iter()
            .find(|agent| agent.vitals.get("memory_available_bytes") > Some(&0.0));
    }
    let info = info.unwrap();
    assert!(info.vitals.contains_key("load"), "{:?}", info.vitals);
    let pressure = std::fs::read("/proc/pressure/cpu").is_ok();
    assert_eq!(info.vitals.contains_key("cpu_pressure"), pressure);
    let [limits, ends] = info.notes.as_slice() else {
        panic!("two notes: {:?}", info.notes);
    };
    assert!(
        limits.starts_with("memory limits are limits of"),
        "{limits}"
    );
    assert!(ends.contains("tasks go on to their end"), "{ends}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_keeps_ends_back_says_so_before_its_next_heartbeat() {
    let scratch = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.heartbeats.suspect_after = Span::from_secs(600);
    config.heartbeats.lost_after = Span::from_secs(1200);
    let server = TestServer::start_with(ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        config,
        ..ServerOptions::new(scratch.path().to_owned())
    })
    .await;
    let _agent = server.agent("a", 1);
    // The first heartbeats come by themselves, one right after the other.
    tokio::time::sleep(Duration::from_millis(500)).await;
    // What it says of the way to it and back has that time in it.
    let slowest = async || {
        let agents = server.handle.agents().await.unwrap();
        let times = agents.iter().filter_map(|agent| agent.round_trip_sec);
        times.fold(0.0, f64::max)
    };
    let before = slowest().await;
    let many = array(function("echo", b""), 1_000_000);
    let accepted = server.handle.submit(&many, "me").await.unwrap();
    let told = async {
        loop {
            if slowest().await > before + 0.01 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(30), told).await;
    told.expect("the server hears how long ends are kept back");
    let all = Selection::Job(accepted.id);
    server.handle.cancel(all).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_take_bytes_and_return_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 2);
    let request = job(vec![
        function("echo", b"\0\xff bytes"),
        function("panic", b""),
        function("nobody has this", b""),
    ]);
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    let ended = server.over(accepted.id).await;
    assert_eq!((ended.tasks.succeeded, ended.tasks.failed), (1, 2));
    let first = accepted.first_task;
    assert_eq!(server.handle.result(first).await.unwrap(), b"\0\xff bytes");
    let why = |task: loxley_api::TaskInfo| task.last.and_then(|last| last.message).unwrap();
    let panicked = why(server.handle.task(TaskId(first.0 + 1)).await.unwrap());
    assert!(panicked.contains("on purpose"), "{panicked}");
    let missing = why(server.handle.task(TaskId(first.0 + 2)).await.unwrap());
    assert!(missing.contains("no function"), "{missing}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_kills_and_a_retry_tries_again() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 1);
    let flag = scratch.path().join("flag");
    let flaky = format!("[ -e {0} ] || {{ touch {0}; exit 1; }}", flag.display());
    let request = job(vec![
        TaskRequest {
            time_limit_sec: Some(0.2),
            ..command(&["sleep", "1000"])
        },
        TaskRequest {
            retry: RetryRequest {
                retries: 1,
                base_sec: 0.01,
                ..RetryRequest::default()
            },
            ..command(&["sh", "-c", &flaky])
        },
    ]);
    let begun = Instant::now();
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    let ended = server.over(accepted.id).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!((ended.tasks.succeeded, ended.tasks.failed), (1, 1));
    let slow = server.handle.task(accepted.first_task).await.unwrap();
    assert_eq!(slow.last.unwrap().failure.as_deref(), Some("time_limit"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_tried_again_by_hand_is_seen_as_it_ended_last() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 1);
    let flag = scratch.path().join("flag");
    let flaky = format!(
        "[ -e {0} ] || {{ touch {0}; echo no; exit 3; }}",
        flag.display()
    );
    let request = job(vec![command(&["sh", "-c", &flaky])]);
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    assert_eq!(server.over(accepted.id).await.state, JobState::Failed);
    let id = accepted.first_task;
    assert_eq!(server.handle.output(id).await.unwrap().stdout, "no\n");
    let failed = server.handle.task(id).await.unwrap().last.unwrap();
    assert_eq!(failed.exit_code, Some(3));
    server.handle.retry(vec![id]).await.unwrap();
    assert_eq!(server.over(accepted.id).await.state, JobState::Succeeded);
    // It printed nothing, so what it printed before is not shown; what it used is.
    let task = server.handle.task(id).await.unwrap();
    assert_eq!(task.state, TaskState::Succeeded);
    let last = task.last.unwrap();
    assert_eq!((last.exit_code, last.failure), (Some(0), None));
    let usage = last.usage.unwrap();
    assert!(usage.memory_max_bytes > 0 && usage.duration_sec > 0.0);
    assert_eq!(server.handle.output(id).await.unwrap().stdout, "");
    server.stop().await;
    assert_eq!(loxley_journal::check(scratch.path()).unwrap().findings, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cancelled_is_killed_with_its_children() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let agent = server.agent("a", 1);
    let pid = scratch.path().join("pid");
    let line = format!("sleep 1000 & echo $! > {}; wait", pid.display());
    let accepted = server
        .handle
        .submit(&job(vec![command(&["sh", "-c", &line])]), "me")
        .await
        .unwrap();
    let child = loop {
        if let Ok(text) = std::fs::read_to_string(&pid)
            && let Ok(child) = text.trim().parse::<u32>()
        {
            break child;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    server
        .handle
        .cancel(Selection::Job(accepted.id))
        .await
        .unwrap();
    assert_eq!(server.over(accepted.id).await.state, JobState::Cancelled);
    agent.stopper.drain();
    agent.ended().await.unwrap();
    let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    let is_gone = state.is_empty() || state.contains(") Z");
    assert!(is_gone, "{state}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_seen_while_a_task_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agent = server.agent("a", 1);
    let request = job(vec![command(&["sh", "-c", "echo begun; sleep 1000"])]);
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    let begun = Instant::now();
    loop {
        let output = server.handle.output(accepted.first_task).await.unwrap();
        if output.stdout == "begun\n" {
            break;
        }
        assert!(begun.elapsed() < support::PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let task = server.handle.task(accepted.first_task).await.unwrap();
    assert_eq!(task.state, TaskState::Running);
    server.handle.cancel(Selection::All).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_gets_nothing_and_a_role_no_more_than_its_own() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    for (role, may) in [
        (Role::Read, false),
        (Role::Submit, false),
        (Role::Agent, true),
    ] {
        let name = role.name().to_owned();
        let token = server
            .context
            .gate
            .create(&TokenRequest::new(&name, role))
            .unwrap();
        let mut options = server.options(role.name(), 1);
        options.access.token = token;
        let agent = TestAgent::start(options);
        if may {
            agent.stopper.drain();
            agent.ended().await.unwrap();
        } else {
            let refused = agent.ended().await.unwrap_err().to_string();
            assert!(refused.contains("does not allow"), "{refused}");
        }
    }
    let mut options = server.options("wrong", 1);
    options.access.token = loxley_api::Token::random();
    let refused = TestAgent::start(options)
        .ended()
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("refuses this agent"), "{refused}");
    let missing = server.handle.agent_named("wrong").await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_again_finds_its_agents_and_loses_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let address = server.access.url.trim_start_matches("https://").to_owned();
    let agents = [server.agent("a", 2), server.agent("b", 2)];
    let log = scratch.path().join("log");
    let line = format!("echo $LOXLEY_ENTRY >> {}; sleep 0.02", log.display());
    let request = array(command(&["sh", "-c", &line]), 200);
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.stop().await;
    // The agents finish what they have meanwhile.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let server = TestServer::start_at(scratch.path(), &address).await;
    let ended = server.over(accepted.id).await;
    assert_eq!(
        (ended.state, ended.tasks.succeeded),
        (JobState::Succeeded, 200)
    );
    let log = std::fs::read_to_string(&log).unwrap();
    let mut entries: Vec<u32> = log.lines().map(|line| line.parse().unwrap()).collect();
    entries.sort_unstable();
    assert!(
        entries == (1..=200).collect::<Vec<_>>(),
        "each once: {entries:?}"
    );
    for agent in agents {
        agent.stopper.drain();
        agent.ended().await.unwrap();
    }
    server.stop().await;
    let mut journal = SqliteJournal::open(scratch.path(), &Options::default())
        .unwrap()
        .journal;
    let replayed = replay(&mut journal).unwrap();
    assert_eq!(replayed.counts.finished, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_agent_finishes_what_it_has_and_ends_and_a_stopped_one_gives_it_up() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let first = server.agent("a", 1);
    let request = array(command(&["sleep", "0.2"]), 4);
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let id = server.handle.agent_named("a").await.unwrap();
    server.handle.drain_agent(id).await.unwrap();
    first.ended().await.unwrap();
    let done = server.handle.job(accepted.id).await.unwrap().tasks;
    assert!((1..4).contains(&done.succeeded), "{done:?}");
    let second = server.agent("b", 1);
    let long = server
        .handle
        .submit(&job(vec![command(&["sleep", "1000"])]), "me")
        .await
        .unwrap();
    assert_eq!(server.over(accepted.id).await.state, JobState::Succeeded);
    while server.handle.task(long.first_task).await.unwrap().state != TaskState::Running {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let id = server.handle.agent_named("b").await.unwrap();
    server.handle.stop_agent(id).await.unwrap();
    second.ended().await.unwrap();
    let task = server.handle.task(long.first_task).await.unwrap();
    assert_eq!(task.state, TaskState::Held, "nobody is left to do it");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_and_a_server_that_nobody_knows_are_errors() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let first = server.agent("twin", 1);
    while server.handle.agent_named("twin").await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let Err(AgentError::Refused(why)) = server.agent("twin", 1).ended().await else {
        panic!("two of one name");
    };
    assert!(why.contains("`twin` is connected"), "{why}");
    // A label of more than 63 letters is in no directory, and no network is asked for it.
    let mut options = server.options("lost", 1);
    options.access.url = format!("https://{}.invalid:7420", "a".repeat(64));
    let ended = TestAgent::start(options).ended().await;
    let Err(AgentError::Unknown { host, .. }) = ended else {
        panic!("it was found: {ended:?}");
    };
    assert!(host.ends_with(".invalid"));
    first.stopper.stop();
    first.ended().await.unwrap();
    // It ended as it was told to, which is not being lost.
    let state = async || server.handle.agents().await.unwrap()[0].state;
    while state().await != AgentState::Left {
        assert_ne!(state().await, AgentState::Lost);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.stop().await;
}
