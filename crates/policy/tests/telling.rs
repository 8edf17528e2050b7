//! What the scheduler tells people: each problem from its threshold on and not before, and why a task does not run.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

fn problems(world: &World) -> Vec<ProblemKind> {
    let problems = world.scheduler.health().into_iter();
    problems.map(|problem| problem.kind).collect()
}

fn obstacles(world: &World, task: TaskId) -> Vec<Obstacle> {
    let told = world.scheduler.explain(task).expect("it is not over");
    told.obstacles
}

/// One agent that is busy.
fn busy(config: Config) -> (World, AgentId) {
    let mut world = World::new(config);
    let agent = world.join(1, &[]);
    world.submit_one(&[], 3);
    world.ask(agent).expect("a task");
    (world, agent)
}

#[test]
fn a_fleet_is_too_small_when_nobody_is_idle_and_too_many_wait() {
    let mut config = Config::default();
    config.health.queued_max = 10;
    let (mut world, _) = busy(config.clone());
    let many = (0..10).map(|_| world.new_task(&[], 3)).collect();
    world.submit(many);
    assert!(!problems(&world).contains(&ProblemKind::AllAgentsBusy));
    world.submit_one(&[], 3);
    assert!(problems(&world).contains(&ProblemKind::AllAgentsBusy));
    // Somebody with a short queue counts as idle, however many wait elsewhere.
    world.join(2, &[7]);
    assert!(!problems(&world).contains(&ProblemKind::AllAgentsBusy));
    // Without agents something else is wrong.
    let mut world = World::new(config);
    let many = (0..20).map(|_| world.new_task(&[], 3)).collect();
    world.submit(many);
    assert_eq!(problems(&world), [ProblemKind::NoAgents]);
}

#[test]
fn a_healthy_fleet_has_no_problems() {
    let (mut world, _) = busy(Config::default());
    world.submit_one(&[], 3);
    assert_eq!(problems(&world), []);
}

#[test]
fn few_steals_that_succeed_are_told_only_when_there_were_enough() {
    let mut config = Config::default();
    config.work_stealing.min_tasks_to_steal = 5;
    let (mut world, _) = busy(config);
    let (task, thief) = (world.new_task(&[], 3), world.join(2, &[7]));
    world.submit_onto(AgentId(1), task);
    let is_told = |world: &World| problems(world).contains(&ProblemKind::LowStealSuccess);
    for tried in 1..=25 {
        assert!(world.ask(thief).is_none());
        let told = world.scheduler.metrics().total_steals;
        assert_eq!(is_told(&world), told >= 20, "{tried} tried, {told} counted");
    }
    assert!(is_told(&world), "{:?}", world.scheduler.metrics());
}

#[test]
fn steals_that_succeed_are_no_problem() {
    let (mut world, _) = busy(Config::default());
    let thief = world.join(2, &[]);
    for _ in 0..30 {
        let task = world.new_task(&[], 3);
        world.submit_onto(AgentId(1), task);
        let held = world.ask(thief).expect("it is stolen");
        world.finish(held);
    }
    let steals = world.scheduler.metrics().total_steals;
    assert!(steals >= 20, "{steals}");
    assert!(!problems(&world).contains(&ProblemKind::LowStealSuccess));
}

#[test]
fn tasks_that_nobody_can_do_are_a_problem_once_there_are_agents() {
    let mut world = World::new(Config::default());
    world.join(1, &[]);
    assert_eq!(problems(&world), []);
    let task = world.submit_one(&[3], 3);
    assert_eq!(problems(&world), [ProblemKind::UnassignableTasks]);
    let missing = Obstacle::SkillsMissing {
        nearest: Some(AgentId(1)),
        missing: vec![SkillId(3)],
    };
    assert_eq!(obstacles(&world, task), [missing]);
    // An agent that could and may not is told apart from one that cannot.
    let able = world.join(2, &[3]);
    let given = world.ask(able).expect("it can");
    world.handle(Input::AgentDrained(able));
    world.fail(given);
    let other = world.submit_one(&[3], 3);
    assert_eq!(obstacles(&world, other), [Obstacle::AgentsUnavailable(1)]);
    world.handle(Input::AgentDrained(AgentId(1)));
    assert_eq!(obstacles(&world, other), [Obstacle::AgentsUnavailable(1)]);
}

#[test]
fn deadlines_that_were_missed_are_a_problem() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    for late in [false, true] {
        let mut task = world.new_task(&[], 3);
        task.deadline = Some(world.now + Span::from_secs(5));
        world.submit(vec![task]);
        let held = world.ask(agent).expect("the task");
        world.start(held);
        world.advance(Span::from_secs(if late { 6 } else { 1 }));
        world.finish(held);
        let is_told = problems(&world).contains(&ProblemKind::DeadlinesMissed);
        assert_eq!(is_told, late);
    }
}

#[test]
fn an_agent_that_is_silent_is_a_problem_until_it_is_heard() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    world.handle(Input::AgentSilent(agent));
    assert_eq!(problems(&world), [ProblemKind::AgentsSuspected]);
    let vitals = Vitals {
        throttle: 0.0,
        round_trip: Span::from_millis(1),
    };
    world.handle(Input::AgentHeard { agent, vitals });
    assert_eq!(problems(&world), []);
}

#[test]
fn a_convoy_is_a_full_group_with_a_queue_behind_it() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    let group = GroupId(4);
    world.handle(Input::GroupLimitSet { group, limit: 1 });
    let kind = TaskKind {
        group: Some(group),
        ..TaskKind::default()
    };
    let many = (0..20).map(|_| world.new_task_of(kind.clone(), 3));
    let many: Vec<TaskSpec> = many.collect();
    let last = many[19].id;
    world.submit(many);
    let is_told = |world: &World| problems(world).contains(&ProblemKind::Convoy);
    assert!(!is_told(&world), "none of it runs");
    world.ask(agent).expect("the first");
    assert!(!is_told(&world), "only nineteen wait");
    let more = world.new_task_of(kind, 3);
    world.submit(vec![more]);
    assert!(is_told(&world));
    let full = Obstacle::GroupFull {
        running: 1,
        limit: 1,
    };
    assert!(obstacles(&world, last).contains(&full));
}

#[test]
fn tasks_that_are_too_short_are_told_when_many_ended_and_many_wait() {
    let mut world = World::new(Config::default());
    let short = Span(world.config.health.short_task.0 / 2);
    let agent = world.join(1, &[]);
    let many = (0..125).map(|_| world.new_task(&[], 3)).collect();
    world.submit(many);
    let is_told = |world: &World| problems(world).contains(&ProblemKind::OverPartitioning);
    for ended in 1..=104_u32 {
        let held = world.ask(agent).expect("one more");
        world.start(held);
        world.advance(short);
        world.finish(held);
        assert_eq!(is_told(&world), ended >= 100, "{ended}");
    }
    while world.scheduler.metrics().total_queued >= 20 {
        assert!(is_told(&world));
        let held = world.ask(agent).expect("one more");
        world.finish(held);
    }
    assert!(!is_told(&world), "few are left");
}

#[test]
fn what_keeps_a_queued_task_from_others_is_told() {
    let (mut world, agent) = busy(Config::default());
    world.handle(Input::WorkRequested { agent, want: 0 });
    let (normal, urgent) = (world.submit_one(&[], 3), world.submit_one(&[], 5));
    let ahead = |ahead| Obstacle::BehindOthers { agent, ahead };
    let busy = || Obstacle::AgentBusy(agent);
    assert_eq!(obstacles(&world, normal), [ahead(1), busy()]);
    assert_eq!(obstacles(&world, urgent), [busy(), Obstacle::Protected]);
    let mut config = world.config.clone();
    config.guards.max_moves = 0;
    world.handle(Input::ConfigChanged(Box::new(config.clone())));
    assert!(obstacles(&world, normal).contains(&Obstacle::MovedEnough(0)));
    let remedies = |world: &World| world.scheduler.explain(normal).expect("it waits").remedies;
    assert!(!remedies(&world).contains(&Remedy::AllowStealing));
    config.guards.max_moves = 2;
    config.work_stealing.steal_below_busy = false;
    world.handle(Input::ConfigChanged(Box::new(config)));
    assert!(remedies(&world).contains(&Remedy::AllowStealing));
}

#[test]
fn a_task_put_on_a_queue_by_hand_stands_alone() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    for needs in [true, false] {
        let mut task = world.new_task(&[], 3);
        if needs {
            task.dependencies = [TaskId(99)].into();
        } else {
            task.fallback = Fallback::Value;
        }
        let (id, job) = (task.id, world.new_job());
        let task = Box::new(task);
        let actions = world.handle(Input::TaskQueued { agent, job, task });
        let refused = Action::Report(Report::Rejected(InputError::NotAlone(id)));
        assert_eq!(actions, [refused]);
    }
}

#[test]
fn two_tasks_cannot_have_the_same_fallback_and_two_may_have_two() {
    let mut world = World::new(Config::default());
    world.join(1, &[]);
    let mut tasks: Vec<TaskSpec> = (0..4).map(|_| world.new_task(&[], 3)).collect();
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    tasks[0].fallback = Fallback::Task(ids[2]);
    tasks[1].fallback = Fallback::Task(ids[2]);
    world.submit(tasks.clone());
    let is_refused = |world: &World| {
        let mut reports = world.reports();
        reports.any(|report| matches!(report, Report::Refused { .. }))
    };
    assert!(is_refused(&world));
    tasks[1].fallback = Fallback::Task(ids[3]);
    world.submit(tasks);
    assert!(!is_refused(&world));
}

#[test]
fn of_tasks_that_cannot_all_be_in_time_the_first_come_first() {
    let order = |deadline: u64| {
        let mut world = World::new(Config::default());
        let agent = world.join(1, &[]);
        let tasks: Vec<TaskSpec> = [1_u64, 1, 4]
            .map(|cost| {
                let mut task = world.new_task(&[], 3);
                task.cost = Some(Span::from_secs(cost));
                task.deadline = Some(Time::ZERO + Span::from_secs(deadline));
                task
            })
            .into();
        let long = tasks[2].id;
        world.submit(tasks);
        world.ask(agent).expect("the first").0 == long
    };
    assert!(
        order(7),
        "all of them can be done by then: the longest first"
    );
    assert!(!order(5), "the longest first would make two late");
}
