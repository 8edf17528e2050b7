//! `loxley run` with real processes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn loxley(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loxley"));
    command.arg("run").args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    loxley(words).output().expect("it runs")
}

fn with_input(words: &[&str], input: &[u8]) -> Output {
    let mut child = loxley(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sorted(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = stdout(output).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

#[test]
fn every_item_is_run_once() {
    let output = run(&["-j4", "--array", "1-500", "echo"]);
    let lines: BTreeSet<u32> = stdout(&output)
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(stdout(&output).lines().count(), 500);
    assert_eq!(lines, (1..=500).collect());
    assert_eq!(code(&output), 0);
    assert!(output.stderr.is_empty());
}

#[test]
fn order_is_kept_when_asked_for() {
    let output = run(&[
        "-k",
        "-j3",
        "sleep 0.{}; echo {}",
        ":::",
        "3",
        "1",
        "2",
        "0",
    ]);
    assert_eq!(stdout(&output), "3\n1\n2\n0\n");
}

#[test]
fn the_output_of_tasks_is_not_mixed() {
    let output = run(&[
        "-j4",
        "seq {}00001 {}20000; echo end {}",
        ":::",
        "1",
        "2",
        "3",
    ]);
    let text = stdout(&output);
    let mut lines = text.lines();
    for _ in 0..3 {
        let first: u32 = lines.next().expect("a line").parse().expect("a number");
        for number in first + 1..first + 20_000 {
            assert_eq!(lines.next(), Some(number.to_string().as_str()));
        }
        assert_eq!(
            lines.next(),
            Some(format!("end {}", first / 100_000).as_str())
        );
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn items_come_from_lists_lines_files_and_zero_bytes() {
    assert_eq!(
        sorted(&run(&["echo {2}{1}", ":::", "a", "b", ":::", "x"])),
        ["xa", "xb"]
    );
    assert_eq!(
        sorted(&with_input(&["echo [{}]"], b"a b\n\nc")),
        ["[]", "[a b]", "[c]"]
    );
    assert_eq!(
        sorted(&with_input(&["-0", "echo {}"], b"a\0b\nc\0")),
        ["a", "b", "c"]
    );
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("items");
    fs::write(&file, "1\n2\n").expect("a file");
    let file = file.to_str().expect("text");
    assert_eq!(sorted(&run(&["--each-line", file, "echo"])), ["1", "2"]);
    assert_eq!(
        sorted(&run(&["echo {1}{2}", "::::", file, ":::", "x"])),
        ["1x", "2x"]
    );
    assert_eq!(
        sorted(&with_input(&[], b"echo one; exit 0\necho two\n")),
        ["one", "two"]
    );
    assert_eq!(
        code(&run(&["echo", ":::"])),
        0,
        "no items, no tasks, no failure"
    );
}

#[test]
fn standard_input_is_run_as_it_comes() {
    let mut child = loxley(&["echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for item in ["one", "two", "three"] {
        writeln!(stdin, "{item}").expect("it reads");
        assert_eq!(lines.next().expect("a line").expect("text"), item);
    }
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn failures_are_counted_in_the_exit_code() {
    assert_eq!(code(&run(&["exit", ":::", "0", "1", "7"])), 2);
    assert_eq!(code(&run(&["--array", "1-150", "--no-item", "false"])), 101);
    assert_eq!(code(&run(&["kill -9 $$", ":::", "1"])), 1);
    let missing = run(&["no-such-program", ":::", "1"]);
    assert_eq!(code(&missing), 1);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-program"));
    for wrong in [
        &["--halt", "whenever", "true", ":::", "1"][..],
        &["echo {3}", ":::", "1"],
        &["echo `cat {}`", ":::", "1"],
        &["--array", "1-2", "echo", ":::", "1"],
        &["--each-line", "/no/such/file", "echo"],
        &["--resume", "echo", ":::", "1"],
        &["--no-such-option"],
    ] {
        let output = run(wrong);
        assert_eq!(code(&output), 255, "{wrong:?}");
        assert!(!output.stderr.is_empty(), "{wrong:?}");
    }
}

#[test]
fn a_task_that_fails_is_tried_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let count = directory.path().join("count");
    let count = count.to_str().expect("text");
    let flaky = format!("echo x >> {count}; [ $(wc -l < {count}) -ge 3 ] && echo $LOXLEY_ATTEMPT");
    let output = run(&["--retries", "3", "--no-item", &flaky, ":::", "1"]);
    assert_eq!(code(&output), 0);
    assert_eq!(stdout(&output), "3\n", "only the last attempt is shown");
    fs::remove_file(count).expect("it was made");
    assert_eq!(
        code(&run(&["--retries", "1", "--no-item", &flaky, ":::", "1"])),
        1
    );
    assert_eq!(fs::read_to_string(count).expect("text"), "x\nx\n");
}

#[test]
fn a_task_that_takes_too_long_is_ended() {
    let begun = Instant::now();
    let output = run(&[
        "--timeout",
        "0.2",
        "echo {}; test {} = 0 || sleep {}",
        ":::",
        "0",
        "30",
    ]);
    assert_eq!(code(&output), 1);
    assert_eq!(
        sorted(&output),
        ["0", "30"],
        "what it wrote before is shown"
    );
    let words = ["-j2", "--timeout", "500%", "sleep {}", ":::"];
    let output = run(&[&words[..], &["0.1"; 6], &["30"]].concat());
    assert_eq!(code(&output), 1);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_run_halts_soon_or_now() {
    let begun = Instant::now();
    let output = run(&[
        "-j1",
        "--halt",
        "soon,fail=1",
        "echo {}; exit {}",
        ":::",
        "0",
        "1",
        "0",
    ]);
    assert_eq!(stdout(&output), "0\n1\n");
    assert_eq!(code(&output), 1);
    let output = run(&[
        "-j2",
        "--halt",
        "now,success=1",
        "sleep {}",
        ":::",
        "30",
        "0.1",
        "30",
    ]);
    assert_eq!(code(&output), 0, "one success was enough");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_log_lets_a_run_go_on_where_it_stopped() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let log = log.to_str().expect("text");
    let command = "echo {}; [ {} != 2 ]";
    let first = run(&[
        "-j1",
        "--joblog",
        log,
        "--halt",
        "soon,fail=1",
        command,
        ":::",
        "1",
        "2",
        "3",
    ]);
    assert_eq!(stdout(&first), "1\n2\n");
    let lines: Vec<String> = fs::read_to_string(log)
        .expect("a log")
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[2].ends_with("\t1\t0\techo 2; [ 2 != 2 ]"),
        "{}",
        lines[2]
    );
    let dry = run(&[
        "--dry-run",
        "--joblog",
        log,
        "--resume",
        command,
        ":::",
        "1",
        "2",
        "3",
    ]);
    assert_eq!(stdout(&dry), "echo 3; [ 3 != 2 ]\n");
    let again = run(&[
        "-j1",
        "--joblog",
        log,
        "--resume-failed",
        command,
        ":::",
        "1",
        "2",
        "3",
    ]);
    assert_eq!(stdout(&again), "2\n3\n");
    let rest = run(&["--joblog", log, "--resume", command, ":::", "1", "2", "3"]);
    assert_eq!((stdout(&rest), code(&rest)), (String::new(), 0));
    // Other items, or another command, are no continuation: nothing is left out without a word.
    for other in [
        [command, ":::", "4", "5"],
        ["echo other {}", ":::", "1", "2"],
    ] {
        let refused = run(&[&["--joblog", log, "--resume"], &other[..]].concat());
        assert_eq!((stdout(&refused), code(&refused)), (String::new(), 255));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("another one than in the job log"), "{said}");
    }
}

#[test]
fn a_run_that_is_no_continuation_is_refused_before_anything_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let log = log.to_str().expect("text");
    // Task 3 is done; 1 and 2 are not.
    let heading = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";
    let line = "3\t:\t1431699523.118\t     0.002\t0\t2\t0\t0\techo c\n";
    fs::write(log, format!("{heading}{line}")).expect("a log");
    let resume = ["-j1", "--joblog", log, "--resume", "echo {}", ":::"];
    for (items, why) in [
        (&["a", "b", "x", "d"][..], "another one than in the job log"),
        (&["a", "b"][..], "is not there any more"),
    ] {
        let refused = run(&[&resume, items].concat());
        assert_eq!((stdout(&refused), code(&refused)), (String::new(), 255));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains(why), "{said}");
    }
    let resumed = run(&[&resume[..], &["a", "b", "c", "d"]].concat());
    assert_eq!(
        (stdout(&resumed), code(&resumed)),
        ("a\nb\nd\n".to_owned(), 0)
    );
}

#[test]
fn results_are_kept_in_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let words = [
        "--results",
        root.to_str().expect("text"),
        "echo out {}; echo err >&2",
        ":::",
    ];
    run(&[&words[..], &["a/b", "c d"]].concat());
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a result");
    assert_eq!(read("1/a\\_b/stdout"), "out a/b\n");
    assert_eq!(read("1/c d/stderr"), "err\n");
    assert_eq!(read("1/c d/seq"), "2");
}

#[test]
fn tags_weights_and_json() {
    let output = run(&["--tag", "echo x; printf y", ":::", "a b"]);
    assert_eq!(stdout(&output), "a b\tx\na b\ty");
    let directory = tempfile::tempdir().expect("a directory");
    let weights = directory.path().join("weights");
    fs::write(&weights, "1\n30\n2\n").expect("a file");
    let weights = weights.to_str().expect("text");
    let output = run(&["-j1", "--weights", weights, "echo", ":::", "a", "b", "c"]);
    assert_eq!(stdout(&output), "b\nc\na\n");
    let output = run(&["--json", "echo {}; exit {#}", ":::", "a"]);
    let rows: Vec<serde_json::Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows[0]["stdout"], "a\n");
    assert_eq!(rows[0]["exit"], 1);
    assert_eq!(rows[1]["summary"]["failed"], 1);
}

#[test]
fn a_straggler_gets_a_second_copy() {
    let directory = tempfile::tempdir().expect("a directory");
    let mark = directory.path().join("mark");
    // The first attempt at item 9 hangs; every other returns at once.
    let line = format!(
        "sleep 0.02; if [ {{}} = 9 ] && mkdir {} 2> /dev/null; then sleep 30; fi; echo {{}}",
        mark.display()
    );
    let begun = Instant::now();
    let items: Vec<String> = (1..=12).map(|item| item.to_string()).collect();
    let items: Vec<&str> = items.iter().map(String::as_str).collect();
    let output = run(&[&["-j2", "--speculate", &line, ":::"], &items[..]].concat());
    assert_eq!(code(&output), 0);
    assert_eq!(stdout(&output).lines().count(), 12, "each is shown once");
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}

/// Starts a run of stubborn tasks and waits until they have begun.
fn interruptible(directory: &Path, line: &str) -> Child {
    let child = loxley(&["-j2", line, ":::", "1", "2", "3", "4"])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    while !(directory.join("1").exists() && directory.join("2").exists()) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the tasks never began"
        );
        thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Interrupts, and waits until it is heard: two signals at once would be one.
fn interrupt_and_hear(child: &mut Child) {
    interrupt(child);
    let mut said = String::new();
    let stderr = child.stderr.as_mut().expect("a pipe");
    BufReader::new(stderr)
        .read_line(&mut said)
        .expect("it is said");
    assert!(said.contains("finishing the 2 tasks"), "{said}");
}

fn interrupt(child: &Child) {
    let status = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success());
}

#[test]
fn interrupted_once_what_runs_is_finished() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = "touch {}; until test -e go; do sleep 0.05; done; echo {}";
    let mut child = interruptible(directory.path(), script);
    interrupt_and_hear(&mut child);
    fs::write(directory.path().join("go"), "").expect("it is written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(sorted(&output), ["1", "2"]);
    assert_eq!(code(&output), 130);
    assert!(!directory.path().join("3").exists());
}

#[test]
fn interrupted_twice_what_runs_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let begun = Instant::now();
    let mut child = interruptible(directory.path(), "echo $$ > {}; sleep 60; echo {}");
    interrupt_and_hear(&mut child);
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(stdout(&output), "");
    assert_eq!(code(&output), 130);
    assert!(begun.elapsed() < Duration::from_secs(55));
    for item in ["1", "2"] {
        let pid = fs::read_to_string(directory.path().join(item)).expect("a number");
        let alive = Path::new("/proc").join(pid.trim()).exists();
        assert!(!alive, "{pid} still lives");
    }
}

#[test]
fn a_reader_that_goes_away_stops_the_run() {
    let begun = Instant::now();
    let mut child = loxley(&["-j2", "echo {}; sleep 0.01", ":::"])
        .args((0..10_000).map(|item| item.to_string()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut first = [0; 2];
    let mut reader = child.stdout.take().expect("a pipe");
    reader.read_exact(&mut first).expect("a line");
    drop(reader);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(code(&output), 0);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn starts_keep_their_distance_and_memory_is_limited() {
    let begun = Instant::now();
    assert_eq!(
        code(&run(&[
            "-j4", "--delay", "100ms", "true", ":::", "1", "2", "3", "4"
        ])),
        0
    );
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let greedy = "awk 'BEGIN { s = \"x\"; while (length(s) < 300000000) s = s s }' < /dev/null";
    assert_eq!(
        code(&run(&["--memory", "100M", "--no-item", greedy, ":::", "1"])),
        1
    );
}

#[test]
fn the_report_says_how_balanced_it_was() {
    let output = run(&[
        "--summary",
        "always",
        "-j2",
        "sleep 0.0{}",
        ":::",
        "5",
        "6",
        "5",
        "6",
    ]);
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(report.starts_with("4 succeeded, 0 failed in "), "{report}");
    for figure in [
        "load imbalance",
        "straggler ratio",
        "worker utilization",
        "queue-depth variance",
    ] {
        assert!(report.contains(figure), "{report}");
    }
}

#[test]
fn a_limit_holds_over_several_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = || {
        let line = "mkdir busy && sleep 0.02 && rmdir busy";
        loxley(&[
            "-j4",
            "--limit",
            "disk=1",
            "--no-item",
            "--array",
            "1-8",
            line,
        ])
        .env("XDG_RUNTIME_DIR", directory.path())
        .current_dir(directory.path())
        .spawn()
        .expect("it starts")
    };
    let runs: Vec<Child> = (0..3).map(|_| start()).collect();
    for mut run in runs {
        let status = run.wait().expect("it ends");
        assert!(status.success(), "two tasks of the group ran at once");
    }
}

#[test]
fn items_end_where_somebody_says_and_commands_are_shown_when_asked_for() {
    let output = with_input(&["-k", "-d", ",", "-t", "echo {}"], b"a,b c");
    assert_eq!(stdout(&output), "a\nb c\n");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "echo a\necho 'b c'\n"
    );
}

#[test]
fn short_tasks_are_not_told_of_only_after_a_long_one() {
    let mut child = loxley(&[
        "-j1",
        "echo {}; test {} = 0 || sleep {}",
        ":::",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "4",
    ])
    .stdout(Stdio::piped())
    .spawn()
    .expect("it starts");
    let begun = Instant::now();
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for _ in 0..6 {
        let line = lines.next().expect("a line").expect("text");
        assert_eq!(line, "0");
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "they had to wait");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn tasks_ignore_the_signals_that_the_run_was_told_to_ignore_and_no_others() {
    let ignored = |before: &str| {
        let line = format!("{before} exec \"$0\" run -j1 \"grep SigIgn /proc/self/status\" ::: 1");
        // Whoever runs the tests may ignore signals itself, as `nohup` does: those are put right first.
        let output = Command::new("env")
            .args(["--default-signal=HUP,INT,PIPE", "sh", "-c", &line])
            .arg(env!("CARGO_BIN_EXE_loxley"))
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let text = stdout(&output);
        let mask = text.split_whitespace().nth(1).expect("a mask");
        u64::from_str_radix(mask, 16).expect("a mask")
    };
    let (hangup, interrupt, pipe) = (1 << 0, 1 << 1, 1 << 12);
    let usual = ignored("");
    assert_eq!(usual & (hangup | interrupt | pipe), 0);
    assert_eq!(ignored("trap '' HUP;"), usual | hangup);
}

/// What is built on a server's journal works on that of a run.
#[test]
fn a_run_can_be_written_down() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kept");
    let kept = path.to_str().expect("text");
    let words = [
        "--journal",
        kept,
        "echo said {}; exit {} # {awk}",
        ":::",
        "0",
        "3",
    ];
    assert_eq!(run(&words).status.code(), Some(1));
    let journal = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loxley"));
        let output = command.arg("journal").args(words).args(["--dir", kept]);
        let output = output.output().expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {complaint}");
        String::from_utf8(output.stdout).expect("text")
    };
    journal(&["check"]);
    let export = journal(&["export"]);
    for expected in ["slot 1", "ended\":\"failed\"", "exit_code\":3"] {
        assert!(export.contains(expected), "{expected} in {export}");
    }
    // What a server would be asked, its journal answers; and it is only looked at.
    let ask = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loxley"));
        command.args(words).args(["--journal", kept]);
        command.output().expect("it runs")
    };
    for (words, expected) in [
        (&["job", "info", "1"][..], "1 failed"),
        (&["task", "list", "all"], "failed"),
        (&["task", "list", "all"], "echo said 3; exit 3 # {awk}"),
        (&["task", "logs", "1"], "said 0"),
        (&["task", "explain", "2"], "failed on `slot "),
    ] {
        let output = ask(words);
        let said = stdout(&output);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{words:?}: {said}{complaint}");
    }
    let refused = ask(&["task", "retry", "2"]);
    assert_eq!(code(&refused), 7, "{}", stdout(&refused));
    journal(&["check"]);
    let again = run(&["--journal", kept, "true", ":::", "1"]);
    assert_eq!(again.status.code(), Some(255));
    let complaint = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(complaint.contains("a new directory"), "{complaint}");
}

/// Asks again until it is true; a run may not have come that far.
fn until(what: &str, mut look: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !look() {
        assert!(begun.elapsed() < Duration::from_secs(90), "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[test]
fn a_run_can_be_looked_at_from_another_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let other = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_loxley"))
            .args(words)
            .env("XDG_RUNTIME_DIR", place)
            .output()
            .expect("it runs")
    };
    let nobody = other(&["top", "--run", "--once"]);
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(said.contains("no `loxley run` of yours"), "{said}");
    let line = "while [ ! -e go ]; do sleep 0.05; done; echo {}";
    let mut run = loxley(&["-j2", line, ":::", "a", "b", "c"])
        .env("XDG_RUNTIME_DIR", place)
        .current_dir(place)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let process = format!("--run={}", run.id());
    let top = |how: &[&str]| json(&other(&[&["top"], how].concat()));
    until("two tasks run", || {
        top(&["--run", "--json"])["server"]["fleet"]["tasks"]["running"] == 2
    });
    let seen = top(&[&process, "--json"]);
    assert_eq!(seen["agents"].as_array().map(Vec::len), Some(2), "{seen}");
    assert_eq!(seen["tasks"].as_array().map(Vec::len), Some(2), "{seen}");
    let page = other(&["top", "--run", "--once"]);
    assert!(stdout(&page).contains("slot 1"), "{}", stdout(&page));
    // What is not there to be changed is refused, and says so.
    let refused = other(&["submit", &process, "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("this is a run, not a server"), "{said}");
    let cancelled = other(&["task", "cancel", &process, "3"]);
    assert!(cancelled.status.success(), "{cancelled:?}");
    fs::write(place.join("go"), "").expect("there is room");
    let output = {
        let mut shown = String::new();
        let mut out = run.stdout.take().expect("a pipe");
        out.read_to_string(&mut shown).expect("text");
        shown
    };
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a", "b"], "the third was cancelled");
    let ended = run.wait().expect("it ends");
    assert_eq!(ended.code(), Some(130), "not all of it was done");
    let left = fs::read_dir(place.join("loxley/runs")).expect("it was made");
    assert_eq!(left.count(), 0, "nothing is left behind");
}

/// A request of HTTP, and what comes back.
fn http(address: &str, method: &str, path: &str, secret: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("somebody listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {secret}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it is sent");
    let mut answer = Vec::new();
    // Whoever answers may close the connection its own way.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn the_dashboard_of_a_run_shows_what_ran_and_stays_when_asked_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut run = loxley(&["--dashboard=stay", "-j2", "echo {}", ":::", "a", "b", "c"])
        .env("XDG_RUNTIME_DIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(run.stderr.take().expect("a pipe")).lines();
    let mut next = |with: &str| loop {
        let line = lines.next().expect("it says so").expect("text");
        if line.contains(with) {
            return line;
        }
    };
    let link = next("dashboard: http://");
    let (_, rest) = link.split_once("http://").expect("a link");
    let (address, ticket) = rest.split_once("/#ticket=").expect("a ticket");
    next("stays until Ctrl-C");
    let page = http(address, "GET", "/", "");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("content-security-policy"), "{page}");
    let session = http(address, "POST", "/v1/session", ticket);
    assert!(session.starts_with("HTTP/1.1 201"), "{session}");
    let (_, rest) = session.split_once("\"secret\":\"").expect("a secret");
    let (secret, _) = rest.split_once('"').expect("it ends");
    let again = http(address, "POST", "/v1/session", ticket);
    assert!(again.starts_with("HTTP/1.1 401"), "{again}");
    // What is over can be looked at, with what it printed.
    let server = http(address, "GET", "/v1/server", secret);
    assert!(server.contains("\"succeeded\":3"), "{server}");
    let output = http(address, "GET", "/v1/tasks/2/output", secret);
    assert!(output.contains("\"stdout\":\"b\\n\""), "{output}");
    let window = "/v1/timeline?from_unix_ms=0&to_unix_ms=9999999999999";
    let timeline = http(address, "GET", window, secret);
    assert!(timeline.contains("\"tasks\":3"), "{timeline}");
    let refused = http(address, "POST", "/v1/tasks/1/retry", secret);
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    let interrupt = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(interrupt.expect("it runs").success());
    assert_eq!(run.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_a_task_of_a_run_prints_is_seen_while_it_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let other = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_loxley"))
            .args(words)
            .env("XDG_RUNTIME_DIR", place)
            .output()
            .expect("it runs")
    };
    let line =
        "echo early {}; echo wrong >&2; while [ ! -e go-{} ]; do sleep 0.05; done; echo late";
    for options in [&["--dashboard", "-j1"][..], &["-j1"]] {
        let mut run = loxley(&[options, &[line, ":::", "a", "b"]].concat())
            .env("XDG_RUNTIME_DIR", place)
            .current_dir(place)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let process = format!("--run={}", run.id());
        let logs = |task: &str| other(&["task", "logs", &process, task]);
        let let_end = |task: &str| fs::write(place.join(task), "").expect("there is room");
        if options.len() == 2 {
            until("the first is heard", || stdout(&logs("1")) == "early a\n");
            let wrong = logs("1").stderr;
            assert!(String::from_utf8_lossy(&wrong).contains("wrong"));
        } else {
            // Whoever looks at a run that was not asked to be looked at sees what starts from then on.
            until("somebody looks", || {
                other(&["task", "info", &process, "1"]).status.success()
            });
        }
        let_end("go-a");
        until("the second is heard", || stdout(&logs("2")) == "early b\n");
        let_end("go-b");
        let mut output = String::new();
        let mut out = run.stdout.take().expect("a pipe");
        out.read_to_string(&mut output).expect("text");
        assert_eq!(output, "early a\nlate\nearly b\nlate\n");
        assert_eq!(run.wait().expect("it ends").code(), Some(0));
        for task in ["go-a", "go-b"] {
            fs::remove_file(place.join(task)).expect("it is there");
        }
    }
}

/// A terminal of its own, for as long as this is kept.
struct Tmux {
    place: std::path::PathBuf,
}

impl Tmux {
    fn command(&self, words: &[&str]) -> Output {
        Command::new("tmux")
            .args(["-S", "tmux.sock", "-f", "/dev/null"])
            .args(words)
            .current_dir(&self.place)
            .env("XDG_RUNTIME_DIR", &self.place)
            .env("NO_COLOR", "1")
            .env("TERM", "screen")
            .output()
            .expect("tmux runs")
    }

    /// What stands on the screen; with how it looks, when asked for.
    fn screen(&self, words: &[&str]) -> String {
        stdout(&self.command(&[&["capture-pane", "-p", "-t", "top"], words].concat()))
    }

    /// Waits until this stands on the screen.
    fn shows(&self, text: &str) -> String {
        let mut screen = String::new();
        until(text, || {
            screen = self.screen(&[]);
            screen.contains(text)
        });
        screen
    }

    fn press(&self, key: &str) {
        self.command(&["send-keys", "-t", "top", key]);
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}

#[test]
fn top_fits_a_small_terminal_without_colour() {
    if Command::new("tmux").arg("-V").output().is_err() {
        // Where it can be had, the machine that runs the suite has it: `apt install tmux`.
        eprintln!("NOT CHECKED: there is no tmux, so nobody saw `loxley top` on a terminal");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let line = "while [ ! -e go ]; do sleep 0.05; done; true {}";
    let mut run = loxley(&["-j2", line, ":::", "a", "b", "c"])
        .env("XDG_RUNTIME_DIR", place)
        .current_dir(place)
        .spawn()
        .expect("it starts");
    let socket = place.join(format!("loxley/runs/{}", run.id()));
    until("the run can be looked at", || socket.exists());
    let terminal = Tmux {
        place: place.to_owned(),
    };
    let program = env!("CARGO_BIN_EXE_loxley");
    let start = ["new-session", "-d", "-s", "top", "-x", "80", "-y", "24"];
    let started = terminal.command(&[&start[..], &[program, "top", "--run"]].concat());
    assert!(started.status.success(), "{started:?}");
    let screen = terminal.shows("slot 2");
    assert!(screen.contains("2 agents, 2 slots"), "{screen}");
    assert_eq!(screen.lines().count(), 24, "{screen}");
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    // Tabs, keys and answers.
    terminal.press("3");
    terminal.shows("while [");
    terminal.press("e");
    terminal.shows("running on");
    terminal.press("Escape");
    // Both keys in one read would be another key.
    until("it is put away", || {
        !terminal.screen(&[]).contains("running on")
    });
    terminal.press("2");
    terminal.shows("open");
    // Bold and reverse are not colours; numbers from 30 to 49 and beyond 89 are.
    let drawn = terminal.screen(&["-e"]);
    for sequence in drawn.split('\u{1b}').skip(1) {
        let numbers = sequence.trim_start_matches('[').split('m').next();
        for number in numbers.unwrap_or_default().split(';') {
            let number: u32 = number.parse().unwrap_or(0);
            let is_colour = (30..=49).contains(&number) || (90..=107).contains(&number);
            assert!(!is_colour || number == 39 || number == 49, "{drawn:?}");
        }
    }
    fs::write(place.join("go"), "").expect("there is room");
    assert!(run.wait().expect("it ends").success());
    // Whom it looks at is gone: it says so, and still hears the keys.
    terminal.shows("AWAY");
    terminal.press("q");
    until("it ends", || {
        !terminal
            .command(&["has-session", "-t", "top"])
            .status
            .success()
    });
}
