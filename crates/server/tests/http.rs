//! The HTTP side as the network sees it: TLS, tokens, roles, hostile bodies.
//!
//! Every test has a server of its own, on a port of its own.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::time::Duration;

use axum::http::{Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use loxley_api::{
    Access, ApiError, ErrorBody, ErrorCode, EventKind, Fingerprint, JobState, Role, TaskFilter,
    Token, TokenRequest, client_config,
};
use loxley_client::{Client, ClientError, command};
use loxley_model::{JobId, TaskId};
use loxley_server::{Server, ServerError, ServerOptions, api};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

struct House {
    directory: TempDir,
    access: Access,
    running: JoinHandle<Result<(), ServerError>>,
}

impl House {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = ServerOptions::new(directory.path().to_owned());
        let server = Server::start(options, api::router).await.unwrap();
        Self {
            directory,
            access: server.access().clone(),
            running: tokio::spawn(server.run()),
        }
    }

    fn client(&self) -> Client {
        Client::new(&self.access).unwrap()
    }

    async fn access(&self, role: Role) -> Access {
        let request = TokenRequest::new(&format!("a {role}"), role);
        self.client().create_token(&request).await.unwrap()
    }

    fn raw(&self) -> Raw {
        Raw::new(&self.access)
    }
}

/// A client that sends whatever it is told to.
struct Raw {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    access: Access,
}

impl Raw {
    fn new(access: &Access) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(access.certificate_sha256))
            .https_only()
            .enable_http1()
            .build();
        Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
            access: access.clone(),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, Bytes) {
        let bearer = format!("Bearer {}", self.access.token.reveal());
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        self.send_with(method, path, &headers, body).await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> (StatusCode, Bytes) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.access.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let response = self.pool.request(request).await.unwrap();
        let status = response.status();
        (
            status,
            response.into_body().collect().await.unwrap().to_bytes(),
        )
    }
}

fn refusal(body: &[u8]) -> ApiError {
    let body: ErrorBody = serde_json::from_slice(body)
        .unwrap_or_else(|_| panic!("not a refusal: {}", String::from_utf8_lossy(body)));
    body.error
}

/// Every path and method of the OpenAPI document, with numbers in it.
fn operations() -> Vec<(Method, String)> {
    let document: Value = serde_json::from_str(&api::document()).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            operations.push((method, path.replace("{id}", "7")));
        }
    }
    assert!(operations.len() > 25, "all of them: {operations:?}");
    operations
}

#[test]
fn the_openapi_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let current = api::document();
    if std::env::var_os("LOXLEY_UPDATE").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == current,
        "openapi.json is not what the handlers say: LOXLEY_UPDATE=1 cargo test -p loxley-server"
    );
}

#[tokio::test]
async fn without_a_known_token_there_is_nothing_but_401() {
    let house = House::new().await;
    let raw = house.raw();
    let revoked = house.access(Role::Admin).await;
    house.client().revoke_token(&revoked.name).await.unwrap();
    let revoked = format!("Bearer {}", revoked.token.reveal());
    let unknown = format!("Bearer {}", Token::random().reveal());
    let (good, _) = raw.access.token.reveal().split_at(42);
    let shortened = format!("Bearer {good}");
    let basic = format!("Basic {}", raw.access.token.reveal());
    let tokens = [
        "", "Bearer ", "Bearer", "bearer ", &revoked, &unknown, &shortened, &basic,
    ];
    let mut operations = operations();
    operations.push((Method::GET, "/nowhere".to_owned()));
    operations.push((Method::PATCH, "/v1/jobs".to_owned()));
    for (method, path) in &operations {
        for token in tokens {
            let headers = [
                ("authorization", token),
                ("content-type", "application/json"),
            ];
            let (status, body) = raw.send_with(method.clone(), path, &headers, "{}").await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path} {token}");
            assert_eq!(refusal(&body).code, ErrorCode::Unauthorized);
        }
    }
    // The name of the scheme has no case.
    for scheme in ["bearer", "BEARER", "Bearer"] {
        let token = format!("{scheme} {}", raw.access.token.reveal());
        let headers = [("authorization", token.as_str())];
        let (status, _) = raw.send_with(Method::GET, "/v1/server", &headers, "").await;
        assert_eq!(status, StatusCode::OK, "{scheme}");
    }
    let (status, body) = raw.send_with(Method::GET, "/healthz", &[], "").await;
    assert_eq!((status, &*body), (StatusCode::OK, &b"ok\n"[..]));
}

#[tokio::test]
async fn a_role_can_do_what_it_may_and_nothing_else() {
    let house = House::new().await;
    let may_submit = [
        "POST /v1/jobs",
        "DELETE /v1/jobs/7",
        "POST /v1/jobs/7/retry",
        "POST /v1/jobs/7/entries",
        "POST /v1/jobs/7/close",
        "DELETE /v1/tasks/7",
        "POST /v1/tasks/7/retry",
        "POST /v1/what-if",
    ];
    let reads_results = ["POST /v1/ends", "GET /v1/tasks/7/results/{name}"];
    let writes_results = ["PUT /v1/tasks/7/results/{name}"];
    let is_look = |method: &Method, path: &str| {
        let is_secret = path == "/v1/tokens" || path.starts_with("/v1/journal");
        let is_read = *method == Method::GET && !is_secret;
        is_read || path == "/v1/ends" || path.starts_with("/v1/session")
    };
    for role in [Role::Submit, Role::Agent, Role::Read] {
        let raw = Raw::new(&house.access(role).await);
        for (method, path) in operations() {
            if path == "/v1/events" || path.ends_with("/wait") {
                continue;
            }
            let operation = format!("{method} {path}");
            let allowed = match role {
                Role::Submit => is_look(&method, &path) || may_submit.contains(&operation.as_str()),
                Role::Read => is_look(&method, &path),
                Role::Agent => {
                    let operation = operation.as_str();
                    reads_results.contains(&operation) || writes_results.contains(&operation)
                }
                Role::Admin => false,
            };
            let (status, body) = raw.send(method, &path, "{}").await;
            if allowed {
                assert_ne!(status, StatusCode::FORBIDDEN, "{role} {operation}");
            } else {
                assert_eq!(status, StatusCode::FORBIDDEN, "{role} {operation}");
                assert_eq!(refusal(&body).code, ErrorCode::Forbidden);
            }
        }
    }
    // The forbidden orders were not carried out.
    assert!(!house.client().server().await.unwrap().draining);
    assert!(!house.running.is_finished());
}

#[tokio::test]
async fn a_job_counts_for_the_user_of_its_token() {
    let house = House::new().await;
    let mut laptop = TokenRequest::new("laptop", Role::Submit);
    laptop.user = Some("ada".to_owned());
    let access = house.client().create_token(&laptop).await.unwrap();
    let ada = Client::new(&access).unwrap();
    let mut job = command(["true"]);
    assert_eq!(ada.submit(&job).await.unwrap().user, "ada");
    job.user = Some("ada".to_owned());
    assert_eq!(ada.submit(&job).await.unwrap().user, "ada");
    // Whoever could name others could use up their shares.
    job.user = Some("bob".to_owned());
    let Err(ClientError::Refused(refusal)) = ada.submit(&job).await else {
        panic!("it was accepted");
    };
    assert_eq!(refusal.code, ErrorCode::Forbidden);
    assert_eq!(house.client().submit(&job).await.unwrap().user, "bob");
    let tokens = house.client().tokens().await.unwrap();
    let users: Vec<&str> = tokens.iter().map(|token| token.user.as_str()).collect();
    assert_eq!(users, ["admin", "local-agents", "ada"]);
}

#[tokio::test]
async fn large_results_are_files_with_names_and_nothing_else() {
    let house = House::new().await;
    let raw = house.raw();
    let name = "0123456789abcdef0123456789abcdef";
    for (path, expected) in [
        (format!("/v1/tasks/7/results/{name}"), StatusCode::NOT_FOUND),
        (
            "/v1/tasks/7/results/..%2f..%2ftokens".to_owned(),
            StatusCode::BAD_REQUEST,
        ),
        ("/v1/tasks/x/results/0".to_owned(), StatusCode::BAD_REQUEST),
    ] {
        for method in [Method::GET, Method::PUT] {
            let (status, body) = raw.send(method.clone(), &path, "bytes").await;
            assert_eq!(status, expected, "{method} {path}");
            refusal(&body);
        }
    }
    let job = house.client().submit(&command(["true"])).await.unwrap();
    let path = format!("/v1/tasks/{}/results/{name}", job.first_task.0);
    let piece = |offset: u64, last: bool| format!("{path}?offset={offset}&last={last}");
    let (status, _) = raw.send(Method::PUT, &piece(0, false), "one ").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(
        raw.send(Method::GET, &path, "").await.0,
        StatusCode::NOT_FOUND
    );
    raw.send(Method::PUT, &piece(4, true), "two").await;
    let (status, body) = raw
        .send(Method::GET, &format!("{path}?offset=2&length=3"), "")
        .await;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"e t"[..]));
    let tasks: Vec<u64> = (0..1001).collect();
    let many = serde_json::json!({ "tasks": tasks }).to_string();
    assert_eq!(
        raw.send(Method::POST, "/v1/ends", many).await.0,
        StatusCode::BAD_REQUEST
    );
    let open = house.client().ends(&[job.first_task, TaskId(99)]).await;
    assert_eq!(open.unwrap(), []);
}

#[tokio::test]
async fn another_certificate_is_not_accepted() {
    let house = House::new().await;
    let mut access = house.access.clone();
    access.certificate_sha256 = Fingerprint::of(b"somebody else");
    let client = Client::new(&access).unwrap();
    let error = client.server().await.unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    assert!(!error.is_passing(), "waiting does not mend this");
}

#[tokio::test]
async fn hostile_bodies_are_refused_and_harm_nobody() {
    let house = House::new().await;
    let raw = house.raw();
    let task = |extra: Value| {
        let mut task = json!({"run": {"command": {"words": ["true"]}}});
        task.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        json!({"tasks": [task]}).to_string()
    };
    let malformed = [
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"tasks":[]}"#.to_owned(),
        r#"{"tasks":[{}]}"#.to_owned(),
        "\u{0}\u{1}".to_owned(),
        "[".repeat(100_000),
        r#"{"tasks":"#.to_owned() + &"[".repeat(10_000),
        task(json!({"priority": 9})),
        task(json!({"time_limit_sec": -1})),
        task(json!({"time_limit_sec": 1e300})),
        task(json!({"needs": {"cpus": -1}})),
        task(json!({"entries": {"range": {"first": 0, "last": u64::MAX}}})),
        task(json!({"entries": {"range": {"first": 1, "last": 2, "step": 0}}})),
        task(json!({"entries": {"lines": []}})),
        task(json!({"depends_on": ["nobody"]})),
        task(json!({"name": "a", "depends_on": ["a"]})),
        task(json!({"skills": ["a\u{0}b"]})),
        task(json!({"skills": ["x".repeat(300)]})),
        task(json!({"no such key": 1})),
        json!({"tasks": [{"run": {"command": {"words": ["a\u{0}b"]}}}]}).to_string(),
        json!({"tasks": [{"run": {"command": {"words": []}}}]}).to_string(),
        json!({"tasks": [{"run": {"command": {"words": ["a"], "environment": {"A=B": "c"}}}}]})
            .to_string(),
        json!({"after": [999], "tasks": [{"run": {"command": {"words": ["a"]}}}]}).to_string(),
    ];
    for body in malformed {
        let shown: String = body.chars().take(100).collect();
        let (status, answer) = raw.send(Method::POST, "/v1/jobs", body).await;
        assert!(status.is_client_error(), "{status} for {shown}");
        assert!(!refusal(&answer).message.is_empty());
    }
    let large = vec![b' '; loxley_api::BODY_BYTES_MAX + 1];
    let (status, answer) = raw.send(Method::POST, "/v1/jobs", large).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(refusal(&answer).code, ErrorCode::TooLarge);
    let bearer = format!("Bearer {}", raw.access.token.reveal());
    let as_text = [
        ("authorization", bearer.as_str()),
        ("content-type", "text/plain"),
    ];
    let (status, _) = raw
        .send_with(Method::POST, "/v1/jobs", &as_text, "{}")
        .await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for path in [
        "/v1/jobs/x",
        "/v1/jobs/-1",
        "/v1/jobs/99999999999999999999",
        "/v1/tasks/%2e%2e",
        "/v1/jobs?limit=x",
        "/v1/jobs?colour=red",
        "/v1/jobs/1/wait?timeout=-1",
        "/v1/jobs/1/wait?timeout=nan",
    ] {
        let (status, answer) = raw.send(Method::GET, path, "").await;
        assert!(status.is_client_error(), "{path}: {status}");
        refusal(&answer);
    }
    // It is all as it was.
    assert_eq!(
        house
            .client()
            .jobs(&Default::default())
            .await
            .unwrap()
            .items,
        []
    );
}

#[tokio::test]
async fn names_and_paths_with_metacharacters_do_nothing() {
    let house = House::new().await;
    let client = house.client();
    let nasty = [
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
        "../../../pwned",
        "a\"b'c\\d",
        "| touch pwned &",
        "%2e%2e%2fpwned",
        "<script>alert(1)</script>",
    ];
    for name in nasty {
        let mut job = command(["true"]);
        job.name = Some(name.to_owned());
        job.user = Some(name.to_owned());
        job.tasks[0].skills = vec![name.to_owned()];
        job.tasks[0].group = Some(name.to_owned());
        let accepted = client.submit(&job).await.unwrap();
        let found = client.job(accepted.id).await.unwrap();
        assert_eq!(found.name.as_deref(), Some(name));
        assert_eq!(found.user, name);
        let request = TokenRequest::new(name, Role::Read);
        let access = client.create_token(&request).await.unwrap();
        assert_eq!(access.name, name);
        Client::new(&access).unwrap().server().await.unwrap();
        client.revoke_token(name).await.unwrap();
    }
    let metrics = client.metrics().await.unwrap();
    assert!(
        metrics.contains("loxley_tasks{state=\"held\"} 8"),
        "{metrics}"
    );
    let mut names = Vec::new();
    for entry in std::fs::read_dir(house.directory.path()).unwrap() {
        names.push(entry.unwrap().file_name().into_string().unwrap());
    }
    assert!(
        !names.iter().any(|name| name.contains("pwned")),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_job_with_a_key_is_accepted_once() {
    let house = House::new().await;
    let client = house.client();
    let mut job = command(["true"]);
    job.key = Some("nightly 2026-11-16".to_owned());
    let first = client.submit(&job).await.unwrap();
    let second = client.submit(&job).await.unwrap();
    assert_eq!(first.id, second.id);
    assert_eq!(
        client.jobs(&Default::default()).await.unwrap().items.len(),
        1
    );
}

#[tokio::test]
async fn jobs_are_listed_waited_for_and_cancelled() {
    let house = House::new().await;
    let client = house.client();
    let mut ids = Vec::new();
    for number in 0..5 {
        let mut job = command(["true"]);
        job.name = Some(format!("number {number}"));
        ids.push(client.submit(&job).await.unwrap().id);
    }
    let filter = loxley_api::JobFilter {
        limit: Some(2),
        ..Default::default()
    };
    let page = client.jobs(&filter).await.unwrap();
    let newest: Vec<JobId> = page.items.iter().map(|job| job.id).collect();
    assert_eq!(newest, [ids[4], ids[3]]);
    let rest = loxley_api::JobFilter {
        before: page.next,
        ..filter
    };
    assert_eq!(client.jobs(&rest).await.unwrap().items[0].id, ids[2]);
    let tasks = client.tasks(ids[0], &TaskFilter::default()).await.unwrap();
    assert_eq!(tasks.items.len(), 1);
    let task = tasks.items[0].id;
    assert_eq!(client.task(task).await.unwrap().does, ["true"]);
    let explanation = client.explain(task).await.unwrap();
    assert!(
        !explanation.obstacles.is_empty(),
        "no agent is there: {explanation:?}"
    );
    let waiting = {
        let client = client.clone();
        let job = ids[0];
        tokio::spawn(async move { client.wait_job(job).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    let cancelled = client.cancel_job(ids[0]).await.unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    let over = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert_eq!(over.unwrap().unwrap().unwrap().state, JobState::Cancelled);
    // Twice is once.
    assert_eq!(
        client.cancel_job(ids[0]).await.unwrap().state,
        JobState::Cancelled
    );
    for missing in [
        client.job(JobId(99)).await.map(drop),
        client.task(TaskId(99)).await.map(drop),
    ] {
        assert_eq!(missing.unwrap_err().code(), Some(ErrorCode::NotFound));
    }
}

#[tokio::test]
async fn events_come_in_order_and_gaps_are_told() {
    let house = House::new().await;
    let client = house.client();
    let mut events = client.events(None);
    let first = {
        let client = client.clone();
        tokio::spawn(async move {
            // The stream stands once its head is there; until then, submit again.
            loop {
                client.submit(&command(["true"])).await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    };
    let one = events.next().await.unwrap();
    assert!(
        matches!(one.kind, EventKind::JobAccepted { tasks: 1, .. }),
        "{one:?}"
    );
    let two = events.next().await.unwrap();
    assert_eq!(two.sequence, one.sequence + 1);
    let mut late = client.events(Some(0));
    let gap = late.next().await.unwrap();
    assert!(
        matches!(gap.kind, EventKind::Missed { count: Some(1..) }),
        "{gap:?}"
    );
    first.abort();
}

#[tokio::test]
async fn a_configuration_is_replaced_or_refused_whole() {
    let house = House::new().await;
    let client = house.client();
    let yaml = "load_balancing: {thresholds: {busy_threshold: 42}}";
    let in_force = client.reload_config(yaml).await.unwrap();
    assert!(
        in_force.yaml.contains("busy_threshold: 42"),
        "{}",
        in_force.yaml
    );
    let wrong = "load_balancing: {thresholds: {busy_threshold: 7, idle_treshold: 3}}";
    let refused = client.reload_config(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::Invalid));
    assert_eq!(client.config().await.unwrap(), in_force);
}

#[tokio::test]
async fn a_server_that_drains_takes_nothing_new_and_ends() {
    let house = House::new().await;
    let client = house.client();
    let job = client.submit(&command(["true"])).await.unwrap();
    let info = client.drain_server().await.unwrap();
    assert!(info.draining && info.jobs_open == 1);
    let another = command(["true"]);
    let refused = tokio::time::timeout(Duration::from_secs(30), client.submit(&another)).await;
    let refused = refused.expect("an answer");
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::Unavailable));
    assert!(!house.running.is_finished());
    client.cancel_job(job.id).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), house.running).await;
    ended.expect("ends by itself").unwrap().unwrap();
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!({"command": {"words": ["true"]}})),
        Just(json!({"range": {"first": 1, "last": 3}})),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let key = prop_oneof![
            prop::sample::select(vec![
                "tasks",
                "run",
                "command",
                "words",
                "entries",
                "lines",
                "range",
                "first",
                "last",
                "step",
                "name",
                "skills",
                "needs",
                "cpus",
                "named",
                "retry",
                "retries",
                "after",
                "limits",
                "priority",
                "deadline_sec",
                "time_limit_sec",
                "depends_on",
                "fallback",
                "value",
                "task",
                "near",
                "data",
                "output",
                "keep_bytes",
                "key",
                "user",
            ])
            .prop_map(str::to_owned),
            ".{0,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A job that is nearly right: one valid task, and things added to it or to the job.
fn nearly_right() -> impl Strategy<Value = Value> {
    let extra = || {
        prop::collection::btree_map(
            prop::sample::select(vec![
                "name",
                "entries",
                "skills",
                "needs",
                "retry",
                "priority",
                "deadline_sec",
                "time_limit_sec",
                "hold_limit_sec",
                "depends_on",
                "fallback",
                "near",
                "output",
                "speculate",
                "rerun",
                "kind",
                "checkpoints",
                "group",
                "cost_sec",
            ]),
            any_json(),
            0..3,
        )
    };
    (extra(), any_json(), any::<bool>()).prop_map(|(extra, after, with_after)| {
        let mut task = json!({"run": {"command": {"words": ["true"]}}});
        for (key, value) in extra {
            task[key] = value;
        }
        let mut job = json!({"tasks": [task]});
        if with_after {
            job["after"] = after;
        }
        job
    })
}

/// Whatever is sent, the answer is a job or a refusal, never a mistake of the server, and the server
/// is there afterwards.
#[test]
fn no_body_upsets_the_server() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let house = runtime.block_on(House::new());
    let raw = house.raw();
    let cases: u32 = std::env::var("LOXLEY_FUZZ_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(300);
    let config = ProptestConfig {
        cases,
        ..ProptestConfig::default()
    };
    let body = prop_oneof![
        any_json().prop_map(|value| value.to_string().into_bytes()),
        nearly_right().prop_map(|value| value.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..64),
    ];
    let path = prop::sample::select(vec![
        (Method::POST, "/v1/jobs"),
        (Method::POST, "/v1/tokens"),
        (Method::PUT, "/v1/config"),
        (Method::PUT, "/v1/users/weight"),
    ]);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&(path, body), |((method, path), body)| {
            let (status, answer) = runtime.block_on(raw.send(method, path, body));
            prop_assert!(
                status.is_success() || status.is_client_error(),
                "{status}: {}",
                String::from_utf8_lossy(&answer)
            );
            if !status.is_success() {
                refusal(&answer);
            }
            Ok(())
        })
        .unwrap();
    let info = runtime.block_on(house.client().server());
    assert!(info.is_ok());
}
