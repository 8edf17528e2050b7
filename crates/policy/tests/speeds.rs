//! Agents of unequal speeds, data that has to be brought, and what is learned of both.

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

fn submit(world: &mut World, cost: Option<Span>) -> TaskId {
    let mut task = world.new_task(&[], 3);
    task.cost = cost;
    let id = task.id;
    world.submit(vec![task]);
    id
}

/// Who has a task in hand, as far as it was told.
fn holder(world: &World, wanted: TaskId) -> Option<AgentId> {
    let given = world.log.iter().rev().find_map(|action| match action {
        Action::Assign { task, agent, .. } if *task == wanted => Some(*agent),
        _ => None,
    });
    given.filter(|_| world.tasks.contains_key(&wanted))
}

fn lease(world: &World, task: TaskId) -> (TaskId, Lease) {
    let (lease, _) = world.tasks[&task]
        .leases
        .iter()
        .next()
        .expect("it is given");
    (task, *lease)
}

/// A fast agent that runs a task of a second, and one that is four times slower and idle; another such task waits.
fn one_waits(matching: Matching, cost: Option<Span>) -> (World, AgentId, AgentId, [TaskId; 2]) {
    let mut world = world_of(matching);
    let (fast, slow) = (join(&mut world, 1, 1.0), join(&mut world, 2, 0.25));
    let first = submit(&mut world, cost);
    assert_eq!(holder(&world, first), Some(fast));
    let held = lease(&world, first);
    world.start(held);
    let second = submit(&mut world, cost);
    (world, fast, slow, [first, second])
}

#[test]
fn a_slow_agent_leaves_to_a_faster_one_what_that_ends_sooner_and_explain_says_so() {
    let (mut world, fast, _, [first, second]) = one_waits(Matching::EarliestFinish, Some(SECOND));
    assert_eq!(holder(&world, second), None);
    let told = world.scheduler.explain(second).expect("it is there");
    assert!(told.obstacles.contains(&Obstacle::FasterAgent(fast)));
    world.advance(SECOND);
    assert_eq!(holder(&world, second), None);
    world.finish(lease(&world, first));
    assert_eq!(holder(&world, second), Some(fast));
}

#[test]
fn nobody_waits_for_a_fast_agent_that_is_late() {
    let (mut world, _, slow, [_, second]) = one_waits(Matching::EarliestFinish, Some(SECOND));
    let mut waited = 0;
    while holder(&world, second).is_none() {
        world.advance(SECOND);
        waited += 1;
        assert!(waited <= 15, "it is not taken");
    }
    assert_eq!(holder(&world, second), Some(slow));
    assert!(waited >= 3, "there was no reason to take it yet");
}

#[test]
fn a_suspected_agent_keeps_nothing_that_was_left_to_it() {
    let (mut world, fast, slow, [_, second]) = one_waits(Matching::EarliestFinish, Some(SECOND));
    world.handle(Input::AgentSilent(fast));
    assert_eq!(holder(&world, second), Some(slow));
}

#[test]
fn an_agent_that_becomes_slow_itself_is_left_nothing() {
    let (mut world, fast, slow, [_, second]) = one_waits(Matching::EarliestFinish, Some(SECOND));
    let vitals = Vitals {
        throttle: 0.75,
        round_trip: Span::from_millis(1),
    };
    world.handle(Input::AgentHeard {
        agent: fast,
        vitals,
    });
    assert_eq!(holder(&world, second), Some(slow));
}

#[test]
fn without_knowledge_nobody_idles() {
    for (matching, cost) in [
        (Matching::EarliestFinish, None),
        (Matching::BestFit, Some(SECOND)),
    ] {
        let (world, _, slow, [_, second]) = one_waits(matching, cost);
        assert_eq!(holder(&world, second), Some(slow), "{matching:?}");
    }
}

#[test]
fn slow_agents_take_their_part_of_a_long_queue() {
    let mut world = world_of(Matching::EarliestFinish);
    let (fast, slow) = (join(&mut world, 1, 1.0), join(&mut world, 2, 0.25));
    let tasks: Vec<TaskSpec> = (0..20)
        .map(|_| {
            let mut task = world.new_task(&[], 3);
            task.cost = Some(SECOND);
            task
        })
        .collect();
    world.submit(tasks);
    let mut done = [0, 0];
    while !world.tasks.is_empty() {
        for agent in [fast, slow] {
            let held = world.agents[&agent].leases.iter().next();
            if let Some((lease, (task, false))) = held {
                world.start((*task, *lease));
            }
        }
        world.advance(SECOND);
        for (at, agent) in [fast, slow].into_iter().enumerate() {
            let held = world.agents[&agent].leases.iter().next();
            let held = held.map(|(lease, (task, _))| (*task, *lease));
            done[at] += u32::from(held.is_some());
            let is_done = at == 0 || done[1] % 4 == 0;
            if let Some(held) = held.filter(|_| is_done) {
                world.finish(held);
            }
        }
        assert!(done[0] <= 20, "{done:?}");
    }
    // Sixteen seconds of the one and sixteen of the other: nothing is shorter.
    assert_eq!(done, [16, 16]);
}

#[test]
fn speed_is_learned_in_the_right_direction_and_counts() {
    let mut world = world_of(Matching::EarliestFinish);
    let (quick, slow) = (join(&mut world, 1, 1.0), join(&mut world, 2, 1.0));
    for _ in 0..15 {
        for (agent, took) in [(quick, 1), (slow, 4)] {
            let mut task = world.new_task(&[], 3);
            task.cost = Some(SECOND);
            let task = world.submit_onto(agent, task);
            let held = lease(&world, task);
            world.start(held);
            world.advance(Span::from_secs(took));
            world.finish(held);
        }
    }
    let speed = |agent| {
        world
            .scheduler
            .agent_status(agent)
            .expect("it is there")
            .speed
    };
    assert!((0.9..1.1).contains(&speed(quick)), "{}", speed(quick));
    assert!((0.2..0.35).contains(&speed(slow)), "{}", speed(slow));
    // As with speeds that were declared: the second waits for the quick one.
    let first = submit(&mut world, Some(SECOND));
    assert_eq!(holder(&world, first), Some(quick));
    let held = lease(&world, first);
    world.start(held);
    let second = submit(&mut world, Some(SECOND));
    assert_eq!(holder(&world, second), None);
}

#[test]
fn one_wrong_cost_does_not_make_an_agent_fast() {
    let mut world = world_of(Matching::EarliestFinish);
    let agent = join(&mut world, 1, 1.0);
    let task = submit(&mut world, Some(Span::from_secs(1000)));
    let held = lease(&world, task);
    world.start(held);
    world.advance(SECOND);
    world.finish(held);
    let speed = world
        .scheduler
        .agent_status(agent)
        .expect("it is there")
        .speed;
    assert!((1.0..1.2).contains(&speed), "{speed}");
}

#[test]
fn the_earliest_finish_is_behind_the_queue() {
    let mut world = world_of(Matching::EarliestFinish);
    // Nobody steals, so that it stays where it was put.
    let mut config = world.config.clone();
    config.strategy = Strategy::Push;
    world.handle(Input::ConfigChanged(Box::new(config)));
    let ask = |world: &mut World, id, speed| {
        world.join_spec(AgentSpec {
            speed,
            ..AgentSpec::new(AgentId(id), SkillSet::none())
        })
    };
    let (fast, slow) = (ask(&mut world, 1, 1.0), ask(&mut world, 2, 0.5));
    let queued: Vec<usize> = (0..6)
        .map(|_| {
            submit(&mut world, Some(SECOND));
            world.queue(fast).len()
        })
        .collect();
    // At the fast one after 1 and 2, at the slow one after 2 (the fast one has it then), and so on: two of three.
    assert_eq!(queued, [1, 2, 2, 3, 4, 4]);
    assert_eq!(world.queue(slow).len(), 2);
}

#[test]
fn what_comes_first_waits_only_for_what_comes_before_it() {
    let mut world = world_of(Matching::EarliestFinish);
    let (fast, slow) = (join(&mut world, 1, 1.0), join(&mut world, 2, 0.25));
    for _ in 0..10 {
        submit(&mut world, Some(SECOND));
    }
    let urgent = {
        let mut task = world.new_task(&[], 4);
        task.cost = Some(SECOND);
        let id = task.id;
        world.submit(vec![task]);
        id
    };
    assert!(world.queue(slow).len() < world.queue(fast).len());
    assert_eq!(world.queue(fast).first(), Some(&urgent.0));
}

#[test]
fn data_is_brought_only_where_that_is_sooner_than_waiting_for_who_has_it() {
    for (transfer, expected) in [(10, 1), (1, 2)] {
        let mut world = world_of(Matching::EarliestFinish);
        let data = DataKey(7);
        for (id, holds) in [(1, vec![data]), (2, Vec::new())] {
            world.join_spec(AgentSpec {
                holds,
                ..AgentSpec::new(AgentId(id), SkillSet::none())
            });
        }
        // The holder is busy for three seconds.
        let mut busy = world.new_task(&[], 3);
        busy.cost = Some(Span::from_secs(3));
        world.submit_onto(AgentId(1), busy);
        let mut task = world.new_task(&[], 3);
        task.cost = Some(SECOND);
        task.locality = Some(Locality {
            key: data,
            transfer: Span::from_secs(transfer),
        });
        let id = task.id;
        world.submit(vec![task]);
        let at = world.tasks[&id].queued_at;
        assert_eq!(at, Some(AgentId(expected)), "{transfer} s to bring it");
    }
}

/// Runs a task at an agent for so long.
fn run_at(world: &mut World, agent: AgentId, mut task: TaskSpec, cost: Span, took: Span) {
    task.cost = Some(cost);
    let id = world.submit_onto(agent, task);
    assert_eq!(holder(world, id), Some(agent), "it is idle");
    let held = lease(world, id);
    world.start(held);
    world.advance(took);
    world.finish(held);
}

#[test]
fn what_goes_on_from_a_checkpoint_teaches_nothing_of_speeds() {
    for keeps_checkpoints in [true, false] {
        let mut world = world_of(Matching::EarliestFinish);
        let (first, second) = (join(&mut world, 1, 1.0), join(&mut world, 2, 1.0));
        let kind = TaskKind {
            checkpoints: keeps_checkpoints,
            ..TaskKind::default()
        };
        let mut task = world.new_task_of(kind, 3);
        task.cost = Some(SECOND);
        let id = world.submit_onto(first, task);
        let (task, lease_of_first) = lease(&world, id);
        world.start((task, lease_of_first));
        world.advance(Span::from_millis(900));
        // It gives it up, and another goes on with the tenth that is left.
        world.handle(Input::TaskYielded {
            task,
            lease: lease_of_first,
            yielded: true,
        });
        assert_eq!(holder(&world, id), Some(second));
        let held = lease(&world, id);
        world.start(held);
        world.advance(Span::from_millis(100));
        world.finish(held);
        let speed = world.scheduler.agent_status(second).map(|it| it.speed);
        assert_eq!(speed == Some(1.0), keeps_checkpoints, "{speed:?}");
    }
}

#[test]
fn how_fast_an_agent_is_at_a_kind_of_work_is_learned_shown_and_counts() {
    let work = |name: u64| TaskKind {
        work: Some(WorkKey(name)),
        ..TaskKind::default()
    };
    let mut world = world_of(Matching::EarliestFinish);
    // One has a device for the first kind of work, the other is a little faster at everything else.
    let (device, plain) = (join(&mut world, 1, 1.0), join(&mut world, 2, 1.3));
    for _ in 0..30 {
        for (agent, kind, took) in [
            (device, 1, 250),
            (device, 2, 1_000),
            (device, 2, 1_000),
            (device, 2, 1_000),
            (device, 2, 1_000),
            (plain, 1, 770),
            (plain, 2, 770),
        ] {
            let task = world.new_task_of(work(kind), 3);
            run_at(&mut world, agent, task, SECOND, Span::from_millis(took));
        }
    }
    let kinds = world.scheduler.kinds_of(device);
    let known = kinds.iter().find(|kind| kind.work == Some(WorkKey(1)));
    let known = known.expect("it is four times as fast there");
    assert!((3.5..=4.5).contains(&known.speed), "{known:?}");
    assert_eq!(world.scheduler.kinds_of(plain), []);
    for (kind, wanted) in [(2, plain), (1, device)] {
        let mut task = world.new_task_of(work(kind), 3);
        task.cost = Some(SECOND);
        let id = task.id;
        world.submit(vec![task]);
        assert_eq!(holder(&world, id), Some(wanted), "work {kind}");
        let held = lease(&world, id);
        world.start(held);
        world.finish(held);
    }
}
