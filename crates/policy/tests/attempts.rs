//! An attempt is over when its agent says that nothing is left of it, and not before.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

/// Joins an agent with so many slots that says when what it was told to end has ended.
fn join(world: &mut World, id: u64, slots: u32) -> AgentId {
    world.join_spec(AgentSpec {
        slots,
        dispatch: Dispatch::KeepFull,
        heartbeats: true,
        confirms_ends: true,
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    })
}

fn submit(world: &mut World, kind: &TaskKind) -> TaskId {
    let task = world.new_task_of(kind.clone(), 3);
    let id = task.id;
    world.submit(vec![task]);
    id
}

/// Submits a task that is given to this agent at once, and starts it.
fn run(world: &mut World, agent: AgentId, kind: &TaskKind) -> (TaskId, Lease) {
    submit(world, kind);
    let held = world.given(agent).expect("it is given out");
    world.start(held);
    held
}

fn cancel(world: &mut World, task: TaskId) {
    world.handle(Input::CancelRequested(Selection::Task(task)));
}

fn cancelled_and_awaited(world: &World) -> Vec<Lease> {
    let cancels = world.last.iter().filter_map(|action| match action {
        Action::Cancel { lease, awaited, .. } => Some((*lease, *awaited)),
        _ => None,
    });
    cancels
        .filter_map(|(lease, awaited)| awaited.then_some(lease))
        .collect()
}

fn ending(world: &World) -> Option<Ending> {
    world.reports().find_map(|report| match report {
        Report::Finished { ending, .. } => Some(*ending),
        _ => None,
    })
}

#[test]
fn a_cancelled_task_keeps_its_place_in_the_group_until_it_is_gone() {
    let mut world = World::new(Config::default());
    let agent = join(&mut world, 1, 4);
    let group = GroupId(1);
    world.handle(Input::GroupLimitSet { group, limit: 1 });
    let kind = TaskKind {
        group: Some(group),
        ..TaskKind::default()
    };
    let (task, lease) = run(&mut world, agent, &kind);
    let second = submit(&mut world, &kind);
    cancel(&mut world, task);
    assert_eq!(cancelled_and_awaited(&world), [lease]);
    assert_eq!(ending(&world), None, "its process may still run");
    assert_eq!(world.given(agent), None);
    assert!(world.scheduler.is_ending(task, lease));
    cancel(&mut world, task);
    assert!(world.last.is_empty(), "it was told once");
    world.fail((task, lease));
    assert_eq!(ending(&world), Some(Ending::Cancelled));
    assert_eq!(world.given(agent).map(|(task, _)| task), Some(second));
}

#[test]
fn a_task_that_had_not_begun_is_over_when_its_agent_says_so() {
    let mut world = World::new(Config::default());
    let agent = join(&mut world, 1, 1);
    submit(&mut world, &TaskKind::default());
    let (task, lease) = world.given(agent).expect("it is given out");
    cancel(&mut world, task);
    assert_eq!(ending(&world), None);
    let yielded = true;
    world.handle(Input::TaskYielded {
        task,
        lease,
        yielded,
    });
    assert_eq!(ending(&world), Some(Ending::Cancelled));
}

#[test]
fn a_retry_waits_until_the_attempt_that_took_too_long_is_gone() {
    let mut world = World::new(Config::default());
    let agent = join(&mut world, 1, 2);
    let kind = TaskKind {
        time_limit: Some(Span::from_secs(1)),
        retry: RetryRule {
            retries: 1,
            ..RetryRule::default()
        },
        ..TaskKind::default()
    };
    let held = run(&mut world, agent, &kind);
    world.advance(Span::from_secs(2));
    assert_eq!(cancelled_and_awaited(&world), [held.1]);
    world.advance(Span::from_secs(5));
    assert_eq!(world.given(agent), None, "the first attempt still runs");
    world.fail(held);
    world.advance(Span::from_secs(5));
    let again = world.given(agent).expect("the second attempt");
    assert_eq!(again.0, held.0);
    world.start(again);
    world.finish(again);
    assert!(matches!(ending(&world), Some(Ending::Succeeded { .. })));
}

#[test]
fn a_task_is_over_when_the_copy_that_lost_is_gone_too() {
    let mut config = Config::default();
    config.speculation.min_samples = 1;
    config.speculation.budget = 1.0;
    let mut world = World::new(config);
    let (first, other) = (join(&mut world, 1, 1), join(&mut world, 2, 1));
    let kind = TaskKind {
        speculate: true,
        ..TaskKind::default()
    };
    let quick = run(&mut world, first, &kind);
    world.advance(Span::from_millis(100));
    world.finish(quick);
    submit(&mut world, &kind);
    let slow = [first, other]
        .iter()
        .find_map(|agent| world.given(*agent))
        .expect("somebody has it");
    world.start(slow);
    let mut copy = None;
    for _ in 0..20 {
        world.advance(Span::from_secs(1));
        copy = copy.or([first, other].iter().find_map(|agent| world.given(*agent)));
    }
    let copy = copy.expect("a second copy runs");
    world.start(copy);
    world.finish(copy);
    assert_eq!(cancelled_and_awaited(&world), [slow.1]);
    assert_eq!(ending(&world), None, "the first copy still runs");
    world.fail(slow);
    let lease = copy.1;
    assert!(
        matches!(ending(&world), Some(Ending::Succeeded { lease: won, .. }) if won == lease),
        "{:?}",
        world.last
    );
}

#[test]
fn what_a_lost_agent_was_told_to_end_is_over_and_not_tried_again() {
    let mut world = World::new(Config::default());
    let agent = join(&mut world, 1, 1);
    let (task, _) = run(&mut world, agent, &TaskKind::default());
    cancel(&mut world, task);
    world.advance(Span::from_secs(3_600));
    world.advance(Span::from_secs(3_600));
    let ended: Vec<_> = world
        .log
        .iter()
        .filter(|action| {
            matches!(
                action,
                Action::Report(Report::Finished {
                    ending: Ending::Cancelled,
                    ..
                })
            )
        })
        .collect();
    assert_eq!(ended.len(), 1);
}

#[test]
fn a_task_that_must_not_run_twice_fails_with_its_agent() {
    for by_itself in [false, true] {
        let mut world = World::new(Config::default());
        let agent = join(&mut world, 1, 1);
        let once = TaskKind {
            once: true,
            ..TaskKind::default()
        };
        let (task, lease) = run(&mut world, agent, &once);
        if by_itself {
            // It was cut off, and ended what it ran.
            let outcome = Outcome::Failed(Failure::AgentLost);
            world.handle(Input::TaskFinished {
                task,
                lease,
                outcome,
            });
        } else {
            world.handle(Input::AgentLeft {
                agent,
                tasks: Leftovers::Requeue,
            });
        }
        assert_eq!(ending(&world), Some(Ending::Failed(Failure::AgentLost)));
    }
}

#[test]
fn what_an_agent_ended_because_it_was_cut_off_goes_to_another_and_is_no_failure() {
    let mut world = World::new(Config::default());
    let agent = join(&mut world, 1, 1);
    let (task, lease) = run(&mut world, agent, &TaskKind::default());
    let outcome = Outcome::Failed(Failure::AgentLost);
    world.handle(Input::TaskFinished {
        task,
        lease,
        outcome,
    });
    assert_eq!(ending(&world), None);
    assert_eq!(world.given(agent).map(|(task, _)| task), Some(task));
}

#[test]
fn time_in_which_nobody_listened_is_not_silence_of_the_agents() {
    for excused in [false, true] {
        let mut world = World::new(Config::default());
        let agent = join(&mut world, 1, 1);
        let lost_after = world.config.heartbeats.lost_after;
        run(&mut world, agent, &TaskKind::default());
        world.now = world.now + lost_after + Span::from_secs(10);
        if excused {
            world.handle(Input::StoodStill(lost_after + Span::from_secs(9)));
        }
        world.handle(Input::Tick);
        world.handle(Input::Tick);
        let lost = world
            .log
            .iter()
            .any(|action| matches!(action, Action::Report(Report::AgentLost(_))));
        assert_eq!(lost, !excused);
    }
}

#[test]
fn shorter_rules_of_silence_hold_once_an_agent_can_know_of_them() {
    let mut world = World::new(Config::default());
    let agent = join(&mut world, 1, 1);
    run(&mut world, agent, &TaskKind::default());
    let mut config = world.config.clone();
    config.heartbeats.suspect_after = Span::from_secs(1);
    config.heartbeats.lost_after = Span::from_secs(2);
    world.advance(Span::from_secs(4));
    world.handle(Input::ConfigChanged(Box::new(config)));
    world.advance(Span::from_secs(4));
    let is_lost = |world: &World| {
        let mut log = world.log.iter();
        log.any(|action| matches!(action, Action::Report(Report::AgentLost(_))))
    };
    assert!(!is_lost(&world), "it still beats as it was told before");
    let vitals = Vitals::default();
    world.handle(Input::AgentHeard { agent, vitals });
    world.advance(Span::from_secs(3));
    world.advance(Span::from_secs(3));
    assert!(is_lost(&world), "now it knows, and was silent for too long");
}
