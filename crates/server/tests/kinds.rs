//! A kind of work is what a user would call the same work, never merely the same requirements.

mod support;

use std::time::Duration;

use loxley_api::{JobState, TaskRequest};
use support::{PATIENCE, TestServer, array, command, job};

/// A command that may be copied when it is slow.
fn copied_when_slow(words: &[&str]) -> TaskRequest {
    TaskRequest {
        speculate: true,
        ..command(words)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unrelated_command_is_not_slow_because_others_were_quick() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agents = [server.agent("a", 1), server.agent("b", 1)];
    let quick = array(copied_when_slow(&["true"]), 10);
    let quick = server.handle.submit(&quick, "me").await.unwrap();
    assert_eq!(server.over(quick.id).await.state, JobState::Succeeded);
    let before = server.handle.fleet().await.unwrap().speculations;
    let other = job(vec![copied_when_slow(&["sleep", "1.5"])]);
    let other = server.handle.submit(&other, "me").await.unwrap();
    assert_eq!(server.over(other.id).await.state, JobState::Succeeded);
    assert_eq!(server.handle.fleet().await.unwrap().speculations, before);
    server.stop().await;
}

/// What tells the test above from a server that never makes a copy.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_named_as_one_kind_is_compared() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agents = [server.agent("a", 1), server.agent("b", 1)];
    let of_kind = |words: &[&str]| TaskRequest {
        kind: Some("mail".to_owned()),
        ..copied_when_slow(words)
    };
    let quick = array(of_kind(&["true"]), 10);
    let quick = server.handle.submit(&quick, "me").await.unwrap();
    assert_eq!(server.over(quick.id).await.state, JobState::Succeeded);
    let slow = job(vec![of_kind(&["sleep", "600"])]);
    let slow = server.handle.submit(&slow, "me").await.unwrap();
    let copied = async {
        while server.handle.fleet().await.unwrap().speculations == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, copied)
        .await
        .expect("the slow one gets a second copy");
    let all = loxley_policy::Selection::Job(slow.id);
    server.handle.cancel(all).await.unwrap();
    server.over(slow.id).await;
    server.stop().await;
}
