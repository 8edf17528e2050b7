//! What a fleet counts: who was busy for how long, how long tasks ran, how long the queues were,
//! and how many tasks are not settled yet.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loxley_balance::{BalanceReport, Observations, QueueDepths, Sketch};

use crate::task::Name;

/// Queue lengths are looked at no more often than this.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(2);

pub(super) struct RunFigures {
    figures: Mutex<Figures>,
    open: Mutex<usize>,
    all_settled: Condvar,
}

#[derive(Default)]
struct Figures {
    slots: Vec<Arc<SlotFigures>>,
    durations: Sketch,
    depths: QueueDepths,
    begin: Option<Instant>,
    end: Option<Instant>,
    last_sample: Option<Instant>,
}

/// What one slot did.
pub(super) struct SlotFigures {
    agent: Name,
    busy_ns: AtomicU64,
    is_open: AtomicBool,
}

impl SlotFigures {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

impl RunFigures {
    pub(super) fn new() -> Self {
        Self {
            figures: Mutex::default(),
            open: Mutex::new(0),
            all_settled: Condvar::new(),
        }
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Promises.

    /// So many tasks are about to be submitted.
    pub(super) fn expect(&self, tasks: usize) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) += tasks;
        let now = Instant::now();
        let mut figures = self.figures();
        if figures.begin.is_none() {
            figures.begin = Some(now);
            figures.last_sample = Some(now);
        }
    }

    /// So many were refused after all.
    pub(super) fn expect_no_more(&self, tasks: usize) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open -= tasks;
        if *open == 0 {
            self.all_settled.notify_all();
        }
    }

    /// A task is over.
    pub(super) fn settled(&self) {
        self.expect_no_more(1);
    }

    /// Waits until every task is over. Says whether they are.
    pub(super) fn wait_settled(&self, timeout: Option<Duration>) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |open: &mut usize| *open > 0;
        match timeout {
            None => {
                drop(self.all_settled.wait_while(open, is_open));
                true
            }
            Some(timeout) => {
                let waited = self.all_settled.wait_timeout_while(open, timeout, is_open);
                let (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
                *open == 0
            }
        }
    }

    // Figures.

    pub(super) fn open_slot(&self, agent: &Name) -> Arc<SlotFigures> {
        let slot = Arc::new(SlotFigures {
            agent: Arc::clone(agent),
            busy_ns: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
        });
        self.figures().slots.push(Arc::clone(&slot));
        slot
    }

    /// The agent is gone: it had no full share of the time, so it is left out of the figures.
    pub(super) fn close_slots(&self, agent: &str) {
        self.figures().slots.retain(|slot| {
            let stays = &*slot.agent != agent;
            slot.is_open.fetch_and(stays, Ordering::AcqRel);
            stays
        });
    }

    /// A slot ran a closure.
    pub(super) fn ran(&self, slot: &SlotFigures, begin: Instant, end: Instant) {
        let span = u64::try_from((end - begin).as_nanos()).unwrap_or(u64::MAX);
        slot.busy_ns.fetch_add(span, Ordering::Relaxed);
        let mut figures = self.figures();
        figures.durations.record(span);
        figures.end = figures.end.max(Some(end));
    }

    /// Looks at the queues, if it is time to.
    pub(super) fn sample(&self, queue_lengths: impl FnOnce() -> Vec<usize>) {
        let now = Instant::now();
        let due = |figures: &Figures| {
            let last = figures.last_sample?;
            let span = now.saturating_duration_since(last);
            (span >= SAMPLE_INTERVAL).then_some(span)
        };
        if due(&self.figures()).is_none() {
            return;
        }
        // The scheduler is asked without the lock of the figures: the two are never held together.
        let lengths = queue_lengths();
        let mut figures = self.figures();
        if let Some(span) = due(&figures) {
            let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
            figures.depths.sample_for(span, lengths);
            figures.last_sample = Some(now);
        }
    }

    pub(super) fn report(&self) -> BalanceReport {
        let figures = self.figures();
        let busy_ns: Vec<u64> = figures
            .slots
            .iter()
            .map(|slot| slot.busy_ns.load(Ordering::Relaxed))
            .collect();
        let wall = match (figures.begin, figures.end) {
            (Some(begin), Some(end)) => end.saturating_duration_since(begin),
            _ => Duration::ZERO,
        };
        BalanceReport::new(&Observations {
            busy_ns: &busy_ns,
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            durations: &figures.durations,
            queue_depths: &figures.depths,
        })
    }

    pub(super) fn busy_times(&self) -> Vec<(Name, Duration)> {
        let mut times: Vec<(Name, Duration)> = Vec::new();
        for slot in &self.figures().slots {
            let busy = Duration::from_nanos(slot.busy_ns.load(Ordering::Relaxed));
            match times.iter_mut().find(|(agent, _)| *agent == slot.agent) {
                Some((_, sum)) => *sum += busy,
                None => times.push((Arc::clone(&slot.agent), busy)),
            }
        }
        times
    }

    pub(super) fn restart(&self) {
        let mut figures = self.figures();
        let slots = std::mem::take(&mut figures.slots);
        for slot in &slots {
            slot.busy_ns.store(0, Ordering::Relaxed);
        }
        *figures = Figures {
            slots,
            ..Figures::default()
        };
    }
}
