//! Deadlines: who gets a task that has one, which comes first, and when one is said to be lost.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

const SECOND: Span = Span::from_secs(1);

fn world_of(matching: Matching) -> World {
    let mut config = Config::default();
    config.capabilities.matching_strategy = matching;
    World::new(config)
}

fn join(world: &mut World, id: u64, speed: f64) -> AgentId {
    world.join_spec(AgentSpec {
        speed,
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    })
}

/// Submits a task that costs so many seconds and is due in so many.
fn submit(world: &mut World, cost: u64, due: Option<u64>) -> TaskId {
    let mut task = world.new_task(&[], 3);
    task.cost = Some(Span::from_secs(cost));
    task.deadline = due.map(|due| world.now + Span::from_secs(due));
    let id = task.id;
    world.submit(vec![task]);
    id
}

fn lease(world: &World, task: TaskId) -> (TaskId, Lease) {
    let lease = world.tasks[&task].leases.keys().next();
    (task, *lease.expect("it is given"))
}

fn is_lost(world: &World, wanted: TaskId) -> bool {
    world.log.iter().any(|action| {
        matches!(action, Action::Report(Report::DeadlineLost { task, .. }) if *task == wanted)
    })
}

#[test]
fn a_task_goes_to_an_agent_that_makes_its_deadline() {
    for matching in [Matching::BestFit, Matching::Exact, Matching::EarliestFinish] {
        let mut world = world_of(matching);
        let (slow, fast) = (join(&mut world, 1, 0.1), join(&mut world, 2, 1.0));
        submit(&mut world, 1, Some(3));
        assert!(world.given(fast).is_some(), "{matching:?}");
        assert!(world.given(slow).is_none(), "{matching:?}");
    }
    let mut world = world_of(Matching::BestFit);
    let slow = join(&mut world, 1, 0.1);
    join(&mut world, 2, 1.0);
    submit(&mut world, 1, None);
    assert!(world.given(slow).is_some(), "a score knows no speeds");
}

#[test]
fn the_earliest_deadline_of_the_fleet_comes_first_wherever_it_is_queued() {
    for (matching, free) in [
        (Matching::BestFit, 0),
        (Matching::BestFit, 1),
        (Matching::EarliestFinish, 0),
        (Matching::EarliestFinish, 1),
    ] {
        let mut world = world_of(matching);
        let agents = [1, 2].map(|id| join(&mut world, id, 1.0));
        let running = [0, 1].map(|_| submit(&mut world, 1, None));
        for task in running {
            let held = lease(&world, task);
            world.start(held);
        }
        let [_, _, earliest, _] = [40, 30, 20, 50].map(|due| submit(&mut world, 1, Some(due)));
        let mine = running.map(|task| lease(&world, task));
        let holder = |task: TaskId| world.tasks[&task].leases.values().next().copied();
        let at = running
            .iter()
            .position(|task| holder(*task) == Some(agents[free]));
        world.finish(mine[at.expect("both run something")]);
        let given = world.given(agents[free]).map(|(task, _)| task);
        assert_eq!(given, Some(earliest), "{matching:?}, agent {free}");
    }
}

#[test]
fn a_slow_agent_takes_first_what_is_due_first_from_a_fast_one_that_is_late() {
    let mut world = world_of(Matching::EarliestFinish);
    let (fast, slow) = (join(&mut world, 1, 1.0), join(&mut world, 2, 0.25));
    let first = submit(&mut world, 1, None);
    assert_eq!(world.given(fast).map(|(task, _)| task), Some(first));
    let held = lease(&world, first);
    world.start(held);
    let earlier = submit(&mut world, 1, Some(60));
    let later = submit(&mut world, 1, Some(90));
    assert!(
        world.agents[&slow].leases.is_empty(),
        "both end sooner there"
    );
    let mut waited = 0;
    while world.agents[&slow].leases.is_empty() {
        world.advance(SECOND);
        waited += 1;
        assert!(waited <= 20, "nobody takes them");
    }
    assert!(!world.tasks[&earlier].leases.is_empty());
    assert!(world.tasks[&later].leases.is_empty());
}

#[test]
fn a_deadline_that_a_fast_agent_can_make_is_not_said_to_be_lost() {
    for matching in [Matching::BestFit, Matching::EarliestFinish] {
        let mut world = world_of(matching);
        let fast = join(&mut world, 1, 4.0);
        let busy = submit(&mut world, 1, None);
        let held = lease(&world, busy);
        world.start(held);
        // Four seconds of work in a second and a bit: too late for an agent of speed 1 from the beginning.
        let task = submit(&mut world, 4, Some(2));
        world.advance(Span::from_millis(250));
        world.finish(held);
        assert_eq!(world.given(fast).map(|(task, _)| task), Some(task));
        let held = lease(&world, task);
        world.start(held);
        world.advance(SECOND);
        world.finish(held);
        assert!(!is_lost(&world, task), "{matching:?}");
        assert_eq!(world.scheduler.metrics().deadline_misses, 0);
    }
}

#[test]
fn a_task_that_can_no_longer_be_done_in_time_is_said_to_be_late_at_once() {
    // Nobody is there who could begin.
    let mut world = world_of(Matching::BestFit);
    join(&mut world, 1, 1.0);
    let busy = submit(&mut world, 10, None);
    let held = lease(&world, busy);
    world.start(held);
    let task = submit(&mut world, 2, Some(5));
    world.advance(Span::from_millis(3_000));
    assert!(!is_lost(&world, task));
    world.advance(Span::from_millis(1_500));
    assert!(is_lost(&world, task), "it cannot be done any more");
    // What has begun may be done sooner than anybody expects: that is said when it is too late.
    let mut world = world_of(Matching::BestFit);
    join(&mut world, 1, 0.25);
    let task = submit(&mut world, 1, Some(2));
    let held = lease(&world, task);
    world.start(held);
    world.advance(SECOND);
    assert!(!is_lost(&world, task));
    world.advance(SECOND);
    assert!(is_lost(&world, task));
}
