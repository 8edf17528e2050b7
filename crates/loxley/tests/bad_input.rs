//! Bad input is a typed error with the user's names, and changes nothing.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

use std::time::Duration;

use loxley::{
    Agent, AgentError, AskError, Config, ConfigError, Job, LimitError, ManualClock, Scheduler,
    Strategy, SubmitProblem, Task,
};

fn scheduler() -> Scheduler<&'static str> {
    let scheduler = Scheduler::builder().build();
    scheduler
        .register_agent(Agent::new("ann").skill("python"))
        .unwrap();
    scheduler.submit(Task::new("first"), "payload").unwrap();
    scheduler
}

/// Submits and expects refusal; the rest of the scheduler must be as before.
fn refused(
    scheduler: &Scheduler<&'static str>,
    tasks: impl IntoIterator<Item = Task>,
) -> Vec<SubmitProblem> {
    let before = (scheduler.counts(), scheduler.agent_statuses());
    let tasks = tasks.into_iter().map(|task| (task, "x"));
    let error = scheduler.submit_batch(&Job::new(), tasks).unwrap_err();
    assert_eq!((scheduler.counts(), scheduler.agent_statuses()), before);
    error.problems
}

fn words(problems: &[SubmitProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn names_are_used_once() {
    let scheduler = scheduler();
    let problems = refused(&scheduler, [Task::new("first")]);
    assert_eq!(words(&problems), ["`first` was submitted before"]);
    let problems = refused(&scheduler, [Task::new("twin"), Task::new(" twin ")]);
    assert!(matches!(problems[..], [SubmitProblem::Duplicate(_)]));
    // Also after the task is over.
    let assignment = scheduler.try_next_task("ann").unwrap().unwrap();
    scheduler.complete(&assignment).unwrap();
    refused(&scheduler, [Task::new("first")]);
    // A name that was refused was not used.
    scheduler.submit(Task::new("twin"), "x").unwrap();
}

#[test]
fn every_mistake_of_a_task_is_reported_together() {
    let scheduler = scheduler();
    let task = Task::new("bad")
        .skill(" ")
        .priority(6)
        .cost_secs(f64::NAN)
        .cpu(-1.0)
        .group("tab\there");
    let problems = refused(
        &scheduler,
        [task, Task::new("worse").priority(0).cost_secs(-3.0)],
    );
    assert_eq!(
        words(&problems),
        [
            "`bad`: a skill name is empty",
            "`bad`: a group name holds a control character",
            "`bad`: priority 6 is not between 1 (lowest) and 5 (highest)",
            "`bad`: an expected cost of NaN s is not a length of time",
            "`bad`: -1 is not a number of processors",
            "`worse`: priority 0 is not between 1 (lowest) and 5 (highest)",
            "`worse`: an expected cost of -3 s is not a length of time",
        ]
    );
}

#[test]
fn dependencies_must_be_known_and_must_not_wait_for_each_other() {
    let scheduler = scheduler();
    let problems = refused(&scheduler, [Task::new("a").after("nobody").after("first")]);
    assert_eq!(
        words(&problems),
        ["`a` depends on `nobody`, which nobody submitted"]
    );
    let circle = [
        Task::new("a").after("c"),
        Task::new("b").after("a"),
        Task::new("c").after("b"),
        Task::new("d"),
    ];
    let problems = refused(&scheduler, circle);
    let [SubmitProblem::Cycle(tasks)] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert_eq!(tasks.len(), 3);
    let text = problems[0].to_string();
    assert!(
        text.contains("`a` -> ") && text.contains("`b` -> "),
        "{text}"
    );
    refused(&scheduler, [Task::new("self").after("self")]);
    let unnamed = refused(&scheduler, [Task::unnamed().after(loxley::TaskId(999))]);
    assert!(matches!(
        unnamed[..],
        [SubmitProblem::UnknownDependency { .. }]
    ));
    refused(&scheduler, []);
}

#[test]
fn a_dependency_that_failed_is_named() {
    let scheduler = scheduler();
    let assignment = scheduler.try_next_task("ann").unwrap().unwrap();
    scheduler.fail_for_good(&assignment, "no disk").unwrap();
    let problems = refused(&scheduler, [Task::new("next").after("first")]);
    assert_eq!(
        words(&problems),
        ["`next` depends on `first`, which did not succeed"]
    );
}

#[test]
fn tasks_nobody_can_do_are_refused_unless_they_may_wait() {
    let scheduler = scheduler();
    let problems = refused(&scheduler, [Task::new("paint").skill("oil")]);
    assert_eq!(words(&problems), ["no registered agent can do `paint`"]);
    let task = (Task::new("paint").skill("oil"), "x");
    scheduler.submit_batch(&Job::new().hold(), [task]).unwrap();
    assert_eq!(scheduler.counts().held, 1);
    let onto = scheduler
        .submit_to("bob", Task::new("other"), "x")
        .unwrap_err();
    assert_eq!(
        words(&onto.problems),
        ["agent `bob` is not registered or cannot do `other`"]
    );
}

#[test]
fn a_deadline_in_the_past_is_refused() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build();
    scheduler.register_agent("ann").unwrap();
    clock.advance(Duration::from_secs(5));
    let late = Task::new("late").due_at(loxley::Time(4_000_000_000));
    let error = scheduler.submit(late, ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "submission refused: the deadline of `late` has already passed"
    );
    assert_eq!(scheduler.counts().submitted, 0);
}

#[test]
fn agents_must_make_sense_and_be_registered() {
    let scheduler = scheduler();
    let register = |agent| scheduler.register_agent(agent).unwrap_err();
    assert!(matches!(register(Agent::new("  ")), AgentError::BadName(_)));
    assert!(matches!(
        register(Agent::new("x").skill("")),
        AgentError::BadName(_)
    ));
    assert_eq!(
        register(Agent::new("x").slots(0)),
        AgentError::NoSlots("x".into())
    );
    assert_eq!(
        register(Agent::new("x").speed(f64::NAN)),
        AgentError::BadSpeed("x".into())
    );
    assert_eq!(
        register(Agent::new("x").speed(0.0)),
        AgentError::BadSpeed("x".into())
    );
    assert_eq!(
        register(Agent::new("x").cpu(-2.0)),
        AgentError::BadCpu("x".into())
    );
    // A mistake in a new incarnation leaves the old one alone.
    register(Agent::new("ann").slots(0));
    assert!(scheduler.agent_status("ann").is_some());

    let unknown = AskError::NotRegistered("x".into());
    assert_eq!(scheduler.try_next_task("x").unwrap_err(), unknown);
    assert_eq!(scheduler.request_work("x").unwrap_err(), unknown);
    assert_eq!(
        scheduler.next_task("x", Duration::ZERO).unwrap_err(),
        unknown
    );
    assert_eq!(
        scheduler.heartbeat("x", 0.0).unwrap_err(),
        AgentError::NotRegistered("x".into())
    );
    assert_eq!(
        scheduler.heartbeat("ann", 2.0).unwrap_err(),
        AgentError::BadThrottle("ann".into())
    );
    assert!(scheduler.unregister_agent("x").is_err());
    assert!(scheduler.agent_status("x").is_none());
}

#[test]
fn answers_to_a_stale_lease_are_dropped() {
    let scheduler = scheduler();
    let old = scheduler.try_next_task("ann").unwrap().unwrap();
    scheduler.register_agent(Agent::new("ann")).unwrap();
    assert!(
        old.signal.is_cancelled(),
        "the old incarnation is told to stop"
    );
    let error = scheduler.complete(&old).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{} of `first` is no longer in force; the answer was dropped",
            old.lease
        )
    );
    assert!(scheduler.fail(&old, "late").is_err());
    let new = scheduler.try_next_task("ann").unwrap().unwrap();
    assert_eq!(new.task, old.task);
    scheduler.complete(&new).unwrap();
    assert!(scheduler.complete(&new).is_err(), "once is enough");
    assert_eq!(scheduler.counts().finished, 1);
    assert_eq!(scheduler.metrics().stale_answers, 3);
}

#[test]
fn limits_and_weights_are_at_least_one() {
    let scheduler = scheduler();
    let zero = |name: &str| LimitError::Zero(name.into());
    assert_eq!(scheduler.limit_group("disk", 0).unwrap_err(), zero("disk"));
    assert_eq!(scheduler.weigh_user("ann", 0).unwrap_err(), zero("ann"));
    assert!(matches!(
        scheduler.limit_group(" ", 1),
        Err(LimitError::BadName(_))
    ));
    assert!(scheduler.cancel("nobody").is_err());
    assert!(scheduler.resubmit("first").is_err());
}

#[test]
fn a_stopped_scheduler_turns_everybody_away_and_forgets_nothing() {
    let scheduler = scheduler();
    scheduler.start();
    scheduler.stop();
    assert_eq!(
        scheduler.try_next_task("ann").unwrap_err(),
        AskError::Stopped
    );
    assert_eq!(
        refused(&scheduler, [Task::new("x")]),
        [SubmitProblem::Stopped]
    );
    assert_eq!(scheduler.register_agent("bob"), Err(AgentError::Stopped));
    scheduler.start();
    let assignment = scheduler.try_next_task("ann").unwrap().unwrap();
    assert_eq!(*assignment.payload, "payload");
    scheduler.complete(&assignment).unwrap();
}

#[test]
fn a_configuration_file_is_read_whole_or_not_at_all() {
    let folder = std::env::temp_dir().join(format!("loxley-facade-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let good = folder.join("good.yaml");
    let bad = folder.join("bad.yaml");
    std::fs::write(&good, "load_balancing: {strategy: push}\n").unwrap();
    std::fs::write(&bad, "load_balancing: {strategy: pull, tresholds: {}}\n").unwrap();
    let scheduler: Scheduler<()> = Scheduler::builder().config_file(&good).unwrap().build();
    assert_eq!(scheduler.config().strategy, Strategy::Push);
    let error = scheduler.reload_file(&bad).unwrap_err();
    assert!(error.to_string().contains("bad.yaml:1:"), "{error}");
    assert_eq!(scheduler.config().strategy, Strategy::Push);
    assert!(matches!(
        scheduler.reload_file(folder.join("none.yaml")),
        Err(ConfigError::Read { .. })
    ));
    scheduler.reload(Config::default());
    assert_eq!(scheduler.config().strategy, Strategy::Hybrid);
    std::fs::remove_dir_all(folder).unwrap();
}
