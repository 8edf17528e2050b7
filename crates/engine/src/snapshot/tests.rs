//! Whatever happened before a snapshot and whatever happens after it: who goes on from it decides alike.

use loxley_api::{
    CommandRequest, DependencyFailure, Entries, FallbackRequest, RetryRequest, TaskRequest, Work,
};
use loxley_model::{AgentId, Outcome, Priority, Span};
use loxley_policy::{Config, Selection, Vitals};
use proptest::prelude::*;

use super::*;
use crate::effects::{Effects, Records};
use crate::fact::Fact;
use crate::submission::Submission;

/// What happens next, and two numbers to choose by.
type Step = (u8, u16, u16);

/// Turns steps into facts that fit the state, and applies them.
struct World {
    state: State,
    /// The number before the first that is given out.
    base: u64,
    now: Time,
    told: Vec<(Time, Fact)>,
}

impl World {
    fn new(base: u64) -> Self {
        let mut this = Self {
            state: State::new(Time::ZERO),
            base,
            now: Time::ZERO,
            told: Vec::new(),
        };
        this.tell(Fact::NumberedFrom(base));
        this
    }

    fn tell(&mut self, fact: Fact) -> Effects {
        let mut effects = Effects::new(Records::Everything);
        self.told.push((self.now, fact.clone()));
        let _ = self.state.apply(self.now, fact, None, &mut effects);
        effects
    }

    fn step(&mut self, (kind, a, b): Step) -> (Time, Fact) {
        self.now = self.now + Span::from_millis(u64::from(b % 40));
        let fact = self.fact(kind, usize::from(a), u64::from(b));
        self.tell(fact.clone());
        (self.now, fact)
    }

    fn fact(&self, kind: u8, a: usize, b: u64) -> Fact {
        let (base, agent) = (self.base, AgentId(self.base + 1 + a as u64 % 4));
        match kind % 24 {
            0..=3 => Fact::JobSubmitted {
                request: Submission::unchecked(self.request(a, b)),
                user: ["me", "you"][a % 2].to_owned(),
            },
            4 | 5 => Fact::AgentJoined(Box::new(record(a, b))),
            6 => Fact::AgentHeard {
                agent,
                vitals: Vitals {
                    throttle: b as f64 / 1e5,
                    round_trip: Span::from_micros(b),
                },
            },
            7 => Fact::AgentSilent(agent),
            8 => {
                let held = self.held(Some(agent)).into_iter();
                let leases = held.filter(|(_, lease, _)| lease.0 % 3 != b % 3);
                Fact::AgentResumed {
                    agent,
                    leases: leases.map(|(_, lease, _)| lease).collect(),
                }
            }
            9 if b.is_multiple_of(4) => Fact::AgentDrained(agent),
            10 if b.is_multiple_of(4) => Fact::AgentLeft(agent),
            11 if b.is_multiple_of(3) => Fact::JobExtended {
                job: JobId(base + 1 + b % 40),
                task: 0,
                entries: Entries::Range {
                    first: 1,
                    last: 1 + b % 5,
                    step: 1,
                },
                cost: b.is_multiple_of(2).then(|| Span::from_millis(b)),
            },
            11 if b.is_multiple_of(5) => Fact::JobClosed(JobId(base + 1 + b % 40)),
            11 => Fact::Cancelled(Selection::Task(TaskId(base + 1 + b % 3000))),
            12 if b.is_multiple_of(8) => Fact::Cancelled(Selection::All),
            12 => Fact::Cancelled(Selection::Job(JobId(base + 1 + b % 20))),
            13 => Fact::Resubmitted(
                self.state
                    .driver
                    .scheduler()
                    .dead_letters()
                    .take(a % 4)
                    .collect(),
            ),
            14 if b.is_multiple_of(3) => Fact::Restarted,
            14 if b.is_multiple_of(7) => Fact::AgentForgotten(agent),
            14 => Fact::RebalanceRequested,
            15 if b.is_multiple_of(5) => {
                let mut config = Config::default();
                config.thresholds.busy_threshold = 1 + a as u32 % 9;
                Fact::ConfigChanged(Box::new(config))
            }
            16..=22 => self.of_a_lease(kind, a, b).unwrap_or(Fact::Tick),
            _ => Fact::Tick,
        }
    }

    fn of_a_lease(&self, kind: u8, a: usize, b: u64) -> Option<Fact> {
        let held = self.held(None);
        let (agent, lease, task) = *held.get(a % held.len().max(1))?;
        Some(match kind % 24 {
            16 => Fact::Started { agent, task, lease },
            17 => Fact::Yielded {
                agent,
                task,
                lease,
                yielded: b.is_multiple_of(2),
            },
            18 => Fact::Checkpoint {
                agent,
                task,
                lease,
                state: b.to_string().into(),
            },
            _ => Fact::Finished {
                agent,
                task,
                lease,
                outcome: match b % 5 {
                    0 => Outcome::Failed(Failure::Error),
                    1 => Outcome::Failed(Failure::Permanent),
                    _ => Outcome::Succeeded,
                },
                ran: Span::from_micros(b),
            },
        })
    }

    fn held(&self, of: Option<AgentId>) -> Vec<(AgentId, Lease, TaskId)> {
        let leases = self.state.driver.leases().iter();
        let mut held: Vec<_> = leases
            .map(|(lease, held)| (held.agent, lease, held.task))
            .filter(|(agent, ..)| of.is_none_or(|of| of == *agent))
            .collect();
        held.sort_unstable();
        held
    }

    fn request(&self, a: usize, b: u64) -> JobRequest {
        let jobs = self.state.jobs.ended.len() as u64;
        let mut request = JobRequest {
            tasks: vec![task(a, b)],
            key: b.is_multiple_of(3).then(|| format!("key {}", b % 7)),
            open: b.is_multiple_of(5),
            ..JobRequest::default()
        };
        match a % 6 {
            0 => {
                request.tasks[0].entries = Some(Entries::Range {
                    first: 1,
                    last: 1 + b % 9000,
                    step: 1,
                });
            }
            1 => {
                let lines = (0..1 + b % 40).map(|line| format!("line {line}"));
                request.tasks[0].entries = Some(Entries::Lines(lines.collect()));
            }
            2 => {
                let named = |name: &str, after: &[&str]| TaskRequest {
                    name: Some(name.to_owned()),
                    depends_on: after.iter().map(|name| (*name).to_owned()).collect(),
                    ..task(a, b)
                };
                request.tasks = vec![named("x", &[]), named("y", &["x"]), named("z", &["x", "y"])];
            }
            3 if jobs > 1 => {
                request.after = vec![JobId(self.base + 1 + b % (jobs - 1))];
                request.on_dependency_failure = if b.is_multiple_of(2) {
                    DependencyFailure::Skip
                } else {
                    DependencyFailure::Fail
                };
            }
            _ => {
                request.limits = [("disk".to_owned(), 1 + b as u32 % 3)].into();
            }
        }
        request
    }
}

fn task(a: usize, b: u64) -> TaskRequest {
    let work = Work::Command(CommandRequest {
        words: vec!["do".to_owned(), "{}".to_owned()],
        ..CommandRequest::default()
    });
    TaskRequest {
        skills: if a.is_multiple_of(5) {
            vec!["python".to_owned()]
        } else {
            Vec::new()
        },
        priority: Priority::new(1 + (b % 5) as u8).unwrap(),
        group: a.is_multiple_of(4).then(|| "disk".to_owned()),
        cost_sec: b.is_multiple_of(2).then_some(0.01),
        deadline_sec: b.is_multiple_of(7).then_some(0.5),
        time_limit_sec: b.is_multiple_of(11).then_some(2.0),
        checkpoints: a.is_multiple_of(3),
        retry: RetryRequest {
            retries: b as u32 % 3,
            ..RetryRequest::default()
        },
        fallback: b
            .is_multiple_of(9)
            .then(|| FallbackRequest::Value(loxley_api::Blob(b"instead".to_vec()))),
        ..TaskRequest::new(work)
    }
}

fn record(a: usize, b: u64) -> AgentRecord {
    AgentRecord {
        name: ["a", "b", "c", "d"][a % 4].to_owned(),
        owner: ["one", "two"][a / 2 % 2].to_owned(),
        process: b,
        skills: vec![["python", "gpu"][a / 4 % 2].to_owned()],
        slots: 1 + b as u32 % 4,
        speed: 1.0 + (b % 3) as f64 / 2.0,
        cpu_milli: 4000,
        memory_bytes: 1 << 30,
        resources: vec![("gpu".to_owned(), b % 3)],
        zone: b.is_multiple_of(2).then(|| "z".to_owned()),
        holds: vec!["data".to_owned()],
    }
}

fn packed(state: &State) -> Vec<u8> {
    state.copy().pack()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn who_goes_on_from_a_snapshot_decides_alike(
        parts in prop::collection::vec(prop::collection::vec(any::<Step>(), 0..60), 2..5),
        shard in prop::sample::select(vec![0_u64, 1, 2047]),
    ) {
        let mut world = World::new(shard << 40);
        let mut others: Vec<State> = Vec::new();
        for steps in parts {
            for step in steps {
                let (now, fact) = world.step(step);
                for other in &mut others {
                    let _ = other.apply(now, fact.clone(), None, &mut Effects::of_the_past());
                    prop_assert_eq!(other.digest, world.state.digest);
                }
            }
            others.push(State::unpack(&packed(&world.state)).unwrap());
        }
        let whole = packed(&world.state);
        for other in &others {
            prop_assert!(packed(other) == whole);
        }
        let mut replayed = State::new(Time::ZERO);
        for (now, fact) in world.told {
            let _ = replayed.apply(now, fact, None, &mut Effects::of_the_past());
        }
        prop_assert!(packed(&replayed) == whole);
    }
}

fn busy_world() -> World {
    let mut world = World::new(0);
    for number in 0..200_u16 {
        world.step((
            number as u8,
            number.wrapping_mul(7919),
            number.wrapping_mul(104),
        ));
    }
    assert!(world.state.live() > 0);
    world
}

#[test]
fn a_snapshot_that_is_not_whole_is_refused_and_never_a_panic() {
    let snapshot = packed(&busy_world().state);
    assert!(State::unpack(&snapshot).is_ok());
    let mut newer = snapshot.clone();
    newer[0] = VERSION + 1;
    let refused = State::unpack(&newer).unwrap_err();
    assert!(matches!(refused, SnapshotError::Version(version) if version == VERSION + 1));
    for length in (0..snapshot.len()).step_by(97) {
        assert!(State::unpack(&snapshot[..length]).is_err());
    }
}

#[test]
fn numbers_begin_where_the_first_fact_says_and_nowhere_else() {
    let base = 3 << 40;
    let mut world = World::new(base);
    world.tell(Fact::AgentJoined(Box::new(record(0, 0))));
    let request = JobRequest {
        tasks: vec![task(1, 1)],
        ..JobRequest::default()
    };
    for _ in 0..2 {
        world.tell(Fact::JobSubmitted {
            request: Submission::unchecked(request.clone()),
            user: "me".to_owned(),
        });
    }
    let jobs = |state: &State| {
        let mut jobs: Vec<_> = state
            .jobs
            .iter()
            .map(|job| (job.id.0, job.first.0))
            .collect();
        jobs.sort_unstable();
        jobs
    };
    assert_eq!(
        jobs(&world.state),
        [(base + 1, base + 1), (base + 2, base + 2)]
    );
    assert_eq!(world.state.names.agents.id("a"), Some(AgentId(base + 1)));
    assert_eq!(&*world.state.names.agent_name(AgentId(base + 1)), "a");
    assert!(world.state.fleet.get(AgentId(1)).is_none());
    // What was given out stays, and a snapshot knows where it began.
    let mut effects = Effects::new(Records::Everything);
    let again = Fact::NumberedFrom(base + (1 << 40));
    assert!(
        world
            .state
            .apply(world.now, again, None, &mut effects)
            .is_err()
    );
    let restored = State::unpack(&packed(&world.state)).unwrap();
    assert_eq!(jobs(&restored), jobs(&world.state));
    assert_eq!(restored.names.agents.id("a"), Some(AgentId(base + 1)));
    assert!(packed(&restored) == packed(&world.state));
}
