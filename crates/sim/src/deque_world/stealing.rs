//! What idle workers do: probe, rob, back off, sleep and wake.

use loxley_balance::Step;

use super::setup::{Idle, OwnerEnd, Placement, Stealing};
use super::tasks::Task;
use super::{DequeWorld, Event, NONE};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

impl<O: Observer> DequeWorld<'_, O> {
    /// One round of probes, and at once the next as long as they cost nothing and patience lasts.
    pub(super) fn search(&mut self, worker: u32, stealing: &Stealing) {
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

    /// Decides one round; the victim to go to (or none) and what the walk there costs.
    fn probe(&mut self, worker: u32, stealing: &Stealing) -> (u32, Nanos) {
        let thief = &mut self.thieves[worker as usize];
        let round = thief.victims.decide_round(
            &self.setup.topology,
            &mut thief.rng,
            &self.queues,
            stealing.probes,
        );
        let cost = match self.even_cost {
            Some(cost) => cost * u64::from(round.probes),
            None => std::iter::zip(stealing.probe_costs, round.probes_by_distance())
                .map(|(cost, probes)| cost * u64::from(probes))
                .sum(),
        };
        (round.victim.map_or(NONE, |victim| victim as u32), cost)
    }

    /// Whoever changes a deque says so.
    #[inline]
    pub(super) fn note_length(&mut self, worker: u32) {
        if self.setup.stealing.is_some() {
            let length = self.workers[worker as usize].deque.len();
            self.queues.set(worker as usize, length);
        }
    }

    pub(super) fn land(&mut self, worker: u32) {
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
        self.note_length(victim);
        self.note_length(worker);
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
                given: false,
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

    pub(super) fn sleep(&mut self, worker: u32) {
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
    pub(super) fn wake_one(&mut self) {
        while let Some(worker) = self.sleepers.pop() {
            if self.workers[worker as usize].asleep {
                self.wake(worker);
                return;
            }
        }
    }

    pub(super) fn wake(&mut self, worker: u32) {
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
