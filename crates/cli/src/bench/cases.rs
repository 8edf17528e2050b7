//! What is measured, and how. Every way of a case does the same work and says what it took.

use std::collections::VecDeque;
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use loxley_balance::Rng;
use loxley_driver::Driver;
use loxley_journal::{Group, Journal, Options, Rows, SqliteJournal};
use loxley_model::{
    AgentId, AgentSpec, Dispatch, JobId, JobSpec, Lease, Outcome, SkillSet, Span, TaskId, TaskKind,
    TaskSpec, Time,
};
use loxley_policy::{Action, Config, Input};
use loxley_pool::Pool;
use loxley_sim::deque_world::DequeWorld;
use loxley_sim::{Arrivals, DequeSetup, Distribution, Load};

use super::{Case, Measured, Setting, Way};

pub(super) fn prepare(case: Case, setting: &Setting) -> Result<Measured> {
    match case {
        Case::Pool => pool(setting),
        Case::Join => join(setting),
        Case::Scheduler => Ok(scheduler(setting)),
        Case::Processes => processes(setting),
        Case::Journal => journal(setting),
        Case::Simulator => Ok(simulator(setting)),
    }
}

/// Milliseconds since then.
fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Some work that no compiler can leave out.
fn work(steps: u32) -> u64 {
    let mut state = u64::from(steps) | 1;
    for _ in 0..steps {
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .rotate_left(17),
        );
    }
    state
}

/// A heavy tail in the order in which it comes: most items are short, a few take a thousand times as long, and the
/// long ones lie together, as they do in a sorted directory.
fn uneven_costs(count: usize) -> Vec<u32> {
    let mut rng = Rng::new(7);
    let mut costs: Vec<u32> = (0..count)
        .map(|_| {
            let share = (rng.below(1 << 20) as f64 + 1.0) / f64::from(1 << 20);
            (20.0 / share).min(20_000.0) as u32
        })
        .collect();
    costs.sort_unstable();
    costs
}

fn pool(setting: &Setting) -> Result<Measured> {
    let count = setting.size(200_000);
    let costs: Rc<[u32]> = uneven_costs(count).into();
    let pool = Pool::builder().workers(setting.cores).build()?;
    let (for_pool, for_chunks, cores) = (Rc::clone(&costs), Rc::clone(&costs), setting.cores);
    let ours = Way::new("loxley", move || {
        let begin = Instant::now();
        pool.par_for(&for_pool[..], |cost| {
            black_box(work(*cost));
        });
        Ok(millis(begin))
    });
    let chunks = Way::new("equal chunks, a thread each", move || {
        let begin = Instant::now();
        let size = for_chunks.len().div_ceil(cores).max(1);
        thread::scope(|scope| {
            for chunk in for_chunks.chunks(size) {
                scope.spawn(move || {
                    for cost in chunk {
                        black_box(work(*cost));
                    }
                });
            }
        });
        Ok(millis(begin))
    });
    let alone = Way::new("one thread", move || {
        let begin = Instant::now();
        for cost in &*costs {
            black_box(work(*cost));
        }
        Ok(millis(begin))
    });
    Ok(Measured {
        case: Case::Pool,
        about: format!("a loop over {count} items of uneven cost"),
        unit: "ms",
        ways: vec![ours, chunks, alone],
    })
}

fn join(setting: &Setting) -> Result<Measured> {
    fn plain(n: u32) -> u64 {
        if n < 2 {
            return u64::from(n);
        }
        plain(n - 1) + plain(n - 2)
    }
    fn joined(pool: &Pool, n: u32) -> u64 {
        if n < 2 {
            return u64::from(n);
        }
        let (left, right) = pool.join(|| joined(pool, n - 1), || joined(pool, n - 2));
        left + right
    }
    let n = if setting.quick { 24 } else { 29 };
    let pool = Pool::builder().workers(setting.cores).build()?;
    let ours = Way::new("loxley", move || {
        let begin = Instant::now();
        black_box(pool.install(|| joined(&pool, black_box(n))));
        Ok(millis(begin))
    });
    let calls = Way::new("plain calls, one thread", move || {
        let begin = Instant::now();
        black_box(plain(black_box(n)));
        Ok(millis(begin))
    });
    Ok(Measured {
        case: Case::Join,
        about: format!("fib({n}), a join at every call"),
        unit: "ms",
        ways: vec![ours, calls],
    })
}

/// A fleet in the hands of the scheduler's driver, whose agents answer at once.
struct Fleet {
    driver: Driver,
    now: Time,
    next_task: u64,
    kind: Arc<TaskKind>,
    in_hand: VecDeque<(TaskId, Lease)>,
}

impl Fleet {
    fn new(agents: u64, queued: usize) -> Self {
        let mut fleet = Self {
            driver: Driver::new(Config::default(), Time::ZERO),
            now: Time::ZERO,
            next_task: 0,
            kind: Arc::new(TaskKind::default()),
            in_hand: VecDeque::new(),
        };
        for agent in 1..=agents {
            let spec = AgentSpec {
                dispatch: Dispatch::KeepFull,
                ..AgentSpec::new(AgentId(agent), SkillSet::none())
            };
            fleet.tell(Input::AgentJoined(spec.into()));
        }
        fleet.submit(queued);
        fleet
    }

    fn tell(&mut self, input: Input) {
        self.now = self.now + Span::from_micros(1);
        self.driver.tell(self.now, input);
        while let Some(action) = self.driver.next_action() {
            match action {
                Action::Assign { task, lease, .. } => self.in_hand.push_back((task, lease)),
                Action::Retract { task, lease, .. } => {
                    self.in_hand.retain(|(_, held)| *held != lease);
                    self.driver.later(Input::TaskYielded {
                        task,
                        lease,
                        yielded: true,
                    });
                }
                _ => {}
            }
        }
    }

    fn submit(&mut self, count: usize) {
        let tasks: Arc<[TaskSpec]> = (0..count)
            .map(|_| {
                self.next_task += 1;
                TaskSpec::new(TaskId(self.next_task), Arc::clone(&self.kind))
            })
            .collect();
        let job = JobSpec::new(JobId(self.next_task));
        self.tell(Input::TasksSubmitted { job, tasks });
    }

    /// Microseconds for the whole life of a task: submitted, placed, given, started, finished.
    fn lives(&mut self, count: usize) -> f64 {
        const BATCH: usize = 16;
        let begin = Instant::now();
        let batches = count.div_ceil(BATCH);
        for _ in 0..batches {
            self.submit(BATCH);
            for _ in 0..BATCH {
                let Some((task, lease)) = self.in_hand.pop_front() else {
                    break;
                };
                self.tell(Input::TaskStarted { task, lease });
                let outcome = Outcome::Succeeded;
                self.tell(Input::TaskFinished {
                    task,
                    lease,
                    outcome,
                });
            }
        }
        begin.elapsed().as_secs_f64() * 1e6 / (batches * BATCH) as f64
    }
}

fn scheduler(setting: &Setting) -> Measured {
    let (queued, lives) = (setting.size(100_000), setting.size(50_000));
    let mut large = Fleet::new(1_000, queued);
    let mut small = Fleet::new(10, queued);
    Measured {
        case: Case::Scheduler,
        about: format!("a task's life among 1,000 agents, {queued} queued"),
        unit: "us",
        ways: vec![
            Way::new("1,000 agents", move || Ok(large.lives(lives))),
            Way::new("the same among 10 agents", move || Ok(small.lives(lives))),
        ],
    }
}

fn processes(setting: &Setting) -> Result<Measured> {
    let (count, cores) = (setting.size(1_000), setting.cores);
    let program = std::env::current_exe().context("cannot find this program")?;
    let items: String = (0..count).map(|item| format!("{item}\n")).collect();
    let items: Rc<str> = items.into();
    let for_xargs = Rc::clone(&items);
    let ours = Way::new("loxley", move || {
        let jobs = format!("-j{cores}");
        fed(Command::new(&program).args(["run", &jobs, "true"]), &items)
    });
    let plain = Way::new("a loop that only starts them", move || {
        let begin = Instant::now();
        let lanes = (0..cores).map(|lane| {
            thread::spawn(move || -> Result<()> {
                for item in (lane..count).step_by(cores) {
                    let ended = Command::new("true").arg(item.to_string()).status()?;
                    ensure!(ended.success(), "`true` failed");
                }
                Ok(())
            })
        });
        for lane in lanes.collect::<Vec<_>>() {
            lane.join().expect("a lane does not panic")?;
        }
        Ok(millis(begin))
    });
    let mut ways = vec![ours, plain];
    if let Some(xargs) = find("xargs") {
        ways.push(Way::new("xargs", move || {
            let jobs = format!("-P{cores}");
            fed(
                Command::new(&xargs).args([&jobs, "-n1", "true"]),
                &for_xargs,
            )
        }));
    }
    Ok(Measured {
        case: Case::Processes,
        about: format!("{count} x `true`, an item each"),
        unit: "ms",
        ways,
    })
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|place| place.is_file())
}

/// Milliseconds that a command takes with these items as its input.
fn fed(command: &mut Command, items: &str) -> Result<f64> {
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut input = child.stdin.take().context("it has an input")?;
    input.write_all(items.as_bytes())?;
    drop(input);
    let ended = child.wait()?;
    ensure!(ended.success(), "it ended with {ended}");
    Ok(millis(begin))
}

fn journal(setting: &Setting) -> Result<Measured> {
    const FACTS: usize = 32;
    const FACT_BYTES: usize = 24;
    let groups = setting.size(200);
    let place = &setting.directory;
    let directory = tempfile::Builder::new()
        .prefix("loxley-bench-")
        .tempdir_in(place)
        .with_context(|| format!("cannot write to {}", place.display()))?;
    let directory = Rc::new(directory);
    let opened = SqliteJournal::open(&directory.path().join("journal"), &Options::default())?;
    let mut journal = opened.journal;
    let mut plain = File::create(directory.path().join("plain"))?;
    // Kept for as long as one of them writes there.
    let also = Rc::clone(&directory);
    let ours = Way::new("loxley", move || {
        let _kept = &directory;
        let group = Group {
            facts: vec![0x5A; FACTS * FACT_BYTES],
            fact_count: FACTS as u32,
            rows: Rows::default(),
        };
        let begin = Instant::now();
        for _ in 0..groups {
            let at = journal.next_position();
            journal.append(at, &group)?;
        }
        Ok(begin.elapsed().as_secs_f64() * 1e6 / groups as f64)
    });
    let bare = Way::new("write and fdatasync", move || {
        let _kept = &also;
        let bytes = [0x5A; FACTS * FACT_BYTES];
        let begin = Instant::now();
        for _ in 0..groups {
            plain.write_all(&bytes)?;
            plain.sync_data()?;
        }
        Ok(begin.elapsed().as_secs_f64() * 1e6 / groups as f64)
    });
    Ok(Measured {
        case: Case::Journal,
        about: format!("{FACTS} facts made durable at once"),
        unit: "us",
        ways: vec![ours, bare],
    })
}

fn simulator(setting: &Setting) -> Measured {
    const WORKERS: usize = 64;
    let tasks = setting.size(200_000) as u32;
    let ours = Way::new("loxley", move || {
        let load = Load::Stream {
            count: tasks,
            work: Distribution::Exponential(0.001),
            arrivals: Arrivals::AtOnce,
        };
        let setup = DequeSetup::new(WORKERS, load);
        let mut nobody = ();
        let world = DequeWorld::new(&setup, 1, &mut nobody);
        let begin = Instant::now();
        let statistics = world.run();
        Ok(begin.elapsed().as_secs_f64() * 1e9 / statistics.events as f64)
    });
    Measured {
        case: Case::Simulator,
        about: format!("a simulated event, {WORKERS} workers that steal"),
        unit: "ns",
        ways: vec![ours],
    }
}
