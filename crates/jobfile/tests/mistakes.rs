//! What a person reads who made mistakes, and what must hold whatever somebody writes.

use loxley_api::{Blob, CommandRequest, FallbackRequest, TaskRequest, Work};
use loxley_engine::{AgentRecord, Engine, Fact, Submission};
use loxley_jobfile::{parse, parse_bytes, parse_with};
use loxley_model::{Priority, Time, Unplaceable};
use loxley_policy::Config;
use proptest::prelude::*;

const WHOLE: &str = include_str!("whole.yaml");

fn mistakes(text: &str) -> String {
    let mistakes = parse(text).expect_err("it has mistakes");
    mistakes.in_file("job.yaml").to_string()
}

fn command(task: &TaskRequest) -> &CommandRequest {
    match &task.run {
        Work::Command(command) => command,
        Work::Function(_) => panic!("a command"),
    }
}

#[test]
fn every_key_is_read() {
    let file = parse(WHOLE).expect("no mistakes");
    assert_eq!((file.request.tasks.len(), file.count()), (5, 14));
    assert_eq!(file.agents[1].has.memory_bytes, 4 << 30);
    assert_eq!(file.agents[1].skills, ["text"]);
    assert_eq!(file.request.limits["disk"], 2);
    let [split, count, render, stand_in, scan] = &*file.request.tasks else {
        panic!("five tasks");
    };
    assert_eq!(command(count).words, ["wc", "-w", "parts/{}"]);
    assert_eq!(command(count).shell, None);
    assert_eq!(count.depends_on, [split.name.clone().unwrap()]);
    assert_eq!(count.retry.retries, 1, "from the defaults");
    assert!(count.speculate && count.group.as_deref() == Some("disk"));
    assert_eq!(render.priority, Priority::HIGHEST);
    assert_eq!(render.depends_on_each, [count.name.clone().unwrap()]);
    let fallback = FallbackRequest::Task(stand_in.name.clone().unwrap());
    assert_eq!(render.fallback, Some(fallback));
    assert_eq!(render.retry.cap_sec, 60.0);
    let value = FallbackRequest::Value(Blob(b"nothing\n".to_vec()));
    assert_eq!(scan.fallback, Some(value));
    assert_eq!(command(scan).environment["LANG"], "de_DE.UTF-8");
    assert_eq!(scan.needs.cpus, 0.5);
    assert_eq!(file.request.check(), Ok(()), "a server takes it, too");
    assert!(
        !file
            .config
            .expect("it is there")
            .work_stealing
            .prefer_recent_tasks
    );
}

#[test]
fn all_mistakes_are_told_together_with_their_lines() {
    insta::assert_snapshot!(mistakes(
        "agents:
  - {name: ada, skills: [text]}
  - {name: ada, slots: 0, speed: fast}
tasks:
  - name: count
    command: wc {}
    skills: [txt]
    priority: 9
    cost: soon
    retires: 3
  - name: count
    command: []
    array: 9-1
    group: disk
  - command: x
    fallback: {value: a, task: b}
"
    ));
}

#[test]
fn names_that_nobody_defines_are_told_with_what_is_there() {
    insta::assert_snapshot!(mistakes(
        "agents: [{name: ada, skills: [text, python]}, {name: bob, skills: [gpu], cpus: 1}]
tasks:
  - {name: split, command: x}
  - {name: count, command: x, after: [spilt], skills: [rust]}
  - {name: urgent, command: x, skills: [python, gpu], priority: 5}
  - {name: large, command: x, skills: [gpu], cpus: 2}
  - {name: three, array: 1-3, command: x, after_each: [split]}
"
    ));
}

#[test]
fn a_circle_is_named() {
    insta::assert_snapshot!(mistakes(
        "tasks:
  - {name: start, command: x}
  - {name: wash, command: x, after: [start, dry]}
  - {name: rinse, command: x, after: [wash]}
  - {name: dry, command: x, after: [rinse]}
"
    ));
}

#[test]
fn commands_that_cannot_be_filled_are_refused() {
    insta::assert_snapshot!(mistakes(
        "tasks:
  - {name: a, each: [x], command: 'echo `cat {}`'}
  - {name: b, each: [x], command: [echo, '{2}']}
  - {name: c, command: 'echo {}', fallback: {value: x}}
  - {name: d, command: x, checkpoint: true, speculate: true}
"
    ));
}

#[test]
fn nobody_waits_for_an_array_without_entries() {
    let text = "tasks:\n  - {name: none, each: [], command: x}\n  \
                - {name: same, each: [], command: x, after_each: [none]}\n  \
                - {name: last, command: x, after: [none, same]}\n";
    let request = parse(text).expect("no mistakes").request;
    assert_eq!(request.tasks.len(), 1);
    assert!(request.tasks[0].depends_on.is_empty());
    assert_eq!(request.check(), Ok(()));
}

#[test]
fn what_no_server_would_take_is_a_mistake() {
    let many = "x".repeat(200 << 10);
    for text in [
        "tasks: [{name: a, command: x, directory: ''}]".to_owned(),
        "tasks: [{name: a, command: x, memory: 100000T}]".to_owned(),
        format!("tasks: [{{name: a, command: [x, {many}]}}]"),
    ] {
        assert!(!mistakes(&text).is_empty());
    }
}

#[test]
fn the_lines_of_another_file_are_entries() {
    let text = "tasks: [{name: a, each_line: items.txt, command: 'echo {}'}]";
    let file = parse_with(text, &mut |path| {
        assert_eq!(path.to_str(), Some("items.txt"));
        Ok(vec!["x".into(), "y z".into()])
    });
    assert_eq!(file.expect("no mistakes").count(), 2);
    assert!(mistakes(text).contains("cannot be read"));
}

#[test]
fn paths_start_at_the_directory_of_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.yaml");
    let text = "tasks: [{name: a, each_line: lines, command: x, directory: sub}]";
    std::fs::write(&path, text).expect("a file");
    std::fs::write(directory.path().join("lines"), "1\n2\n").expect("a file");
    let file = loxley_jobfile::read(&path).expect("readable");
    let task = &file.expect("no mistakes").request.tasks[0];
    assert_eq!(task.count(), 2);
    let expected = directory.path().join("sub");
    assert_eq!(command(task).directory.as_deref(), expected.to_str());
}

#[test]
fn a_file_that_asks_for_too_much_is_refused() {
    for (text, what) in [
        (
            "tasks: [{name: a, array: 1-2000000, command: x}]",
            "at most",
        ),
        (
            "tasks: [{name: a, array: 1-600000, command: x}, {name: b, array: 1-600000, command: x}]",
            "more than 1000000 tasks",
        ),
        (
            "tasks: [{name: a, array: 1-9999, command: x}, {name: b, array: 1-9999, command: x, after: a}]",
            "in between",
        ),
        ("", "`tasks` is missing"),
        ("tasks: []", "out of range"),
    ] {
        assert!(mistakes(text).contains(what), "{}", mistakes(text));
    }
}

#[test]
fn many_mistakes_take_no_long_time() {
    let mut text = "tasks:\n".to_owned();
    for number in 0..50_000 {
        text += &format!("- {{name: t{number}, command: x, after: [u{number}]}}\n");
    }
    assert_eq!(parse(&text).expect_err("all wrong").iter().count(), 100);
}

/// Whatever is accepted here, the scheduler accepts.
fn the_scheduler_takes_it(bytes: &[u8]) {
    let Ok(file) = parse_bytes(bytes) else { return };
    if file.count() > 2_000
        || file
            .request
            .tasks
            .iter()
            .map(|task| task.depends_on.len())
            .sum::<usize>()
            > 500
    {
        return;
    }
    let mut request = file.request;
    if request.tasks.is_empty() {
        return;
    }
    let mut engine = Engine::without_journal();
    engine.begin(Time(0), &file.config.unwrap_or_else(Config::default));
    if !file.agents.is_empty() {
        request.when_unplaceable = Unplaceable::Refuse;
    }
    for agent in file.agents {
        let record = AgentRecord {
            name: agent.name,
            owner: String::new(),
            process: 1,
            skills: agent.skills,
            slots: agent.slots,
            speed: agent.speed,
            cpu_milli: (agent.has.cpus * 1000.0).round() as u64,
            memory_bytes: agent.has.memory_bytes,
            resources: agent.has.named.into_iter().collect(),
            zone: None,
            holds: Vec::new(),
        };
        let joined = Fact::AgentJoined(Box::new(record));
        engine
            .record_and_apply(Time(0), joined, None)
            .expect("an agent that was checked");
    }
    let fact = Fact::JobSubmitted {
        request: Submission::new(request).expect("a server takes it, too"),
        user: "me".to_owned(),
    };
    let applied = engine.record_and_apply(Time(0), fact, None);
    assert!(
        applied.is_ok(),
        "{applied:?}\n{}",
        String::from_utf8_lossy(bytes)
    );
}

#[test]
fn the_scheduler_takes_the_whole_file() {
    the_scheduler_takes_it(WHOLE.as_bytes());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        the_scheduler_takes_it(&bytes);
    }

    #[test]
    fn no_yaml_like_text_panics(text in "([a-z]{1,6}: |- |\\{|\\}|\\[|\\]|\n|  |tasks: |name: |command: |after: |[0-9]|&a|\\*a|#|\"|'|, |\\||é){0,80}") {
        the_scheduler_takes_it(text.as_bytes());
    }

    /// Lines dropped, repeated and swapped, bytes changed: what people do to a file that worked.
    #[test]
    fn no_change_to_a_good_file_panics(
        changes in prop::collection::vec((0..4u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut lines: Vec<Vec<u8>> = WHOLE.lines().map(|line| line.as_bytes().to_vec()).collect();
        for (what, one, other, byte) in changes {
            if lines.len() < 2 { break; }
            let (one, at) = (one.index(lines.len()), other);
            match what {
                0 => { lines.remove(one); }
                1 => { let line = lines[one].clone(); let to = at.index(lines.len()); lines.insert(to, line); }
                2 => { let to = at.index(lines.len()); lines.swap(one, to); }
                _ => if !lines[one].is_empty() { let to = at.index(lines[one].len()); lines[one][to] = byte; },
            }
        }
        the_scheduler_takes_it(&lines.join(&b'\n'));
    }
}
