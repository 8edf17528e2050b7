//! The conversation with one agent. It moves frames and keeps nothing: what an agent says goes to the
//! engine, and what the engine has for it comes from there.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use loxley_api::{ApiError, ErrorCode, Permission};
use loxley_model::{AgentId, TaskId};
use loxley_protocol as wire;
use loxley_protocol::agents_server::{Agents, AgentsServer};
use tokio::sync::{Notify, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::auth::Caller;
use crate::decider::{Handle, Link};

/// How long an agent has to introduce itself.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// How many frames may wait for an agent before it counts as stuck.
const FRAMES_MAX: usize = 256;
/// How much an agent may say of itself.
const LIST_MAX: usize = 10_000;
const NAME_MAX: usize = 256;
const SLOTS_MAX: u32 = 100_000;

/// The service that agents call.
#[derive(Clone)]
pub(crate) struct AgentService {
    place: Arc<Place>,
    sessions: Arc<AtomicU64>,
}

/// Who looks after an agent that introduces itself so.
pub(crate) type Place = dyn Fn(&wire::Hello) -> Result<Handle, Status> + Send + Sync;

impl AgentService {
    /// What agents call.
    pub(crate) const PATH: &str = "/loxley.agent.v1.Agents/{*call}";

    /// The service of an engine that looks after everybody.
    pub(crate) fn server(handle: Handle) -> AgentsServer<Self> {
        Self::placing(Arc::new(move |_: &wire::Hello| Ok(handle.clone())))
    }

    /// The service of several engines.
    pub(crate) fn placing(place: Arc<Place>) -> AgentsServer<Self> {
        let service = Self {
            place,
            sessions: Arc::default(),
        };
        AgentsServer::new(service)
            .max_decoding_message_size(wire::FRAME_MAX)
            .max_encoding_message_size(wire::FRAME_MAX * 4)
    }
}

#[tonic::async_trait]
impl Agents for AgentService {
    type SessionStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<wire::ServerFrame, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::AgentFrame>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let caller = may_run_tasks(request.extensions().get())?.clone();
        let mut said = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIME, said.message());
        let first = first
            .await
            .map_err(|_| Status::deadline_exceeded("an agent must introduce itself"))??;
        let hello = first.and_then(|frame| frame.hello);
        let hello =
            hello.ok_or_else(|| Status::invalid_argument("the first frame must be a hello"))?;
        check(&hello)?;
        let handle = (self.place)(&hello)?;
        let (frames, outbox) = mpsc::channel(FRAMES_MAX);
        let link = Link {
            session: self.sessions.fetch_add(1, Ordering::Relaxed) + 1,
            token: Arc::clone(&caller.name),
            frames,
            cut: Arc::new(Notify::new()),
        };
        let name = hello.name.clone();
        let connected = handle.connect(hello, link.clone()).await;
        let agent = connected.map_err(|error| status(&error))?;
        tracing::info!(agent = agent.0, name, "connected");
        tokio::spawn(listen(handle, agent, link, caller, said));
        Ok(Response::new(Box::pin(ReceiverStream::new(outbox).map(Ok))))
    }
}

/// Passes on what an agent says until it falls silent or is cut off.
async fn listen(
    handle: Handle,
    agent: AgentId,
    link: Link,
    caller: Caller,
    mut said: Streaming<wire::AgentFrame>,
) {
    let Link {
        session,
        token: _,
        frames,
        cut,
    } = link;
    let outbox = frames.downgrade();
    // Held here, it would keep the connection open after the engine has let it go.
    drop(frames);
    loop {
        let frame = tokio::select! {
            frame = said.message() => frame,
            () = cut.notified() => Err(Status::resource_exhausted("frames are not taken")),
            () = caller.revoked() => Err(Status::unauthenticated("its token was revoked")),
        };
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(why) => {
                tracing::info!(agent = agent.0, why = why.message(), "the connection ended");
                break;
            }
        };
        if let Some(vitals) = &frame.vitals
            && let Some(outbox) = outbox.upgrade()
        {
            // Answered here: the way through the journal is counted apart.
            let echo = vitals.sent_ns;
            let _ = outbox.try_send(wire::ServerFrame {
                echo,
                ..wire::ServerFrame::default()
            });
        }
        take_outputs(&handle, &frame);
        if handle.hear(agent, session, frame).await.is_err() {
            break;
        }
    }
    handle.disconnect(agent, session).await;
}

/// Hears the frames of one agent as if they came over a connection, then hangs up: what fuzzing drives.
///
/// # Errors
/// When the agent is refused.
#[doc(hidden)]
pub async fn hear_frames(handle: &Handle, frames: Vec<wire::AgentFrame>) -> Result<(), Status> {
    let mut frames = frames.into_iter();
    let hello = frames.next().and_then(|frame| frame.hello);
    let hello = hello.ok_or_else(|| Status::invalid_argument("the first frame must be a hello"))?;
    check(&hello)?;
    let (outbox, _inbox) = mpsc::channel(FRAMES_MAX);
    let link = Link {
        session: 1,
        token: "fuzz".into(),
        frames: outbox,
        cut: Arc::new(Notify::new()),
    };
    let connected = handle.connect(hello, link).await;
    let agent = connected.map_err(|error| status(&error))?;
    for frame in frames {
        take_outputs(handle, &frame);
        let heard = handle.hear(agent, 1, frame).await;
        heard.map_err(|error| status(&error))?;
    }
    handle.disconnect(agent, 1).await;
    Ok(())
}

fn take_outputs(handle: &Handle, frame: &wire::AgentFrame) {
    let outputs = handle.outputs();
    for output in &frame.outputs {
        outputs.take(TaskId(output.task), &output.stdout, &output.stderr);
    }
    if !frame.finished.is_empty() && !outputs.is_empty() {
        for finished in &frame.finished {
            outputs.forget(TaskId(finished.task));
        }
    }
}

fn may_run_tasks(caller: Option<&Caller>) -> Result<&Caller, Status> {
    let caller = caller.ok_or_else(|| Status::unauthenticated("no token"))?;
    let permitted = caller.need(Permission::RunTasks).map(|()| caller);
    permitted.map_err(|error| Status::permission_denied(error.message))
}

/// What an agent says of itself must make sense before anybody acts on it.
fn check(hello: &wire::Hello) -> Result<(), Status> {
    let wrong = |what: &str| Err(Status::invalid_argument(what.to_owned()));
    if wire::common_version(hello.version).is_none() {
        return Err(Status::failed_precondition(format!(
            "the agent speaks version {} of the protocol, the server version {}: they understand each other \
             when they are one apart at most",
            hello.version,
            wire::VERSION
        )));
    }
    if hello.name.trim().is_empty()
        || hello.name.len() > NAME_MAX
        || hello.name.chars().any(char::is_control)
    {
        return wrong("an agent has a name of at most 256 bytes without control characters");
    }
    if !(1..=SLOTS_MAX).contains(&hello.slots) {
        return wrong("an agent has between 1 and 100,000 slots");
    }
    if !(hello.speed > 0.0 && hello.speed.is_finite()) {
        return wrong("a speed is a positive number");
    }
    let lists = [
        hello.skills.len(),
        hello.resources.len(),
        hello.holds.len(),
        hello.functions.len(),
        hello.notes.len(),
    ];
    if lists.into_iter().any(|length| length > LIST_MAX) {
        return wrong(
            "an agent names at most 10,000 skills, resources, pieces of data, functions or notes",
        );
    }
    Ok(())
}

fn status(error: &ApiError) -> Status {
    let message = error.to_string();
    match error.code {
        ErrorCode::Conflict => Status::already_exists(message),
        ErrorCode::Forbidden => Status::permission_denied(message),
        ErrorCode::Invalid => Status::invalid_argument(message),
        ErrorCode::Unavailable => Status::unavailable(message),
        _ => Status::internal(message),
    }
}
