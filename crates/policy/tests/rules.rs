//! Single rules, to the digit.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

fn queued_with_score(world: &World, wanted: TaskId) -> Option<(AgentId, i64)> {
    world.reports().find_map(|report| match report {
        Report::Queued {
            task,
            agent,
            reason: Reason::Score(score),
        } if *task == wanted => Some((*agent, *score)),
        _ => None,
    })
}

#[test]
fn the_score_is_skill_match_minus_a_tenth_of_the_queue_plus_weighted_success() {
    let mut world = World::new(Config::default());
    let half = world.join(1, &[1]);
    let both = world.join(2, &[1, 2]);
    // 1 − 0/10 + 1 × 0.3 beats 0.5 − 0/10 + 0.3, until five tasks are queued.
    for queued in 0..5 {
        let task = world.submit_one(&[1, 2], 3);
        let score = 1_300_000 - 100_000 * queued;
        assert_eq!(queued_with_score(&world, task), Some((both, score)));
    }
    let task = world.submit_one(&[1, 2], 3);
    // 1 − 5/10 + 0.3 ties with 0.5 + 0.3: the better match is asked first and stays.
    assert_eq!(queued_with_score(&world, task), Some((both, 800_000)));
    let task = world.submit_one(&[1, 2], 3);
    assert_eq!(queued_with_score(&world, task), Some((half, 800_000)));
    // An urgent task needs every skill, whatever the queues.
    let urgent = world.submit_one(&[1, 2], 4);
    assert_eq!(
        queued_with_score(&world, urgent).map(|(agent, _)| agent),
        Some(both)
    );
}

#[test]
fn an_agent_that_says_it_is_throttled_gets_less() {
    let mut world = World::new(Config::default());
    let (slowed, free) = (world.join(1, &[]), world.join(2, &[]));
    let vitals = Vitals {
        throttle: 0.8,
        ..Vitals::default()
    };
    world.handle(Input::AgentHeard {
        agent: slowed,
        vitals,
    });
    for _ in 0..20 {
        world.submit_one(&[], 3);
    }
    // 0.8 of half a point is as much as four tasks on the queue.
    let lengths = [slowed, free].map(|agent| world.queue(agent).len());
    assert_eq!(lengths, [8, 12]);
}

#[test]
fn an_urgent_task_is_not_stolen_while_it_is_protected() {
    for preserve in [true, false] {
        let mut config = Config::default();
        config.priority.preserve_high_priority = preserve;
        config.priority.rescue_high_priority = false;
        let mut world = World::new(config);
        let victim = world.join(1, &[]);
        let thief = world.join(2, &[]);
        let urgent = world.new_task(&[], 5);
        world.submit_onto(victim, urgent);
        assert_eq!(world.ask(thief).is_none(), preserve);
    }
}

#[test]
fn the_newest_or_the_oldest_of_the_lowest_priority_is_stolen_first() {
    for (newest, stolen) in [(true, 3), (false, 2)] {
        let mut config = Config::default();
        config.work_stealing.prefer_recent_tasks = newest;
        let mut world = World::new(config);
        let victim = world.join(1, &[]);
        let thief = world.join(2, &[]);
        for priority in [3, 1, 1] {
            let task = world.new_task(&[], priority);
            world.submit_onto(victim, task);
        }
        assert_eq!(world.ask(thief).map(|(task, _)| task), Some(TaskId(stolen)));
    }
}

#[test]
fn a_circle_is_refused_whole_and_named() {
    let mut world = World::new(Config::default());
    world.join(1, &[]);
    let (mut first, mut second) = (world.new_task(&[], 3), world.new_task(&[], 3));
    first.dependencies = [second.id].into();
    second.dependencies = [first.id].into();
    world.submit(vec![first, second]);
    let refused = world.reports().find_map(|report| match report {
        Report::Refused { errors, .. } => Some(errors[0].to_string()),
        _ => None,
    });
    let text = refused.expect("the submission is refused");
    assert!(
        text.contains("circle") && text.contains("task-1") && text.contains("task-2"),
        "{text}"
    );
    assert_eq!(world.scheduler.counts().submitted, 0);
}

#[test]
fn an_answer_to_an_old_lease_changes_nothing() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    world.submit_one(&[], 3);
    let old = world.ask(agent).expect("there is a task");
    world.join(1, &[]);
    world.finish(old);
    assert_eq!(world.stale, 1);
    assert_eq!(world.scheduler.counts().queued, 1);
}

#[test]
fn the_longest_chain_starts_first_however_its_tasks_are_listed() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    world.handle(Input::WorkRequested { agent, want: 1 });
    let mut root = world.new_task(&[], 3);
    root.cost = Some(Span::from_secs(1));
    let mut small = world.new_task(&[], 3);
    small.cost = Some(Span::from_secs(1));
    small.dependencies = [root.id].into();
    let mut large = world.new_task(&[], 3);
    large.cost = Some(Span::from_secs(9));
    large.dependencies = [root.id].into();
    let mut alone = world.new_task(&[], 3);
    alone.cost = Some(Span::from_secs(2));
    let (root_id, large_id) = (root.id, large.id);
    world.submit(vec![alone, small, large, root]);
    let first = world.given(agent).expect("it asked");
    assert_eq!(first.0, root_id, "ten seconds of work begin with it");
    let other = world.join(2, &[]);
    let alone = world.ask(other).expect("the task that stands alone");
    world.finish(alone);
    world.handle(Input::WorkRequested {
        agent: other,
        want: 1,
    });
    world.finish(first);
    assert_eq!(world.given(other).map(|(task, _)| task), Some(large_id));
}

#[test]
fn a_task_that_few_can_do_makes_room_for_itself() {
    for (strategy, makes_room) in [(Strategy::Hybrid, true), (Strategy::Pull, false)] {
        let mut world = World::new(Config {
            strategy,
            ..Config::default()
        });
        let everything = world.join(1, &[1, 2]);
        let less = world.join(2, &[1]);
        for _ in 0..12 {
            world.submit_one(&[1], 3);
        }
        assert_eq!(world.queue(everything), [1, 3, 5, 7, 9, 11]);
        // As long as the others would not have it sooner, everything stays where it is.
        world.submit_one(&[2], 3);
        assert_eq!(world.queue(less).len(), 6);
        world.submit_one(&[2], 3);
        let (here, there) = (world.queue(everything), world.queue(less));
        if makes_room {
            assert_eq!(here, [1, 3, 5, 7, 9, 13, 14]);
            assert_eq!(there, [2, 4, 6, 8, 10, 11, 12], "it keeps its place");
        } else {
            assert_eq!((here.len(), there.len()), (8, 6));
        }
    }
}

#[test]
fn a_straggler_that_began_before_its_like_were_known_gets_a_copy() {
    let mut world = World::new(Config::default());
    let (slow, quick) = (world.join(1, &[]), world.join(2, &[]));
    let kind = TaskKind {
        speculate: true,
        ..TaskKind::default()
    };
    let tasks: Vec<TaskSpec> = (0..8).map(|_| world.new_task_of(kind.clone(), 3)).collect();
    world.submit(tasks);
    let stuck = world.ask(slow).expect("a task");
    world.start(stuck);
    for _ in 0..7 {
        let task = world.ask(quick).expect("a task");
        world.start(task);
        world.advance(Span::from_millis(50));
        world.finish(task);
    }
    world.handle(Input::WorkRequested {
        agent: quick,
        want: 1,
    });
    for _ in 0..100 {
        if world.given(quick).is_some() {
            break;
        }
        world.advance(Span::from_millis(20));
    }
    assert_eq!(world.given(quick).map(|(task, _)| task), Some(stuck.0));
}

/// One agent has a slow task for whose copy nobody has room, another is busy with the last task of
/// its queue, on which one more of priority `waiting` may lie.
fn a_straggler_without_help(waiting: Option<u8>) -> (World, TaskId, AgentId, (TaskId, Lease)) {
    let mut world = World::new(Config::default());
    let (slow, busy) = (world.join(1, &[]), world.join(2, &[]));
    let kind = TaskKind {
        speculate: true,
        ..TaskKind::default()
    };
    let tasks: Vec<TaskSpec> = (0..7).map(|_| world.new_task_of(kind.clone(), 3)).collect();
    world.submit(tasks);
    let stuck = world.ask(slow).expect("a task");
    world.start(stuck);
    for _ in 0..6 {
        let task = world.ask(busy).expect("a task");
        world.start(task);
        world.advance(Span::from_millis(50));
        world.finish(task);
    }
    let long = world.new_task(&[], 3);
    world.submit_onto(busy, long);
    let last = world.ask(busy).expect("its own task");
    world.start(last);
    if let Some(priority) = waiting {
        let task = world.new_task(&[], priority);
        world.submit_onto(busy, task);
    }
    // Long past the moment at which it counts as slow, and just after a look at it.
    world.advance(Span::from_secs(60));
    (world, stuck.0, busy, last)
}

#[test]
fn the_first_agent_that_is_idle_helps_a_straggler_at_once() {
    let (mut world, stuck, busy, last) = a_straggler_without_help(None);
    world.finish(last);
    assert_eq!(world.ask(busy).map(|(task, _)| task), Some(stuck));
}

#[test]
fn the_copy_of_a_straggler_goes_before_what_is_less_urgent_and_behind_the_rest() {
    for (waiting, copied) in [(2, true), (3, false), (4, false)] {
        let (mut world, stuck, busy, last) = a_straggler_without_help(Some(waiting));
        world.finish(last);
        let given = world.ask(busy).map(|(task, _)| task);
        assert_eq!(given == Some(stuck), copied, "priority {waiting} waits");
    }
}

#[test]
fn a_task_that_came_under_protection_while_it_was_asked_back_is_not_stolen() {
    for protect in [true, false] {
        let mut config = Config::default();
        config.priority.preserve_high_priority = false;
        config.priority.rescue_high_priority = false;
        let mut world = World::new(config.clone());
        let keep_full = |id| AgentSpec {
            dispatch: Dispatch::KeepFull,
            ..AgentSpec::new(AgentId(id), SkillSet::none())
        };
        let slow = world.join_spec(keep_full(1));
        world.submit_short(4);
        let asked = world.submit_short(4);
        let (_, lease) = world.given(slow).expect("it is kept full");
        world.join_spec(keep_full(2));
        if protect {
            config.priority.preserve_high_priority = true;
            world.handle(Input::ConfigChanged(Box::new(config)));
        }
        let actions = world.handle(Input::TaskYielded {
            task: asked,
            lease,
            yielded: true,
        });
        let stolen = actions.iter().any(|action| {
            matches!(
                action,
                Action::Assign {
                    reason: Reason::Stolen(_),
                    ..
                }
            )
        });
        assert_eq!(stolen, !protect);
    }
}

/// How many tasks an agent has in hand after a while of tasks that each ran so long.
fn in_hand_after_tasks_of(ran: Span) -> usize {
    let mut scheduler = Scheduler::new(Config::default(), Time::ZERO);
    let agent = AgentSpec {
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    };
    let kind: std::sync::Arc<TaskKind> = TaskKind::default().into();
    let tasks = (1..=1000).map(|id| TaskSpec::new(TaskId(id), kind.clone()));
    let tasks = tasks.collect();
    let job = JobSpec::new(JobId(1));
    let mut actions = Vec::new();
    scheduler.handle(Time(1), Input::AgentJoined(agent.into()), &mut actions);
    scheduler.handle(Time(1), Input::TasksSubmitted { job, tasks }, &mut actions);
    let mut in_hand = std::collections::VecDeque::new();
    for round in 1..=50 {
        let assigned = actions.drain(..).filter_map(|action| match action {
            Action::Assign { task, lease, .. } => Some((task, lease)),
            _ => None,
        });
        in_hand.extend(assigned);
        let (task, lease) = in_hand.pop_front().expect("it is kept full");
        let now = Time::ZERO + Span::from_millis(10 * round);
        scheduler.handle(now, Input::TaskRan { task, lease, ran }, &mut actions);
        let outcome = Outcome::Succeeded;
        let finished = Input::TaskFinished {
            task,
            lease,
            outcome,
        };
        scheduler.handle(now, finished, &mut actions);
    }
    in_hand.len()
        + actions
            .iter()
            .filter(|action| matches!(action, Action::Assign { .. }))
            .count()
}

#[test]
fn a_backlog_follows_the_length_of_tasks_that_are_told_of_only_at_their_end() {
    // One that runs, one more, and as many as end in two round trips of 200 µs.
    assert_eq!(in_hand_after_tasks_of(Span::from_millis(5)), 2);
    assert_eq!(in_hand_after_tasks_of(Span::from_micros(100)), 6);
    let deepest = Config::default().prefetch.max_depth as usize;
    assert_eq!(in_hand_after_tasks_of(Span(1)), 1 + deepest);
}

#[test]
fn a_tick_ends_at_the_end_of_time_and_without_pauses_between_passes() {
    let mut config = Config::default();
    config.thresholds.rebalance_interval = Span::ZERO;
    config.metrics.utilization_sample_interval = Span::ZERO;
    for config in [Config::default(), config] {
        let mut scheduler = Scheduler::new(config, Time::ZERO);
        let mut actions = Vec::new();
        for now in [Time(1), Time(2), Time(u64::MAX - 1), Time::MAX, Time::MAX] {
            scheduler.handle(now, Input::Tick, &mut actions);
        }
        assert!(actions.len() < 20, "{actions:?}");
    }
}

fn kept_full(id: u64) -> AgentSpec {
    AgentSpec {
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    }
}

fn task_of(world: &mut World, cost: Span, priority: u8) -> TaskSpec {
    let mut task = world.new_task(&[], priority);
    task.cost = Some(cost);
    task
}

/// What agents were given by the last input, in that order.
fn assigned(world: &World) -> Vec<TaskId> {
    let assigned = world.last.iter().filter_map(|action| match action {
        Action::Assign { task, .. } => Some(*task),
        _ => None,
    });
    assigned.collect()
}

#[test]
fn of_independent_tasks_the_longest_starts_first_wherever_it_is_listed() {
    let mut world = World::new(Config::default());
    for id in 1..=2 {
        world.join_spec(kept_full(id));
    }
    let mut tasks: Vec<TaskSpec> = (0..12)
        .map(|_| task_of(&mut world, Span::from_millis(400), 3))
        .collect();
    let long = task_of(&mut world, Span::from_secs(4), 3);
    let long_id = long.id;
    tasks.push(long);
    world.submit(tasks);
    let started = assigned(&world);
    assert_eq!(started.len(), 2, "long tasks are not bound ahead of time");
    assert!(started.contains(&long_id));
}

#[test]
fn an_agent_takes_what_the_whole_fleet_should_start_next() {
    let mut world = World::new(Config::default());
    let agents = [1, 2].map(|id| world.join_spec(kept_full(id)));
    let costs = [9, 8, 7, 6, 5, 4];
    let tasks = costs.map(|secs| task_of(&mut world, Span::from_secs(secs), 3));
    let ids = tasks.clone().map(|task| task.id);
    world.submit(tasks.to_vec());
    // One agent does all the rest, although half of it was placed on the queue of the other.
    let mut next = world.given(agents[1]).or(world.given(agents[0])).unwrap();
    for expected in &ids[2..] {
        world.finish(next);
        assert_eq!(assigned(&world), [*expected]);
        next = agents.iter().find_map(|agent| world.given(*agent)).unwrap();
    }
}

#[test]
fn a_task_of_a_limited_group_does_not_take_its_place_while_it_waits_at_an_agent() {
    let mut world = World::new(Config::default());
    let group = GroupId(0);
    world.group_limits.insert(group, 1);
    world.handle(Input::GroupLimitSet { group, limit: 1 });
    let busy = world.join_spec(kept_full(1));
    world.submit_short(3);
    let kind = TaskKind {
        group: Some(group),
        ..TaskKind::default()
    };
    let mut limited = world.new_task_of(kind, 3);
    limited.cost = Some(Span::from_millis(1));
    let id = limited.id;
    world.submit(vec![limited]);
    assert_eq!(world.queue(busy), [id.0], "it waits on the queue");
    let other = world.join_spec(kept_full(2));
    assert_eq!(world.given(other).map(|(task, _)| task), Some(id));
}

#[test]
fn what_is_less_urgent_makes_way_at_an_agent() {
    let mut world = World::new(Config::default());
    world.join_spec(kept_full(1));
    let running = world.submit_short(3);
    world.start(
        world
            .given(AgentId(1))
            .filter(|(task, _)| *task == running)
            .unwrap(),
    );
    let waiting = world.submit_short(3);
    assert_eq!(world.given(AgentId(1)).map(|(task, _)| task), Some(waiting));
    let urgent = task_of(&mut world, Span::from_secs(1), 5);
    world.submit(vec![urgent]);
    let asked: Vec<_> = world.asked_back.iter().map(|(task, _)| *task).collect();
    assert_eq!(asked, [waiting]);
}

#[test]
fn an_agent_that_is_back_is_asked_again_for_what_another_waits_for() {
    let mut world = World::new(Config::default());
    let busy = world.join_spec(kept_full(1));
    let running = world.submit_short(3);
    let held = world.given(busy).filter(|(task, _)| *task == running);
    world.start(held.unwrap());
    let waiting = world.submit_short(3);
    let (_, lease) = world.given(busy).unwrap();
    let idle = world.join_spec(kept_full(2));
    let asks = |world: &World| {
        let mut asked = world.last.iter();
        asked.any(|action| {
            matches!(action, Action::Retract { task, agent, lease: of, running: false }
                if (*task, *agent, *of) == (waiting, busy, lease))
        })
    };
    assert!(asks(&world));
    // The connection broke over that, and is there again.
    world.handle(Input::AgentSilent(busy));
    let vitals = Vitals::default();
    world.handle(Input::AgentHeard {
        agent: busy,
        vitals,
    });
    assert!(asks(&world), "or the other waits for ever");
    let yielded = Input::TaskYielded {
        task: waiting,
        lease,
        yielded: true,
    };
    world.handle(yielded.clone());
    assert_eq!(world.given(idle).map(|(task, _)| task), Some(waiting));
    // It had heard the first time, too: its second answer counts for nothing.
    world.handle(yielded);
    assert_eq!(world.given(busy), None);
}

#[test]
fn an_urgent_task_goes_to_whoever_is_free_first() {
    let mut world = World::new(Config::default());
    let agents = [1, 2].map(|id| world.join_spec(kept_full(id)));
    let second = Span::from_secs(1);
    let both = [3, 3].map(|priority| task_of(&mut world, second, priority));
    world.submit(both.to_vec());
    let in_hand = agents.map(|agent| world.given(agent).unwrap());
    for priority in [3, 5, 5] {
        let task = task_of(&mut world, second, priority);
        world.submit(vec![task]);
    }
    let urgent: Vec<u64> = (4..=5).collect();
    world.finish(in_hand[0]);
    let (first, lease) = world.given(agents[0]).unwrap();
    assert!(urgent.contains(&first.0));
    world.finish((first, lease));
    let (second, _) = world.given(agents[0]).unwrap();
    assert!(urgent.contains(&second.0), "wherever it was queued");
}
