//! Requests that one instance passes on to another.
//!
//! All instances have one certificate, so each knows the others by its own fingerprint; and one key, from which comes the
//! secret that they show each other. The one that was asked has seen to it who asks, and says so.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use axum::response::Response;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use loxley_api::{SHARD_HEADER, TRACEPARENT_HEADER, client_config};

use crate::auth::{Caller, Gate};
use crate::listen::CALLER_HEADER;

/// How long a connection to another instance may take: they are near each other.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// What is passed on: a request whose body was read, and who asked.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) caller: Caller,
    pub(super) body: Bytes,
}

impl Call {
    /// A question, in the name of the same caller.
    pub(super) fn get(&self, path: &str) -> Self {
        Self {
            method: Method::GET,
            uri: path.parse().unwrap_or_default(),
            body: Bytes::new(),
            ..self.clone()
        }
    }

    /// The same with another body.
    pub(super) fn with_body(&self, body: Vec<u8>) -> Self {
        Self {
            body: body.into(),
            ..self.clone()
        }
    }

    /// As a request to a router of this process.
    pub(super) fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.extensions_mut().insert(self.caller.clone());
        request
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// Nobody was there: nothing was carried out.
    NotSent(String),
    /// Nobody knows what became of it.
    Lost(String),
}

/// The way to the other instances.
#[derive(Debug)]
pub(super) struct Peers {
    pool: Pool<HttpsConnector<HttpConnector>, Body>,
    authorization: HeaderValue,
}

impl Peers {
    pub(super) fn new(gate: &Gate) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(gate.fingerprint()))
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        let bearer = format!("Bearer {}", gate.peer_token());
        let mut authorization =
            HeaderValue::from_str(&bearer).unwrap_or(HeaderValue::from_static(""));
        authorization.set_sensitive(true);
        Self {
            pool,
            authorization,
        }
    }

    /// Passes a request on to the instance at `url`, for this shard.
    pub(super) async fn send(
        &self,
        url: &str,
        shard: u16,
        call: &Call,
    ) -> Result<Response, NoAnswer> {
        let path = call.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{url}{path}"))
            .body(Body::from(call.body.clone()))
            .map_err(|error| NoAnswer::NotSent(error.to_string()))?;
        let headers = request.headers_mut();
        let passed_on = [
            header::CONTENT_TYPE,
            header::ACCEPT,
            HeaderName::from_static("last-event-id"),
            HeaderName::from_static(TRACEPARENT_HEADER),
        ];
        for name in passed_on {
            if let Some(value) = call.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        headers.insert(SHARD_HEADER, HeaderValue::from(shard));
        let caller = serde_json::to_vec(&call.caller.info()).expect("a caller is JSON");
        let caller = HeaderValue::from_bytes(&caller)
            .map_err(|error| NoAnswer::NotSent(error.to_string()))?;
        headers.insert(CALLER_HEADER, caller);
        let answer = self.pool.request(request).await;
        let answer = answer.map_err(|error| {
            let why = format!("{url} does not answer: {error}");
            match error.is_connect() {
                true => NoAnswer::NotSent(why),
                false => NoAnswer::Lost(why),
            }
        })?;
        Ok(answer.map(Body::new))
    }
}
