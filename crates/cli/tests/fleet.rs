//! A server, agents and the commands that use them: the real binary, real processes, a directory and a
//! port of its own for each test.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");
/// Nothing here takes as long, also on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with its agents; all of them end with it.
struct Fleet {
    directory: TempDir,
    server: Child,
    url: String,
    agents: Vec<Child>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in self.agents.iter_mut().chain([&mut self.server]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Fleet {
    /// A server without agents.
    fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (server, url) = serve(directory.path(), "127.0.0.1:0");
        Self {
            directory,
            server,
            url,
            agents: Vec::new(),
        }
    }

    /// A server with one agent of two slots.
    fn new() -> Self {
        let mut fleet = Self::empty();
        fleet.agent(&["--name", "ada", "--slots", "2"]);
        fleet
    }

    fn command(&self) -> Command {
        let mut command = Command::new(LOXLEY);
        command
            .env("LOXLEY_DIR", self.path())
            .env_remove("LOXLEY_ACCESS")
            .current_dir(self.path());
        command
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts an agent and waits until the server knows it.
    fn agent(&mut self, args: &[&str]) -> u32 {
        let before = self.alive();
        let child = self
            .command()
            .args(["agent", "start", "--log", "warn"])
            .args(args)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        self.agents.push(child);
        until("the agent is there", || self.alive() > before);
        pid
    }

    fn alive(&self) -> usize {
        let agents = self.json(&["agent", "list", "--json"]);
        agents
            .iter()
            .filter(|agent| agent["state"] == "alive")
            .count()
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Runs a command that must succeed; gives what it printed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {:?} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The objects that a command printed.
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let text = self.ok(args);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn code(&self, args: &[&str]) -> i32 {
        self.run(args).status.code().unwrap()
    }

    /// Kills the server the hard way.
    fn kill_server(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Starts a server with the same directory and the same port.
    fn restart_server(&mut self) {
        let address = self.url.strip_prefix("https://").unwrap().to_owned();
        (self.server, self.url) = serve(self.path(), &address);
    }
}

fn serve(directory: &Path, listen: &str) -> (Child, String) {
    serve_with(Command::new(LOXLEY), directory, listen)
}

fn serve_with(mut command: Command, directory: &Path, listen: &str) -> (Child, String) {
    let mut server = command
        .args([
            "server", "start", "--json", "--log", "warn", "--listen", listen, "--dir",
        ])
        .arg(directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = server.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).expect("it says where it is");
    let url = started["url"].as_str().unwrap().to_owned();
    (server, url)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(
            started.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(30));
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

fn wait(child: &mut Child) -> i32 {
    let mut code = None;
    until("it ends", || {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    code.unwrap().code().unwrap_or(-1)
}

#[test]
fn a_command_runs_and_its_output_comes_back() {
    let fleet = Fleet::new();
    let line = fleet.ok(&[
        "submit",
        "--wait",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2",
    ]);
    assert_eq!(line, "job 1: 1 task\n");
    let logs = fleet.run(&["job", "logs", "last"]);
    assert_eq!(logs.stdout, b"out\n");
    assert_eq!(logs.stderr, b"err\n");
    let job = &fleet.json(&["job", "info", "last", "--json"])[0];
    assert_eq!(job["state"], "succeeded");
    let task = &fleet.json(&["task", "info", "last", "--json"])[0];
    assert_eq!(task["agent"], "ada");
    assert_eq!(task["attempts"], 1);
    assert_eq!(fleet.ok(&["submit", "-q", "--", "true"]), "2\n");
}

#[test]
fn words_and_entries_arrive_as_they_are() {
    let fleet = Fleet::new();
    let nasty = "a b;$(touch pwned) 'q' \"d\" `touch pwned` {} \\ ü|>x";
    fs::write(fleet.path().join("lines"), format!("plain\n{nasty}\n\n*\n")).unwrap();
    fleet.ok(&[
        "submit",
        "--wait",
        "--each-line",
        "lines",
        "--",
        "printf",
        "[%s]",
        "{}",
    ]);
    assert_eq!(
        fleet.ok(&["job", "logs", "last"]),
        format!("[plain][{nasty}][][*]")
    );
    fleet.ok(&[
        "submit", "--wait", "--", "printf", "%s|", "{}", "$HOME", nasty,
    ]);
    assert_eq!(
        fleet.ok(&["job", "logs", "last"]),
        format!("{{}}|$HOME|{nasty}|")
    );
    let script =
        "printf %s:%s:%s:%s: $LOXLEY_JOB_ID $LOXLEY_TASK_ID $LOXLEY_ENTRY $LOXLEY_ATTEMPT; pwd";
    fs::create_dir(fleet.path().join("$(touch pwned)")).unwrap();
    fleet.ok(&[
        "submit",
        "--wait",
        "--array",
        "7",
        "--cwd",
        "$(touch pwned)",
        "--env",
        "X=a b",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let logs = fleet.ok(&["job", "logs", "last"]);
    assert!(logs.starts_with("3:6:7:1:"), "{logs}");
    assert!(logs.trim_end().ends_with("/$(touch pwned)"), "{logs}");
    assert!(!fleet.path().join("pwned").exists());
}

#[test]
fn an_array_is_one_job_with_many_tasks() {
    let fleet = Fleet::new();
    let script = "test $LOXLEY_ENTRY != 50";
    let array = "1-40,50-60:5";
    let submit = [
        "submit", "--wait", "--array", array, "--name", "many", "--", "sh", "-c", script,
    ];
    assert_eq!(fleet.code(&submit), 4);
    let job = &fleet.json(&["job", "list", "--name", "many", "--json"])[0];
    assert_eq!(job["tasks"]["total"], 43);
    assert_eq!(job["tasks"]["failed"], 1);
    let failed = fleet.json(&["task", "list", "last", "--state", "failed", "--json"]);
    assert_eq!(failed[0]["entry"], "50");
    assert_eq!(failed[0]["id"], 41);
}

#[test]
fn exit_codes_say_what_happened() {
    let fleet = Fleet::new();
    assert_eq!(fleet.code(&["submit", "--wait", "--", "false"]), 4);
    assert_eq!(fleet.code(&["job", "wait", "last"]), 4);
    assert_eq!(fleet.code(&["task", "wait", "1"]), 4);
    assert_eq!(fleet.code(&["job", "info", "99"]), 5);
    assert_eq!(fleet.code(&["task", "logs", "99"]), 5);
    assert_eq!(fleet.code(&["agent", "info", "nobody"]), 5);
    assert_eq!(fleet.code(&["job", "info", "x"]), 2);
    assert_eq!(fleet.code(&["submit"]), 1);
    assert_eq!(fleet.code(&["submit", "--after", "99", "--", "true"]), 5);
    assert_eq!(fleet.code(&["submit", "--skills", "a\tb", "--", "true"]), 3);
    assert_eq!(
        fleet.code(&[
            "submit",
            "--refuse-unplaceable",
            "--skills",
            "cobol",
            "--",
            "true"
        ]),
        3
    );
    assert_eq!(fleet.code(&["server", "info", "--dir", "nowhere"]), 1);
    assert_eq!(
        fleet.code(&["server", "info", "--server", "https://127.0.0.1:1"]),
        6
    );
    fleet.ok(&["submit", "--", "sleep", "60"]);
    assert_eq!(
        fleet.code(&["job", "wait", "last", "--timeout", "100ms"]),
        8
    );
}

#[test]
fn roles_hold_on_the_command_line() {
    let fleet = Fleet::new();
    for role in ["read", "agent", "submit"] {
        let out = format!("{role}.json");
        fleet.ok(&[
            "server", "token", "create", role, "--role", role, "--out", &out,
        ]);
        let mode = fs::metadata(fleet.path().join(&out))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let with = |role: &str, args: &[&str]| {
        let access = format!("{role}.json");
        let mut command = fleet.command();
        command
            .env("LOXLEY_ACCESS", fleet.path().join(&access))
            .args(args);
        command.output().unwrap().status.code().unwrap()
    };
    assert_eq!(with("read", &["job", "list"]), 0);
    assert_eq!(with("read", &["submit", "--", "true"]), 7);
    assert_eq!(with("agent", &["job", "list"]), 7);
    assert_eq!(with("agent", &["submit", "--", "true"]), 7);
    assert_eq!(with("submit", &["submit", "--wait", "--", "true"]), 0);
    assert_eq!(with("submit", &["server", "stop"]), 7);
    // Whoever may submit may not do so in the name of others.
    let for_ada = ["submit", "--user", "ada", "--", "true"];
    assert_eq!((with("submit", &for_ada), fleet.code(&for_ada)), (7, 0));
    let words = [
        "server", "token", "create", "ci", "--role", "submit", "--out",
    ];
    let said = fleet.json(&[&words[..], &["ci.json", "--user", "ada", "--json"]].concat());
    assert_eq!(
        (&said[0]["user"], &said[0]["token"]),
        (&"ada".into(), &Value::Null)
    );
    assert_eq!(with("ci", &for_ada), 0);
    fleet.ok(&["server", "token", "revoke", "ci"]);
    assert_eq!(with("read", &["agent", "start", "--log", "error"]), 7);
    fleet.ok(&["server", "token", "revoke", "submit"]);
    assert_eq!(with("submit", &["submit", "--", "true"]), 7);
    let open = fleet.path().join("read.json");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(with("read", &["job", "list"]), 1);
    let list = fleet.ok(&["server", "token", "list"]);
    assert_eq!(
        list,
        "name          role   user\nadmin         admin  admin\nlocal-agents  agent  local-agents\n\
         read          read   read\nagent         agent  agent\n"
    );
}

#[test]
fn an_open_job_takes_entries_until_it_is_closed() {
    let fleet = Fleet::new();
    fleet.ok(&["submit", "--open", "--", "echo", "{#}", "{}"]);
    fleet.ok(&["job", "extend", "last", "a", "b"]);
    // Another job takes numbers in between.
    fleet.ok(&["submit", "--wait", "--", "true"]);
    fleet.ok(&["job", "extend", "1", "--array", "7-8"]);
    until("four are done", || {
        fleet.json(&["job", "info", "1", "--json"])[0]["tasks"]["succeeded"] == 4
    });
    let job = &fleet.json(&["job", "info", "1", "--json"])[0];
    assert_eq!(
        (&job["state"], &job["open"]),
        (&"open".into(), &true.into())
    );
    fleet.ok(&["job", "close", "1"]);
    fleet.ok(&["job", "wait", "1"]);
    let tasks = fleet.json(&["task", "list", "1", "--json"]);
    let entries: Vec<_> = tasks.iter().map(|task| task["entry"].clone()).collect();
    assert_eq!(entries, ["a", "b", "7", "8"]);
    assert_eq!(tasks[2]["does"], serde_json::json!(["echo", "3", "7"]));
    assert_eq!(fleet.ok(&["job", "logs", "1"]), "1 a\n2 b\n3 7\n4 8\n");
    assert_ne!(fleet.code(&["job", "extend", "1", "c"]), 0, "it is over");
    assert_ne!(fleet.code(&["job", "close", "2"]), 0, "it was never open");
}

#[test]
fn a_task_that_nobody_can_do_is_explained_and_runs_when_somebody_can() {
    let mut fleet = Fleet::new();
    fleet.ok(&["submit", "--skills", "cobol", "--", "echo", "done"]);
    until("it is held", || {
        fleet.json(&["task", "info", "last", "--json"])[0]["state"] == "held"
    });
    let explanation = fleet.ok(&["task", "explain", "last"]);
    assert!(explanation.contains("cobol"), "{explanation}");
    assert_eq!(fleet.code(&["server", "health"]), 4);
    fleet.agent(&["--name", "grace", "--skills", "cobol", "--slots", "1"]);
    fleet.ok(&["job", "wait", "last"]);
    assert_eq!(
        fleet.json(&["task", "info", "last", "--json"])[0]["agent"],
        "grace"
    );
}

#[test]
fn whoever_waits_for_what_nobody_can_do_is_told_at_once() {
    let fleet = Fleet::empty();
    let mut waiting = fleet
        .command()
        .args(["submit", "--wait", "--skills", "juggling", "--", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(waiting.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let held = lines.next().unwrap();
    assert!(held.contains("task 1 is held: no agent"), "{held}");
    let remedy = lines.next().unwrap();
    assert!(
        remedy.contains("`loxley agent start --skills juggling`"),
        "{remedy}"
    );
    let info = fleet.ok(&["job", "info", "last"]);
    assert!(info.contains("task 1 is held"), "{info}");
    let info = fleet.ok(&["task", "info", "1"]);
    assert!(
        info.contains("loxley agent start --skills juggling"),
        "{info}"
    );
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn cancelling_kills_the_whole_process_group() {
    let fleet = Fleet::new();
    let script = "echo $$ > pid; sleep 1000 & echo $! > child; wait";
    fleet.ok(&["submit", "--", "sh", "-c", script]);
    let read = |name: &str| fs::read_to_string(fleet.path().join(name)).unwrap_or_default();
    until("it runs", || read("child").ends_with('\n'));
    let child: i32 = read("child").trim().parse().unwrap();
    fleet.ok(&["job", "cancel", "last"]);
    assert_eq!(fleet.code(&["job", "wait", "last"]), 4);
    let alive = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    until("its child is gone", || !alive(child));
}

#[test]
fn failures_are_tried_again_and_limits_are_kept() {
    let fleet = Fleet::new();
    let script = "test -e ready || { touch ready; exit 3; }";
    fleet.ok(&[
        "submit",
        "--wait",
        "--retries",
        "2",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(
        fleet.json(&["task", "info", "last", "--json"])[0]["attempts"],
        2
    );
    fs::remove_file(fleet.path().join("ready")).unwrap();
    assert_eq!(
        fleet.code(&["submit", "--wait", "--", "sh", "-c", script]),
        4
    );
    let task = &fleet.json(&["task", "info", "last", "--json"])[0];
    assert_eq!(task["last"]["exit_code"], 3);
    fleet.ok(&["job", "retry", "last"]);
    fleet.ok(&["job", "wait", "last"]);
    let started = Instant::now();
    assert_eq!(
        fleet.code(&[
            "submit",
            "--wait",
            "--time-limit",
            "200ms",
            "--",
            "sleep",
            "100"
        ]),
        4
    );
    assert!(started.elapsed() < Duration::from_secs(30));
    let task = &fleet.json(&["task", "info", "last", "--json"])[0];
    assert_eq!(task["last"]["failure"], "time_limit");
}

#[test]
fn jobs_follow_each_other_and_files_become_graphs() {
    let fleet = Fleet::new();
    fleet.ok(&["submit", "--", "sh", "-c", "sleep 0.3; echo first >> order"]);
    fleet.ok(&[
        "submit",
        "--wait",
        "--after",
        "last",
        "--",
        "sh",
        "-c",
        "echo second >> order",
    ]);
    let order = fs::read_to_string(fleet.path().join("order")).unwrap();
    assert_eq!(order, "first\nsecond\n");
    let file = "name: graph
tasks:
  - {name: end, command: 'cat part-* > whole', after: [parts]}
  - {name: parts, each: [x, 'y z'], command: 'echo {} > part-{#}'}
";
    fs::write(fleet.path().join("graph.yaml"), file).unwrap();
    fleet.ok(&["submit", "graph.yaml", "--wait"]);
    let whole = fs::read_to_string(fleet.path().join("whole")).unwrap();
    assert_eq!(whole, "x\ny z\n");
    fs::write(fleet.path().join("wrong.yaml"), "tasks:\n  - {nme: a}\n").unwrap();
    let output = fleet.run(&["submit", "wrong.yaml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("wrong.yaml:2"));
}

#[test]
fn whoever_waits_goes_on_waiting_when_the_server_is_killed() {
    let mut fleet = Fleet::new();
    fleet.ok(&[
        "submit",
        "--",
        "sh",
        "-c",
        "until test -e go; do sleep 0.05; done; echo done",
    ]);
    until("it runs", || {
        fleet.json(&["task", "info", "last", "--json"])[0]["state"] == "running"
    });
    let mut waiting = fleet
        .command()
        .args(["job", "wait", "last"])
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(300));
    fleet.kill_server();
    thread::sleep(Duration::from_millis(300));
    assert!(waiting.try_wait().unwrap().is_none(), "still waiting");
    fleet.restart_server();
    fs::write(fleet.path().join("go"), "").unwrap();
    assert_eq!(wait(&mut waiting), 0);
    let task = &fleet.json(&["task", "info", "last", "--json"])[0];
    assert_eq!(task["attempts"], 1, "the agent kept it: {task}");
    assert_eq!(fleet.ok(&["job", "logs", "last"]), "done\n");
}

#[test]
fn ctrl_c_ends_the_waiting_and_not_the_job() {
    let fleet = Fleet::new();
    let script = "until test -e go; do sleep 0.05; done";
    let waiting = fleet
        .command()
        .args(["submit", "--wait", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("it runs", || {
        let jobs = fleet.json(&["job", "list", "--json"]);
        jobs.first().is_some_and(|job| job["tasks"]["running"] == 1)
    });
    thread::sleep(Duration::from_millis(300));
    signal(waiting.id(), Signal::INT);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("job 1 goes on"), "{said}");
    assert!(said.contains("loxley job cancel 1"), "{said}");
    fs::write(fleet.path().join("go"), "").unwrap();
    fleet.ok(&["job", "wait", "1"]);
}

/// An agent has the next tasks in hand before it begins them: those do not run.
#[test]
fn watching_a_job_counts_as_running_what_has_begun() {
    let mut fleet = Fleet::empty();
    fleet.agent(&["--name", "bob", "--slots", "1"]);
    let script = "until test -e go; do sleep 0.05; done";
    fleet.ok(&["submit", "--array", "1-3", "--", "sh", "-c", script]);
    // The others may be in the agent's hands or on its queue: they have not begun.
    until("one runs", || {
        fleet.json(&["job", "info", "last", "--json"])[0]["tasks"]["started"] == 1
    });
    let info = fleet.ok(&["job", "info", "last"]);
    assert!(info.contains("3: 2 queued, 1 running"), "{info}");
    let mut watching = fleet
        .command()
        .args(["job", "watch", "last"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(watching.stdout.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    assert_eq!(first, "job 1 open, 0/3 over, 1 running, 2 queued");
    fs::write(fleet.path().join("go"), "").unwrap();
    assert_eq!(wait(&mut watching), 0);
    let last = said.last().unwrap().unwrap();
    assert_eq!(last, "job 1 succeeded, 3/3 over");
}

#[test]
fn agents_and_servers_end_when_told() {
    let mut fleet = Fleet::new();
    fleet.agent(&["--name", "bob", "--slots", "1"]);
    let script = "until test -e go; do sleep 0.05; done";
    fleet.ok(&["submit", "--array", "1-3", "--", "sh", "-c", script]);
    until("all run", || {
        fleet.json(&["job", "info", "last", "--json"])[0]["tasks"]["running"] == 3
    });
    fleet.ok(&["agent", "drain", "bob"]);
    fleet.ok(&["server", "drain"]);
    assert_eq!(fleet.code(&["submit", "--", "true"]), 7);
    fs::write(fleet.path().join("go"), "").unwrap();
    let mut bob = fleet.agents.pop().unwrap();
    assert_eq!(wait(&mut bob), 0);
    assert_eq!(wait(&mut fleet.server), 0);
    fleet.restart_server();
    assert_eq!(
        fleet.json(&["job", "info", "1", "--json"])[0]["state"],
        "succeeded"
    );
    fleet.ok(&["server", "stop"]);
    assert_eq!(wait(&mut fleet.server), 0);
    fleet.restart_server();
    until("the agent is back", || fleet.alive() == 1);
    fleet.ok(&["submit", "--wait", "--", "true"]);
    fleet.ok(&["agent", "stop", "ada"]);
    let mut ada = fleet.agents.pop().unwrap();
    assert_eq!(wait(&mut ada), 0);
}

#[test]
fn a_server_hears_a_signal_from_the_moment_it_can_be_reached() {
    // Several times, since it depends on a moment. INT is ignored at first, as for what a shell starts in the background.
    for _ in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let start = "trap '' INT; exec \"$@\"";
        let mut server = Command::new("sh")
            .args(["-c", start, "sh", LOXLEY, "server", "start"])
            .args(["--log", "error", "--listen", &address.to_string(), "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < PATIENCE, "it listens");
            thread::yield_now();
        }
        signal(server.id(), Signal::INT);
        assert_eq!(wait(&mut server), 0);
    }
}

#[test]
fn progress_and_json_are_for_scripts() {
    let fleet = Fleet::new();
    let output = fleet.run(&[
        "submit",
        "--progress",
        "--array",
        "1-5",
        "--",
        "sleep",
        "0.1",
    ]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("5/5 tasks"), "{said}");
    let job = &fleet.json(&["submit", "--wait", "--json", "--", "true"])[0];
    assert_eq!(job["state"], "succeeded");
    for args in [
        &["server", "info", "--json"][..],
        &["server", "health", "--json"],
        &["server", "token", "list", "--json"],
        &["agent", "list", "--json"],
        &["agent", "info", "ada", "--json"],
        &["job", "list", "--json"],
        &["job", "wait", "all", "--json"],
        &["job", "logs", "last", "--json"],
        &["task", "list", "1", "--json"],
        &["task", "info", "1,3-4", "--json"],
        &["task", "explain", "1", "--json"],
        &["submit", "--dry-run", "--", "true"],
    ] {
        let rows = fleet.json(args);
        assert!(args[1] == "wait" || !rows.is_empty(), "{args:?}");
    }
    assert_eq!(fleet.json(&["task", "list", "1", "--json"]).len(), 5);
}

#[test]
fn a_configuration_is_reloaded() {
    let fleet = Fleet::new();
    let yaml = "load_balancing:\n  thresholds:\n    busy_threshold: 9\n";
    fs::write(fleet.path().join("new.yaml"), yaml).unwrap();
    let config = &fleet.json(&["config", "reload", "new.yaml", "--json"])[0];
    assert!(
        config["yaml"]
            .as_str()
            .unwrap()
            .contains("busy_threshold: 9")
    );
    fs::write(
        fleet.path().join("wrong.yaml"),
        "load_balancing: {strategy: shove}\n",
    )
    .unwrap();
    assert_eq!(fleet.code(&["config", "reload", "wrong.yaml"]), 3);
}

/// What a person sees, with everything that changes from run to run left out.
#[test]
fn a_session_looks_like_this() {
    let fleet = Fleet::new();
    fleet.ok(&["submit", "--wait", "--name", "hello", "--", "echo", "hello"]);
    let odd = fleet.run(&[
        "submit",
        "--wait",
        "--array",
        "1-3",
        "--name",
        "odd",
        "--",
        "sh",
        "-c",
        "exit $((LOXLEY_ENTRY % 2))",
    ]);
    assert_eq!(
        String::from_utf8_lossy(&odd.stderr),
        "job 2 failed: 1 succeeded, 2 failed of 3 tasks; `loxley job logs 2 --state failed` shows what they wrote\n"
    );
    let jobs = fleet.ok(&["job", "list"]);
    let columns = |text: &str, count: usize| -> Vec<String> {
        let line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().take(count).collect();
            words.join(" ")
        };
        text.lines().map(line).collect()
    };
    assert_eq!(
        columns(&jobs, 6),
        [
            "job name state tasks done failed",
            "2 odd failed 3 3 2",
            "1 hello succeeded 1 1 0",
        ]
    );
    let tasks = fleet.ok(&["task", "list", "2"]);
    assert_eq!(
        columns(&tasks, 7),
        [
            "task job state agent attempts end does",
            "2 2 failed ada 1 exit 1",
            "3 2 succeeded ada 1 sh -c",
            "4 2 failed ada 1 exit 1",
        ]
    );
    let failed = fleet.ok(&["task", "list", "2", "--state", "failed"]);
    assert_eq!(failed.lines().count(), 3);
    let info = fleet.ok(&["job", "info", "2"]);
    assert!(
        info.contains("tasks     3: 1 succeeded, 2 failed\n"),
        "{info}"
    );
    assert!(info.contains("ids       2-4\n"), "{info}");
    let agents = columns(&fleet.ok(&["agent", "list"]), 8);
    assert_eq!(
        agents[0],
        "agent name state slots running queued done failed"
    );
    assert!(agents[1].ends_with(" ada alive 2 0 0 2 2"), "{agents:?}");
}

#[test]
fn logs_are_followed_while_they_come_and_to_their_end() {
    let fleet = Fleet::new();
    let follow = |words: &[&str]| {
        let mut command = fleet.command();
        command.args(words).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    // While it runs.
    let line = "echo first; sleep 2; printf second";
    fleet.ok(&["submit", "--", "sh", "-c", line]);
    let mut child = follow(&["task", "logs", "last", "--follow"]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    stdout.read_line(&mut seen).unwrap();
    assert_eq!(seen, "first\n");
    let job = &fleet.json(&["job", "info", "last", "--json"])[0];
    assert_eq!(job["state"], "open", "it was seen before its end");
    stdout.read_to_string(&mut seen).unwrap();
    assert_eq!((seen.as_str(), wait(&mut child)), ("first\nsecond", 0));
    // What is over is printed, and that is all.
    assert_eq!(fleet.ok(&["job", "logs", "last", "-f"]), "first\nsecond");
    // Several at once: lines stay whole, and each says whose it is. More tasks than slots.
    let line = "echo a; printf b; sleep 0.4; echo c";
    fleet.ok(&["submit", "--array", "1-5", "--", "sh", "-c", line]);
    let text = fleet.ok(&["job", "logs", "last", "--follow", "--tag"]);
    let first = fleet.json(&["job", "info", "last", "--json"])[0]["first_task"].as_u64();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let tasks = first.unwrap()..first.unwrap() + 5;
    let expected: Vec<String> = tasks
        .flat_map(|task| ["a", "bc"].map(|line| format!("{task}\t{line}")))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn ctrl_c_ends_the_following_and_not_the_task() {
    let fleet = Fleet::new();
    fleet.ok(&["submit", "--", "sh", "-c", "echo here; sleep 60"]);
    let mut child = fleet
        .command()
        .args(["job", "logs", "last", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut seen).unwrap();
    let piece: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(
        (&piece["stream"], &piece["text"]),
        (&"stdout".into(), &"here\n".into())
    );
    signal(child.id(), Signal::INT);
    assert_eq!(wait(&mut child), 130);
    let job = &fleet.json(&["job", "info", "last", "--json"])[0];
    assert_eq!(job["state"], "open");
    fleet.ok(&["job", "cancel", "last"]);
}

#[test]
fn whoever_submits_to_a_server_that_dies_hears_that_it_may_have_been_accepted() {
    let mut fleet = Fleet::empty();
    fleet.kill_server();
    // It dies when the job is on disk, and before it says so.
    let mut command = Command::new(LOXLEY);
    command.env("LOXLEY_FAILPOINT", "journal.after_commit@2");
    let address = fleet.url.strip_prefix("https://").unwrap().to_owned();
    (fleet.server, fleet.url) = serve_with(command, fleet.path(), &address);
    let words = ["--", "echo", "once"];
    let submit = ["submit", "--quiet", "--patience", "300ms"];
    let output = fleet.run(&[&submit[..], &words].concat());
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("may have been accepted"), "{said}");
    let (_, rest) = said.split_once("the key `").unwrap();
    let (key, _) = rest.split_once('`').unwrap();
    fleet.server.wait().unwrap();
    fleet.restart_server();
    // The same with its key tells, and makes no second one.
    let first = fleet.ok(&[&submit[..], &["--key", key], &words].concat());
    assert_eq!(fleet.json(&["job", "list", "--json"]).len(), 1);
    assert_eq!(first, "1\n");
    let other = fleet.run(&["submit", "--key", key, "--", "echo", "other"]);
    assert_eq!(other.status.code(), Some(7), "another content");
    // One that is patient for long enough notices nothing: its server comes back.
    fleet.kill_server();
    let mut command = Command::new(LOXLEY);
    command.env("LOXLEY_FAILPOINT", "journal.after_commit@2");
    (fleet.server, fleet.url) = serve_with(command, fleet.path(), &address);
    let patient = fleet
        .command()
        .args(["submit", "--quiet", "--", "true"])
        .stdout(Stdio::piped())
        .spawn();
    let patient = patient.unwrap();
    fleet.server.wait().unwrap();
    fleet.restart_server();
    let output = patient.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(0), b"2\n".to_vec())
    );
    assert_eq!(fleet.json(&["job", "list", "--json"]).len(), 2);
}

#[test]
fn a_task_sees_nothing_of_ours_but_what_is_documented() {
    let fleet = Fleet::new();
    let access = fs::read_to_string(fleet.path().join("agent.json")).unwrap();
    let access: Value = serde_json::from_str(&access).unwrap();
    assert_eq!(access["role"], "agent");
    // The agent of this test was started with LOXLEY_DIR in its environment.
    let script = "env | grep ^LOXLEY_ | cut -d= -f1 | sort | tr '\\n' ' '; \
                  tr '\\0' '\\n' < /proc/$PPID/environ | grep -c ^LOXLEY_";
    fleet.run(&["submit", "--wait", "--array", "1", "--", "sh", "-c", script]);
    let seen = fleet.ok(&["job", "logs", "last"]);
    let documented =
        "LOXLEY_ATTEMPT LOXLEY_ENTRY LOXLEY_JOB_ID LOXLEY_MARK LOXLEY_SLOT LOXLEY_TASK_ID";
    assert_eq!(seen.trim(), format!("{documented} 0"));
    let agents = fleet.json(&["agent", "list", "--json"]);
    assert_eq!(agents[0]["name"], "ada");
    assert_eq!(fleet.code(&["agent", "forget", "ada"]), 7, "it is here");
}

#[test]
fn a_list_for_programs_has_all_tasks_and_one_for_people_says_when_it_has_not() {
    let fleet = Fleet::empty();
    fleet.ok(&["submit", "--array", "1-2500", "--", "true"]);
    let rows = fleet.json(&["task", "list", "--json"]);
    let ids: Vec<u64> = rows.iter().map(|row| row["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=2500).collect::<Vec<u64>>());
    assert_eq!(
        fleet
            .json(&["task", "list", "--json", "--limit", "1001"])
            .len(),
        1001
    );
    let table = fleet.run(&["task", "list"]);
    assert_eq!(
        table.stdout.iter().filter(|byte| **byte == b'\n').count(),
        1001
    );
    let said = String::from_utf8(table.stderr).unwrap();
    assert!(said.contains("there are more tasks"), "{said}");
}

#[test]
fn a_server_whose_journal_is_gone_says_so_and_does_not_begin_anew_by_itself() {
    let mut fleet = Fleet::empty();
    fleet.ok(&["submit", "--", "true"]);
    fleet.kill_server();
    for file in fs::read_dir(fleet.path()).unwrap() {
        let path = file.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("journal.")
        {
            fs::remove_file(path).unwrap();
        }
    }
    let dir = fleet.path().to_str().unwrap();
    let start = ["server", "start", "--listen", "127.0.0.1:0", "--dir", dir];
    let output = fleet.run(&start);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is gone") && said.contains("--new"), "{said}");
    let mut command = Command::new(LOXLEY);
    command.args([
        "server",
        "start",
        "--new",
        "--json",
        "--log",
        "warn",
        "--listen",
        "127.0.0.1:0",
        "--dir",
        dir,
    ]);
    fleet.server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(fleet.server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(fleet.json(&["job", "list", "--json"]).is_empty());
}
