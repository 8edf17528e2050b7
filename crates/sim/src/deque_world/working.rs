//! What workers do: start, make children, finish, look for the next task.

use super::setup::{Load, OwnerEnd};
use super::tasks::{Task, scaled};
use super::{DequeWorld, Event, NEVER, family};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

impl<O: Observer> DequeWorld<'_, O> {
    pub(super) fn push(&mut self, worker: u32, task: Task) {
        let hand = &mut self.workers[worker as usize];
        hand.deque.push_back(task);
        hand.totals.queue_max = hand.totals.queue_max.max(hand.deque.len());
        self.note_length(worker);
        self.queued += 1;
        self.wake_one();
    }

    pub(super) fn start(&mut self, worker: u32, task: Task) {
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

    pub(super) fn spawn(&mut self, worker: u32) {
        let hand = &self.workers[worker as usize];
        let (started, speed) = (hand.started, hand.totals.speed);
        let parent = hand.task.expect("only a running task has children");
        let (mut rng, depth) = self.tables.take_family(parent.family);
        let depth_below = depth.and_then(|depth| depth.checked_sub(1));
        let (children, at, work) = match (&self.setup.load, &self.setup.spawning) {
            (Load::Tree { fan_out, work, .. }, _) => {
                (depth_below.map_or(0, |_| *fan_out), 1.0, *work)
            }
            (Load::Stream { work, .. }, Some(spawning)) => (
                family(spawning, &mut rng),
                spawning.at,
                spawning.work.unwrap_or(*work),
            ),
            (_, Some(spawning)) => {
                let same = crate::Distribution::Fixed(crate::time::seconds(parent.work));
                (
                    family(spawning, &mut rng),
                    spawning.at,
                    spawning.work.unwrap_or(same),
                )
            }
            (_, None) => unreachable!("only loads with children plan a spawn"),
        };
        let ahead = (scaled(parent.work, self.top_speed) as f64 * at) as Nanos;
        for _ in 0..children {
            let drawn = work.sample(&mut rng);
            let family = self.tables.found_family(rng.next_u64(), depth_below);
            self.add_child(worker, &parent, drawn, parent.path + ahead, family);
        }
        let end = started + self.setup.overhead + scaled(parent.work, speed);
        self.events.push(end, Event::Finish(worker));
    }

    fn add_child(&mut self, worker: u32, parent: &Task, work: Nanos, path: Nanos, family: u32) {
        let id = self.tables.next_id();
        self.unfinished += 1;
        self.statistics.spawned += 1;
        self.note_bounds(work, path);
        self.observer.see(
            self.now,
            &Happening::Spawned {
                worker,
                parent: u64::from(parent.id),
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
                family,
            },
        );
    }

    pub(super) fn finish(&mut self, worker: u32) {
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

    pub(super) fn plan_look(&mut self, worker: u32, moment: Nanos) {
        self.workers[worker as usize].look_at = moment;
        self.events.push(moment, Event::Look(worker));
    }

    /// A look that was planned, unless it was called off for an earlier one.
    pub(super) fn planned_look(&mut self, worker: u32) {
        let hand = &mut self.workers[worker as usize];
        if hand.look_at == self.now {
            hand.look_at = NEVER;
            self.look(worker);
        }
    }

    /// The worker has nothing in hand: own deque, shared queue, then others.
    pub(super) fn look(&mut self, worker: u32) {
        let hand = &mut self.workers[worker as usize];
        let own = match self.setup.owner_end {
            OwnerEnd::Newest => hand.deque.pop_back(),
            OwnerEnd::Oldest => hand.deque.pop_front(),
        };
        hand.read_ahead = hand.deque.back().map_or(0, |next| next.work);
        if own.is_some() {
            self.note_length(worker);
        }
        if let Some(task) = own.or_else(|| self.shared.pop_front()) {
            self.queued -= 1;
            self.start(worker, task);
        } else if let Some(stealing) = &self.setup.stealing {
            self.search(worker, stealing);
        } else {
            self.sleep(worker);
        }
    }
}
