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
//! exact; with costly ones a thief may overlook what appeared while it walked.
//!
//! What must stay true: a worker has at most one event ahead of it (so the event queue is as long
//! as the list of workers, not of tasks), every task is in exactly one deque or run by exactly one
//! worker, and `queued` is the number of tasks in all deques.

mod setup;
mod tasks;

use std::collections::VecDeque;

use loxley_balance::{Backoff, Rng, Step, Victims};

pub use self::setup::{DequeSetup, Idle, Load, OwnerEnd, Placement, Spawning, Stealing};
use self::tasks::{Tables, Task, scaled};
use crate::event_queue::EventQueue;
use crate::observer::{Happening, Observer};
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
    /// Tasks placed by explicit counts.
    placed: u32,
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
            shared: VecDeque::new(),
            sleepers: Vec::new(),
            queued: 0,
            unfinished: 0,
            placer: Placer {
                next: 0,
                left_here: 0,
                placed: 0,
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

/// Tasks from outside.
impl<O: Observer> DequeWorld<'_, O> {
    fn load(&mut self, root: &Rng) {
        let setup = self.setup;
        match &setup.load {
            Load::Stream { count, .. } => {
                self.unfinished = u64::from(*count);
                self.stream.left = *count;
                self.reserve_deques(*count as usize);
                self.plan_arrival();
            }
            Load::Pieces { total, piece } => {
                let count = total.div_ceil((*piece).max(1));
                self.unfinished = count;
                self.reserve_deques(count as usize);
                for index in 0..count {
                    let work = (*piece).min(total - index * piece);
                    self.add(work, 0);
                }
            }
            Load::Graph(workload) => {
                self.tables = Tables::of_graph(workload, self.top_speed);
                self.unfinished = workload.len() as u64;
                for (task, record) in (0..).zip(workload.tasks()) {
                    self.note_bounds(record.work, self.tables.paths[task as usize]);
                    if self.tables.missing[task as usize] == 0 {
                        self.release(task, record.release);
                    }
                }
            }
            Load::Tree { depth, work, .. } => {
                self.unfinished = 1;
                let mut rng = root.child("tree");
                let drawn = work.sample(&mut rng);
                self.tables.depths.push(*depth);
                self.add(drawn, 0);
            }
        }
    }

    /// A block for each worker is known beforehand, so its deque need not grow by doubling.
    fn reserve_deques(&mut self, count: usize) {
        let share = count.div_ceil(self.workers.len());
        match (&self.setup.placement, &self.setup.load) {
            (Placement::On(worker), Load::Pieces { .. })
            | (
                Placement::On(worker),
                Load::Stream {
                    arrivals: crate::Arrivals::AtOnce,
                    ..
                },
            ) => self.workers[*worker as usize].deque.reserve_exact(count),
            (Placement::Shared, _) => self.shared.reserve_exact(count),
            (
                Placement::RoundRobin | Placement::Blocks,
                Load::Pieces { .. }
                | Load::Stream {
                    arrivals: crate::Arrivals::AtOnce,
                    ..
                },
            ) => {
                for worker in &mut self.workers {
                    worker.deque.reserve_exact(share);
                }
            }
            _ => {}
        }
    }

    /// A task of a graph that waits for nothing but its release.
    fn release(&mut self, task: u32, moment: Nanos) {
        if moment > self.now {
            self.events.push(moment, Event::Release(task));
        } else {
            self.place_graph_task(task);
        }
    }

    fn place_graph_task(&mut self, task: u32) {
        let task = self.graph_task(task);
        self.place(task);
    }

    /// A task of a graph that is ready now.
    fn graph_task(&self, task: u32) -> Task {
        let Load::Graph(workload) = &self.setup.load else {
            unreachable!("only graphs release tasks")
        };
        Task {
            work: workload.tasks()[task as usize].work,
            ready: self.now,
            path: self.tables.paths[task as usize],
            id: task,
        }
    }

    fn plan_arrival(&mut self) {
        let Load::Stream { arrivals, .. } = &self.setup.load else {
            return;
        };
        while self.stream.left > 0 {
            let moment = arrivals.next(self.stream.last, &mut self.stream.moments);
            self.stream.last = moment;
            if moment > self.now {
                self.events.push(moment, Event::Arrival);
                return;
            }
            self.take_from_stream();
        }
    }

    fn arrive(&mut self) {
        self.take_from_stream();
        self.plan_arrival();
    }

    fn take_from_stream(&mut self) {
        let Load::Stream { work, .. } = &self.setup.load else {
            return;
        };
        self.stream.left -= 1;
        let work = work.sample(&mut self.stream.work);
        self.add(work, self.now);
    }

    /// A new task that is ready now.
    fn add(&mut self, work: Nanos, path: Nanos) {
        let id = self.tables.next_id();
        if self.has_children() {
            self.tables.seeds.push(self.stream.work.next_u64());
        }
        self.note_bounds(work, path);
        self.place(Task {
            work,
            ready: self.now,
            path,
            id,
        });
    }

    fn has_children(&self) -> bool {
        self.setup.spawning.is_some() || matches!(self.setup.load, Load::Tree { .. })
    }

    fn note_bounds(&mut self, work: Nanos, path: Nanos) {
        self.statistics.total_work += work;
        let end = path + scaled(work, self.top_speed);
        self.statistics.critical_path = self.statistics.critical_path.max(end);
    }

    /// Puts a ready task where the placement says.
    fn place(&mut self, task: Task) {
        if self.setup.placement == Placement::Shared {
            self.shared.push_back(task);
            self.queued += 1;
            self.wake_one();
            return;
        }
        let worker = self.choose_worker();
        self.observer.see(
            self.now,
            &Happening::Queued {
                worker,
                task: u64::from(task.id),
            },
        );
        self.push(worker, task);
        let hand = &self.workers[worker as usize];
        if hand.asleep {
            self.wake(worker);
        } else if hand.look_at != NEVER && hand.look_at > self.now {
            self.plan_look(worker, self.now);
        }
    }

    fn choose_worker(&mut self) -> u32 {
        let count = index_u32(self.workers.len());
        match &self.setup.placement {
            Placement::On(worker) => *worker,
            Placement::Random => self.placer.rng.below(u64::from(count)) as u32,
            Placement::LeastOf(choices) => self.least_of(*choices),
            Placement::Counts(counts) => {
                let index = self.placer.placed;
                self.placer.placed += 1;
                worker_of_counts(counts, index).unwrap_or_else(|| self.placer.turn(count))
            }
            Placement::Blocks => {
                let share = self.unfinished.div_ceil(u64::from(count)) as u32;
                self.placer.block(count, share)
            }
            Placement::RoundRobin | Placement::Shared => self.placer.turn(count),
        }
    }

    fn least_of(&mut self, choices: u32) -> u32 {
        let count = self.workers.len() as u64;
        let mut best = (usize::MAX, 0);
        for _ in 0..choices.max(1) {
            let worker = self.placer.rng.below(count) as u32;
            let load = self.workers[worker as usize].load();
            if load < best.0 {
                best = (load, worker);
            }
        }
        best.1
    }
}

/// What workers do.
impl<O: Observer> DequeWorld<'_, O> {
    fn push(&mut self, worker: u32, task: Task) {
        let worker = &mut self.workers[worker as usize];
        worker.deque.push_back(task);
        worker.totals.queue_max = worker.totals.queue_max.max(worker.deque.len());
        self.queued += 1;
        self.wake_one();
    }

    fn start(&mut self, worker: u32, task: Task) {
        self.observer.see(
            self.now,
            &Happening::Started {
                worker,
                task: u64::from(task.id),
            },
        );
        if task.ready >= self.setup.warm_up {
            self.statistics.waits.record(self.now - task.ready);
        }
        let hand = &mut self.workers[worker as usize];
        hand.task = Some(task);
        hand.started = self.now;
        let duration = scaled(task.work, hand.totals.speed);
        let end = self.now + self.setup.overhead + duration;
        match self.spawn_delay(duration) {
            Some(delay) => self
                .events
                .push(self.now + self.setup.overhead + delay, Event::Spawn(worker)),
            None => self.events.push(end, Event::Finish(worker)),
        }
    }

    /// How long into its run a task makes its children, for tasks that may have any.
    fn spawn_delay(&self, duration: Nanos) -> Option<Nanos> {
        match (&self.setup.load, &self.setup.spawning) {
            (Load::Tree { .. }, _) => Some(duration),
            (_, Some(spawning)) => Some((duration as f64 * spawning.at) as Nanos),
            _ => None,
        }
    }

    fn spawn(&mut self, worker: u32) {
        let hand = &self.workers[worker as usize];
        let (started, speed) = (hand.started, hand.totals.speed);
        let parent = hand.task.expect("only a running task has children");
        let mut rng = self.tables.rng(parent.id);
        let (children, at, work) = match (&self.setup.load, &self.setup.spawning) {
            (Load::Tree { fan_out, work, .. }, _) => {
                let deeper = self.tables.depths[parent.id as usize] > 0;
                (if deeper { *fan_out } else { 0 }, 1.0, *work)
            }
            (Load::Stream { work, .. }, Some(spawning)) => {
                (family(spawning, &mut rng), spawning.at, *work)
            }
            (_, Some(spawning)) => {
                let same = crate::Distribution::Fixed(crate::time::seconds(parent.work));
                (family(spawning, &mut rng), spawning.at, same)
            }
            (_, None) => unreachable!("only loads with children plan a spawn"),
        };
        let ahead = (scaled(parent.work, self.top_speed) as f64 * at) as Nanos;
        for _ in 0..children {
            let drawn = work.sample(&mut rng);
            self.add_child(worker, parent.id, drawn, parent.path + ahead, &mut rng);
        }
        let end = started + self.setup.overhead + scaled(parent.work, speed);
        self.events.push(end, Event::Finish(worker));
    }

    fn add_child(&mut self, worker: u32, parent: u32, work: Nanos, path: Nanos, rng: &mut Rng) {
        let id = self.tables.next_id();
        self.tables.seeds.push(rng.next_u64());
        if let Some(&depth) = self.tables.depths.get(parent as usize) {
            self.tables.depths.push(depth - 1);
        }
        self.unfinished += 1;
        self.statistics.spawned += 1;
        self.note_bounds(work, path);
        self.observer.see(
            self.now,
            &Happening::Spawned {
                worker,
                parent: u64::from(parent),
                child: u64::from(id),
            },
        );
        self.push(
            worker,
            Task {
                work,
                ready: self.now,
                path,
                id,
            },
        );
    }

    fn finish(&mut self, worker: u32) {
        let hand = &mut self.workers[worker as usize];
        let task = hand.task.take().expect("a worker finishes what it started");
        let busy = self.now - hand.started - self.setup.overhead;
        hand.totals.busy += busy;
        hand.totals.executed += 1;
        self.observer.see(
            self.now,
            &Happening::Finished {
                worker,
                task: u64::from(task.id),
                ok: true,
            },
        );
        self.statistics.durations.record(busy);
        if task.ready >= self.setup.warm_up {
            self.statistics.responses.record(self.now - task.ready);
        }
        self.unfinished -= 1;
        self.release_successors(worker, task.id);
        self.look(worker);
    }

    fn release_successors(&mut self, worker: u32, task: u32) {
        let setup = self.setup;
        let Load::Graph(workload) = &setup.load else {
            return;
        };
        for &successor in workload.successors(task) {
            let missing = &mut self.tables.missing[successor as usize];
            *missing -= 1;
            if *missing > 0 {
                continue;
            }
            let release = workload.tasks()[successor as usize].release;
            if release > self.now {
                self.events.push(release, Event::Release(successor));
                continue;
            }
            self.observer.see(
                self.now,
                &Happening::Queued {
                    worker,
                    task: u64::from(successor),
                },
            );
            let successor = self.graph_task(successor);
            self.push(worker, successor);
        }
    }

    fn plan_look(&mut self, worker: u32, moment: Nanos) {
        self.workers[worker as usize].look_at = moment;
        self.events.push(moment, Event::Look(worker));
    }

    /// A look that was planned, unless it was called off for an earlier one.
    fn planned_look(&mut self, worker: u32) {
        let hand = &mut self.workers[worker as usize];
        if hand.look_at == self.now {
            hand.look_at = NEVER;
            self.look(worker);
        }
    }

    /// The worker has nothing in hand: own deque, shared queue, then others.
    fn look(&mut self, worker: u32) {
        let hand = &mut self.workers[worker as usize];
        let own = match self.setup.owner_end {
            OwnerEnd::Newest => hand.deque.pop_back(),
            OwnerEnd::Oldest => hand.deque.pop_front(),
        };
        hand.read_ahead = hand.deque.back().map_or(0, |next| next.work);
        if let Some(task) = own.or_else(|| self.shared.pop_front()) {
            self.queued -= 1;
            self.start(worker, task);
        } else if let Some(stealing) = &self.setup.stealing {
            self.search(worker, stealing);
        } else {
            self.sleep(worker);
        }
    }

    /// One round of probes, and at once the next as long as they cost nothing and patience lasts.
    fn search(&mut self, worker: u32, stealing: &Stealing) {
        loop {
            let (target, cost) = self.probe(worker, stealing);
            self.workers[worker as usize].target = target;
            if cost > 0 {
                self.events.push(self.now + cost, Event::Land(worker));
                return;
            }
            if target != NONE && self.rob(worker, target, stealing) {
                return;
            }
            if !self.search_again(worker, stealing) {
                return;
            }
        }
    }

    /// Walks one round; the victim to go to (or none) and what the walk costs.
    fn probe(&mut self, worker: u32, stealing: &Stealing) -> (u32, Nanos) {
        let workers = &self.workers;
        let topology = &self.setup.topology;
        let thief = &mut self.thieves[worker as usize];
        let length = |victim: usize| workers[victim].deque.len();
        let mut cost = 0;
        let round = thief.victims.round(topology, &mut thief.rng, length);
        for victim in round.take(stealing.probes) {
            cost += self.even_cost.unwrap_or_else(|| {
                stealing.probe_costs[topology.distance(worker as usize, victim) as usize]
            });
            if length(victim) > 0 {
                return (victim as u32, cost);
            }
        }
        (NONE, cost)
    }

    fn land(&mut self, worker: u32) {
        let Some(stealing) = &self.setup.stealing else {
            unreachable!("only a thief lands")
        };
        let hand = &mut self.workers[worker as usize];
        let target = std::mem::replace(&mut hand.target, NONE);
        if !hand.deque.is_empty() {
            self.workers[worker as usize].totals.searches += 1;
            self.look(worker); // Something was put into its own deque meanwhile.
        } else if !(target != NONE && self.rob(worker, target, stealing))
            && self.search_again(worker, stealing)
        {
            self.search(worker, stealing);
        }
    }

    /// Takes from the thief's end of the victim's deque; false when there is nothing to take.
    fn rob(&mut self, worker: u32, victim: u32, stealing: &Stealing) -> bool {
        let available = self.workers[victim as usize].deque.len();
        let count = stealing.amount.take(available);
        if count == 0 {
            return false;
        }
        let first = self.take_stolen(victim, worker);
        self.queued -= 1;
        for _ in 1..count {
            let task = self.take_stolen(victim, worker);
            self.workers[worker as usize].deque.push_back(task);
            self.wake_one();
        }
        self.workers[victim as usize].totals.robbed += count as u64;
        let totals = &mut self.workers[worker as usize].totals;
        totals.stolen += count as u64;
        totals.searches += 1;
        totals.queue_max = totals.queue_max.max(count - 1);
        self.statistics.successful_searches += 1;
        let thief = &mut self.thieves[worker as usize];
        thief.backoff.reset();
        thief.victims.found();
        self.start(worker, first);
        true
    }

    fn take_stolen(&mut self, victim: u32, worker: u32) -> Task {
        let deque = &mut self.workers[victim as usize].deque;
        let task = match self.setup.owner_end {
            OwnerEnd::Newest => deque.pop_front(),
            OwnerEnd::Oldest => deque.pop_back(),
        };
        let task = task.expect("the amount is at most what is there");
        self.observer.see(
            self.now,
            &Happening::Moved {
                from: victim,
                to: worker,
                task: u64::from(task.id),
                stolen: true,
            },
        );
        task
    }

    /// After a round in vain: true to search again at once; otherwise the next look is planned.
    fn search_again(&mut self, worker: u32, stealing: &Stealing) -> bool {
        self.workers[worker as usize].totals.searches += 1;
        self.observer
            .see(self.now, &Happening::FoundNothing { worker });
        let thief = &mut self.thieves[worker as usize];
        let pause = match stealing.idle {
            Idle::Once => None,
            Idle::Poll(interval) => Some(interval),
            Idle::Backoff(patience) => match thief.backoff.next(&patience, &mut thief.rng) {
                Step::Search => return true,
                Step::Pause { ns } => Some(ns.max(1)),
                // What it cannot see now it will be woken for, unless it is there already.
                Step::Park if self.queued > 0 => {
                    Some(patience.delay.longest_ns(patience.pauses).max(1))
                }
                Step::Park => None,
            },
        };
        match pause {
            Some(pause) => self.plan_look(worker, self.now + pause),
            None => self.sleep(worker),
        }
        false
    }

    fn sleep(&mut self, worker: u32) {
        self.observer.see(self.now, &Happening::Parked { worker });
        self.workers[worker as usize].asleep = true;
        if self.wakes_anyone() {
            self.sleepers.push(worker);
        }
    }

    /// Whether new work anywhere wakes a sleeper: not if it could not take it, or would not try.
    fn wakes_anyone(&self) -> bool {
        let shares = self.setup.placement == Placement::Shared;
        match &self.setup.stealing {
            None => shares,
            Some(stealing) => shares || stealing.idle != Idle::Once,
        }
    }

    /// One new task wakes at most one worker.
    fn wake_one(&mut self) {
        while let Some(worker) = self.sleepers.pop() {
            if self.workers[worker as usize].asleep {
                self.wake(worker);
                return;
            }
        }
    }

    fn wake(&mut self, worker: u32) {
        self.workers[worker as usize].asleep = false;
        self.thieves[worker as usize].backoff.reset();
        let latency = self
            .setup
            .stealing
            .as_ref()
            .map_or(0, |stealing| stealing.wake_latency);
        self.plan_look(worker, self.now + latency);
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
}

fn worker_of_counts(counts: &[u32], mut index: u32) -> Option<u32> {
    for (worker, &count) in counts.iter().enumerate() {
        if index < count {
            return Some(worker as u32);
        }
        index -= count;
    }
    None
}

fn family(spawning: &Spawning, rng: &mut Rng) -> u32 {
    let (least, most) = spawning.children;
    if rng.chance(spawning.chance) {
        least + rng.below(u64::from(most - least) + 1) as u32
    } else {
        0
    }
}

fn thieves(setup: &DequeSetup, root: &Rng) -> Vec<Thief> {
    let Some(stealing) = &setup.stealing else {
        return setup
            .speeds
            .iter()
            .enumerate()
            .map(|(worker, _)| Thief::new(setup, root, worker, loxley_balance::VictimOrder::Random))
            .collect();
    };
    (0..setup.speeds.len())
        .map(|worker| Thief::new(setup, root, worker, stealing.order))
        .collect()
}

impl Thief {
    fn new(
        setup: &DequeSetup,
        root: &Rng,
        worker: usize,
        order: loxley_balance::VictimOrder,
    ) -> Self {
        Self {
            victims: Victims::new(order, &setup.topology, worker),
            backoff: Backoff::default(),
            rng: root.numbered_child("thief", worker as u64),
        }
    }
}
