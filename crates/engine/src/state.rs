//! The whole state of a server, and its one entrance.
//!
//! [`State::apply`] takes in a fact and says what follows from it ([`Effects`]). Like the policy inside
//! it, it has no clock, no socket and no thread: the journal's facts, applied in order to a new state,
//! bring back the state of the server that wrote them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use loxley_api::{ApiError, Entries, ErrorCode, EventKind, SkillChange, TaskState};
use loxley_driver::explain_text::failure_word;
use loxley_driver::self_tuning::SelfTuner;
use loxley_driver::{Directory, Driver, Held, IdMap, IdSet};
use loxley_journal::{AgentRow, Ended, JobRow, TaskOutput, TaskRow};
use loxley_model::{
    AgentId, DependencyFailure, Failure, JobId, JobState, Lease, Outcome, SkillId, Span, TaskId,
    TaskSpec, Time,
};
use loxley_policy::{
    Action, Config, Ending, Input, Leftovers, Reason, Report, Selection, SubmitError,
};

use loxley_cluster::moves::Input as Move;

use crate::digest::Digest;
use crate::effects::{Assignment, Effects, Finish, Kept, Retraction};
use crate::fact::{AgentRecord, Fact};
use crate::fleet::Fleet;
use crate::jobs::{Job, Jobs, Phase, Tally};
use crate::keys::Keyed;
use crate::ledger::Ledger;
use crate::moving::Moving;
use crate::names::{agent_spec, bad_name};
use crate::submission::Submission;
use crate::task_steps::{NamedAgent, TaskStepKind, move_of, stop_word};
use loxley_cluster::budgets::Budgets;

/// What a fact led to, for whoever told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
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
    pub(crate) failure: Failure,
    pub(crate) finish: Option<Finish>,
    /// Who ran it, as which attempt.
    pub(crate) held: Option<Held>,
}

/// Everything the server knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) driver: Driver,
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
    /// What is counted for people. No decision depends on it.
    pub(crate) ledger: Ledger,
    /// The configuration that the last start was given.
    pub(crate) given_config: Option<Box<Config>>,
    /// Who changes settings by himself, where that is allowed.
    pub(crate) tuner: SelfTuner,
    /// The lease that ends with the fact that is taken in.
    pub(crate) finishing: Option<Lease>,
    /// Who ran a task of this shard elsewhere whose end is taken in.
    pub(crate) held_away: Option<Held>,
    /// Tasks on their way to and from other shards; none where nobody ever asked for any.
    pub(crate) moving: Option<Box<Moving>>,
    /// Limits of groups that hold in all shards together.
    pub(crate) budgets: Budgets,
}

impl State {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            driver: Driver::new(Config::default(), now),
            names: Directory::default(),
            fleet: Fleet::default(),
            jobs: Jobs::default(),
            digest: Digest::new(),
            now,
            epoch_unix_ns: 0,
            checkpoints: IdMap::default(),
            attempts: IdMap::default(),
            unseen: Tally::default(),
            ledger: Ledger::new(now),
            given_config: None,
            tuner: SelfTuner::default(),
            finishing: None,
            held_away: None,
            moving: None,
            budgets: Budgets::default(),
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
        self.ledger.look(now, self.driver.scheduler());
        self.tuner.observe(now, self.driver.scheduler());
        self.now = now;
        let applied = match fact {
            Fact::Finished {
                agent,
                task,
                lease,
                outcome,
                ran,
            } => {
                self.attempt_ended((agent, task, lease), outcome, ran, finish, out);
                return Ok(Applied::Done);
            }
            Fact::GuestFinished {
                agent,
                task,
                lease,
                outcome,
                ran,
                finish,
            } => {
                let finish = Some(Finish::from(*finish));
                self.attempt_ended((agent, task, lease), outcome, ran, finish, out);
                return Ok(Applied::Done);
            }
            Fact::Started { agent, task, lease } => {
                self.note_start(agent, task, lease, out);
                out.step_with(now, || TaskStepKind::Started { task, lease });
                self.handle(Input::TaskStarted { task, lease });
                Ok(Applied::Done)
            }
            Fact::Yielded {
                agent,
                task,
                lease,
                yielded,
            } => {
                if yielded {
                    out.step_with(now, || TaskStepKind::Yielded { task, lease });
                }
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
            Fact::JobExtended {
                job,
                task,
                entries,
                cost,
            } => self.extend(job, task as usize, entries, cost),
            Fact::JobClosed(job) => self.close(job, out),
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
            Fact::ConfigChanged(mut config) => {
                self.complete(&mut config);
                self.tuner.forget();
                self.handle(Input::ConfigChanged(config));
                out.event(EventKind::ConfigChanged);
                Ok(Applied::Done)
            }
            Fact::ConfigGiven(mut config) => {
                self.complete(&mut config);
                self.tuner.forget();
                if *config != *self.driver.scheduler().config() {
                    self.handle(Input::ConfigChanged(config.clone()));
                    out.event(EventKind::ConfigChanged);
                }
                self.given_config = Some(config);
                Ok(Applied::Done)
            }
            Fact::StoodStill(gap) => {
                self.handle(Input::StoodStill(gap));
                Ok(Applied::Done)
            }
            Fact::RebalanceRequested => {
                self.handle(Input::RebalanceRequested);
                Ok(Applied::Done)
            }
            Fact::Restarted => {
                self.tuner.begin_anew();
                self.restarted();
                Ok(Applied::Done)
            }
            Fact::AgentForgotten(agent) => self.agent_forgotten(agent),
            Fact::SelfTuningSet(rules) => {
                let mut config = self.driver.scheduler().config().clone();
                config.self_tuning = *rules;
                self.tuner.forget();
                self.handle(Input::ConfigChanged(Box::new(config)));
                Ok(Applied::Done)
            }
            Fact::NumberedFrom(base) => self.number_from(base),
            Fact::ForecastSet(rules) => {
                let mut config = self.driver.scheduler().config().clone();
                config.forecast = *rules;
                self.handle(Input::ConfigChanged(Box::new(config)));
                Ok(Applied::Done)
            }
            Fact::SettingTuned(step) => {
                let changed = self
                    .tuner
                    .apply(now, &step, self.driver.scheduler().config());
                if let Some(config) = changed {
                    self.handle(Input::ConfigChanged(Box::new(config)));
                    out.event(EventKind::ConfigChanged);
                }
                Ok(Applied::Done)
            }
            Fact::AddedRulesSet(rules) => {
                let mut config = self.driver.scheduler().config().clone();
                config.added = *rules;
                self.tuner.forget();
                self.handle(Input::ConfigChanged(Box::new(config)));
                Ok(Applied::Done)
            }
            Fact::SkillRevoked { agent, skill } => self.revoke_skill(agent, &skill),
            Fact::UserWeightSet { user, weight } => self.set_user_weight(&user, weight),
            Fact::TasksAsked { donor, wish } => self.follow(Move::Asked { donor, wish }, out),
            Fact::TasksGiven { to, tasks } => self.give_away(to, &tasks, out),
            Fact::LetterReceived(letter) => self.follow(Move::Received(*letter), out),
            Fact::LettersRead { by, number } => self.follow(Move::Acknowledged { by, number }, out),
            Fact::LettersSent => self.follow(Move::Flush, out),
            Fact::GuestUnwanted(task) => {
                self.send_home(task, out);
                Ok(Applied::Done)
            }
            Fact::BudgetsReviewed => {
                self.review_budgets(out);
                Ok(Applied::Done)
            }
        };
        self.settle(finish, out);
        applied
    }

    /// An attempt ended under this lease.
    fn attempt_ended(
        &mut self,
        (agent, task, lease): (AgentId, TaskId, Lease),
        outcome: Outcome,
        ran: Span,
        finish: Option<Finish>,
        out: &mut Effects,
    ) {
        let now = self.now;
        let held = self.held(agent, task, lease);
        if held.is_some() {
            out.step_with(now, || TaskStepKind::AttemptEnded {
                task,
                lease,
                ran,
                failure: match outcome {
                    Outcome::Failed(failure) => Some(failure),
                    Outcome::Succeeded => None,
                },
                exit_code: finish.as_ref().and_then(|finish| finish.exit_code),
            });
        }
        if let Some(held) = held {
            let spot = self.jobs.spot(task);
            let work = spot.as_ref().and_then(|spot| spot.part.kind.work);
            let user = spot.map(|spot| spot.job.user);
            let took = held.started.map_or(ran, |started| now.since(started));
            self.ledger.ran(work, user, took);
        }
        if held.is_some_and(|held| held.started.is_none()) {
            self.handle(Input::TaskRan { task, lease, ran });
        }
        self.handle(Input::TaskFinished {
            task,
            lease,
            outcome,
        });
        self.finishing = Some(lease);
        let untold = self.settle(finish, out);
        self.finishing = None;
        match outcome {
            Outcome::Failed(failure) => self.note_attempt(task, failure, untold),
            Outcome::Succeeded => self.keep_result(task, lease, held, untold, out),
        }
    }

    /// Whoever has given out a number keeps counting from there.
    fn number_from(&mut self, base: u64) -> Result<Applied, ApiError> {
        let is_new = self.jobs.is_unused() && self.fleet.iter().next().is_none();
        if !is_new {
            let message = "numbers have been given out before";
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        self.jobs = Jobs::counted_from(base);
        self.fleet = Fleet::counted_from(base);
        self.names.agents.count_from(base);
        Ok(Applied::Done)
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.driver.tell(self.now, input);
    }

    /// Carries out what the core wants, and feeds it until it wants no more. Returns what was said of an attempt
    /// if nothing came of it that is told.
    pub(crate) fn settle(
        &mut self,
        mut finish: Option<Finish>,
        out: &mut Effects,
    ) -> Option<Finish> {
        loop {
            while let Some(action) = self.driver.next_action() {
                self.digest.add(&action);
                if out.wants_decisions {
                    out.decisions.push((self.now, action.clone()));
                }
                self.carry_out(action, &mut finish, out);
            }
            let slice = self.jobs.next_slice(self.fleet.slots(), self.now);
            let Some((job, tasks)) = slice else {
                return finish;
            };
            self.jobs.note_fed(&tasks);
            let tasks = tasks.into();
            self.handle(Input::TasksSubmitted { job, tasks });
        }
    }

    fn carry_out(&mut self, action: Action, finish: &mut Option<Finish>, out: &mut Effects) {
        if out.wants_steps {
            self.note_step(&action, out);
        }
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
            } => {
                self.ledger.asked_back(task, self.now);
                out.orders(agent).retract.push(Retraction {
                    task,
                    lease,
                    running,
                });
            }
            Action::Cancel {
                task,
                agent,
                lease,
                awaited: true,
                ..
            } => out.orders(agent).stop.push((task, lease)),
            Action::Cancel {
                task, agent, lease, ..
            } => {
                let ended = self.driver.leases().just_ended(task);
                if ended.is_some_and(|(ended, _)| ended == lease) {
                    self.jobs.note_lease(task, -1);
                }
                out.orders(agent).cancel.push(lease);
            }
            Action::Report(report) => self.note(report, finish, out),
            Action::SetTimer { .. } => {}
        }
    }

    /// Notes what a decision means for the path of a task.
    fn note_step(&self, action: &Action, out: &mut Effects) {
        let named = |id| NamedAgent {
            id,
            name: self.agent_name(id),
        };
        let moved = |reason| move_of(reason).map(|(from, word): (AgentId, _)| (named(from), word));
        let job_of = |task| self.jobs.spot(task).map_or(JobId(0), |spot| spot.job.id);
        let kind = match *action {
            Action::Assign {
                task,
                agent,
                lease,
                attempt,
                reason,
            } => TaskStepKind::Assigned {
                task,
                job: job_of(task),
                agent: named(agent),
                lease,
                attempt,
                moved: moved(reason),
                is_second_copy: matches!(reason, Reason::Speculation(_)),
            },
            Action::Cancel {
                task,
                lease,
                reason,
                awaited: false,
                ..
            } => TaskStepKind::Stopped {
                task,
                lease,
                why: stop_word(reason),
            },
            Action::Report(Report::Queued {
                task,
                agent,
                reason,
            }) => TaskStepKind::Queued {
                task,
                job: job_of(task),
                agent: named(agent),
                moved: moved(reason),
            },
            Action::Report(Report::WillRetry { task, failure, .. }) => {
                TaskStepKind::WillRetry { task, failure }
            }
            _ => return,
        };
        out.step_with(self.now, || kind);
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
        let job = self.jobs.note_lease(task, 1);
        if let Some(job) = job {
            let ready = self.driver.scheduler().ready_since(task);
            let waited = ready.map_or(Span::ZERO, |ready| self.now.since(ready));
            let spot = self.jobs.spot(task);
            let whose = spot.map(|spot| (spot.job.user, spot.request.priority));
            self.ledger.assigned(job, whose, waited);
            if let Reason::Stolen(_) = reason {
                self.ledger.stolen(job, task, self.now);
            }
        }
        if let Some((from, word)) = move_of(reason) {
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
        let assignment = Assignment {
            task,
            lease,
            attempt,
            part: spot.part.first,
            position: spot.number(),
            entry: spot.entry(),
            checkpoint: self.checkpoints.get(&task).cloned(),
            reason,
        };
        out.orders(agent).assign.push(assignment);
    }

    fn note(&mut self, report: Report, finish: &mut Option<Finish>, out: &mut Effects) {
        match report {
            Report::Finished { task, job, ending } => {
                self.task_over(task, job, ending, finish.take(), out);
            }
            Report::WillRetry { task, failure, .. } => {
                let job = self.jobs.spot(task).map(|spot| spot.job.id);
                self.note_attempt(task, failure, finish.take());
                out.event_with(|| EventKind::TaskRetried {
                    task,
                    job: job.unwrap_or(JobId(0)),
                    failure: failure_word(failure).to_owned(),
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
                // One that was told to end and never came to it is lost all the same.
                if let Some(agent) = self.fleet.get_mut(agent) {
                    agent.draining = false;
                }
                self.tell_state(agent, loxley_api::AgentState::Lost, out);
                out.parted.push(agent);
            }
            Report::SkillSuspended { agent, skill, .. } => {
                self.tell_skill(agent, skill, SkillChange::Suspended, out);
            }
            Report::SkillRestored { agent, skill } => {
                self.tell_skill(agent, skill, SkillChange::Restored, out);
            }
            Report::SkillEarned { agent, skill } => {
                self.tell_skill(agent, skill, SkillChange::Earned, out);
            }
            Report::SkillRevoked { agent, skill } => {
                self.tell_skill(agent, skill, SkillChange::Revoked, out);
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
            | Report::Rebalanced { .. } => {}
        }
    }

    /// Keeps how the last attempt of a task ended that is not over: it is tried again, or its fallback runs.
    fn note_attempt(&mut self, task: TaskId, failure: Failure, finish: Option<Finish>) {
        if finish.is_none() || self.driver.scheduler().task_status(task).is_none() {
            return;
        }
        let ended = self.driver.leases().just_ended(task);
        let attempt = Attempt {
            failure,
            finish,
            held: ended.map(|(_, held)| held),
        };
        self.attempts.insert(task, attempt);
    }

    /// A task succeeded, but is over only when its other copy is gone: what came of it is written now.
    fn keep_result(
        &mut self,
        task: TaskId,
        lease: Lease,
        held: Option<Held>,
        finish: Option<Finish>,
        out: &mut Effects,
    ) {
        let Some(ending) = self.driver.scheduler().decided(task) else {
            return;
        };
        let is_this = matches!(ending, Ending::Succeeded { lease: won, .. } if won == lease);
        if is_this && self.is_guest(task) {
            self.keep_guest_result(task, finish, held);
        } else if is_this && out.keeps_history() {
            let spot = self.jobs.spot(task).expect("a live task has a job");
            write_row(&spot, task, ending, finish, held, self.now, out);
        }
    }

    fn tell_state(&self, agent: AgentId, state: loxley_api::AgentState, out: &mut Effects) {
        out.event_with(|| EventKind::AgentChanged {
            agent,
            name: self.agent_name(agent),
            state,
        });
    }

    // Jobs.

    fn submit(
        &mut self,
        submission: &Submission,
        user: &str,
        out: &mut Effects,
    ) -> Result<Applied, ApiError> {
        let parsed = Arc::clone(submission.request());
        let user = parsed.user.as_deref().unwrap_or(user);
        let user = self.names.users.intern(user).map_err(bad_name)?;
        if let Some((key, content)) = submission.key()
            && let Some(known) = self.jobs.keys.find(user, key, content)?
        {
            return Ok(Applied::Job(known));
        }
        let mut job = self.jobs.draft(
            Arc::clone(&parsed),
            user,
            &mut self.names,
            self.now,
            self.moving.is_some(),
        )?;
        let id = job.id;
        for group in parsed.limits.keys() {
            self.names.groups.intern(group).map_err(bad_name)?;
        }
        self.limit_groups(&parsed, out);
        let waits = !job.waits_for.is_empty();
        if !waits {
            self.open(&mut job)?;
        }
        let count = job.count;
        self.ledger.of_open(id);
        self.jobs.insert(job);
        if let Some((key, content)) = submission.key() {
            let key = key.into();
            let job = id;
            let keyed = Keyed {
                user,
                key,
                job,
                content,
            };
            self.jobs.keys.insert(keyed);
        }
        if !waits {
            self.jobs.queue_rest(id);
        }
        out.event(EventKind::JobAccepted {
            job: id,
            tasks: count,
        });
        out.step_with(self.now, || TaskStepKind::JobAccepted {
            job: id,
            name: parsed.name.clone(),
            user: self.names.user_name(user).as_ref().to_owned(),
            tasks: count,
            traceparent: parsed.traceparent.clone(),
        });
        self.write_job(id, submission.text(), out);
        if waits {
            self.watch_others(id, out);
            self.look_at_waiting(id, false, out);
        } else if self.jobs.get(id).is_some_and(Job::is_over) {
            // All of it was done before.
            self.job_over(id, out);
        }
        Ok(Applied::Job(id))
    }

    /// The job that may be added to, or why there is none.
    fn open_job(&mut self, id: JobId) -> Result<&mut Job, ApiError> {
        let was_there = self.jobs.was_given_out(id);
        match self.jobs.get_mut(id) {
            Some(job) if job.open => Ok(job),
            _ if was_there => {
                let message = format!("job {} is not open for more entries", id.0);
                let help = "submit it with `--open` to add to it";
                Err(ApiError::new(ErrorCode::Conflict, message).with_help(help))
            }
            _ => Err(ApiError::not_found("job", id.0)),
        }
    }

    fn extend(
        &mut self,
        id: JobId,
        task: usize,
        entries: Entries,
        cost: Option<Span>,
    ) -> Result<Applied, ApiError> {
        let job = self.open_job(id)?;
        let runs = job.phase == Phase::Open;
        let request = job.request.tasks.get(task);
        if request.is_none_or(|request| request.entries.is_none()) {
            return Err(ApiError::invalid("only an array takes more entries"));
        }
        if entries.count() == 0 {
            return Ok(Applied::Job(id));
        }
        let names = &mut self.names;
        self.jobs.extend(id, task, entries, cost, names, self.now)?;
        if runs {
            self.jobs.queue_added(id);
        }
        Ok(Applied::Job(id))
    }

    fn close(&mut self, id: JobId, out: &mut Effects) -> Result<Applied, ApiError> {
        let job = self.open_job(id)?;
        job.open = false;
        if job.phase == Phase::Open && job.is_over() {
            self.job_over(id, out);
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
        if tasks.is_empty() {
            return Ok(());
        }
        let levels: Vec<_> = tasks.iter().map(|task| task.priority).collect();
        self.driver
            .submit(self.now, job, tasks.into())
            .map_err(refusal)?;
        self.jobs.note_fed_levels(&levels);
        Ok(())
    }

    /// A job that waits: starts it if nothing is left to wait for, ends it if that cannot happen.
    fn look_at_waiting(&mut self, id: JobId, is_hopeless: bool, out: &mut Effects) {
        let Some(job) = self.jobs.get(id) else { return };
        if job.phase != Phase::Waiting {
            return;
        }
        let ended = |earlier: &JobId| self.jobs.ended(*earlier);
        let mut known = job.waits_for.iter().filter_map(ended);
        let hopeless = is_hopeless || known.any(|state| state != JobState::Succeeded);
        let ready = job
            .waits_for
            .iter()
            .all(|earlier| ended(earlier) == Some(JobState::Succeeded));
        if hopeless {
            let skip = job.request.on_dependency_failure == DependencyFailure::Skip;
            let job = self.jobs.get_mut(id).expect("was found");
            let left = job.drop_pending();
            for tally in [&mut job.tally, &mut self.unseen] {
                match skip {
                    true => tally.cancelled += left,
                    false => tally.failed += left,
                }
            }
            self.jobs.get_mut(id).expect("was found").open = false;
            self.job_over(id, out);
        } else if ready {
            let mut job = self.jobs.take(id);
            let opened = self.open(&mut job);
            if opened.is_err() {
                // Refused at its start, as it would have been at its submission.
                job.open = false;
                job.drop_pending();
                let left = job.count - job.tally.over();
                job.tally.failed += left;
                self.unseen.failed += left;
            }
            let is_over = job.is_over();
            self.jobs.put_back(job);
            if opened.is_ok() {
                self.jobs.queue_rest(id);
            }
            if is_over {
                self.job_over(id, out);
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
        self.ledger.forget(task);
        let earlier = self.attempts.remove(&task);
        if self.is_guest(task) {
            let ended = self.driver.leases().just_ended(task).map(|(_, held)| held);
            let before = earlier.as_ref().and_then(|attempt| attempt.held);
            let finish = finish.or_else(|| earlier.and_then(|attempt| attempt.finish));
            return self.guest_over(task, ending, finish, ended.or(before), out);
        }
        let this = self.jobs.get_mut(job).expect("a job outlives its tasks");
        match ending {
            Ending::Succeeded { .. } | Ending::FellBack { .. } => this.tally.succeeded += 1,
            Ending::Failed(_) => this.tally.failed += 1,
            Ending::Cancelled | Ending::Returned => this.tally.cancelled += 1,
        }
        let is_over = this.is_over();
        let spot = this.spot(task).expect("the task is one of its job");
        let priority = spot.request.priority;
        if let Some(deadline) = spot.part.deadline {
            let succeeded = matches!(ending, Ending::Succeeded { .. } | Ending::FellBack { .. });
            self.ledger.deadline(succeeded && self.now <= deadline);
        }
        if out.is_live() {
            let ended = self.driver.leases().just_ended(task);
            let before = earlier.as_ref().and_then(|attempt| attempt.held);
            let held = ended.map(|(_, held)| held).or(before).or(self.held_away);
            let finish = finish.or_else(|| earlier.and_then(|attempt| attempt.finish));
            match ending {
                // It was written when it succeeded: what ended now is its other copy.
                Ending::Succeeded { lease, .. } if self.finishing != Some(lease) => {
                    tell_end(&spot, task, ending, self.now, out);
                }
                _ => write_task(&spot, task, ending, finish, held, self.now, out),
            }
        }
        let failed = matches!(ending, Ending::Failed(_));
        self.jobs.note_over(job, task, failed, out.may_retry());
        self.jobs.note_gone(priority);
        if is_over {
            self.job_over(job, out);
        }
    }

    fn job_over(&mut self, id: JobId, out: &mut Effects) {
        let Some(job) = self.jobs.get(id) else { return };
        let state = job.tally.state();
        if out.keeps_history() {
            // What was asked for is in the history since it was accepted.
            let row = self.job_row(job, state, Some(self.now), &[]);
            out.rows.jobs.push(row);
        }
        if out.is_live() {
            let mut info = self.job_info(job);
            info.state = state;
            info.ended_unix_ms = Some(self.unix_ms(self.now));
            out.jobs_over.push(info);
        }
        self.ledger.job_ended(id);
        out.event(EventKind::JobEnded { job: id, state });
        out.step_with(self.now, || TaskStepKind::JobEnded { job: id, state });
        for waiting in self.jobs.end(id, state, self.now) {
            self.look_at_waiting(waiting, false, out);
        }
        self.tell_watchers(id, state, out);
    }

    /// A job of another shard is over that jobs of this one come after; none: it was never there.
    pub(crate) fn other_job_over(&mut self, id: JobId, ended: Option<JobState>, out: &mut Effects) {
        let is_hopeless = ended != Some(JobState::Succeeded);
        for waiting in self.jobs.dependents.remove(&id).unwrap_or_default() {
            if let Some(job) = self.jobs.get_mut(waiting) {
                job.waits_for.retain(|earlier| *earlier != id);
            }
            self.look_at_waiting(waiting, is_hopeless, out);
        }
    }

    fn write_job(&self, id: JobId, request: &[u8], out: &mut Effects) {
        if let Some(job) = self.jobs.get(id).filter(|_| out.keeps_history()) {
            let row = self.job_row(job, JobState::Open, None, request);
            out.rows.jobs.push(row);
        }
    }

    fn job_row(&self, job: &Job, state: JobState, finished: Option<Time>, detail: &[u8]) -> JobRow {
        let fits = detail.len() <= loxley_journal::limits::DETAIL_BYTES_MAX;
        JobRow {
            job: job.id,
            name: job.request.name.clone().unwrap_or_default(),
            user: self.names.user_name(job.user).as_ref().to_owned(),
            first_task: job.first,
            // Up to the last one: what was added later need not follow without gaps.
            task_count: job.end - job.first.0,
            state,
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
            if self.driver.scheduler().task_status(task).is_none() {
                let message = format!("task {} is over", task.0);
                return Err(ApiError::new(ErrorCode::Conflict, message));
            }
            self.handle(Input::CancelRequested(Selection::Task(task)));
            self.call_back(|away| away == task, out);
            return Ok(());
        }
        let now = self.now;
        let job = self.jobs.get_mut(job).expect("was found");
        if job.skipped.insert(task) {
            job.tally.cancelled += 1;
            self.unseen.cancelled += 1;
            let (id, is_over) = (job.id, job.is_over());
            if out.is_live() {
                let spot = job.spot(task).expect("was found");
                write_task(&spot, task, Ending::Cancelled, None, None, now, out);
            }
            self.jobs.note_over(id, task, false, out.may_retry());
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
        // Nobody wants what might still be added, either.
        job.open = false;
        if job.request.open && out.keeps_history() {
            for task in job.unfed().collect::<Vec<_>>() {
                let spot = job.spot(task).expect("it is one of the job");
                write_task(&spot, task, Ending::Cancelled, None, None, self.now, out);
            }
        }
        let pending = job.drop_pending();
        job.tally.cancelled += pending;
        self.unseen.cancelled += pending;
        if job.is_over() {
            self.job_over(id, out);
        } else {
            let tasks = job.first..=job.last();
            self.handle(Input::CancelRequested(Selection::Job(id)));
            self.call_back(|away| tasks.contains(&away), out);
        }
        Ok(())
    }

    fn resubmit(&mut self, tasks: &[TaskId]) -> Result<Applied, ApiError> {
        // Named twice is wanted once. None named would be all of them to the core, and none is what was meant.
        let tasks: BTreeSet<TaskId> = tasks.iter().copied().collect();
        if tasks.is_empty() {
            let message = "no task is named that should be tried again";
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        let dead: BTreeSet<TaskId> = self.driver.scheduler().dead_letters().collect();
        for task in &tasks {
            if !dead.contains(task) || self.jobs.spot(*task).is_none() {
                let message = format!("task {} did not fail, or failed long ago", task.0);
                return Err(ApiError::new(ErrorCode::Conflict, message)
                    .with_help("only tasks that failed can be tried again"));
            }
        }
        let again = self.in_order(&tasks, &dead)?;
        for task in &tasks {
            let spot = self.jobs.spot(*task).expect("was found");
            let (id, priority) = (spot.job.id, spot.request.priority);
            self.jobs.reopen(id);
            let job = self.jobs.get_mut(id).expect("was found");
            job.note_again(*task);
            self.jobs.note_fed_levels(&[priority]);
        }
        for (task, after) in again {
            let after = after.into_boxed_slice();
            self.handle(Input::DeadLetterResubmitted { task, after });
        }
        Ok(Applied::Done)
    }

    /// Tasks that failed, each after those of them that it waits for, and with what it waits for again: those, and
    /// what is not over.
    fn in_order(
        &self,
        tasks: &BTreeSet<TaskId>,
        dead: &BTreeSet<TaskId>,
    ) -> Result<Vec<(TaskId, Vec<TaskId>)>, ApiError> {
        let mut by_job: BTreeMap<JobId, Vec<TaskId>> = BTreeMap::new();
        for task in tasks {
            let spot = self.jobs.spot(*task).expect("was found");
            by_job.entry(spot.job.id).or_default().push(*task);
        }
        let mut waits: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        let mut followers: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        for (job, tasks_of_job) in by_job {
            let job = self.jobs.get(job).expect("was found");
            for (task, mut dependencies) in job.dependencies(&tasks_of_job) {
                let failed = |on: &&TaskId| dead.contains(on) && !tasks.contains(on);
                if let Some(first) = dependencies.iter().find(failed) {
                    let message = format!(
                        "task {} waits for task {}, which failed and is not tried again",
                        task.0, first.0
                    );
                    let help = format!(
                        "try both again: `loxley job retry {}`, or first `loxley task retry {}`",
                        job.id.0, first.0
                    );
                    return Err(ApiError::new(ErrorCode::Conflict, message).with_help(help));
                }
                let scheduler = self.driver.scheduler();
                dependencies
                    .retain(|on| tasks.contains(on) || scheduler.task_status(*on).is_some());
                for on in dependencies.iter().filter(|on| tasks.contains(on)) {
                    followers.entry(*on).or_default().push(task);
                }
                waits.insert(task, dependencies);
            }
        }
        let mut left: BTreeMap<TaskId, usize> = BTreeMap::new();
        for task in followers.values().flatten() {
            *left.entry(*task).or_default() += 1;
        }
        let free = tasks.iter().filter(|task| !left.contains_key(task));
        let mut order: Vec<TaskId> = free.copied().collect();
        let mut at = 0;
        while let Some(task) = order.get(at).copied() {
            at += 1;
            for follower in followers.get(&task).into_iter().flatten() {
                let count = left.get_mut(follower).expect("was counted");
                *count -= 1;
                if *count == 0 {
                    order.push(*follower);
                }
            }
        }
        let with_waits = order.into_iter().map(|task| {
            let after = waits.remove(&task).unwrap_or_default();
            (task, after)
        });
        Ok(with_waits.collect())
    }

    // What agents say of tasks.

    /// What an agent holds under a lease that is about to end.
    fn held(&mut self, agent: AgentId, task: TaskId, lease: Lease) -> Option<Held> {
        let held = self.driver.leases().held_by(agent, lease).copied()?;
        self.jobs.note_lease(task, -1);
        Some(held)
    }

    fn note_start(&mut self, agent: AgentId, task: TaskId, lease: Lease, out: &mut Effects) {
        let Some(held) = self.driver.leases().held_by(agent, lease) else {
            return;
        };
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
            self.held(agent, task, lease);
        }
        self.handle(Input::TaskYielded {
            task,
            lease,
            yielded,
        });
    }

    fn keep_checkpoint(&mut self, agent: AgentId, task: TaskId, lease: Lease, state: Bytes) {
        if self.driver.leases().held_by(agent, lease).is_some() {
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
        let spec = agent_spec(&mut self.names, AgentId(0), &record).map_err(bad_name)?;
        let id = self.names.agents.intern(&name).map_err(bad_name)?;
        let is_new = self.fleet.admit(id, record, self.now);
        self.fleet.set_registered(id, true);
        if is_new && out.keeps_history() {
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
        let has: IdSet<Lease> = leases.iter().copied().collect();
        let held = self.driver.leases();
        let mut missing: Vec<(Lease, TaskId)> = held
            .of(agent)
            .filter(|(lease, _)| !has.contains(lease))
            .map(|(lease, held)| (lease, held.task))
            .collect();
        missing.sort_unstable();
        let unknown = leases
            .iter()
            .filter(|lease| held.held_by(agent, **lease).is_none());
        let scheduler = self.driver.scheduler();
        let mut ending: Vec<(TaskId, Lease)> = held
            .of(agent)
            .filter(|(lease, held)| has.contains(lease) && scheduler.is_ending(held.task, *lease))
            .map(|(lease, held)| (held.task, lease))
            .collect();
        ending.sort_unstable();
        let orders = out.orders(agent);
        orders.cancel.extend(unknown);
        // It may have been told over the connection that broke.
        orders.stop.extend(ending);
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
        if let Some(agent) = self.fleet.get_mut(agent) {
            agent.draining = true;
        }
        let tasks = Leftovers::Requeue;
        self.handle(Input::AgentLeft { agent, tasks });
        self.tell_state(agent, loxley_api::AgentState::Left, out);
        out.parted.push(agent);
        Ok(Applied::Done)
    }

    /// Its name is anybody's again. One that is here keeps it.
    fn agent_forgotten(&mut self, agent: AgentId) -> Result<Applied, ApiError> {
        let name = self.agent_name(agent);
        let this = self.fleet.get_mut(agent);
        let this = this.ok_or_else(|| ApiError::not_found("agent", agent.0))?;
        if this.registered {
            let message = format!("the agent `{name}` is here, or may come back");
            let help = "end it first (`loxley agent stop`)";
            return Err(ApiError::new(ErrorCode::Conflict, message).with_help(help));
        }
        Arc::make_mut(&mut this.record).owner.clear();
        Ok(Applied::Done)
    }

    /// Puts in what facts with configurations are written without: it was told just before.
    fn complete(&self, config: &mut Config) {
        let known = self.driver.scheduler().config();
        config.self_tuning = known.self_tuning;
        config.forecast = known.forecast;
        config.added = known.added;
    }

    fn revoke_skill(&mut self, agent: AgentId, skill: &str) -> Result<Applied, ApiError> {
        let name = self.agent_name(agent);
        let status = self.driver.scheduler().agent_status(agent);
        let status = status.ok_or_else(|| ApiError::not_found("agent", agent.0))?;
        let known = self.names.skills.id(skill);
        let Some(known) = known.filter(|known| status.earned.contains(known)) else {
            let message = format!("the agent `{name}` has not earned `{skill}`");
            let help =
                format!("`loxley agent info {name}` shows what it declared and what it earned");
            return Err(ApiError::new(ErrorCode::Conflict, message).with_help(help));
        };
        self.handle(Input::SkillRevoked {
            agent,
            skill: known,
        });
        Ok(Applied::Done)
    }

    fn tell_skill(&self, agent: AgentId, skill: SkillId, change: SkillChange, out: &mut Effects) {
        out.event_with(|| EventKind::AgentSkill {
            agent,
            name: self.agent_name(agent),
            skill: self.names.skill_name(skill).as_ref().to_owned(),
            change,
        });
    }

    fn set_user_weight(&mut self, user: &str, weight: u32) -> Result<Applied, ApiError> {
        if weight == 0 {
            return Err(ApiError::invalid("weight: at least 1"));
        }
        let user = self.names.users.intern(user).map_err(bad_name)?;
        self.handle(Input::UserWeightSet { user, weight });
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

    /// What an agent is called.
    pub(crate) fn agent_name(&self, agent: AgentId) -> String {
        self.names.agent_name(agent).as_ref().to_owned()
    }

    /// Tasks that the policy has.
    pub(crate) fn live(&self) -> u64 {
        self.driver.scheduler().counts().live()
    }

    /// `Pending` for a task that its array has not come to, or whose job waits for another; none for one that
    /// the core has seen or that was cancelled before.
    pub(crate) fn pending_state(&self, task: TaskId) -> Option<TaskState> {
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
    spot: &crate::jobs::Spot<'_>,
    task: TaskId,
    ending: Ending,
    finish: Option<Finish>,
    held: Option<Held>,
    now: Time,
    out: &mut Effects,
) {
    tell_end(spot, task, ending, now, out);
    if out.keeps_history() {
        write_row(spot, task, ending, finish, held, now, out);
    }
}

fn ended_of(ending: Ending) -> Ended {
    match ending {
        Ending::Succeeded { .. } => Ended::Succeeded,
        Ending::FellBack { .. } => Ended::FellBack,
        Ending::Failed(failure) => Ended::Failed(failure),
        Ending::Cancelled => Ended::Cancelled,
        Ending::Returned => Ended::Returned,
    }
}

/// Tells whoever listens that a task is over.
fn tell_end(
    spot: &crate::jobs::Spot<'_>,
    task: TaskId,
    ending: Ending,
    now: Time,
    out: &mut Effects,
) {
    let job = spot.job.id;
    let (state, failure) = match ended_of(ending) {
        Ended::Succeeded | Ended::FellBack => (TaskState::Succeeded, None),
        Ended::Failed(failure) => (TaskState::Failed, Some(failure)),
        Ended::Cancelled | Ended::Returned => (TaskState::Cancelled, None),
    };
    out.event_with(|| EventKind::TaskEnded {
        task,
        job,
        state,
        failure: failure.map(|failure| failure_word(failure).to_owned()),
    });
    out.step_with(now, || TaskStepKind::TaskEnded {
        task,
        job,
        state,
        failure,
    });
}

/// Writes down what came of a task.
fn write_row(
    spot: &crate::jobs::Spot<'_>,
    task: TaskId,
    ending: Ending,
    finish: Option<Finish>,
    held: Option<Held>,
    now: Time,
    out: &mut Effects,
) {
    let ended = ended_of(ending);
    let ran = finish.as_ref();
    out.rows.tasks.push(TaskRow {
        task,
        job: spot.job.id,
        entry: spot.request.entries.as_ref().map(|_| spot.number()),
        ended,
        exit_code: ran.and_then(|finish| finish.exit_code),
        signal: ran.and_then(|finish| finish.signal),
        agent: held.map(|held| held.agent),
        attempt: held.map_or(0, |held| held.attempt),
        created: spot.job.created,
        started: match ran {
            Some(finish) => Some(now - finish.usage.duration),
            None => held.and_then(|held| held.started),
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
    let mut kept = finish.map(Kept::from).unwrap_or_default();
    if spot.part.added.is_some() {
        // What was asked for does not say it.
        kept.added = spot.entry().map(|entry| (spot.part.task as u32, entry));
    }
    let output = (!kept.is_empty()).then(|| kept.pack());
    if output.is_some() || result.as_ref().is_some_and(|result| !result.is_empty()) {
        out.rows.outputs.push(TaskOutput {
            task,
            output: output.unwrap_or_default(),
            result: result.unwrap_or_default(),
        });
    }
}
