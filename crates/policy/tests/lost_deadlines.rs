//! Tasks that can no longer make their deadline: they come behind those that still can.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

fn world_of(matching: Matching, agents: u64) -> World {
    let mut config = Config::default();
    config.capabilities.matching_strategy = matching;
    let mut world = World::new(config);
    for id in 1..=agents {
        world.join_spec(AgentSpec {
            dispatch: Dispatch::KeepFull,
            ..AgentSpec::new(AgentId(id), SkillSet::none())
        });
    }
    world
}

/// A task that costs so many seconds and is due in so many.
fn task(world: &mut World, cost: u64, due: Option<u64>) -> TaskSpec {
    let mut task = world.new_task(&[], 3);
    task.cost = Some(Span::from_secs(cost));
    task.deadline = due.map(|due| world.now + Span::from_secs(due));
    task
}

fn submit(world: &mut World, cost: u64, due: Option<u64>) -> TaskId {
    let task = task(world, cost, due);
    let id = task.id;
    world.submit(vec![task]);
    id
}

/// Starts what an agent was given, lets it take its time, and returns what it was.
fn run_next(world: &mut World, costs: &[(TaskId, u64)]) -> TaskId {
    let leases = &world.agents[&AgentId(1)].leases;
    let (lease, (task, _)) = leases.iter().next().expect("it has something to do");
    let held = (*task, *lease);
    world.start(held);
    let cost = costs.iter().find(|(task, _)| *task == held.0);
    world.advance(Span::from_secs(cost.expect("it is one of these").1));
    world.finish(held);
    held.0
}

const BOTH: [Matching; 2] = [Matching::BestFit, Matching::EarliestFinish];

#[test]
fn what_is_late_anyway_takes_nobody_s_place() {
    for matching in BOTH {
        let mut world = world_of(matching, 1);
        let first = submit(&mut world, 4, None);
        // It would have to start in three seconds, and the agent is busy for four.
        let lost = submit(&mut world, 2, Some(5));
        let in_time = submit(&mut world, 2, Some(7));
        let no_deadline = submit(&mut world, 1, None);
        let costs = [(first, 4), (lost, 2), (in_time, 2), (no_deadline, 1)];
        let order: Vec<TaskId> = (0..4).map(|_| run_next(&mut world, &costs)).collect();
        assert_eq!(order, [first, in_time, lost, no_deadline], "{matching:?}");
        assert_eq!(world.scheduler.metrics().deadline_misses, 1);
    }
}

#[test]
fn those_that_are_late_keep_the_order_of_their_deadlines() {
    for matching in BOTH {
        let mut world = world_of(matching, 1);
        let first = submit(&mut world, 9, None);
        let late = [7, 5, 6].map(|due| submit(&mut world, 1, Some(due)));
        let costs = [(first, 9), (late[0], 1), (late[1], 1), (late[2], 1)];
        let order: Vec<TaskId> = (0..4).map(|_| run_next(&mut world, &costs)).collect();
        assert_eq!(order, [first, late[1], late[2], late[0]], "{matching:?}");
    }
}

#[test]
fn where_not_all_of_a_job_can_be_in_time_the_shortest_are() {
    for (due, in_time) in [(11, 4), (40, 5)] {
        let mut world = world_of(Matching::EarliestFinish, 1);
        let lengths = [3, 9, 1, 4, 2];
        let tasks = lengths.map(|cost| task(&mut world, cost, Some(due)));
        let costs = tasks
            .each_ref()
            .map(|task| (task.id, task.cost.expect("it has one").0 / 1_000_000_000));
        world.submit(tasks.to_vec());
        let order: Vec<u64> = (0..5)
            .map(|_| run_next(&mut world, &costs))
            .map(|task| costs.iter().find(|(id, _)| *id == task).expect("it is").1)
            .collect();
        let expected = match in_time {
            4 => [1, 2, 3, 4, 9],
            _ => [9, 4, 3, 2, 1], // All of them: the longest first, as ever.
        };
        assert_eq!(order, expected);
        assert_eq!(world.scheduler.metrics().deadline_misses, 5 - in_time);
    }
}

/// Also while nobody can do it, and a scheduler that goes on from a snapshot knows it too.
#[test]
fn a_held_task_steps_back_too() {
    let mut world = world_of(Matching::EarliestFinish, 0);
    let lost = submit(&mut world, 2, Some(3));
    let in_time = submit(&mut world, 2, Some(9));
    world.advance(Span::from_secs(2));
    world.join_spec(AgentSpec {
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    let costs = [(lost, 2), (in_time, 2)];
    let order = [(); 2].map(|()| run_next(&mut world, &costs));
    assert_eq!(order, [in_time, lost]);
}
