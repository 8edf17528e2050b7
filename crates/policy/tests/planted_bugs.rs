//! Mistakes that somebody once put into the core by hand and that no test noticed: one test each.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

fn heartbeats(world: &mut World, id: u64) -> AgentId {
    world.join_spec(AgentSpec {
        heartbeats: true,
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    })
}

fn heard(world: &mut World, agent: AgentId) {
    let vitals = Vitals {
        throttle: 0.0,
        round_trip: Span::from_millis(1),
    };
    world.handle(Input::AgentHeard { agent, vitals });
}

/// Lets time pass in which nobody is heard, and says whether this was reported meanwhile.
fn silence(world: &mut World, span: Span, wanted: &Report) -> bool {
    let step = Span(span.0 / 20);
    (0..20).any(|_| {
        world.advance(step);
        world.reports().any(|report| report == wanted)
    })
}

#[test]
fn an_agent_that_was_silent_once_and_dies_later_is_given_up() {
    let mut world = World::new(Config::default());
    let rules = world.config.heartbeats;
    let (agent, other) = (heartbeats(&mut world, 1), world.join(2, &[]));
    let between = Span(rules.suspect_after.0 + (rules.lost_after.0 - rules.suspect_after.0) / 2);
    assert!(silence(&mut world, between, &Report::AgentSuspected(agent)));
    heard(&mut world, agent);
    let task = world.submit_one(&[], 3);
    assert!(world.given(agent).is_some(), "it is trusted again");
    let long = Span(2 * rules.lost_after.0);
    assert!(silence(&mut world, long, &Report::AgentLost(agent)));
    assert_eq!(world.ask(other).map(|(given, _)| given), Some(task));
}

#[test]
fn a_suspected_agent_gets_nothing() {
    let mut world = World::new(Config::default());
    let agent = heartbeats(&mut world, 1);
    world.handle(Input::AgentSilent(agent));
    let task = world.submit_one(&[], 3);
    assert!(world.given(agent).is_none());
    heard(&mut world, agent);
    assert_eq!(world.given(agent).map(|(given, _)| given), Some(task));
}

#[test]
fn a_fallback_that_is_not_needed_ends_with_its_task() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    let (mut task, fallback) = (world.new_task(&[], 3), world.new_task(&[], 3));
    task.fallback = Fallback::Task(fallback.id);
    let stands_by = fallback.id;
    world.submit(vec![task, fallback]);
    let held = world.ask(agent).expect("the task itself");
    assert!(world.ask(agent).is_none(), "the fallback only stands by");
    world.finish(held);
    let ended = world.reports().any(|report| {
        matches!(report, Report::Finished { task, ending: Ending::Cancelled, .. } if *task == stands_by)
    });
    assert!(ended, "{:?}", world.last);
    assert_eq!(world.scheduler.counts().live(), 0);
}

#[test]
fn a_task_that_kills_its_agents_is_given_up() {
    let mut world = World::new(Config::default());
    let task = world.submit_one(&[], 3);
    let mut deaths = 0;
    while world.tasks.contains_key(&task) {
        let agent = heartbeats(&mut world, 10 + deaths);
        assert!(world.given(agent).is_some(), "after {deaths} deaths");
        world.handle(Input::AgentSilent(agent));
        let long = Span(2 * world.config.heartbeats.lost_after.0);
        assert!(silence(&mut world, long, &Report::AgentLost(agent)));
        deaths += 1;
        assert!(deaths < 20, "it goes on killing");
    }
    assert!(deaths > 1, "one lost agent proves nothing");
    assert_eq!(world.over.failed, 1);
}

#[test]
fn whatever_is_cancelled_gives_its_place_back() {
    // In its group, on the queue and in hand; and in its user's share.
    let mut world = World::new(Config::default());
    let group = GroupId(1);
    world.handle(Input::GroupLimitSet { group, limit: 1 });
    let agent = world.join_spec(AgentSpec {
        slots: 4,
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    let kind = TaskKind {
        group: Some(group),
        ..TaskKind::default()
    };
    for round in 0..5 {
        let tasks: Vec<TaskSpec> = (0..3).map(|_| world.new_task_of(kind.clone(), 3)).collect();
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        world.submit(tasks);
        assert_eq!(
            world.given(agent).map(|(task, _)| task),
            Some(ids[0]),
            "round {round}"
        );
        // One that runs, whose place goes to the next; then one that waits; then the one that runs now.
        for (cancelled, starts) in [(0, Some(ids[1])), (2, None), (1, None)] {
            world.handle(Input::CancelRequested(Selection::Task(ids[cancelled])));
            assert_eq!(
                world.given(agent).map(|(task, _)| task),
                starts,
                "round {round}"
            );
        }
        assert_eq!(world.group_running(group), 0);
    }
}

#[test]
fn a_users_share_is_free_again_when_its_tasks_are_cancelled() {
    let mut world = World::new(Config::default());
    assert!(world.config.quotas.user_shares);
    let agent = world.join_spec(AgentSpec {
        slots: 2,
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    for round in 0..5 {
        let mut ids = Vec::new();
        for user in [1, 1, 2, 2] {
            let task = world.new_task(&[], 3);
            ids.push(task.id);
            let job = JobSpec {
                user: UserId(user),
                ..world.new_job()
            };
            let tasks = [task].into();
            world.handle(Input::TasksSubmitted { job, tasks });
        }
        let running = |world: &World, user: u32| {
            let leased = world
                .tasks
                .values()
                .filter(|entry| !entry.leases.is_empty());
            leased
                .filter(|entry| entry.job.user == UserId(user))
                .count()
        };
        // Whoever came first took both slots; as they come free, each user gets one.
        world.handle(Input::CancelRequested(Selection::Task(ids[0])));
        assert_eq!(
            (running(&world, 1), running(&world, 2)),
            (1, 1),
            "round {round}"
        );
        world.handle(Input::CancelRequested(Selection::Task(ids[1])));
        assert_eq!(running(&world, 2), 2, "round {round}");
        for id in &ids[2..] {
            world.handle(Input::CancelRequested(Selection::Task(*id)));
        }
        assert_eq!(world.scheduler.counts().live(), 0);
        assert!(world.agents[&agent].leases.is_empty());
    }
}

#[test]
fn the_budget_of_second_copies_is_free_again_when_a_copy_ends() {
    let mut config = Config::default();
    config.speculation.budget = 0.01; // One at a time.
    let mut world = World::new(config);
    let kind = TaskKind {
        speculate: true,
        ..TaskKind::default()
    };
    let (stuck, quick) = (world.join(1, &[]), world.join(2, &[]));
    let run = |world: &mut World, agent| {
        let task = world.new_task_of(kind.clone(), 3);
        world.submit_onto(agent, task);
        let held = world.ask(agent).expect("its own task");
        world.start(held);
        held
    };
    for _ in 0..7 {
        let held = run(&mut world, quick);
        world.advance(Span::from_millis(50));
        world.finish(held);
    }
    for round in 1..=3 {
        let slow = run(&mut world, stuck);
        world.handle(Input::WorkRequested {
            agent: quick,
            want: 1,
        });
        let mut copy = None;
        for _ in 0..100 {
            copy = world.given(quick);
            if copy.is_some() {
                break;
            }
            world.advance(Span::from_millis(20));
        }
        let copy = copy.expect("a copy of what is slow");
        assert_eq!(
            (copy.0, world.scheduler.metrics().speculations),
            (slow.0, round)
        );
        world.finish(copy);
    }
}
