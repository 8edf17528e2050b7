//! Every switch of the configuration, set in two ways that must make a difference.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

/// A world whose configuration differs from the default in one thing.
fn world_with(change: impl FnOnce(&mut Config)) -> World {
    let mut config = Config::default();
    change(&mut config);
    World::new(config)
}

/// Puts so many plain tasks on an agent's queue.
fn fill(world: &mut World, agent: AgentId, count: usize) {
    for _ in 0..count {
        let task = world.new_task(&[], 3);
        world.submit_onto(agent, task);
    }
}

/// How many tasks a rebalancing pass moves from an agent with `here` tasks to one with `there`.
fn moved(world: &mut World, here: usize, there: usize) -> u32 {
    let (busy, other) = (world.join(1, &[]), world.join(2, &[]));
    fill(world, busy, here);
    fill(world, other, there);
    world.handle(Input::RebalanceRequested);
    let moved = world.reports().find_map(|report| match report {
        Report::Rebalanced { moved } => Some(*moved),
        _ => None,
    });
    moved.expect("the pass is reported")
}

#[test]
fn busy_threshold() {
    for (busy, count) in [(5, 0), (2, 2)] {
        let mut world = world_with(|config| config.thresholds.busy_threshold = busy);
        assert_eq!(moved(&mut world, 4, 0), count);
    }
}

#[test]
fn idle_threshold() {
    for (idle, count) in [(2, 2), (1, 1)] {
        let mut world = world_with(|config| config.thresholds.idle_threshold = idle);
        assert_eq!(moved(&mut world, 8, 0), count);
    }
}

#[test]
fn severe_imbalance_ratio() {
    for (ratio, count) in [(3.0, 1), (10.0, 0)] {
        let mut world = world_with(|config| config.thresholds.severe_imbalance_ratio = ratio);
        assert_eq!(moved(&mut world, 8, 1), count);
    }
}

#[test]
fn max_steal_per_cycle() {
    for most in [1, 3] {
        let mut world = world_with(|config| {
            config.thresholds.idle_threshold = 10;
            config.work_stealing.max_steal_per_cycle = most;
        });
        assert_eq!(moved(&mut world, 12, 0), most);
    }
}

#[test]
fn rebalance_interval() {
    for (secs, moves) in [(10, true), (60, false)] {
        let mut world =
            world_with(|config| config.thresholds.rebalance_interval = Span::from_secs(secs));
        let (busy, other) = (world.join(1, &[]), world.join(2, &[]));
        fill(&mut world, busy, 8);
        world.advance(Span::from_secs(11));
        assert_eq!(!world.queue(other).is_empty(), moves);
    }
}

/// Whether an idle agent gets something from another one with `waiting` tasks of this priority.
fn steals(world: &mut World, waiting: usize, priority: u8) -> bool {
    let (victim, thief) = (world.join(1, &[]), world.join(2, &[]));
    for _ in 0..waiting {
        let task = world.new_task(&[], priority);
        world.submit_onto(victim, task);
    }
    world.ask(thief).is_some()
}

#[test]
fn min_tasks_to_steal() {
    for (fewest, stolen) in [(1, true), (2, false)] {
        let mut world = world_with(|config| config.work_stealing.min_tasks_to_steal = fewest);
        assert_eq!(steals(&mut world, 1, 3), stolen);
    }
}

#[test]
fn steal_below_busy() {
    for below in [true, false] {
        let mut world = world_with(|config| config.work_stealing.steal_below_busy = below);
        assert_eq!(steals(&mut world, 3, 3), below);
    }
}

#[test]
fn high_priority_threshold() {
    for (threshold, stolen) in [(Priority::HIGH, true), (Priority::NORMAL, false)] {
        let mut world = world_with(|config| {
            config.priority.high_priority_threshold = threshold;
            config.priority.rescue_high_priority = false;
        });
        assert_eq!(steals(&mut world, 1, 3), stolen);
    }
}

#[test]
fn rescue_high_priority() {
    for rescue in [true, false] {
        let mut world = world_with(|config| config.priority.rescue_high_priority = rescue);
        assert_eq!(steals(&mut world, 1, 5), rescue);
    }
}

#[test]
fn max_moves() {
    for (most, count) in [(2, 2), (0, 0)] {
        let mut world = world_with(|config| config.guards.max_moves = most);
        assert_eq!(moved(&mut world, 8, 0), count);
    }
}

#[test]
fn an_agent_that_would_stand_idle_takes_what_has_moved_often_enough() {
    let mut world = world_with(|config| config.guards.max_moves = 0);
    assert!(steals(&mut world, 1, 3));
}

#[test]
fn priority_stealing_order() {
    for (lowest_first, stolen) in [(true, 1), (false, 2)] {
        let mut world = world_with(|config| config.priority.priority_stealing_order = lowest_first);
        let (victim, thief) = (world.join(1, &[]), world.join(2, &[]));
        for priority in [1, 3] {
            let task = world.new_task(&[], priority);
            world.submit_onto(victim, task);
        }
        assert_eq!(world.ask(thief).map(|(task, _)| task), Some(TaskId(stolen)));
    }
}

#[test]
fn steal_batch_size() {
    for (size, kept) in [(1, 0), (3, 2)] {
        let mut world = world_with(|config| config.performance.steal_batch_size = size);
        let (victim, thief) = (world.join(1, &[]), world.join(2, &[]));
        fill(&mut world, victim, 6);
        world.ask(thief).expect("something to steal");
        assert_eq!(world.queue(thief).len(), kept);
    }
}

#[test]
fn robbed_cooldown() {
    for (millis, left) in [(100, [4, 2]), (0, [3, 3])] {
        let mut world =
            world_with(|config| config.guards.robbed_cooldown = Span::from_millis(millis));
        let (long, short) = (world.join(1, &[]), world.join(2, &[]));
        let thief = world.join(3, &[]);
        fill(&mut world, long, 5);
        fill(&mut world, short, 3);
        for _ in 0..2 {
            let task = world.ask(thief).expect("something to steal");
            world.finish(task);
        }
        assert_eq!([long, short].map(|agent| world.queue(agent).len()), left);
    }
}

/// Who gets a task that two agents can do, of whom the first has always failed.
fn chosen_over_a_failing_agent(world: &mut World, queued_at_the_other: usize) -> u64 {
    let (failing, good) = (world.join(1, &[]), world.join(2, &[]));
    fill(world, good, queued_at_the_other);
    world.handle(Input::AgentRecalled {
        agent: failing,
        completed: 0,
        failed: 10,
    });
    let task = world.submit_one(&[], 3).0;
    if world.queue(failing).contains(&task) {
        1
    } else {
        2
    }
}

#[test]
fn consider_history() {
    for (consider, chosen) in [(true, 2), (false, 1)] {
        let mut world = world_with(|config| config.capabilities.consider_history = consider);
        assert_eq!(chosen_over_a_failing_agent(&mut world, 0), chosen);
    }
}

#[test]
fn history_weight() {
    for (weight, chosen) in [(0.3, 2), (0.1, 1)] {
        let mut world = world_with(|config| config.capabilities.history_weight = weight);
        assert_eq!(chosen_over_a_failing_agent(&mut world, 2), chosen);
    }
}

#[test]
fn matching_strategy() {
    for (matching, held) in [(Matching::BestFit, 0), (Matching::Exact, 1)] {
        let mut world = world_with(|config| config.capabilities.matching_strategy = matching);
        world.join(1, &[1]);
        world.submit_one(&[1, 2], 3);
        assert_eq!(world.scheduler.counts().held, held);
    }
}

#[test]
fn fallback_enabled() {
    for (enabled, held) in [(true, 0), (false, 1)] {
        let mut world = world_with(|config| {
            config.capabilities.matching_strategy = Matching::Fallback;
            config.capabilities.fallback_enabled = enabled;
        });
        world.join(1, &[1]);
        world.submit_one(&[1, 2], 3);
        assert_eq!(world.scheduler.counts().held, held);
    }
}

#[test]
fn locality_bonus() {
    for (bonus, near) in [(0.2, true), (0.0, false)] {
        let mut world = world_with(|config| config.capabilities.locality_bonus = bonus);
        let (_, holder) = (world.join(1, &[]), world.join(2, &[]));
        let locality = Some(Locality {
            key: DataKey(7),
            transfer: Span::from_secs(1),
        });
        let first = TaskSpec {
            locality,
            ..world.new_task(&[], 3)
        };
        world.submit_onto(holder, first);
        let task = world.ask(holder).expect("its own task");
        world.finish(task);
        let second = TaskSpec {
            locality,
            ..world.new_task(&[], 3)
        };
        world.submit(vec![second]);
        assert_eq!(world.queue(holder).len(), usize::from(near));
    }
}

#[test]
fn track_migrations() {
    for track in [true, false] {
        let mut world = world_with(|config| config.metrics.track_migrations = track);
        assert!(steals(&mut world, 1, 3));
        let migrated = world.scheduler.metrics().tasks_migrated;
        assert_eq!(migrated, u64::from(track));
    }
}

#[test]
fn track_utilization_and_its_interval() {
    for (track, secs, taken) in [(true, 5, true), (false, 5, false), (true, 50, false)] {
        let mut world = world_with(|config| {
            config.metrics.track_utilization = track;
            config.metrics.utilization_sample_interval = Span::from_secs(secs);
        });
        world.join(1, &[]);
        world.advance(Span::from_secs(6));
        assert_eq!(world.scheduler.metrics().total_samples > 0, taken);
    }
}

/// A task starts a second after it came.
fn wait_a_second(world: &mut World) -> Metrics {
    let agent = world.join(1, &[]);
    world.submit_one(&[], 3);
    world.advance(Span::from_secs(1));
    let task = world.ask(agent).expect("its own task");
    world.start(task);
    world.scheduler.metrics()
}

#[test]
fn track_wait_times() {
    for track in [true, false] {
        let mut world = world_with(|config| config.metrics.track_wait_times = track);
        assert_eq!(wait_a_second(&mut world).avg_task_wait_time > 0.9, track);
    }
}

#[test]
fn histogram_buckets() {
    for (bound, within) in [(0.5, 0), (2.0, 1)] {
        let mut world = world_with(|config| config.metrics.histogram_buckets = vec![bound]);
        let histogram = wait_a_second(&mut world).wait_histogram;
        assert_eq!(histogram, [(bound, within), (f64::INFINITY, 1)]);
    }
}

fn kept_full(id: u64, slots: u32) -> AgentSpec {
    AgentSpec {
        dispatch: Dispatch::KeepFull,
        slots,
        ..AgentSpec::new(AgentId(id), SkillSet::none())
    }
}

/// The retractions that were asked for so far.
fn retractions(world: &World) -> Vec<(TaskId, Lease)> {
    let retractions = world.log.iter().filter_map(|action| match action {
        Action::Retract { task, lease, .. } => Some((*task, *lease)),
        _ => None,
    });
    retractions.collect()
}

/// An agent with three slots holds four tasks; then others come, with nothing to do.
fn others_join_a_full_agent(world: &mut World, others: u64) {
    world.join_spec(kept_full(1, 3));
    for _ in 0..4 {
        world.submit_short(3);
    }
    for other in 0..others {
        world.join_spec(kept_full(2 + other, 1));
    }
}

#[test]
fn max_concurrent_steals() {
    for (most, asked) in [(1, 1), (5, 2)] {
        let mut world = world_with(|config| config.performance.max_concurrent_steals = most);
        others_join_a_full_agent(&mut world, 2);
        assert_eq!(retractions(&world).len(), asked);
    }
}

#[test]
fn steal_backoff() {
    for (millis, asked) in [(1, 2), (3_600_000, 1)] {
        let mut world =
            world_with(|config| config.guards.steal_backoff = Span::from_millis(millis));
        others_join_a_full_agent(&mut world, 1);
        let (task, lease) = retractions(&world)[0];
        world.handle(Input::TaskYielded {
            task,
            lease,
            yielded: false,
        });
        world.advance(Span::from_secs(1));
        assert_eq!(retractions(&world).len(), asked);
    }
}

#[test]
fn prefetch_max_depth() {
    for (depth, waiting) in [(64, 1), (0, 2)] {
        let mut world = world_with(|config| config.prefetch.max_depth = depth);
        let agent = world.join_spec(kept_full(1, 1));
        for _ in 0..3 {
            world.submit_short(3);
        }
        assert_eq!(world.queue(agent).len(), waiting);
    }
}

/// Whether an agent with heartbeats that falls silent was reported so by then.
fn is_reported(world: &mut World, spans: &[u64], wanted: &Report) -> bool {
    world.join_spec(AgentSpec {
        heartbeats: true,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    for secs in spans {
        world.advance(Span::from_secs(*secs));
    }
    let wanted = Action::Report(wanted.clone());
    world.log.contains(&wanted)
}

#[test]
fn suspect_after() {
    for (secs, suspected) in [(5, true), (15, false)] {
        let mut world =
            world_with(|config| config.heartbeats.suspect_after = Span::from_secs(secs));
        let report = Report::AgentSuspected(AgentId(1));
        assert_eq!(is_reported(&mut world, &[10], &report), suspected);
    }
}

#[test]
fn lost_after() {
    for (secs, lost) in [(20, true), (100, false)] {
        let mut world = world_with(|config| config.heartbeats.lost_after = Span::from_secs(secs));
        let report = Report::AgentLost(AgentId(1));
        assert_eq!(is_reported(&mut world, &[16, 10], &report), lost);
    }
}

#[test]
fn half_life() {
    for (secs, forgotten) in [(1, true), (600, false)] {
        let mut world = world_with(|config| config.learning.half_life = Span::from_secs(secs));
        let agent = world.join(1, &[]);
        world.handle(Input::AgentRecalled {
            agent,
            completed: 0,
            failed: 10,
        });
        world.advance(Span::from_secs(100));
        world.submit_one(&[], 3);
        let task = world.ask(agent).expect("its own task");
        world.finish(task);
        let status = world.scheduler.agent_status(agent).expect("it is there");
        assert_eq!(status.success_rate > 0.9, forgotten);
    }
}

/// An agent fails two tasks that ask for a skill.
fn fail_twice(world: &mut World) -> AgentId {
    let agent = world.join(1, &[1]);
    for _ in 0..2 {
        world.submit_one(&[1], 3);
        let task = world.ask(agent).expect("its own task");
        world.fail(task);
    }
    agent
}

#[test]
fn breaker_failures() {
    for (failures, held) in [(2, 1), (5, 0)] {
        let mut world = world_with(|config| config.learning.breaker_failures = failures);
        fail_twice(&mut world);
        world.submit_one(&[1], 3);
        assert_eq!(world.scheduler.counts().held, held);
    }
}

#[test]
fn breaker_probe() {
    for (secs, tried) in [(5, true), (30, false)] {
        let mut world = world_with(|config| {
            config.learning.breaker_failures = 2;
            config.learning.breaker_probe = Span::from_secs(secs);
        });
        let agent = fail_twice(&mut world);
        world.advance(Span::from_secs(10));
        world.submit_one(&[1], 3);
        assert_eq!(world.queue(agent).len(), usize::from(tried));
    }
}

/// Tasks of one kind: `slow` agents are stuck with one each while another runs seven, each in a
/// twentieth of a second, and then asks for more for two seconds.
fn straggle(world: &mut World, kind: &TaskKind, slow: u64) {
    let quick = world.join(100, &[]);
    for agent in 0..slow {
        let agent = world.join(1 + agent, &[]);
        let task = world.new_task_of(kind.clone(), 3);
        world.submit_onto(agent, task);
        let task = world.ask(agent).expect("its own task");
        world.start(task);
    }
    for _ in 0..7 {
        let task = world.new_task_of(kind.clone(), 3);
        world.submit_onto(quick, task);
        let task = world.ask(quick).expect("its own task");
        world.start(task);
        world.advance(Span::from_millis(50));
        world.finish(task);
    }
    world.handle(Input::WorkRequested {
        agent: quick,
        want: 2,
    });
    for _ in 0..100 {
        world.advance(Span::from_millis(20));
    }
}

/// How many second copies were started when `slow` agents were stuck.
fn copies(world: &mut World, slow: u64) -> u64 {
    let kind = TaskKind {
        speculate: true,
        ..TaskKind::default()
    };
    straggle(world, &kind, slow);
    world.scheduler.metrics().speculations
}

#[test]
fn speculation_enabled() {
    for enabled in [true, false] {
        let mut world = world_with(|config| config.speculation.enabled = enabled);
        assert_eq!(copies(&mut world, 1), u64::from(enabled));
    }
}

#[test]
fn straggler_ratio() {
    for (ratio, count) in [(2.0, 1), (1_000.0, 0)] {
        let mut world = world_with(|config| config.speculation.straggler_ratio = ratio);
        assert_eq!(copies(&mut world, 1), count);
    }
}

#[test]
fn min_samples() {
    for (samples, count) in [(5, 1), (100, 0)] {
        let mut world = world_with(|config| config.speculation.min_samples = samples);
        assert_eq!(copies(&mut world, 1), count);
    }
}

#[test]
fn speculation_budget() {
    for (budget, count) in [(0.1, 1), (1.0, 2)] {
        let mut world = world_with(|config| config.speculation.budget = budget);
        assert_eq!(copies(&mut world, 2), count);
    }
}

#[test]
fn allow_task_migration() {
    for allow in [true, false] {
        let mut world = world_with(|config| config.work_stealing.allow_task_migration = allow);
        let kind = TaskKind {
            checkpoints: true,
            ..TaskKind::default()
        };
        straggle(&mut world, &kind, 1);
        assert_eq!(!retractions(&world).is_empty(), allow);
    }
}

#[test]
fn user_shares() {
    for (shares, second) in [(true, 3), (false, 2)] {
        let mut world = world_with(|config| config.quotas.user_shares = shares);
        let agent = world.join_spec(AgentSpec {
            slots: 2,
            ..AgentSpec::new(AgentId(1), SkillSet::none())
        });
        for user in [1, 1, 2] {
            let tasks = [world.new_task(&[], 3)].into();
            let job = JobSpec {
                user: UserId(user),
                ..world.new_job()
            };
            world.handle(Input::TasksSubmitted { job, tasks });
        }
        let given = [world.ask(agent), world.ask(agent)].map(|given| given.map(|(task, _)| task));
        assert_eq!(given, [Some(TaskId(1)), Some(TaskId(second))]);
    }
}

#[test]
fn backfill_limit() {
    for (limit, goes_past) in [(8, true), (1, false)] {
        let mut world = world_with(|config| config.quotas.backfill_limit = limit);
        let memory = |memory_bytes| Resources {
            memory_bytes,
            ..Resources::default()
        };
        let agent = world.join_spec(AgentSpec {
            slots: 4,
            resources: memory(10),
            ..AgentSpec::new(AgentId(1), SkillSet::none())
        });
        // Six of ten are taken, the next task asks for eight, those behind it for one.
        for needs in [6, 8, 1, 1] {
            let kind = TaskKind {
                needs: memory(needs),
                ..TaskKind::default()
            };
            let task = world.new_task_of(kind, 3);
            world.submit_onto(agent, task);
        }
        world.ask(agent).expect("the first has room");
        world.ask(agent).expect("a small one goes past");
        assert_eq!(world.ask(agent).is_some(), goes_past);
    }
}

/// Whether an agent with two slots may fill both with long tasks while a short one waits elsewhere.
fn runs_two_long_ones(world: &mut World) -> bool {
    let agent = world.join_spec(AgentSpec {
        slots: 2,
        ..AgentSpec::new(AgentId(1), SkillSet::none())
    });
    let other = world.join(2, &[]);
    for (on, secs) in [(other, 1), (agent, 100), (agent, 100)] {
        let task = TaskSpec {
            cost: Some(Span::from_secs(secs)),
            ..world.new_task(&[], 3)
        };
        world.submit_onto(on, task);
    }
    world.ask(agent).expect("one may run");
    world.ask(agent).is_some()
}

#[test]
fn reserved_slots() {
    for (reserved, both) in [(1, false), (0, true)] {
        let mut world = world_with(|config| {
            config.strategy = Strategy::Push;
            config.quotas.reserved_slots = reserved;
        });
        assert_eq!(runs_two_long_ones(&mut world), both);
    }
}

#[test]
fn large_task_ratio() {
    for (ratio, both) in [(10, false), (1_000, true)] {
        let mut world = world_with(|config| {
            config.strategy = Strategy::Push;
            config.quotas.large_task_ratio = ratio;
        });
        assert_eq!(runs_two_long_ones(&mut world), both);
    }
}

#[test]
fn seed() {
    let retry_at = |seed| {
        let mut world = world_with(|config| config.seed = seed);
        let agent = world.join(1, &[]);
        let kind = TaskKind {
            retry: RetryRule {
                retries: 1,
                ..RetryRule::default()
            },
            ..TaskKind::default()
        };
        let task = world.new_task_of(kind, 3);
        world.submit(vec![task]);
        let task = world.ask(agent).expect("its own task");
        world.fail(task);
        world.reports().find_map(|report| match report {
            Report::WillRetry { at, .. } => Some(*at),
            _ => None,
        })
    };
    assert!(retry_at(1).is_some());
    assert_eq!(retry_at(1), retry_at(1));
    assert_ne!(retry_at(1), retry_at(2));
}
