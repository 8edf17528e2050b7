//! Any instance answers: from a request to the shard that it is about, here or at another instance.
//!
//! ```text
//!   a number in the path ────▶ the shard in its upper bits
//!   a new job ───────────────▶ by user and key; or where the first job is that it comes after; or where limits are kept
//!   lists, sums, figures ────▶ all shards, and one answer made of theirs (`merge.rs`)
//!   tokens, sessions, stop ──▶ this instance
//! ```
//!
//! With one shard there is nothing to find: the instance that holds it answers everything, and the others name it.
//!
//! What must stay true: who asks is known before anything is passed on; what may have been carried out by another instance
//! that did not answer is not sent again, and not said to have failed: the connection breaks off, as it would have with that
//! one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use loxley_api::{
    ApiError, BODY_BYTES_MAX, ClusterInfo, EndsRequest, ErrorBody, ErrorCode, Event, EventKind,
    HOLDER_HEADER, InstanceState, JobRequest, Permission, Problem, SHARD_HEADER, Severity, TaskEnd,
    Timeline,
};
use loxley_cluster::shard::ShardId;
use loxley_model::{JobId, TaskId};
use loxley_protocol as wire;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use tower::ServiceExt as _;

use super::peers::{Call, NoAnswer, Peers};
use super::{Instance, Served, Shard, SharedTokens, merge, sharing};
use crate::auth::{Caller, Gate};
use crate::decider::Handle;
use crate::session::AgentService;
use crate::{cluster_health, listen};

/// How long a request waits for somebody to take over a shard that nobody holds: longer than a takeover takes.
const HOLDER_TIME: Duration = Duration::from_secs(20);
/// How long until that is looked at again.
const LOOK: Duration = Duration::from_millis(100);
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);
/// No answer that is made into another one is larger.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How often tokens that nobody here knows are looked for at the others.
const REFRESH_EVERY: Duration = Duration::from_millis(500);

struct ShardRouter {
    instance: Arc<Instance>,
    gate: Arc<Gate>,
    tokens: SharedTokens,
    peers: Peers,
    refreshed: tokio::sync::Mutex<Option<Instant>>,
}

type Answer = Result<Response, ApiError>;

/// Everything, for everybody who knocks.
pub(super) fn router(instance: Arc<Instance>, gate: Arc<Gate>, tokens: SharedTokens) -> Router {
    let this = Arc::new(ShardRouter {
        peers: Peers::new(&gate),
        instance,
        gate: Arc::clone(&gate),
        tokens,
        refreshed: tokio::sync::Mutex::default(),
    });
    let placing = Arc::clone(&this);
    let place = move |hello: &wire::Hello| placing.place(hello);
    let known = Router::new()
        .route_service(AgentService::PATH, AgentService::placing(Arc::new(place)))
        .fallback(route)
        .with_state(Arc::clone(&this))
        .layer(axum::middleware::from_fn_with_state(
            gate,
            listen::authenticate,
        ));
    Router::new().fallback(answer).with_state((this, known))
}

async fn answer(
    State((this, known)): State<(Arc<ShardRouter>, Router)>,
    request: Request,
) -> Response {
    if let [only] = &this.instance.shards[..]
        && only.served().is_none()
        && !this.is_known_here(&request)
    {
        return standing_by(&this.instance, only, &request);
    }
    this.know_token(request.headers()).await;
    let answered = known.oneshot(request).await;
    answered.unwrap_or_else(|never| match never {})
}

/// What an instance that stands by says to everybody.
fn standing_by(instance: &Instance, shard: &Shard, request: &Request) -> Response {
    // One that took a shard and cannot serve it, or has yet to read its journal, names nobody.
    let holder = Some(shard.holder()).filter(|holder| *holder != instance.url);
    let holder = holder.unwrap_or_default();
    let message = match holder.is_empty() {
        true => "this instance stands by, and none has taken over yet".to_owned(),
        false => format!("this instance stands by; {holder} serves"),
    };
    let lost = instance.lost(shard.number);
    if let Some(lost) = lost.filter(|_| !listen::is_grpc(request)) {
        return refusal(lost);
    }
    let header = HeaderValue::from_str(&holder).unwrap_or(HeaderValue::from_static(""));
    let mut response = if listen::is_grpc(request) {
        Status::unavailable(message).into_http()
    } else if request.uri().path() == "/healthz" {
        (StatusCode::SERVICE_UNAVAILABLE, "standby\n").into_response()
    } else {
        refusal(ApiError::new(ErrorCode::Unavailable, message))
    };
    response.headers_mut().insert(HOLDER_HEADER, header);
    response
}

fn refusal(error: ApiError) -> Response {
    let status = StatusCode::from_u16(error.code.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(ErrorBody::from(error))).into_response()
}

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    /// Something of one shard.
    Shard(u16),
    /// Something that no shard can have.
    Nothing,
    /// This instance.
    Here,
    /// All shards, in a way of its own.
    All(Whole),
}

/// What concerns all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Submit,
    Ends,
    Jobs,
    Agents,
    Server,
    Health,
    Cluster,
    HandOver,
    Drain,
    Figures,
    Marks,
    Timeline,
    Metrics,
    Config,
    Prune,
    Events,
}

impl Subject {
    fn of(method: &Method, path: &str, shards: u16) -> Self {
        let get = method == Method::GET;
        let mut parts = path.trim_start_matches('/').split('/');
        if path == "/metrics" {
            return Self::All(Whole::Metrics);
        }
        if parts.next() != Some("v1") {
            return Self::Here;
        }
        let (kind, rest) = (parts.next().unwrap_or_default(), parts.next());
        if let ("jobs" | "tasks" | "agents", Some(number)) = (kind, rest) {
            let shard = number.parse().ok().and_then(ShardId::try_of);
            return match shard {
                Some(shard) if shard.0 < shards => Self::Shard(shard.0),
                _ => Self::Nothing,
            };
        }
        match (kind, rest) {
            ("jobs", None) if get => Self::All(Whole::Jobs),
            ("jobs", None) => Self::All(Whole::Submit),
            ("ends", None) => Self::All(Whole::Ends),
            ("agents", None) => Self::All(Whole::Agents),
            ("server", None) if get => Self::All(Whole::Server),
            ("server", Some("handover")) => Self::All(Whole::HandOver),
            ("server", Some("drain")) => Self::All(Whole::Drain),
            ("server", Some("prune")) => Self::All(Whole::Prune),
            ("health", None) => Self::All(Whole::Health),
            ("cluster", None) => Self::All(Whole::Cluster),
            ("figures", None) => Self::All(Whole::Figures),
            ("marks", None) => Self::All(Whole::Marks),
            ("timeline", None) => Self::All(Whole::Timeline),
            ("config", None) if !get => Self::All(Whole::Config),
            ("events", None) => Self::All(Whole::Events),
            // They are kept for each shard, and say nothing as a sum: the first speaks, or the one that is asked for.
            ("figures" | "tuning" | "forecast" | "journal" | "what-if", _) => Self::Shard(0),
            _ => Self::Here,
        }
    }
}

async fn route(State(this): State<Arc<ShardRouter>>, request: Request) -> Response {
    let answered = this.find(request).await;
    answered.unwrap_or_else(refusal)
}

impl ShardRouter {
    fn count(&self) -> u16 {
        self.instance.shards.len() as u16
    }

    /// Whether what is asked for is known to everybody who has looked into the database, while nobody serves because of what
    /// that has lost.
    fn is_known_here(&self, request: &Request) -> bool {
        let path = request.uri().path();
        let is_known =
            request.method() == Method::GET && matches!(path, "/v1/health" | "/v1/cluster");
        is_known && self.instance.lost(0).is_some()
    }

    /// Tokens are heard of every two seconds; whoever comes with a newer one does not wait for that.
    async fn know_token(&self, headers: &HeaderMap) {
        let token = listen::bearer_of(headers);
        let is_known =
            |token: &str| self.gate.caller(token).is_some() || self.gate.peer_token() == token;
        if self.count() == 1 || token.is_none_or(is_known) {
            return;
        }
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH_EVERY) {
            return;
        }
        *refreshed = Some(Instant::now());
        // What it is asked for is to change nothing: it reads what others wrote.
        let _ = self.tokens.change(&self.gate, |_| Ok(())).await;
    }

    /// Who looks after an agent: its shard, or the one that needs it most. When that is elsewhere, it is told where.
    fn place(&self, hello: &wire::Hello) -> Result<Handle, Status> {
        let own = hello.shard.and_then(|shard| u16::try_from(shard).ok());
        let own = own.filter(|shard| *shard < self.count());
        let shard = own.unwrap_or_else(|| {
            let loads = self.instance.loads();
            match loads.is_empty() {
                true => 0,
                false => sharing::place(hello, &loads),
            }
        });
        let place = &self.instance.shards[usize::from(shard)];
        if let Some(served) = place.served() {
            if own.is_none() {
                self.note_placed(shard, hello.slots);
            }
            return Ok(served.context.handle);
        }
        let holder = place.holder();
        let message = match holder.is_empty() {
            true => format!("nobody holds shard {shard} yet"),
            false => format!("{holder} holds shard {shard}"),
        };
        let mut status = Status::unavailable(message);
        if let Ok(holder) = holder.parse() {
            status.metadata_mut().insert(HOLDER_HEADER, holder);
        }
        if let Ok(shard) = shard.to_string().parse() {
            status.metadata_mut().insert(SHARD_HEADER, shard);
        }
        Err(status)
    }

    /// Many that come at once are not all put where the fewest were.
    fn note_placed(&self, shard: u16, slots: u32) {
        let loads = self.instance.loads.write();
        let mut loads = loads.unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(load) = loads.get_mut(usize::from(shard)) {
            load.slots += u64::from(slots);
        }
    }

    async fn find(&self, request: Request) -> Answer {
        // One shard, or the one that another instance means: there is nothing to find.
        let meant = request.headers().get(SHARD_HEADER);
        let meant = meant.and_then(|shard| shard.to_str().ok()?.parse::<u16>().ok());
        let is_passed_on = request.headers().contains_key(listen::CALLER_HEADER);
        let count = self.count();
        let subject = match meant {
            Some(shard) if shard < count => Subject::Shard(shard),
            Some(_) => Subject::Nothing,
            None if count == 1 && !self.is_known_here(&request) => Subject::Here,
            None => Subject::of(request.method(), request.uri().path(), count),
        };
        match subject {
            Subject::Nothing => {
                let message = format!("there is nothing at {}", request.uri().path());
                Err(ApiError::new(ErrorCode::NotFound, message))
            }
            Subject::Shard(shard) => {
                let place = &self.instance.shards[usize::from(shard)];
                if let Some(served) = place.served() {
                    return self.answer_here(served, request).await;
                }
                if is_passed_on {
                    // Whoever passed it on knows something else by now, or soon.
                    return Ok(standing_by(&self.instance, place, &request));
                }
                let call = read(request).await?;
                self.ask(shard, &call).await
            }
            Subject::Here => {
                let first = self.instance.served().next();
                if let Some((_, served)) = first {
                    return Ok(within(served.router, request).await);
                }
                let call = read(request).await?;
                self.ask(0, &call).await
            }
            Subject::All(whole) => self.whole(whole, read(request).await?).await,
        }
    }

    /// Answers from a shard that is served here. What is asked of a task that is with another shard, that one knows better.
    async fn answer_here(&self, served: Served, request: Request) -> Answer {
        let task = task_asked_about(&request).filter(|_| self.count() > 1);
        let Some(task) = task else {
            return Ok(within(served.router, request).await);
        };
        let Some(shard) = served.context.handle.whereabouts(task).await else {
            return Ok(within(served.router, request).await);
        };
        let call = read(request).await?;
        if let Ok(answer) = self.ask(shard, &call).await
            && answer.status().is_success()
        {
            return Ok(answer);
        }
        // It is on its way, or ended there a moment ago.
        Ok(within(served.router, call.request()).await)
    }

    /// Asks the holder of a shard, whoever that is, and waits for one where there is none.
    async fn ask(&self, shard: u16, call: &Call) -> Answer {
        let place = &self.instance.shards[usize::from(shard)];
        let until = Instant::now() + HOLDER_TIME;
        let mut why = format!("nobody holds shard {shard}");
        loop {
            let holder = place.holder();
            if let Some(served) = place.served() {
                return Ok(within(served.router, call.request()).await);
            }
            if !holder.is_empty() && holder != self.instance.url {
                let sent = tokio::select! {
                    sent = self.peers.send(&holder, shard, call) => sent,
                    // One that stands still may hold a connection for ever.
                    () = has_moved(place, &holder) => {
                        Err(NoAnswer::Lost(format!("{holder} holds shard {shard} no more")))
                    }
                };
                match sent {
                    // It holds it no more, and has carried out nothing.
                    Ok(answer) if answer.headers().contains_key(HOLDER_HEADER) => {}
                    Ok(answer) => return Ok(answer),
                    Err(NoAnswer::NotSent(error)) => why = error,
                    // A question may be asked again.
                    Err(NoAnswer::Lost(error)) if call.method == Method::GET => why = error,
                    Err(NoAnswer::Lost(error)) => return Ok(broken_off(&error)),
                }
            }
            if let Some(lost) = self.instance.lost(shard) {
                return Err(lost);
            }
            if Instant::now() > until {
                return Err(ApiError::new(ErrorCode::Unavailable, why));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks all shards at once, each the same, and reads their answers.
    async fn ask_all<T: DeserializeOwned>(&self, call: &Call) -> Result<Vec<T>, Failed> {
        let asked = (0..self.count()).map(|shard| async move {
            let answer = self.ask(shard, call).await.map_err(Failed::Refused)?;
            read_json(answer).await
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn whole(&self, whole: Whole, call: Call) -> Answer {
        let made = match whole {
            Whole::Submit => return self.submit(&call).await,
            Whole::Events => return self.events(&call).await,
            Whole::Metrics => return self.metrics(&call).await,
            Whole::Drain => {
                let message = "a cluster of several shards has no end to wait for";
                let help = "`loxley server handover` gives away what this instance holds, `loxley server stop` ends it";
                return Err(ApiError::new(ErrorCode::Conflict, message).with_help(help));
            }
            Whole::Ends => self.ends(&call).await,
            Whole::Jobs => self.jobs(&call).await,
            Whole::Agents => self.ask_all(&call).await.map(merge::agents).and_then(json),
            Whole::Server => self.server(&call).await,
            Whole::Figures => self.ask_all(&call).await.map(merge::figures).and_then(json),
            Whole::Marks => self.ask_all(&call).await.map(merge::marks).and_then(json),
            Whole::Prune => self.ask_all(&call).await.map(merge::pruned).and_then(json),
            Whole::Config => {
                let all = self.ask_all::<serde_json::Value>(&call).await;
                all.map(|all| all.into_iter().next()).and_then(json)
            }
            Whole::Health => self.health(&call).await,
            Whole::Timeline => self.timeline(&call).await,
            Whole::Cluster => json(self.permitted(&call, Permission::Look)?),
            Whole::HandOver => json(self.hand_over(&call)?),
        };
        made.or_else(Failed::answer)
    }

    /// Where a new job goes is settled before it has a number, and the same for the same submission.
    async fn submit(&self, call: &Call) -> Answer {
        let request: JobRequest = serde_json::from_slice(&call.body)
            .map_err(|wrong| ApiError::invalid(format!("the body: {wrong}")))?;
        let user = call.caller.act_for(request.user.as_deref())?;
        let shard = shard_of(&request, user, self.count())?;
        self.ask(shard, call).await
    }

    async fn ends(&self, call: &Call) -> Result<Response, Failed> {
        let request: EndsRequest = serde_json::from_slice(&call.body)
            .map_err(|wrong| Failed::Refused(ApiError::invalid(format!("the body: {wrong}"))))?;
        let of = |task: &TaskId| ShardId::try_of(task.0).map_or(0, |shard| shard.0);
        let asked = (0..self.count()).map(|shard| {
            let tasks = request.tasks.iter().copied();
            let tasks: Vec<TaskId> = tasks.filter(|task| of(task) == shard).collect();
            let body = serde_json::to_vec(&EndsRequest {
                tasks: tasks.clone(),
            });
            let call = call.with_body(body.expect("it is JSON"));
            async move {
                if tasks.is_empty() {
                    return Ok(Vec::new());
                }
                let answer = self.ask(shard, &call).await.map_err(Failed::Refused)?;
                read_json::<Vec<TaskEnd>>(answer).await
            }
        });
        let ends: Result<Vec<_>, Failed> = join_all(asked).await.into_iter().collect();
        json(ends?.into_iter().flatten().collect::<Vec<TaskEnd>>())
    }

    async fn jobs(&self, call: &Call) -> Result<Response, Failed> {
        /// As one shard has them.
        const PAGE: u32 = 100;
        const PAGE_MAX: u32 = 1000;
        let mut pairs = pairs(call.uri.query().unwrap_or_default());
        let number = |pairs: &[(String, String)], name: &str| -> Option<u64> {
            let found = pairs.iter().find(|(known, _)| known == name);
            found.and_then(|(_, value)| value.parse().ok())
        };
        let limit = number(&pairs, "limit").map_or(PAGE, |limit| limit.min(PAGE_MAX.into()) as u32);
        let cursor = number(&pairs, "before");
        if cursor.is_some() {
            pairs.retain(|(name, _)| name != "before");
        }
        let asked = (0..self.count()).map(|shard| {
            let mut pairs = pairs.clone();
            pairs.extend(cursor.map(|cursor| {
                let before = merge::before(cursor, shard);
                ("before".to_owned(), before.to_string())
            }));
            let call = call.get(&format!("/v1/jobs?{}", query(&pairs)));
            async move {
                let answer = self.ask(shard, &call).await.map_err(Failed::Refused)?;
                read_json(answer).await
            }
        });
        let pages: Result<Vec<_>, Failed> = join_all(asked).await.into_iter().collect();
        json(merge::jobs(pages?, limit.max(1) as usize))
    }

    /// What is said of one instance is said of the one that was asked, if it serves anything.
    async fn server(&self, call: &Call) -> Result<Response, Failed> {
        let mut all = self.ask_all(call).await?;
        let own = self.instance.served().next();
        let own = own.map_or(0, |(shard, _)| usize::from(shard.number));
        all.rotate_left(own);
        json(merge::server(all))
    }

    async fn health(&self, call: &Call) -> Result<Response, Failed> {
        call.caller
            .need(Permission::Look)
            .map_err(Failed::Refused)?;
        let served = (0..self.count()).filter(|shard| self.instance.lost(*shard).is_none());
        let asked = served.map(|shard| async move {
            let answer = self.ask(shard, call).await.map_err(Failed::Refused)?;
            read_json(answer).await.map(|health| (shard, health))
        });
        let all: Result<Vec<_>, Failed> = join_all(asked).await.into_iter().collect();
        let mut health = merge::health(all?);
        let cluster = self.cluster();
        health.problems.extend(cluster_health::problems(&cluster));
        let is_critical = |problem: &Problem| problem.severity == Severity::Critical;
        health.ok &= !health.problems.iter().any(is_critical);
        health.problems.sort_by_key(|problem| !is_critical(problem));
        for load in self.instance.loads() {
            let waiting = load.queued + load.held;
            if load.agents == 0 && waiting > 0 {
                let shard = load.shard;
                health.problems.push(Problem {
                    severity: Severity::Warning,
                    kind: "shard_without_agents".to_owned(),
                    message: format!("shard {shard} has {waiting} tasks waiting and no agent"),
                    remedies: vec![
                        "one that can do them is sent there when it has nothing to do, or after some seconds".to_owned(),
                        "start more agents: each is with one shard at a time".to_owned(),
                    ],
                });
            }
        }
        json(health)
    }

    /// The timelines of all shards, one after the other: the next part of one that is at its end is that of the next
    /// shard.
    async fn timeline(&self, call: &Call) -> Result<Response, Failed> {
        let mut pairs = pairs(call.uri.query().unwrap_or_default());
        let at = pairs.iter().position(|(name, _)| name == "cursor");
        let cursor = at.and_then(|at| pairs.remove(at).1.parse::<u64>().ok());
        // A part of the first shard that is at its beginning has none.
        let shard = cursor.and_then(ShardId::try_of).map_or(0, |shard| shard.0);
        let begins = cursor.is_none_or(|cursor| cursor == ShardId(shard).number(0));
        if !begins {
            pairs.extend(cursor.map(|cursor| ("cursor".to_owned(), cursor.to_string())));
        }
        if shard >= self.count() {
            return Err(Failed::Refused(ApiError::invalid("cursor: no such shard")));
        }
        let call = call.get(&format!("/v1/timeline?{}", query(&pairs)));
        let answer = self.ask(shard, &call).await.map_err(Failed::Refused)?;
        let mut part: Timeline = read_json(answer).await?;
        if part.next.is_none() && shard + 1 < self.count() {
            part.next = Some(ShardId(shard + 1).number(0));
        }
        json(part)
    }

    async fn metrics(&self, call: &Call) -> Answer {
        let mut pages = Vec::new();
        for shard in 0..self.count() {
            let answer = self.ask(shard, call).await?;
            if !answer.status().is_success() {
                return Ok(answer);
            }
            let bytes = axum::body::to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await;
            let bytes = bytes.map_err(|error| {
                ApiError::new(ErrorCode::Unavailable, format!("shard {shard}: {error}"))
            })?;
            pages.push((shard, String::from_utf8_lossy(&bytes).into_owned()));
        }
        let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
        Ok((kind, merge::metrics(&pages)).into_response())
    }

    /// What happens in all shards, numbered as it comes through here. When one of the streams ends, all do: whoever
    /// listens comes back.
    async fn events(&self, call: &Call) -> Answer {
        let asked = (0..self.count()).map(|shard| {
            let mut call = call.clone();
            // The numbers of this stream are no shard's.
            call.headers.remove("last-event-id");
            async move { self.ask(shard, &call).await }
        });
        let mut streams = Vec::new();
        for answer in join_all(asked).await {
            let answer = answer?;
            if !answer.status().is_success() {
                return Ok(answer);
            }
            streams.push(Box::pin(blocks(answer.into_body())));
        }
        let last = call.headers.get("last-event-id");
        let last: Option<u64> = last.and_then(|last| last.to_str().ok()?.parse().ok());
        let missed = last.map(|last| Event {
            sequence: last,
            unix_ms: 0,
            kind: EventKind::Missed { count: None },
        });
        let first = stream::iter(missed.map(|event| Ok::<_, axum::Error>(as_sse(&event))));
        let mut sequence = last.unwrap_or(0);
        let renumbered = stream::select_all(streams).map(move |block| {
            let block = block?;
            let Some(mut event) = event_of(&block) else {
                return Ok(Bytes::from(block));
            };
            sequence += 1;
            event.sequence = sequence;
            Ok(as_sse(&event))
        });
        let body = Body::from_stream(first.chain(renumbered));
        let kind = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        Ok((kind, body).into_response())
    }

    /// What the database says, with what the shards told of themselves.
    fn cluster(&self) -> ClusterInfo {
        let mut cluster = self.instance.seen();
        // The one that was asked comes first.
        cluster
            .instances
            .sort_by_key(|one| one.url != self.instance.url);
        for load in self.instance.loads() {
            let number = u32::from(load.shard);
            let shard = cluster.shards.iter_mut().find(|one| one.shard == number);
            if let Some(shard) = shard {
                shard.agents = Some(load.agents);
                shard.away = Some(load.away);
                shard.guests = Some(load.guests);
                shard.commit_sec = (load.commit_sec > 0.0).then_some(load.commit_sec);
            }
        }
        cluster
    }

    fn permitted(&self, call: &Call, permission: Permission) -> Result<ClusterInfo, ApiError> {
        call.caller.need(permission)?;
        Ok(self.cluster())
    }

    fn hand_over(&self, call: &Call) -> Result<ClusterInfo, ApiError> {
        if call.method != Method::POST {
            let message = format!("{} is not possible at {}", call.method, call.uri.path());
            return Err(ApiError::new(ErrorCode::MethodNotAllowed, message));
        }
        let cluster = self.permitted(call, Permission::Administer)?;
        let others = cluster.instances.iter();
        let mut others = others.filter(|one| one.url != self.instance.url);
        if !others.any(|one| one.state != InstanceState::Silent) {
            let help = "start another one first; `loxley server stop` ends this one all the same";
            let message = "no other instance is there to take over";
            return Err(ApiError::new(ErrorCode::Conflict, message).with_help(help));
        }
        tracing::info!("told to hand over");
        for (shard, _) in self.instance.served() {
            shard.instances.hand_over.notify_one();
        }
        Ok(cluster)
    }
}

/// The task that a question is about.
fn task_asked_about(request: &Request) -> Option<TaskId> {
    let number = request.uri().path().strip_prefix("/v1/tasks/")?;
    let number = number.split('/').next()?.parse().ok()?;
    (request.method() == Method::GET).then_some(TaskId(number))
}

/// The shard of a new job: that of the tasks that it waits for; that of the first of the jobs that it comes after; else by user
/// and key. The same for the same job, so that one that is sent again is recognised.
fn shard_of(request: &JobRequest, user: &str, count: u16) -> Result<u16, ApiError> {
    let of = |number: u64| ShardId::try_of(number).filter(|shard| shard.0 < count);
    for JobId(job) in &request.after {
        of(*job).ok_or_else(|| ApiError::not_found("job", *job))?;
    }
    let tasks = request.tasks.iter().flat_map(|task| &task.depends_on_tasks);
    let mut bound: Vec<ShardId> = tasks.filter_map(|TaskId(id)| of(*id)).collect();
    bound.sort_unstable();
    bound.dedup();
    match (&bound[..], request.after.first()) {
        ([shard], _) => Ok(shard.0),
        ([], Some(JobId(job))) => Ok(of(*job).map_or(0, |shard| shard.0)),
        ([], None) => {
            let key = request.key.as_deref().unwrap_or_default();
            Ok(ShardId::of_key(user, key, count).0)
        }
        _ => {
            let message = "tasks that this job waits for lie in different shards";
            let help = "let the whole job come `after` the others: that works from shard to shard";
            Err(ApiError::invalid(message).with_help(help))
        }
    }
}

/// Why there is no merged answer.
enum Failed {
    Refused(ApiError),
    /// What a shard said.
    Said(Box<Response>),
}

impl Failed {
    fn answer(self) -> Answer {
        match self {
            Self::Refused(error) => Err(error),
            Self::Said(response) => Ok(*response),
        }
    }
}

fn json(value: impl Serialize) -> Result<Response, Failed> {
    Ok(axum::Json(value).into_response())
}

async fn read_json<T: DeserializeOwned>(answer: Response) -> Result<T, Failed> {
    if !answer.status().is_success() {
        return Err(Failed::Said(Box::new(answer)));
    }
    let unreadable = |error: &dyn std::fmt::Display| {
        let message = format!("what another instance said cannot be read: {error}");
        Failed::Refused(ApiError::new(ErrorCode::Unavailable, message))
    };
    let bytes = axum::body::to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await;
    let bytes = bytes.map_err(|error| unreadable(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))
}

async fn within(router: Router, request: Request) -> Response {
    let answered = router.oneshot(request).await;
    answered.unwrap_or_else(|never| match never {})
}

/// Comes when another instance has become the holder, or this one.
async fn has_moved(place: &Shard, from: &str) {
    loop {
        tokio::time::sleep(LOOK).await;
        let holder = place.holder();
        if place.served().is_some() || (!holder.is_empty() && holder != from) {
            return;
        }
    }
}

/// A request to be passed on: its body is read first.
async fn read(request: Request) -> Result<Call, ApiError> {
    let (parts, body) = request.into_parts();
    let reading = axum::body::to_bytes(body, BODY_BYTES_MAX);
    let body = tokio::time::timeout(BODY_TIME, reading)
        .await
        .map_err(|_| ApiError::new(ErrorCode::Timeout, "the body took too long to arrive"))?
        .map_err(|_| {
            let message = "the body is larger than the server takes, or could not be read";
            ApiError::new(ErrorCode::TooLarge, message)
        })?;
    let caller = parts.extensions.get::<Caller>().cloned();
    // Pages and probes are for everybody, and show nothing of anybody.
    let nobody = || Caller::new(loxley_api::Role::Read, "", "");
    Ok(Call {
        method: parts.method,
        uri: parts.uri,
        headers: parts.headers,
        caller: caller.unwrap_or_else(nobody),
        body,
    })
}

/// An answer that does not come to its end: who asked knows as little of what became of it as we do.
fn broken_off(why: &str) -> Response {
    tracing::warn!(why, "an answer was lost between instances");
    let error = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why.to_owned());
    let body = Body::from_stream(stream::once(async move { Err::<Bytes, _>(error) }));
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// Server-sent events, one at a time, each with the empty line behind it.
fn blocks(body: Body) -> impl futures_util::Stream<Item = Result<Vec<u8>, axum::Error>> {
    let chunks = body.into_data_stream();
    stream::unfold((chunks, Vec::new()), async |(mut chunks, mut held)| {
        loop {
            let end = held.windows(2).position(|two| two == b"\n\n");
            if let Some(end) = end {
                let rest = held.split_off(end + 2);
                return Some((Ok(held), (chunks, rest)));
            }
            match chunks.next().await {
                Some(Ok(chunk)) => held.extend_from_slice(&chunk),
                // The end of one is the end of all: an error ends the merged stream.
                ended => {
                    let why = match ended {
                        Some(Err(error)) => error,
                        _ => axum::Error::new("the stream of a shard ended"),
                    };
                    return Some((Err(why), (chunks, held)));
                }
            }
        }
    })
}

fn event_of(block: &[u8]) -> Option<Event> {
    let text = std::str::from_utf8(block).ok()?;
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let data: String = data.collect::<Vec<_>>().join("\n");
    serde_json::from_str(data.trim_start()).ok()
}

fn as_sse(event: &Event) -> Bytes {
    let data = serde_json::to_string(event).expect("an event can be written as JSON");
    Bytes::from(format!("id: {}\ndata: {data}\n\n", event.sequence))
}

/// The parameters behind the question mark, as they stand there: only their names are looked at.
fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), value.to_owned())
    });
    pairs.collect()
}

fn query(pairs: &[(String, String)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_its_shard_and_what_no_shard_has_is_nothing() {
        let of = |path: &str| Subject::of(&Method::GET, path, 4);
        let number = ShardId(3).number(17);
        assert_eq!(of("/v1/jobs/17"), Subject::Shard(0));
        assert_eq!(of(&format!("/v1/jobs/{number}/wait")), Subject::Shard(3));
        assert_eq!(of(&format!("/v1/tasks/{number}/output")), Subject::Shard(3));
        assert_eq!(of(&format!("/v1/agents/{number}")), Subject::Shard(3));
        let beyond = ShardId(4).number(1);
        assert_eq!(of(&format!("/v1/jobs/{beyond}")), Subject::Nothing);
        assert_eq!(of("/v1/jobs/seventeen"), Subject::Nothing);
        assert_eq!(of("/v1/jobs"), Subject::All(Whole::Jobs));
        assert_eq!(of("/v1/session"), Subject::Here);
        assert_eq!(of("/v1/config"), Subject::Here);
        assert_eq!(
            Subject::of(&Method::PUT, "/v1/config", 4),
            Subject::All(Whole::Config)
        );
        assert_eq!(of("/"), Subject::Here);
    }

    fn job(json: serde_json::Value) -> JobRequest {
        serde_json::from_value(json).expect("a job")
    }

    #[test]
    fn a_job_goes_to_the_shard_of_what_it_waits_for_and_others_are_spread() {
        let task = serde_json::json!({"run": {"command": {"words": ["true"]}}});
        let plain = |key: &str| job(serde_json::json!({"key": key, "tasks": [task]}));
        let placed = |job: &JobRequest| shard_of(job, "mia", 4);
        let all: std::collections::BTreeSet<u16> = (0..100)
            .map(|key| placed(&plain(&key.to_string())).expect("a shard"))
            .collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        let mut after = plain("a");
        after.after = vec![JobId(ShardId(2).number(5)), JobId(ShardId(2).number(6))];
        assert_eq!(placed(&after).ok(), Some(2));
        after.after.push(JobId(ShardId(3).number(5)));
        assert_eq!(placed(&after).ok(), Some(2), "the other one is heard of");
        after.after.push(JobId(ShardId(4).number(5)));
        assert!(placed(&after).is_err(), "there are four");
        let mut grouped = plain("b");
        grouped.tasks[0].group = Some("disk".to_owned());
        assert_eq!(placed(&grouped).ok(), placed(&plain("b")).ok());
        grouped.tasks[0].depends_on_tasks = vec![TaskId(ShardId(1).number(9))];
        assert_eq!(placed(&grouped).ok(), Some(1));
        let elsewhere = TaskId(ShardId(2).number(9));
        grouped.tasks[0].depends_on_tasks.push(elsewhere);
        assert!(placed(&grouped).is_err());
    }
}
