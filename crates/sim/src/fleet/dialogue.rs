//! The scheduler: what it is told, and what becomes of its answers.

use std::ops::Range;
use std::sync::Arc;

use loxley_model::{AgentId, JobId, NameId, TaskId, Time};
use loxley_policy::{Action, Ending, Input, InputError, Reason, Report, Selection};

use super::agent_model::Held;
use super::network::Body;
use super::setup::Submission;
use super::stream::TaskSource;
use super::{Event, FleetTasks, FleetWorld, NOWHERE};
use crate::observer::{Happening, Observer};

impl<O: Observer> FleetWorld<'_, O> {
    pub(super) fn tell(&mut self, input: Input) {
        // A timer that is due is due: only what comes from outside is stamped by a wrong clock.
        let skew = match self.setup.clock_skew {
            0 => 0,
            _ if input == Input::Tick => 0,
            skew => self.chance.skew.below(skew + 1),
        };
        let mut actions = std::mem::take(&mut self.actions);
        let time = Time(self.now.saturating_sub(skew));
        let told = self.setup.verify.then(|| input.clone());
        self.tuner.observe(time, &self.scheduler);
        self.scheduler.handle(time, input, &mut actions);
        if let (Some(told), Err(wrong)) = (told, self.verify()) {
            panic!("after {told:?}: {wrong}");
        }
        for action in &actions {
            self.carry_out(action);
        }
        actions.clear();
        self.actions = actions;
    }

    fn verify(&mut self) -> Result<(), &'static str> {
        if self.setup.verify {
            self.scheduler.verify()
        } else {
            Ok(())
        }
    }

    fn carry_out(&mut self, action: &Action) {
        match *action {
            Action::Assign {
                task,
                agent,
                lease,
                reason,
                ..
            } => {
                self.note_place(task, agent, reason, true);
                self.send(agent.number(), Body::Assign(Held { task, lease }));
            }
            Action::Retract {
                task,
                agent,
                lease,
                running,
            } => self.send(agent.number(), Body::Retract(Held { task, lease }, running)),
            Action::Cancel {
                task, agent, lease, ..
            } => {
                self.note_withdrawal(task, agent.number());
                self.send(agent.number(), Body::Cancel(Held { task, lease }));
            }
            Action::SetTimer { at } => {
                self.timer = at.0.max(self.now + 1);
                self.events.push(self.timer, Event::Timer);
            }
            Action::Report(ref report) => self.note_report(report),
        }
    }

    fn note_report(&mut self, report: &Report) {
        match *report {
            Report::Queued {
                task,
                agent,
                reason,
            } => self.note_place(task, agent, reason, false),
            Report::Finished { task, ending, .. } => self.note_ending(task, ending),
            Report::DeadlineLost { task, .. } => {
                self.statistics.deadline_misses += 1;
                let task = task.0;
                self.observer
                    .see(self.now, &Happening::DeadlineLost { task });
            }
            Report::AgentLost(agent) => {
                self.observer.see(
                    self.now,
                    &Happening::Lost {
                        worker: agent.number(),
                    },
                );
            }
            Report::Rejected(InputError::UnknownAgent(agent)) => {
                // It was given up while it was away; told so, it registers again.
                self.send(agent.number(), Body::Rejoin);
            }
            Report::Refused { job, .. } => {
                debug_assert_eq!(self.submitting.0, job);
                self.end_unseen(self.submitting.1.clone());
            }
            _ => {}
        }
    }

    /// A whole submission was refused (a dependency had failed before, say), or never came: its tasks are over.
    fn end_unseen(&mut self, tasks: Range<usize>) {
        for task in tasks {
            self.note_ending(TaskId(task as u64), Ending::Cancelled);
        }
    }

    /// A task waits at an agent now, on its queue or in its backlog.
    fn note_place(&mut self, task: TaskId, agent: AgentId, reason: Reason, given: bool) {
        let to = agent.number();
        let books = &mut self.books[task.0 as usize];
        let from = std::mem::replace(&mut books.at, to);
        if from == to {
            return;
        }
        self.queue_lengths[to as usize] += 1;
        let totals = &mut self.totals[to as usize];
        totals.queue_max = totals
            .queue_max
            .max(self.queue_lengths[to as usize] as usize);
        let task = task.0;
        if from == NOWHERE {
            self.observer
                .see(self.now, &Happening::Queued { worker: to, task });
            return;
        }
        self.queue_lengths[from as usize] -= 1;
        let stolen = matches!(reason, Reason::Stolen(_) | Reason::Rebalanced(_));
        if stolen {
            self.totals[to as usize].stolen += 1;
            self.totals[to as usize].searches += 1;
            self.totals[from as usize].robbed += 1;
            self.statistics.successful_searches += 1;
        }
        self.observer.see(
            self.now,
            &Happening::Moved {
                from,
                to,
                task,
                stolen,
                given,
            },
        );
    }

    fn note_withdrawal(&mut self, task: TaskId, agent: u32) {
        let books = &mut self.books[task.0 as usize];
        if books.at == agent {
            books.at = NOWHERE;
            self.queue_lengths[agent as usize] -= 1;
            let task = task.0;
            self.observer.see(
                self.now,
                &Happening::Withdrawn {
                    worker: agent,
                    task,
                },
            );
        }
    }

    fn note_ending(&mut self, task: TaskId, ending: Ending) {
        let ok = matches!(ending, Ending::Succeeded { .. } | Ending::FellBack { .. });
        let by = match ending {
            Ending::Succeeded { agent, .. } => Some(agent.number()),
            _ => None,
        };
        if let Some(agent) = by {
            self.totals[agent as usize].executed += 1;
        }
        let at = self.books[task.0 as usize].at;
        if at != NOWHERE {
            self.note_withdrawal(task, at);
        }
        let books = &mut self.books[task.0 as usize];
        let was_over = std::mem::replace(&mut books.over, true);
        if !was_over {
            self.unfinished -= 1;
        }
        self.statistics.failed += u64::from(!ok);
        self.statistics.repeated += u64::from(books.runs > 1);
        if ok && books.ready <= self.now {
            self.statistics.responses.record(self.now - books.ready);
        }
        let task_number = task.0;
        self.observer.see(
            self.now,
            &Happening::Ended {
                task: task_number,
                ok,
                by,
                cancelled: matches!(ending, Ending::Cancelled | Ending::Returned),
            },
        );
        if ok && !self.successors.is_empty() {
            for index in 0..self.successors[task.0 as usize].len() {
                let successor = self.successors[task.0 as usize][index];
                let books = &mut self.books[successor as usize];
                books.missing = books.missing.saturating_sub(1);
                if books.missing == 0 {
                    books.ready = self.now;
                }
            }
        }
        if !was_over && !self.jobs.of_task.is_empty() {
            self.note_in_job(self.jobs.of_task[task.0 as usize], ok);
        }
    }

    /// A task of a job is over: whoever waits for the job may come now, or never.
    fn note_in_job(&mut self, job: JobId, ok: bool) {
        let Some((open, has_failed)) = self.jobs.open.get_mut(&job) else {
            return;
        };
        *open -= 1;
        *has_failed |= !ok;
        if *open == 0 {
            // Not from within what is being told to the scheduler.
            self.events.push(self.now, Event::JobOver);
        }
    }

    /// Looks again at everything that waits for a job.
    pub(super) fn look_at_waiting(&mut self) {
        let Some(tasks) = self.tasks.held().map(Arc::clone) else {
            return;
        };
        for submission in std::mem::take(&mut self.jobs.waiting) {
            self.submit_or_wait(&tasks, submission);
        }
    }

    pub(super) fn cancel_job(&mut self, job: JobId) {
        if !self.jobs.of_task.is_empty() {
            self.jobs.cancelled.push(job);
            self.look_at_waiting();
        }
        self.tell(Input::CancelRequested(Selection::Job(job)));
    }

    pub(super) fn submit(&mut self) {
        match &mut self.tasks {
            TaskSource::Held(tasks) => {
                let tasks = Arc::clone(tasks);
                let number = self.next_submission;
                self.next_submission += 1;
                if let Some(next) = tasks.submissions().get(self.next_submission) {
                    self.events.push(next.at, Event::Submit);
                }
                self.submit_or_wait(&tasks, number);
            }
            TaskSource::Streamed(streamed) => {
                let submission = streamed.next().expect("it was due");
                if let Some(next) = streamed.next_at() {
                    self.events.push(next, Event::Submit);
                }
                self.submit_now(&submission);
            }
        }
    }

    fn submit_or_wait(&mut self, tasks: &FleetTasks, number: usize) {
        let submission = &tasks.submissions()[number];
        let state = |job: &JobId| self.jobs.open.get(job).copied().unwrap_or((0, false));
        let is_hopeless = self.jobs.cancelled.contains(&submission.job.id)
            || submission.after.iter().any(|job| state(job) == (0, true));
        if is_hopeless {
            self.end_unseen(submission.ids());
        } else if submission.after.iter().all(|job| state(job).0 == 0) {
            self.submit_now(submission);
        } else {
            self.jobs.waiting.push(number);
        }
    }

    fn submit_now(&mut self, submission: &Submission) {
        self.submitting = (submission.job.id, submission.ids());
        for task in submission.ids() {
            let books = &mut self.books[task];
            if books.missing == 0 {
                books.ready = self.now;
            }
            self.observer
                .see(self.now, &Happening::Submitted { task: task as u64 });
        }
        self.tell(Input::TasksSubmitted {
            job: submission.job,
            tasks: Arc::clone(&submission.tasks),
        });
    }
}
