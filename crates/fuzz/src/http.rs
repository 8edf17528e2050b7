//! What clients ask: requests, each a line with the method and the path, then the body.
//!
//! Requests go through the real router, with the rights of an admin: a stranger without a token gets no
//! further than the gate. Nothing that is asked for may be answered with "my mistake" (500).

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use loxley_api::Role;
use loxley_server::{Caller, Server, ServerOptions};
use tower::ServiceExt;

/// What stands between two requests: the sign for that, as old as text on wires.
const SEPARATOR: u8 = 0x1e;
/// So many requests are made of one input.
const REQUESTS_MAX: usize = 30;
/// Longer than this nobody waits for an answer; some requests are there to wait.
const PATIENCE: Duration = Duration::from_millis(20);

/// A server in memory, and its router.
struct House {
    runtime: tokio::runtime::Runtime,
    router: axum::Router,
    server: Option<Server>,
    _directory: tempfile::TempDir,
}

pub(crate) fn run(bytes: &[u8]) {
    let requests = bytes.split(|byte| *byte == SEPARATOR);
    let requests: Vec<_> = requests.filter_map(request).take(REQUESTS_MAX).collect();
    if requests.is_empty() {
        return;
    }
    let house = House::new();
    for request in requests {
        house.answer(request);
    }
}

fn request(bytes: &[u8]) -> Option<Request<Body>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    let (method, target) = line.split_once(' ')?;
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header("content-type", "application/json")
        .body(Body::from(bytes[end + 1..].to_vec()))
        .ok()?;
    let caller = Caller::new(Role::Admin, "somebody", "somebody");
    request.extensions_mut().insert(caller);
    Some(request)
}

impl House {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let options = ServerOptions::new(directory.path().to_owned());
        let starting = Server::start_in_memory(options, |_| axum::Router::new());
        let server = runtime.block_on(starting).unwrap();
        Self {
            router: loxley_server::api::router(server.context().clone()),
            runtime,
            server: Some(server),
            _directory: directory,
        }
    }

    fn answer(&self, request: Request<Body>) {
        let line = format!("{} {}", request.method(), request.uri());
        let router = self.router.clone();
        let server = self.server.as_ref().unwrap();
        self.runtime.block_on(async {
            let answering = async {
                let Ok(answer) = router.oneshot(request).await;
                let (head, body) = answer.into_parts();
                let body = body.collect().await.map(|body| body.to_bytes());
                (head.status, body)
            };
            // Some answers go on for ever: events, for one.
            if let Ok((status, body)) = tokio::time::timeout(PATIENCE, answering).await {
                let text = body.map(|body| body.escape_ascii().to_string());
                assert_ne!(
                    status,
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "{line}: {text:?}"
                );
            }
            let alive = server.context().handle.fleet().await;
            alive.expect("the engine goes on");
        });
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.context().stop();
            let _ = self.runtime.block_on(server.run());
        }
    }
}

/// Each request alone, and each after a job was submitted.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let alone = SEEDS.iter().map(|text| text.as_bytes().to_vec());
    let after = SEEDS.iter().map(|text| {
        let parts = [SEEDS[0].as_bytes(), text.as_bytes()];
        parts.join(&SEPARATOR)
    });
    alone.chain(after).collect()
}

const SEEDS: &[&str] = &[
    r#"POST /v1/jobs
{"tasks":[{"run":{"command":{"words":["echo","hello {}"]}},"entries":{"range":{"first":1,"last":9,"step":2}}}]}"#,
    r#"POST /v1/jobs?wait=0
{"name":"n","user":"u","key":"k","after":[1],"on_dependency_failure":"skip","when_unplaceable":"refuse","limits":{"g":2},"tasks":[{"name":"a","run":{"function":{"name":"f","input":"aGVsbG8="}},"skills":["x"],"priority":5,"cost_sec":1.5,"deadline_sec":60,"needs":{"cpus":0.5,"memory_bytes":1000000,"named":{"gpu":1}},"group":"g","time_limit_sec":3,"hold_limit_sec":9,"retry":{"retries":2,"base_sec":0.1,"cap_sec":3},"speculate":true,"checkpoints":true,"fallback":{"task":"b"},"near":{"data":"d","transfer_sec":2},"output":{"keep_bytes":100,"directory":"/nowhere"}},{"name":"b","run":{"command":{"words":["true"],"environment":{"A":"b"},"directory":"/"}},"depends_on":["a"],"entries":{"lines":["p","q"]}}]}"#,
    "PUT /v1/config\n{\"yaml\":\"stealing:\\n  enabled: true\\n\"}",
    "GET /v1/config\n",
    "POST /v1/tokens\n{\"name\":\"ci\",\"role\":\"read\",\"user\":\"ada\"}",
    "DELETE /v1/tokens?name=ci\n",
    "GET /v1/tokens\n",
    "GET /v1/jobs?limit=3&state=running&name=n&user=u&before=7\n",
    "GET /v1/jobs/1\n",
    "GET /v1/jobs/1/tasks?limit=2&from=1&state=failed\n",
    "GET /v1/jobs/1/wait?timeout=0.01\n",
    "DELETE /v1/jobs/1\n",
    "POST /v1/jobs/1/retry\n",
    "GET /v1/tasks/1\n",
    "GET /v1/tasks/1/output\n",
    "GET /v1/tasks/1/result\n",
    "GET /v1/tasks/1/explain\n",
    "DELETE /v1/tasks/1\n",
    "POST /v1/tasks/1/retry\n",
    "GET /v1/agents/1\n",
    "POST /v1/agents/1/drain\n",
    "POST /v1/agents/1/stop\n",
    "GET /v1/events\n",
    "GET /metrics\n",
    "GET /v1/server\n",
    "GET /v1/health\n",
];
