//! What happened, told to whoever watches.
//!
//! Worlds report every [`Happening`] to one [`Observer`]: the checkers, the recorder of the
//! timeline, the event log. Watching is a type parameter, so a run that nobody watches (`()`) pays
//! nothing. Observers are told only facts and have no way back into the world.

use std::io::{self, Write};

use serde::Serialize;

use crate::time::Nanos;

/// One fact about a run. A *worker* is a worker of the deque world or an agent of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
    /// A task was put into the queue of a worker from outside or by the scheduler.
    Queued {
        /// Where it waits.
        worker: u32,
        /// Which task.
        task: u64,
    },
    /// A running task made another one, which waits at the same worker.
    Spawned {
        /// Who ran the parent.
        worker: u32,
        /// The running task.
        parent: u64,
        /// The new one.
        child: u64,
    },
    /// A worker took a task in hand.
    Started {
        /// Who.
        worker: u32,
        /// Which task.
        task: u64,
    },
    /// A worker was done with a task.
    Finished {
        /// Who.
        worker: u32,
        /// Which task.
        task: u64,
        /// Whether it succeeded.
        ok: bool,
    },
    /// A running task was stopped: cancelled, or lost with its agent.
    Stopped {
        /// Who ran it.
        worker: u32,
        /// Which task.
        task: u64,
    },
    /// A waiting task went from one worker to another.
    Moved {
        /// Who had it.
        from: u32,
        /// Who has it now.
        to: u32,
        /// Which task.
        task: u64,
        /// Whether it was stolen or rebalanced; otherwise its worker was lost, left or stuck.
        stolen: bool,
        /// Whether it was given to the other to be started, not put on a queue.
        given: bool,
    },
    /// A waiting task was taken from a worker and is nowhere for now.
    Withdrawn {
        /// Who had it.
        worker: u32,
        /// Which task.
        task: u64,
    },
    /// The scheduler was given a task.
    Submitted {
        /// Which task.
        task: u64,
    },
    /// The scheduler said that a task is over.
    Ended {
        /// Which task.
        task: u64,
        /// Whether it succeeded.
        ok: bool,
        /// Whose result counts, if it succeeded.
        by: Option<u32>,
        /// Whether nobody wanted it any more, or needed it.
        cancelled: bool,
    },
    /// The scheduler said that a task cannot end before its deadline any more.
    DeadlineLost {
        /// Which task.
        task: u64,
    },
    /// A worker looked for work and found none.
    FoundNothing {
        /// Who.
        worker: u32,
    },
    /// A worker sleeps until it is woken.
    Parked {
        /// Who.
        worker: u32,
    },
    /// An agent disappeared.
    Crashed {
        /// Which agent.
        worker: u32,
    },
    /// The scheduler gave an agent up for lost.
    Lost {
        /// Which agent.
        worker: u32,
    },
    /// An agent is back, or new.
    Joined {
        /// Which agent.
        worker: u32,
    },
    /// An agent left in good order.
    Left {
        /// Which agent.
        worker: u32,
    },
    /// The network between the scheduler and an agent broke.
    CutOff {
        /// Which agent.
        worker: u32,
    },
    /// The network between the scheduler and an agent works again.
    Reconnected {
        /// Which agent.
        worker: u32,
    },
}

/// Someone who is told what happens.
pub trait Observer {
    /// `happening` took place at `now`.
    fn see(&mut self, now: Nanos, happening: &Happening);
}

/// Nobody watches.
impl Observer for () {
    #[inline]
    fn see(&mut self, _now: Nanos, _happening: &Happening) {}
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    #[inline]
    fn see(&mut self, now: Nanos, happening: &Happening) {
        self.0.see(now, happening);
        self.1.see(now, happening);
    }
}

impl<O: Observer> Observer for Option<O> {
    #[inline]
    fn see(&mut self, now: Nanos, happening: &Happening) {
        if let Some(observer) = self {
            observer.see(now, happening);
        }
    }
}

impl<O: Observer + ?Sized> Observer for &mut O {
    #[inline]
    fn see(&mut self, now: Nanos, happening: &Happening) {
        (**self).see(now, happening);
    }
}

impl<O: Observer + ?Sized> Observer for Box<O> {
    #[inline]
    fn see(&mut self, now: Nanos, happening: &Happening) {
        (**self).see(now, happening);
    }
}

/// Writes every happening as one line of JSON. The same seed writes the same bytes.
#[derive(Debug)]
pub struct EventLog<W> {
    out: W,
    failure: Option<io::Error>,
}

#[derive(Serialize)]
struct Line<'a> {
    ns: Nanos,
    #[serde(flatten)]
    happening: &'a Happening,
}

impl<W: Write> EventLog<W> {
    /// A log that writes to `out`, which should be buffered.
    pub fn new(out: W) -> Self {
        Self { out, failure: None }
    }

    /// Flushes, and says whether every line could be written.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Observer for EventLog<W> {
    fn see(&mut self, now: Nanos, happening: &Happening) {
        if self.failure.is_some() {
            return;
        }
        let line = Line { ns: now, happening };
        let written = serde_json::to_writer(&mut self.out, &line)
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"));
        self.failure = written.err();
    }
}
