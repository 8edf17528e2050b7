//! Any sequence of inputs: whatever happens, the books of the world balance.

mod world;

use loxley_model::*;
use loxley_policy::{
    Config, Input, Leftovers, Matching, Scheduler, Selection, Snapshot, Strategy as Balancing,
    Vitals,
};
use proptest::prelude::*;
use world::World;

/// Something that happens. Small numbers stand for whatever is there.
#[derive(Clone, Debug)]
enum Op {
    Join {
        agent: u8,
        skills: u8,
        slots: u8,
        keep_full: bool,
        heartbeats: bool,
    },
    Leave {
        agent: u8,
        give_back: bool,
    },
    Drain {
        agent: u8,
    },
    Heard {
        agent: u8,
        throttle: u8,
    },
    Submit {
        tasks: Vec<NewTask>,
        user: u8,
        skip: bool,
    },
    Ask {
        agent: u8,
        want: u8,
    },
    Steal {
        agent: u8,
    },
    Start {
        pick: u8,
    },
    Finish {
        pick: u8,
        ok: bool,
    },
    OldNews {
        task: u8,
        lease: u8,
    },
    Answer {
        yielded: bool,
    },
    Cancel {
        task: u8,
    },
    CancelJob {
        job: u8,
    },
    Rebalance,
    Wait {
        millis: u16,
    },
    Limit {
        group: u8,
        limit: u8,
    },
    Revoke {
        agent: u8,
        skill: u8,
    },
    Weight {
        user: u8,
        weight: u8,
    },
    Resubmit,
    Reload {
        which: u8,
    },
}

#[derive(Clone, Debug)]
struct NewTask {
    skills: u8,
    priority: u8,
    depends: Vec<u8>,
    group: u8,
    retries: u8,
    speculate: bool,
    deadline: bool,
    limit: bool,
}

fn new_task() -> impl Strategy<Value = NewTask> {
    (
        any::<u8>(),
        1..=5_u8,
        prop::collection::vec(any::<u8>(), 0..3),
        0..6_u8,
        0..3_u8,
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
    )
        .prop_map(
            |(skills, priority, depends, group, retries, speculate, deadline, limit)| NewTask {
                skills,
                priority,
                depends,
                group,
                retries,
                speculate,
                deadline,
                limit,
            },
        )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..6_u8, any::<u8>(), 1..4_u8, any::<bool>(), prop::bool::weighted(0.3)).prop_map(
            |(agent, skills, slots, keep_full, heartbeats)| Op::Join { agent, skills, slots, keep_full, heartbeats }
        ),
        1 => (0..6_u8, any::<bool>()).prop_map(|(agent, give_back)| Op::Leave { agent, give_back }),
        1 => (0..6_u8).prop_map(|agent| Op::Drain { agent }),
        2 => (0..6_u8, any::<u8>()).prop_map(|(agent, throttle)| Op::Heard { agent, throttle }),
        8 => (prop::collection::vec(new_task(), 1..6), 0..3_u8, any::<bool>())
            .prop_map(|(tasks, user, skip)| Op::Submit { tasks, user, skip }),
        8 => (0..6_u8, 0..4_u8).prop_map(|(agent, want)| Op::Ask { agent, want }),
        2 => (0..6_u8).prop_map(|agent| Op::Steal { agent }),
        6 => any::<u8>().prop_map(|pick| Op::Start { pick }),
        10 => (any::<u8>(), prop::bool::weighted(0.7)).prop_map(|(pick, ok)| Op::Finish { pick, ok }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(task, lease)| Op::OldNews { task, lease }),
        3 => any::<bool>().prop_map(|yielded| Op::Answer { yielded }),
        1 => any::<u8>().prop_map(|task| Op::Cancel { task }),
        1 => any::<u8>().prop_map(|job| Op::CancelJob { job }),
        1 => Just(Op::Rebalance),
        4 => (0..40_000_u16).prop_map(|millis| Op::Wait { millis }),
        1 => (1..6_u8, 1..4_u8).prop_map(|(group, limit)| Op::Limit { group, limit }),
        1 => (0..3_u8, 1..5_u8).prop_map(|(user, weight)| Op::Weight { user, weight }),
        1 => (0..6_u8, 0..4_u8).prop_map(|(agent, skill)| Op::Revoke { agent, skill }),
        1 => Just(Op::Resubmit),
        1 => any::<u8>().prop_map(|which| Op::Reload { which }),
    ]
}

fn skills(bits: u8) -> SkillSet {
    (0..4)
        .filter(|bit| bits >> bit & 1 == 1)
        .map(SkillId)
        .collect()
}

fn config(which: u8) -> Config {
    let mut config = Config {
        seed: 7,
        ..Config::default()
    };
    config.strategy = [Balancing::Hybrid, Balancing::Pull, Balancing::Push][which as usize % 3];
    config.capabilities.matching_strategy = [
        Matching::BestFit,
        Matching::Exact,
        Matching::Fallback,
        Matching::EarliestFinish,
    ][which as usize / 3 % 4];
    config.work_stealing.prefer_recent_tasks = which & 16 == 0;
    config.priority.preserve_high_priority = which & 32 == 0;
    config.priority.rescue_high_priority = which & 8 == 0;
    config.work_stealing.min_tasks_to_steal = 1 + u32::from(which % 7 == 3);
    config.work_stealing.steal_below_busy = which % 11 != 5;
    config.priority.priority_stealing_order = which & 64 == 0;
    config.performance.cache_capability_matches = which & 128 == 0;
    config.performance.steal_batch_size = 1 + u32::from(which % 5);
    config.speculation.min_samples = 1;
    config.speculation.budget = 0.5;
    config.learning.breaker_failures = 2;
    config.added.earning.successes = 2;
    config.forecast.enabled = which % 3 == 1;
    config.forecast.step = Span::from_millis(200);
    config.forecast.horizon = Span::from_millis(400);
    config.forecast.season_max = Span::from_secs(4);
    config.forecast.error_max = 1.0;
    config.forecast.share_max = 1.0;
    config
}

fn apply(world: &mut World, op: Op) {
    let agent_id = |agent: u8| AgentId(agent.into());
    match op {
        Op::Join {
            agent,
            skills: bits,
            slots,
            keep_full,
            heartbeats,
        } => {
            world.join_spec(AgentSpec {
                slots: slots.into(),
                dispatch: if keep_full {
                    Dispatch::KeepFull
                } else {
                    Dispatch::OnRequest
                },
                heartbeats,
                confirms_ends: slots > 1,
                ..AgentSpec::new(agent_id(agent), skills(bits))
            });
        }
        Op::Leave { agent, give_back } => {
            let tasks = if give_back {
                Leftovers::Return
            } else {
                Leftovers::Requeue
            };
            world.handle(Input::AgentLeft {
                agent: agent_id(agent),
                tasks,
            });
        }
        Op::Drain { agent } => {
            world.handle(Input::AgentDrained(agent_id(agent)));
        }
        Op::Heard { agent, throttle } => {
            let vitals = Vitals {
                throttle: f64::from(throttle % 100) / 100.0,
                round_trip: Span::from_micros(300),
            };
            world.handle(Input::AgentHeard {
                agent: agent_id(agent),
                vitals,
            });
        }
        Op::Submit { tasks, user, skip } => submit(world, tasks, user, skip),
        Op::Ask { agent, want } => {
            world.handle(Input::WorkRequested {
                agent: agent_id(agent),
                want: want.into(),
            });
        }
        Op::Steal { agent } => {
            world.handle(Input::StealRequested {
                agent: agent_id(agent),
                // Both ways, without a new kind of operation: kept cases stay what they are.
                onto_queue: agent % 2 == 1,
            });
        }
        Op::Start { pick } => {
            if let Some(held) = pick_lease(world, pick) {
                world.start(held);
            }
        }
        Op::Finish { pick, ok } => match pick_lease(world, pick) {
            Some(held) if ok => world.finish(held),
            Some(held) => world.fail(held),
            None => {}
        },
        Op::OldNews { task, lease } => {
            let (task, lease) = (TaskId(task.into()), Lease(lease.into()));
            if !world
                .agents
                .values()
                .any(|hand| hand.leases.contains_key(&lease))
            {
                world.handle(Input::TaskFinished {
                    task,
                    lease,
                    outcome: Outcome::Succeeded,
                });
            }
        }
        Op::Answer { yielded } => {
            if let Some((task, lease)) = world.asked_back.pop() {
                let started = world
                    .agents
                    .values()
                    .any(|h| h.leases.get(&lease).is_some_and(|(_, s)| *s));
                world.handle(Input::TaskYielded {
                    task,
                    lease,
                    yielded: yielded && !started,
                });
            }
        }
        Op::Cancel { task } => {
            world.handle(Input::CancelRequested(Selection::Task(TaskId(task.into()))));
        }
        Op::CancelJob { job } => {
            world.handle(Input::CancelRequested(Selection::Job(JobId(job.into()))));
        }
        Op::Rebalance => {
            world.handle(Input::RebalanceRequested);
        }
        Op::Wait { millis } => world.advance(Span::from_millis(millis.into())),
        Op::Limit { group, limit } => {
            // A limit below what runs now is legal; the books only know the new one.
            let (group, limit) = (GroupId(group.into()), u32::from(limit));
            if world.group_running(group) <= limit {
                world.handle(Input::GroupLimitSet { group, limit });
            }
        }
        Op::Revoke { agent, skill } => {
            world.handle(Input::SkillRevoked {
                agent: AgentId(agent.into()),
                skill: SkillId(skill.into()),
            });
        }
        Op::Weight { user, weight } => {
            world.handle(Input::UserWeightSet {
                user: UserId(user.into()),
                weight: weight.into(),
            });
        }
        Op::Resubmit => {
            world.handle(Input::DeadLettersResubmitted(Vec::new()));
        }
        Op::Reload { which } => {
            world.handle(Input::ConfigChanged(Box::new(config(which))));
        }
    }
}

fn pick_lease(world: &World, pick: u8) -> Option<(TaskId, Lease)> {
    let held: Vec<_> = world
        .agents
        .values()
        .flat_map(|hand| hand.leases.iter().map(|(l, (t, _))| (*t, *l)))
        .collect();
    (!held.is_empty()).then(|| held[pick as usize % held.len()])
}

fn submit(world: &mut World, tasks: Vec<NewTask>, user: u8, skip: bool) {
    let mut batch: Vec<TaskSpec> = Vec::new();
    for new in tasks {
        let kind = TaskKind {
            skills: skills(new.skills & new.skills >> 4),
            group: (1..=2)
                .contains(&new.group)
                .then(|| GroupId(new.group.into())),
            retry: RetryRule {
                retries: new.retries.into(),
                ..RetryRule::default()
            },
            speculate: new.speculate,
            time_limit: new.limit.then(|| Span::from_secs(5)),
            ..TaskKind::default()
        };
        let mut spec = world.new_task_of(kind, new.priority);
        let before = spec.id.0;
        let depends = new
            .depends
            .iter()
            .map(|d| TaskId(before.saturating_sub(u64::from(*d % 8))));
        // Any id may turn up: its own, one that is over, one that never was.
        spec.dependencies = depends.filter(|id| id.0 != before).collect();
        spec.deadline = new.deadline.then(|| world.now + Span::from_secs(20));
        batch.push(spec);
    }
    let mut job = JobSpec {
        user: UserId(user.into()),
        ..world.new_job()
    };
    if skip {
        job.dependency_failure = DependencyFailure::Skip;
    }
    let tasks = batch.into();
    world.handle(Input::TasksSubmitted { job, tasks });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("LOXLEY_TEST_LONG").is_some() { 20_000 } else { 500 },
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_books_balance_whatever_happens(which in any::<u8>(), ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new(config(which));
        for op in ops {
            apply(&mut world, op);
        }
        world.replay(config(which));
        world.run_out();
    }

    #[test]
    fn a_restored_scheduler_goes_on_the_same(
        which in any::<u8>(),
        ops in prop::collection::vec(op(), 1..120),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut world = World::new(config(which));
        for op in ops {
            apply(&mut world, op);
        }
        world.run_out();
        let cut = cut.index(world.journal.len() + 1);
        let (before, after) = world.journal.split_at(cut);
        let mut live = Scheduler::new(config(which), Time::ZERO);
        let mut actions = Vec::new();
        for (now, input) in before {
            live.handle(*now, input.clone(), &mut actions);
        }
        let kept = live.snapshot();
        let mut restored = restore(&kept);
        prop_assert_eq!(restored.snapshot(), kept);
        for (now, input) in after {
            let (mut expected, mut given) = (Vec::new(), Vec::new());
            live.handle(*now, input.clone(), &mut expected);
            restored.handle(*now, input.clone(), &mut given);
            prop_assert_eq!(given, expected, "after {:?}", input);
            prop_assert_eq!(restored.next_timer(), live.next_timer());
        }
        prop_assert_eq!(restored.metrics(), live.metrics());
        prop_assert_eq!(restored.snapshot(), live.snapshot());
    }
}

/// Through bytes and back, as a driver does it.
fn restore(snapshot: &Snapshot) -> Scheduler {
    let bytes = postcard::to_stdvec(snapshot).expect("a snapshot can be packed");
    let mut read: Snapshot = postcard::from_bytes(&bytes).expect("and unpacked");
    let beside = postcard::to_stdvec(&snapshot.forecasts()).expect("a snapshot can be packed");
    read.set_forecasts(postcard::from_bytes(&beside).expect("and unpacked"));
    let added = postcard::to_stdvec(&snapshot.additions()).expect("so can what stands behind it");
    let added = postcard::from_bytes(&added).expect("and be unpacked");
    let read = read.with_additions(added).expect("they belong together");
    assert_eq!(&read, snapshot);
    Scheduler::restore(read).expect("what was just made is whole")
}
