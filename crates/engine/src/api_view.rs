//! What the state looks like from outside: the answers of the API about what is not over.

use loxley_api as api;
use loxley_api::{AgentInfo, AgentState, AttemptInfo, JobInfo, TaskCounts, TaskInfo, TaskState};
use loxley_balance::QueueDepths;
use loxley_driver::AtServer;
use loxley_driver::explain_text::{
    self, failure_word, problem_message, problem_remedies, problem_word,
};
use loxley_model::{AgentId, Failure, JobId, SkillId, TaskId, Time, WorkKey};
use loxley_policy::{AgentStatus, Liveness, Place};
use loxley_template::Filling;

use crate::jobs::{Job, Phase, Spot, Tally};
use crate::names;
use crate::run_figures::{self, Counted};
use crate::state::State;

/// Up to so many live tasks of a job are looked at one by one to count where they are.
const COUNTED_MAX: u64 = 2000;

/// A task that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningTask {
    /// Which one.
    pub task: TaskId,
    /// Its job.
    pub job: JobId,
    /// Where.
    pub agent: AgentId,
    /// Since when.
    pub started: Time,
    /// Which attempt it is.
    pub attempt: u32,
}

impl State {
    /// What runs now, and where: what an agent has in hand and has not started is not among it.
    pub(crate) fn running(&self) -> Vec<RunningTask> {
        let scheduler = self.driver.scheduler();
        let agents = self.fleet.iter();
        let agents = agents.filter_map(|(id, _)| scheduler.agent_status(id));
        let in_hand = agents.flat_map(|agent| {
            let id = agent.agent;
            agent.running.into_iter().map(move |task| (id, task))
        });
        in_hand
            .filter_map(|(agent, task)| {
                let status = scheduler.task_status(task)?;
                let is_started = matches!(status.place, Place::Running { .. });
                Some(RunningTask {
                    task,
                    job: status.job,
                    agent,
                    started: status.started.filter(|_| is_started)?,
                    attempt: status.attempts,
                })
            })
            .collect()
    }

    /// Milliseconds since 1970.
    pub(crate) fn unix_ms(&self, time: Time) -> u64 {
        self.epoch_unix_ns.saturating_add(time.0) / 1_000_000
    }

    pub(crate) fn job_info(&self, job: &Job) -> JobInfo {
        JobInfo {
            id: job.id,
            name: job.request.name.clone(),
            user: self.names.user_name(job.user).as_ref().to_owned(),
            state: job.state(),
            tasks: self.count_tasks(job),
            first_task: job.first,
            last_task: job.last(),
            open: job.open,
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
        let scheduler = self.driver.scheduler();
        if counts.queued > 0 && job.count <= COUNTED_MAX {
            let places = job.ids().filter_map(|task| scheduler.task_status(task));
            (counts.queued, counts.running) = (0, 0);
            for status in places {
                *match task_state(&status.place) {
                    TaskState::Held => &mut counts.held,
                    TaskState::Queued => &mut counts.queued,
                    TaskState::Assigned | TaskState::Running => &mut counts.running,
                    _ => &mut counts.waiting,
                } += 1;
            }
        } else if counts.queued > 0 && scheduler.counts().held > 0 {
            // Some of a long array may be held: as many of the first as can be looked at.
            let places = job.ids().filter_map(|task| scheduler.task_status(task));
            let held = places
                .take(COUNTED_MAX as usize)
                .filter(|status| status.place == Place::Held);
            counts.held = (held.count() as u64).min(counts.queued);
            counts.queued -= counts.held;
        }
        if counts.running > 0 {
            let started = self.count_started(|task| job.spot(task).is_some());
            counts.started = started.min(counts.running);
        }
        counts
    }

    /// How many tasks agents have started, of those that they have in hand: a task with two copies once.
    fn count_started(&self, is_meant: impl Fn(TaskId) -> bool) -> u64 {
        let leases = self.driver.leases().iter().map(|(_, held)| held);
        let started = leases.filter(|held| held.started.is_some() && is_meant(held.task));
        let mut tasks: Vec<TaskId> = started.map(|held| held.task).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks.len() as u64
    }

    /// A task that is not over.
    pub(crate) fn task_info(&self, task: TaskId) -> Option<TaskInfo> {
        let spot = self.jobs.spot(task)?;
        let Some(status) = self.driver.scheduler().task_status(task) else {
            let state = self.pending_state(task)?;
            return Some(self.describe(&spot, task, state));
        };
        let agent = agent_of(&status.place);
        Some(TaskInfo {
            agent: agent.map(|agent| self.agent_name(agent)),
            attempts: status.attempts,
            moves: status.moves,
            started_unix_ms: status.started.map(|at| self.unix_ms(at)),
            deadline_unix_ms: status.deadline.map(|at| self.unix_ms(at)),
            last: self.attempts.get(&task).map(|attempt| AttemptInfo {
                failure: Some(failure_word(attempt.failure).to_owned()),
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
            spot.entry(),
            spot.number(),
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
        let status = self.driver.scheduler().agent_status(id);
        let status = status.unwrap_or_else(|| gone(id, agent.record.slots));
        let state = match status.liveness {
            _ if !agent.registered && agent.draining => AgentState::Left,
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
            capabilities: self.skill_names(status.capabilities.iter()),
            suspended: self.skill_names(status.suspended.iter().copied()),
            earned: self.skill_names(status.earned.iter().copied()),
            slots: record.slots,
            resources: api::Needs {
                cpus: record.cpu_milli as f64 / 1000.0,
                memory_bytes: record.memory_bytes,
                named: record.resources.iter().cloned().collect(),
            },
            zone: record.zone.clone(),
            speed: status.speed,
            kinds: self.kinds_of(id),
            queue_length: status.queue_length as u64,
            started: self.started(id),
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

    /// The kinds of work at which an agent does otherwise than at everything, by name.
    fn kinds_of(&self, agent: AgentId) -> Vec<api::AgentKind> {
        let kinds = self.driver.scheduler().kinds_of(agent).into_iter();
        kinds
            .map(|kind| api::AgentKind {
                kind: kind
                    .work
                    .map(|work| self.work_name(work))
                    .unwrap_or_default(),
                success_rate: kind.success_rate,
                speed: kind.speed,
            })
            .collect()
    }

    /// What the work is called in some job that is not over.
    fn work_name(&self, work: WorkKey) -> String {
        let open = self.jobs.iter().flat_map(|job| &job.request.tasks);
        let mut names = open
            .filter(|task| names::work(task) == work)
            .map(names::work_name);
        names.next().unwrap_or_else(|| format!("work {:x}", work.0))
    }

    /// How many tasks an agent has started, of those that it has in hand.
    fn started(&self, agent: AgentId) -> u64 {
        let leases = self.driver.leases().of(agent);
        leases.filter(|(_, held)| held.started.is_some()).count() as u64
    }

    pub(crate) fn health(&self) -> api::Health {
        let problems: Vec<api::Problem> = self
            .driver
            .scheduler()
            .health()
            .into_iter()
            .map(|problem| api::Problem {
                severity: match problem.severity {
                    loxley_policy::Severity::Warning => api::Severity::Warning,
                    loxley_policy::Severity::Critical => api::Severity::Critical,
                },
                kind: problem_word(problem.kind).to_owned(),
                message: problem_message(&problem, &self.names),
                remedies: problem_remedies(&problem, &AtServer(&self.names)),
            })
            .collect();
        let critical = |problem: &api::Problem| problem.severity == api::Severity::Critical;
        api::Health {
            ok: !problems.iter().any(critical),
            problems,
        }
    }

    pub(crate) fn fleet_info(&self) -> api::FleetInfo {
        let metrics = self.driver.scheduler().metrics();
        let pending: u64 = self.jobs.iter().map(Job::pending).sum();
        let counts = metrics.counts;
        // A task counts once over all shards: at home, until it is over elsewhere, and where it waits or runs.
        let away = self.moves().map_or(0, |moves| moves.away_count() as u64);
        let moving = self.moving.as_ref();
        let (admitted, gone) = moving.map_or((0, Tally::default()), |moving| {
            (moving.admitted, moving.over)
        });
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
                total: (counts.submitted + pending + self.unseen.over()).saturating_sub(admitted),
                pending,
                waiting: counts.waiting.saturating_sub(away),
                held: counts.held,
                queued: counts.queued,
                running: counts.running,
                started: self.count_started(|_| true).min(counts.running),
                succeeded: counts.finished.saturating_sub(gone.succeeded),
                failed: (counts.failed + self.unseen.failed).saturating_sub(gone.failed),
                cancelled: (counts.cancelled + counts.returned + self.unseen.cancelled)
                    .saturating_sub(gone.cancelled),
            },
        }
    }

    /// Everybody who submitted something or was given a weight, with what they have now, by name.
    pub(crate) fn users(&self) -> Vec<api::UserInfo> {
        let users = self.driver.scheduler().users();
        let mut users: Vec<api::UserInfo> = users
            .map(|status| api::UserInfo {
                user: self.names.user_name(status.user).as_ref().to_owned(),
                weight: status.weight,
                tasks: status.live,
                queued: status.queued,
                running: status.running,
                share_slots: status.share,
            })
            .collect();
        users.sort_by(|one, other| one.user.cmp(&other.user));
        users
    }

    /// The figures of the fleet in the last minutes.
    pub(crate) fn fleet_figures(&self) -> api::Figures {
        let figures = self.ledger.fleet_figures(self.fleet.slots());
        let name = |user| self.names.user_name(user).as_ref().to_owned();
        run_figures::of_fleet(&figures, name)
    }

    /// What was counted of a job, or of everything.
    pub(crate) fn counted(&self, job: Option<JobId>) -> Counted {
        let of_job = job.map(|job| self.ledger.of_job(job));
        let (job, depths) = match of_job {
            Some(Some((counts, depths))) => (Some(counts), depths),
            Some(None) => (None, QueueDepths::default()),
            None => (None, self.ledger.depths()),
        };
        let slots = self.fleet.iter();
        Counted {
            job,
            depths,
            slots: slots.map(|(id, agent)| (id, agent.record.slots)).collect(),
        }
    }

    pub(crate) fn explain(&self, task: TaskId, now: Time) -> Option<api::Explanation> {
        let Some(mut explained) = self.driver.scheduler().explain(task) else {
            let spot = self.jobs.spot(task)?;
            let state = self.pending_state(task)?;
            let (place, obstacle, remedy) = match spot.job.phase {
                Phase::Waiting => {
                    let jobs = spot.job.waits_for.iter().map(|id| id.0.to_string());
                    let jobs: Vec<String> = jobs.collect();
                    let place = "waits with its job for other jobs".to_owned();
                    let look = format!("look at them: `loxley job info {}`", jobs.join(","));
                    let must = format!("jobs {} must succeed first", jobs.join(", "));
                    (place, must, look)
                }
                _ => (
                    "is in an array that is fed to the scheduler bit by bit".to_owned(),
                    format!(
                        "{} entries of the array come first",
                        spot.position.saturating_sub(spot.part.fed)
                    ),
                    format!("wait: `loxley task wait {}`", task.0),
                ),
            };
            return Some(api::Explanation {
                task,
                state,
                place,
                obstacles: vec![obstacle],
                remedies: vec![remedy],
            });
        };
        let scheduler = self.driver.scheduler();
        let words = AtServer(&self.names);
        let whole = self.advise_whole_limit(&mut explained);
        let mut text = explain_text::explain(&mut explained, now, scheduler, &words);
        text.obstacles.extend(whole);
        let spot = self.jobs.spot(task);
        let limit = spot.and_then(|spot| spot.request.hold_limit_sec);
        if let (Place::Held, Some(limit)) = (&explained.status.place, limit) {
            let limit = names::span(limit);
            let given_up =
                format!("it is given up when it has been held for {limit} (`hold_limit`)");
            text.obstacles.push(given_up);
        }
        Some(api::Explanation {
            task,
            state: task_state(&explained.status.place),
            place: text.place,
            obstacles: text.obstacles,
            remedies: text.remedies,
        })
    }

    fn skill_names(&self, skills: impl IntoIterator<Item = SkillId>) -> Vec<String> {
        let names = self.names.skill_names(skills).into_iter();
        names.map(|name| name.as_ref().to_owned()).collect()
    }
}

/// Adds what the request says of a task: its name, its entry, what it does.
pub(crate) fn task_described(
    request: &api::TaskRequest,
    entry: Option<String>,
    position: u64,
    mut info: TaskInfo,
) -> TaskInfo {
    info.name.clone_from(&request.name);
    info.priority = request.priority;
    info.does = match (&request.run, &entry) {
        (api::Work::Command(command), entry) => words(command, entry.as_deref(), position),
        (api::Work::Function(function), _) => vec![function.name.clone()],
    };
    info.entry = entry;
    info
}

/// What an agent starts, as far as that is known before a slot takes it.
fn words(command: &api::CommandRequest, entry: Option<&str>, position: u64) -> Vec<String> {
    let Ok(template) = command.template(entry.is_some()) else {
        return command.words.clone();
    };
    let items: Vec<_> = entry.into_iter().map(Into::into).collect();
    let filling = Filling {
        items: &items,
        sequence: position + 1,
        slot: None,
    };
    let words = template.words(&filling).into_iter();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
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
        // It waits there, or runs.
        Place::Queued { .. } | Place::Away => TaskState::Queued,
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
        earned: Vec::new(),
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

/// How a task ended, in the words of the API.
#[must_use]
pub fn ended_state(ended: loxley_journal::Ended) -> (TaskState, Option<Failure>) {
    use loxley_journal::Ended;
    match ended {
        Ended::Succeeded | Ended::FellBack => (TaskState::Succeeded, None),
        Ended::Failed(failure) => (TaskState::Failed, Some(failure)),
        Ended::Cancelled | Ended::Returned => (TaskState::Cancelled, None),
    }
}
