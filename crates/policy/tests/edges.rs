//! Where rules begin and cease to hold: who is passed over, what is left alone, and what the figures say of it.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

const SECOND: Span = Span::from_secs(1);

fn world_with(change: impl FnOnce(&mut Config)) -> World {
    let mut config = Config::default();
    change(&mut config);
    World::new(config)
}

fn earliest_finish() -> World {
    world_with(|config| config.capabilities.matching_strategy = Matching::EarliestFinish)
}

fn kept_full(id: u64) -> AgentSpec {
    AgentSpec {
        dispatch: Dispatch::KeepFull,
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    }
}

fn costing(world: &mut World, skills: &[u32], cost: Span) -> TaskSpec {
    TaskSpec {
        cost: Some(cost),
        ..world.new_task(skills, 3)
    }
}

/// Where the last input put a task first.
fn queued_at(world: &World, wanted: TaskId) -> Option<AgentId> {
    world.reports().find_map(|report| match report {
        Report::Queued { task, agent, .. } if *task == wanted => Some(*agent),
        _ => None,
    })
}

fn submit(world: &mut World, task: TaskSpec) -> TaskId {
    let id = task.id;
    world.submit(vec![task]);
    id
}

fn ending(world: &World) -> Option<Ending> {
    world.reports().find_map(|report| match report {
        Report::Finished { ending, .. } => Some(*ending),
        _ => None,
    })
}

fn retracted(world: &World) -> Option<(TaskId, Lease)> {
    world.log.iter().rev().find_map(|action| match action {
        Action::Retract { task, lease, .. } => Some((*task, *lease)),
        _ => None,
    })
}

// Who gets a task.

#[test]
fn nothing_comes_to_the_queue_of_an_agent_that_is_silent() {
    let mut world = World::new(Config::default());
    let (silent, other) = (world.join(1, &[]), world.join(2, &[]));
    world.handle(Input::AgentSilent(silent));
    for _ in 0..4 {
        let task = world.submit_one(&[], 3);
        assert_eq!(queued_at(&world, task), Some(other));
    }
    world.handle(Input::AgentHeard {
        agent: silent,
        vitals: Vitals::default(),
    });
    let task = world.submit_one(&[], 3);
    assert_eq!(queued_at(&world, task), Some(silent));
}

#[test]
fn agents_with_some_of_the_skills_are_asked_only_while_nobody_has_all() {
    let mut world = world_with(|config| config.capabilities.matching_strategy = Matching::Fallback);
    let (exact, half) = (world.join(1, &[1, 2]), world.join(2, &[1]));
    world.handle(Input::AgentDrained(exact));
    let held = world.submit_one(&[1, 2], 3);
    assert_eq!(queued_at(&world, held), None, "the one with both is there");
    let tasks = Leftovers::Requeue;
    world.handle(Input::AgentLeft {
        agent: exact,
        tasks,
    });
    assert_eq!(queued_at(&world, held), Some(half), "what waited for it");
    let next = world.submit_one(&[1, 2], 3);
    assert_eq!(queued_at(&world, next), Some(half), "and what comes later");
}

#[test]
fn of_agents_with_equal_scores_the_first_kind_gets_the_task() {
    let mut world = World::new(Config::default());
    let (one, two) = (world.join(1, &[1]), world.join(2, &[1, 2]));
    // Somebody who is better placed and cannot do it.
    world.join(3, &[]);
    for agent in [one, two] {
        let task = world.new_task(&[], 3);
        world.submit_onto(agent, task);
    }
    let task = world.submit_one(&[1], 3);
    assert_eq!(queued_at(&world, task), Some(one));
}

#[test]
fn of_agents_that_would_finish_at_the_same_time_the_first_kind_gets_the_task() {
    let mut world = earliest_finish();
    let (one, two) = (world.join(1, &[1]), world.join(2, &[1, 2]));
    for agent in [one, two] {
        let task = costing(&mut world, &[], Span::from_secs(10));
        world.submit_onto(agent, task);
    }
    let task = costing(&mut world, &[1], Span::from_secs(10));
    let task = submit(&mut world, task);
    assert_eq!(queued_at(&world, task), Some(one));
}

#[test]
fn the_earliest_finish_is_found_behind_many_kinds_of_agents_that_are_busy() {
    let mut world = earliest_finish();
    for id in 1..=8 {
        let agent = world.join(id, &[0, id as u32]);
        if id < 8 {
            let task = costing(&mut world, &[0], Span::from_secs(100));
            world.submit_onto(agent, task);
        }
    }
    let task = costing(&mut world, &[0], SECOND);
    let task = submit(&mut world, task);
    assert_eq!(queued_at(&world, task), Some(AgentId(8)));
}

#[test]
fn everything_that_an_agent_has_in_hand_counts_in_its_wait() {
    let mut world = earliest_finish();
    let busy = world.join_spec(AgentSpec {
        slots: 2,
        ..kept_full(1)
    });
    for _ in 0..2 {
        let task = costing(&mut world, &[], Span::from_secs(10));
        submit(&mut world, task);
        let held = world.given(busy).expect("it has two slots");
        world.start(held);
    }
    // Ten seconds until a slot is free and ten more; the other needs less than seventeen.
    let slower = world.join_spec(AgentSpec {
        speed: 0.6,
        ..kept_full(2)
    });
    let task = costing(&mut world, &[], Span::from_secs(10));
    let task = submit(&mut world, task);
    assert_eq!(queued_at(&world, task), Some(slower));
}

#[test]
fn in_a_large_fleet_too_a_task_goes_where_its_data_is() {
    let mut world = earliest_finish();
    let (key, transfer) = (DataKey(5), Span::from_secs(60));
    for id in 1..=260 {
        world.join_spec(AgentSpec {
            holds: if id == 200 { vec![key] } else { Vec::new() },
            ..AgentSpec::new(AgentId(id), SkillSet::none())
        });
    }
    let mut task = costing(&mut world, &[], SECOND);
    task.locality = Some(Locality { key, transfer });
    let task = submit(&mut world, task);
    assert_eq!(queued_at(&world, task), Some(AgentId(200)));
}

#[test]
fn to_be_near_the_data_is_worth_a_longer_queue() {
    let mut world = world_with(|config| config.capabilities.locality_bonus = 0.6);
    let key = DataKey(5);
    let zoned = |id, holds| AgentSpec {
        zone: Some(ZoneId(1)),
        holds,
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    };
    let holder = world.join_spec(zoned(1, vec![key]));
    let near = world.join_spec(zoned(2, Vec::new()));
    world.join(3, &[]);
    for (agent, count) in [(holder, 6), (near, 2)] {
        for _ in 0..count {
            let task = world.new_task(&[], 3);
            world.submit_onto(agent, task);
        }
    }
    let mut task = world.new_task(&[], 3);
    let transfer = SECOND;
    task.locality = Some(Locality { key, transfer });
    let task = submit(&mut world, task);
    assert_eq!(queued_at(&world, task), Some(near));
}

#[test]
fn what_was_put_on_a_queue_by_name_moves_nothing_off_it() {
    let mut world = World::new(Config::default());
    let (named, other) = (world.join(1, &[1]), world.join(2, &[]));
    for _ in 0..8 {
        let task = world.new_task(&[], 3);
        world.submit_onto(named, task);
    }
    let task = world.new_task(&[1], 3);
    world.submit_onto(named, task);
    assert_eq!((world.queue(named).len(), world.queue(other).len()), (9, 0));
}

#[test]
fn an_agent_with_no_more_slots_than_are_reserved_runs_long_tasks() {
    let mut world = world_with(|config| config.strategy = Strategy::Push);
    let (agent, other) = (world.join(1, &[]), world.join(2, &[]));
    for (on, secs) in [(other, 1), (agent, 100)] {
        let task = costing(&mut world, &[], Span::from_secs(secs));
        world.submit_onto(on, task);
    }
    assert!(world.ask(agent).is_some());
}

// What lies at an agent ahead of its time.

/// Whether a task of this cost is given to an agent whose only slot is taken by a short one.
fn is_given_ahead(cost: Span) -> bool {
    let mut world = World::new(Config::default());
    let agent = world.join_spec(kept_full(1));
    world.submit_short(3);
    let task = costing(&mut world, &[], cost);
    submit(&mut world, task);
    world.given(agent).is_some()
}

#[test]
fn what_takes_up_to_a_hundred_round_trips_is_given_ahead_of_its_time() {
    let longest = Span::from_micros(200 * 100);
    assert!(is_given_ahead(longest));
    assert!(!is_given_ahead(longest + Span(1)));
}

#[test]
fn a_throttled_agent_has_less_in_hand() {
    let in_hand = |throttle: f64| {
        let mut world = World::new(Config::default());
        let agent = world.join_spec(kept_full(1));
        for _ in 0..5 {
            world.submit_short(3);
            let held = world.given(agent).expect("it is idle");
            world.start(held);
            world.advance(Span::from_micros(100));
            world.finish(held);
        }
        let round_trip = Span::from_millis(1);
        let vitals = Vitals {
            throttle,
            round_trip,
        };
        world.handle(Input::AgentHeard { agent, vitals });
        for _ in 0..100 {
            world.submit_short(3);
        }
        world.agents[&agent].leases.len()
    };
    let (free, throttled) = (in_hand(0.0), in_hand(0.5));
    assert!(free > 10, "{free}");
    assert!(throttled <= free / 2 + 1, "{throttled} of {free}");
}

/// An agent holds a task that it was asked to give back for another one; returns that task, its lease and the other.
fn asked_back() -> (World, (TaskId, Lease), AgentId) {
    let mut world = World::new(Config::default());
    world.join_spec(kept_full(1));
    world.submit_short(3);
    world.submit_short(3);
    let thief = world.join(2, &[]);
    world.handle(Input::WorkRequested {
        agent: thief,
        want: 1,
    });
    let asked = retracted(&world).expect("the other is idle");
    (world, asked, thief)
}

#[test]
fn what_was_given_back_goes_to_whom_it_was_asked_for_only_while_that_wants_it() {
    for wants in [true, false] {
        let (mut world, (task, lease), thief) = asked_back();
        if !wants {
            world.handle(Input::WorkRequested {
                agent: thief,
                want: 0,
            });
        }
        world.handle(Input::TaskYielded {
            task,
            lease,
            yielded: true,
        });
        assert_eq!(world.given(thief).is_some(), wants);
    }
}

// Stealing.

#[test]
fn an_agent_without_a_free_slot_steals_only_onto_its_queue() {
    let mut world = World::new(Config::default());
    let (victim, thief) = (world.join(1, &[]), world.join(2, &[]));
    let own = world.new_task(&[], 3);
    world.submit_onto(thief, own);
    world.ask(thief).expect("its own");
    for _ in 0..8 {
        let task = world.new_task(&[], 3);
        world.submit_onto(victim, task);
    }
    for onto_queue in [false, true] {
        world.handle(Input::StealRequested {
            agent: thief,
            onto_queue,
        });
        let nothing = world
            .reports()
            .any(|report| *report == Report::NothingToSteal(thief));
        assert_eq!(nothing, !onto_queue);
    }
}

#[test]
fn who_asks_for_a_steal_gets_also_what_a_faster_agent_would_end_sooner() {
    let mut world = earliest_finish();
    let fast = world.join_spec(AgentSpec {
        speed: 4.0,
        ..kept_full(1)
    });
    let slow = world.join_spec(kept_full(2));
    for _ in 0..2 {
        let task = costing(&mut world, &[], SECOND);
        world.submit_onto(fast, task);
    }
    assert_eq!(world.queue(fast).len(), 1, "it is left to the faster one");
    world.handle(Input::StealRequested {
        agent: slow,
        onto_queue: false,
    });
    assert!(world.given(slow).is_some());
}

#[test]
fn of_a_queue_that_is_just_long_enough_the_most_urgent_is_taken() {
    let mut world = world_with(|config| {
        config.work_stealing.steal_below_busy = false;
        config.work_stealing.min_tasks_to_steal = 8;
    });
    let (victim, thief) = (world.join(1, &[]), world.join(2, &[]));
    let mut ids = Vec::new();
    for after in 0..8 {
        let mut task = world.new_task(&[], 3);
        task.deadline = Some(world.now + Span::from_secs(1_000 + after));
        ids.push(world.submit_onto(victim, task));
        let taken = world.ask(thief).map(|(task, _)| task);
        let expected = (ids.len() == 8).then_some(ids[0]);
        assert_eq!(taken, expected, "with {} waiting", ids.len());
    }
}

#[test]
fn a_pass_that_moved_something_counts_no_failure_and_one_that_could_not_counts_one() {
    for can in [true, false] {
        let mut world = World::new(Config::default());
        let busy = world.join(1, &[1]);
        world.join(2, if can { &[1] } else { &[] });
        for _ in 0..8 {
            let task = world.new_task(&[1], 3);
            world.submit_onto(busy, task);
        }
        world.handle(Input::RebalanceRequested);
        let metrics = world.scheduler.metrics();
        assert_eq!(metrics.successful_steals > 0, can);
        assert_eq!(metrics.failed_steals, u64::from(!can));
    }
}

// Slow tasks.

/// An agent of so many slots runs a task that became slow, with these behind it, and another stands by; migration is
/// allowed.
fn straggler(kind: &TaskKind, slots: u32, behind: usize) -> (World, AgentId, AgentId) {
    let mut world = world_with(|config| config.work_stealing.allow_task_migration = true);
    let (slow, other) = (
        world.join_spec(AgentSpec {
            slots,
            ..AgentSpec::new(AgentId(1), SkillSet::none())
        }),
        world.join(2, &[]),
    );
    for _ in 0..6 {
        let task = world.new_task_of(kind.clone(), 3);
        world.submit_onto(slow, task);
        let held = world.ask(slow).expect("its own");
        world.start(held);
        world.advance(SECOND);
        world.finish(held);
    }
    for _ in 0..=behind {
        let task = world.new_task_of(kind.clone(), 3);
        world.submit_onto(slow, task);
    }
    let held = world.ask(slow).expect("its own");
    world.start(held);
    (world, slow, other)
}

fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.advance(SECOND);
    }
}

#[test]
fn what_waits_behind_a_slow_task_moves_to_who_is_idle() {
    let (mut world, slow, other) = straggler(&TaskKind::default(), 1, 1);
    pass(&mut world, 1);
    assert_eq!(world.queue(slow).len(), 1, "it is not slow yet");
    pass(&mut world, 4);
    assert_eq!((world.queue(slow).len(), world.queue(other).len()), (0, 1));
}

#[test]
fn what_waits_behind_a_slow_task_stays_while_a_slot_is_free_of_them() {
    let (mut world, slow, _) = straggler(&TaskKind::default(), 2, 1);
    pass(&mut world, 5);
    assert_eq!(world.queue(slow).len(), 1);
}

#[test]
fn a_slow_task_moves_from_its_checkpoint_to_another_agent_unless_it_must_run_once() {
    for once in [false, true] {
        let kind = TaskKind {
            checkpoints: true,
            once,
            ..TaskKind::default()
        };
        let (mut world, slow, other) = straggler(&kind, 2, 0);
        for (agent, want) in [(slow, 1), (other, 1)] {
            world.handle(Input::WorkRequested { agent, want });
        }
        pass(&mut world, 5);
        assert_eq!(retracted(&world).is_some(), !once);
        if let Some((task, lease)) = retracted(&world) {
            world.handle(Input::TaskYielded {
                task,
                lease,
                yielded: true,
            });
            assert_eq!(world.given(other).map(|(task, _)| task), Some(task));
        }
    }
}

#[test]
fn a_task_of_unknown_length_is_looked_at_again_after_half_the_time_it_ran() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    let kind = TaskKind {
        speculate: true,
        ..TaskKind::default()
    };
    let task = world.new_task_of(kind, 3);
    submit(&mut world, task);
    let held = world.ask(agent).expect("the task");
    world.start(held);
    world.advance(SECOND);
    let next = world.scheduler.next_timer().expect("it is watched");
    let wait = next.since(world.now);
    let half = Span::from_millis(500);
    assert!(wait >= half && wait < half + Span::from_millis(1), "{wait}");
}

// Endings.

#[test]
fn a_fallback_stands_in_for_what_took_too_long_and_not_for_what_failed() {
    for is_late in [true, false] {
        let mut world = World::new(Config::default());
        let agent = world.join(1, &[]);
        let kind = TaskKind {
            time_limit: Some(Span::from_secs(5)),
            retry: RetryRule {
                retries: 0,
                ..RetryRule::default()
            },
            ..TaskKind::default()
        };
        let mut task = world.new_task_of(kind, 3);
        task.fallback = Fallback::Value;
        submit(&mut world, task);
        let held = world.ask(agent).expect("the task");
        world.start(held);
        if is_late {
            world.advance(Span::from_secs(6));
            assert_eq!(ending(&world), Some(Ending::FellBack { to: None }));
        } else {
            world.fail(held);
            assert_eq!(ending(&world), Some(Ending::Failed(Failure::Error)));
        }
    }
}

#[test]
fn a_task_that_nobody_can_do_is_given_up_when_its_time_has_passed() {
    let mut world = World::new(Config::default());
    world.join(1, &[]);
    let kind = TaskKind {
        skills: [SkillId(4)].into_iter().collect(),
        hold_limit: Some(Span::from_secs(5)),
        ..TaskKind::default()
    };
    let task = world.new_task_of(kind, 3);
    submit(&mut world, task);
    world.advance(Span::from_secs(4));
    assert_eq!(ending(&world), None);
    world.advance(Span::from_secs(2));
    let given_up = Ending::Failed(Failure::Unassignable);
    assert_eq!(ending(&world), Some(given_up));
}

#[test]
fn a_task_is_said_to_be_ending_once_its_agent_was_told_so() {
    let mut world = World::new(Config::default());
    let agent = world.join_spec(AgentSpec {
        confirms_ends: true,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    world.submit_one(&[], 3);
    let (task, lease) = world.ask(agent).expect("the task");
    world.start((task, lease));
    assert!(!world.scheduler.is_ending(task, lease));
    world.handle(Input::CancelRequested(Selection::Task(task)));
    assert!(world.scheduler.is_ending(task, lease));
}

// What is learned.

#[test]
fn a_task_that_failed_says_nothing_of_speeds() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    for succeeds in [false, true] {
        let task = costing(&mut world, &[], Span::from_secs(10));
        submit(&mut world, task);
        let held = world.ask(agent).expect("the task");
        world.start(held);
        world.advance(SECOND);
        match succeeds {
            true => world.finish(held),
            false => world.fail(held),
        }
        let status = world.scheduler.agent_status(agent).expect("it is here");
        assert_eq!(status.speed > 1.0, succeeds);
    }
}

// What people are told.

#[test]
fn explain_names_the_first_few_tasks_that_one_waits_for_and_how_many_there_are() {
    let mut world = World::new(Config::default());
    let mut tasks: Vec<TaskSpec> = (0..8).map(|_| world.new_task(&[], 3)).collect();
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    tasks[7].dependencies = ids[..7].into();
    tasks[1].dependencies = [ids[0]].into();
    world.submit(tasks);
    for (task, first, count) in [(7, &ids[..5], 7), (1, &ids[..1], 1)] {
        let told = world.scheduler.explain(ids[task]).expect("it waits");
        let waits_for = Obstacle::WaitsFor(first.to_vec(), count);
        assert_eq!(told.obstacles, [waits_for]);
        let finish = Remedy::FinishDependencies(first.to_vec());
        assert_eq!(told.remedies, [finish]);
    }
}

#[test]
fn an_agent_that_is_too_small_is_not_said_to_be_unavailable() {
    let cpu = |cpu_milli| Resources {
        cpu_milli,
        ..Resources::default()
    };
    for (needs, obstacle) in [
        (2_000, Obstacle::TooLarge),
        (1_000, Obstacle::AgentsUnavailable(1)),
    ] {
        let mut world = World::new(Config::default());
        let small = world.join_spec(AgentSpec {
            resources: cpu(1_000),
            ..AgentSpec::new(AgentId(1), SkillSet::none())
        });
        world.handle(Input::AgentDrained(small));
        let kind = TaskKind {
            needs: cpu(needs),
            ..TaskKind::default()
        };
        let task = world.new_task_of(kind, 3);
        let task = submit(&mut world, task);
        let told = world.scheduler.explain(task).expect("it is held");
        assert_eq!(told.obstacles, [obstacle]);
    }
}

#[test]
fn explain_says_how_much_of_its_share_a_user_has() {
    let mut world = World::new(Config::default());
    let agent = world.join_spec(AgentSpec {
        slots: 4,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    for user in [1, 2] {
        let tasks: Vec<TaskSpec> = (0..4).map(|_| world.new_task(&[], 3)).collect();
        let job = JobSpec {
            user: UserId(user),
            ..world.new_job()
        };
        let tasks = tasks.into();
        world.handle(Input::TasksSubmitted { job, tasks });
    }
    world.handle(Input::WorkRequested { agent, want: 4 });
    for user in world.scheduler.users().filter(|user| user.live > 0) {
        assert_eq!((user.running, user.share), (2, 2), "{user:?}");
    }
    let waiting = world.tasks.values().filter(|task| task.leases.is_empty());
    for task in waiting {
        let told = world.scheduler.explain(task.spec.id).expect("it waits");
        let used_up = Obstacle::ShareUsedUp {
            running: 2,
            share: 2,
        };
        assert!(told.obstacles.contains(&used_up), "{told:?}");
    }
}

// What may be sent away.

#[test]
fn what_wants_to_be_near_data_is_sent_away_only_if_nobody_here_can_do_it() {
    let mut world = World::new(Config::default());
    world.join(1, &[]);
    for (skills, count) in [(&[][..], 0), (&[9][..], 1)] {
        let mut task = world.new_task(skills, 3);
        let (key, transfer) = (DataKey(1), SECOND);
        task.locality = Some(Locality { key, transfer });
        submit(&mut world, task);
        assert_eq!(world.scheduler.waiting_classes(|_| true).len(), count);
    }
}

#[test]
fn only_what_waits_and_is_its_own_is_offered_to_others() {
    let mut world = World::new(Config::default());
    let agent = world.join(1, &[]);
    let ids: Vec<TaskId> = (0..4).map(|_| world.submit_one(&[], 3)).collect();
    let (begun, _) = world.ask(agent).expect("the first");
    assert_eq!(begun, ids[0]);
    let is_own = |task: TaskId| task != ids[3];
    let classes = world.scheduler.waiting_classes(is_own);
    assert_eq!((classes.len(), classes[0].count), (1, 2));
    let like = world.scheduler.waiting_like(ids[1], is_own);
    let like: Vec<TaskId> = like.into_iter().map(|(task, _)| task).collect();
    assert_eq!(like, [ids[2], ids[1]], "those that would start last first");
}

// Time.

#[test]
fn an_agent_that_is_heard_again_is_watched_from_then_on() {
    let mut world = World::new(Config::default());
    let agent = world.join_spec(AgentSpec {
        heartbeats: true,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    world.advance(Span::from_secs(20));
    assert!(world.agents[&agent].suspected);
    let vitals = Vitals::default();
    world.handle(Input::AgentHeard { agent, vitals });
    assert!(!world.agents[&agent].suspected);
    let next = world.scheduler.next_timer().expect("it is watched");
    assert!(next > world.now, "nothing is due before anything happened");
}

#[test]
fn a_new_interval_of_samples_holds_at_once_and_other_changes_leave_it_alone() {
    let mut world = world_with(|config| {
        config.metrics.utilization_sample_interval = Span::from_secs(10);
    });
    let taken = |world: &World| world.scheduler.metrics().total_samples;
    for _ in 0..3 {
        world.advance(Span::from_secs(4));
        let mut config = world.config.clone();
        config.guards.max_moves += 1;
        world.handle(Input::ConfigChanged(Box::new(config)));
    }
    assert_eq!(taken(&world), 1);
    let mut config = world.config.clone();
    config.metrics.utilization_sample_interval = SECOND;
    world.handle(Input::ConfigChanged(Box::new(config)));
    pass(&mut world, 3);
    assert_eq!(taken(&world), 4);
}

#[test]
fn alarms_that_still_have_a_purpose_outlive_many_that_have_none() {
    let mut world = World::new(Config::default());
    let silent = world.join_spec(AgentSpec {
        heartbeats: true,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    let agent = world.join(2, &[]);
    let kind = TaskKind {
        time_limit: Some(Span::from_secs(30)),
        ..TaskKind::default()
    };
    let limited = world.new_task_of(kind, 3);
    world.submit_onto(agent, limited);
    let held = world.ask(agent).expect("its own");
    world.start(held);
    let many = (0..1_500).map(|_| TaskSpec {
        deadline: Some(Time::ZERO + Span::from_secs(10_000)),
        ..world.new_task(&[9], 3)
    });
    let many = many.collect();
    world.submit(many);
    let job = JobId(world.next_job);
    world.handle(Input::CancelRequested(Selection::Job(job)));
    world.advance(SECOND);
    assert!(!world.agents[&silent].suspected);
    world.advance(Span::from_secs(15));
    assert!(world.agents[&silent].suspected);
    world.advance(Span::from_secs(15));
    assert!(world.agents[&agent].leases.is_empty(), "its limit passed");
}
