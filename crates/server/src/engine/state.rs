//! The whole state of a server, and its one entrance.
//!
//! [`State::apply`] takes in a fact and says what follows from it ([`Effects`]). Like the policy inside
//! it, it has no clock, no socket and no thread: the journal's facts, applied in order to a new state,
//! bring back the state of the server that wrote them.

use std::sync::Arc;

use bytes::Bytes;
use loxley_api::{ApiError, ErrorCode, EventKind, JobRequest, JobState, TaskState};
use loxley_journal::{AgentRow, Ended, JobRow, TaskOutput, TaskRow};
use loxley_model::{AgentId, JobId, Lease, TaskId, TaskSpec, Time};
use loxley_policy::{
    Action, Config, Ending, Input, Leftovers, Reason, Report, Scheduler, Selection, SubmitError,
};
use loxley_protocol as wire;

use super::digest::Digest;
use super::effects::{Effects, Finish, Kept};
use super::fact::{AgentRecord, Fact};
use super::fleet::{Fleet, InHand};
use super::ids::IdMap;
use super::jobs::{Job, Jobs, Phase, Tally};
use super::names::Directory;

/// What a fact led to, for whoever told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Nothing to tell.
    Done,
    /// A job was accepted, or was accepted before under the same key.
    Job(JobId),
    /// An agent has this number now.
    Agent(AgentId),
}

/// How the last attempt of a task that is not over ended.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) failure: loxley_model::Failure,
    pub(crate) finish: Option<Finish>,
}

/// Everything the server knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) scheduler: Scheduler,
    pub(crate) names: Directory,
    pub(crate) fleet: Fleet,
    pub(crate) jobs: Jobs,
    pub(crate) digest: Digest,
    pub(crate) now: Time,
    /// When time began, in nanoseconds since 1970. No decision depends on it.
    pub(crate) epoch_unix_ns: u64,
    /// Where tasks that may be moved left off.
    pub(super) checkpoints: IdMap<TaskId, Bytes>,
    /// Tasks that failed and are tried again.
    pub(crate) attempts: IdMap<TaskId, Attempt>,
    /// Tasks that ended before the policy ever saw them.
    pub(crate) unseen: Tally,
    /// Leases that the policy ended while the present fact was applied.
    pub(super) revoked: IdMap<TaskId, (AgentId, InHand)>,
    pub(super) actions: Vec<Action>,
}

impl State {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            scheduler: Scheduler::new(Config::default(), now),
            names: Directory::default(),
            fleet: Fleet::default(),
            jobs: Jobs::default(),
            digest: Digest::new(),
            now,
            epoch_unix_ns: 0,
            checkpoints: IdMap::default(),
            attempts: IdMap::default(),
            unseen: Tally::default(),
            revoked: IdMap::default(),
            actions: Vec::new(),
        }
    }

    /// Takes in a fact. `finish` is what an agent said of an attempt beyond its outcome: it goes to the
    /// history, not into a decision.
    pub(crate) fn apply(
        &mut self,
        now: Time,
        fact: Fact,
        finish: Option<Finish>,
        out: &mut Effects,
    ) -> Result<Applied, ApiError> {
        self.now = now;
        self.revoked.clear();
        let applied = match fact {
            Fact::Finished {
                agent,
                task,
                lease,
                outcome,
                ran,
            } => {
                let held = self.take_from_hand(agent, task, lease);
                if held.is_some_and(|held| held.started.is_none()) {
                    self.handle(Input::TaskRan { task, lease, ran });
                }
                self.handle(Input::TaskFinished {
                    task,
                    lease,
                    outcome,
                });
                self.settle(finish, out);
                return Ok(Applied::Done);
            }
            Fact::Started { agent, task, lease } => {
                self.note_start(agent, task, lease, out);
                self.handle(Input::TaskStarted { task, lease });
                Ok(Applied::Done)
            }
            Fact::Yielded {
                agent,
                task,
                lease,
                yielded,
            } => {
                self.yielded(agent, task, lease, yielded);
                Ok(Applied::Done)
            }
            Fact::Tick => {
                self.handle(Input::Tick);
                Ok(Applied::Done)
            }
            Fact::AgentHeard { agent, vitals } => {
                if let Some(this) = self.fleet.get_mut(agent) {
                    this.heard = now;
                    this.throttle = vitals.throttle;
                    this.round_trip_ns = vitals.round_trip.0;
                }
                self.handle(Input::AgentHeard { agent, vitals });
                Ok(Applied::Done)
            }
            Fact::AgentJoined(record) => self.agent_joined(*record, out),
            Fact::AgentResumed { agent, leases } => {
                self.agent_resumed(agent, &leases, out);
                Ok(Applied::Agent(agent))
            }
            Fact::AgentSilent(agent) => {
                self.handle(Input::AgentSilent(agent));
                Ok(Applied::Done)
            }
            Fact::AgentDrained(agent) => self.agent_drained(agent, out),
            Fact::AgentLeft(agent) => self.agent_left(agent, out),
            Fact::JobSubmitted { request, user } => self.submit(&request, &user, out),
            Fact::Cancelled(selection) => self.cancel(selection, out),
            Fact::Resubmitted(tasks) => self.resubmit(&tasks),
            Fact::Checkpoint {
                agent,
                task,
                lease,
                state,
            } => {
                self.keep_checkpoint(agent, task, lease, state);
                Ok(Applied::Done)
            }
            Fact::ConfigChanged(config) => {
                self.handle(Input::ConfigChanged(config));
                out.event(EventKind::ConfigChanged);
                Ok(Applied::Done)
            }
            Fact::RebalanceRequested => {
                self.handle(Input::RebalanceRequested);
                Ok(Applied::Done)
            }
            Fact::SnapshotTaken => {
                out.snapshot = self.renew(out.is_live());
                // Nothing was decided.
                return Ok(Applied::Done);
            }
            Fact::Restarted => {
                self.restarted();
                Ok(Applied::Done)
            }
        };
        self.settle(finish, out);
        applied
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input, &mut self.actions);
    }

    /// Carries out what the policy wants, and feeds it until it wants no more.
    fn settle(&mut self, mut finish: Option<Finish>, out: &mut Effects) {
        loop {
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.drain(..) {
                self.digest.add(&action);
                self.carry_out(action, &mut finish, out);
            }
            if self.actions.is_empty() {
                self.actions = actions;
            }
            if let Some((job, tasks)) = self.jobs.next_slice(self.fleet.slots(), self.now) {
                self.jobs.note_fed(&tasks);
                let tasks = tasks.into();
                self.handle(Input::TasksSubmitted { job, tasks });
            }
            if self.actions.is_empty() {
                return;
            }
        }
    }

    fn carry_out(&mut self, action: Action, finish: &mut Option<Finish>, out: &mut Effects) {
        match action {
            Action::Assign {
                task,
                agent,
                lease,
                attempt,
                reason,
            } => self.assign(task, agent, lease, attempt, reason, out),
            Action::Retract {
                task,
                agent,
                lease,
                running,
            } => out.frame(agent).retract.push(wire::Retract {
                task: task.0,
                lease: lease.0,
                running,
            }),
            Action::Cancel {
                task, agent, lease, ..
            } => {
                if let Some(held) = self
                    .fleet
                    .get_mut(agent)
                    .and_then(|agent| agent.in_hand.remove(&lease))
                {
                    self.jobs.note_lease(task, -1);
                    self.revoked.insert(task, (agent, held));
                }
                out.frame(agent).cancel.push(wire::Cancel {
                    task: task.0,
                    lease: lease.0,
                });
            }
            Action::Report(report) => self.note(report, finish, out),
            Action::SetTimer { .. } => {}
        }
    }

    fn assign(
        &mut self,
        task: TaskId,
        agent: AgentId,
        lease: Lease,
        attempt: u32,
        reason: Reason,
        out: &mut Effects,
    ) {
        let holder = self
            .fleet
            .get_mut(agent)
            .expect("the policy knows our agents");
        let held = InHand {
            task,
            attempt,
            started: None,
        };
        holder.in_hand.insert(lease, held);
        self.jobs.note_lease(task, 1);
        if let Reason::Stolen(from) | Reason::Rebalanced(from) | Reason::BehindStraggler(from) =
            reason
        {
            let word = match reason {
                Reason::Stolen(_) => "stolen",
                Reason::Rebalanced(_) => "rebalanced",
                _ => "behind_straggler",
            };
            out.event_with(|| EventKind::TaskMoved {
                task,
                from,
                to: agent,
                reason: word.to_owned(),
            });
        }
        if !out.is_live() {
            return;
        }
        let spot = self.jobs.spot(task).expect("a live task has a job");
        let entry = spot.request.entries.as_ref();
        let assign = wire::Assign {
            task: task.0,
            lease: lease.0,
            template: spot.part.first.0,
            attempt,
            position: spot.position,
            entry: entry
                .and_then(|entries| entries.text(spot.position))
                .map(Into::into),
            checkpoint: self.checkpoints.get(&task).cloned(),
        };
        out.frame(agent).assign.push(assign);
    }

    fn note(&mut self, report: Report, finish: &mut Option<Finish>, out: &mut Effects) {
        match report {
            Report::Finished { task, job, ending } => {
                self.task_over(task, job, ending, finish.take(), out);
            }
            Report::WillRetry { task, failure, .. } => {
                let job = self.jobs.spot(task).map(|spot| spot.job.id);
                let attempt = Attempt {
                    failure,
                    finish: finish.take(),
                };
                self.attempts.insert(task, attempt);
                out.event_with(|| EventKind::TaskRetried {
                    task,
                    job: job.unwrap_or(JobId(0)),
                    failure: failure_name(failure).to_owned(),
                });
            }
            Report::DeadlineLost { task, .. } => {
                out.event(EventKind::DeadlineMissed { task });
            }
            Report::AgentSuspected(agent) => {
                self.tell_state(agent, loxley_api::AgentState::Suspected, out);
            }
            Report::AgentRecovered(agent) => {
                self.tell_state(agent, loxley_api::AgentState::Alive, out);
            }
            Report::AgentLost(agent) => {
                self.fleet.set_registered(agent, false);
                self.tell_state(agent, loxley_api::AgentState::Lost, out);
                out.parted.push(agent);
            }
            // A job is over when all of its tasks are, fed or not: we keep that book ourselves.
            Report::Accepted { .. }
            | Report::Refused { .. }
            | Report::Rejected(_)
            | Report::StaleAnswer { .. }
            | Report::Queued { .. }
            | Report::Held { .. }
            | Report::JobFinished { .. }
            | Report::AgentLeft { .. }
            | Report::NothingToSteal(_)
            | Report::SkillSuspended { .. }
            | Report::SkillRestored { .. }
            | Report::Rebalanced { .. } => {}
        }
    }

    fn tell_state(&self, agent: AgentId, state: loxley_api::AgentState, out: &mut Effects) {
        out.event_with(|| EventKind::AgentChanged {
            agent,
            name: self.fleet.name(agent),
            state,
        });
    }

    // Jobs.

    fn submit(
        &mut self,
        request: &[u8],
        user: &str,
        out: &mut Effects,
    ) -> Result<Applied, ApiError> {
        let parsed: JobRequest = serde_json::from_slice(request)
            .map_err(|error| ApiError::invalid(error.to_string()))?;
        if let Some(known) = parsed.key.as_deref().and_then(|key| self.jobs.by_key(key)) {
            return Ok(Applied::Job(known));
        }
        let user = self.names.user(parsed.user.as_deref().unwrap_or(user))?;
        let parsed = Arc::new(parsed);
        let mut job = self
            .jobs
            .draft(Arc::clone(&parsed), user, &mut self.names, self.now)?;
        let id = job.id;
        for (group, limit) in &parsed.limits {
            let group = self.names.group(group)?;
            let limit = *limit;
            self.handle(Input::GroupLimitSet { group, limit });
        }
        let waits = !job.waits_for.is_empty();
        if !waits {
            self.open(&mut job)?;
        }
        let count = job.count;
        self.jobs.insert(job);
        if !waits {
            self.jobs.queue_rest(id);
        }
        out.event(EventKind::JobAccepted {
            job: id,
            tasks: count,
        });
        self.write_job(id, request, out);
        if waits {
            self.look_at_waiting(id, out);
        }
        Ok(Applied::Job(id))
    }

    /// Hands the first tasks of a job to the policy, which may refuse them.
    fn open(&mut self, job: &mut Job) -> Result<(), ApiError> {
        let tasks = Jobs::first_tasks(job, self.now)?;
        self.feed(job.spec(), tasks)?;
        job.phase = Phase::Open;
        Ok(())
    }

    fn feed(&mut self, job: loxley_model::JobSpec, tasks: Vec<TaskSpec>) -> Result<(), ApiError> {
        // Whatever else happens because of a submission is carried out later, with the rest.
        let levels: Vec<_> = tasks.iter().map(|task| task.priority).collect();
        let before = self.actions.len();
        let tasks = tasks.into();
        self.handle(Input::TasksSubmitted { job, tasks });
        let refused = self.actions[before..]
            .iter()
            .find_map(|action| match action {
                Action::Report(Report::Refused { errors, .. }) => Some(refusal(errors)),
                _ => None,
            });
        match refused {
            Some(error) => Err(error),
            None => {
                self.jobs.note_fed_levels(&levels);
                Ok(())
            }
        }
    }

    /// A job that waits: starts it if nothing is left to wait for, ends it if that cannot happen.
    fn look_at_waiting(&mut self, id: JobId, out: &mut Effects) {
        let Some(job) = self.jobs.get(id) else { return };
        if job.phase != Phase::Waiting {
            return;
        }
        let ended = |earlier: &JobId| self.jobs.ended(*earlier);
        let hopeless = job
            .waits_for
            .iter()
            .filter_map(ended)
            .any(|state| state != JobState::Succeeded);
        let ready = job
            .waits_for
            .iter()
            .all(|earlier| ended(earlier) == Some(JobState::Succeeded));
        if hopeless {
            let skip = job.request.on_dependency_failure == loxley_api::DependencyFailure::Skip;
            let job = self.jobs.get_mut(id).expect("was found");
            let left = job.drop_pending();
            for tally in [&mut job.tally, &mut self.unseen] {
                match skip {
                    true => tally.cancelled += left,
                    false => tally.failed += left,
                }
            }
            self.job_over(id, out);
        } else if ready {
            let mut job = self.jobs.take(id);
            let opened = self.open(&mut job);
            if opened.is_err() {
                // Refused at its start, as it would have been at its submission.
                job.drop_pending();
                let left = job.count - job.tally.over();
                job.tally.failed += left;
                self.unseen.failed += left;
            }
            self.jobs.put_back(job);
            match opened {
                Ok(()) => self.jobs.queue_rest(id),
                Err(_) => self.job_over(id, out),
            }
        }
    }

    fn task_over(
        &mut self,
        task: TaskId,
        job: JobId,
        ending: Ending,
        finish: Option<Finish>,
        out: &mut Effects,
    ) {
        self.checkpoints.remove(&task);
        let earlier = self.attempts.remove(&task);
        let this = self.jobs.get_mut(job).expect("a job outlives its tasks");
        match ending {
            Ending::Succeeded { .. } | Ending::FellBack { .. } => this.tally.succeeded += 1,
            Ending::Failed(_) => this.tally.failed += 1,
            Ending::Cancelled | Ending::Returned => this.tally.cancelled += 1,
        }
        let is_over = this.tally.over() == this.count;
        let spot = this.spot(task).expect("the task is one of its job");
        let priority = spot.request.priority;
        if out.is_live() {
            let revoked = self.revoked.get(&task).copied();
            let finish = finish.or_else(|| earlier.and_then(|attempt| attempt.finish));
            write_task(&spot, task, ending, finish, revoked, self.now, out);
        }
        self.jobs.note_gone(priority);
        if is_over {
            self.job_over(job, out);
        }
    }

    fn job_over(&mut self, id: JobId, out: &mut Effects) {
        let Some(job) = self.jobs.get(id) else { return };
        let state = job.tally.state();
        if out.is_live() {
            let detail = serde_json::to_vec(&*job.request).expect("a request is JSON");
            let row = self.job_row(job, state, Some(self.now), &detail);
            out.rows.jobs.push(row);
            let mut info = self.job_info(job);
            info.state = state;
            info.ended_unix_ms = Some(self.unix_ms(self.now));
            out.jobs_over.push(info);
        }
        out.event(EventKind::JobEnded { job: id, state });
        for waiting in self.jobs.end(id, state, self.now) {
            self.look_at_waiting(waiting, out);
        }
    }

    fn write_job(&self, id: JobId, request: &[u8], out: &mut Effects) {
        if let Some(job) = self.jobs.get(id).filter(|_| out.is_live()) {
            let row = self.job_row(job, JobState::Open, None, request);
            out.rows.jobs.push(row);
        }
    }

    fn job_row(&self, job: &Job, state: JobState, finished: Option<Time>, detail: &[u8]) -> JobRow {
        use loxley_journal::JobState as Stored;
        let fits = detail.len() <= loxley_journal::limits::DETAIL_BYTES_MAX;
        JobRow {
            job: job.id,
            name: job.request.name.clone().unwrap_or_default(),
            user: super::names::name_of(&self.names.users, job.user),
            first_task: job.first,
            task_count: job.count,
            state: match state {
                JobState::Waiting | JobState::Open => Stored::Open,
                JobState::Succeeded => Stored::Succeeded,
                JobState::Failed => Stored::Failed,
                JobState::Cancelled => Stored::Cancelled,
            },
            created: job.created,
            finished,
            succeeded: job.tally.succeeded,
            failed: job.tally.failed,
            cancelled: job.tally.cancelled,
            detail: if fits { detail.to_vec() } else { Vec::new() },
        }
    }

    fn cancel(&mut self, selection: Selection, out: &mut Effects) -> Result<Applied, ApiError> {
        match selection {
            Selection::Task(task) => self.cancel_task(task, out)?,
            Selection::Job(job) => self.cancel_job(job, out)?,
            Selection::All => {
                let mut open: Vec<JobId> = self
                    .jobs
                    .iter()
                    .filter(|job| !matches!(job.phase, Phase::Dormant(..)))
                    .map(|job| job.id)
                    .collect();
                open.sort_unstable();
                for job in open {
                    // One may have ended because of another.
                    let _ = self.cancel_job(job, out);
                }
            }
        }
        Ok(Applied::Done)
    }

    fn cancel_task(&mut self, task: TaskId, out: &mut Effects) -> Result<(), ApiError> {
        let spot = self
            .jobs
            .spot(task)
            .ok_or_else(|| ApiError::not_found("open task", task.0))?;
        let (job, fed) = (spot.job.id, spot.position < spot.part.fed);
        if fed {
            if self.scheduler.task_status(task).is_none() {
                let message = format!("task {} is over", task.0);
                return Err(ApiError::new(ErrorCode::Conflict, message));
            }
            self.handle(Input::CancelRequested(Selection::Task(task)));
            return Ok(());
        }
        let now = self.now;
        let job = self.jobs.get_mut(job).expect("was found");
        if job.skipped.insert(task) {
            job.tally.cancelled += 1;
            self.unseen.cancelled += 1;
            let (id, is_over) = (job.id, job.tally.over() == job.count);
            if out.is_live() {
                let spot = job.spot(task).expect("was found");
                write_task(&spot, task, Ending::Cancelled, None, None, now, out);
            }
            if is_over {
                self.job_over(id, out);
            }
        }
        Ok(())
    }

    fn cancel_job(&mut self, id: JobId, out: &mut Effects) -> Result<(), ApiError> {
        let was_there = self.jobs.was_given_out(id);
        let job = match self.jobs.get_mut(id) {
            Some(job) if !matches!(job.phase, Phase::Dormant(..)) => job,
            _ if was_there => {
                let message = format!("job {} is over", id.0);
                return Err(ApiError::new(ErrorCode::Conflict, message));
            }
            _ => return Err(ApiError::not_found("job", id.0)),
        };
        let pending = job.drop_pending();
        job.tally.cancelled += pending;
        self.unseen.cancelled += pending;
        if job.tally.over() == job.count {
            self.job_over(id, out);
        } else {
            self.handle(Input::CancelRequested(Selection::Job(id)));
        }
        Ok(())
    }

    fn resubmit(&mut self, tasks: &[TaskId]) -> Result<Applied, ApiError> {
        let dead: std::collections::BTreeSet<TaskId> = self.scheduler.dead_letters().collect();
        for task in tasks {
            if !dead.contains(task) || self.jobs.spot(*task).is_none() {
                let message = format!("task {} did not fail, or failed long ago", task.0);
                return Err(ApiError::new(ErrorCode::Conflict, message)
                    .with_help("only tasks that failed can be tried again"));
            }
        }
        for task in tasks {
            let spot = self.jobs.spot(*task).expect("was found");
            let (id, priority) = (spot.job.id, spot.request.priority);
            self.jobs.reopen(id);
            let job = self.jobs.get_mut(id).expect("was found");
            job.tally.failed = job.tally.failed.saturating_sub(1);
            self.jobs.note_fed_levels(&[priority]);
        }
        self.handle(Input::DeadLettersResubmitted(tasks.to_vec()));
        Ok(Applied::Done)
    }

    // What agents say of tasks.

    fn take_from_hand(&mut self, agent: AgentId, task: TaskId, lease: Lease) -> Option<InHand> {
        let held = self.fleet.get_mut(agent)?.in_hand.remove(&lease)?;
        self.jobs.note_lease(task, -1);
        self.revoked.insert(task, (agent, held));
        Some(held)
    }

    fn note_start(&mut self, agent: AgentId, task: TaskId, lease: Lease, out: &mut Effects) {
        let now = self.now;
        let holder = self.fleet.get_mut(agent);
        let Some(held) = holder.and_then(|holder| holder.in_hand.get_mut(&lease)) else {
            return;
        };
        held.started.get_or_insert(now);
        let attempt = held.attempt;
        out.event_with(|| EventKind::TaskStarted {
            task,
            job: self.jobs.spot(task).map_or(JobId(0), |spot| spot.job.id),
            agent,
            attempt,
        });
    }

    fn yielded(&mut self, agent: AgentId, task: TaskId, lease: Lease, yielded: bool) {
        if yielded {
            self.take_from_hand(agent, task, lease);
        }
        self.handle(Input::TaskYielded {
            task,
            lease,
            yielded,
        });
    }

    fn keep_checkpoint(&mut self, agent: AgentId, task: TaskId, lease: Lease, state: Bytes) {
        if self.fleet.holds(agent, lease).is_some() {
            self.checkpoints.insert(task, state);
            self.handle(Input::CheckpointSaved { task, lease });
        }
    }

    // Agents.

    fn agent_joined(
        &mut self,
        record: AgentRecord,
        out: &mut Effects,
    ) -> Result<Applied, ApiError> {
        let name = record.name.clone();
        let spec = self
            .names
            .agent_spec(AgentId(0), &record)
            .map_err(|error| ApiError::invalid(error.to_string()))?;
        let (id, is_new) = self.fleet.admit(record, self.now);
        self.fleet.set_registered(id, true);
        if is_new && out.is_live() {
            let name = name.clone();
            out.rows.agents.push(AgentRow { agent: id, name });
        }
        out.event(EventKind::AgentJoined { agent: id, name });
        let spec = loxley_model::AgentSpec { id, ..spec };
        self.handle(Input::AgentJoined(spec.into()));
        Ok(Applied::Agent(id))
    }

    /// An agent is back and says what it has. What it does not have, it never got.
    fn agent_resumed(&mut self, agent: AgentId, leases: &[Lease], out: &mut Effects) {
        self.handle(Input::AgentSilent(agent));
        let Some(this) = self.fleet.get(agent) else {
            return;
        };
        let has: std::collections::HashSet<Lease> = leases.iter().copied().collect();
        let mut missing: Vec<(Lease, TaskId)> = this
            .in_hand
            .iter()
            .filter(|(lease, _)| !has.contains(lease))
            .map(|(lease, held)| (*lease, held.task))
            .collect();
        missing.sort_unstable();
        let unknown = leases
            .iter()
            .filter(|lease| !this.in_hand.contains_key(lease));
        let cancels = unknown.map(|lease| wire::Cancel {
            task: 0,
            lease: lease.0,
        });
        out.frame(agent).cancel.extend(cancels);
        for (lease, task) in missing {
            self.yielded(agent, task, lease, true);
        }
        let vitals = loxley_policy::Vitals::default();
        self.handle(Input::AgentHeard { agent, vitals });
    }

    fn agent_drained(&mut self, agent: AgentId, out: &mut Effects) -> Result<Applied, ApiError> {
        let this = self
            .fleet
            .get_mut(agent)
            .filter(|agent| agent.registered)
            .ok_or_else(|| ApiError::not_found("agent", agent.0))?;
        if !std::mem::replace(&mut this.draining, true) {
            self.handle(Input::AgentDrained(agent));
            self.tell_state(agent, loxley_api::AgentState::Draining, out);
        }
        Ok(Applied::Done)
    }

    fn agent_left(&mut self, agent: AgentId, out: &mut Effects) -> Result<Applied, ApiError> {
        if !self.fleet.get(agent).is_some_and(|agent| agent.registered) {
            return Err(ApiError::not_found("agent", agent.0));
        }
        self.fleet.set_registered(agent, false);
        let tasks = Leftovers::Requeue;
        self.handle(Input::AgentLeft { agent, tasks });
        self.tell_state(agent, loxley_api::AgentState::Lost, out);
        out.parted.push(agent);
        Ok(Applied::Done)
    }

    fn restarted(&mut self) {
        let here: Vec<AgentId> = self
            .fleet
            .iter()
            .filter(|(_, agent)| agent.registered)
            .map(|(id, _)| id)
            .collect();
        for agent in here {
            self.handle(Input::AgentSilent(agent));
        }
    }

    /// Tasks that the policy has.
    pub(crate) fn live(&self) -> u64 {
        self.scheduler.counts().live()
    }

    /// What an agent needs to know to run the tasks of a part.
    pub(crate) fn template(&self, first: TaskId) -> Option<wire::Template> {
        let spot = self.jobs.spot(first)?;
        Some(super::effects::template(&spot))
    }

    /// The state of a task that is over, when its job is still in memory.
    pub(crate) fn is_pending(&self, task: TaskId) -> Option<TaskState> {
        let spot = self.jobs.spot(task)?;
        let unfed = spot.position >= spot.part.fed;
        (unfed && !spot.job.skipped.contains(&task)).then_some(TaskState::Pending)
    }
}

fn refusal(errors: &[SubmitError]) -> ApiError {
    let all: Vec<String> = errors.iter().take(5).map(ToString::to_string).collect();
    ApiError::invalid(all.join("; "))
}

fn write_task(
    spot: &super::jobs::Spot<'_>,
    task: TaskId,
    ending: Ending,
    finish: Option<Finish>,
    held: Option<(AgentId, InHand)>,
    now: Time,
    out: &mut Effects,
) {
    let ended = match ending {
        Ending::Succeeded { .. } => Ended::Succeeded,
        Ending::FellBack { .. } => Ended::FellBack,
        Ending::Failed(failure) => Ended::Failed(failure),
        Ending::Cancelled => Ended::Cancelled,
        Ending::Returned => Ended::Returned,
    };
    let ran = finish.as_ref();
    out.event_with(|| EventKind::TaskEnded {
        task,
        job: spot.job.id,
        state: match ended {
            Ended::Succeeded | Ended::FellBack => TaskState::Succeeded,
            Ended::Failed(_) => TaskState::Failed,
            Ended::Cancelled | Ended::Returned => TaskState::Cancelled,
        },
        failure: match ended {
            Ended::Failed(failure) => Some(failure_name(failure).to_owned()),
            _ => None,
        },
    });
    out.rows.tasks.push(TaskRow {
        task,
        job: spot.job.id,
        entry: spot.request.entries.as_ref().map(|_| spot.position),
        ended,
        exit_code: ran.and_then(|finish| finish.exit_code),
        signal: ran.and_then(|finish| finish.signal),
        agent: held.map(|(agent, _)| agent),
        attempt: held.map_or(0, |(_, held)| held.attempt),
        created: spot.job.created,
        started: match ran {
            Some(finish) => Some(now - finish.usage.duration),
            None => held.and_then(|(_, held)| held.started),
        },
        finished: now,
        usage: ran.map(|finish| finish.usage),
    });
    let fallback = match (&ending, &spot.request.fallback) {
        (Ending::FellBack { to: None }, Some(loxley_api::FallbackRequest::Value(value))) => {
            Some(value.0.clone())
        }
        _ => None,
    };
    let result = fallback.or_else(|| finish.as_ref().map(|finish| finish.result.to_vec()));
    let output = finish
        .map(Kept::from)
        .filter(|kept| !kept.is_empty())
        .map(|kept| kept.pack());
    if output.is_some() || result.as_ref().is_some_and(|result| !result.is_empty()) {
        out.rows.outputs.push(TaskOutput {
            task,
            output: output.unwrap_or_default(),
            result: result.unwrap_or_default(),
        });
    }
}

/// The word of the API for a failure.
pub(crate) fn failure_name(failure: loxley_model::Failure) -> &'static str {
    use loxley_model::Failure;
    match failure {
        Failure::Error => "error",
        Failure::Permanent => "permanent",
        Failure::TimeLimit => "time_limit",
        Failure::AgentLost => "agent_lost",
        Failure::Unassignable => "unassignable",
        Failure::Dependency => "dependency",
    }
}
