//! `loxley replay`, `tune`, `sim JOURNAL`, `journal cut` and `server tuning` on journals of real runs. How long something takes on the
//! machine of a test is anybody's guess: so what is compared here is structure, and signs that no load can turn.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]
#![expect(dead_code, reason = "no test needs all of it")]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use loxley_api::WhatIfRequest;
use serde_json::{Value, json};
use support::{Fleet, LOXLEY, until};
use tempfile::TempDir;

fn loxley(directory: &Path, args: &[&str]) -> Output {
    Command::new(LOXLEY)
        .args(args)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn ok(directory: &Path, args: &[&str]) -> String {
    let output = loxley(directory, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(directory: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&ok(directory, args)).unwrap()
}

/// What is refused: the exit code, and the words.
fn refused(directory: &Path, args: &[&str]) -> (i32, String) {
    let output = loxley(directory, args);
    let words = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), words)
}

/// A real run of 24 sleeps in two slots.
fn recorded() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut args = vec!["run", "--journal", "j", "-j", "2", "sleep {}", ":::"];
    args.extend(["0.02", "0.05", "0.1", "0.03"].repeat(6));
    ok(directory.path(), &args);
    directory
}

fn figure<'v>(value: &'v Value, variant: usize, name: &str) -> &'v Value {
    &value["variants"][variant]["figures"][name]
}

#[test]
fn a_run_is_replayed_and_asked_what_would_be_different() {
    let directory = recorded();
    let here = directory.path();
    let value = json(here, &["replay", "j", "--json"]);
    assert_eq!(
        (value["tasks"].as_u64(), value["agents"].as_u64()),
        (Some(24), Some(2))
    );
    let happened = value["happened"]["makespan"].as_f64().unwrap();
    let simulated = value["simulated"]["makespan"].as_f64().unwrap();
    assert!(
        happened >= 0.6,
        "24 sleeps of 1.2 s in all, in two slots: {happened}"
    );
    assert!(
        (0.2..5.0).contains(&(simulated / happened)),
        "{simulated} {happened}"
    );
    let args = [
        "replay",
        "j",
        "--json",
        "--seeds",
        "4",
        "--agents",
        "+2",
        "--without",
        "slot 2",
        "--load",
        "x2",
        "--set",
        "strategy=pull",
        "--report",
        "r.html",
    ];
    let value = json(here, &args);
    let labels: Vec<&str> = value["variants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["label"].as_str().unwrap())
        .collect();
    assert_eq!(
        labels,
        [
            "as recorded",
            "strategy=pull",
            "2 more agents",
            "without slot 2",
            "load x2"
        ]
    );
    for (variant, longer) in [(2, false), (3, true), (4, true)] {
        let makespan = figure(&value, variant, "makespan");
        let change = makespan["change"].as_f64().unwrap();
        assert_eq!(change > 0.0, longer, "{makespan}");
        // With more agents one long task may be all there is to wait for.
        assert!(!longer || makespan["more_than_noise"] == true, "{makespan}");
    }
    let page = std::fs::read_to_string(here.join("r.html")).unwrap();
    assert!(page.contains("slot 1 (real)") && page.contains("slot 1 (as recorded)"));
    assert!(page.contains("parts from the recorded configuration"));
    let text = ok(
        here,
        &[
            "replay",
            "j",
            "--agents",
            "+2",
            "--load",
            "x2",
            "--together",
            "--seeds",
            "3",
        ],
    );
    assert!(text.contains("2 more agents, load x2"), "{text}");
    assert!(text.contains("noise"), "{text}");
}

#[test]
fn a_journal_is_a_workload_of_the_simulator() {
    let directory = recorded();
    let value = json(directory.path(), &["sim", "j", "--json"]);
    assert!(value.to_string().contains("j"), "{value}");
    let text = ok(directory.path(), &["sim", "j"]);
    assert!(text.contains("24 executed"), "{text}");
    let (code, words) = refused(directory.path(), &["sim", "j", "--set", "workers=3"]);
    assert_eq!(code, 3);
    assert!(words.contains("loxley replay"), "{words}");
}

#[test]
fn the_very_inputs_are_driven_again_and_a_part_is_cut_out() {
    let directory = recorded();
    let here = directory.path();
    let value = json(here, &["replay", "j", "--exact", "--json"]);
    assert_eq!(value["same"], true);
    let text = ok(
        here,
        &[
            "journal",
            "cut",
            "--dir",
            "j",
            "--from",
            "300ms",
            "--anonymous",
            "--output",
            "part",
        ],
    );
    assert!(text.contains("facts are in part"), "{text}");
    assert!(ok(here, &["journal", "check", "--dir", "part"]).contains("whole"));
    assert_eq!(
        json(here, &["replay", "part", "--exact", "--json"])["same"],
        true
    );
    let facts = ok(here, &["journal", "export", "--dir", "part"]);
    assert!(
        !facts.contains("slot 1") && !facts.contains("sleep"),
        "{facts}"
    );
    let (code, words) = refused(here, &["journal", "cut", "--dir", "j", "--output", "part"]);
    assert_eq!(code, 1);
    assert!(words.contains("already"), "{words}");
    let late = [
        "journal", "cut", "--dir", "j", "--from", "9h", "--output", "late",
    ];
    let (_, words) = refused(here, &late);
    assert!(words.contains("nothing happened in that time"), "{words}");
    assert!(!here.join("late").exists());
}

#[test]
fn bad_input_is_said_to_be_bad() {
    let directory = recorded();
    let here = directory.path();
    std::fs::create_dir(here.join("empty")).unwrap();
    std::fs::create_dir(here.join("foreign")).unwrap();
    std::fs::write(here.join("foreign/journal.db"), "this is no journal at all").unwrap();
    std::fs::write(here.join("bad.yaml"), "load_balancing: {stratgy: pull}").unwrap();
    let cases: [(&[&str], i32, &str); 10] = [
        (&["replay", "nowhere"], 1, "there is no journal"),
        (&["replay", "empty"], 1, "there is no journal"),
        (&["replay", "foreign"], 3, ""),
        (&["replay", "j", "--set", "stratgy=pull"], 3, "strategy"),
        (&["replay", "j", "--set", "strategy"], 3, "PATH=VALUE"),
        (&["replay", "j", "--config", "bad.yaml"], 3, "stratgy"),
        (&["replay", "j", "--without", "nobody"], 3, "slot 1"),
        (&["replay", "j", "--agents", "-1"], 3, "--without"),
        (&["replay", "j", "--load", "huge"], 3, "x2"),
        (&["tune", "j", "--objective", "happiness"], 3, "makespan"),
    ];
    for (args, code, words) in cases {
        let (found, said) = refused(here, args);
        assert_eq!(found, code, "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    // A bit of the facts is another.
    let database = here.join("j/journal.db");
    let mut bytes = std::fs::read(&database).unwrap();
    let last = bytes.len() - 100;
    for at in (last - 3000..last).step_by(37) {
        bytes[at] ^= 0x55;
    }
    std::fs::write(&database, bytes).unwrap();
    let (code, said) = refused(here, &["replay", "j"]);
    assert!(
        code != 0 && said.contains("damaged") || said.contains("cannot"),
        "{code}: {said}"
    );
}

#[test]
fn a_search_is_resumed_and_prints_a_configuration_or_that_there_is_none() {
    let directory = recorded();
    let here = directory.path();
    let args = [
        "tune",
        "j",
        "--candidates",
        "12",
        "--seeds",
        "3",
        "--state",
        "s.json",
        "--json",
    ];
    let first = json(here, &args);
    assert_eq!(first["complete"], true);
    assert!(first["runs"].as_u64().unwrap() > 0);
    let again = json(here, &args);
    assert_eq!(again["runs"], 0, "all of it was measured before");
    assert_eq!(again["gain"], first["gain"]);
    let other = [
        "tune",
        "j",
        "--candidates",
        "13",
        "--seeds",
        "3",
        "--state",
        "s.json",
    ];
    let (code, words) = refused(here, &other);
    assert_eq!(code, 1);
    assert!(words.contains("another search"), "{words}");
    let text = ok(here, &["tune", "j", "--candidates", "12", "--seeds", "3"]);
    // What is printed is a file, whatever was found.
    std::fs::write(here.join("tuned.yaml"), text).unwrap();
    ok(here, &["config", "check", "tuned.yaml"]);
}

#[test]
fn a_real_server_is_replayed_while_it_runs() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "one", "--slots", "2"]);
    fleet.agent(&["--name", "two", "--slots", "1"]);
    fleet.ok(&["submit", "--wait", "--array", "1-12", "--", "sleep", "0.1"]);
    let journal = fleet.path().join("server");
    let journal = match journal.is_dir() {
        true => journal,
        false => fleet.path().to_path_buf(),
    };
    let journal = journal.to_str().unwrap();
    let value: Value = serde_json::from_str(&fleet.ok(&[
        "replay",
        journal,
        "--json",
        "--seeds",
        "3",
        "--without",
        "one",
    ]))
    .unwrap();
    assert_eq!(
        (value["tasks"].as_u64(), value["agents"].as_u64()),
        (Some(12), Some(2))
    );
    let simulated = value["simulated"]["makespan"].as_f64().unwrap();
    assert!(
        simulated >= 0.2,
        "twelve tenths of a second in three slots: {simulated}"
    );
    let makespan = figure(&value, 1, "makespan");
    assert!(makespan["change"].as_f64().unwrap() > 0.0, "{makespan}");
    assert_eq!(makespan["more_than_noise"], true, "{makespan}");

    // The same from elsewhere: all that is there is an access file, and the server is asked for its journal.
    let elsewhere = tempfile::tempdir().unwrap();
    let there = elsewhere.path();
    std::fs::copy(Path::new(journal).join("access.json"), there.join("a.json")).unwrap();
    let args = ["--json", "--seeds", "3", "--without", "one"];
    let again = json(there, &[&["replay", "a.json"], &args[..]].concat());
    assert_eq!(again, value);
    assert!(ok(there, &["advise", "a.json"]).contains("12"));
    // Facts are everything that was ever said to the server: who may only look does not get them.
    let eye = there.join("eye.json");
    let eye = eye.to_str().unwrap();
    fleet.ok(&[
        "server", "token", "create", "eye", "--role", "read", "--out", eye,
    ]);
    let (code, said) = refused(there, &["replay", "eye.json"]);
    assert!(
        code == 7 && said.contains("does not allow"),
        "{code}: {said}"
    );

    // The server answers the same itself.
    let access = loxley_api::Access::read(&there.join("a.json")).unwrap();
    let client = loxley_client::blocking::Client::new(&access).unwrap();
    let ask = |request: WhatIfRequest| client.call(async |client| client.what_if(&request).await);
    let report = ask(WhatIfRequest {
        without: vec!["one".to_owned()],
        seeds: Some(3),
        ..WhatIfRequest::default()
    });
    let report = report.unwrap();
    assert_eq!((report.tasks, report.seeds), (12, 3));
    for (place, reported) in report.figures.iter().enumerate() {
        let name = &*reported.name;
        assert_eq!(Some(reported.happened), value["happened"][name].as_f64());
        assert_eq!(Some(reported.simulated), value["simulated"][name].as_f64());
        assert_eq!(reported.after, figure(&value, 1, name)["mean"].as_f64());
        assert_eq!(reported.shown.len(), 4, "{place}");
    }
    assert!(report.figures[0].more_than_noise, "{report:?}");
    let agents = |rows: &[loxley_api::WhatIfRow]| -> Vec<(String, u32, u64)> {
        let all = rows.iter().map(|row| {
            let busy = row.busy.iter().copied().map(u64::from).sum();
            (row.name.clone(), row.slots, busy)
        });
        all.collect()
    };
    let (was, would) = (agents(&report.was), agents(&report.would));
    assert_eq!(was.len(), 2);
    assert!(was.iter().all(|(_, _, busy)| *busy > 0), "{was:?}");
    assert_eq!(would.len(), 1);
    assert_eq!((&*would[0].0, would[0].1), ("two", 1));
    assert!(
        would[0].2 > was[1].2,
        "one does the work of both: {would:?}"
    );
    for (request, words) in [
        (
            WhatIfRequest {
                set: vec!["stratgy=pull".to_owned()],
                ..WhatIfRequest::default()
            },
            "strategy",
        ),
        (
            WhatIfRequest {
                without: vec!["nobody".to_owned()],
                ..WhatIfRequest::default()
            },
            "one, two",
        ),
    ] {
        let error = ask(request).unwrap_err();
        assert_eq!(error.code(), Some(loxley_api::ErrorCode::Invalid));
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_journal_is_advised_on() {
    let directory = recorded();
    let here = directory.path();
    let value = json(here, &["advise", "j", "--json"]);
    assert_eq!(value["evidence"]["count"], 24);
    assert_eq!(value["evidence"]["parts"], 2);
    assert_eq!(value["unit"], "seconds");
    let mean = value["evidence"]["mean"].as_f64().unwrap();
    assert!(
        mean >= 0.05,
        "sleeps take at least as long as they were told: {mean}"
    );
    let text = ok(here, &["advise", "j", "--parts", "4"]);
    assert!(text.starts_with("strategy "), "{text}");
    let (code, words) = refused(here, &["advise", "j", "--column", "seconds"]);
    assert!(
        code != 0 && words.contains("is a journal, not a table"),
        "{words}"
    );
    std::fs::create_dir(here.join("empty")).unwrap();
    let (code, words) = refused(here, &["advise", "empty"]);
    assert!(code != 0 && words.contains("empty"), "{words}");
}

/// Windows of half a second, and short tasks without a backlog: there is something to be tried at once.
const SELF_TUNING: &str = "\
load_balancing:
  prefetch: {max_depth: 0}
  self_tuning: {enabled: true, window_sec: 0.5, pairs: 2}
";

#[test]
fn what_self_tuning_changed_is_told_and_survives_a_kill() {
    let mut fleet = Fleet::new(None);
    let file = fleet.path().join("tuning.yaml");
    std::fs::write(&file, SELF_TUNING).unwrap();
    fleet.ok(&["config", "reload", file.to_str().unwrap()]);
    fleet.agent(&["--name", "ada", "--slots", "2"]);
    let tuning = |fleet: &Fleet| fleet.json(&["server", "tuning", "--json"]).remove(0);
    assert_eq!(tuning(&fleet)["enabled"], true);
    assert_eq!(tuning(&fleet)["story"], Value::Array(Vec::new()));

    // Work until something was tried: how fast this machine is does not matter.
    until("a change is tried", || {
        fleet.ok(&[
            "submit", "--quiet", "--wait", "--array", "1-50", "--", "true",
        ]);
        tuning(&fleet)["story"][0].is_object()
    });
    let first = tuning(&fleet)["story"][0].clone();
    assert_eq!(first["what"], "tried", "{first}");
    assert_eq!(first["key"], "prefetch.max_depth", "{first}");
    assert_eq!((&first["from"], &first["to"]), (&json!(0.0), &json!(256.0)));
    let table = fleet.ok(&["server", "tuning"]);
    assert!(table.contains("it is the published default"), "{table}");

    fleet.kill_server();
    fleet.restart_server();
    let after = tuning(&fleet);
    assert_eq!(after["story"][0], first, "the story goes on: {after}");

    // The trial goes on too, and ends: by what it measures, or since there is no work any more.
    let ended = |fleet: &Fleet| {
        let tuning = tuning(fleet);
        let story = tuning["story"].as_array().unwrap();
        let mut ends = story.iter().filter(|step| step["what"] != "tried");
        ends.next().cloned()
    };
    until("the trial ends", || ended(&fleet).is_some());
    let end = ended(&fleet).unwrap();
    assert_eq!(end["key"], "prefetch.max_depth", "{end}");

    // What is in force is what the story says, after another kill too.
    fleet.kill_server();
    fleet.restart_server();
    let after = tuning(&fleet);
    let mut expected = json!(0.0);
    for step in after["story"].as_array().unwrap() {
        if step["key"] == "prefetch.max_depth" && step["what"] == "kept" {
            expected = step["to"].clone();
        }
    }
    let settings = after["settings"].as_array().unwrap();
    let depth = settings
        .iter()
        .find(|one| one["key"] == "prefetch.max_depth");
    let under_trial = after["trial"]["key"] == "prefetch.max_depth";
    assert!(
        under_trial || depth.unwrap()["value"] == expected,
        "{after}"
    );

    fleet.ok(&["server", "stop"]);
    fleet.server.wait().unwrap();
    let checked = fleet.json(&["journal", "check", "--json"]).remove(0);
    assert_eq!(checked["findings"], Value::Array(Vec::new()), "{checked}");
    let told = fleet.ok(&["journal", "export"]);
    assert!(
        told.contains("setting_tuned"),
        "the journal has the story too"
    );
}

const FORECAST: &str = "\
load_balancing:
  forecast: {enabled: true, step_sec: 0.1, horizon_sec: 0.5, season_max_sec: 10}
";

#[test]
fn what_is_forecast_is_told_and_survives_a_kill() {
    let mut fleet = Fleet::new(None);
    let forecast = |fleet: &Fleet| fleet.json(&["server", "forecast", "--json"]).remove(0);
    assert_eq!(forecast(&fleet)["enabled"], false);
    let file = fleet.path().join("forecast.yaml");
    std::fs::write(&file, FORECAST).unwrap();
    fleet.ok(&["config", "reload", file.to_str().unwrap()]);
    fleet.agent(&["--name", "ada", "--slots", "2"]);
    until("arrivals are counted", || {
        fleet.ok(&[
            "submit", "--quiet", "--wait", "--array", "1-20", "--", "true",
        ]);
        let work = &forecast(&fleet)["work"][0];
        work["last"].as_u64() > Some(0) && work["error_as_now"].is_number()
    });
    let table = fleet.ok(&["server", "forecast"]);
    assert!(table.contains("AS NOW"), "{table}");
    fleet.kill_server();
    fleet.restart_server();
    let after = forecast(&fleet);
    assert_eq!(after["enabled"], true, "{after}");
    assert!(after["work"][0]["takes_sec"].is_number(), "{after}");

    // By the access file of a server that runs.
    let access = fleet.path().join("access.json");
    let value = json(
        fleet.path(),
        &["replay", access.to_str().unwrap(), "--seeds=2", "--json"],
    );
    assert!(value["tasks"].as_u64() >= Some(20), "{value}");
    // And by a copy of it alone: the server is asked for its journal.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::copy(&access, elsewhere.path().join("access.json")).unwrap();
    let replayed = ["replay", "access.json", "--seeds=2", "--json"];
    assert_eq!(json(elsewhere.path(), &replayed)["tasks"], value["tasks"]);

    fleet.ok(&["server", "stop"]);
    fleet.server.wait().unwrap();
    let checked = fleet.json(&["journal", "check", "--json"]).remove(0);
    assert_eq!(checked["findings"], Value::Array(Vec::new()), "{checked}");
    assert!(fleet.ok(&["journal", "export"]).contains("forecast_set"));
}
