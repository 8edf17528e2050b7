//! Nothing less urgent starts where an urgent task waits that could start there [S6, S14].

mod world;

use loxley_model::*;
use loxley_policy::{Action, Config, Input, Selection};
use world::World;

fn join(world: &mut World, id: u64, slots: u32) -> AgentId {
    world.join_spec(AgentSpec {
        slots,
        dispatch: Dispatch::KeepFull,
        resources: Resources {
            memory_bytes: 1_000,
            ..Resources::default()
        },
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    })
}

fn needing(memory_bytes: u64) -> TaskKind {
    TaskKind {
        needs: Resources {
            memory_bytes,
            ..Resources::default()
        },
        ..TaskKind::default()
    }
}

#[test]
fn an_urgent_task_is_free_when_its_agent_has_a_slot_but_no_room_for_it() {
    let mut world = World::new(Config::default());
    let (full, other) = (join(&mut world, 1, 2), join(&mut world, 2, 1));
    let large = world.new_task_of(needing(800), 3);
    world.submit_onto(full, large);
    let first = world.new_task(&[], 3);
    world.submit_onto(other, first);
    let first = world.given(other).unwrap();
    world.start(first);
    let urgent = world.new_task_of(needing(500), 5);
    let urgent = world.submit_onto(full, urgent);
    assert_eq!(world.queue(full), [urgent.0], "it has no room for it");
    let normal = world.new_task(&[], 3);
    world.submit_onto(other, normal);
    world.finish(first);
    assert_eq!(world.given(other).unwrap().0, urgent);
}

#[test]
fn two_urgent_tasks_of_one_agent_start_before_what_another_has() {
    // Both agents come free at once, and it must not matter who is looked at first.
    for (one, two) in [(1, 2), (2, 1)] {
        let mut world = World::new(Config::default());
        let (a, b) = (join(&mut world, 1, 1), join(&mut world, 2, 1));
        let tasks = vec![world.new_task(&[], 3), world.new_task(&[], 3)];
        world.submit(tasks);
        let job = JobId(world.next_job);
        assert!(!world.agents[&a].leases.is_empty() && !world.agents[&b].leases.is_empty());
        let mut urgent = Vec::new();
        for _ in 0..2 {
            let task = world.new_task(&[], 4);
            urgent.push(world.submit_onto(AgentId(one), task));
        }
        let normal = world.new_task(&[], 3);
        world.submit_onto(AgentId(two), normal);
        world.handle(Input::CancelRequested(Selection::Job(job)));
        let given = world.last.iter().filter_map(|action| match action {
            Action::Assign { task, .. } => Some(*task),
            _ => None,
        });
        let mut given: Vec<TaskId> = given.collect();
        given.sort();
        assert_eq!(given, urgent, "the urgent ones lie at agent {one}");
    }
}
