//! Tasks that nothing tells apart but their place in a submission.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

/// Two urgent tasks wait, one at each agent. An agent that is free starts its own: had it taken the other, which came
/// first in the submission, they would only have changed places, and the one of which an end depends would sometimes
/// start later than a normal task in its place.
#[test]
fn an_agent_starts_its_own_urgent_task_before_one_of_the_same_submission_elsewhere() {
    for free in [1, 2] {
        let mut config = Config::default();
        config.capabilities.matching_strategy = Matching::EarliestFinish;
        let mut world = World::new(config);
        for id in [1, 2] {
            world.join_spec(AgentSpec {
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(AgentId(id), SkillSet::none())
            });
        }
        let busy = [0, 1].map(|_| world.new_task(&[], 3));
        world.submit(busy.to_vec());
        let held = [1, 2].map(|id| world.given(AgentId(id)).expect("both have one"));
        for held in held {
            world.start(held);
        }
        let urgent = [0, 1].map(|_| world.new_task(&[], 5));
        world.submit(urgent.to_vec());
        let queued_at = |task: TaskId| {
            let reports = world.log.iter().rev();
            reports.into_iter().find_map(|action| match action {
                Action::Report(Report::Queued {
                    task: id, agent, ..
                }) if *id == task => Some(*agent),
                _ => None,
            })
        };
        let own = urgent
            .iter()
            .find(|task| queued_at(task.id) == Some(AgentId(free)));
        let own = own.expect("one waits at each").id;
        world.finish(held[free as usize - 1]);
        let given = world.given(AgentId(free)).map(|(task, _)| task);
        assert_eq!(given, Some(own), "agent {free}");
        assert_eq!(world.scheduler.metrics().tasks_migrated, 0);
    }
}
