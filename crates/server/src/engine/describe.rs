//! What the state looks like from outside: the answers of the API about what is not over.

use loxley_api as api;
use loxley_api::{AgentInfo, AgentState, AttemptInfo, JobInfo, TaskCounts, TaskInfo, TaskState};
use loxley_model::{AgentId, Failure, TaskId, Time};
use loxley_policy::{AgentStatus, Liveness, Obstacle, Place, ProblemKind, Reason, Remedy};

use super::jobs::{Job, Phase, Spot};
use super::names::name_of;
use super::state::{State, failure_name};

/// Up to so many live tasks of a job are looked at one by one to count where they are.
const COUNTED_MAX: u64 = 2000;

impl State {
    /// Milliseconds since 1970.
    pub(crate) fn unix_ms(&self, time: Time) -> u64 {
        self.epoch_unix_ns.saturating_add(time.0) / 1_000_000
    }

    pub(crate) fn job_info(&self, job: &Job) -> JobInfo {
        JobInfo {
            id: job.id,
            name: job.request.name.clone(),
            user: name_of(&self.names.users, job.user),
            state: job.state(),
            tasks: self.count_tasks(job),
            first_task: job.first,
            after: job.request.after.clone(),
            created_unix_ms: self.unix_ms(job.created),
            ended_unix_ms: match job.phase {
                Phase::Dormant(_, at) => Some(self.unix_ms(at)),
                _ => None,
            },
        }
    }

    fn count_tasks(&self, job: &Job) -> TaskCounts {
        let mut counts = TaskCounts {
            total: job.count,
            pending: job.pending(),
            succeeded: job.tally.succeeded,
            failed: job.tally.failed,
            cancelled: job.tally.cancelled,
            ..TaskCounts::default()
        };
        let live = job.count - counts.pending - counts.over();
        counts.running = job.leased.min(live);
        counts.queued = live - counts.running;
        // Whether they are queued, held or wait for something takes a look at each.
        if counts.queued > 0 && job.count <= COUNTED_MAX {
            let ids = (job.first.0..=job.last().0).map(TaskId);
            let places = ids.filter_map(|task| self.scheduler.task_status(task));
            (counts.queued, counts.running) = (0, 0);
            for status in places {
                *match task_state(&status.place) {
                    TaskState::Held => &mut counts.held,
                    TaskState::Queued => &mut counts.queued,
                    TaskState::Assigned | TaskState::Running => &mut counts.running,
                    _ => &mut counts.waiting,
                } += 1;
            }
        }
        counts
    }

    /// A task that is not over.
    pub(crate) fn task_info(&self, task: TaskId) -> Option<TaskInfo> {
        let spot = self.jobs.spot(task)?;
        let Some(status) = self.scheduler.task_status(task) else {
            let state = self.is_pending(task)?;
            return Some(self.describe(&spot, task, state));
        };
        let agent = agent_of(&status.place);
        Some(TaskInfo {
            agent: agent.map(|agent| self.fleet.name(agent)),
            attempts: status.attempts,
            moves: status.moves,
            started_unix_ms: status.started.map(|at| self.unix_ms(at)),
            deadline_unix_ms: status.deadline.map(|at| self.unix_ms(at)),
            last: self.attempts.get(&task).map(|attempt| AttemptInfo {
                failure: Some(failure_name(attempt.failure).to_owned()),
                message: attempt
                    .finish
                    .as_ref()
                    .map(|finish| finish.message.clone())
                    .filter(|message| !message.is_empty()),
                exit_code: attempt.finish.as_ref().and_then(|finish| finish.exit_code),
                signal: attempt.finish.as_ref().and_then(|finish| finish.signal),
                usage: None,
            }),
            ..self.describe(&spot, task, task_state(&status.place))
        })
    }

    fn describe(&self, spot: &Spot<'_>, task: TaskId, state: TaskState) -> TaskInfo {
        task_described(
            spot.request,
            spot.position,
            TaskInfo {
                id: task,
                job: spot.job.id,
                name: None,
                entry: None,
                does: Vec::new(),
                state,
                priority: spot.request.priority,
                agent: None,
                attempts: 0,
                moves: 0,
                created_unix_ms: self.unix_ms(spot.job.created),
                started_unix_ms: None,
                ended_unix_ms: None,
                deadline_unix_ms: spot.part.deadline.map(|at| self.unix_ms(at)),
                last: None,
            },
        )
    }

    pub(crate) fn agent_info(&self, id: AgentId) -> Option<AgentInfo> {
        let agent = self.fleet.get(id)?;
        let status = self.scheduler.agent_status(id);
        let status = status.unwrap_or_else(|| gone(id, agent.record.slots));
        let state = match status.liveness {
            _ if !agent.registered => AgentState::Lost,
            Liveness::Alive => AgentState::Alive,
            Liveness::Suspected => AgentState::Suspected,
            Liveness::Draining => AgentState::Draining,
        };
        let record = &agent.record;
        Some(AgentInfo {
            id,
            name: record.name.clone(),
            incarnation: status.incarnation,
            state,
            capabilities: self.names.skill_names(status.capabilities.iter()),
            suspended: self.names.skill_names(status.suspended.iter().copied()),
            slots: record.slots,
            resources: api::Needs {
                cpus: record.cpu_milli as f64 / 1000.0,
                memory_bytes: record.memory_bytes,
                named: record.resources.iter().cloned().collect(),
            },
            zone: record.zone.clone(),
            speed: status.speed,
            queue_length: status.queue_length as u64,
            has_current_task: status.has_current_task,
            running: status.running,
            total_completed: status.total_completed,
            total_failed: status.total_failed,
            success_rate: status.success_rate,
            throttle: agent.throttle,
            round_trip_sec: Some(agent.round_trip_ns as f64 / 1e9),
            vitals: std::collections::BTreeMap::new(),
            notes: Vec::new(),
            heard_unix_ms: Some(self.unix_ms(agent.heard)),
        })
    }

    pub(crate) fn health(&self) -> api::Health {
        let problems: Vec<api::Problem> = self
            .scheduler
            .health()
            .into_iter()
            .map(|problem| api::Problem {
                severity: match problem.severity {
                    loxley_policy::Severity::Warning => api::Severity::Warning,
                    loxley_policy::Severity::Critical => api::Severity::Critical,
                },
                kind: problem_name(problem.kind).to_owned(),
                message: problem.message,
                remedies: problem.remedies.into_iter().map(Into::into).collect(),
            })
            .collect();
        let critical = |problem: &api::Problem| problem.severity == api::Severity::Critical;
        api::Health {
            ok: !problems.iter().any(critical),
            problems,
        }
    }

    pub(crate) fn fleet_info(&self) -> api::FleetInfo {
        let metrics = self.scheduler.metrics();
        let pending: u64 = self.jobs.iter().map(Job::pending).sum();
        let counts = metrics.counts;
        let mut histogram = metrics.wait_histogram;
        let waits_total = histogram.pop().map_or(0, |(_, all)| all);
        api::FleetInfo {
            total_steals: metrics.total_steals,
            successful_steals: metrics.successful_steals,
            failed_steals: metrics.failed_steals,
            success_rate: metrics.success_rate,
            tasks_migrated: metrics.tasks_migrated,
            rebalance_cycles: metrics.rebalance_cycles,
            avg_task_wait_time: metrics.avg_task_wait_time,
            agent_count: metrics.agent_count as u64,
            total_queued: metrics.total_queued as u64,
            busy_agents: metrics.busy_agents as u64,
            idle_agents: metrics.idle_agents as u64,
            total_samples: metrics.total_samples,
            wait_histogram: histogram,
            waits_total,
            deadline_misses: metrics.deadline_misses,
            retries: metrics.retries,
            speculations: metrics.speculations,
            speculations_won: metrics.speculations_won,
            stale_answers: metrics.stale_answers,
            tasks: TaskCounts {
                total: counts.submitted + pending + self.unseen.over(),
                pending,
                waiting: counts.waiting,
                held: counts.held,
                queued: counts.queued,
                running: counts.running,
                succeeded: counts.finished,
                failed: counts.failed + self.unseen.failed,
                cancelled: counts.cancelled + counts.returned + self.unseen.cancelled,
            },
        }
    }

    pub(crate) fn explain(&self, task: TaskId) -> Option<api::Explanation> {
        let Some(explained) = self.scheduler.explain(task) else {
            let spot = self.jobs.spot(task)?;
            let state = self.is_pending(task)?;
            let (place, obstacle) = match spot.job.phase {
                Phase::Waiting => {
                    let jobs: Vec<String> = spot
                        .job
                        .waits_for
                        .iter()
                        .map(|id| id.0.to_string())
                        .collect();
                    let place = "its job waits for other jobs".to_owned();
                    (place, format!("waits for jobs {}", jobs.join(", ")))
                }
                _ => (
                    "in an array that is fed to the scheduler bit by bit".to_owned(),
                    format!(
                        "{} entries of the array come first",
                        spot.position - spot.part.fed
                    ),
                ),
            };
            return Some(api::Explanation {
                task,
                state,
                place,
                obstacles: vec![obstacle],
                remedies: vec!["wait".to_owned()],
            });
        };
        Some(api::Explanation {
            task,
            state: task_state(&explained.status.place),
            place: self.place_in_words(&explained.status.place),
            obstacles: explained
                .obstacles
                .iter()
                .map(|obstacle| self.obstacle_in_words(obstacle))
                .collect(),
            remedies: explained
                .remedies
                .iter()
                .map(|remedy| self.remedy_in_words(remedy))
                .collect(),
        })
    }

    fn place_in_words(&self, place: &Place) -> String {
        let name = |agent: &AgentId| self.fleet.name(*agent);
        match place {
            Place::Dependencies { count, .. } => format!("waits for {count} other tasks"),
            Place::Backoff { .. } => "failed, and waits for its next attempt".to_owned(),
            Place::Standby { for_task } => format!("stands by for task {}", for_task.0),
            Place::Delegated { to } => format!("task {} stands in for it", to.0),
            Place::GroupLimit { running, limit } => {
                format!("its group runs {running} of at most {limit}")
            }
            Place::UserShare { running, share } => {
                format!("its user runs {running} tasks, a share of {share}, and others wait")
            }
            Place::Held => "held: no agent can do it".to_owned(),
            Place::Queued {
                agent,
                ahead,
                reason,
            } => format!(
                "on the queue of {}, behind {ahead} others, because {}",
                name(agent),
                self.reason_in_words(reason)
            ),
            Place::Leased { agent, reason, .. } => format!(
                "with {}, which has not started it, because {}",
                name(agent),
                self.reason_in_words(reason)
            ),
            Place::Running {
                agent,
                running_for,
                copy,
                reason,
                ..
            } => {
                let copy = copy.map(|copy| format!(", with a second copy on {}", name(&copy)));
                format!(
                    "runs on {} since {running_for}{}, because {}",
                    name(agent),
                    copy.unwrap_or_default(),
                    self.reason_in_words(reason)
                )
            }
        }
    }

    fn reason_in_words(&self, reason: &Reason) -> String {
        let name = |agent: &AgentId| self.fleet.name(*agent);
        match reason {
            Reason::Score(millionths) => {
                format!("it had the highest score ({:.3})", *millionths as f64 / 1e6)
            }
            Reason::EarliestFinish(_) => "it was expected to finish first there".to_owned(),
            Reason::Named => "it was named".to_owned(),
            Reason::Stolen(from) => format!("it was idle and took it from {}", name(from)),
            Reason::Rebalanced(from) => format!("a rebalancing pass moved it from {}", name(from)),
            Reason::BehindStraggler(from) => {
                format!("it was stuck behind a slow task on {}", name(from))
            }
            Reason::Speculation(from) => format!("{} is slow with the first copy", name(from)),
            Reason::Probe(skill) => format!(
                "the agent is tried with {} again",
                name_of(&self.names.skills, *skill)
            ),
            Reason::SpareCapacity => "it was idle".to_owned(),
        }
    }

    fn obstacle_in_words(&self, obstacle: &Obstacle) -> String {
        let name = |agent: &AgentId| self.fleet.name(*agent);
        match obstacle {
            Obstacle::WaitsFor(first, count) => {
                format!(
                    "{count} tasks must succeed first: {}",
                    tasks_in_words(first)
                )
            }
            Obstacle::WaitsUntil(time) => {
                format!("it failed and is tried again in {}", time.since(self.now))
            }
            Obstacle::GroupFull { running, limit } => {
                format!("its group runs {running} of at most {limit}")
            }
            Obstacle::ShareUsedUp { running, share } => {
                format!("its user runs {running} tasks, a share of {share}")
            }
            Obstacle::NoAgents => "there is no agent".to_owned(),
            Obstacle::SkillsMissing { nearest, missing } => {
                let missing = self.names.skill_names(missing.iter().copied()).join(", ");
                match nearest {
                    Some(agent) => {
                        format!("no agent has all skills; {} lacks {missing}", name(agent))
                    }
                    None => format!("no agent has {missing}"),
                }
            }
            Obstacle::TooLarge => "no agent with the skills is large enough".to_owned(),
            Obstacle::AgentsUnavailable(count) => {
                format!("{count} agents could do it but are silent or draining")
            }
            Obstacle::BehindOthers { agent, ahead } => {
                format!("{ahead} tasks on the queue of {} come first", name(agent))
            }
            Obstacle::AgentBusy(agent) => format!("{} has no free slot", name(agent)),
            Obstacle::NoRoom(agent) => format!("{} has not enough free resources", name(agent)),
            Obstacle::Protected => "it is urgent, and urgent tasks are not stolen".to_owned(),
            Obstacle::MovedEnough(moves) => format!("it moved {moves} times, as often as it may"),
            Obstacle::StandsBy(task) => format!("it stands by for task {}", task.0),
            Obstacle::StoodInBy(task) => format!("task {} stands in for it", task.0),
        }
    }

    fn remedy_in_words(&self, remedy: &Remedy) -> String {
        match remedy {
            Remedy::AddAgentWith(skills) if skills.is_empty() => "start an agent".to_owned(),
            Remedy::AddAgentWith(skills) => format!(
                "start an agent with {}",
                self.names.skill_names(skills.iter().copied()).join(", ")
            ),
            Remedy::AddLargerAgent => "start an agent with more room".to_owned(),
            Remedy::AddAgents => "start more agents".to_owned(),
            Remedy::RaiseGroupLimit => "raise the limit of its group".to_owned(),
            Remedy::RaiseUserWeight => "raise the weight of its user".to_owned(),
            Remedy::FinishDependencies(tasks) => {
                format!(
                    "let {} finish, or look into those that fail",
                    tasks_in_words(tasks)
                )
            }
            Remedy::RaisePriority => "raise its priority".to_owned(),
            Remedy::AllowStealing => "allow stealing: strategy pull or hybrid".to_owned(),
            Remedy::Wait(Some(time)) => format!("wait {}", time.since(self.now)),
            Remedy::Wait(None) => "wait".to_owned(),
        }
    }
}

fn tasks_in_words(tasks: &[TaskId]) -> String {
    let ids: Vec<String> = tasks
        .iter()
        .map(|task| format!("task {}", task.0))
        .collect();
    ids.join(", ")
}

/// Adds what the request says of a task: its name, its entry, what it does.
pub(crate) fn task_described(
    request: &api::TaskRequest,
    position: u64,
    mut info: TaskInfo,
) -> TaskInfo {
    let entry = request
        .entries
        .as_ref()
        .and_then(|entries| entries.text(position));
    info.name.clone_from(&request.name);
    info.priority = request.priority;
    info.does = match (&request.run, &entry) {
        (api::Work::Command(command), Some(entry)) => {
            let words = command.words.iter();
            words
                .map(|word| loxley_protocol::fill_in(word, entry, position + 1))
                .collect()
        }
        (api::Work::Command(command), None) => command.words.clone(),
        (api::Work::Function(function), _) => vec![function.name.clone()],
    };
    info.entry = entry;
    info
}

fn task_state(place: &Place) -> TaskState {
    match place {
        Place::Dependencies { .. } | Place::GroupLimit { .. } | Place::UserShare { .. } => {
            TaskState::Waiting
        }
        Place::Backoff { .. } => TaskState::Backoff,
        Place::Standby { .. } => TaskState::Standby,
        Place::Delegated { .. } => TaskState::Delegated,
        Place::Held => TaskState::Held,
        Place::Queued { .. } => TaskState::Queued,
        Place::Leased { .. } => TaskState::Assigned,
        Place::Running { .. } => TaskState::Running,
    }
}

fn agent_of(place: &Place) -> Option<AgentId> {
    match place {
        Place::Queued { agent, .. }
        | Place::Leased { agent, .. }
        | Place::Running { agent, .. } => Some(*agent),
        _ => None,
    }
}

/// What is known of an agent that the policy does not have any more.
fn gone(agent: AgentId, slots: u32) -> AgentStatus {
    AgentStatus {
        agent,
        incarnation: 0,
        queue_length: 0,
        capabilities: loxley_model::SkillSet::none(),
        suspended: Vec::new(),
        success_rate: 1.0,
        total_completed: 0,
        total_failed: 0,
        has_current_task: false,
        running: Vec::new(),
        slots,
        liveness: Liveness::Suspected,
        speed: 1.0,
    }
}

fn problem_name(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::NoAgents => "no_agents",
        ProblemKind::AllAgentsBusy => "all_agents_busy",
        ProblemKind::LowStealSuccess => "low_steal_success",
        ProblemKind::HighQueueVariance => "high_queue_variance",
        ProblemKind::UnassignableTasks => "unassignable_tasks",
        ProblemKind::AgentsSuspected => "agents_suspected",
        ProblemKind::SkillsSuspended => "skills_suspended",
        ProblemKind::DeadLetters => "dead_letters",
        ProblemKind::DeadlinesMissed => "deadlines_missed",
    }
}

/// How a task ended, in the words of the API.
pub(crate) fn ended_state(ended: loxley_journal::Ended) -> (TaskState, Option<Failure>) {
    use loxley_journal::Ended;
    match ended {
        Ended::Succeeded | Ended::FellBack => (TaskState::Succeeded, None),
        Ended::Failed(failure) => (TaskState::Failed, Some(failure)),
        Ended::Cancelled | Ended::Returned => (TaskState::Cancelled, None),
    }
}
