//! `loxley journal` on a journal that is made here.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

use std::path::Path;
use std::process::{Command, Output};

use loxley_engine::{RecoverError, replay};
use loxley_journal::{
    AgentRow, Ended, Group, JobRow, JobState, Journal, MemoryJournal, Options, Position, Rows,
    SqliteJournal, TaskRow, Usage,
};
use loxley_model::{AgentId, Failure, JobId, Span, TaskId, Time};
use serde_json::Value;
use tempfile::TempDir;

const SECOND: u64 = 1_000_000_000;

/// Two jobs of eight tasks on two agents; the second job has one failure.
fn journal() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::open(directory.path(), &Options::default())
        .unwrap()
        .journal;
    for job in 0..2 {
        journal.append(Position(job), &group(job)).unwrap();
    }
    directory
}

/// Two ticks, as a server writes them. They decide nothing, so the digest is that of nothing.
fn facts() -> Vec<u8> {
    let with = |digest: u64| {
        let (version, begun, ticks) = ([4], 0_u64.to_le_bytes(), [0, 3, 0, 3]);
        [&version[..], &begun, &ticks, &digest.to_le_bytes()].concat()
    };
    let mut journal = MemoryJournal::new();
    let group = Group {
        facts: with(0),
        fact_count: 2,
        ..Group::default()
    };
    journal.append(Position::START, &group).unwrap();
    match replay(&mut journal) {
        Ok(_) => with(0),
        Err(RecoverError::Diverged { found, .. }) => with(found),
        Err(error) => panic!("{error}"),
    }
}

fn group(job: u64) -> Group {
    let task = |n: u64| TaskRow {
        task: TaskId(job * 8 + n),
        job: JobId(job),
        entry: Some(n),
        ended: if job == 1 && n == 3 {
            Ended::Failed(Failure::Error)
        } else {
            Ended::Succeeded
        },
        exit_code: Some(0),
        signal: None,
        agent: Some(AgentId(n % 2)),
        attempt: 1,
        created: Time(job * 10 * SECOND),
        started: Some(Time((job * 10 + n / 2) * SECOND)),
        finished: Time((job * 10 + n / 2 + 1) * SECOND),
        usage: Some(Usage {
            duration: Span(SECOND),
            user: Span(SECOND / 2),
            system: Span(0),
            memory_bytes: 1 << 20,
        }),
    };
    Group {
        facts: facts(),
        fact_count: 2,
        rows: Rows {
            tasks: (0..8).map(task).collect(),
            jobs: vec![JobRow {
                job: JobId(job),
                name: format!("night {job}"),
                user: "robin".to_owned(),
                first_task: TaskId(job * 8),
                task_count: 8,
                state: if job == 1 {
                    JobState::Failed
                } else {
                    JobState::Succeeded
                },
                created: Time(job * 10 * SECOND),
                finished: Some(Time((job * 10 + 4) * SECOND)),
                succeeded: 8 - job,
                failed: job,
                cancelled: 0,
                detail: Vec::new(),
            }],
            agents: (0..2)
                .map(|n| AgentRow {
                    agent: AgentId(n),
                    name: format!("<i>{n}"),
                })
                .collect(),
            ..Rows::default()
        },
    }
}

fn loxley(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loxley"));
    command
        .arg("journal")
        .args(words)
        .env("LOXLEY_DIR", directory);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

#[test]
fn a_whole_journal_is_said_to_be_whole() {
    let directory = journal();
    let said = json(&loxley(directory.path(), &["check", "--json"]));
    assert_eq!(
        (&said["whole"], &said["tasks"]),
        (&Value::Bool(true), &16.into())
    );
    assert_eq!(said["replayed"]["facts"], 4);
    let digest = said["replayed"]["digest"].as_str().unwrap();
    assert_eq!(
        text(&loxley(directory.path(), &["check"])),
        format!(
            "groups    2 (positions 0 to 2), 4 facts in 42 bytes\n\
             snapshot  none\n\
             history   16 tasks in 2 jobs\n\
             replayed  2 groups with 4 facts: the same decisions (digest {digest})\n\
             whole: nothing is damaged\n"
        )
    );
}

#[test]
fn a_journal_with_other_decisions_than_ours_is_told_and_where() {
    let directory = journal();
    let opened = SqliteJournal::open(directory.path(), &Options::default());
    let mut journal = opened.unwrap().journal;
    let mut other = group(2);
    *other.facts.last_mut().unwrap() ^= 1;
    journal.append(Position(2), &other).unwrap();
    drop(journal);
    let output = loxley(directory.path(), &["check"]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("differs   ") && said.contains('2'), "{said}");
    assert!(!said.contains("whole"), "{said}");
}

#[test]
fn a_damaged_journal_is_said_to_be_damaged_and_where() {
    let directory = journal();
    let file = directory.path().join("journal.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let facts = facts();
    // Rows are written from the end of a page on: the facts of group 0 come after those of group 1.
    let at = bytes.windows(facts.len()).rposition(|bytes| bytes == facts);
    bytes[at.unwrap()] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = loxley(directory.path(), &["check"]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("damaged   the journal is damaged at position 0"),
        "{said}"
    );
}

#[test]
fn an_export_holds_every_fact_job_agent_and_task() {
    let directory = journal();
    let said = text(&loxley(directory.path(), &["export"]));
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    let counts = ["journal", "fact", "agent", "job", "task"].map(count);
    assert_eq!(counts, [1, 4, 2, 2, 16]);
    let fact = lines.iter().find(|line| line["kind"] == "fact").unwrap();
    assert_eq!(
        (&fact["fact"], &fact["position"]),
        (&"tick".into(), &0.into())
    );
    assert!(
        lines
            .iter()
            .any(|line| line["ended"] == "failed" && line["task"] == 11)
    );
    let said = text(&loxley(directory.path(), &["export", "--from", "1"]));
    assert_eq!(said.matches("\"kind\":\"fact\"").count(), 2);
}

#[test]
fn a_report_draws_the_newest_job_and_says_how_balanced_it_was() {
    let directory = journal();
    let page = directory.path().join("report.html");
    let said = text(&loxley(
        directory.path(),
        &["report", "--output", page.to_str().unwrap()],
    ));
    assert!(
        said.starts_with("job-1 (night 1): 8 tasks on 2 agents\ntook 4"),
        "{said}"
    );
    assert!(said.contains("load imbalance         1.00"), "{said}");
    assert!(said.contains("worker utilization     100.0 %"), "{said}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("night 1"));
    assert!(!page.contains("<i>0"), "a name of an agent is not markup");
    let all = json(&loxley(directory.path(), &["report", "--all", "--json"]));
    assert_eq!((&all["tasks"], &all["agents"]), (&16.into(), &2.into()));
}

#[test]
fn pruning_forgets_what_ended_long_ago_and_nothing_else() {
    let directory = journal();
    let said = json(&loxley(
        directory.path(),
        &["prune", "--older-than", "1d", "--json"],
    ));
    assert_eq!((&said["jobs"], &said["tasks"]), (&0.into(), &0.into()));
    // Times in a journal count from when it was made: the second job ended in its future.
    std::thread::sleep(std::time::Duration::from_secs(5));
    let said = text(&loxley(directory.path(), &["prune", "--older-than", "0s"]));
    assert_eq!(said, "forgot 1 jobs with 8 tasks\n");
}

#[test]
fn pruning_can_keep_a_number_of_jobs() {
    let directory = journal();
    let said = text(&loxley(directory.path(), &["prune", "--keep", "2"]));
    assert_eq!(said, "forgot 0 jobs with 0 tasks\n");
    let words = ["prune", "--keep", "1", "--json"];
    let said = json(&loxley(directory.path(), &words));
    assert_eq!((&said["jobs"], &said["tasks"]), (&1.into(), &8.into()));
    let left = text(&loxley(directory.path(), &["export", "--history"]));
    assert!(left.contains("night 1") && !left.contains("night 0"));
    assert_eq!(loxley(directory.path(), &["prune"]).status.code(), Some(2));
}

#[test]
fn a_copy_has_the_large_results_too() {
    let directory = journal();
    let results = directory.path().join("results");
    std::fs::create_dir(&results).unwrap();
    let large = vec![7; 3 << 20];
    std::fs::write(results.join("1-whole"), &large).unwrap();
    std::fs::write(results.join("2-half.part"), "not whole").unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let copy = scratch.path().join("copy");
    let (from, to) = (directory.path().display(), copy.display());
    let words = ["copy", &from.to_string(), &to.to_string(), "--json"];
    let said = json(&loxley(directory.path(), &words));
    assert_eq!(
        (&said["results"], &said["results_left"]),
        (&1.into(), &0.into())
    );
    assert!(std::fs::read(copy.join("results/1-whole")).unwrap() == large);
    assert!(!copy.join("results/2-half.part").exists());
    assert!(text(&loxley(&copy, &["check"])).contains("nothing is damaged"));
}

#[test]
fn a_running_owner_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        holder: "loxley server".to_owned(),
        ..Options::default()
    };
    let _owner = SqliteJournal::open(directory.path(), &options).unwrap();
    let output = loxley(directory.path(), &["prune", "--older-than", "1d"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("in use by loxley server, process"), "{said}");
    let said = text(&loxley(directory.path(), &["check"]));
    assert!(said.contains("in use    by loxley server"), "{said}");
}

#[test]
fn where_no_journal_is_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    for words in [
        &["check"][..],
        &["export"],
        &["report"],
        &["prune", "--older-than", "1d"],
    ] {
        let output = loxley(directory.path(), words);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("there is no journal in"), "{said}");
    }
}
