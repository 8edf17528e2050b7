//! The engine by itself: agents that are two lines of a test, and no journal or one in memory.

use loxley_api::{CommandRequest, Entries, JobRequest, Numbers, TaskRequest, Work};
use loxley_journal::{Journal, MemoryJournal};
use loxley_model::{AgentId, Failure, JobId, JobState, Lease, Outcome, Span, TaskId, Time};
use loxley_policy::Selection;

use crate::{AgentRecord, Applied, Engine, Fact, Finish, Flushed, Submission, replay};

fn task(words: &[&str]) -> TaskRequest {
    TaskRequest::new(Work::Command(CommandRequest {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        ..CommandRequest::default()
    }))
}

fn lines(lines: &[&str]) -> Entries {
    Entries::Lines(lines.iter().map(|line| (*line).to_owned()).collect())
}

fn open_array(entries: Entries) -> JobRequest {
    JobRequest {
        open: true,
        tasks: vec![TaskRequest {
            entries: Some(entries),
            ..task(&["echo", "{}"])
        }],
        ..JobRequest::default()
    }
}

/// An engine, an agent with two slots, and what it was given.
struct Run {
    engine: Engine,
    now: Time,
    agent: AgentId,
    given: Vec<(TaskId, Lease, u64, String)>,
    journal: MemoryJournal,
}

impl Run {
    fn new(engine: Engine) -> Self {
        Self::with_skills(engine, &[])
    }

    fn with_skills(mut engine: Engine, skills: &[&str]) -> Self {
        let record = AgentRecord {
            name: "ada".to_owned(),
            owner: String::new(),
            process: 1,
            skills: skills.iter().map(|skill| (*skill).to_owned()).collect(),
            slots: 2,
            speed: 1.0,
            cpu_milli: 0,
            memory_bytes: 0,
            resources: Vec::new(),
            zone: None,
            holds: Vec::new(),
        };
        let fact = Fact::AgentJoined(Box::new(record));
        let Ok(Applied::Agent(agent)) = engine.record_and_apply(Time(1), fact, None) else {
            panic!("an agent that joins has a number");
        };
        let mut run = Self {
            engine,
            now: Time(1),
            agent,
            given: Vec::new(),
            journal: MemoryJournal::new(),
        };
        run.flush();
        run
    }

    fn tell(&mut self, fact: Fact) -> Result<Applied, loxley_api::ApiError> {
        self.now = self.now + Span::from_millis(1);
        let applied = self.engine.record_and_apply(self.now, fact, None);
        self.flush();
        applied
    }

    fn flush(&mut self) {
        let Flushed { group, mut effects } = self.engine.flush();
        if let Some(group) = group {
            let at = self.journal.next_position();
            self.journal.append(at, &group).unwrap();
        }
        let orders = effects.orders.remove(&self.agent).unwrap_or_default();
        let assigned = orders.assign.into_iter();
        self.given.extend(assigned.map(|given| {
            let entry = given.entry.unwrap_or_default();
            (given.task, given.lease, given.position, entry)
        }));
        self.given
            .retain(|(_, lease, ..)| !orders.cancel.contains(lease));
    }

    fn submit(&mut self, request: JobRequest) -> JobId {
        let request = Submission::unchecked(request);
        let user = "me".to_owned();
        match self.tell(Fact::JobSubmitted { request, user }) {
            Ok(Applied::Job(job)) => job,
            other => panic!("{other:?}"),
        }
    }

    fn extend(&mut self, job: JobId, entries: Entries) {
        let extension = Fact::JobExtended {
            job,
            task: 0,
            entries,
            cost: None,
        };
        assert_eq!(self.tell(extension), Ok(Applied::Job(job)));
    }

    /// Finishes everything that the agent has; returns positions and entries in the order of the assignments.
    fn finish_all(&mut self, outcome: Outcome) -> Vec<(u64, String)> {
        let mut done = Vec::new();
        while !self.given.is_empty() {
            let (task, lease, position, entry) = self.given.remove(0);
            done.push((position, entry));
            self.now = self.now + Span::from_millis(1);
            let ran = Span::from_millis(1);
            let finish = Finish::default();
            self.engine
                .finished(self.now, self.agent, task, lease, outcome, ran, finish);
            self.flush();
        }
        done
    }
}

#[test]
fn an_open_job_takes_entries_until_it_is_closed_and_counts_them_on() {
    let mut run = Run::new(Engine::without_journal());
    let job = run.submit(open_array(lines(&["a", "b"])));
    assert_eq!(run.finish_all(Outcome::Succeeded).len(), 2);
    assert!(run.engine.is_open(job), "more may come");
    // Another job takes ids in between.
    let other = JobRequest {
        tasks: vec![task(&["true"])],
        ..JobRequest::default()
    };
    let other = run.submit(other);
    run.extend(job, lines(&["c"]));
    run.extend(job, lines(&["d", "e"]));
    let info = run.engine.job_info(job).unwrap();
    assert_eq!((info.tasks.total, info.open), (5, true));
    let mut done = run.finish_all(Outcome::Succeeded);
    done.sort();
    let expected = [(0, ""), (2, "c"), (3, "d"), (4, "e")];
    let expected = expected.map(|(position, entry)| (position, entry.to_owned()));
    assert_eq!(done, expected);
    assert_eq!(run.engine.ended(other), Some(JobState::Succeeded));
    assert_eq!(run.engine.ended(job), None);
    assert_eq!(run.tell(Fact::JobClosed(job)), Ok(Applied::Job(job)));
    assert_eq!(run.engine.ended(job), Some(JobState::Succeeded));
    let late = Fact::JobExtended {
        job,
        task: 0,
        entries: lines(&["f"]),
        cost: None,
    };
    assert!(run.tell(late).is_err(), "it is over");
}

#[test]
fn a_job_that_is_closed_early_ends_with_its_last_task() {
    let mut run = Run::new(Engine::without_journal());
    let job = run.submit(open_array(Entries::Lines(Vec::new())));
    run.extend(job, lines(&["a", "b", "c"]));
    assert_eq!(run.tell(Fact::JobClosed(job)), Ok(Applied::Job(job)));
    assert_eq!(run.engine.ended(job), None, "three tasks are under way");
    run.finish_all(Outcome::Succeeded);
    assert_eq!(run.engine.ended(job), Some(JobState::Succeeded));
    // Nothing was ever added to this one.
    let empty = run.submit(open_array(Entries::Lines(Vec::new())));
    assert_eq!(run.tell(Fact::JobClosed(empty)), Ok(Applied::Job(empty)));
    assert_eq!(run.engine.ended(empty), Some(JobState::Succeeded));
}

#[test]
fn a_cancelled_job_takes_nothing_more() {
    let mut run = Run::new(Engine::without_journal());
    let job = run.submit(open_array(lines(&["a", "b"])));
    let everything = Fact::Cancelled(Selection::Job(job));
    assert!(run.tell(everything).is_ok());
    assert_eq!(run.engine.ended(job), None, "what runs has yet to end");
    run.finish_all(Outcome::Failed(Failure::Error));
    assert_eq!(run.engine.ended(job), Some(JobState::Cancelled));
}

#[test]
fn a_stream_without_end_takes_no_more_memory_than_what_is_under_way() {
    let mut run = Run::new(Engine::without_journal());
    let job = run.submit(open_array(Entries::Lines(Vec::new())));
    for number in 0..5000 {
        run.extend(job, lines(&["x"]));
        let outcome = match number % 5 {
            0 => Outcome::Failed(Failure::Permanent),
            _ => Outcome::Succeeded,
        };
        if number % 4 == 3 {
            run.finish_all(outcome);
        }
        let parts = run.engine.state.jobs.get(job).unwrap().parts.len();
        assert!(parts <= 6, "{parts} parts after {number} entries");
    }
    run.finish_all(Outcome::Succeeded);
    assert!(run.engine.state.jobs.by_first_task.len() <= 1);
    assert!(run.engine.is_group_empty(), "nothing is written down");
    assert_eq!(run.tell(Fact::JobClosed(job)), Ok(Applied::Job(job)));
    assert_eq!(run.engine.ended(job), Some(JobState::Failed));
}

#[test]
fn what_was_added_is_replayed_and_survives_a_snapshot() {
    let mut run = Run::new(Engine::open(&mut MemoryJournal::new(), 0).unwrap());
    let job = run.submit(open_array(lines(&["a"])));
    run.extend(job, lines(&["b", "c", "d", "e"]));
    if let Some(group) = run.engine.flush().group {
        let at = run.journal.next_position();
        run.journal.append(at, &group).unwrap();
    }
    let position = run.journal.next_position();
    let state = run.engine.copy_state().pack();
    let snapshot = loxley_journal::Snapshot { position, state };
    run.journal.save_snapshot(&snapshot).unwrap();
    run.extend(job, lines(&["f"]));
    let done = run.finish_all(Outcome::Succeeded);
    assert_eq!(done.len(), 6);
    assert_eq!(run.tell(Fact::JobClosed(job)), Ok(Applied::Job(job)));
    assert_eq!(run.engine.ended(job), Some(JobState::Succeeded));
    assert_eq!(
        replay(&mut run.journal).unwrap().digest,
        run.engine.digest()
    );
    let again = Engine::open(&mut run.journal, 0).unwrap();
    assert_eq!(again.digest(), run.engine.digest());
    assert_eq!(again.ended(job), Some(JobState::Succeeded));
}

#[test]
fn tasks_that_are_done_already_do_not_run_and_release_what_waits_for_them() {
    let mut run = Run::new(Engine::without_journal());
    let array = TaskRequest {
        name: Some("first".to_owned()),
        entries: Some(lines(&["a", "b", "c"])),
        ..task(&["echo", "{}"])
    };
    let after = TaskRequest {
        depends_on: vec!["first".to_owned()],
        ..task(&["true"])
    };
    let mut request = JobRequest {
        done: vec![Numbers { first: 1, last: 2 }],
        tasks: vec![array, after],
        ..JobRequest::default()
    };
    let job = run.submit(request.clone());
    let done = run.finish_all(Outcome::Succeeded);
    assert_eq!(done, [(2, "c".to_owned()), (0, String::new())]);
    assert_eq!(run.engine.ended(job), Some(JobState::Succeeded));
    request.done = vec![Numbers { first: 1, last: 4 }];
    let all = run.submit(request);
    assert_eq!(run.engine.ended(all), Some(JobState::Succeeded));
    assert!(run.given.is_empty());
}

#[test]
fn tasks_that_are_tried_again_are_counted_once() {
    let mut run = Run::new(Engine::without_journal());
    let job = run.submit(JobRequest {
        tasks: vec![TaskRequest {
            entries: Some(lines(&["a", "b", "c"])),
            ..task(&["false"])
        }],
        ..JobRequest::default()
    });
    run.finish_all(Outcome::Failed(Failure::Error));
    assert_eq!(run.engine.ended(job), Some(JobState::Failed));
    // To the core an empty list means all: here nobody named any.
    assert!(run.tell(Fact::Resubmitted(Vec::new())).is_err());
    assert!(run.given.is_empty(), "nothing is tried again");
    let again = Fact::Resubmitted(vec![TaskId(2), TaskId(2), TaskId(3)]);
    assert_eq!(run.tell(again), Ok(Applied::Done));
    assert_eq!(run.given.len(), 2);
    run.finish_all(Outcome::Succeeded);
    let counts = run.engine.job_info(job).unwrap().tasks;
    assert_eq!((counts.succeeded, counts.failed), (2, 1));
    assert_eq!(run.engine.ended(job), Some(JobState::Failed));
}

#[test]
fn an_addition_is_forgotten_also_when_some_of_it_were_cancelled_before_anybody_saw_them() {
    let mut run = Run::new(Engine::without_journal());
    let job = run.submit(open_array(Entries::Lines(Vec::new())));
    let range = |last| Entries::Range {
        first: 1,
        last,
        step: 1,
    };
    run.extend(job, range(10_000));
    // More than the core looks ahead.
    let last = TaskId(10_000);
    let cancelled = Fact::Cancelled(Selection::Task(last));
    assert_eq!(run.tell(cancelled), Ok(Applied::Done));
    run.finish_all(Outcome::Succeeded);
    let info = run.engine.job_info(job).unwrap();
    assert_eq!((info.tasks.succeeded, info.tasks.cancelled), (9_999, 1));
    let again = Fact::Cancelled(Selection::Task(last));
    assert!(run.tell(again).is_err(), "the job does not remember it");
    assert_eq!(run.tell(Fact::JobClosed(job)), Ok(Applied::Job(job)));
    assert_eq!(run.engine.ended(job), Some(JobState::Cancelled));
}

#[test]
fn the_weight_of_a_user_is_a_fact_counts_in_shares_and_is_what_explain_advises() {
    let mut run = Run::new(Engine::open(&mut MemoryJournal::new(), 0).unwrap());
    let set = |user: &str, weight| Fact::UserWeightSet {
        user: user.to_owned(),
        weight,
    };
    assert!(run.tell(set("ada", 0)).is_err(), "a weight is at least 1");
    run.tell(set("ada", 1)).unwrap();
    let job = |user: &str| JobRequest {
        user: Some(user.to_owned()),
        tasks: vec![TaskRequest {
            entries: Some(lines(&["a", "b", "c", "d"])),
            ..task(&["echo", "{}"])
        }],
        ..JobRequest::default()
    };
    let first = run.submit(job("ada"));
    run.submit(job("eve"));
    // Ada came first and has both slots; one is her share.
    let waiting = run.engine.job_info(first).unwrap().last_task;
    let why = run.engine.explain(waiting, run.now).unwrap();
    let advised = |remedy: &String| remedy.contains("`loxley user weight ada 2`");
    assert!(why.remedies.iter().any(advised), "{why:?}");
    run.tell(set("ada", 3)).unwrap();
    let users = run.engine.users();
    let ada = users.iter().find(|info| info.user == "ada").unwrap();
    assert_eq!((ada.weight, ada.tasks, ada.share_slots), (3, 4, 2));
    let eve = users.iter().find(|info| info.user == "eve").unwrap();
    assert_eq!((eve.weight, eve.tasks, eve.share_slots), (1, 4, 1));
    // The facts bring it back, and so does a snapshot.
    let again = Engine::open(&mut run.journal, 0).unwrap();
    assert_eq!(again.users(), users);
    assert_eq!(again.digest(), run.engine.digest());
    run.finish_all(Outcome::Succeeded);
    assert_eq!(run.engine.users()[0].share_slots, 0, "nothing is left");
}

#[test]
fn a_skill_that_was_earned_survives_a_restart_and_a_snapshot_and_can_be_taken_back() {
    let engine = Engine::open(&mut MemoryJournal::new(), 0).unwrap();
    let mut run = Run::with_skills(engine, &["sew"]);
    let mut config = run.engine.config().clone();
    config.added.earning.successes = 2;
    run.tell(Fact::ConfigChanged(Box::new(config.clone())))
        .unwrap();
    let job = || JobRequest {
        tasks: vec![TaskRequest {
            skills: vec!["sew".to_owned(), "knit".to_owned()],
            entries: Some(lines(&["a", "b"])),
            ..task(&["echo", "{}"])
        }],
        ..JobRequest::default()
    };
    run.submit(job());
    run.finish_all(Outcome::Succeeded);
    let earned = |engine: &Engine, agent| engine.agent_info(agent).unwrap().earned;
    assert_eq!(earned(&run.engine, run.agent), ["knit"]);
    // From the facts alone: the rules came with the configuration.
    let again = Engine::open(&mut run.journal, 0).unwrap();
    assert_eq!(earned(&again, run.agent), ["knit"]);
    assert_eq!(again.config(), run.engine.config());
    let position = run.journal.next_position();
    let state = run.engine.copy_state().pack();
    let snapshot = loxley_journal::Snapshot { position, state };
    run.journal.save_snapshot(&snapshot).unwrap();
    let again = Engine::open(&mut run.journal, 0).unwrap();
    assert_eq!(earned(&again, run.agent), ["knit"]);
    assert_eq!(again.config(), run.engine.config());
    // A start with the same configuration changes nothing.
    let mut again = again;
    again.begin(run.now, &config);
    assert_eq!(again.config(), &config);
    // It is said why a task is there, and the skill can be taken back.
    let waiting = run.submit(job());
    let first = run.engine.job_info(waiting).unwrap().first_task;
    let why = run.engine.explain(first, run.now).unwrap();
    assert!(
        why.place.contains("did not declare `knit`, but earned it"),
        "{why:?}"
    );
    let revoke = |skill: &str| Fact::SkillRevoked {
        agent: run.agent,
        skill: skill.to_owned(),
    };
    let (sew, knit) = (revoke("sew"), revoke("knit"));
    let refusal = run.tell(sew).expect_err("it declared that");
    assert_eq!(refusal.code, loxley_api::ErrorCode::Conflict);
    run.tell(knit.clone()).unwrap();
    assert!(earned(&run.engine, run.agent).is_empty());
    assert!(run.tell(knit).is_err(), "it is gone");
    let again = Engine::open(&mut run.journal, 0).unwrap();
    assert!(earned(&again, run.agent).is_empty());
    assert_eq!(again.digest(), run.engine.digest());
}
