//! One request, one answer, over connections that stay open.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use loxley_api::{Access, ApiError, ErrorBody, ErrorCode, HOLDER_HEADER, client_config};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ClientError;

/// How long a connection may take to come about.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long an answer may take, beyond what the request itself asks the server to wait.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// No answer that is held in memory is larger.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The body of an `async fn` is compiled by every crate that awaits it, and with it all of HTTP and TLS; in a box it is
/// compiled here, once.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The way to one server.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Where its instances are; the one that answered last first.
    urls: Arc<Mutex<Vec<String>>>,
    /// The first of them when we began, for those who ask where the server is.
    url: String,
    authorization: HeaderValue,
}

/// What to ask for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    body: Option<(Bytes, &'static str)>,
    header: Option<(HeaderName, HeaderValue)>,
    /// How long the server was asked to wait before it answers.
    wait: Duration,
}

impl Ask {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: None,
            header: None,
            wait: Duration::ZERO,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    pub(crate) fn query(mut self, query: &impl Serialize) -> Self {
        let query = serde_urlencoded::to_string(query).expect("a query is a list of pairs");
        if !query.is_empty() {
            let mark = if self.path.contains('?') { '&' } else { '?' };
            self.path.push(mark);
            self.path.push_str(&query);
        }
        self
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("a request can be written as JSON");
        self.body = Some((body.into(), "application/json"));
        self
    }

    pub(crate) fn octets(mut self, body: Bytes) -> Self {
        self.body = Some((body, "application/octet-stream"));
        self
    }

    /// Asks the server to wait up to so long, in the parameter of this name.
    pub(crate) fn waiting(self, parameter: &str, wait: Duration) -> Self {
        Self {
            wait,
            ..self.query(&[(parameter, wait.as_secs_f64().to_string())])
        }
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }
}

impl Transport {
    pub(crate) fn new(access: &Access) -> Result<Self, ClientError> {
        let urls = access.urls().into_iter();
        let urls: Vec<String> = urls
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect();
        if let Some(wrong) = urls.iter().find(|url| !is_address(url)) {
            return Err(ClientError::Address(wrong.clone()));
        }
        let url = urls[0].clone();
        let bearer = format!("Bearer {}", access.token.reveal());
        let mut authorization =
            HeaderValue::from_str(&bearer).map_err(|_| ClientError::Refused(odd_token()))?;
        authorization.set_sensitive(true);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(access.certificate_sha256))
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            pool,
            urls: Arc::new(Mutex::new(urls)),
            url,
            authorization,
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether there are several instances, of which one may take over from another.
    pub(crate) fn has_several(&self) -> bool {
        self.known().len() > 1
    }

    fn known(&self) -> Vec<String> {
        self.urls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Begins with this one from now on.
    fn prefer(&self, url: &str) {
        let mut urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        urls.retain(|known| known != url);
        urls.insert(0, url.to_owned());
        urls.truncate(URLS_MAX);
    }

    /// Asks, and reads the answer as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, ClientError> {
        let (status, body) = self.bytes(ask).await?;
        serde_json::from_slice(&body).map_err(|source| ClientError::Unintelligible {
            url: self.url.clone(),
            status: status.as_u16(),
            source: Some(source),
        })
    }

    /// Asks, and gives the answer as it is. A refusal is an error.
    pub(crate) fn bytes(&self, ask: Ask) -> Boxed<'_, Result<(StatusCode, Bytes), ClientError>> {
        Box::pin(self.ask_for_bytes(ask))
    }

    async fn ask_for_bytes(&self, ask: Ask) -> Result<(StatusCode, Bytes), ClientError> {
        let limit = ask.wait + ANSWER_TIME;
        let answer = async {
            let response = self.send(ask).await?;
            let status = response.status();
            let body = self.collect(response).await?;
            Ok((status, body))
        };
        let timed = tokio::time::timeout(limit, answer).await;
        let (status, body) = timed.unwrap_or_else(|_| Err(self.timeout(limit)))?;
        if status.is_success() {
            return Ok((status, body));
        }
        Err(self.refusal(status, &body))
    }

    /// Asks, and gives the answer while it still comes in. A refusal is an error.
    pub(crate) fn stream(&self, ask: Ask) -> Boxed<'_, Result<Response<Incoming>, ClientError>> {
        Box::pin(self.ask_for_stream(ask))
    }

    async fn ask_for_stream(&self, ask: Ask) -> Result<Response<Incoming>, ClientError> {
        let limit = ask.wait + ANSWER_TIME;
        let timed = tokio::time::timeout(limit, self.send(ask)).await;
        let response = timed.unwrap_or_else(|_| Err(self.timeout(limit)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.collect(response).await?;
        Err(self.refusal(status, &body))
    }

    /// Asks one instance after the other, until one answers that does not stand by. Whoever could not be reached, or
    /// stands by, has not carried out anything.
    async fn send(&self, ask: Ask) -> Result<Response<Incoming>, ClientError> {
        let mut urls = self.known();
        let mut next = 0;
        loop {
            let url = urls[next].clone();
            next += 1;
            let answer = self.send_to(&url, ask.clone()).await;
            let goes_on = match &answer {
                Ok(response) => match holder(response) {
                    Some(holder) => {
                        if is_address(&holder) && !urls.contains(&holder) {
                            urls.push(holder);
                        }
                        true
                    }
                    None => {
                        if urls.len() > 1 {
                            self.prefer(&url);
                        }
                        false
                    }
                },
                Err(ClientError::Unreachable { .. }) => true,
                Err(_) => false,
            };
            if !goes_on || next >= urls.len().min(URLS_MAX) {
                return answer;
            }
        }
    }

    async fn send_to(&self, url: &str, ask: Ask) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(format!("{url}{}", ask.path))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, HeaderValue::from_static("*/*"));
        let (body, kind) = ask.body.unzip();
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Some((name, value)) = ask.header {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|_| ClientError::Address(self.url.clone()))?;
        let answer = self.pool.request(request).await;
        answer.map_err(|error| self.failure(error))
    }

    async fn collect(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let collected = body.collect().await;
        collected
            .map(http_body_util::Collected::to_bytes)
            .map_err(|source| match source.downcast::<LengthLimitError>() {
                Ok(_) => ClientError::Refused(ApiError::new(
                    ErrorCode::TooLarge,
                    format!("the answer has more than {ANSWER_BYTES_MAX} bytes"),
                )),
                Err(source) => ClientError::Broken {
                    url: self.url.clone(),
                    source,
                },
            })
    }

    fn failure(&self, error: hyper_util::client::legacy::Error) -> ClientError {
        let url = self.url.clone();
        let unreachable = error.is_connect();
        let source = error.into();
        if unreachable {
            ClientError::Unreachable { url, source }
        } else {
            ClientError::Broken { url, source }
        }
    }

    fn timeout(&self, limit: Duration) -> ClientError {
        ClientError::Timeout {
            url: self.url.clone(),
            seconds: limit.as_secs(),
        }
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => ClientError::Refused(body.error),
            Err(_) => ClientError::Unintelligible {
                url: self.url.clone(),
                status: status.as_u16(),
                source: None,
            },
        }
    }
}

/// So many addresses are kept.
const URLS_MAX: usize = 32;

fn is_address(url: &str) -> bool {
    let is_https = |uri: &Uri| uri.scheme_str() == Some("https") && uri.host().is_some();
    url.parse::<Uri>().is_ok_and(|uri| is_https(&uri))
}

/// Whom an instance that stands by names; empty when it knows of nobody.
fn holder(response: &Response<Incoming>) -> Option<String> {
    let header = response.headers().get(HOLDER_HEADER)?;
    Some(header.to_str().unwrap_or_default().to_owned())
}

fn odd_token() -> ApiError {
    ApiError::new(
        ErrorCode::Unauthorized,
        "the token of the access file has letters that no token has",
    )
}
