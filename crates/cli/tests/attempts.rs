//! An attempt is over when its processes are gone, and they go with whoever runs them. Real processes, which keep
//! books of their own: in the order of the lines, never by the clock.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[expect(dead_code, reason = "no test needs all of it")]
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use loxley_client::Client;
use rustix::process::Signal;
use support::{Fleet, LOXLEY, lines, runs, signal, until};

/// Writes into the book when it begins and when it ends, and takes a while to end at TERM.
const SLOW_TO_END: &str = "echo begin $LOXLEY_TASK_ID.$LOXLEY_ATTEMPT >>book; \
    trap 'sleep 0.7; echo bye; echo end $LOXLEY_TASK_ID.$LOXLEY_ATTEMPT >>book; exit 1' TERM; \
    sleep 600 >/dev/null 2>&1 & wait";

/// A process, a child of it in a session of its own, and a child of that, each with its number in a file.
const FAMILY: &str = "echo $$ >leader; \
    setsid sh -c 'echo $$ >child; sh -c \"echo \\$\\$ >grandchild; exec sleep 600\" & exec sleep 600' & \
    exec sleep 600";

fn family(directory: &Path) -> Vec<String> {
    let files = ["leader", "child", "grandchild"];
    let numbers = files.map(|name| lines(&directory.join(name)).join(""));
    numbers.into_iter().filter(|pid| !pid.is_empty()).collect()
}

fn until_family_runs(directory: &Path) -> Vec<String> {
    until("all of them run", || family(directory).len() == 3);
    family(directory)
}

fn until_all_are_gone(family: &[String]) {
    until("nothing is left of the task", || {
        !family.iter().any(|pid| runs(pid))
    });
}

#[test]
fn on_a_server_the_next_attempt_begins_when_the_one_before_is_gone() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "2"]);
    let args = [
        "submit",
        "--wait",
        "--retries",
        "1",
        "--time-limit",
        "1s",
        "--",
    ];
    let output = fleet.run(&[&args[..], &["sh", "-c", SLOW_TO_END]].concat());
    assert_eq!(output.status.code(), Some(4));
    // The waiter has returned: nothing may be written any more.
    let book = fleet.book("book");
    assert_eq!(book, ["begin 1.1", "end 1.1", "begin 1.2", "end 1.2"]);
    assert_eq!(
        fleet.ok(&["job", "logs", "last"]),
        "bye\n",
        "its output is kept"
    );
}

#[test]
fn in_a_run_the_next_attempt_begins_when_the_one_before_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(LOXLEY)
        .args([
            "run",
            "--no-item",
            "-j2",
            "--retries",
            "1",
            "--timeout",
            "1s",
            SLOW_TO_END,
            ":::",
            "x",
        ])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let book = lines(&directory.path().join("book"));
    assert_eq!(book, ["begin 1.1", "end 1.1", "begin 1.2", "end 1.2"]);
    assert!(output.stdout.ends_with(b"bye\n"), "{output:?}");
}

#[test]
fn a_cancelled_task_keeps_its_place_until_it_is_gone_and_its_output_is_kept() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "2", "--resource", "gpu=1"]);
    let submit = ["submit", "-q", "--resource", "gpu=1", "--"];
    fleet.ok(&[&submit[..], &["sh", "-c", SLOW_TO_END]].concat());
    until("it runs", || fleet.book("book") == ["begin 1.1"]);
    let next = "echo next >>book";
    fleet.ok(&[&submit[..], &["sh", "-c", next]].concat());
    fleet.ok(&["job", "cancel", "1"]);
    fleet.ok(&["job", "wait", "2"]);
    assert_eq!(fleet.book("book"), ["begin 1.1", "end 1.1", "next"]);
    let cancelled = fleet.run(&["job", "wait", "1"]);
    assert_eq!(cancelled.status.code(), Some(4));
    let task = &fleet.json(&["task", "info", "1", "--json"])[0];
    assert_eq!(task["state"], "cancelled");
    assert_eq!(
        fleet.ok(&["task", "logs", "1"]),
        "bye\n",
        "its output is kept"
    );
}

#[test]
fn a_time_limit_ends_children_with_sessions_of_their_own() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "1"]);
    let args = [
        "submit",
        "--wait",
        "--time-limit",
        "1s",
        "--",
        "sh",
        "-c",
        FAMILY,
    ];
    assert_eq!(fleet.run(&args).status.code(), Some(4));
    let family = family(fleet.path());
    assert_eq!(family.len(), 3);
    assert!(!family.iter().any(|pid| runs(pid)), "the attempt is over");
}

#[test]
fn tasks_die_with_their_agent() {
    let mut fleet = Fleet::new(None);
    let agent = fleet.agent(&["--name", "ada", "--slots", "1"]);
    fleet.ok(&["submit", "-q", "--", "sh", "-c", FAMILY]);
    let family = until_family_runs(fleet.path());
    signal(agent, Signal::KILL);
    until_all_are_gone(&family);
}

#[test]
fn tasks_die_with_their_run_however_it_ends() {
    for ended_by in [
        &[Signal::HUP][..],
        &[Signal::QUIT],
        &[Signal::TERM],
        &[Signal::KILL],
        &[Signal::TERM, Signal::KILL],
    ] {
        let directory = tempfile::tempdir().unwrap();
        // Whoever runs the tests may ignore signals itself, as `nohup` does: those are put right first.
        let mut run = Command::new("env")
            .args(["--default-signal=HUP,INT,QUIT,TERM", LOXLEY])
            .args(["run", "--no-item", FAMILY, ":::", "x"])
            .current_dir(directory.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let family = until_family_runs(directory.path());
        for sent in ended_by {
            signal(run.id(), *sent);
        }
        until("the run ends", || run.try_wait().unwrap().is_some());
        until_all_are_gone(&family);
    }
}

#[test]
fn a_run_inside_a_task_ends_with_the_task() {
    let directory = tempfile::tempdir().unwrap();
    let inner = format!(
        "{LOXLEY} run --no-item '{}' ::: x",
        FAMILY.replace('\'', "'\\''")
    );
    let mut run = Command::new(LOXLEY)
        .args(["run", "--no-item", &inner, ":::", "x"])
        .current_dir(directory.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let family = until_family_runs(directory.path());
    signal(run.id(), Signal::KILL);
    run.wait().unwrap();
    until_all_are_gone(&family);
}

#[test]
fn a_task_that_must_not_run_twice_fails_when_its_agent_is_lost() {
    let mut fleet = Fleet::new(Some(3));
    let agent = fleet.agent(&["--name", "ada", "--slots", "1"]);
    let script = "echo $LOXLEY_TASK_ID.$LOXLEY_ATTEMPT >>book; sleep 600";
    fleet.ok(&["submit", "-q", "--no-rerun", "--", "sh", "-c", script]);
    until("it runs", || fleet.book("book") == ["1.1"]);
    signal(agent, Signal::KILL);
    fleet.agent(&["--name", "bob", "--slots", "1"]);
    let waited = fleet.run(&["job", "wait", "1"]);
    assert_eq!(waited.status.code(), Some(4));
    let task = &fleet.json(&["task", "info", "1", "--json"])[0];
    assert_eq!(
        (&task["state"], &task["last"]["failure"]),
        (&"failed".into(), &"agent_lost".into())
    );
    assert_eq!(fleet.book("book"), ["1.1"], "it ran once");
    let file = "tasks:\n  - {name: a, rerun: never, retries: 2, command: 'true'}\n";
    std::fs::write(fleet.path().join("job.yaml"), file).unwrap();
    let refused = fleet.run(&["submit", "job.yaml"]);
    assert_eq!(refused.status.code(), Some(3));
}

/// Passes everything on between an agent and its server, until it is told to fall silent.
fn proxy(server: &str) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let server = server.strip_prefix("https://").unwrap().to_owned();
    let silent = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&silent);
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(&server) else {
                continue;
            };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let silent = Arc::clone(&flag);
                thread::spawn(move || pass_on(from, to, &silent));
            }
        }
    });
    (address, silent)
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, silent: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while silent.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Says in the book whether another attempt runs, and where it runs itself.
const ALONE: &str = "runs() { grep -qs '^State:.[^ZX]' /proc/$1/status; }; \
    for other in $(cat running 2>/dev/null); do runs $other && echo overlap >>book; done; \
    echo $$ >>running; echo $LOXLEY_ATTEMPT >>book; \
    test $LOXLEY_ATTEMPT = 2 && exit 0; trap 'sleep 0.7; exit 1' TERM; sleep 600 >/dev/null & wait";

#[test]
fn an_agent_that_is_cut_off_ends_what_it_runs_before_others_begin_with_it() {
    for stopped in [false, true] {
        let mut fleet = Fleet::new(Some(6));
        let (address, silent) = proxy(&fleet.url);
        let cut_off = fleet.agent(&["--name", "ada", "--slots", "1", "--server", &address]);
        fleet.ok(&["submit", "-q", "--", "sh", "-c", ALONE]);
        until("it runs", || fleet.book("book") == ["1"]);
        fleet.agent(&["--name", "bob", "--slots", "1"]);
        if stopped {
            // It cannot look at its clock: its guardian does.
            signal(cut_off, Signal::STOP);
        } else {
            silent.store(true, Ordering::Relaxed);
        }
        fleet.ok(&["job", "wait", "1"]);
        assert_eq!(fleet.book("book"), ["1", "2"]);
        let task = &fleet.json(&["task", "info", "1", "--json"])[0];
        assert_eq!(task["agent"], "bob");
    }
}

#[test]
fn an_agent_that_is_stopped_ends_what_it_runs_before_others_begin_with_it() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "1"]);
    fleet.ok(&["submit", "-q", "--", "sh", "-c", ALONE]);
    until("it runs", || fleet.book("book") == ["1"]);
    fleet.agent(&["--name", "bob", "--slots", "1"]);
    fleet.ok(&["agent", "stop", "ada"]);
    fleet.ok(&["job", "wait", "1"]);
    assert_eq!(fleet.book("book"), ["1", "2"]);
    until("it has left", || fleet.alive() == 1);
}

#[test]
fn an_agent_short_of_descriptors_gives_tasks_back_and_none_fails() {
    let mut fleet = Fleet::new(None);
    let start =
        format!("ulimit -n 64; exec {LOXLEY} agent start --log error --name short --slots 16");
    let short = Command::new("sh")
        .args(["-c", &start])
        .env("LOXLEY_DIR", fleet.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    fleet.agents.push(short);
    until("the agent is there", || fleet.alive() == 1);
    fleet.ok(&["submit", "-q", "--array", "1-64", "--", "sleep", "0.3"]);
    fleet.ok(&["job", "wait", "1"]);
    let tasks = fleet.json(&["task", "list", "1", "--json"]);
    assert_eq!(tasks.len(), 64);
    assert!(tasks.iter().all(|task| task["state"] == "succeeded"));
}

fn ask<T>(
    fleet: &Fleet,
    question: impl AsyncFn(&Client) -> Result<T, loxley_client::ClientError>,
) -> T {
    let access = std::fs::read(fleet.path().join("access.json")).unwrap();
    let access: loxley_api::Access = serde_json::from_slice(&access).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { question(&Client::new(&access).unwrap()).await.unwrap() })
}

fn reload(fleet: &Fleet, yaml: &str) {
    ask(fleet, async |client| client.reload_config(yaml).await);
}

fn config_of(fleet: &Fleet) -> String {
    ask(fleet, async |client| client.config().await).yaml
}

#[test]
fn shorter_heartbeats_do_not_make_a_healthy_agent_lost_and_survive_a_restart() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "1"]);
    fleet.ok(&[
        "submit",
        "-q",
        "--",
        "sh",
        "-c",
        "echo $LOXLEY_ATTEMPT >>book; until test -e enough; do sleep 0.1; done",
    ]);
    until("it runs", || fleet.book("book") == ["1"]);
    reload(&fleet, &support::heartbeats(6));
    assert!(config_of(&fleet).contains("lost_after_sec: 6\n"));
    // Longer than the new time and shorter than the old one.
    thread::sleep(Duration::from_secs(9));
    fleet.kill_server();
    fleet.restart_server();
    assert!(
        config_of(&fleet).contains("lost_after_sec: 6\n"),
        "a change survives a restart"
    );
    std::fs::write(fleet.path().join("enough"), "").unwrap();
    fleet.ok(&["job", "wait", "1"]);
    assert_eq!(fleet.book("book"), ["1"], "it ran once");
}

#[test]
fn a_server_that_stood_still_takes_nobody_for_lost() {
    // As long as it was when it was noticed, with the default configuration; in short runs shorter.
    let long = std::env::var_os("LOXLEY_TEST_LONG").is_some();
    let mut fleet = Fleet::new((!long).then_some(15));
    for name in ["ada", "bob", "cid"] {
        fleet.agent(&["--name", name, "--slots", "1"]);
    }
    let script =
        "echo $LOXLEY_TASK_ID.$LOXLEY_ATTEMPT >>book; until test -e enough; do sleep 0.1; done";
    fleet.ok(&["submit", "-q", "--array", "1-3", "--", "sh", "-c", script]);
    until("they run", || fleet.book("book").len() == 3);
    signal(fleet.server.id(), Signal::STOP);
    thread::sleep(Duration::from_secs(if long { 45 } else { 7 }));
    signal(fleet.server.id(), Signal::CONT);
    until("all are heard again", || fleet.alive() == 3);
    std::fs::write(fleet.path().join("enough"), "").unwrap();
    fleet.ok(&["job", "wait", "1"]);
    let mut book = fleet.book("book");
    book.sort();
    assert_eq!(book, ["1.1", "2.1", "3.1"]);
}

#[test]
fn arguments_and_lines_that_are_no_text_arrive_as_they_are() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "1"]);
    let word = b"caf\xe9 \xff\xfe 'quoted' \xf4\x8f\xbf\xbf end";
    let output = fleet
        .command()
        .args(["submit", "--wait", "-q", "--", "sh", "-c"])
        .args(["printf %s \"$1\" >argument", "sh"])
        .arg(OsStr::from_bytes(word))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(fleet.path().join("argument")).unwrap(), word);
    let lines = fleet.path().join("lines");
    std::fs::write(&lines, b"one\n\xe9\xff two\r\n").unwrap();
    let lines = lines.to_str().unwrap();
    fleet.ok(&[
        "submit",
        "--wait",
        "-q",
        "--each-line",
        lines,
        "--",
        "sh",
        "-c",
        "printf %s \"$1\" >line$2; \
         printf %s \"$LOXLEY_ENTRY\" >entry$2",
        "sh",
        "{}",
        "{#}",
    ]);
    for (file, expected) in [
        ("line1", &b"one"[..]),
        ("line2", b"\xe9\xff two"),
        ("entry2", b"\xe9\xff two"),
    ] {
        let found = std::fs::read(fleet.path().join(file)).unwrap();
        assert_eq!(found, expected, "{file}");
    }
}

#[test]
fn what_a_follower_misses_is_counted_where_it_is_missing() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "1"]);
    let bytes = 20_000_000;
    let script = format!(
        "echo begin; until [ -e go ]; do sleep 0.05; done; head -c {bytes} /dev/zero | tr '\\0' x; echo; echo end"
    );
    fleet.ok(&["submit", "-q", "--", "sh", "-c", &script]);
    let follower = fleet
        .command()
        .args(["task", "logs", "--follow", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::fs::write(fleet.path().join("go"), "").unwrap();
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    let missing: u64 = said
        .lines()
        .filter_map(|line| {
            line.strip_prefix("loxley: ")?
                .strip_suffix(" earlier bytes were not kept")
        })
        .map(|count| count.parse::<u64>().unwrap())
        .sum();
    let delivered = output.stdout.len() as u64;
    assert_eq!(
        delivered + missing,
        bytes + "begin\n\nend\n".len() as u64,
        "{said}"
    );
    assert!(output.stdout.ends_with(b"x\nend\n"));
}

#[test]
fn what_is_tried_again_waits_for_what_it_depends_on() {
    let mut fleet = Fleet::new(None);
    fleet.agent(&["--name", "ada", "--slots", "4"]);
    let file = fleet.path().join("job.yaml");
    let text = "\
tasks:
- {name: last, command: 'echo last >>order', after: [middle]}
- {name: middle, command: 'echo middle >>order', after: [first]}
- {name: first, command: 'test -e mended && sleep 0.3 && echo first >>order'}
";
    std::fs::write(&file, text).unwrap();
    let failed = fleet.run(&["submit", "--wait", "-q", file.to_str().unwrap()]);
    assert_eq!(failed.status.code(), Some(4), "{failed:?}");
    assert_eq!(fleet.book("order"), [] as [String; 0]);
    let tasks = fleet.json(&["task", "list", "1", "--json"]);
    assert!(
        tasks.iter().all(|task| task["state"] == "failed"),
        "{tasks:?}"
    );
    // One of them alone would run without what it needs.
    let refused = fleet.run(&["task", "retry", "1"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(7), "{said}");
    assert!(
        said.contains("which failed and is not tried again"),
        "{said}"
    );
    std::fs::write(fleet.path().join("mended"), "").unwrap();
    fleet.ok(&["job", "retry", "1"]);
    fleet.ok(&["job", "wait", "1"]);
    assert_eq!(fleet.book("order"), ["first", "middle", "last"]);
}
