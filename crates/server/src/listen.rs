//! One port for everybody: TLS, then HTTP/2 (agents, by gRPC) or HTTP/1.1.
//!
//! What must stay true: a peer that says nothing, says it slowly or says too much is cut off, and costs
//! nobody but itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use loxley_api::{ApiError, ErrorBody, ErrorCode};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::auth::Gate;
use crate::dashboard;
use crate::slow_peer::{Greeted, Taken};

/// What a peer may take, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// How many connections may be open.
    pub connections_max: usize,
    /// How long a peer has for the TLS handshake, for its first words, and for the head of a request.
    pub handshake_time: Duration,
    /// How long a peer may not read what is written to it.
    pub stall_time: Duration,
    /// How much the system keeps for a peer that does not read, in bytes; it may take this for less or for
    /// twice as much.
    pub send_buffer_bytes: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            handshake_time: Duration::from_secs(10),
            stall_time: Duration::from_secs(30),
            send_buffer_bytes: 1 << 20,
        }
    }
}

/// How often a silent HTTP/2 peer is asked whether it is there, and how long it has to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// For whom another instance passes a request on.
pub(crate) const CALLER_HEADER: &str = "loxley-caller";
/// Where a browser signs in.
const SIGN_IN_PATH: &str = "/v1/session";
/// How long open requests have when the server stops.
const FAREWELL_TIME: Duration = Duration::from_secs(3);

/// Takes the port. Connections inherit what is kept for them.
pub(crate) fn bind(address: SocketAddr, limits: &ConnectionLimits) -> io::Result<TcpListener> {
    /// So many may knock while we are busy with others.
    const BACKLOG: u32 = 1024;
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that starts again takes its port back from connections that have yet to die.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(limits.send_buffer_bytes)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until it is told to stop.
pub(crate) async fn serve(
    listener: TcpListener,
    gate: Arc<Gate>,
    router: Router,
    limits: ConnectionLimits,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(gate.tls());
    let router = router.layer(axum::middleware::from_fn_with_state(gate, authenticate));
    accept(listener, acceptor, router, limits, &mut stop).await;
}

/// As [`serve`], without asking anybody for a token: for an instance that stands by, which says the same to everybody and
/// may not know of the newest tokens.
#[cfg(feature = "postgres")]
pub(crate) async fn serve_anybody(
    listener: TcpListener,
    gate: Arc<Gate>,
    router: Router,
    limits: ConnectionLimits,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(gate.tls());
    accept(listener, acceptor, router, limits, &mut stop).await;
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    router: Router,
    limits: ConnectionLimits,
    stop: &mut watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let connections = tokio_util::task::TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files: whoever is here goes first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            tracing::warn!(%peer, "too many connections");
            continue;
        };
        let talk = Talk {
            acceptor: acceptor.clone(),
            peer,
            router: router.clone(),
            limits,
            stop: stop.clone(),
        };
        let connection = talk.hold(stream);
        connections.spawn(async move {
            connection.await;
            drop(permit);
        });
    }
    drop(listener);
    connections.close();
    let _ = tokio::time::timeout(FAREWELL_TIME, connections.wait()).await;
}

/// One connection.
struct Talk {
    acceptor: TlsAcceptor,
    peer: SocketAddr,
    router: Router,
    limits: ConnectionLimits,
    stop: watch::Receiver<bool>,
}

impl Talk {
    async fn hold(mut self, stream: TcpStream) {
        let peer = self.peer;
        let _ = stream.set_nodelay(true);
        let stream = Taken::new(stream, self.limits.stall_time);
        let shaking = self.acceptor.accept(stream);
        let stream = match tokio::time::timeout(self.limits.handshake_time, shaking).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "no handshake"),
            Err(_) => return tracing::debug!(%peer, "the handshake took too long"),
        };
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = Greeted::new(stream, self.limits.handshake_time);
        let builder = self.builder(is_h2);
        let service = TowerToHyperService::new(self.router);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "a connection ended badly");
                }
            }
            () = told(&mut self.stop) => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }

    /// Speaks what was agreed on with the handshake: to find out by listening would take a peer's word, and
    /// for that there is no limit.
    fn builder(&self, is_h2: bool) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.handshake_time)
            .max_buf_size(64 << 10);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .max_concurrent_streams(256)
            .max_header_list_size(64 << 10)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .max_send_buf_size(1 << 20);
        match is_h2 {
            true => builder.http2_only(),
            false => builder.http1_only(),
        }
    }
}

/// Waits until the server stops.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Lets in whoever holds a token, and says who it is.
pub(crate) async fn authenticate(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    // A probe asks whether the server answers at all, and hears no more than that.
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    // The pages hold no secret and no figure: what they show they ask for, with a token.
    if dashboard::is_page(request.uri().path()) && request.method() == Method::GET {
        return next.run(request).await;
    }
    let token = bearer_of(request.headers());
    let signs_in = request.uri().path() == SIGN_IN_PATH && request.method() == Method::POST;
    let caller = token.and_then(|token| match gate.caller(token) {
        // A link opens one door, once: the one where a browser signs in.
        None if signs_in => gate.redeem(token),
        None => {
            let caller = request.headers().get(CALLER_HEADER);
            gate.passed_on(token, caller.map(HeaderValue::as_bytes))
        }
        known => known,
    });
    let Some(caller) = caller else {
        return refuse(&request);
    };
    let is_grpc = is_grpc(&request);
    request.extensions_mut().insert(caller.clone());
    tokio::select! {
        response = next.run(request) => response,
        // Whoever waited for an answer does not get it any more. Streams see to that themselves.
        () = caller.revoked() => refusal(is_grpc),
    }
}

/// The token that a request bears.
pub(crate) fn bearer_of(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?;
    value.to_str().ok().and_then(bearer)
}

/// The token in a header; the name of the scheme may be written in any case.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start())
}

/// Each peer is refused in its own language.
fn refuse(request: &Request) -> Response {
    refusal(is_grpc(request))
}

pub(crate) fn is_grpc(request: &Request) -> bool {
    let content = request.headers().get(header::CONTENT_TYPE);
    content.is_some_and(|content| content.as_bytes().starts_with(b"application/grpc"))
}

fn refusal(is_grpc: bool) -> Response {
    let error = ApiError::new(ErrorCode::Unauthorized, "no token, or an unknown one")
        .with_help("use the access file of the server: LOXLEY_DIR, or --access");
    if is_grpc {
        return tonic::Status::unauthenticated(error.to_string()).into_http();
    }
    (StatusCode::UNAUTHORIZED, axum::Json(ErrorBody::from(error))).into_response()
}
