//! `loxley run FILE.yaml` with real processes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A directory with a job file.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("job.yaml"), text).expect("a file");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loxley"));
        command
            .args(["run", "job.yaml"])
            .args(words)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it runs")
    }

    /// The rows of a run with `--json`, by the title of their task, and the summary.
    fn rows(&self, words: &[&str]) -> (BTreeMap<String, Value>, Value) {
        let output = self.run(&[&["--json", "--no-report"], words].concat());
        let mut rows = BTreeMap::new();
        let mut summary = Value::Null;
        for line in stdout(&output).lines() {
            let row: Value = serde_json::from_str(line).expect("JSON");
            match row.get("summary") {
                Some(whole) => summary = whole.clone(),
                None => {
                    let name = row["name"].as_str().expect("a name");
                    let entry = row["items"][0].as_str();
                    let title = entry.map_or(name.to_owned(), |entry| format!("{name} {entry}"));
                    assert!(rows.insert(title, row).is_none(), "a task ended twice");
                }
            }
        }
        (rows, summary)
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn dependencies_run_first_entry_by_entry_or_all() {
    let bench = Bench::new(
        "agents: [{name: ada, slots: 2}, {name: bob}]
tasks:
  - {name: last, command: 'cat two-* > all; echo last', after: [two]}
  - {name: one, array: 1-6, command: 'sleep 0.0{}; echo {} > one-{}'}
  - {name: two, array: 1-6, command: 'cat one-{} > two-{}', after_each: [one]}
",
    );
    let output = bench.run(&[]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "last\n");
    let all = fs::read_to_string(bench.path("all")).expect("it was written");
    assert_eq!(all, "1\n2\n3\n4\n5\n6\n");
    let report = fs::read_to_string(bench.path("job-report.html")).expect("it was drawn");
    assert!(report.contains("two 6") && report.contains("</html>"));
    assert!(stderr(&output).contains("timeline: job-report.html"));
    assert!(stderr(&output).contains("load imbalance"));
}

#[test]
fn a_failure_reaches_what_waits_for_it() {
    let text = "tasks:
  - {name: bad, command: 'exit 3', retries: {count: 2, first: 1ms, longest: 2ms}}
  - {name: next, command: 'true', after: bad}
  - {name: other, command: 'true'}
";
    let bench = Bench::new(text);
    let (rows, summary) = bench.rows(&[]);
    assert_eq!(
        (&rows["bad"]["exit"], &rows["bad"]["attempt"]),
        (&3.into(), &3.into())
    );
    assert_eq!(rows["next"]["ending"], "failed");
    assert_eq!(rows["next"].get("exit"), None, "it never ran");
    assert_eq!(rows["other"]["ending"], "succeeded");
    assert_eq!(
        (&summary["failed"], &summary["retries"]),
        (&2.into(), &2.into())
    );
    assert_eq!(code(&bench.run(&["--no-report"])), Some(2));
    let bench = Bench::new(&format!("on_dependency_failure: skip\n{text}"));
    let output = bench.run(&["--no-report"]);
    assert_eq!(code(&output), Some(1));
    assert!(stderr(&output).contains("bad failed: exit code 3 at attempt 3"));
    assert!(stderr(&output).contains("1 skipped"));
}

#[test]
fn skills_decide_who_runs_a_task() {
    let bench = Bench::new(
        "agents: [{name: ada, skills: [text]}, {name: bob, skills: [gpu, text]}]
tasks:
  - {name: draw, array: 1-4, command: 'true', skills: [gpu]}
  - {name: write, array: 1-4, command: 'sleep 0.05', skills: [text]}
",
    );
    let (rows, summary) = bench.rows(&[]);
    assert_eq!(summary["succeeded"], 8);
    for number in 1..=4 {
        assert_eq!(rows[&format!("draw {number}")]["agent"], "bob");
    }
}

#[test]
fn urgent_tasks_pass_those_that_wait() {
    let bench = Bench::new(
        "agents: [{name: ada}]
tasks:
  - {name: slow, array: 1-20, command: 'sleep 0.05; echo slow >> order'}
  - {name: start, command: sleep 0.1, priority: 5}
  - {name: urgent, array: 1-3, command: 'echo urgent >> order', after: start, priority: 5}
",
    );
    bench.run(&["--no-report"]);
    let order = fs::read_to_string(bench.path("order")).expect("it was written");
    let order: Vec<&str> = order.lines().collect();
    let urgent = order.iter().rposition(|line| *line == "urgent");
    assert!(urgent.is_some_and(|place| place < 6), "{order:?}");
}

#[test]
fn a_group_is_limited_and_the_command_line_may_say_otherwise() {
    let bench = Bench::new(
        "limits: {disk: 1}
agents: [{name: ada, slots: 4}]
tasks:
  - {name: copy, array: 1-6, group: disk, command: 'mkdir busy && sleep 0.03 && rmdir busy'}
",
    );
    assert_eq!(code(&bench.run(&["--no-report"])), Some(0));
    let output = bench.run(&["--no-report", "--limit", "disk=4"]);
    assert!(code(&output) > Some(0), "several at once collide");
    let output = bench.run(&["--no-report", "--limit", "tape=4"]);
    assert_eq!(code(&output), Some(255));
}

#[test]
fn a_time_limit_kills_the_group_and_a_fallback_stands_in() {
    let bench = Bench::new(
        "tasks:
  - name: value
    command: 'echo mine; sleep 60 & sleep 60'
    time_limit: 200ms
    fallback: {value: \"stand-in\\n\"}
  - {name: task, command: sleep 60, time_limit: 200ms, fallback: {task: spare}}
  - {name: spare, command: echo spare}
  - {name: unused, command: echo unused}
  - {name: quick, command: echo quick, time_limit: 10s, fallback: {task: unused}}
  - {name: none, command: 'echo partly; sleep 60', time_limit: 200ms}
  - {name: after, command: echo after, after: [value, task]}
",
    );
    let begun = Instant::now();
    let (rows, summary) = bench.rows(&[]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(rows["value"]["ending"], "fell_back");
    assert_eq!(rows["value"]["stdout"], "stand-in\n");
    assert_eq!(rows["task"]["ending"], "fell_back");
    assert_eq!(rows["spare"]["stdout"], "spare\n");
    assert_eq!(rows["unused"]["ending"], "skipped");
    assert_eq!(rows["after"]["ending"], "succeeded");
    assert_eq!(rows["none"]["ending"], "failed");
    assert_eq!(rows["none"]["stdout"], "partly\n");
    assert_eq!(
        (&summary["failed"], &summary["skipped"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn a_second_copy_rescues_a_straggler() {
    let bench = Bench::new(
        "agents: [{name: ada}, {name: bob}]
tasks:
  - name: step
    array: 1-12
    speculate: true
    command: 'if [ {} = 3 ] && mkdir stalled 2>/dev/null; then sleep 60; fi; sleep 0.05; echo {}'
",
    );
    let begun = Instant::now();
    let output = bench.run(&[]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(stdout(&output).lines().count(), 12);
    let text = stderr(&output);
    assert!(text.contains("step 3 was slow on"), "{text}");
    assert!(text.contains("and was first"), "{text}");
}

#[test]
fn idle_agents_take_from_busy_ones() {
    let bench = Bench::new(
        "agents: [{name: ada}, {name: bob}]
tasks:
  - {name: long, command: sleep 1, priority: 4}
  - {name: step, array: 1-20, command: sleep 0.02}
",
    );
    let output = bench.run(&[]);
    assert!(
        stderr(&output).contains("what moved, and why"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_checkpoint_is_kept_when_a_task_is_tried_again() {
    let bench = Bench::new(
        "defaults: {checkpoint: true, retries: {count: 5, first: 1ms, longest: 1ms}}
tasks:
  - name: sum
    array: 1-2
    command: |
      at=$(cat \"$LOXLEY_CHECKPOINT\" 2>/dev/null || echo 0)
      echo \"attempt $LOXLEY_ATTEMPT at $at\"
      echo $((at + 1)) > \"$LOXLEY_CHECKPOINT\"
      [ \"$at\" -ge 2 ]
",
    );
    let (rows, _) = bench.rows(&[]);
    assert_eq!(rows["sum 2"]["stdout"], "attempt 3 at 2\n");
    // A directory that is kept serves the next run.
    let once = Bench::new(
        "tasks: [{name: a, checkpoint: true, command: '[ -e \"$LOXLEY_CHECKPOINT\" ] || { touch \"$LOXLEY_CHECKPOINT\"; exit 1; }'}]",
    );
    assert_eq!(
        code(&once.run(&["--checkpoints", "kept", "--no-report"])),
        Some(1)
    );
    assert_eq!(
        code(&once.run(&["--checkpoints", "kept", "--no-report"])),
        Some(0)
    );
    let left = fs::read_dir(once.path("kept")).expect("it is kept").count();
    assert_eq!(left, 0, "a task that succeeded needs no checkpoint");
}

#[test]
fn a_task_knows_who_it_is() {
    let bench = Bench::new(
        "tasks:
  - {name: first, command: 'true'}
  - name: say
    each: [a b, c]
    env: {WORD: hello}
    directory: sub
    command: 'echo \"$LOXLEY_TASK_ID $LOXLEY_ENTRY $LOXLEY_ATTEMPT $WORD {#} $(basename \"$PWD\") ${LOXLEY_JOB_ID:+job}\"'
  - {name: braces, command: [echo, '{}', '{1}']}
",
    );
    fs::create_dir(bench.path("sub")).expect("a directory");
    let (rows, _) = bench.rows(&[]);
    assert_eq!(rows["say a b"]["stdout"], "2 a b 1 hello 1 sub job\n");
    assert_eq!(rows["say c"]["stdout"], "3 c 1 hello 2 sub job\n");
    assert_eq!(rows["braces"]["stdout"], "{} {1}\n");
}

#[test]
fn a_run_is_resumed_where_it_failed() {
    let bench = Bench::new(
        "tasks:
  - {name: one, command: 'echo one >> ran'}
  - {name: two, command: 'echo two >> ran; [ -e fixed ]', after: one}
  - {name: three, command: 'echo three >> ran', after: two}
",
    );
    let words = ["--no-report", "--joblog", "log", "--resume-failed"];
    assert_eq!(code(&bench.run(&words)), Some(2));
    fs::write(bench.path("fixed"), "").expect("a file");
    assert_eq!(code(&bench.run(&words)), Some(0));
    let ran = fs::read_to_string(bench.path("ran")).expect("it was written");
    assert_eq!(ran, "one\ntwo\ntwo\nthree\n");
    let file = fs::read_to_string(bench.path("job.yaml")).expect("the file");
    let changed = file.replace("echo one", "echo other");
    fs::write(bench.path("job.yaml"), changed).expect("it is ours");
    let refused = bench.run(&words);
    assert_eq!(code(&refused), Some(255));
    assert!(stderr(&refused).contains("another one than in the job log"));
    assert_eq!(
        fs::read_to_string(bench.path("ran")).expect("it is there"),
        ran
    );
}

#[test]
fn mistakes_are_shown_with_their_line_and_nothing_runs() {
    let bench = Bench::new(
        "agents: [{name: ada, skills: [text]}]
tasks:
  - {name: a, command: touch ran, after: [b], skills: [txet]}
",
    );
    let output = bench.run(&[]);
    assert_eq!(code(&output), Some(255));
    let text = stderr(&output);
    assert!(
        text.contains("job.yaml:3:") && text.contains("did you mean `text`?"),
        "{text}"
    );
    assert!(text.contains("there is no task `b`"), "{text}");
    assert!(!bench.path("ran").exists());
}

#[test]
fn options_of_items_do_not_go_with_a_job_file() {
    let bench = Bench::new("tasks: [{name: a, command: 'true'}]");
    for words in [
        &["--retries", "3"][..],
        &["--timeout", "1s"],
        &["--array", "1-3"],
        &["extra"],
    ] {
        let output = bench.run(words);
        assert_eq!(code(&output), Some(255), "{words:?}: {}", stderr(&output));
    }
    let output = bench.run(&["--nonsense"]);
    assert_eq!(code(&output), Some(255));
    let described = Bench::new("agents: [{name: ada}]\ntasks: [{name: a, command: 'true'}]");
    assert_eq!(code(&described.run(&["-j", "2"])), Some(255));
}

#[test]
fn an_interrupt_finishes_what_runs_and_a_second_one_kills_it() {
    let text = "agents: [{name: ada, slots: 2}]
tasks:
  - {name: step, array: 1-50, command: 'echo start {} >> log; until test -e go; do sleep 0.05; done; echo end {} >> log'}
";
    for (interrupts, ended) in [(1, 2), (2, 0)] {
        let bench = Bench::new(text);
        let mut child = bench
            .command(&["--no-report"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        wait_for_lines(&bench.path("log"), 2);
        let pid = child.id().to_string();
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let interrupt = || {
            let mut kill = Command::new("kill");
            assert!(
                kill.args(["-INT", &pid])
                    .status()
                    .expect("it is sent")
                    .success()
            );
        };
        interrupt();
        // Two signals at once would be one: the second follows what is said of the first.
        let said = lines.next().expect("a line").expect("text");
        assert!(said.contains("finishing the 2 tasks"), "{said}");
        match interrupts {
            1 => fs::write(bench.path("go"), "").expect("it is written"),
            _ => interrupt(),
        }
        lines.for_each(drop);
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
        let log = fs::read_to_string(bench.path("log")).expect("it was written");
        assert_eq!(log.matches("start").count(), 2, "{log}");
        assert_eq!(log.matches("end").count(), ended, "{log}");
    }
}

fn wait_for_lines(path: &Path, count: usize) {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= count {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing runs");
}

/// The first thing a new user runs.
#[test]
fn the_quickstart_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = tempfile::tempdir().expect("a directory");
    // Runs can be looked at by a socket in a directory that stays, as a terminal multiplexer has it.
    let sockets = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_loxley"))
        .arg("run")
        .arg(root.join("examples/quickstart.yaml"))
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .env("XDG_RUNTIME_DIR", sockets.path())
        .output()
        .expect("it runs");
    let text = stderr(&output);
    assert_eq!(code(&output), Some(0), "{text}");
    assert!(
        stdout(&output).contains("front page: w0"),
        "{}",
        stdout(&output)
    );
    assert!(stdout(&output).contains("forecast: as yesterday"));
    assert!(text.contains("count 13 was slow on"), "{text}");
    assert!(text.contains("0 failed"), "{text}");
    let left: Vec<_> = fs::read_dir(directory.path())
        .expect("it is there")
        .collect();
    assert_eq!(left.len(), 1, "only the report is left: {left:?}");
}
