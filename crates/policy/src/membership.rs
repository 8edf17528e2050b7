//! Agents come, go, fall silent and are heard again.

use alloc::vec::Vec;

use loxley_model::{AgentId, AgentSpec, Failure};

use crate::leases::Held;
use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::{reject, report};
use crate::tasks::State;
use crate::timers::Alarm;
use crate::view::Liveness;
use crate::{Action, CancelReason, Ending, InputError, Leftovers, Report, Scheduler, Vitals};

/// The tasks of an agent that is gone.
#[derive(Debug)]
struct Bequest {
    /// What it held a lease for.
    in_hand: Vec<TaskRef>,
    /// What was on its queue, in order.
    queued: Vec<TaskRef>,
}

impl Bequest {
    fn all(self) -> impl Iterator<Item = TaskRef> {
        self.in_hand.into_iter().chain(self.queued)
    }
}

impl Scheduler {
    pub(crate) fn agent_joined(&mut self, spec: AgentSpec, actions: &mut Vec<Action>) {
        if spec.slots == 0 {
            return reject(InputError::NoSlots(spec.id), actions);
        }
        if !(spec.speed > 0.0 && spec.speed.is_finite()) {
            return reject(InputError::BadSpeed(spec.id), actions);
        }
        let earlier = self
            .agents
            .find(spec.id)
            .map(|agent| self.dismiss(agent, actions));
        let (id, heartbeats) = (spec.id, spec.heartbeats);
        for key in &spec.holds {
            self.locations.insert(*key, id);
        }
        let agent = self.agents.insert(spec, self.now);
        self.refresh(agent);
        if heartbeats {
            let alarm = Alarm::Liveness(id, self.agents[agent].incarnation);
            self.timers
                .set(self.now + self.config.heartbeats.suspect_after, alarm);
        }
        if let Some(tasks) = earlier {
            self.rescue(tasks, actions);
        }
        self.release_held(actions);
        self.feed(agent, actions);
    }

    pub(crate) fn agent_left(
        &mut self,
        id: AgentId,
        leftovers: Leftovers,
        actions: &mut Vec<Action>,
    ) {
        let Some(agent) = self.agents.find(id) else {
            return reject(InputError::UnknownAgent(id), actions);
        };
        let tasks = self.dismiss(agent, actions);
        match leftovers {
            Leftovers::Requeue => {
                report(
                    Report::AgentLeft {
                        agent: id,
                        returned: Vec::new(),
                    },
                    actions,
                );
                for task in tasks.all() {
                    self.place(task, None, actions);
                }
            }
            Leftovers::Return => {
                let tasks: Vec<TaskRef> = tasks.all().collect();
                let returned = tasks.iter().map(|task| self.tasks[*task].id).collect();
                report(
                    Report::AgentLeft {
                        agent: id,
                        returned,
                    },
                    actions,
                );
                for task in tasks {
                    self.end_task(task, Ending::Returned, actions);
                }
            }
        }
    }

    /// Takes an agent off the books. Returns the tasks that are on no agent now.
    fn dismiss(&mut self, agent: AgentRef, actions: &mut Vec<Action>) -> Bequest {
        self.agents[agent].liveness = Liveness::Draining;
        self.agents.set_hungry(agent, false);
        self.refresh(agent);
        let mut in_hand = Vec::new();
        let id = self.agents[agent].id;
        for held in self.agents[agent].in_hand.clone() {
            let reason = CancelReason::LeaseVoid;
            let lease = held.lease;
            actions.push(Action::Cancel {
                task: self.tasks[held.task].id,
                agent: id,
                lease,
                reason,
            });
            let which = if self.tasks[held.task].lease == lease {
                Held::First
            } else {
                Held::Copy
            };
            self.drop_lease(held.task, which, actions);
            if !self.tasks[held.task].has_lease() {
                in_hand.push(held.task);
            }
        }
        let queued = self.agents[agent].queue.in_order(&self.tasks);
        for task in &queued {
            self.unqueue(*task);
            self.set_state(*task, State::Waiting);
        }
        self.probes.retain(|(_, probed)| *probed != agent);
        for group in self.limits.groups.values_mut() {
            group.turned_away.remove(&agent);
        }
        let gone = self.agents.remove(agent);
        self.backlogged.remove(&(gone.listed_backlog, agent));
        Bequest { in_hand, queued }
    }

    /// Finds new agents for the tasks of one that was lost.
    fn rescue(&mut self, tasks: Bequest, actions: &mut Vec<Action>) {
        /// A task that was in the hands of so many lost agents may be what kills them.
        const LOSSES_MAX: u8 = 5;
        for task in tasks.in_hand {
            let losses = &mut self.tasks[task].extra_mut().losses;
            *losses += 1;
            if *losses >= LOSSES_MAX {
                self.end_task(task, Ending::Failed(Failure::AgentLost), actions);
            } else {
                self.place(task, None, actions);
            }
        }
        for task in tasks.queued {
            self.place(task, None, actions);
        }
    }

    pub(crate) fn agent_drained(&mut self, id: AgentId, actions: &mut Vec<Action>) {
        let Some(agent) = self.agents.find(id) else {
            return reject(InputError::UnknownAgent(id), actions);
        };
        self.set_liveness(agent, Liveness::Draining);
        for task in self.agents[agent].queue.in_order(&self.tasks) {
            // Whoever got the one before may have taken this one too.
            if self.is_queued_at(task, agent) {
                self.unqueue(task);
                self.place(task, None, actions);
            }
        }
    }

    pub(crate) fn agent_heard(&mut self, id: AgentId, vitals: Vitals, actions: &mut Vec<Action>) {
        let Some(agent) = self.agents.find(id) else {
            return reject(InputError::UnknownAgent(id), actions);
        };
        if !(0.0..=1.0).contains(&vitals.throttle) {
            return reject(InputError::BadThrottle(id), actions);
        }
        let this = &mut self.agents[agent];
        this.last_heard = self.now;
        this.throttle = vitals.throttle;
        this.round_trip = vitals.round_trip;
        if this.liveness == Liveness::Suspected {
            self.set_liveness(agent, Liveness::Alive);
            report(Report::AgentRecovered(id), actions);
            let alarm = Alarm::Liveness(id, self.agents[agent].incarnation);
            self.timers
                .set(self.now + self.config.heartbeats.suspect_after, alarm);
            self.release_held(actions);
        } else {
            self.refresh(agent);
        }
        self.feed(agent, actions);
    }

    /// The driver knows that an agent cannot be reached: no need to wait for its next heartbeat. It was
    /// there until now, so it has as long to come back as one that falls silent.
    pub(crate) fn agent_silent(&mut self, id: AgentId, actions: &mut Vec<Action>) {
        let Some(agent) = self.agents.find(id) else {
            return reject(InputError::UnknownAgent(id), actions);
        };
        self.agents[agent].last_heard = self.now;
        if self.agents[agent].liveness == Liveness::Alive {
            self.set_liveness(agent, Liveness::Suspected);
            report(Report::AgentSuspected(id), actions);
        }
    }

    /// Silence: first an agent gets nothing new, then it is given up.
    pub(crate) fn check_liveness(
        &mut self,
        id: AgentId,
        incarnation: u32,
        actions: &mut Vec<Action>,
    ) {
        let Some(agent) = self.agent_of(id, incarnation) else {
            return;
        };
        let rules = self.config.heartbeats;
        let heard = self.agents[agent].last_heard;
        let alarm = Alarm::Liveness(id, incarnation);
        if self.now < heard + rules.suspect_after {
            self.timers.set(heard + rules.suspect_after, alarm);
        } else if self.now < heard + rules.lost_after {
            if self.agents[agent].liveness == Liveness::Alive {
                self.set_liveness(agent, Liveness::Suspected);
                report(Report::AgentSuspected(id), actions);
            }
            self.timers.set(heard + rules.lost_after, alarm);
        } else {
            report(Report::AgentLost(id), actions);
            let tasks = self.dismiss(agent, actions);
            self.rescue(tasks, actions);
        }
    }

    fn set_liveness(&mut self, agent: AgentRef, liveness: Liveness) {
        self.agents[agent].liveness = liveness;
        if liveness != Liveness::Alive {
            self.agents.set_hungry(agent, false);
        }
        self.refresh(agent);
    }
}
