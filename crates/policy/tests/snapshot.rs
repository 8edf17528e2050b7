//! Whoever recovers a crowded scheduler from a snapshot decides as the one that was never stopped.
//!
//! The tests of any sequence are small; here queues are long enough to be split by admission class, tasks have
//! deadlines, places, fallbacks, needs and groups with limits, and agents come and go.

use std::collections::VecDeque;

use loxley_balance::Rng;
use loxley_model::*;
use loxley_policy::*;

/// Draws inputs, and answers assignments, from what the live scheduler said.
struct Driver {
    rng: Rng,
    now: Time,
    next_task: u64,
    next_job: u64,
    leases: VecDeque<(TaskId, Lease)>,
    asked_back: Vec<(TaskId, Lease)>,
}

impl Driver {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            now: Time::ZERO,
            next_task: 1,
            next_job: 1,
            leases: VecDeque::new(),
            asked_back: Vec::new(),
        }
    }

    fn next(&mut self) -> Input {
        self.now = self.now + Span::from_millis(self.rng.below(400));
        match self.rng.below(20) {
            0 => self.submit(),
            1 => Input::AgentJoined(Box::new(self.agent())),
            2 if self.rng.chance(0.3) => Input::AgentLeft {
                agent: AgentId(self.rng.below(8)),
                tasks: Leftovers::Requeue,
            },
            3 => Input::GroupLimitSet {
                group: GroupId(self.rng.below(3) as u32),
                limit: 1 + self.rng.below(4) as u32,
            },
            4 => Input::Tick,
            5 => self.answer_retraction(),
            6 => Input::AgentHeard {
                agent: AgentId(self.rng.below(8)),
                vitals: Vitals {
                    throttle: self.rng.unit_f64() * 0.9,
                    round_trip: Span::from_micros(self.rng.below(2_000)),
                },
            },
            7 => Input::RebalanceRequested,
            8 => Input::WorkRequested {
                agent: AgentId(self.rng.below(8)),
                want: self.rng.below(5) as u32,
            },
            9..=13 => self.start(),
            _ => self.finish(),
        }
    }

    fn agent(&mut self) -> AgentSpec {
        AgentSpec {
            slots: 1 + self.rng.below(3) as u32,
            speed: 0.5 + self.rng.unit_f64(),
            dispatch: if self.rng.chance(0.7) {
                Dispatch::KeepFull
            } else {
                Dispatch::OnRequest
            },
            heartbeats: self.rng.chance(0.3),
            confirms_ends: self.rng.chance(0.5),
            ..AgentSpec::new(AgentId(self.rng.below(8)), self.skills())
        }
    }

    fn skills(&mut self) -> SkillSet {
        let bits = self.rng.below(8);
        (0..3)
            .filter(|bit| bits >> bit & 1 == 1)
            .map(SkillId)
            .collect()
    }

    fn submit(&mut self) -> Input {
        let count = 1 + self.rng.below(120);
        let first = self.next_task;
        let tasks = (0..count).map(|n| self.task(first, n)).collect();
        self.next_task += count;
        self.next_job += 1;
        let job = JobSpec {
            user: UserId(self.rng.below(3) as u32),
            ..JobSpec::new(JobId(self.next_job))
        };
        Input::TasksSubmitted { job, tasks }
    }

    fn task(&mut self, first: u64, n: u64) -> TaskSpec {
        let rng = &mut self.rng;
        let kind = TaskKind {
            group: rng.chance(0.6).then(|| GroupId(rng.below(3) as u32)),
            time_limit: rng.chance(0.2).then(|| Span::from_secs(3)),
            hold_limit: rng.chance(0.2).then(|| Span::from_secs(30)),
            retry: RetryRule {
                retries: rng.below(3) as u32,
                ..RetryRule::default()
            },
            speculate: rng.chance(0.5),
            ..TaskKind::default()
        };
        let kind = TaskKind {
            skills: if self.rng.chance(0.5) {
                self.skills()
            } else {
                SkillSet::none()
            },
            ..kind
        };
        let rng = &mut self.rng;
        let chained = n > 0 && rng.chance(0.2);
        TaskSpec {
            priority: Priority::new(1 + rng.below(5) as u8).unwrap_or_default(),
            cost: rng
                .chance(0.7)
                .then(|| Span::from_millis(1 + rng.below(5_000))),
            deadline: rng
                .chance(0.2)
                .then(|| self.now + Span::from_secs(1 + rng.below(60))),
            dependencies: if chained {
                [TaskId(first + rng.below(n))].into()
            } else {
                [].into()
            },
            locality: rng.chance(0.2).then(|| Locality {
                key: DataKey(rng.below(5)),
                transfer: Span::from_millis(700),
            }),
            fallback: if rng.chance(0.1) {
                Fallback::Value
            } else {
                Fallback::None
            },
            ..TaskSpec::new(TaskId(first + n), kind.into())
        }
    }

    fn pick(&mut self) -> Option<(TaskId, Lease)> {
        let at = self.rng.below(self.leases.len().max(1) as u64) as usize;
        self.leases.get(at).copied()
    }

    fn start(&mut self) -> Input {
        match self.pick() {
            Some((task, lease)) => Input::TaskStarted { task, lease },
            None => Input::Tick,
        }
    }

    fn finish(&mut self) -> Input {
        let Some((task, lease)) = self.pick() else {
            return Input::Tick;
        };
        self.leases.retain(|held| held.1 != lease);
        let outcome = if self.rng.chance(0.85) {
            Outcome::Succeeded
        } else {
            Outcome::Failed(Failure::Error)
        };
        Input::TaskFinished {
            task,
            lease,
            outcome,
        }
    }

    fn answer_retraction(&mut self) -> Input {
        let Some((task, lease)) = self.asked_back.pop() else {
            return Input::Tick;
        };
        self.leases.retain(|held| held.1 != lease);
        let yielded = self.rng.chance(0.7);
        Input::TaskYielded {
            task,
            lease,
            yielded,
        }
    }

    fn note(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Assign { task, lease, .. } => self.leases.push_back((*task, *lease)),
                Action::Retract { task, lease, .. } => self.asked_back.push((*task, *lease)),
                Action::Cancel { awaited: true, .. } => {}
                Action::Cancel { lease, .. } => self.leases.retain(|held| held.1 != *lease),
                _ => {}
            }
        }
    }
}

fn config(seed: u64) -> Config {
    let mut config = Config {
        seed,
        ..Config::default()
    };
    let matching = [
        Matching::BestFit,
        Matching::EarliestFinish,
        Matching::Fallback,
    ];
    config.capabilities.matching_strategy = matching[seed as usize % 3];
    config.work_stealing.prefer_recent_tasks = seed.is_multiple_of(2);
    config.speculation.min_samples = 3;
    config.learning.breaker_failures = 3;
    config.forecast = ForecastRules {
        enabled: seed % 4 != 1,
        step: Span::from_millis(500),
        horizon: Span::from_secs(1),
        season_max: Span::from_secs(20),
        error_max: 1.0,
        share_max: 1.0,
    };
    config
}

/// Two schedulers see the same inputs. Every `every` inputs the other one goes on from a snapshot of the
/// first, through bytes: as whoever recovers a server does, while the server itself goes on undisturbed.
fn compare(seed: u64, inputs: usize, every: usize) -> Counts {
    let mut driver = Driver::new(seed);
    let mut live = Scheduler::new(config(seed), Time::ZERO);
    let mut recovered = Scheduler::new(config(seed), Time::ZERO);
    for number in 1..=inputs {
        let input = driver.next();
        let (mut expected, mut given) = (Vec::new(), Vec::new());
        live.handle(driver.now, input.clone(), &mut expected);
        recovered.handle(driver.now, input.clone(), &mut given);
        let differs = given
            .iter()
            .zip(&expected)
            .position(|(one, other)| one != other);
        assert!(
            given == expected,
            "seed {seed}, input {number}: {input:?}: {:?} instead of {:?}",
            differs.map(|at| &given[at]),
            differs.map(|at| &expected[at])
        );
        driver.note(&expected);
        if number.is_multiple_of(every) {
            let kept = live.snapshot();
            let bytes = postcard::to_stdvec(&kept).expect("it can be packed");
            let mut read: Snapshot = postcard::from_bytes(&bytes).expect("and unpacked");
            let beside = postcard::to_stdvec(&kept.forecasts()).expect("it can be packed");
            read.set_forecasts(postcard::from_bytes(&beside).expect("and unpacked"));
            let added = postcard::to_stdvec(&kept.additions()).expect("so can the additions");
            let added = postcard::from_bytes(&added).expect("and be unpacked");
            let read = read.with_additions(added).expect("they belong together");
            assert!(kept == read, "seed {seed}: packing changes something");
            recovered = Scheduler::restore(read).expect("a snapshot is whole");
            assert!(
                recovered.snapshot() == kept,
                "seed {seed}: restoring changes something"
            );
            for scheduler in [&mut live, &mut recovered] {
                let verified = scheduler.verify();
                assert_eq!(verified, Ok(()), "seed {seed}, input {number}: {input:?}");
            }
        }
        assert!(live.counts().balance());
    }
    assert!(
        live.snapshot() == recovered.snapshot(),
        "seed {seed}: another state"
    );
    assert_eq!(live.metrics(), recovered.metrics());
    live.counts()
}

#[test]
fn whoever_recovers_from_a_snapshot_decides_as_the_one_that_goes_on() {
    for seed in 0..12 {
        let counts = compare(seed, 1_500, 7);
        assert!(counts.finished > 200, "seed {seed} did nothing: {counts:?}");
    }
    // One that recovered long ago, with long queues since.
    for seed in 50..54 {
        compare(seed, 3_000, 1_000);
    }
    for seed in 100..103 {
        compare(seed, 500, 1);
    }
}
