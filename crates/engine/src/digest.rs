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
        if let Some(words) = words_of(action) {
            for word in words {
                self.0 = (self.0 ^ word).wrapping_mul(FACTOR).rotate_left(TURN);
            }
        }
    }

    /// Takes out what was decided last.
    pub(crate) fn remove(&mut self, action: &Action) {
        if let Some(words) = words_of(action) {
            for word in words.into_iter().rev() {
                self.0 = self.0.rotate_right(TURN).wrapping_mul(INVERSE) ^ word;
            }
        }
    }

    /// Whether an action is a decision that counts.
    pub(crate) fn counts(action: &Action) -> bool {
        words_of(action).is_some()
    }
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const TURN: u32 = 29;

/// The factor times this is 1, modulo 2⁶⁴: each step of Newton's doubles the bits that are right.
const INVERSE: u64 = {
    let mut inverse = FACTOR;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};

/// What a decision is to the digest; nothing for what is none.
fn words_of(action: &Action) -> Option<[u64; 5]> {
    match action {
        Action::Assign {
            task,
            agent,
            lease,
            attempt,
            ..
        } => Some([1, task.0, agent.0, lease.0, u64::from(*attempt)]),
        Action::Retract {
            task,
            agent,
            lease,
            running,
        } => Some([2, task.0, agent.0, lease.0, u64::from(*running)]),
        Action::Cancel {
            task,
            agent,
            lease,
            awaited,
            ..
        } => Some([3, task.0, agent.0, lease.0, u64::from(*awaited)]),
        Action::Report(report) => words_of_report(report),
        Action::SetTimer { .. } => None,
    }
}

fn words_of_report(report: &Report) -> Option<[u64; 5]> {
    Some(match report {
        Report::Accepted { job, tasks } => [4, job.0, *tasks as u64, 0, 0],
        Report::Refused { job, errors } => [5, job.0, errors.len() as u64, 0, 0],
        Report::Finished { task, job, ending } => {
            let (kind, more) = match ending {
                Ending::Succeeded { lease, .. } => (0, lease.0),
                Ending::FellBack { to } => (1, to.map_or(0, |task| task.0)),
                Ending::Failed(failure) => (2, *failure as u64),
                Ending::Cancelled => (3, 0),
                Ending::Returned => (4, 0),
            };
            [6, task.0, job.0, kind, more]
        }
        Report::WillRetry { task, at, .. } => [7, task.0, at.0, 0, 0],
        Report::AgentLost(agent) => [8, agent.0, 0, 0, 0],
        Report::Queued { task, agent, .. } => [9, task.0, agent.0, 0, 0],
        Report::Held { task } => [10, task.0, 0, 0, 0],
        _ => return None,
    })
}
