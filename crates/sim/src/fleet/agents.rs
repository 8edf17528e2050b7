//! What agents do: register, run what they are given, give it back, ask for more.

use loxley_model::{Dispatch, Failure, Lease, Outcome, TaskId};

use super::agent_model::{GiveUp, Held, Running};
use super::network::Body;
use super::{Event, FleetWorld, NOWHERE};
use crate::observer::{Happening, Observer};
use crate::time::Nanos;

impl<O: Observer> FleetWorld<'_, O> {
    pub(super) fn start_agent(&mut self, agent: u32) {
        let model = &mut self.agents[agent as usize];
        if model.up {
            return;
        }
        model.up = true;
        self.observer
            .see(self.now, &Happening::Joined { worker: agent });
        self.register(agent);
    }

    fn register(&mut self, agent: u32) {
        let model = &mut self.agents[agent as usize];
        model.begin_session();
        let session = model.session;
        let want = match model.dispatch {
            Dispatch::OnRequest => model.slots,
            Dispatch::KeepFull => 0,
        };
        self.send(agent, Body::Join(want));
        if let Some(interval) = self.setup.agents[agent as usize].heartbeat {
            let jitter = self.chance.heartbeats.below(interval.max(1));
            self.events
                .push(self.now + jitter, Event::Heartbeat(agent, session));
        }
    }

    pub(super) fn heartbeat(&mut self, agent: u32, session: u32) {
        let model = &self.agents[agent as usize];
        if !model.up || model.session != session {
            return;
        }
        self.send(agent, Body::Heartbeat);
        if let Some(interval) = self.setup.agents[agent as usize].heartbeat {
            self.events
                .push(self.now + interval, Event::Heartbeat(agent, session));
        }
    }

    pub(super) fn ask_for_work(&mut self, agent: u32) {
        let model = &self.agents[agent as usize];
        if model.dispatch == Dispatch::OnRequest && model.up {
            let want = model.free_slots();
            if want > 0 {
                self.send(agent, Body::Want(want));
            }
        }
    }

    pub(super) fn deliver_to_agent(&mut self, agent: u32, session: u32, body: Body) {
        let model = &mut self.agents[agent as usize];
        if !model.up || model.session != session {
            return;
        }
        match body {
            Body::Assign(held) => {
                let priority_of = |task: TaskId| self.tasks.priority(task);
                if model.take(held, priority_of) {
                    self.run_next(agent);
                }
            }
            Body::Retract(held, running) => self.give_back(agent, held, running),
            Body::Cancel(held) => {
                if model.give_up(held.lease) == GiveUp::Running {
                    self.stop(agent, held.lease);
                    self.run_next(agent);
                }
                self.ask_after_the_news(agent);
            }
            Body::Rejoin => {
                self.stop_everything(agent);
                self.register(agent);
            }
            _ => unreachable!("{body:?} is not for an agent"),
        }
    }

    fn give_back(&mut self, agent: u32, held: Held, running: bool) {
        let yielded = match self.agents[agent as usize].give_up(held.lease) {
            GiveUp::Waiting | GiveUp::Unseen => true,
            GiveUp::Running if running => {
                self.save_checkpoint(agent, held.lease);
                self.stop(agent, held.lease);
                self.run_next(agent);
                true
            }
            GiveUp::Running | GiveUp::Gone => false,
        };
        self.send(agent, Body::Yielded(held, yielded));
        self.ask_after_the_news(agent);
    }

    /// Notes what a running task has done so far; whoever runs it next goes on from there.
    fn save_checkpoint(&mut self, agent: u32, lease: Lease) {
        let model = &self.agents[agent as usize];
        let Some(run) = model.running.iter().find(|run| run.held.lease == lease) else {
            return;
        };
        let task = run.held.task;
        if self.tasks.checkpoints(task) {
            let done = self.tasks.work(task).saturating_sub(run.left_at(self.now));
            let saved = self.saved.entry(task).or_default();
            *saved = (*saved).max(done);
        }
    }

    fn run_next(&mut self, agent: u32) {
        while let Some(held) = self.agents[agent as usize].next_to_run() {
            let run = self.begin_run(agent, held);
            self.agents[agent as usize].running.push(run);
            self.note_start(agent, held.task);
            self.events.push(run.ends, Event::Finish(agent, held.lease));
            self.send(agent, Body::Started(held));
        }
    }

    fn begin_run(&mut self, agent: u32, held: Held) -> Running {
        let saved = self.saved.get(&held.task).copied().unwrap_or(0);
        let ended = self.books[held.task.0 as usize].ended;
        let work = match self.tasks.attempt(held.task, ended) {
            Some(attempt) => attempt.work,
            None => self.tasks.work(held.task),
        };
        let left = work.saturating_sub(saved);
        let duration = self.duration(agent, left);
        let limit = self.tasks.behaviour(held.task).time_limit;
        let duration = duration.min(limit.unwrap_or(Nanos::MAX));
        Running::new(held, self.now, left, duration)
    }

    fn duration(&mut self, agent: u32, work: Nanos) -> Nanos {
        let model = &self.agents[agent as usize];
        let mut duration = work as f64 / model.speed;
        if model.is_fickle {
            let (chance, factor) = self.setup.agents[agent as usize].straggler;
            if chance > 0.0 && self.chance.stragglers.chance(chance) {
                duration *= factor;
            }
        }
        libm::ceil(duration) as Nanos
    }

    fn note_start(&mut self, agent: u32, task: TaskId) {
        let books = &mut self.books[task.0 as usize];
        books.runs += 1;
        if books.at == agent {
            books.at = NOWHERE;
            self.queue_lengths[agent as usize] -= 1;
        }
        if !books.waited && books.ready <= self.now {
            books.waited = true;
            self.statistics.waits.record(self.now - books.ready);
        }
        self.observer.see(
            self.now,
            &Happening::Started {
                worker: agent,
                task: task.0,
            },
        );
    }

    pub(super) fn finish(&mut self, agent: u32, lease: Lease) {
        let Some(run) = self.agents[agent as usize].finish(lease, self.now) else {
            return; // It was stopped before its end, or its end has moved.
        };
        let took = self.now - run.started;
        self.totals[agent as usize].busy += took;
        self.statistics.durations.record(took);
        let outcome = self.outcome(agent, run.held.task, took);
        self.observer.see(
            self.now,
            &Happening::Finished {
                worker: agent,
                task: run.held.task.0,
                ok: outcome == Outcome::Succeeded,
            },
        );
        self.send(agent, Body::Finished(run.held, outcome));
        self.run_next(agent);
        self.ask_after_the_news(agent);
    }

    /// How an attempt ends that took so long.
    fn outcome(&mut self, agent: u32, task: TaskId, took: Nanos) -> Outcome {
        let behaviour = self.tasks.behaviour(task);
        if behaviour.time_limit.is_some_and(|limit| took >= limit) {
            return Outcome::Failed(Failure::TimeLimit);
        }
        if let Some(attempt) = self.tasks.attempt(task, self.books[task.0 as usize].ended) {
            self.books[task.0 as usize].ended += 1;
            return attempt.outcome;
        }
        let is_told_to_fail = self.books[task.0 as usize].runs <= behaviour.failures;
        let fails_by_chance = self.agents[agent as usize].is_fickle && self.fails(agent);
        if is_told_to_fail || fails_by_chance {
            return Outcome::Failed(Failure::Error);
        }
        Outcome::Succeeded
    }

    /// Whether chance has an attempt of this agent fail.
    fn fails(&mut self, agent: u32) -> bool {
        let failure = self.setup.agents[agent as usize].failure;
        failure > 0.0 && self.chance.failures.chance(failure)
    }

    /// Where nothing takes any time, all that ends at this moment is told before anybody asks.
    fn ask_after_the_news(&mut self, agent: u32) {
        let asks = self.agents[agent as usize].dispatch == Dispatch::OnRequest;
        if asks && self.instant {
            self.events.push(self.now, Event::Ask(agent));
        } else {
            self.ask_for_work(agent);
        }
    }

    fn stop(&mut self, agent: u32, lease: Lease) {
        if let Some(run) = self.agents[agent as usize].end(lease) {
            self.totals[agent as usize].busy += self.now - run.started;
            self.observer.see(
                self.now,
                &Happening::Stopped {
                    worker: agent,
                    task: run.held.task.0,
                },
            );
        }
    }

    pub(super) fn stop_everything(&mut self, agent: u32) {
        while let Some(run) = self.agents[agent as usize].running.last() {
            let lease = run.held.lease;
            self.stop(agent, lease);
        }
        self.agents[agent as usize].backlog.clear();
    }
}
