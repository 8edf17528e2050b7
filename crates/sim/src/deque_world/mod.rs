//! The deque world [X1]: workers with deques, in virtual time.
//!
//! ```text
//!            outside                    owner end          thief end
//!               |                      +----------------------------+
//!               v                      |  task  task  task  task    |
//!   placement --+--> worker 0's deque  +----------------------------+
//!               +--> worker 1's deque   ^ push, pop          ^ steal
//!               +--> the shared queue
//! ```
//!
//! A worker runs a task; half-way the task may put children into the worker's deque; at its end the
//! worker takes the next one from its own deque, then from the shared queue, then it robs. Victim
//! orders, steal amounts and backoff are those of `loxley-balance`, the same code that the pool
//! runs on real threads.
//!
//! A round of probes is decided at the instant it begins: the thief walks the victims in order,
//! pays for each look, and lands at the first that has something when all these looks are paid
//! for. By then the victim may be empty again, and the round was in vain. With free probes this is
//! exact; with costly ones a thief may overlook what appeared while it walked. The walk itself is not
//! taken: where it ends and what it costs follows from the thief's draw and from who has something (`queues`), so
//! a search in vain among a million workers costs no more than one among ten.
//!
//! What must stay true: a worker has at most one event ahead of it (so the event queue is as long
//! as the list of workers, not of tasks), every task is in exactly one deque or run by exactly one
//! worker, `queued` is the number of tasks in all deques, and `queues` knows how long each is.

mod arrivals;
mod setup;
mod stealing;
mod tasks;
mod working;

use std::collections::VecDeque;

use loxley_balance::{Backoff, QueueIndex, Rng, VictimOrder, Victims};

pub use self::setup::{DequeSetup, Idle, Load, OwnerEnd, Placement, Spawning, Stealing};
use self::tasks::{Tables, Task};
use crate::event_queue::EventQueue;
use crate::observer::Observer;
use crate::statistics::{RunStatistics, WorkerTotals};
use crate::time::Nanos;
use crate::workload::index_u32;

/// Runs `setup` with `seed` until all tasks are done (or its time limit passes).
///
/// ```
/// use loxley_sim::{DequeSetup, Distribution, Load};
///
/// let load = Load::Stream {
///     count: 10,
///     work: Distribution::Uniform(0.5, 2.0),
///     arrivals: loxley_sim::Arrivals::AtOnce,
/// };
/// let statistics = loxley_sim::deque_world::run(&DequeSetup::new(3, load), 7, &mut ());
/// assert_eq!(statistics.executed(), 10);
/// assert!(statistics.makespan >= statistics.lower_bound());
/// ```
pub fn run<O: Observer>(setup: &DequeSetup, seed: u64, observer: &mut O) -> RunStatistics {
    DequeWorld::new(setup, seed, observer).run()
}

/// No task, no victim.
const NONE: u32 = u32::MAX;

/// No moment.
const NEVER: Nanos = Nanos::MAX;

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The next task comes from outside.
    Arrival,
    /// A task of a graph is released.
    Release(u32),
    /// The task that this worker runs makes its children.
    Spawn(u32),
    /// This worker finishes its task.
    Finish(u32),
    /// This thief reaches its victim.
    Land(u32),
    /// This worker looks for work again.
    Look(u32),
}

impl Event {
    /// Whose event it is.
    fn worker(self) -> Option<u32> {
        match self {
            Self::Arrival | Self::Release(_) => None,
            Self::Spawn(worker)
            | Self::Finish(worker)
            | Self::Land(worker)
            | Self::Look(worker) => Some(worker),
        }
    }
}

#[derive(Debug)]
struct Worker {
    deque: VecDeque<Task>,
    /// The task in hand.
    task: Option<Task>,
    /// When it was taken in hand.
    started: Nanos,
    /// The victim this worker is on its way to.
    target: u32,
    asleep: bool,
    /// The work of the task it will probably take next: read ahead, so that the task has come from
    /// memory by the time the worker comes back for it.
    read_ahead: Nanos,
    /// When it looks for work again; a look at any other moment was called off.
    look_at: Nanos,
    totals: WorkerTotals,
}

/// What a worker needs to rob, apart from its deque so that it can look at all deques meanwhile.
#[derive(Debug)]
struct Thief {
    victims: Victims,
    backoff: Backoff,
    rng: Rng,
}

/// A world that is set up and has not begun: the tasks that are there from the start are placed.
#[derive(Debug)]
pub struct DequeWorld<'a, O> {
    setup: &'a DequeSetup,
    observer: &'a mut O,
    now: Nanos,
    events: EventQueue<Event>,
    tables: Tables,
    workers: Vec<Worker>,
    thieves: Vec<Thief>,
    /// How long the deques are, for thieves.
    queues: QueueIndex,
    shared: VecDeque<Task>,
    /// Sleeping workers, the last to fall asleep on top.
    sleepers: Vec<u32>,
    queued: usize,
    /// Tasks that exist and are not finished, and tasks that have yet to come.
    unfinished: u64,
    placer: Placer,
    stream: Stream,
    statistics: RunStatistics,
    sampled: (Nanos, u64),
    top_speed: f64,
    /// What a probe costs when it costs the same at every distance.
    even_cost: Option<Nanos>,
}

/// Tasks that have yet to come from outside.
#[derive(Debug)]
struct Stream {
    left: u32,
    work: Rng,
    moments: Rng,
    last: Nanos,
}

/// Which worker is next.
#[derive(Debug)]
struct Placer {
    next: u32,
    left_here: u32,
    /// Explicit counts: how many of them are used up, and how many tasks the next one has had.
    counts_done: usize,
    placed_here: u32,
    rng: Rng,
}

impl<'a, O: Observer> DequeWorld<'a, O> {
    /// The world of `setup` and `seed`, watched by `observer`.
    ///
    /// # Panics
    /// When the setup has not as many places as workers.
    pub fn new(setup: &'a DequeSetup, seed: u64, observer: &'a mut O) -> Self {
        assert_eq!(
            setup.speeds.len(),
            setup.topology.len(),
            "every worker has a speed and a place"
        );
        let root = Rng::new(seed);
        let mut world = Self {
            setup,
            observer,
            now: 0,
            events: EventQueue::new(),
            tables: Tables::default(),
            workers: setup
                .speeds
                .iter()
                .map(|&speed| Worker::new(speed))
                .collect(),
            thieves: thieves(setup, &root),
            queues: QueueIndex::new(victim_order(setup), &setup.topology),
            shared: VecDeque::new(),
            sleepers: Vec::new(),
            queued: 0,
            unfinished: 0,
            placer: Placer {
                next: 0,
                left_here: 0,
                counts_done: 0,
                placed_here: 0,
                rng: root.child("placement"),
            },
            stream: Stream {
                left: 0,
                work: root.child("work"),
                moments: root.child("arrivals"),
                last: 0,
            },
            statistics: RunStatistics::default(),
            sampled: (0, 0),
            top_speed: setup.top_speed(),
            even_cost: setup.stealing.as_ref().and_then(Stealing::even_cost),
        };
        world.load(&root);
        for worker in 0..index_u32(world.workers.len()) {
            world.plan_look(worker, 0);
        }
        world
    }

    /// Runs until all tasks are done (or the time limit passes).
    pub fn run(mut self) -> RunStatistics {
        self.run_to_end();
        self.into_statistics()
    }

    /// How many bytes the deques have room for, per task that is there from the start.
    #[must_use]
    pub fn bytes_per_task(&self) -> f64 {
        let deques: usize = self
            .workers
            .iter()
            .map(|worker| worker.deque.capacity())
            .sum();
        let bytes = (deques + self.shared.capacity()) * size_of::<Task>();
        bytes as f64 / f64::from(self.tables.count.max(1))
    }

    fn run_to_end(&mut self) {
        let until = self.setup.until.unwrap_or(Nanos::MAX);
        while self.unfinished > 0 {
            self.fetch_ahead();
            let Some((now, event)) = self.events.pop() else {
                panic!("{} tasks are left and nothing will happen", self.unfinished);
            };
            if now > until {
                break;
            }
            self.statistics.events += 1;
            if now > self.now {
                self.sample_queues(now);
            }
            self.now = now;
            match event {
                Event::Finish(worker) => self.finish(worker),
                Event::Look(worker) => self.planned_look(worker),
                Event::Land(worker) => self.land(worker),
                Event::Spawn(worker) => self.spawn(worker),
                Event::Arrival => self.arrive(),
                Event::Release(task) => self.place_graph_task(task),
            }
        }
    }

    /// Reads what the next events will need, all together: with many workers each of them has left the cache since its
    /// last event, and waiting for sixteen of them at once takes hardly longer than waiting for one.
    #[inline]
    fn fetch_ahead(&mut self) {
        let batch = self.events.batch_ahead().filter_map(Event::worker);
        let mut read = 0;
        for worker in batch.clone() {
            let hand = &self.workers[worker as usize];
            read ^= hand.deque.len() as u64 ^ hand.look_at ^ hand.totals.busy;
        }
        for worker in batch {
            // What lies behind the deque's pointer, which is here by now.
            let next = match self.setup.owner_end {
                OwnerEnd::Newest => self.workers[worker as usize].deque.back(),
                OwnerEnd::Oldest => self.workers[worker as usize].deque.front(),
            };
            read ^= next.map_or_else(
                || u64::from(self.thieves[worker as usize].backoff == Backoff::default()),
                |task| task.work,
            );
        }
        std::hint::black_box(read);
    }

    /// Looks at all queues, seldom enough that it costs a constant time per event.
    fn sample_queues(&mut self, now: Nanos) {
        let (last_time, last_events) = self.sampled;
        let interval = self.workers.len() as u64;
        let due = last_events + interval.max(self.statistics.events / 256);
        if self.statistics.events >= due {
            let lengths = self.workers.iter().map(|worker| worker.deque.len());
            self.statistics
                .queue_depths
                .sample_for(now - last_time, lengths);
            self.sampled = (now, self.statistics.events);
        }
    }

    fn into_statistics(mut self) -> RunStatistics {
        let last_time = self.sampled.0;
        if self.now > last_time {
            let lengths = self.workers.iter().map(|worker| worker.deque.len());
            self.statistics
                .queue_depths
                .sample_for(self.now - last_time, lengths);
        }
        self.statistics.makespan = self.now;
        self.statistics.submitted = u64::from(self.tables.count);
        self.statistics.workers = self
            .workers
            .into_iter()
            .map(|worker| worker.totals)
            .collect();
        self.statistics
    }
}

impl Worker {
    fn new(speed: f64) -> Self {
        Self {
            deque: VecDeque::new(),
            task: None,
            started: 0,
            target: NONE,
            asleep: false,
            read_ahead: 0,
            look_at: NEVER,
            totals: WorkerTotals {
                speed,
                slots: 1,
                ..WorkerTotals::default()
            },
        }
    }

    /// What waits here and what is in hand.
    fn load(&self) -> usize {
        self.deque.len() + usize::from(self.task.is_some())
    }
}

impl Placer {
    fn turn(&mut self, count: u32) -> u32 {
        let worker = self.next % count;
        self.next = worker + 1;
        worker
    }

    fn block(&mut self, count: u32, share: u32) -> u32 {
        if self.left_here == 0 {
            self.left_here = share;
            self.next += 1;
        }
        self.left_here -= 1;
        (self.next - 1).min(count - 1)
    }

    /// The worker whose explicit count is not reached yet.
    fn counted(&mut self, counts: &[u32]) -> Option<u32> {
        while self.placed_here >= *counts.get(self.counts_done)? {
            self.counts_done += 1;
            self.placed_here = 0;
        }
        self.placed_here += 1;
        Some(index_u32(self.counts_done))
    }
}

fn family(spawning: &Spawning, rng: &mut Rng) -> u32 {
    let (least, most) = spawning.children;
    if rng.chance(spawning.chance) {
        least + rng.below(u64::from(most - least) + 1) as u32
    } else {
        0
    }
}

fn victim_order(setup: &DequeSetup) -> VictimOrder {
    setup
        .stealing
        .as_ref()
        .map_or(VictimOrder::Random, |stealing| stealing.order)
}

fn thieves(setup: &DequeSetup, root: &Rng) -> Vec<Thief> {
    let order = victim_order(setup);
    (0..setup.speeds.len())
        .map(|worker| Thief::new(setup, root, worker, order))
        .collect()
}

impl Thief {
    fn new(setup: &DequeSetup, root: &Rng, worker: usize, order: VictimOrder) -> Self {
        Self {
            victims: Victims::new(order, &setup.topology, worker),
            backoff: Backoff::default(),
            rng: root.numbered_child("thief", worker as u64),
        }
    }
}
