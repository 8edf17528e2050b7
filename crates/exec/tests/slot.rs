//! Real processes: what a slot promises about their ends, their output and their groups.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use loxley_exec::{
    Command, Ended, Files, Sink, Slot, StartError, Status, Stopped, Stream, Tail, Urgency,
};

fn run(command: &Command) -> (Ended, Tail) {
    let (mut slot, _killer) = Slot::new().expect("a slot");
    let mut tail = Tail::default();
    let ended = slot.run(1, command, &mut tail).expect("it runs");
    (ended, tail)
}

fn shell(line: &str) -> (Ended, Tail) {
    run(&Command::shell(line))
}

#[test]
fn an_exit_code_and_a_signal_are_told_apart() {
    assert_eq!(shell("exit 7").0.status, Status::Exited(7));
    assert_eq!(shell("kill -9 $$").0.status, Status::Signalled(9));
    assert!(shell("true").0.success());
    assert!(!shell("false").0.success());
}

#[test]
fn both_outputs_arrive_apart() {
    let (_, mut tail) = shell("echo out; echo err >&2");
    assert_eq!(tail.stdout(), b"out\n");
    assert_eq!(tail.stderr(), b"err\n");
}

#[test]
fn of_a_flood_the_end_is_kept() {
    let (ended, mut tail) = shell("seq 1 200000; echo last");
    assert!(ended.success());
    assert_eq!(tail.stdout().len(), 64 << 10);
    assert!(tail.stdout().ends_with(b"\n200000\nlast\n"));
    assert!(tail.dropped(Stream::Stdout) > 1_000_000);
}

#[test]
fn whole_outputs_go_to_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let mut files = Files::create(&path("out"), &path("err")).expect("files");
    let (mut slot, _killer) = Slot::new().expect("a slot");
    slot.run(1, &Command::shell("seq 1 50000; echo x >&2"), &mut files)
        .expect("it runs");
    let lines = fs::read_to_string(path("out"))
        .expect("text")
        .lines()
        .count();
    assert_eq!(lines, 50_000);
    assert_eq!(fs::read(path("err")).expect("bytes"), b"x\n");
}

#[test]
fn environment_directory_and_empty_input() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = fs::canonicalize(directory.path()).expect("a path");
    let mut command = Command::shell("pwd; echo \"$COLOUR\"; cat").env("COLOUR", "red $(id)");
    command.directory = Some(place.clone());
    let (_, mut tail) = run(&command);
    let expected = format!("{}\nred $(id)\n", place.display());
    assert_eq!(tail.stdout(), expected.as_bytes());
}

#[test]
fn arguments_arrive_as_they_are() {
    let odd = ["a b", "*", "$HOME", "'\"\\", "", "line\nline", "-n", "ö"];
    let mut command = Command::new("printf").arg("[%s]");
    command.arguments.extend(odd.map(OsString::from));
    let (_, mut tail) = run(&command);
    let expected: String = odd.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!(tail.stdout(), expected.as_bytes());
}

#[test]
fn a_missing_program_is_named() {
    let (mut slot, _killer) = Slot::new().expect("a slot");
    let result = slot.run(1, &Command::new("no-such-program"), &mut Tail::default());
    assert!(
        matches!(result, Err(StartError::NotFound { program, .. }) if program == "no-such-program")
    );
    let result = slot.run(2, &Command::new("/no/such/program"), &mut Tail::default());
    assert!(matches!(result, Err(StartError::Refused { .. })));
    // And the slot goes on.
    assert!(
        slot.run(3, &Command::new("true"), &mut Tail::default())
            .is_ok()
    );
}

#[test]
fn a_time_limit_ends_the_group_gently_first() {
    let mut command = Command::shell("trap 'echo bye; exit 3' TERM; sleep 60 & wait");
    command.limits.time = Some(Duration::from_millis(200));
    let begun = Instant::now();
    let (ended, mut tail) = run(&command);
    assert_eq!(ended.stopped, Some(Stopped::TimeLimit));
    assert_eq!(ended.status, Status::Exited(3));
    assert_eq!(tail.stdout(), b"bye\n");
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "it did not wait for the sleep"
    );
}

#[test]
fn who_ignores_term_gets_kill() {
    let mut command = Command::shell("trap '' TERM; echo on; while :; do sleep 0.05; done");
    command.limits.time = Some(Duration::from_millis(100));
    command.limits.grace = Duration::from_millis(200);
    let (ended, mut tail) = run(&command);
    assert_eq!(ended.status, Status::Signalled(9));
    assert_eq!(ended.stopped, Some(Stopped::TimeLimit));
    assert!(
        ended.duration >= Duration::from_millis(300),
        "{:?}",
        ended.duration
    );
    assert_eq!(tail.stdout(), b"on\n");
}

/// The leader ends at TERM at once; what it started has the grace to clean up.
#[test]
fn a_child_that_cleans_up_has_the_time_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let clean = directory.path().join("clean");
    let mut command = Command::shell(format!(
        "(trap 'sleep 0.3; touch {}; exit' TERM; while :; do sleep 0.02; done) & wait",
        clean.display()
    ));
    command.limits.time = Some(Duration::from_millis(200));
    let (ended, _) = run(&command);
    assert_eq!(ended.stopped, Some(Stopped::TimeLimit));
    assert!(clean.exists(), "it was killed while it cleaned up");
    assert!(ended.duration < Duration::from_secs(2), "nobody is left");
}

/// The leader ends at TERM; a child of it ignores TERM. Nothing of the group may stay.
#[test]
fn a_killed_group_leaves_nobody_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let pid_file = directory.path().join("pid");
    let line = format!(
        "sh -c 'trap \"\" TERM; echo $$ > {}; while :; do sleep 0.05; done' & wait",
        pid_file.display()
    );
    let mut command = Command::shell(line);
    command.limits.time = Some(Duration::from_millis(300));
    let (ended, _) = run(&command);
    assert_eq!(ended.stopped, Some(Stopped::TimeLimit));
    let pid = fs::read_to_string(&pid_file).expect("the child started");
    let gone = || match fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    let begun = Instant::now();
    while !gone() {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{pid} still lives"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killer_ends_the_run_it_means_and_no_other() {
    let (mut slot, killer) = Slot::new().expect("a slot");
    killer.kill(1, Urgency::AtOnce);
    let ended = slot.run(2, &Command::shell("sleep 0.05"), &mut Tail::default());
    assert!(
        ended.expect("it runs").success(),
        "an old order hit the next run"
    );

    // An order that comes before its run is not forgotten.
    killer.kill(3, Urgency::Gentle);
    let ended = slot.run(3, &Command::shell("sleep 60"), &mut Tail::default());
    assert_eq!(ended.expect("it runs").stopped, Some(Stopped::Killed));

    let other = killer.clone();
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        other.kill(4, Urgency::Gentle);
        thread::sleep(Duration::from_millis(100));
        other.kill(4, Urgency::AtOnce);
    });
    let stubborn = Command::shell("trap '' TERM; while :; do sleep 0.05; done");
    let ended = slot
        .run(4, &stubborn, &mut Tail::default())
        .expect("it runs");
    assert_eq!(ended.status, Status::Signalled(9));
    assert!(
        ended.duration < Duration::from_secs(2),
        "the second order waits for no grace"
    );
    thread.join().expect("the killer ends");
}

/// `yes` never stops writing: neither the clock nor the killer may be drowned by it.
#[test]
fn a_flood_does_not_hide_the_time_limit() {
    let mut command = Command::new("yes");
    command.limits.time = Some(Duration::from_millis(100));
    let (ended, _) = run(&command);
    assert_eq!(ended.stopped, Some(Stopped::TimeLimit));
}

#[test]
fn nobody_waits_for_a_grandchild_that_keeps_the_output_open() {
    let begun = Instant::now();
    let (ended, mut tail) = shell("sleep 20 & echo done");
    assert!(ended.success());
    assert_eq!(tail.stdout(), b"done\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_process_that_closes_its_output_still_runs_to_its_end() {
    let (ended, _) = shell("exec >&- 2>&-; sleep 0.2; exit 5");
    assert_eq!(ended.status, Status::Exited(5));
    assert!(ended.duration >= Duration::from_millis(200));
}

#[test]
fn usage_is_that_of_the_process() {
    let (ended, _) = shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
    assert!(ended.user_time > Duration::from_millis(10), "{ended:?}");
    assert!(ended.duration >= ended.user_time / 2);
    assert!(ended.memory_max > 100_000, "{ended:?}");
}

#[test]
fn a_memory_limit_holds_from_the_first_instruction() {
    let greedy =
        "awk 'BEGIN { s = \"x\"; while (length(s) < 300000000) s = s s; print length(s) }'";
    let mut command = Command::shell(greedy);
    assert!(run(&command).0.success(), "without a limit it works");
    command.limits.memory = Some(100 << 20);
    assert!(!run(&command).0.success());
    let mut command = Command::new("printf").arg("%s").arg("a b");
    command.limits.memory = Some(100 << 20);
    let (ended, mut tail) = run(&command);
    assert!(ended.success());
    assert_eq!(tail.stdout(), b"a b");
}

#[test]
fn a_sink_that_fails_is_reported_and_the_process_ends() {
    struct Full;
    impl Sink for Full {
        fn take(&mut self, _: Stream, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }
    let (mut slot, _killer) = Slot::new().expect("a slot");
    let result = slot.run(1, &Command::shell("seq 1 100000"), &mut Full);
    assert!(matches!(result, Err(StartError::Lost { .. })));
}

#[test]
fn each_run_has_a_process_group_of_its_own() {
    let (_, mut tail) = shell("cut -d ' ' -f 5 /proc/$$/stat; echo $$");
    let text = String::from_utf8_lossy(tail.stdout()).into_owned();
    let numbers: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1]);
}

#[test]
fn a_sink_hears_of_a_command_that_takes_its_time() {
    #[derive(Default)]
    struct Ear(u32);
    impl Sink for Ear {
        fn take(&mut self, _: Stream, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn runs_on(&mut self) {
            self.0 += 1;
        }
    }
    let (mut slot, _killer) = Slot::new().expect("a slot");
    for (run, seconds, heard) in [(1, "0.3", 1), (2, "0", 0)] {
        let mut command = Command::new("sleep").arg(seconds);
        command.notice = Some(Duration::from_millis(150));
        let mut ear = Ear::default();
        slot.run(run, &command, &mut ear).expect("it runs");
        assert_eq!(ear.0, heard, "{seconds}");
    }
}
