//! What becomes of attempts, and of tasks that are over.

use std::fs;
use std::io::{self, Write};
use std::time::Instant;

use anyhow::Result;
use loxley_engine::Finish;
use loxley_exec::{Captured, End, Ran, Status, Stream, Urgency};
use loxley_journal::Usage;
use loxley_model::{AgentId, Failure, Lease, Outcome, Span, TaskId};
use loxley_policy::Ending;

use super::{Runner, Running, Task, nanoseconds};
use crate::run::delivery::Parcel;

impl Runner {
    /// A slot began with a task.
    pub(super) fn started(
        &mut self,
        lease: Lease,
        slot: usize,
        at: Instant,
        out: &mut dyn Write,
    ) -> Result<()> {
        let Some(&task) = self.leases.get(&lease) else {
            return Ok(());
        };
        let running = Running {
            agent: self.owners[slot],
            since: at,
        };
        self.running.insert(lease, running);
        let now = self.time(at);
        if let Some(trace) = &mut self.trace {
            trace.started(now, task, lease, running.agent);
        }
        let agent = agent_id(running.agent);
        self.engine.started(now, agent, task, lease);
        self.carry_out(out)
    }

    /// A slot is done with a task.
    pub(super) fn ended(&mut self, mut end: End, out: &mut dyn Write) -> Result<()> {
        let (lease, at, owner) = (end.lease, end.at, self.owners[end.slot]);
        let Some(task) = self.leases.remove(&lease) else {
            return Ok(());
        };
        let mut outcome = end.outcome();
        if self.overdue.remove(&lease) && outcome != Outcome::Succeeded {
            outcome = Outcome::Failed(Failure::TimeLimit);
        }
        let nanos = nanoseconds(end.duration());
        self.summary.busy_ns[end.slot] += nanos;
        if outcome == Outcome::Succeeded {
            self.summary.durations.record(nanos);
            let work = self.engine.work_of(task);
            let of_kind = self.summary.of_kind.entry(work).or_default();
            of_kind.record(nanos);
        }
        let now = self.time(at);
        if let Some(trace) = &mut self.trace {
            trace.ended(now, lease, outcome, end.was_killed());
        }
        let finish = match self.journal {
            Some(_) => finish(&mut end)?,
            None => Finish::default(),
        };
        if let Some(known) = self.tasks.get_mut(&task) {
            // Of two copies the one that succeeded counts, also when the other one ends later.
            let is_late = known.succeeded && outcome != Outcome::Succeeded;
            if !is_late {
                known.succeeded = outcome == Outcome::Succeeded;
                known.done = Some(end.into());
            }
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
        let (agent, ran) = (agent_id(owner), Span(nanos));
        self.engine
            .finished(now, agent, task, lease, outcome, ran, finish);
        self.carry_out(out)
    }

    /// A task was stopped because it is to go on elsewhere.
    pub(super) fn yielded(
        &mut self,
        lease: Lease,
        owner: usize,
        out: &mut dyn Write,
    ) -> Result<()> {
        let Some(task) = self.leases.remove(&lease) else {
            return Ok(());
        };
        let at = Instant::now();
        self.overdue.remove(&lease);
        self.running.remove(&lease);
        let now = self.time(at);
        if let Some(trace) = &mut self.trace {
            trace.ended(now, lease, Outcome::Failed(Failure::Error), true);
        }
        self.engine.yielded(now, agent_id(owner), task, lease, true);
        self.carry_out(out)
    }

    /// A task is over: its last attempt is what counts.
    pub(super) fn over(&mut self, task: TaskId, ending: Ending, out: &mut dyn Write) -> Result<()> {
        let succeeded = matches!(ending, Ending::Succeeded { .. } | Ending::FellBack { .. });
        let Some(known) = self.tasks.remove(&task) else {
            return Ok(());
        };
        match ending {
            _ if succeeded => self.summary.tally.succeeded += 1,
            Ending::Cancelled => self.summary.tally.skipped += 1,
            _ => self.summary.tally.failed += 1,
        }
        if let (true, Some(path)) = (succeeded, self.checkpoint(&known)) {
            // Most tasks leave none.
            let _ = fs::remove_file(path);
        }
        let code = known.done.as_ref().map(|done| done.exit_code());
        self.deliver(task, ending, known, out)?;
        if let Some(halt) = self.halt
            && self.stopping.is_none()
            && halt.is_due(self.summary.tally, self.source.total())
        {
            let total = self.source.total();
            self.summary.is_enough = halt.is_success();
            self.summary.halted_by = halt.exit_code(code, self.summary.tally, total);
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
        known: Task,
        out: &mut dyn Write,
    ) -> Result<()> {
        let Task {
            sequence,
            command,
            done,
            ..
        } = known;
        let now = self.time(Instant::now());
        let agent = done.as_ref().map(|done| self.owners[done.slot]);
        let trace = self.trace.as_mut();
        let (story, milestone) = match trace {
            Some(trace) => trace.over(now, task, ending, agent),
            None => (None, None),
        };
        let parcel = Parcel {
            sequence,
            command,
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

/// What a journal keeps of an attempt.
fn finish(end: &mut End) -> io::Result<Finish> {
    /// As much as a server keeps when nobody says otherwise.
    const KEPT: usize = 64 << 10;
    let mut finish = Finish {
        message: end.message(),
        ..Finish::default()
    };
    if let Ran::Process(Ok(ended)) = &end.ran {
        match ended.status {
            Status::Exited(code) => finish.exit_code = Some(code),
            Status::Signalled(signal) => finish.signal = Some(signal),
        }
        finish.usage = Usage {
            duration: Span(nanoseconds(ended.duration)),
            user: Span(nanoseconds(ended.user_time)),
            system: Span(nanoseconds(ended.system_time)),
            memory_bytes: ended.memory_max,
        };
    }
    if let Captured::Whole(spool) = &mut end.output {
        let mut tail = |stream| -> io::Result<_> {
            let tail = spool.tail(stream, KEPT)?;
            let dropped = spool.len(stream) - tail.len() as u64;
            Ok((tail.into(), dropped))
        };
        (finish.stdout, finish.stdout_dropped) = tail(Stream::Stdout)?;
        (finish.stderr, finish.stderr_dropped) = tail(Stream::Stderr)?;
    }
    Ok(finish)
}

/// The engine numbers agents from 1.
fn agent_id(index: usize) -> AgentId {
    AgentId(index as u64 + 1)
}
