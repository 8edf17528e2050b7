//! The conversation with the server, from one connection to the next.
//!
//! An agent goes on with its tasks when the connection breaks, until its lease runs out (`fence.rs`). It looks for
//! the server again and again, with growing pauses; when it is back, both sides compare what they know
//! (`Hello::leases`), and what the server has not acknowledged is said again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use loxley_api::Access;
use loxley_balance::{Delay, Rng};
use loxley_exec::{Desk, START_NOTICE, Urgency, boot_time};
use loxley_protocol as wire;
use loxley_protocol::agents_client::AgentsClient;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant as TokioInstant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};

use crate::counters::Counters;
use crate::fence::Fence;
use crate::ledger::Ledger;
use crate::vitals::Pulse;
use crate::{AgentError, AgentOptions};

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long the server may take to answer a hello.
const WELCOME_TIME: Duration = Duration::from_secs(30);
/// How often a silent server is asked whether it is there, and how long it has to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIME: Duration = Duration::from_secs(10);
/// The same where another instance may have taken over from one that is silent.
const KEEP_ALIVE_OF_SEVERAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIME_OF_SEVERAL: Duration = Duration::from_secs(4);
/// How soon after a heartbeat the next one may follow.
const EARLY_BEAT: Duration = Duration::from_millis(50);
/// How long an agent that ends now waits for the server to take in what came of its tasks.
const LEAVE_TIME: Duration = Duration::from_secs(10);
/// How long an agent that has nothing more to say waits for the server to hang up.
const GOODBYE_TIME: Duration = Duration::from_secs(2);
/// For how long an agent is held to be short of what the system refused it.
const SHORT_TIME: Duration = Duration::from_secs(10);
/// How long an agent waits for its name to become free.
const NAME_TIME: Duration = Duration::from_secs(2);
/// How many frames may wait to be sent.
const FRAMES_MAX: usize = 16;

/// How an agent is asked to end.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    inner: Arc<StopRequest>,
}

#[derive(Debug, Default)]
struct StopRequest {
    /// 0 go on, 1 finish what is here, 2 end now.
    level: AtomicU8,
    bell: Notify,
}

impl Stopper {
    /// Takes nothing new, finishes what is there, tells the server, ends.
    pub fn drain(&self) {
        self.raise(1);
    }

    /// Kills what runs, and ends. The server gives it to others.
    pub fn stop(&self) {
        self.raise(2);
    }

    fn raise(&self, level: u8) {
        self.inner.level.fetch_max(level, Ordering::Relaxed);
        self.inner.bell.notify_one();
    }

    fn level(&self) -> u8 {
        self.inner.level.load(Ordering::Relaxed)
    }
}

/// Why a conversation ended.
enum End {
    /// The agent is to end.
    Over,
    /// The connection broke.
    Broken(String),
    /// Nothing is left here, and another shard has more to do.
    Moved(u32),
}

pub(crate) struct Conversation {
    pub(crate) options: Arc<AgentOptions>,
    pub(crate) process: u64,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) fence: Arc<Fence>,
    pub(crate) stopper: Stopper,
    pub(crate) notes: Vec<String>,
    /// Whether a server ever took it in.
    pub(crate) was_welcome: AtomicBool,
    pub(crate) servers: Mutex<Servers>,
    pub(crate) counters: Mutex<Counters>,
}

/// The instances of the server, as far as we know them.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The one to try next comes first.
    urls: Vec<String>,
    /// The newest holder that we have heard of, of each shard, and how far it said that its journal is written.
    seen: BTreeMap<u32, wire::Seen>,
    /// The shard that we belong to, once we know.
    shard: Option<u32>,
    /// The shard that we were sent to, while we have yet to finish what we have.
    moves_to: Option<u32>,
}

impl Servers {
    /// So many addresses are kept.
    const MAX: usize = 32;

    pub(crate) fn new(access: &Access) -> Self {
        Self {
            urls: access.urls(),
            seen: BTreeMap::new(),
            shard: None,
            moves_to: None,
        }
    }

    /// Whether whoever says welcome is the newest holder of its shard that we have heard of.
    fn is_current(&mut self, welcome: &wire::Welcome, position: u64) -> bool {
        let known = self.seen.get(&welcome.shard).map(|seen| seen.epoch);
        if known.is_some_and(|known| welcome.epoch < known) {
            return false;
        }
        let seen = wire::Seen {
            shard: welcome.shard,
            epoch: welcome.epoch,
            holder: welcome.holder,
            position,
        };
        self.seen.insert(welcome.shard, seen);
        self.shard = Some(welcome.shard);
        true
    }

    /// The holder of our shard said that its journal is written so far.
    fn saw(&mut self, position: u64) {
        let seen = self.shard.and_then(|shard| self.seen.get_mut(&shard));
        if let Some(seen) = seen {
            seen.position = seen.position.max(position);
        }
    }

    /// That one did not answer, or stands by: the next, or the one that it named.
    fn pass_on(&mut self, named: Option<&str>) {
        self.urls.rotate_left(1);
        if let Some(named) = named {
            self.urls.retain(|url| url != named);
            self.urls.insert(0, named.to_owned());
            self.urls.truncate(Self::MAX);
        }
    }

    /// None that we know answered: those that we did not know come first.
    fn find_again(&mut self, urls: Vec<String>) {
        for url in urls.into_iter().rev() {
            if !self.urls.contains(&url) {
                tracing::info!(server = url, "knows another instance of the server");
                self.urls.insert(0, url);
            }
        }
        self.urls.truncate(Self::MAX);
    }

    fn learn(&mut self, servers: &[String]) {
        for server in servers
            .iter()
            .filter(|server| server.starts_with("https://"))
        {
            if self.urls.len() < Self::MAX && !self.urls.contains(server) {
                tracing::info!(server, "knows another instance of the server");
                self.urls.push(server.clone());
            }
        }
    }
}

impl Conversation {
    /// Talks to the server until the agent is to end.
    pub(crate) async fn hold(&self) -> Result<(), AgentError> {
        /// From an eager first try to one every few seconds, each a little different from its neighbours.
        const FIRST_NS: u64 = 50_000_000;
        const LONGEST_NS: u64 = 5_000_000_000;
        /// While another instance may take over: the longest that it can be late because of us.
        const LONGEST_OF_SEVERAL_NS: u64 = 1_000_000_000;
        let law =
            |longest| Delay::new(FIRST_NS, 2.0, longest, 0.5).expect("the cap is above the base");
        let (pauses, short_pauses) = (law(LONGEST_NS), law(LONGEST_OF_SEVERAL_NS));
        let mut rng = Rng::new(self.process);
        let mut attempt = 0;
        // A server that is away may come back; a name that nobody knows is a mistake of whoever wrote it.
        resolve(&self.options.access).await?;
        let started = Instant::now();
        loop {
            let begun = Instant::now();
            let why = match self.once().await {
                Ok(End::Over) => return Ok(()),
                Ok(End::Broken(why)) => why,
                Ok(End::Moved(shard)) => {
                    tracing::info!(shard, "goes to another shard");
                    let mut servers = self.servers();
                    (servers.shard, servers.moves_to) = (Some(shard), None);
                    attempt = 0;
                    continue;
                }
                Err(status) if is_final(&status) => {
                    return Err(AgentError::Refused(status.message().to_owned()));
                }
                // Somebody else has the name. One that was here before may take a moment to be noticed gone.
                Err(status)
                    if status.code() == Code::AlreadyExists
                        && !self.was_welcome.load(Ordering::Relaxed)
                        && started.elapsed() > NAME_TIME =>
                {
                    return Err(AgentError::Refused(status.message().to_owned()));
                }
                Err(status) => {
                    let named = status.metadata().get(loxley_api::HOLDER_HEADER);
                    let named = named.and_then(|named| named.to_str().ok());
                    let named = named.filter(|named| named.starts_with("https://"));
                    let shard = status.metadata().get(loxley_api::SHARD_HEADER);
                    let shard = shard.and_then(|shard| shard.to_str().ok()?.parse().ok());
                    let mut servers = self.servers();
                    servers.pass_on(named);
                    servers.shard = shard.or(servers.shard);
                    status.message().to_owned()
                }
            };
            // A connection that held is no failed attempt.
            if begun.elapsed() > Duration::from_secs(5) {
                attempt = 0;
            }
            if self.stopper.level() == 2 || (self.stopper.level() == 1 && self.ledger.is_empty()) {
                return Ok(());
            }
            if attempt >= self.servers().urls.len() as u32 {
                self.look_into_file();
            }
            let pauses = match self.servers().urls.len() {
                1 => &pauses,
                _ => &short_pauses,
            };
            let pause = Duration::from_nanos(pauses.ns(attempt, &mut rng));
            tracing::warn!(why, ?pause, "not connected; trying again");
            attempt += 1;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stopper.inner.bell.notified() => {}
            }
        }
    }

    /// Servers may have come back elsewhere, all of them.
    fn look_into_file(&self) {
        let known = &self.options.access;
        let file = self.options.access_file.as_deref().map(Access::read);
        if let Some(Ok(access)) = file
            && access.certificate_sha256 == known.certificate_sha256
        {
            self.servers().find_again(access.urls());
        }
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn once(&self) -> Result<End, Status> {
        let access = &self.options.access;
        let (url, several) = {
            let servers = self.servers();
            (servers.urls[0].clone(), servers.urls.len() > 1)
        };
        let channel = connect(access, &url, several).await?;
        let mut client = AgentsClient::new(channel)
            .max_decoding_message_size(wire::FRAME_MAX * 4)
            .max_encoding_message_size(wire::FRAME_MAX);
        let (frames, outbox) = mpsc::channel(FRAMES_MAX);
        let said_hello = boot_time();
        let hello = wire::AgentFrame {
            hello: Some(self.hello()),
            ..wire::AgentFrame::default()
        };
        frames.try_send(hello).expect("the outbox is empty");
        let mut request = tonic::Request::new(ReceiverStream::new(outbox));
        let token = format!("Bearer {}", access.token.reveal());
        let token = token
            .parse()
            .map_err(|_| Status::unauthenticated("the token is no text"))?;
        request.metadata_mut().insert("authorization", token);
        let answered = tokio::time::timeout(WELCOME_TIME, client.session(request)).await;
        let mut inbox = answered
            .map_err(|_| Status::deadline_exceeded("the server did not answer"))??
            .into_inner();
        let first = tokio::time::timeout(WELCOME_TIME, inbox.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("the server did not answer"))??;
        let Some(mut first) = first else {
            return Ok(End::Broken("the server hung up".to_owned()));
        };
        let Some(welcome) = first.welcome.take() else {
            return Err(Status::failed_precondition(
                "the server did not say welcome",
            ));
        };
        {
            let mut servers = self.servers();
            if !servers.is_current(&welcome, first.position) {
                return Err(Status::unavailable(
                    "another instance has taken over from this one",
                ));
            }
            servers.learn(&welcome.servers);
        }
        tracing::info!(
            agent = welcome.agent,
            shard = welcome.shard,
            resumed = welcome.resumed,
            "connected"
        );
        self.was_welcome.store(true, Ordering::Relaxed);
        self.fence.heard(said_hello);
        self.fence
            .set_length(Duration::from_nanos(welcome.lease_ns));
        if welcome.resumed {
            for frame in self.ledger.unacknowledged() {
                if frames.send(frame).await.is_err() {
                    return Ok(End::Broken("the server hung up".to_owned()));
                }
            }
        } else {
            self.ledger.drop_everything();
        }
        let farewell = first.farewell();
        self.ledger.hear(first);
        let mut talk = Talk {
            conversation: self,
            frames,
            heartbeat: Duration::from_nanos(welcome.heartbeat_ns.max(1)),
            pulse: Pulse::new(),
            round_trip_ns: 0,
            leaving: false,
            nothing_new: false,
            gives_up_at: None,
            beats: 0,
            last_beat: TokioInstant::now(),
            has_new_pace: false,
            told_hold: Duration::ZERO,
        };
        if let Some(end) = talk.obey(farewell) {
            return Ok(end);
        }
        let end = talk.go_on(&mut inbox).await?;
        if matches!(end, End::Over | End::Moved(_)) {
            // That we leave is said and may not be sent yet: who hangs up now is taken for silent, and then for lost. With
            // nothing more to come from us, the server hangs up.
            drop(talk);
            let hangs_up = async { while let Ok(Some(_)) = inbox.message().await {} };
            let _ = tokio::time::timeout(GOODBYE_TIME, hangs_up).await;
        }
        Ok(end)
    }

    fn hello(&self) -> wire::Hello {
        let options = &self.options;
        let (shard, seen) = {
            let servers = self.servers();
            (servers.shard, servers.seen.values().copied().collect())
        };
        wire::Hello {
            version: wire::VERSION,
            name: options.name.clone(),
            process: self.process,
            skills: options.skills.clone(),
            slots: options.slots,
            speed: options.speed,
            cpu_milli: options.cpu_milli,
            memory_bytes: options.memory_bytes,
            resources: options
                .resources
                .iter()
                .map(|(name, amount)| wire::Amount {
                    name: name.clone(),
                    amount: *amount,
                })
                .collect(),
            zone: options.zone.clone().unwrap_or_default(),
            holds: options.holds.clone(),
            functions: options.functions.names().map(ToOwned::to_owned).collect(),
            leases: self.ledger.leases(),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            pid: std::process::id(),
            notes: self.notes.clone(),
            shard,
            seen,
        }
    }
}

/// One connection that stands.
struct Talk<'a> {
    conversation: &'a Conversation,
    frames: mpsc::Sender<wire::AgentFrame>,
    heartbeat: Duration,
    pulse: Pulse,
    round_trip_ns: u64,
    leaving: bool,
    /// Whether the server has taken that in: nothing new is on its way to us.
    nothing_new: bool,
    /// Until when an agent that ends now waits for the server to take in what came of its tasks.
    gives_up_at: Option<TokioInstant>,
    beats: u32,
    last_beat: TokioInstant,
    /// Whether the server changed how often it wants to hear of us.
    has_new_pace: bool,
    /// How long ends are kept back, as the server knows it.
    told_hold: Duration,
}

impl Talk<'_> {
    async fn go_on(&mut self, inbox: &mut Streaming<wire::ServerFrame>) -> Result<End, Status> {
        let ledger = Arc::clone(&self.conversation.ledger);
        let mut next_beat = TokioInstant::now();
        let mut look_at: Option<TokioInstant> = None;
        loop {
            let mut starts_alone = false;
            tokio::select! {
                frame = inbox.message() => {
                    let Some(frame) = frame? else {
                        return Ok(self.hung_up());
                    };
                    if let Some(end) = self.hear(frame) {
                        return Ok(end);
                    }
                }
                () = ledger.bell().notified() => {}
                () = tokio::time::sleep_until(next_beat) => {
                    next_beat = TokioInstant::now() + self.next_pause();
                    self.beat().await;
                }
                () = sleep_until(look_at) => starts_alone = true,
                () = sleep_until(ledger.desk().due().map(Into::into)) => {}
                () = self.conversation.stopper.inner.bell.notified() => {}
                () = sleep_until(self.gives_up_at) => return Ok(End::Over),
            }
            if std::mem::take(&mut self.has_new_pace) {
                next_beat = TokioInstant::now();
            }
            if let Some(end) = self.speak(&ledger, starts_alone).await {
                return Ok(end);
            }
            look_at = next_look(
                ledger.desk(),
                look_at.filter(|_| !starts_alone),
                starts_alone,
            );
            // How much work an agent is given ahead depends on it.
            if ledger.desk().hold() != self.told_hold {
                next_beat = next_beat.min(self.last_beat + EARLY_BEAT);
            }
        }
    }

    /// Says what there is to say, and ends when there is nothing more to do.
    async fn speak(&mut self, ledger: &Ledger, starts_alone: bool) -> Option<End> {
        let broken = || Some(End::Broken("the server hung up".to_owned()));
        let mut alone = starts_alone;
        while let Some(frame) = ledger.next_frame(alone) {
            alone = false;
            if self.frames.send(frame).await.is_err() {
                return broken();
            }
        }
        let level = self.conversation.stopper.level();
        let moves_to = self.conversation.servers().moves_to;
        if level == 0 && moves_to.is_none() {
            return None;
        }
        if !std::mem::replace(&mut self.leaving, true) {
            let leaving = wire::AgentFrame {
                leaving: true,
                ..wire::AgentFrame::default()
            };
            if self.frames.send(leaving).await.is_err() {
                return broken();
            }
        }
        if level == 2 && self.gives_up_at.is_none() {
            self.gives_up_at = Some(TokioInstant::now() + LEAVE_TIME);
            ledger.give_up(Urgency::Gentle);
        }
        match moves_to {
            // What is on its way to us would be lost with the connection, and only missed after a while.
            Some(shard) if level == 0 => {
                (ledger.is_empty() && self.nothing_new).then_some(End::Moved(shard))
            }
            _ => ledger.is_empty().then_some(End::Over),
        }
    }

    fn hear(&mut self, frame: wire::ServerFrame) -> Option<End> {
        if frame.echo > 0 {
            self.round_trip_ns = nanoseconds(boot_time()).saturating_sub(frame.echo);
            let sent = Duration::from_nanos(frame.echo);
            self.conversation.fence.heard(sent.min(boot_time()));
        }
        if frame.heartbeat_ns > 0 {
            self.heartbeat = Duration::from_nanos(frame.heartbeat_ns);
            let lease = Duration::from_nanos(frame.lease_ns);
            self.conversation.fence.set_length(lease);
            self.has_new_pace = true;
        }
        {
            let mut servers = self.conversation.servers();
            servers.saw(frame.position);
            servers.learn(&frame.servers);
            // Whoever is on its way already finishes that first.
            servers.moves_to = servers.moves_to.or(frame.move_to_shard);
        }
        let farewell = frame.farewell();
        self.nothing_new |= frame.nothing_new;
        self.conversation.ledger.hear(frame);
        self.obey(farewell)
    }

    fn obey(&self, farewell: wire::Farewell) -> Option<End> {
        match farewell {
            wire::Farewell::Stay => None,
            wire::Farewell::Drain => {
                self.conversation.stopper.drain();
                None
            }
            wire::Farewell::Stop => {
                self.conversation.stopper.stop();
                None
            }
        }
    }

    /// The server ended the stream in good order: it stops, or has given us up.
    fn hung_up(&self) -> End {
        End::Broken("the server hung up".to_owned())
    }

    /// How the machine is.
    fn take_pulse(&mut self) -> wire::Vitals {
        let counters = self.conversation.counters.lock();
        let mut counters = counters.unwrap_or_else(PoisonError::into_inner);
        self.pulse.take(&mut counters)
    }

    async fn beat(&mut self) {
        self.beats = self.beats.saturating_add(1);
        // Zero means that there is no echo to measure.
        let sent_ns = nanoseconds(boot_time()).max(1);
        self.last_beat = TokioInstant::now();
        self.told_hold = self.conversation.ledger.desk().hold();
        let pulse = self.take_pulse();
        let is_short = self.conversation.ledger.desk().was_short_within(SHORT_TIME);
        let vitals = wire::Vitals {
            round_trip_ns: self.round_trip_ns,
            sent_ns,
            hold_ns: nanoseconds(self.told_hold),
            throttle: if is_short { 1.0 } else { pulse.throttle },
            ..pulse
        };
        let frame = wire::AgentFrame {
            vitals: Some(vitals),
            ..wire::AgentFrame::default()
        };
        // A full outbox is heard as well as a heartbeat; a closed one ends the conversation elsewhere.
        let _ = self.frames.send(frame).await;
    }

    /// The first beats follow quickly, so that the round trip is known; then each is a little different
    /// from its neighbours, so that a fleet does not beat in step.
    fn next_pause(&self) -> Duration {
        if self.beats < 2 {
            return EARLY_BEAT;
        }
        let jitter = nanoseconds(boot_time()) / 1024 % 256;
        self.heartbeat.mul_f64(0.9 + 0.1 * jitter as f64 / 256.0)
    }
}

/// When to look for tasks that run long and were not told of.
fn next_look(desk: &Desk, before: Option<TokioInstant>, just_looked: bool) -> Option<TokioInstant> {
    let soon = TokioInstant::now() + START_NOTICE;
    match before {
        Some(at) => Some(at),
        None if !desk.has_starts_to_tell() => None,
        // Whatever runs long was told when we looked; what waits is not running yet.
        None if just_looked => Some(soon + 9 * START_NOTICE),
        None => Some(soon),
    }
}

async fn sleep_until(at: Option<TokioInstant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether trying again is pointless.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unauthenticated
            | Code::PermissionDenied
            | Code::InvalidArgument
            | Code::FailedPrecondition
    )
}

/// Whether anybody knows where one of the instances of the server is.
async fn resolve(access: &Access) -> Result<(), AgentError> {
    let mut unknown = None;
    for url in access.urls() {
        let uri: Uri = url
            .parse()
            .map_err(|_| AgentError::Refused(format!("`{url}` is no address of a server")))?;
        let (host, port) = address(&uri);
        let found = tokio::net::lookup_host((host.as_str(), port)).await;
        match found.map(drop) {
            Ok(()) => return Ok(()),
            Err(source) => unknown = unknown.or(Some(AgentError::Unknown { host, source })),
        }
    }
    unknown.map_or(Ok(()), Err)
}

/// The host and the port of a server.
fn address(uri: &Uri) -> (String, u16) {
    let host = uri.host().unwrap_or("127.0.0.1").trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(loxley_api::DEFAULT_PORT);
    (host.to_owned(), port)
}

/// TLS to the one server that the access file names.
async fn connect(access: &Access, url: &str, several: bool) -> Result<Channel, Status> {
    let failed = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
    let uri: Uri = url.parse().map_err(|error| failed(&error))?;
    let (host, port) = address(&uri);
    let address = (host.clone(), port);
    let mut config = loxley_api::client_config(access.certificate_sha256);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(host).map_err(|error| failed(&error))?;
    let (keep_alive, keep_alive_time) = match several {
        true => (KEEP_ALIVE_OF_SEVERAL, KEEP_ALIVE_TIME_OF_SEVERAL),
        false => (KEEP_ALIVE, KEEP_ALIVE_TIME),
    };
    // TLS is ours: built with TLS of its own (for collectors of traces), the library would refuse an `https` without.
    let plain = format!(
        "http://{}",
        uri.authority().map_or("", |there| there.as_str())
    );
    let plain: Uri = plain.parse().map_err(|error| failed(&error))?;
    let endpoint = Endpoint::from(plain)
        .origin(uri)
        .connect_timeout(CONNECT_TIME)
        .http2_keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive_time)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    let connector = tower::service_fn(move |_: Uri| {
        let (tls, name, address) = (tls.clone(), name.clone(), address.clone());
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = tokio::time::timeout(CONNECT_TIME, tls.connect(name, stream)).await??;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let connected = endpoint.connect_with_connector(connector).await;
    connected.map_err(|error| Status::unavailable(in_words(&error)))
}

/// An error with everything behind it.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}
