//! A running digest of what the policy decided: two runs that decide alike have the same one.
//!
//! Only decisions count: who gets what, what is taken back, how tasks and jobs end. It is no secret and
//! no signature, just a number that differs when the decisions differ.

use loxley_policy::{Action, Ending, Report};

/// The digest of all decisions so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) u64);

impl Digest {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Takes in what was decided.
    pub(crate) fn add(&mut self, action: &Action) {
        match action {
            Action::Assign {
                task,
                agent,
                lease,
                attempt,
                ..
            } => self.words([1, task.0, agent.0, lease.0, u64::from(*attempt)]),
            Action::Retract {
                task,
                agent,
                lease,
                running,
            } => self.words([2, task.0, agent.0, lease.0, u64::from(*running)]),
            Action::Cancel {
                task,
                agent,
                lease,
                awaited,
                ..
            } => self.words([3, task.0, agent.0, lease.0, u64::from(*awaited)]),
            Action::Report(report) => self.add_report(report),
            Action::SetTimer { .. } => {}
        }
    }

    fn add_report(&mut self, report: &Report) {
        match report {
            Report::Accepted { job, tasks } => self.words([4, job.0, *tasks as u64, 0, 0]),
            Report::Refused { job, errors } => self.words([5, job.0, errors.len() as u64, 0, 0]),
            Report::Finished { task, job, ending } => {
                let (kind, more) = match ending {
                    Ending::Succeeded { lease, .. } => (0, lease.0),
                    Ending::FellBack { to } => (1, to.map_or(0, |task| task.0)),
                    Ending::Failed(failure) => (2, *failure as u64),
                    Ending::Cancelled => (3, 0),
                    Ending::Returned => (4, 0),
                };
                self.words([6, task.0, job.0, kind, more]);
            }
            Report::WillRetry { task, at, .. } => self.words([7, task.0, at.0, 0, 0]),
            Report::AgentLost(agent) => self.words([8, agent.0, 0, 0, 0]),
            Report::Queued { task, agent, .. } => self.words([9, task.0, agent.0, 0, 0]),
            Report::Held { task } => self.words([10, task.0, 0, 0, 0]),
            _ => {}
        }
    }

    fn words(&mut self, words: [u64; 5]) {
        for word in words {
            self.0 = (self.0 ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
    }
}
