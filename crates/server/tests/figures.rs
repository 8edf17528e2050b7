//! How balanced work was, and what became of single tasks: what a server tells those who ask.

mod support;

use std::time::Duration;

use loxley_api::{
    DependencyFailure, Explanation, FallbackRequest, JobRequest, JobState, TaskRequest, TaskState,
};
use loxley_model::TaskId;
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
