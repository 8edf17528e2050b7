//! Why is my task not running? A question that the scheduler answers itself, from its own state.

use alloc::vec::Vec;

use loxley_model::{SkillId, TaskId, Time};

use crate::Scheduler;
use crate::agents::Agent;
use crate::dispatch::Bar;
use crate::lots::Class;
use crate::refs::TaskRef;
use crate::tasks::State;
use crate::view::{Explanation, Liveness, Obstacle, Place, Remedy, TaskStatus};

/// How many dependencies are named.
const NAMED: usize = 5;

impl Scheduler {
    /// The state of a task that is not over.
    #[must_use]
    pub fn task_status(&self, id: TaskId) -> Option<TaskStatus> {
        let task = self.ids.live(id)?;
        let this = &self.tasks[task];
        let placed = matches!(this.state, State::Queued | State::Leased | State::Running);
        Some(TaskStatus {
            task: id,
            job: self.jobs[this.job].spec.id,
            priority: this.priority,
            place: self.place_of(task),
            attempts: this.attempts.into(),
            moves: this.moves.into(),
            created: this.created,
            assigned: placed.then_some(this.assigned),
            started: (this.state == State::Running).then_some(this.since),
            deadline: (this.deadline() != Time::MAX).then_some(this.deadline()),
        })
    }

    fn place_of(&self, task: TaskRef) -> Place {
        let this = &self.tasks[task];
        let agent = || &self.agents[this.agent];
        match this.state {
            State::Waiting => Place::Dependencies {
                first: self.dependencies_of(task),
                count: this.dependencies_left,
            },
            State::Backoff => Place::Backoff {
                until: this.extra.as_ref().map_or(self.now, |extra| extra.retry_at),
            },
            State::Standby => Place::Standby {
                for_task: this
                    .extra
                    .as_ref()
                    .and_then(|extra| extra.stands_in_for)
                    .unwrap_or(this.id),
            },
            State::Delegated => Place::Delegated {
                to: self.fallback_of(task).unwrap_or(this.id),
            },
            State::Held => Place::Held,
            State::Queued => match self.barred(task) {
                Some(Obstacle::GroupFull { running, limit }) => {
                    Place::GroupLimit { running, limit }
                }
                Some(Obstacle::ShareUsedUp { running, share }) => {
                    Place::UserShare { running, share }
                }
                _ => Place::Queued {
                    agent: agent().id,
                    ahead: agent().queue.ahead_of(&self.tasks, task),
                    reason: this.reason,
                },
            },
            State::Leased => Place::Leased {
                agent: agent().id,
                lease: this.lease,
                reason: this.reason,
            },
            State::Running => Place::Running {
                agent: agent().id,
                lease: this.lease,
                running_for: self.now.since(this.since),
                copy: this.copy().map(|copy| self.agents[copy.agent].id),
                reason: this.reason,
            },
        }
    }

    /// Why a task is where it is, why it is not running, and what would make it run.
    #[must_use]
    pub fn explain(&self, id: TaskId) -> Option<Explanation> {
        let task = self.ids.live(id)?;
        let status = self.task_status(id)?;
        let mut obstacles = Vec::new();
        let mut remedies = Vec::new();
        match self.tasks[task].state {
            State::Waiting => {
                let first = self.dependencies_of(task);
                obstacles.push(Obstacle::WaitsFor(
                    first.clone(),
                    self.tasks[task].dependencies_left,
                ));
                remedies.push(Remedy::FinishDependencies(first));
            }
            State::Backoff => {
                let until = self.tasks[task]
                    .extra
                    .as_ref()
                    .map_or(self.now, |extra| extra.retry_at);
                obstacles.push(Obstacle::WaitsUntil(until));
                remedies.push(Remedy::Wait(Some(until)));
            }
            State::Standby => {
                let primary = self.tasks[task]
                    .extra
                    .as_ref()
                    .and_then(|extra| extra.stands_in_for);
                obstacles.push(Obstacle::StandsBy(primary.unwrap_or(id)));
            }
            State::Delegated => {
                obstacles.push(Obstacle::StoodInBy(self.fallback_of(task).unwrap_or(id)));
                remedies.push(Remedy::Wait(None));
            }
            State::Held => self.explain_held(task, &mut obstacles, &mut remedies),
            State::Queued => self.explain_queued(task, &mut obstacles, &mut remedies),
            State::Leased | State::Running => {}
        }
        Some(Explanation {
            status,
            obstacles,
            remedies,
        })
    }

    fn explain_held(
        &self,
        task: TaskRef,
        obstacles: &mut Vec<Obstacle>,
        remedies: &mut Vec<Remedy>,
    ) {
        let class = self.lots.class_of_lot(self.tasks[task].lot);
        if self.agents.len() == 0 {
            obstacles.push(Obstacle::NoAgents);
            remedies.push(Remedy::AddAgentWith(class.skills.iter().collect()));
            return;
        }
        let unavailable = self.agents.iter().filter(|(_, agent)| {
            agent.liveness != Liveness::Alive
                && missing(class, agent).is_empty()
                && is_large_enough(class, agent)
        });
        let unavailable = unavailable.count() as u32;
        if unavailable > 0 {
            obstacles.push(Obstacle::AgentsUnavailable(unavailable));
            remedies.push(Remedy::Wait(None));
        }
        let nearest = self
            .agents
            .iter()
            .min_by_key(|(_, agent)| missing(class, agent).len());
        let lacking = nearest.map_or_else(Vec::new, |(_, agent)| missing(class, agent));
        if !lacking.is_empty() {
            let nearest = nearest.map(|(_, agent)| agent.id);
            obstacles.push(Obstacle::SkillsMissing {
                nearest,
                missing: lacking,
            });
            remedies.push(Remedy::AddAgentWith(class.skills.iter().collect()));
        } else if unavailable == 0 {
            obstacles.push(Obstacle::TooLarge);
            remedies.push(Remedy::AddLargerAgent);
        }
    }

    fn explain_queued(
        &self,
        task: TaskRef,
        obstacles: &mut Vec<Obstacle>,
        remedies: &mut Vec<Remedy>,
    ) {
        let this = &self.tasks[task];
        let agent = &self.agents[this.agent];
        let id = agent.id;
        if let Some(bar) = self.barred(task) {
            remedies.push(match bar {
                Obstacle::GroupFull { .. } => Remedy::RaiseGroupLimit,
                Obstacle::ShareUsedUp { .. } => Remedy::RaiseUserWeight,
                _ => Remedy::Wait(None),
            });
            obstacles.push(bar);
        }
        let ahead = agent.queue.ahead_of(&self.tasks, task);
        if ahead > 0 {
            obstacles.push(Obstacle::BehindOthers { agent: id, ahead });
            remedies.push(Remedy::RaisePriority);
        }
        if agent.room(self.config.prefetch.max_depth) == 0 {
            obstacles.push(Obstacle::AgentBusy(id));
        }
        self.explain_not_stolen(task, obstacles, remedies);
        remedies.push(Remedy::AddAgents);
    }

    fn explain_not_stolen(
        &self,
        task: TaskRef,
        obstacles: &mut Vec<Obstacle>,
        remedies: &mut Vec<Remedy>,
    ) {
        let this = &self.tasks[task];
        if self.is_protected(this.priority) {
            obstacles.push(Obstacle::Protected);
        } else if this.settled {
            obstacles.push(Obstacle::MovedEnough(this.moves.into()));
        } else if !self.config.strategy.pulls() || !self.config.work_stealing.steal_below_busy {
            remedies.push(Remedy::AllowStealing);
        }
    }

    /// What bars a queued task from its agent, apart from the tasks ahead of it.
    fn barred(&self, task: TaskRef) -> Option<Obstacle> {
        let this = &self.tasks[task];
        let agent = &self.agents[this.agent];
        let shares = self.config.quotas.user_shares && self.limits.has_rivals();
        Some(match self.admission(shares).bar(agent, this.lot)? {
            Bar::Room | Bar::Reserved => Obstacle::NoRoom(agent.id),
            Bar::Group(group) => {
                let group = self.limits.groups.get(&group)?;
                Obstacle::GroupFull {
                    running: group.running,
                    limit: group.limit?,
                }
            }
            Bar::Share => {
                let user = self.lots.at(this.lot).user;
                let running = self.limits.users[user.index()].running;
                Obstacle::ShareUsedUp {
                    running,
                    share: self.limits.share(user, self.agents.total_slots),
                }
            }
        })
    }

    fn fallback_of(&self, task: TaskRef) -> Option<TaskId> {
        match self.tasks[task].extra.as_ref()?.fallback {
            loxley_model::Fallback::Task(fallback) => Some(fallback),
            _ => None,
        }
    }

    /// The first few tasks that a task waits for. Looks at all tasks: this is asked by people.
    fn dependencies_of(&self, task: TaskRef) -> Vec<TaskId> {
        let arrival = self.tasks[task].arrival as u32;
        let waits_for = |first: u32| {
            self.edges
                .iter(first)
                .any(|d| d.task == task && d.arrival == arrival)
        };
        let live = self
            .tasks
            .iter()
            .filter(|(_, other)| waits_for(other.dependents))
            .map(|(_, o)| o.id);
        let gone = self
            .orphans
            .iter()
            .filter(|(_, first)| waits_for(**first))
            .map(|(id, _)| *id);
        live.chain(gone).take(NAMED).collect()
    }
}

fn missing(class: &Class, agent: &Agent) -> Vec<SkillId> {
    let has = agent.effective_skills();
    class
        .skills
        .iter()
        .filter(|skill| !has.contains(*skill))
        .collect()
}

fn is_large_enough(class: &Class, agent: &Agent) -> bool {
    agent.resources.have_room(&Default::default(), &class.needs)
}
