//! Live events, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{self, KeepAlive};
use futures_util::Stream;
use futures_util::stream::unfold;
use loxley_api::{Event, EventKind, MarkFilter, Marks};
use serde::Deserialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::extract::Params;
use crate::{Caller, Context};

/// So often somebody who hears nothing hears at least that the connection stands.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct EventParams {
    /// Only the ends of tasks and of jobs, and word of events that are missing.
    #[serde(default)]
    only_ends: bool,
}

/// What happens, while it happens.
///
/// Server-sent events; the data of each is an `Event`. Whoever was away sends `Last-Event-ID` and hears
/// first how many events are missing, if any. So does a reader who is too slow.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(
        ("Last-Event-ID" = Option<u64>, Header, description = "The last one that was seen."),
        EventParams,
    ),
    responses((status = 200, description = "For as long as the connection stands.", content_type = "text/event-stream", body = Event))
))]
pub(super) async fn stream(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Params(params): Params<EventParams>,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let last = headers.get("last-event-id");
    let last = last.and_then(|value| value.to_str().ok()?.parse().ok());
    let reader = Reader {
        events: context.handle.subscribe(),
        last,
        held_back: None,
        only_ends: params.only_ends,
    };
    let stream = unfold((reader, caller), async |(mut reader, caller)| {
        let event = tokio::select! {
            event = reader.next() => event?,
            () = caller.revoked() => return None,
        };
        Some((Ok(as_sse(&event)), (reader, caller)))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// What happened lately and cannot be seen any more: moves, retries, missed deadlines, agents that came and went.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/marks", tag = "events", params(MarkFilter),
    responses((status = 200, description = "Oldest first, and from when on they are kept.", body = Marks))
))]
pub(super) async fn marks(
    State(context): State<Context>,
    Params(filter): Params<MarkFilter>,
) -> Json<Marks> {
    Json(context.marks().list(&filter))
}

fn as_sse(event: &Event) -> sse::Event {
    let data = serde_json::to_string(event).expect("an event can be written as JSON");
    sse::Event::default()
        .id(event.sequence.to_string())
        .data(data)
}

/// One who listens, and how far they are.
struct Reader {
    events: Receiver<Arc<Event>>,
    last: Option<u64>,
    /// An event that comes after word of those that are missing before it.
    held_back: Option<Arc<Event>>,
    only_ends: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Arc<Event>> {
        if let Some(event) = self.held_back.take() {
            self.last = Some(event.sequence);
            if self.is_wanted(&event) {
                return Some(event);
            }
        }
        loop {
            match self.events.recv().await {
                Ok(event) => {
                    let event = self.in_order(event);
                    if self.is_wanted(&event) {
                        return Some(event);
                    }
                }
                // The gap shows at the next event.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn is_wanted(&self, event: &Event) -> bool {
        use EventKind::{JobEnded, Missed, TaskEnded};
        let kind = &event.kind;
        !self.only_ends || matches!(kind, TaskEnded { .. } | JobEnded { .. } | Missed { .. })
    }

    /// The event, or word of what is missing before it.
    fn in_order(&mut self, event: Arc<Event>) -> Arc<Event> {
        let expected = self.last.map(|last| last.wrapping_add(1));
        if expected.is_none_or(|expected| expected == event.sequence) {
            self.last = Some(event.sequence);
            return event;
        }
        // A number that went backwards is another life of the server.
        let missing = expected.and_then(|expected| event.sequence.checked_sub(expected));
        let gap = Event {
            sequence: event.sequence.saturating_sub(1),
            unix_ms: now_unix_ms(),
            kind: EventKind::Missed { count: missing },
        };
        self.held_back = Some(event);
        Arc::new(gap)
    }
}

fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}
