//! What becomes of attempts, and of tasks that are over.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use loxley_agent::{Stopped, Urgency};
use loxley_model::{AgentId, Failure, Lease, Outcome, TaskId};
use loxley_policy::{Ending, Input};

use super::{Engine, Running, Task};
use crate::run::delivery::Parcel;
use crate::run::slots::{Done, What};

impl Engine {
    /// A slot began with a task.
    pub(super) fn started(
        &mut self,
        task: TaskId,
        lease: Lease,
        slot: usize,
        at: Instant,
        out: &mut dyn Write,
    ) -> Result<()> {
        let running = Running {
            task,
            agent: self.owners[slot],
            since: at,
        };
        self.running.insert(lease, running);
        let now = self.time(at);
        if let Some(chronicle) = &mut self.chronicle {
            chronicle.started(now, task, lease, running.agent);
        }
        self.tell(at, Input::TaskStarted { task, lease }, out)
    }

    /// A slot is done with a task.
    pub(super) fn ended(
        &mut self,
        task: TaskId,
        lease: Lease,
        at: Instant,
        done: Done,
        out: &mut dyn Write,
    ) -> Result<()> {
        let outcome = outcome(&done, self.overdue.remove(&lease));
        if let Ok(ended) = &done.result {
            let nanos = u64::try_from(ended.duration.as_nanos()).unwrap_or(u64::MAX);
            self.summary.busy_ns[done.slot] += nanos;
            if outcome == Outcome::Succeeded {
                self.summary.durations.record(nanos);
            }
        }
        let killed = matches!(&done.result, Ok(ended) if ended.stopped == Some(Stopped::Killed));
        let yielded = self.yielding.remove(&lease) && killed;
        let now = self.time(at);
        if let Some(chronicle) = &mut self.chronicle {
            chronicle.ended(now, lease, outcome, killed);
        }
        let mut ending = None;
        if let Some(known) = self.tasks.get_mut(&task) {
            known.done = Some(done);
            ending = known.ending;
        }
        if let Some(ending) = ending {
            return self.over(task, ending, out);
        }
        if self.stopping.is_some() {
            // No second attempts any more.
            let ending = match outcome {
                Outcome::Succeeded => Ending::Succeeded {
                    agent: AgentId(0),
                    lease,
                },
                Outcome::Failed(failure) => Ending::Failed(failure),
            };
            return self.over(task, ending, out);
        }
        let input = if yielded {
            Input::TaskYielded {
                task,
                lease,
                yielded,
            }
        } else {
            Input::TaskFinished {
                task,
                lease,
                outcome,
            }
        };
        self.tell(at, input, out)
    }

    /// A task is over: its last attempt is what counts. One that failed while its process is being
    /// stopped is over when the process is.
    pub(super) fn over(&mut self, task: TaskId, ending: Ending, out: &mut dyn Write) -> Result<()> {
        let succeeded = matches!(ending, Ending::Succeeded { .. } | Ending::FellBack { .. });
        if let Ending::Failed(_) | Ending::FellBack { .. } = ending
            && self.running.values().any(|running| running.task == task)
        {
            if let Some(known) = self.tasks.get_mut(&task) {
                known.ending = Some(ending);
            }
            return Ok(());
        }
        let Some(Task { what, done, .. }) = self.tasks.remove(&task) else {
            return Ok(());
        };
        match ending {
            _ if succeeded => self.summary.tally.succeeded += 1,
            Ending::Cancelled => self.summary.tally.skipped += 1,
            _ => self.summary.tally.failed += 1,
        }
        if let (true, Some(path)) = (succeeded, &what.checkpoint) {
            // Most tasks leave none.
            let _ = fs::remove_file(path);
        }
        self.deliver(task, ending, what, done, out)?;
        if let Some(halt) = self.halt
            && self.stopping.is_none()
            && halt.is_due(self.summary.tally, self.source.total())
        {
            self.summary.is_enough = halt.is_success();
            self.close();
            if halt.now {
                self.stop(Urgency::Gentle);
            }
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        task: TaskId,
        ending: Ending,
        what: Arc<What>,
        done: Option<Done>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let now = self.time(Instant::now());
        let agent = done.as_ref().map(|done| self.owners[done.slot]);
        let chronicle = self.chronicle.as_mut();
        let (story, milestone) = match chronicle {
            Some(chronicle) => chronicle.over(now, task, ending, agent),
            None => (None, None),
        };
        let parcel = Parcel {
            sequence: task.0,
            what,
            done,
            story,
        };
        let delivery = &mut self.delivery;
        self.progress.aside(|visible| -> Result<()> {
            delivery.deliver(parcel, out)?;
            // With a bar on the terminal, output goes out while the bar is out of the way.
            if visible {
                out.flush()?;
            }
            Ok(())
        })?;
        if let Some(milestone) = milestone {
            out.flush()?;
            self.progress.say(&milestone)?;
        }
        Ok(())
    }
}

fn outcome(done: &Done, overdue: bool) -> Outcome {
    match &done.result {
        Ok(ended) if ended.success() => Outcome::Succeeded,
        Ok(ended) if overdue || ended.stopped == Some(Stopped::TimeLimit) => {
            Outcome::Failed(Failure::TimeLimit)
        }
        Ok(_) => Outcome::Failed(Failure::Error),
        // What is not there will not be there the next time.
        Err(_) => Outcome::Failed(Failure::Permanent),
    }
}
