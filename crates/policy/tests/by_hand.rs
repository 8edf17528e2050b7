//! Queues that are filled and emptied by hand.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

/// Puts a task that asks for these skills on a queue, whoever it belongs to.
fn queue(world: &mut World, agent: AgentId, skills: &[u32], priority: u8) -> TaskId {
    let (job, task) = (world.new_job(), Box::new(world.new_task(skills, priority)));
    let id = task.id;
    world.handle(Input::TaskQueued { agent, job, task });
    id
}

fn taken(world: &World) -> Option<TaskId> {
    world.reports().find_map(|report| match report {
        Report::Finished {
            task,
            ending: Ending::Returned,
            ..
        } => Some(*task),
        _ => None,
    })
}

#[test]
fn a_queue_filled_by_hand_holds_what_its_agent_cannot_do() {
    let mut world = World::new(Config::default());
    let ann = world.join(1, &[1]);
    let low = queue(&mut world, ann, &[9], 2);
    let high = queue(&mut world, ann, &[1, 9], 5);
    assert_eq!(world.queue(ann), [high.0, low.0]);
    assert_eq!(world.scheduler.queue_len(ann), Some(2));
    assert!(world.scheduler.counts().balance());
}

#[test]
fn whoever_takes_a_task_has_it_and_its_id_may_come_back() {
    let mut world = World::new(Config::default());
    let ann = world.join(1, &[]);
    let ids: Vec<TaskId> = [3, 5, 1, 1]
        .map(|priority| queue(&mut world, ann, &[], priority))
        .into();
    world.handle(Input::TaskTaken(Taking::First(ann)));
    assert_eq!(taken(&world), Some(ids[1]));
    let newest = Taking::Loot {
        agent: ann,
        newest_first: true,
    };
    world.handle(Input::TaskTaken(newest));
    assert_eq!(taken(&world), Some(ids[3]));
    world.handle(Input::TaskTaken(Taking::Task(ids[0])));
    assert_eq!(taken(&world), Some(ids[0]));
    assert_eq!(world.queue(ann), [ids[2].0]);
    let again = TaskSpec::new(ids[0], TaskKind::default().into());
    let job = world.new_job();
    world.handle(Input::TaskQueued {
        agent: ann,
        job,
        task: Box::new(again),
    });
    assert_eq!(world.queue(ann), [ids[0].0, ids[2].0]);
    assert_eq!(world.scheduler.counts().returned, 3);
    assert!(world.scheduler.counts().balance());
}

#[test]
fn protected_tasks_are_no_loot_and_an_empty_queue_gives_nothing() {
    let mut world = World::new(Config::default());
    let ann = world.join(1, &[]);
    queue(&mut world, ann, &[], 4);
    let loot = Taking::Loot {
        agent: ann,
        newest_first: false,
    };
    world.handle(Input::TaskTaken(loot));
    assert_eq!(taken(&world), None);
    world.handle(Input::TaskTaken(Taking::First(ann)));
    assert!(taken(&world).is_some());
    world.handle(Input::TaskTaken(Taking::First(ann)));
    assert_eq!(world.reports().count(), 0);
}

#[test]
fn a_stolen_task_that_is_taken_leaves_its_thief_free_to_steal_again() {
    let mut world = World::new(Config::default());
    let (ann, bob) = (world.join(1, &[]), world.join(2, &[]));
    for _ in 0..4 {
        queue(&mut world, ann, &[], 3);
    }
    for _ in 0..4 {
        world.handle(Input::StealRequested {
            agent: bob,
            onto_queue: false,
        });
        let (task, _) = world.given(bob).unwrap();
        world.handle(Input::TaskTaken(Taking::Task(task)));
        assert_eq!(taken(&world), Some(task));
    }
    assert_eq!(world.scheduler.metrics().successful_steals, 4);
}

#[test]
fn a_recalled_history_decides_between_equals() {
    let mut world = World::new(Config::default());
    let (ann, bob) = (world.join(1, &[]), world.join(2, &[]));
    world.handle(Input::AgentRecalled {
        agent: ann,
        completed: 1,
        failed: 3,
    });
    let status = world.scheduler.agent_status(ann).unwrap();
    assert_eq!((status.total_completed, status.total_failed), (1, 3));
    assert!((status.success_rate - 0.25).abs() < 1e-9);
    let task = world.submit_one(&[], 3);
    assert_eq!(world.queue(bob), [task.0]);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut world = World::new(Config::default());
    let ann = world.join(1, &[]);
    let (nobody, nothing) = (AgentId(9), TaskId(99));
    let (job, mut task) = (world.new_job(), world.new_task(&[], 3));
    task.dependencies = [nothing].into();
    let alone = InputError::NotAlone(task.id);
    for (input, error) in [
        (
            Input::TaskQueued {
                agent: ann,
                job,
                task: Box::new(task),
            },
            alone,
        ),
        (
            Input::TaskTaken(Taking::First(nobody)),
            InputError::UnknownAgent(nobody),
        ),
        (
            Input::TaskTaken(Taking::Task(nothing)),
            InputError::UnknownTask(nothing),
        ),
        (
            Input::AgentRecalled {
                agent: nobody,
                completed: 0,
                failed: 0,
            },
            InputError::UnknownAgent(nobody),
        ),
    ] {
        world.handle(input);
        assert_eq!(
            world.reports().collect::<Vec<_>>(),
            [&Report::Rejected(error)]
        );
    }
    assert_eq!(world.scheduler.counts(), Counts::default());
}

#[test]
fn what_is_stolen_onto_a_queue_is_there_whatever_the_queue_held() {
    let mut world = World::new(Config::default());
    let (ann, bob) = (world.join(1, &[]), world.join(2, &[]));
    for _ in 0..8 {
        queue(&mut world, ann, &[], 3);
    }
    for _ in 0..3 {
        queue(&mut world, bob, &[], 3);
    }
    let onto_queue = true;
    let mut lengths = Vec::new();
    for _ in 0..4 {
        world.handle(Input::StealRequested {
            agent: bob,
            onto_queue,
        });
        lengths.push((world.queue(ann).len(), world.queue(bob).len()));
    }
    // Bob holds more than `idle_threshold` and asks all the same; at `busy_threshold` it ends.
    assert_eq!(lengths, [(7, 4), (6, 5), (5, 6), (5, 6)]);
    assert_eq!(world.scheduler.metrics().successful_steals, 3);
}
