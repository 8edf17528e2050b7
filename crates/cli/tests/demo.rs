//! `loxley demo` plays its five scenes, keeps its claims, and goes quietly when it is told to.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loxley"));
    command.arg("demo").args(arguments);
    command
}

#[test]
fn every_claim_of_the_demo_holds() {
    let output = demo(&["--quick", "--json", "--agents", "2", "--seed", "7"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["claims_hold"], true, "{result}");
    let scenes = result["scenes"].as_array().unwrap();
    let names: Vec<&str> = scenes
        .iter()
        .filter_map(|scene| scene["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "basic stealing",
            "hot spot",
            "cascading failure",
            "protected high priority",
            "the full metrics"
        ]
    );
    for scene in scenes {
        assert!(
            scene["claims"]
                .as_array()
                .is_some_and(|claims| !claims.is_empty())
        );
    }
    // All tasks of the hot spot began on one of the two agents.
    assert!(
        scenes[1]["metrics"]["tasks_migrated"].as_u64() > Some(0),
        "{}",
        scenes[1]
    );
    // Whether a target is met, and whether there is enough to judge, depends on the machine; the figures are there.
    for figure in [
        "load_imbalance",
        "straggler_ratio",
        "worker_utilization",
        "queue_depth_variance",
    ] {
        assert!(
            result["balance"][figure]["value"].is_number(),
            "{}",
            result["balance"]
        );
    }
    // Without a terminal, progress is plain lines.
    assert!(errors.contains("hot spot: "), "{errors}");
}

#[test]
fn the_text_ends_with_the_four_figures() {
    let output = demo(&["--quick", "--agents", "2"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let last: Vec<&str> = text.lines().rev().take(4).collect();
    for (line, name) in last.iter().rev().zip([
        "load imbalance",
        "straggler ratio",
        "worker utilization",
        "queue-depth variance",
    ]) {
        assert!(line.starts_with(name), "{line}");
        let verdicts = ["met", "missed", "too little to judge"];
        assert!(
            verdicts.iter().any(|verdict| line.ends_with(verdict)),
            "{line}"
        );
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_demo_stops_at_once_and_says_so() {
    let mut child = demo(&[])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Once it has said something, it hears signals.
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let begin = Instant::now();
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(begin.elapsed() < Duration::from_secs(30));
}
