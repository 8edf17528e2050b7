//! What is learned of agents, by kind of work and by skill [S18]: an agent that fails at one kind of work is still trusted with
//! others, and one that keeps succeeding with a skill which it did not declare earns it.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use loxley_model::*;
use loxley_policy::*;

struct Fleet {
    scheduler: Scheduler,
    now: Time,
    last: Vec<Action>,
    tasks: u64,
}

impl Fleet {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        Self {
            scheduler: Scheduler::new(config, Time::ZERO),
            now: Time::ZERO,
            last: Vec::new(),
            tasks: 0,
        }
    }

    fn tell(&mut self, input: Input) {
        self.last.clear();
        self.now = self.now + Span::from_millis(1);
        self.scheduler.handle(self.now, input, &mut self.last);
        self.scheduler.verify().unwrap();
    }

    fn join(&mut self, id: u64, skills: &[u32]) {
        let skills = skills.iter().map(|skill| SkillId(*skill)).collect();
        let spec = AgentSpec::new(AgentId(id), skills);
        self.tell(Input::AgentJoined(Box::new(spec)));
    }

    fn kind(work: u64, skills: &[u32]) -> TaskKind {
        TaskKind {
            work: Some(WorkKey(work)),
            skills: skills.iter().map(|skill| SkillId(*skill)).collect(),
            retry: RetryRule {
                retries: 0,
                ..RetryRule::default()
            },
            ..TaskKind::default()
        }
    }

    /// Submits a task and says whose queue it came to, if any.
    fn submit(&mut self, kind: TaskKind, priority: u8) -> (TaskId, Option<AgentId>) {
        self.tasks += 1;
        let id = TaskId(self.tasks);
        let mut task = TaskSpec::new(id, kind.into());
        task.priority = Priority::new(priority).unwrap();
        let tasks = [task].into();
        let job = JobSpec::new(JobId(self.tasks));
        self.tell(Input::TasksSubmitted { job, tasks });
        let queued = self.last.iter().find_map(|action| match action {
            Action::Report(Report::Queued { task, agent, .. }) if *task == id => Some(*agent),
            _ => None,
        });
        (id, queued)
    }

    /// Has an agent ask for a task, run it, and end it so.
    fn run(&mut self, agent: u64, outcome: Outcome) -> TaskId {
        let agent = AgentId(agent);
        self.tell(Input::WorkRequested { agent, want: 1 });
        let given = self.last.iter().find_map(|action| match action {
            Action::Assign {
                task,
                agent: to,
                lease,
                ..
            } if *to == agent => Some((*task, *lease)),
            _ => None,
        });
        let (task, lease) = given.expect("there is something for it");
        self.tell(Input::TaskStarted { task, lease });
        self.tell(Input::TaskFinished {
            task,
            lease,
            outcome,
        });
        task
    }

    fn said(&self, wanted: impl Fn(&Report) -> bool) -> bool {
        let mut said = self.last.iter();
        said.any(|action| matches!(action, Action::Report(report) if wanted(report)))
    }

    fn status(&self, agent: u64) -> AgentStatus {
        self.scheduler.agent_status(AgentId(agent)).unwrap()
    }

    /// The same after it was written down and read again.
    fn restored(&self) -> Scheduler {
        let snapshot = self.scheduler.snapshot();
        let bytes = postcard::to_stdvec(&snapshot).unwrap();
        let added = postcard::to_stdvec(&snapshot.additions()).unwrap();
        let read: Snapshot = postcard::from_bytes(&bytes).unwrap();
        let read = read.with_additions(postcard::from_bytes(&added).unwrap());
        let read = read.unwrap();
        assert_eq!(read, snapshot);
        Scheduler::restore(read).unwrap()
    }
}

const FAILED: Outcome = Outcome::Failed(Failure::Error);

#[test]
fn an_agent_that_fails_at_one_kind_of_work_gets_less_of_it_and_as_much_of_others() {
    let mut fleet = Fleet::new(|config| config.learning.breaker_failures = 0);
    fleet.join(1, &[]);
    // It is good at the second kind, and fails at the first one only.
    for _ in 0..12 {
        fleet.submit(Fleet::kind(1, &[]), 3);
        fleet.run(1, FAILED);
        fleet.submit(Fleet::kind(2, &[]), 3);
        fleet.run(1, Outcome::Succeeded);
    }
    let overall = fleet.status(1).success_rate;
    assert!((0.4..0.6).contains(&overall), "{overall}");
    fleet.join(2, &[]);
    // The other one fails every third task of a third kind: better than the first as a whole, and worse at the second kind.
    for attempt in 0..12 {
        fleet.submit(Fleet::kind(3, &[]), 3);
        let outcome = if attempt % 3 == 0 {
            FAILED
        } else {
            Outcome::Succeeded
        };
        fleet.run(2, outcome);
    }
    assert!(fleet.status(2).success_rate > overall);
    let (first, to) = fleet.submit(Fleet::kind(1, &[]), 3);
    assert_eq!(to, Some(AgentId(2)), "the first agent fails at it");
    fleet.tell(Input::CancelRequested(Selection::Task(first)));
    let (second, to) = fleet.submit(Fleet::kind(2, &[]), 3);
    assert_eq!(to, Some(AgentId(1)), "the first agent is good at it");
    fleet.tell(Input::CancelRequested(Selection::Task(second)));
    // What was learned of kinds is part of what is kept.
    let mut restored = fleet.restored();
    let mut again = Vec::new();
    let tasks: std::sync::Arc<[TaskSpec]> =
        [TaskSpec::new(TaskId(900), Fleet::kind(2, &[]).into())].into();
    let job = JobSpec::new(JobId(900));
    let input = Input::TasksSubmitted { job, tasks };
    restored.handle(fleet.now, input.clone(), &mut again);
    let mut live = Vec::new();
    fleet.scheduler.handle(fleet.now, input, &mut live);
    assert_eq!(again, live);
}

#[test]
fn what_was_learned_of_a_kind_counts_less_as_time_goes_by() {
    let mut fleet = Fleet::new(|config| {
        config.learning.breaker_failures = 0;
        config.learning.half_life = Span::from_secs(10);
    });
    fleet.join(1, &[]);
    for _ in 0..6 {
        fleet.submit(Fleet::kind(1, &[]), 3);
        fleet.run(1, FAILED);
        fleet.submit(Fleet::kind(2, &[]), 3);
        fleet.run(1, Outcome::Succeeded);
    }
    fleet.join(2, &[]);
    // Of two that are equally long idle, the first is taken unless something speaks against it.
    let (task, to) = fleet.submit(Fleet::kind(1, &[]), 3);
    assert_eq!(to, Some(AgentId(2)));
    fleet.tell(Input::CancelRequested(Selection::Task(task)));
    fleet.now = fleet.now + Span::from_secs(1_000);
    // Its record as a whole is as it was; nothing is left of the kinds.
    fleet.submit(Fleet::kind(3, &[]), 3);
    fleet.run(1, Outcome::Succeeded);
    let score = |fleet: &mut Fleet, work: u64| {
        let (task, _) = fleet.submit(Fleet::kind(work, &[]), 3);
        let queued = fleet.last.iter().find_map(|action| match action {
            Action::Report(Report::Queued {
                reason: Reason::Score(score),
                ..
            }) => Some(*score),
            _ => None,
        });
        fleet.tell(Input::CancelRequested(Selection::Task(task)));
        queued.unwrap()
    };
    let scores = [1, 2, 9].map(|work| score(&mut fleet, work));
    assert_eq!(scores[0], scores[1]);
    assert_eq!(scores[1], scores[2], "as of a kind that nobody has seen");
}

#[test]
fn the_earliest_finish_counts_that_who_fails_has_to_try_again() {
    let mut fleet = Fleet::new(|config| {
        config.learning.breaker_failures = 0;
        config.capabilities.matching_strategy = Matching::EarliestFinish;
    });
    fleet.join(1, &[]);
    for _ in 0..6 {
        fleet.submit(Fleet::kind(1, &[]), 3);
        fleet.run(1, FAILED);
    }
    fleet.join(2, &[]);
    let (_, to) = fleet.submit(Fleet::kind(1, &[]), 3);
    assert_eq!(to, Some(AgentId(2)));
}

/// An agent with skill 1 that is tried at tasks which need 2 as well.
fn apprentice(successes: u32) -> Fleet {
    let mut fleet = Fleet::new(|config| {
        config.added.earning.successes = successes;
        config.learning.breaker_failures = 2;
        config.learning.breaker_probe = Span::from_secs(5);
    });
    fleet.join(1, &[1]);
    fleet
}

fn works(fleet: &mut Fleet, times: u32, outcome: Outcome) {
    for _ in 0..times {
        fleet.submit(Fleet::kind(1, &[1, 2]), 3);
        fleet.run(1, outcome);
    }
}

#[test]
fn who_keeps_succeeding_with_a_skill_it_did_not_declare_earns_it() {
    let mut fleet = apprentice(3);
    works(&mut fleet, 2, Outcome::Succeeded);
    // One failure, and it begins anew.
    works(&mut fleet, 1, FAILED);
    works(&mut fleet, 2, Outcome::Succeeded);
    assert!(fleet.status(1).earned.is_empty());
    // An urgent task needs every skill: nobody has them.
    let (urgent, to) = fleet.submit(Fleet::kind(2, &[1, 2]), 5);
    assert_eq!(to, None);
    works(&mut fleet, 1, Outcome::Succeeded);
    let earned = |report: &Report| {
        *report
            == Report::SkillEarned {
                agent: AgentId(1),
                skill: SkillId(2),
            }
    };
    assert!(fleet.said(earned), "{:?}", fleet.last);
    assert_eq!(fleet.status(1).earned, [SkillId(2)]);
    assert!(fleet.status(1).capabilities.contains(SkillId(2)));
    // What waited for it is there at once, and it is said why.
    assert_eq!(fleet.scheduler.queue_of(AgentId(1)), Some(vec![urgent]));
    assert_eq!(
        fleet.scheduler.explain(urgent).unwrap().earned,
        [SkillId(2)]
    );
    let restored = fleet.restored().agent_status(AgentId(1)).unwrap();
    assert_eq!(restored, fleet.status(1));
}

#[test]
fn a_skill_that_was_earned_is_lost_by_failures_and_regained_by_a_probe() {
    let mut fleet = apprentice(2);
    works(&mut fleet, 2, Outcome::Succeeded);
    assert_eq!(fleet.status(1).earned, [SkillId(2)]);
    let alone = || Fleet::kind(3, &[2]);
    for _ in 0..2 {
        fleet.submit(alone(), 3);
        fleet.run(1, FAILED);
    }
    assert_eq!(fleet.status(1).suspended, [SkillId(2)]);
    let (held, to) = fleet.submit(alone(), 3);
    assert_eq!(to, None);
    fleet.now = fleet.now + Span::from_secs(6);
    fleet.tell(Input::Tick);
    assert_eq!(fleet.run(1, Outcome::Succeeded), held);
    assert!(fleet.status(1).suspended.is_empty());
    assert!(fleet.status(1).capabilities.contains(SkillId(2)));
}

#[test]
fn a_skill_that_was_taken_back_is_not_earned_again() {
    let mut fleet = apprentice(2);
    let revoke = Input::SkillRevoked {
        agent: AgentId(1),
        skill: SkillId(2),
    };
    fleet.tell(revoke.clone());
    let not_earned = InputError::NotEarned(AgentId(1), SkillId(2));
    assert!(fleet.said(|report| *report == Report::Rejected(not_earned)));
    works(&mut fleet, 2, Outcome::Succeeded);
    let (queued, to) = fleet.submit(Fleet::kind(2, &[2]), 3);
    assert_eq!(to, Some(AgentId(1)));
    fleet.tell(revoke);
    // What was queued there because of it is there no more.
    assert!(fleet.status(1).earned.is_empty());
    assert!(matches!(
        fleet.scheduler.task_status(queued).unwrap().place,
        Place::Held
    ));
    works(&mut fleet, 10, Outcome::Succeeded);
    assert!(fleet.status(1).earned.is_empty());
    // A new incarnation may earn it.
    fleet.join(1, &[1]);
    works(&mut fleet, 2, Outcome::Succeeded);
    assert_eq!(fleet.status(1).earned, [SkillId(2)]);
}

#[test]
fn nothing_is_earned_where_that_is_switched_off_or_every_skill_is_needed() {
    let mut fleet = apprentice(2);
    let mut config = fleet.scheduler.config().clone();
    config.added.earning.enabled = false;
    fleet.tell(Input::ConfigChanged(Box::new(config)));
    works(&mut fleet, 10, Outcome::Succeeded);
    assert!(fleet.status(1).earned.is_empty());
}
