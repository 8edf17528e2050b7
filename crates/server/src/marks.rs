//! What happened lately that a look at the present does not show.
//!
//! Listens to the server's own events and keeps those that are rare enough to be kept and worth a look later: moves,
//! retries, missed deadlines, agents that came and went. What begins and ends is in the journal.
//!
//! What must stay true: what is kept is bounded, and what is missing is counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use loxley_api::{Event, EventKind, MarkFilter, Marks};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// So many are kept: some ten megabytes.
const KEPT_MAX: usize = 100_000;
/// The items of an answer, when nobody says and at most.
const PAGE: u32 = 1000;
const PAGE_MAX: u32 = 10_000;

/// What happened lately.
#[derive(Clone, Debug)]
pub(crate) struct RecentMarks {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    marks: VecDeque<Arc<Event>>,
    since_unix_ms: u64,
    missed: u64,
}

impl RecentMarks {
    /// Keeps what comes from now on, for as long as events come.
    pub(crate) fn follow(mut events: Receiver<Arc<Event>>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let this = Self {
            kept: Arc::new(Mutex::new(Kept {
                marks: VecDeque::new(),
                since_unix_ms: now.map_or(0, |now| now.as_millis() as u64),
                missed: 0,
            })),
        };
        let kept = this.clone();
        tokio::spawn(async move {
            loop {
                match events.recv().await {
                    Ok(event) if is_mark(&event.kind) => kept.keep(event),
                    Ok(_) => {}
                    Err(RecvError::Lagged(count)) => kept.lock().missed += count,
                    Err(RecvError::Closed) => return,
                }
            }
        });
        this
    }

    fn keep(&self, event: Arc<Event>) {
        let mut kept = self.lock();
        if kept.marks.len() >= KEPT_MAX
            && let Some(dropped) = kept.marks.pop_front()
        {
            kept.since_unix_ms = dropped.unix_ms;
        }
        kept.marks.push_back(event);
    }

    /// Those that are wanted, oldest first.
    pub(crate) fn list(&self, filter: &MarkFilter) -> Marks {
        let limit = filter.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
        let kept = self.lock();
        let wanted = |event: &&Arc<Event>| {
            filter.after.is_none_or(|after| event.sequence > after)
                && filter.from_unix_ms.is_none_or(|from| event.unix_ms >= from)
                && filter.to_unix_ms.is_none_or(|to| event.unix_ms < to)
                && filter
                    .task
                    .is_none_or(|task| task_of(&event.kind) == Some(task))
        };
        let mut items: Vec<Event> = kept
            .marks
            .iter()
            .filter(wanted)
            .take(limit + 1)
            .map(|event| Event::clone(event))
            .collect();
        let more = items.len() > limit;
        items.truncate(limit);
        Marks {
            next: items.last().filter(|_| more).map(|event| event.sequence),
            items,
            since_unix_ms: kept.since_unix_ms,
            missed: kept.missed,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_mark(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::TaskStarted { .. }
            | EventKind::TaskEnded { .. }
            | EventKind::JobAccepted { .. }
            | EventKind::JobEnded { .. }
    )
}

fn task_of(kind: &EventKind) -> Option<u64> {
    match kind {
        EventKind::TaskRetried { task, .. }
        | EventKind::TaskMoved { task, .. }
        | EventKind::DeadlineMissed { task } => Some(task.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loxley_model::{AgentId, TaskId};

    fn moved(sequence: u64, task: u64) -> Arc<Event> {
        Arc::new(Event {
            sequence,
            unix_ms: 1000 + sequence,
            kind: EventKind::TaskMoved {
                task: TaskId(task),
                from: AgentId(1),
                to: AgentId(2),
                reason: "stolen".to_owned(),
            },
        })
    }

    #[tokio::test]
    async fn pages_follow_each_other_and_what_is_dropped_is_said() {
        let (_sender, receiver) = tokio::sync::broadcast::channel(4);
        let marks = RecentMarks::follow(receiver);
        (0..KEPT_MAX as u64 + 3).for_each(|number| marks.keep(moved(number, number % 2)));
        let first = marks.list(&MarkFilter {
            limit: Some(2),
            ..MarkFilter::default()
        });
        let sequences = |marks: &Marks| -> Vec<u64> {
            marks.items.iter().map(|event| event.sequence).collect()
        };
        assert_eq!(sequences(&first), [3, 4]);
        assert_eq!(first.since_unix_ms, 1002);
        let second = marks.list(&MarkFilter {
            limit: Some(2),
            after: first.next,
            ..MarkFilter::default()
        });
        assert_eq!(sequences(&second), [5, 6]);
        let of_task = marks.list(&MarkFilter {
            task: Some(1),
            to_unix_ms: Some(1008),
            ..MarkFilter::default()
        });
        assert_eq!(sequences(&of_task), [3, 5, 7]);
        assert_eq!(of_task.next, None);
    }
}
