//! Agents come, go, fall silent and are heard again.

use alloc::vec::Vec;

use loxley_model::{AgentId, AgentSpec, Failure, Span, Time};

use crate::leases::Held;
use crate::refs::{AgentRef, TaskRef};
use crate::scheduler::{reject, report};
use crate::timers::Alarm;
use crate::view::Liveness;
use crate::{
    Action, CancelReason, Ending, Heartbeats, InputError, Leftovers, Report, Scheduler, Vitals,
};

/// The tasks of an agent that is gone.
#[derive(Debug)]
struct Bequest {
    /// What it held a lease for.
    in_hand: Vec<TaskRef>,
    /// What it had been told to end: that is over now.
    called_off: Vec<TaskRef>,
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
        let earlier = self.derived.fleet.find(spec.id);
        if let Some(earlier) = earlier {
            let tasks = self.dismiss(earlier, actions);
            self.rescue(tasks, actions);
        }
        let (id, heartbeats) = (spec.id, spec.heartbeats);
        for key in &spec.holds {
            self.facts.locations.insert(*key, id);
        }
        let agent = self.facts.agents.insert(spec, self.facts.now);
        self.derived.fleet.join(&self.facts, agent);
        self.join_cohort(agent);
        if heartbeats {
            self.watch_liveness(
                agent,
                self.facts.now + self.facts.config.heartbeats.suspect_after,
            );
        }
        self.marks.release_held();
        self.mark_agent(agent);
    }

    pub(crate) fn agent_left(
        &mut self,
        id: AgentId,
        leftovers: Leftovers,
        actions: &mut Vec<Action>,
    ) {
        let Some(agent) = self.find_agent(id, actions) else {
            return;
        };
        let mut tasks = self.dismiss(agent, actions);
        for task in core::mem::take(&mut tasks.called_off) {
            self.conclude(task, actions);
        }
        if leftovers == Leftovers::Requeue {
            self.end_what_runs_once(&mut tasks.in_hand, actions);
        }
        let tasks: Vec<TaskRef> = tasks.all().collect();
        let returned = match leftovers {
            Leftovers::Requeue => Vec::new(),
            Leftovers::Return => tasks
                .iter()
                .map(|task| self.facts.tasks[*task].id)
                .collect(),
        };
        let left = Report::AgentLeft {
            agent: id,
            returned,
        };
        report(left, actions);
        for task in tasks {
            match leftovers {
                Leftovers::Requeue => self.mark_ready(task, None),
                Leftovers::Return => self.end_task(task, Ending::Returned, actions),
            }
        }
    }

    /// Takes an agent off the books. Returns the tasks that are on no agent now.
    fn dismiss(&mut self, agent: AgentRef, actions: &mut Vec<Action>) -> Bequest {
        let (mut in_hand, mut called_off) = (Vec::new(), Vec::new());
        for held in self.derived.fleet.hand(agent).in_hand().to_vec() {
            let which = if self.facts.tasks[held.task].lease == held.lease {
                Held::First
            } else {
                Held::Copy
            };
            let was_called_off = self.is_called_off(held.task, which);
            self.revoke(held.task, which, CancelReason::LeaseVoid, actions);
            match self.facts.tasks[held.task].has_lease() {
                true => {}
                false if was_called_off => called_off.push(held.task),
                false => in_hand.push(held.task),
            }
        }
        let queued = self
            .derived
            .fleet
            .hand(agent)
            .queue
            .in_order(&self.facts.tasks);
        for task in &queued {
            self.unqueue(*task);
        }
        self.derived.probes.retain(|(_, probed)| *probed != agent);
        self.facts.limits.forget_agent(agent);
        self.facts.overdue.remove(&agent);
        self.leave_cohort(agent);
        self.derived.fleet.leave(agent, &self.facts.agents[agent]);
        self.facts.agents.remove(agent);
        Bequest {
            in_hand,
            called_off,
            queued,
        }
    }

    /// Finds new agents for the tasks of one that was lost.
    fn rescue(&mut self, tasks: Bequest, actions: &mut Vec<Action>) {
        for task in tasks.called_off {
            self.conclude(task, actions);
        }
        for task in tasks.in_hand {
            self.lost_in_hand(task, actions);
        }
        for task in tasks.queued {
            self.mark_ready(task, None);
        }
    }

    /// A task was in the hands of an agent that is lost: it goes to another one, unless it must not run twice.
    pub(crate) fn lost_in_hand(&mut self, task: TaskRef, actions: &mut Vec<Action>) {
        /// A task that was in the hands of so many lost agents may be what kills them.
        const LOSSES_MAX: u8 = 5;
        let losses = &mut self.facts.tasks[task].extra_mut().losses;
        *losses += 1;
        if *losses >= LOSSES_MAX || self.runs_once(task) {
            self.end_task(task, Ending::Failed(Failure::AgentLost), actions);
        } else {
            self.mark_ready(task, None);
        }
    }

    fn runs_once(&self, task: TaskRef) -> bool {
        let kind = self.facts.tasks[task].kind;
        self.facts.classes.kind_at(kind).spec.once
    }

    /// Of what an agent had that left, ends what must not run again: nobody knows whether it had begun.
    fn end_what_runs_once(&mut self, tasks: &mut Vec<TaskRef>, actions: &mut Vec<Action>) {
        let (once, others) = tasks.iter().partition(|task| self.runs_once(**task));
        *tasks = others;
        let once: Vec<TaskRef> = once;
        for task in once {
            self.end_task(task, Ending::Failed(Failure::AgentLost), actions);
        }
    }

    pub(crate) fn agent_drained(&mut self, id: AgentId, actions: &mut Vec<Action>) {
        let Some(agent) = self.find_agent(id, actions) else {
            return;
        };
        self.set_liveness(agent, Liveness::Draining);
        for task in self
            .derived
            .fleet
            .hand(agent)
            .queue
            .in_order(&self.facts.tasks)
        {
            self.unqueue(task);
            self.mark_ready(task, None);
        }
    }

    pub(crate) fn agent_heard(&mut self, id: AgentId, vitals: Vitals, actions: &mut Vec<Action>) {
        let Some(agent) = self.find_agent(id, actions) else {
            return;
        };
        if !(0.0..=1.0).contains(&vitals.throttle) {
            return reject(InputError::BadThrottle(id), actions);
        }
        let this = &mut self.facts.agents[agent];
        this.last_heard = self.facts.now;
        let was_excused = core::mem::take(&mut this.patience_until) != Time::ZERO;
        this.throttle = vitals.throttle;
        this.round_trip = vitals.round_trip;
        if was_excused {
            self.watch_liveness(
                agent,
                self.facts.now + self.facts.config.heartbeats.suspect_after,
            );
        }
        if self.facts.agents[agent].liveness == Liveness::Suspected {
            self.set_liveness(agent, Liveness::Alive);
            report(Report::AgentRecovered(id), actions);
            self.watch_liveness(
                agent,
                self.facts.now + self.facts.config.heartbeats.suspect_after,
            );
            self.marks.release_held();
            self.ask_back_again(agent, actions);
            // What lies in its hands can be asked back again.
            self.marks.ask_back();
        }
        self.agent_learned(agent);
        self.mark_agent(agent);
    }

    /// An agent is back, perhaps over another connection: what it was asked to give back may not have reached it, and
    /// whoever waits for that would wait for ever. It is asked again; what has begun meanwhile, it keeps.
    fn ask_back_again(&self, agent: AgentRef, actions: &mut Vec<Action>) {
        for held in self.derived.fleet.hand(agent).in_hand() {
            let task = &self.facts.tasks[held.task];
            if task.lease == held.lease && task.is_retracting() {
                actions.push(Action::Retract {
                    task: task.id,
                    agent: self.facts.agents[agent].id,
                    lease: held.lease,
                    running: false,
                });
            }
        }
    }

    /// The driver knows that an agent cannot be reached: no need to wait for its next heartbeat. It was
    /// there until now, so it has as long to come back as one that falls silent.
    pub(crate) fn agent_silent(&mut self, id: AgentId, actions: &mut Vec<Action>) {
        let Some(agent) = self.find_agent(id, actions) else {
            return;
        };
        self.facts.agents[agent].last_heard = self.facts.now;
        self.suspect(agent, actions);
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
        let rules = self.facts.config.heartbeats;
        let heard = self.facts.agents[agent].last_heard;
        let patience = self.facts.agents[agent].patience_until;
        let suspect_at = (heard + rules.suspect_after).max(patience);
        let lost_at = (heard + rules.lost_after).max(patience);
        if self.facts.now < suspect_at {
            self.watch_liveness(agent, suspect_at);
        } else if self.facts.now < lost_at {
            self.suspect(agent, actions);
            self.watch_liveness(agent, lost_at);
        } else {
            report(Report::AgentLost(id), actions);
            let tasks = self.dismiss(agent, actions);
            self.rescue(tasks, actions);
        }
    }

    /// The driver did not run for so long: what agents said meanwhile was not heard, and their silence does not
    /// count.
    pub(crate) fn excuse_silence(&mut self, gap: Span) {
        let now = self.facts.now;
        for agent in self.facts.agents.refs() {
            let this = &mut self.facts.agents[agent];
            this.last_heard = (this.last_heard + gap).min(now);
        }
    }

    /// The rules of silence have changed. Agents are judged by them once they can know of them: as soon as they
    /// are heard, and else when the longer of the old and the new times has passed.
    pub(crate) fn change_heartbeats(&mut self, old: Heartbeats) {
        let new = self.facts.config.heartbeats;
        let patience = self.facts.now + old.lost_after.max(new.lost_after);
        let mut watched = Vec::new();
        self.facts.timers.sweep(|_, alarm| match alarm {
            Alarm::Liveness(id, incarnation) => {
                watched.push((id, incarnation));
                false
            }
            _ => true,
        });
        watched.sort_unstable();
        watched.dedup();
        for (id, incarnation) in watched {
            if let Some(agent) = self.agent_of(id, incarnation) {
                self.facts.agents[agent].patience_until = patience;
                self.watch_liveness(agent, self.facts.now + new.suspect_after);
            }
        }
    }

    fn watch_liveness(&mut self, agent: AgentRef, at: Time) {
        let this = &self.facts.agents[agent];
        let alarm = Alarm::Liveness(this.id, this.incarnation);
        self.facts.timers.set(at, alarm);
    }

    fn suspect(&mut self, agent: AgentRef, actions: &mut Vec<Action>) {
        if self.facts.agents[agent].is_alive() {
            self.set_liveness(agent, Liveness::Suspected);
            report(Report::AgentSuspected(self.facts.agents[agent].id), actions);
        }
    }

    fn set_liveness(&mut self, agent: AgentRef, liveness: Liveness) {
        self.release_agent(agent);
        self.facts.agents[agent].liveness = liveness;
        self.derived.fleet.agent_changed(&self.facts, agent);
        if liveness == Liveness::Suspected {
            // What others left to it, because it is faster, is theirs now.
            let queued = self.derived.fleet.hand(agent).queue.any_classes();
            self.marks.offer(queued);
        }
    }

    /// Puts an agent among those with the same skills and resources.
    pub(crate) fn join_cohort(&mut self, agent: AgentRef) {
        let this = &self.facts.agents[agent];
        let key = (this.effective_skills(), this.resources.clone());
        let (cohort, is_new) = self.derived.fleet.cohort_with(key.clone());
        if is_new {
            self.facts.agents.add_cohort(key.0, key.1);
        }
        self.facts.agents.take_position(agent, cohort);
        self.derived.fleet.enter_cohort(agent, cohort);
    }

    pub(crate) fn leave_cohort(&mut self, agent: AgentRef) {
        self.release_agent(agent);
        let this = &self.facts.agents[agent];
        let (cohort, position) = (this.cohort, this.position as usize);
        self.derived.fleet.leave_cohort(cohort, position, agent);
        self.facts.agents.leave_position(agent);
        // Without it, others may count as capable of what is left.
        if self.derived.fleet.cohort(cohort).count == 0 {
            self.marks.look_again();
            self.marks.release_held();
        }
    }
}
