//! A job file means the same whoever runs it: each file here goes through `loxley run`, through `loxley submit` to a
//! real server with a real agent, through the simulator and, where its keys apply, through the embedded fleet. States
//! and attempts are compared everywhere; exit codes, reasons and everything that tasks saw of their surroundings where
//! there are processes, and what `task explain` says of each. What must differ is in docs/guide/job-files.md, and
//! nowhere else.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use loxley::{Agent, Context, Ending, Event, Fleet, Job, Task};
use loxley_api::FallbackRequest;
use loxley_jobfile::{JobFile, Plan, Planned};
use loxley_model::{DependencyFailure, TaskId};
use serde_json::Value;
use tempfile::TempDir;

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");
const PATIENCE: Duration = Duration::from_secs(60);

/// What a task tells of its surroundings goes to `seen/NAME`: its arguments, where it runs, its variables.
const RECORD: &str = r#"#!/bin/sh
name=$1
{ for word; do printf '<%s>\n' "$word"; done
  basename "$PWD"
  env | grep -E '^(LOXLEY_|COLOUR=|SHAPE=)' | grep -vE '^LOXLEY_(JOB_ID|TASK_ID|DIR|ACCESS)=' |
    sed -E 's/^(LOXLEY_CHECKPOINT|LOXLEY_MARK|LOXLEY_SLOT)=.+/\1/' | sort
  test -n "$LOXLEY_JOB_ID" && test -n "$LOXLEY_TASK_ID" && echo numbered
} > "$SEEN/$name"
"#;

/// How a task ended.
#[derive(Debug, PartialEq)]
struct Ended {
    state: String,
    attempts: u64,
    code: Option<i64>,
    signal: Option<i64>,
}

/// What became of a file: every task by name and entry, and what tasks saw.
#[derive(Debug, PartialEq)]
struct Outcome {
    tasks: BTreeMap<String, Ended>,
    seen: BTreeMap<String, String>,
    /// The names of its tasks in the order of their numbers.
    titles: Vec<String>,
    /// What is said of each task when it is over, without the numbers in it.
    explained: BTreeMap<String, String>,
}

/// A directory with the file, the script, and a place for what is seen.
struct Stage {
    _whole: TempDir,
    directory: PathBuf,
}

impl Stage {
    fn path(&self) -> &Path {
        &self.directory
    }
}

fn stage(file: &str) -> Stage {
    let whole = tempfile::tempdir().unwrap();
    let directory = whole.path().join("stage");
    fs::create_dir(&directory).unwrap();
    let path = |name: &str| directory.join(name);
    fs::write(path("job.yaml"), file).unwrap();
    fs::write(path("record"), RECORD).unwrap();
    fs::set_permissions(path("record"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(path("seen")).unwrap();
    fs::create_dir(path("sub")).unwrap();
    Stage {
        _whole: whole,
        directory,
    }
}

fn seen(directory: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(directory.join("seen")).unwrap();
    let file = |file: fs::DirEntry| {
        let name = file.file_name().into_string().unwrap();
        (name, fs::read_to_string(file.path()).unwrap())
    };
    files.map(|entry| file(entry.unwrap())).collect()
}

fn loxley(directory: &Path) -> Command {
    let mut command = Command::new(LOXLEY);
    command
        .current_dir(directory)
        .env("LOXLEY_DIR", directory.join("server"))
        .env("SEEN", directory.join("seen"))
        .env("RECORD", directory.join("record"))
        .env_remove("LOXLEY_ACCESS")
        .stdin(Stdio::null());
    command
}

fn title(name: &Value, entry: Option<&str>) -> String {
    let name = name.as_str().unwrap();
    entry.map_or(name.to_owned(), |entry| format!("{name} {entry}"))
}

/// Through `loxley run`.
fn by_run(file: &str) -> Outcome {
    let directory = stage(file);
    let words = [
        "run",
        "job.yaml",
        "--json",
        "--no-report",
        "--summary",
        "never",
        "--journal",
        "kept",
    ];
    let output = loxley(directory.path()).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut tasks = BTreeMap::new();
    let mut titles = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row.get("summary").is_some() {
            continue;
        }
        let state = match row["ending"].as_str().unwrap() {
            "fell_back" => "succeeded",
            "skipped" => "cancelled",
            other => other,
        };
        let signal = row["signal"].as_i64().filter(|signal| *signal != 0);
        let has_ended = row["error"].is_null() && signal.is_none();
        let ended = Ended {
            state: state.to_owned(),
            attempts: row["attempt"].as_u64().unwrap_or(0),
            code: row["exit"].as_i64().filter(|_| has_ended),
            signal,
        };
        let entry = row["items"].get(0).and_then(Value::as_str);
        let title = title(&row["name"], entry);
        titles.insert(row["task"].as_u64().unwrap(), title.clone());
        assert!(tasks.insert(title, ended).is_none());
    }
    assert!(
        !tasks.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Outcome {
        tasks,
        seen: seen(directory.path()),
        titles: titles.into_values().collect(),
        explained: explained(directory.path(), &["--journal", "kept"]),
    }
}

/// The objects that a command prints, one a line.
fn rows(directory: &Path, words: &[&str]) -> Vec<Value> {
    let output = loxley(directory).args(words).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {complaint}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What `task explain` says of every task of the one job. How long things took and where they stand is left out.
fn explained(directory: &Path, at: &[&str]) -> BTreeMap<String, String> {
    let tasks = rows(
        directory,
        &[&["task", "list", "all", "--json"], at].concat(),
    );
    let title = |task: &Value| title(&task["name"], task["entry"].as_str());
    let titles = tasks.iter().map(|task| (task["id"].as_u64(), title(task)));
    let titles: BTreeMap<Option<u64>, String> = titles.collect();
    let all = format!("1-{}", tasks.len());
    let explanations = rows(
        directory,
        &[&["task", "explain", &all, "--json"], at].concat(),
    );
    assert_eq!(explanations.len(), tasks.len());
    let without_numbers = |said: &Value| {
        let said = format!(
            "{} {} {}",
            said["place"], said["obstacles"], said["remedies"]
        );
        let said = said.replace(&*directory.to_string_lossy(), "STAGE");
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let pieces = said.split(is_number).filter(|piece| !piece.is_empty());
        pieces.collect::<Vec<_>>().join("#")
    };
    let said = explanations.iter();
    said.map(|said| {
        (
            titles[&said["task"].as_u64()].clone(),
            without_numbers(said),
        )
    })
    .collect()
}

/// Ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Through a server, with an agent that has what the file says of its own.
fn by_submit(file: &str) -> Outcome {
    let directory = stage(file);
    let words = [
        "server",
        "start",
        "--json",
        "--log",
        "warn",
        "--listen",
        "127.0.0.1:0",
    ];
    let server = loxley(directory.path())
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Process(server);
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let words = [
        "agent", "start", "--log", "warn", "--name", "ada", "--slots", "2",
    ];
    let agent = loxley(directory.path())
        .args(words)
        .args(["--skills", "text", "--resource", "scanner=1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _agent = Process(agent);
    let begun = Instant::now();
    while rows(directory.path(), &["agent", "list", "--json"]).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the agent is not there");
        thread::sleep(Duration::from_millis(20));
    }
    let words = ["submit", "job.yaml", "--wait", "--json"];
    let output = loxley(directory.path()).args(words).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{complaint}");
    let mut tasks = BTreeMap::new();
    for row in rows(directory.path(), &["task", "list", "all", "--json"]) {
        let number = |name: &str| row["last"][name].as_i64();
        let ended = Ended {
            state: row["state"].as_str().unwrap().to_owned(),
            attempts: row["attempts"].as_u64().unwrap(),
            code: number("exit_code"),
            signal: number("signal"),
        };
        let title = title(&row["name"], row["entry"].as_str());
        assert!(tasks.insert(title, ended).is_none());
    }
    Outcome {
        tasks,
        seen: seen(directory.path()),
        titles: Vec::new(),
        explained: explained(directory.path(), &[]),
    }
}

/// What the commands of a file do, for those who do not run them.
#[derive(Clone, Copy, Default)]
struct Said {
    /// Tasks and how many of their attempts fail.
    fails: &'static [(&'static str, u32)],
    /// Tasks that run for longer than their time limit.
    long: &'static [&'static str],
}

/// Through the simulator. `titles` are the names of the tasks in their order.
fn by_sim(file: &str, said: Said, titles: &[String]) -> BTreeMap<String, (String, u64)> {
    let directory = stage(file);
    let mut command = loxley(directory.path());
    command.args(["sim", "job.yaml", "--json", "--events", "events.jsonl"]);
    for (task, count) in said.fails {
        command.arg("--fails").arg(format!("{task}={count}"));
    }
    for task in said.long {
        command.arg("--takes").arg(format!("{task}=60s"));
    }
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let events = fs::read_to_string(directory.path().join("events.jsonl")).unwrap();
    let mut attempts = vec![0; titles.len()];
    let mut tasks = BTreeMap::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let Some(task) = event["task"].as_u64() else {
            continue;
        };
        let task = task as usize;
        match event["event"].as_str().unwrap() {
            "started" => attempts[task] += 1,
            "ended" => {
                let state = match (event["ok"].as_bool(), event["cancelled"].as_bool()) {
                    (Some(true), _) => "succeeded",
                    (_, Some(true)) => "cancelled",
                    _ => "failed",
                };
                let ended = (state.to_owned(), attempts[task]);
                assert!(tasks.insert(titles[task].clone(), ended).is_none());
            }
            _ => {}
        }
    }
    tasks
}

/// Through the embedded fleet, with functions that do what is said of the commands.
fn by_fleet(file: &str, said: Said) -> BTreeMap<String, (String, u64)> {
    let file = loxley_jobfile::parse(file).unwrap();
    let mut builder = Fleet::builder();
    for agent in &file.agents {
        let known = Agent::new(&agent.name).slots(agent.slots);
        let known = known.skills(agent.skills.clone());
        let named = agent.has.named.iter();
        let known = named.fold(known, |known, (name, amount)| known.resource(name, *amount));
        builder = builder.with_agent(known);
    }
    let fleet = builder.build().unwrap();
    for (group, limit) in &file.request.limits {
        fleet.scheduler().limit_group(group, *limit).unwrap();
    }
    let tasks = Arc::new(Mutex::new(BTreeMap::<String, (String, u64)>::new()));
    let books = Arc::clone(&tasks);
    fleet
        .scheduler()
        .on_event(move |event| note(&mut books.lock().unwrap(), event));
    let mut job = Job::new();
    if file.request.on_dependency_failure == DependencyFailure::Skip {
        job = job.skip_dependents();
    }
    let mut batch = fleet.batch(job);
    let plan = Plan::new(&file.request, TaskId(1));
    for number in 1..=file.count() {
        let planned = plan.find(TaskId(number)).unwrap();
        let title = file.title(planned);
        let name = file.request.tasks[planned.definition].name.clone();
        let is_meant = |task: &str| task == title || Some(task) == name.as_deref();
        let fails = said.fails.iter().filter(|(task, _)| is_meant(task));
        let fails = fails.map(|(_, count)| *count).max().unwrap_or(0);
        let is_long = said.long.iter().any(|task| is_meant(task));
        let run = move |context: &Context| -> Result<(), String> {
            while is_long && !context.is_cancelled() {
                thread::sleep(Duration::from_millis(5));
            }
            match context.attempt <= fails {
                true => Err("told to fail".to_owned()),
                false => Ok(()),
            }
        };
        batch.add_with(embedded_task(&file, &plan, planned), run);
    }
    batch.submit().unwrap();
    assert!(fleet.wait_all_within(PATIENCE), "every task ends");
    let _ = fleet.shutdown();
    let tasks = tasks.lock().unwrap();
    tasks.clone()
}

/// Notes what the embedded scheduler tells of a task.
fn note(tasks: &mut BTreeMap<String, (String, u64)>, event: &Event) {
    let (task, attempt, ending) = match event {
        Event::Assigned { task, attempt, .. } => (task, Some(*attempt), None),
        Event::Finished { task, ending, .. } => (task, None, Some(ending)),
        _ => return,
    };
    let title = task.name.as_deref().unwrap().to_owned();
    let (state, attempts) = tasks.entry(title).or_default();
    *attempts = attempt.map_or(*attempts, u64::from);
    let word = ending.map(|ending| match ending {
        Ending::Succeeded { .. } | Ending::FellBack { .. } => "succeeded",
        Ending::Cancelled | Ending::Returned => "cancelled",
        _ => "failed",
    });
    *state = word.unwrap_or_default().to_owned();
}

/// A task of a file for the embedded fleet.
fn embedded_task(file: &JobFile, plan: &Plan, planned: Planned) -> Task {
    let definition = &file.request.tasks[planned.definition];
    let title = |id| file.title(plan.find(id).unwrap());
    let before = plan.dependencies(&file.request, planned);
    let retry = &definition.retry;
    let [first, longest] = [retry.base_sec, retry.cap_sec].map(Duration::from_secs_f64);
    let mut task = Task::new(file.title(planned))
        .skills(definition.skills.clone())
        .priority(definition.priority.level())
        .retries(retry.retries)
        .backoff(first, longest)
        .after_all(before.into_iter().map(title));
    if let Some(limit) = definition.time_limit_sec {
        task = task.time_limit(Duration::from_secs_f64(limit));
    }
    if let Some(group) = &definition.group {
        task = task.group(group);
    }
    match &definition.fallback {
        Some(FallbackRequest::Task(name)) => {
            let definitions = file.request.tasks.iter();
            let mut names = definitions.map(|task| task.name.as_deref());
            let definition = names.position(|other| other == Some(name)).unwrap();
            let entry = planned.entry;
            task.fallback(file.title(Planned { definition, entry }))
        }
        Some(FallbackRequest::Value(_)) => task.fallback_value(),
        None => task,
    }
}

/// Runs a file every way, and gives what all say.
fn everywhere(file: &str, said: Said) -> Outcome {
    let outcome = both(file);
    let expected: BTreeMap<String, (String, u64)> = outcome
        .tasks
        .iter()
        .map(|(title, ended)| (title.clone(), (ended.state.clone(), ended.attempts)))
        .collect();
    assert_eq!(by_sim(file, said, &outcome.titles), expected, "simulated");
    assert_eq!(by_fleet(file, said), expected, "embedded");
    outcome
}

/// Runs a file both ways, and gives what both say.
fn both(file: &str) -> Outcome {
    let (run, submit) = (by_run(file), by_submit(file));
    let tasks = run.tasks.keys().chain(submit.tasks.keys());
    for task in tasks {
        assert_eq!(run.tasks.get(task), submit.tasks.get(task), "{task}");
    }
    let names = run.seen.keys().chain(submit.seen.keys());
    for name in names {
        assert_eq!(run.seen.get(name), submit.seen.get(name), "{name}");
    }
    for (task, said) in &run.explained {
        assert_eq!(submit.explained.get(task), Some(said), "{task}");
    }
    run
}

const AGENTS: &str = "agents: [{name: ada, slots: 2, skills: [text], resources: {scanner: 1}}]\n";

fn ended(outcome: &Outcome, task: &str) -> (String, u64) {
    let ended = outcome.tasks.get(task);
    let ended = ended.unwrap_or_else(|| panic!("no {task} in {:?}", outcome.tasks.keys()));
    (ended.state.clone(), ended.attempts)
}

#[test]
fn a_task_sees_the_same_arguments_directory_and_environment() {
    let file = r#"
name: surroundings
defaults: {env: {COLOUR: green}, skills: [text]}
agents: [{name: ada, slots: 1, skills: [text], resources: {scanner: 1}}]
tasks:
  - name: words
    each: [a b.txt, dir/x.tar.gz, "it's", '{}', '$HOME']
    command: [./record, 'words-{#}', '{}', 'x{.}y', '{/}', '{//}', '{/.}', '{1}', '{ }', '{x}']
  - name: shell
    each: [a b.txt, dir/x.tar.gz, "it's", '{}', '$HOME']
    command: ./record shell-{#} {} "{.}" '{/}' $(printf %s {//}) "$LOXLEY_ENTRY" $SHAPE && true
    env: {SHAPE: round}
  - {name: numbers, array: '1-5:2', command: './record number-{}'}
  - {name: braces, command: [./record, braces, '{}', '{#}', '{%}']}
  - {name: braced-line, command: './record braced-line {} {%} && true'}
  - {name: elsewhere, directory: sub, command: '$RECORD elsewhere', shell: /bin/sh}
  - {name: kept, checkpoint: true, command: './record kept'}
  - {name: urgent, priority: urgent, cost: 2s, deadline: 1h, speculate: true, command: './record urgent'}
  - {name: large, cpus: 0.5, memory: 512M, resources: {scanner: 1}, command: './record large'}
"#;
    let outcome = everywhere(file, Said::default());
    assert_eq!(outcome.seen.len(), 19);
    assert!(
        outcome
            .tasks
            .values()
            .all(|ended| ended.state == "succeeded")
    );
    let words = &outcome.seen["words-2"];
    for expected in [
        "<dir/x.tar.gz>\n<xdir/x.tary>\n<x.tar.gz>\n<dir>\n<x.tar>\n<dir/x.tar.gz>\n<{ }>\n<{x}>\n",
        "\nCOLOUR=green\n",
        "\nLOXLEY_ATTEMPT=1\n",
        "\nLOXLEY_ENTRY=dir/x.tar.gz\n",
        "\nnumbered\n",
    ] {
        assert!(words.contains(expected), "{expected} in {words}");
    }
    assert!(outcome.seen["shell-3"].contains("<it's>\n<it's>\n<it's>\n<.>\n<it's>\n<round>\n"));
    assert!(outcome.seen["braces"].contains("<{}>\n<{#}>\n<{%}>\n"));
    assert!(outcome.seen["elsewhere"].contains("\nsub\n"));
    assert!(outcome.seen["kept"].contains("LOXLEY_CHECKPOINT"));
    let slots = outcome.seen.values();
    assert!(
        slots
            .into_iter()
            .all(|seen| seen.contains("\nLOXLEY_SLOT\n"))
    );
}

/// Two tasks that run at the same time: each waits for the other, so each has a slot of its own.
#[test]
fn the_slot_is_the_number_of_the_slot() {
    let file = format!(
        "{AGENTS}{}",
        r#"tasks:
  - name: pair
    array: 1-2
    command: |
      touch "here-{}"; while ! test -e here-1 || ! test -e here-2; do sleep 0.02; done
      test {%} = "$LOXLEY_SLOT" && touch "$SEEN/slot-{%}"
  - {name: own, array: 1-2, after: [pair], command: [sh, -c, 'test "$0" = "$LOXLEY_SLOT"', '{%}']}
"#
    );
    let outcome = everywhere(&file, Said::default());
    let seen: Vec<&str> = outcome.seen.keys().map(String::as_str).collect();
    assert_eq!(seen, ["slot-1", "slot-2"]);
    assert!(
        outcome
            .tasks
            .values()
            .all(|ended| ended.state == "succeeded")
    );
}

#[test]
fn failures_retries_and_those_who_wait_for_them_are_the_same() {
    for rule in ["fail", "skip"] {
        let file = format!(
            "{AGENTS}on_dependency_failure: {rule}\n{}",
            r#"
defaults: {retries: {count: 1, first: 10ms, longest: 20ms}}
tasks:
  - {name: flaky, command: 'test -e mark || { touch mark; exit 3; }'}
  - {name: broken, command: 'exit 7'}
  - {name: killed, command: 'kill -9 $$'}
  - {name: missing, command: [no-such-program-anywhere]}
  - {name: nowhere, directory: no/such/directory, command: 'true'}
  - {name: once, retries: 0, command: 'exit 2'}
  - {name: behind, after: [flaky, broken], command: 'true'}
  - {name: behind-that, after: [behind], command: 'true'}
  - {name: none, each: [], command: 'exit 1'}
  - {name: after-none, after: [none, flaky], command: 'true'}
  - name: goes-on
    checkpoint: true
    command: |
      test "$LOXLEY_ATTEMPT" = 1 && test ! -e "$LOXLEY_CHECKPOINT" && echo 41 > "$LOXLEY_CHECKPOINT" && exit 1
      test "$(cat "$LOXLEY_CHECKPOINT")" = 41
"#
        );
        let said = Said {
            fails: &[
                ("flaky", 1),
                ("broken", 9),
                ("killed", 9),
                ("missing", 9),
                ("nowhere", 9),
                ("once", 9),
                ("goes-on", 1),
            ],
            ..Said::default()
        };
        let outcome = everywhere(&file, said);
        let waiting = if rule == "fail" {
            "failed"
        } else {
            "cancelled"
        };
        for (task, state, attempts) in [
            ("flaky", "succeeded", 2),
            ("broken", "failed", 2),
            ("killed", "failed", 2),
            ("missing", "failed", 2),
            ("nowhere", "failed", 2),
            ("once", "failed", 1),
            ("behind", waiting, 0),
            ("behind-that", waiting, 0),
            ("after-none", "succeeded", 1),
            ("goes-on", "succeeded", 2),
        ] {
            assert_eq!(
                ended(&outcome, task),
                (state.to_owned(), attempts),
                "{task}"
            );
        }
        assert_eq!(outcome.tasks["broken"].code, Some(7));
        assert_eq!(outcome.tasks["killed"].signal, Some(9));
        assert_eq!(outcome.tasks.len(), 10);
    }
}

#[test]
fn limits_and_what_stands_in_are_the_same() {
    let file = format!(
        "{AGENTS}limits: {{one: 1}}\n{}",
        r#"
tasks:
  - {name: long, time_limit: 200ms, command: 'sleep 60'}
  - {name: valued, time_limit: 200ms, command: 'sleep 60', fallback: {value: 'instead'}}
  - {name: behind, after: [valued], command: './record behind'}
  - {name: slow, array: 1-2, time_limit: 300ms, command: 'sleep 60', fallback: {task: quick}}
  - {name: quick, array: 1-2, command: './record quick-{}'}
  - {name: brisk, time_limit: 60s, command: 'true', fallback: {task: spare}}
  - {name: spare, command: './record spare'}
  - {name: greedy, memory: 200M, command: 'dd if=/dev/zero of=/dev/null bs=600M count=1 2>/dev/null'}
  - {name: modest, memory: 200M, command: 'dd if=/dev/zero of=/dev/null bs=1M count=1 2>/dev/null'}
  - {name: alone, array: 1-6, group: one, command: 'mkdir lock && sleep 0.03 && rmdir lock'}
"#
    );
    let said = Said {
        fails: &[("greedy", 9)],
        long: &["long", "valued", "slow 1", "slow 2"],
    };
    let outcome = everywhere(&file, said);
    for (task, state) in [
        ("long", "failed"),
        ("valued", "succeeded"),
        ("behind", "succeeded"),
        ("slow 1", "succeeded"),
        ("slow 2", "succeeded"),
        ("quick 1", "succeeded"),
        ("quick 2", "succeeded"),
        ("brisk", "succeeded"),
        ("spare", "cancelled"),
        ("greedy", "failed"),
        ("modest", "succeeded"),
        ("alone 6", "succeeded"),
    ] {
        assert_eq!(ended(&outcome, task).0, state, "{task}");
    }
    let seen: Vec<&str> = outcome.seen.keys().map(String::as_str).collect();
    assert_eq!(seen, ["behind", "quick-1", "quick-2"]);
}

#[test]
fn arrays_wait_entry_by_entry() {
    let file = format!(
        "{AGENTS}{}",
        r#"tasks:
  - {name: first, each: [x, y, z], command: 'touch "$SEEN/first-{}"; test {} != y'}
  - {name: second, each: [a, b, c], after_each: [first], command: './record second-{}'}
  - {name: last, array: 1-3, after_each: [second], command: [./record, 'last-{}']}
"#
    );
    let said = Said {
        fails: &[("first y", 9)],
        ..Said::default()
    };
    let outcome = everywhere(&file, said);
    for (task, state) in [
        ("first y", "failed"),
        ("second a", "succeeded"),
        ("second b", "failed"),
        ("last 1", "succeeded"),
        ("last 2", "failed"),
        ("last 3", "succeeded"),
    ] {
        assert_eq!(ended(&outcome, task).0, state, "{task}");
    }
}
