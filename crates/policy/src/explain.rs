//! Why is my task not running? A question that the scheduler answers itself, from its own state.

use alloc::vec::Vec;

use loxley_model::{SkillId, TaskId, Time};

use crate::Scheduler;
use crate::admission::Bar;
use crate::agents::Agent;
use crate::refs::TaskRef;
use crate::task_classes::CapabilityClass;
use crate::tasks::State;
use crate::view::{Explanation, Liveness, Obstacle, Place, Remedy, TaskStatus};

/// How many dependencies are named.
const NAMED: usize = 5;

impl Scheduler {
    /// The state of a task that is not over.
    #[must_use]
    pub fn task_status(&self, id: TaskId) -> Option<TaskStatus> {
        let task = self.facts.ids.live(id)?;
        let this = &self.facts.tasks[task];
        let placed = matches!(this.state, State::Queued | State::Leased | State::Running);
        Some(TaskStatus {
            task: id,
            job: self.facts.jobs[this.job].spec.id,
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
        let this = &self.facts.tasks[task];
        let agent = || &self.facts.agents[this.agent];
        match this.state {
            State::Waiting => Place::Dependencies {
                first: self.dependencies_of(task),
                count: this.dependencies_left,
            },
            State::Backoff => Place::Backoff {
                until: this
                    .extra
                    .as_ref()
                    .map_or(self.facts.now, |extra| extra.retry_at),
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
            State::Away => Place::Away,
            State::Queued => match self.barred(task) {
                Some(Obstacle::GroupFull { running, limit }) => {
                    Place::GroupLimit { running, limit }
                }
                Some(Obstacle::ShareUsedUp { running, share }) => {
                    Place::UserShare { running, share }
                }
                _ => Place::Queued {
                    agent: agent().id,
                    ahead: self.ahead_of(task),
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
                running_for: self.facts.now.since(this.since),
                copy: this.copy().map(|copy| self.facts.agents[copy.agent].id),
                reason: this.reason,
            },
        }
    }

    /// Why a task is where it is, why it is not running, and what would make it run.
    #[must_use]
    pub fn explain(&self, id: TaskId) -> Option<Explanation> {
        let task = self.facts.ids.live(id)?;
        let status = self.task_status(id)?;
        let mut obstacles = Vec::new();
        let mut remedies = Vec::new();
        match self.facts.tasks[task].state {
            State::Waiting => {
                let first = self.dependencies_of(task);
                obstacles.push(Obstacle::WaitsFor(
                    first.clone(),
                    self.facts.tasks[task].dependencies_left,
                ));
                remedies.push(Remedy::FinishDependencies(first));
            }
            State::Backoff => {
                let until = self.facts.tasks[task]
                    .extra
                    .as_ref()
                    .map_or(self.facts.now, |extra| extra.retry_at);
                obstacles.push(Obstacle::WaitsUntil(until));
                remedies.push(Remedy::Wait(Some(until)));
            }
            State::Standby => {
                let primary = self.facts.tasks[task]
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
            State::Away => remedies.push(Remedy::Wait(None)),
            State::Leased | State::Running => {}
        }
        Some(Explanation {
            status,
            obstacles,
            remedies,
            earned: self.earned_for(task),
        })
    }

    /// Skills of a task that its agent has only because it earned them.
    fn earned_for(&self, task: TaskRef) -> Vec<SkillId> {
        let this = &self.facts.tasks[task];
        if !matches!(this.state, State::Queued | State::Leased | State::Running) {
            return Vec::new();
        }
        let class = self.facts.classes.class_of_admission(this.admission_class);
        let earned = self.facts.agents[this.agent].added.earned.iter();
        earned
            .filter(|skill| class.skills.contains(*skill))
            .collect()
    }

    fn explain_held(
        &self,
        task: TaskRef,
        obstacles: &mut Vec<Obstacle>,
        remedies: &mut Vec<Remedy>,
    ) {
        let class = self
            .facts
            .classes
            .class_of_admission(self.facts.tasks[task].admission_class);
        if self.derived.fleet.len() == 0 {
            obstacles.push(Obstacle::NoAgents);
            remedies.push(Remedy::AddAgentWith(class.skills.iter().collect()));
            return;
        }
        let unavailable = self.facts.agents.iter().filter(|(_, agent)| {
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
            .facts
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
            let skills = class.skills.iter().collect();
            remedies.push(Remedy::AddLargerAgent(skills, class.needs.clone()));
        }
    }

    fn explain_queued(
        &self,
        task: TaskRef,
        obstacles: &mut Vec<Obstacle>,
        remedies: &mut Vec<Remedy>,
    ) {
        let this = &self.facts.tasks[task];
        let agent = &self.facts.agents[this.agent];
        let id = agent.id;
        if let Some(bar) = self.barred(task) {
            let group = self.facts.admission_class_of(this).group;
            remedies.push(match (&bar, group) {
                (Obstacle::GroupFull { limit, .. }, Some(group)) => {
                    Remedy::RaiseGroupLimit(group, *limit)
                }
                (Obstacle::ShareUsedUp { .. }, _) => {
                    let user = self.facts.admission_class_of(this).user;
                    let (user, weight) = self.facts.limits.user(user);
                    Remedy::RaiseUserWeight(user, weight)
                }
                _ => Remedy::Wait(None),
            });
            obstacles.push(bar);
        }
        let ahead = self.ahead_of(task);
        if ahead > 0 {
            obstacles.push(Obstacle::BehindOthers { agent: id, ahead });
            remedies.push(Remedy::RaisePriority);
        }
        if self.room(this.agent) == 0 {
            obstacles.push(Obstacle::AgentBusy(id));
        }
        let mut others = self.facts.agents.iter().map(|(other, _)| other);
        let leaves =
            |other| self.is_idle(other) && self.leaves_queued(task, other, this.agent).is_some();
        if others.any(leaves) {
            obstacles.push(Obstacle::FasterAgent(id));
        }
        if let Some((agent, due)) = self.kept_from(task) {
            obstacles.push(Obstacle::RoomKept { agent, due });
            remedies.push(Remedy::Wait(None));
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
        let this = &self.facts.tasks[task];
        if self.is_protected(this.priority) {
            obstacles.push(Obstacle::Protected);
        } else if self.facts.sort_of(this).settled {
            obstacles.push(Obstacle::MovedEnough(this.moves.into()));
        } else if !self.facts.config.strategy.pulls()
            || !self.facts.config.work_stealing.steal_below_busy
        {
            remedies.push(Remedy::AllowStealing);
        }
    }

    /// What bars a queued task from its agent, apart from the tasks ahead of it.
    fn barred(&self, task: TaskRef) -> Option<Obstacle> {
        let this = &self.facts.tasks[task];
        let agent = &self.facts.agents[this.agent];
        Some(
            match self.bar(this.agent, this.admission_class, self.shares())? {
                Bar::Room | Bar::Reserved => Obstacle::NoRoom(agent.id),
                Bar::Kept => return None, // Said below, of whichever agent it is.
                Bar::Group(group) => Obstacle::GroupFull {
                    running: self.derived.loads.group_running(group),
                    limit: self.facts.limits.limit(group)?,
                },
                Bar::Share => {
                    let user = self.facts.admission_class_of(this).user;
                    let (loads, limits) = (&self.derived.loads, &self.facts.limits);
                    Obstacle::ShareUsedUp {
                        running: loads.user_running(user),
                        share: loads.share(limits, user, self.derived.fleet.total_slots),
                    }
                }
            },
        )
    }

    /// How many tasks come before a queued one.
    fn ahead_of(&self, task: TaskRef) -> usize {
        let hand = self.derived.fleet.hand(self.facts.tasks[task].agent);
        hand.queue.ahead_of(&self.facts.tasks, task)
    }

    fn fallback_of(&self, task: TaskRef) -> Option<TaskId> {
        match self.facts.tasks[task].extra.as_ref()?.fallback {
            loxley_model::Fallback::Task(fallback) => Some(fallback),
            _ => None,
        }
    }

    /// The first few tasks that a task waits for. Looks at all tasks: this is asked by people.
    fn dependencies_of(&self, task: TaskRef) -> Vec<TaskId> {
        let arrival = self.facts.tasks[task].arrival as u32;
        let waits_for = |first: u32| {
            self.facts
                .edges
                .iter(first)
                .any(|d| d.task == task && d.arrival == arrival)
        };
        let live = self
            .facts
            .tasks
            .iter()
            .filter(|(_, other)| waits_for(other.dependents))
            .map(|(_, o)| o.id);
        let gone = self
            .facts
            .orphans
            .iter()
            .filter(|(_, first)| waits_for(**first))
            .map(|(id, _)| *id);
        live.chain(gone).take(NAMED).collect()
    }
}

fn missing(class: &CapabilityClass, agent: &Agent) -> Vec<SkillId> {
    let has = agent.effective_skills();
    class
        .skills
        .iter()
        .filter(|skill| !has.contains(*skill))
        .collect()
}

fn is_large_enough(class: &CapabilityClass, agent: &Agent) -> bool {
    agent.resources.have_room(&Default::default(), &class.needs)
}
