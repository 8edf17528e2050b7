//! Those who look at a run: what they ask, and what they want changed.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use anyhow::Result;
use loxley_api::{ApiError, ErrorCode, EventKind, JobInfo};
use loxley_engine::{Engine, Fact};
use loxley_exec::ShownOutput;
use loxley_model::Time;
use loxley_policy::Selection;
use loxley_server::decider::{Observer, Question, Wish};

use super::{Event, Runner, nanoseconds};

/// Whoever looks, if anybody does.
#[derive(Debug, Default)]
pub(super) struct Observers {
    observer: Option<Box<Observer>>,
    /// What was asked before we knew whom to have answer it.
    early: Vec<Question>,
}

impl Observers {
    /// Answers; what somebody wants changed comes back.
    fn ask(&mut self, question: Question, engine: &Engine, now: Time) -> Option<Wish> {
        match &mut self.observer {
            Some(observer) => observer.answer(question, engine, now),
            None => {
                self.early.push(question);
                None
            }
        }
    }

    /// Tasks that still run printed something.
    pub(super) fn printed(&self, shown: &[ShownOutput]) {
        if let Some(observer) = &self.observer {
            for shown in shown {
                observer.printed(shown.task, &shown.stdout, &shown.stderr);
            }
        }
    }

    pub(super) fn happened(
        &mut self,
        engine: &Engine,
        events: Vec<EventKind>,
        jobs_over: Vec<JobInfo>,
    ) {
        if let Some(observer) = &mut self.observer {
            observer.happened(engine, events, jobs_over);
        }
    }
}

impl Runner {
    pub(super) fn observed(&mut self, observer: Box<Observer>, out: &mut dyn Write) -> Result<()> {
        self.engine.want_events(true);
        self.settings.watched.store(true, Ordering::Relaxed);
        self.observers.observer = Some(observer);
        for question in std::mem::take(&mut self.observers.early) {
            self.asked(question, out)?;
        }
        Ok(())
    }

    pub(super) fn asked(&mut self, question: Question, out: &mut dyn Write) -> Result<()> {
        // What is answered is written down.
        self.carry_out(out)?;
        let now = self.time(Instant::now());
        match self.observers.ask(question, &self.engine, now) {
            Some(wish) => self.grant(wish, out),
            None => Ok(()),
        }
    }

    /// Tasks can be cancelled. Everything else is up to the command line.
    fn grant(&mut self, wish: Wish, out: &mut dyn Write) -> Result<()> {
        let Fact::Cancelled(selection) = wish.fact else {
            wish.answer(&self.engine, Err(refusal()));
            return Ok(());
        };
        let now = self.time(Instant::now());
        let applied = self
            .engine
            .record_and_apply(now, Fact::Cancelled(selection), None);
        if applied.is_ok() {
            // What was cancelled did not succeed: nobody may take the end for a success.
            self.summary.interrupted = true;
            if !matches!(selection, Selection::Task(_)) {
                self.exhausted = true;
                self.job = None;
            }
        }
        self.carry_out(out)?;
        wish.answer(&self.engine, applied);
        Ok(())
    }
}

/// A run that is over, and can still be looked at.
#[derive(Debug)]
pub(in crate::run) struct Afterwards {
    pub(super) engine: Engine,
    pub(super) origin: Instant,
    pub(super) observers: Observers,
    pub(super) events: Receiver<Event>,
}

impl Afterwards {
    /// Answers until somebody has seen enough.
    pub(in crate::run) fn until_interrupted(mut self) {
        while let Ok(event) = self.events.recv() {
            match event {
                Event::Interrupted | Event::Terminated => return,
                Event::Observed(observer) => {
                    self.observers.observer = Some(observer);
                    for question in std::mem::take(&mut self.observers.early) {
                        self.answer(question);
                    }
                }
                Event::Asked(question) => self.answer(*question),
                Event::ItemsReady | Event::Reports(_) | Event::OutputFailed(_) => {}
            }
        }
    }

    fn answer(&mut self, question: Question) {
        let now = Time(nanoseconds(self.origin.elapsed()));
        if let Some(wish) = self.observers.ask(question, &self.engine, now) {
            let over = ApiError::new(ErrorCode::Conflict, "the run is over");
            wish.answer(&self.engine, Err(over));
        }
    }
}

fn refusal() -> ApiError {
    let message =
        "this is a run, not a server: its tasks can be cancelled, and nothing else can be changed";
    ApiError::new(ErrorCode::Conflict, message)
        .with_help("start a server for what is to be submitted or retried: `loxley server start`")
}
