//! What is in `deploy/monitoring` fits what a server says at `/metrics`.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use loxley_client::Client;
use loxley_server::{LogSwitch, ServerOptions};
use support::{PATIENCE, TestServer, array, command};

fn deploy(file: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/monitoring");
    PathBuf::from(folder).join(file)
}

/// Every word in a text that is the name of one of our figures.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("loxley_")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_in_rules_and_dashboard_is_one_of_the_servers() {
    let scratch = tempfile::tempdir().unwrap();
    let server = TestServer::start(scratch.path()).await;
    let _agents = [server.agent("a", 1), server.agent("b", 1)];
    let request = array(command(&["sleep", "0.05"]), 8);
    let accepted = server.handle.submit(&request, "me").await.unwrap();
    server.over(accepted.id).await;
    let client = Client::new(&server.access).unwrap();
    // Agents say how their machines are with their heartbeats.
    let page = tokio::time::timeout(PATIENCE, async {
        loop {
            let page = client.metrics().await.unwrap();
            if page.contains("loxley_agent_load{") {
                return page;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let page = page.await.expect("heartbeats come");
    let heads: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for file in ["alerts.yaml", "grafana.json"] {
        let text = std::fs::read_to_string(deploy(file)).unwrap();
        let used = names(&text);
        assert!(used.len() >= 8, "{file}: {used:?}");
        for name in used {
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|name| heads.contains(name)))
                .unwrap_or(name);
            assert!(heads.contains(family), "{file}: the server has no {name}");
        }
    }
    let value = |name: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("loxley_journal_bytes ") > 1000.0);
    assert!(value("loxley_journal_commit_duration_seconds_count ") >= 1.0);
    assert!(value("loxley_journal_commit_duration_seconds_sum ") > 0.0);
    assert_eq!(value("loxley_agents_by_state{state=\"alive\"} "), 2.0);
    assert_eq!(value("loxley_tasks_ended_total{state=\"succeeded\"} "), 8.0);
    // A family is said once, with what it is, and every line belongs to one.
    let all: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("# TYPE "))
        .collect();
    assert_eq!(all.len(), heads.len(), "a family is there twice");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let is_known = heads.iter().any(|head| {
            name.strip_prefix(head)
                .is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end))
        });
        assert!(is_known, "{line}");
    }
    look_with_promtool(&["check", "metrics"], Some(&page));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_changed_while_the_server_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let switch = LogSwitch::new(move |log| {
        heard.lock().unwrap().push(log.to_owned());
        if log == "loud" {
            Err("no such level".to_owned())
        } else {
            Ok(())
        }
    });
    let server = TestServer::start_with(ServerOptions {
        log: Some(switch),
        ..ServerOptions::new(scratch.path().to_owned())
    })
    .await;
    let client = Client::new(&server.access).unwrap();
    assert_eq!(client.set_log("debug").await.unwrap().log, "debug");
    let refused = client.set_log("loud").await.unwrap_err().to_string();
    assert!(refused.contains("no such level"), "{refused}");
    assert_eq!(*said.lock().unwrap(), ["debug", "loud"]);
    server.stop().await;
}

#[test]
fn the_rules_are_rules() {
    let rules = deploy("alerts.yaml").display().to_string();
    look_with_promtool(&["check", "rules", &rules], None);
    let dashboard = std::fs::read(deploy("grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

/// Has Prometheus' own tool look at something, where it is installed.
fn look_with_promtool(arguments: &[&str], input: Option<&str>) {
    use std::io::Write;
    use std::process::Stdio;
    let started = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = started else {
        let mut note = std::io::stderr();
        let _ = writeln!(
            note,
            "SKIPPED: no promtool (Debian: prometheus): {arguments:?}"
        );
        return;
    };
    let text = input.unwrap_or_default().as_bytes();
    tool.stdin.take().unwrap().write_all(text).unwrap();
    let looked = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&looked.stderr);
    assert!(looked.status.success(), "promtool {arguments:?}: {said}");
}
