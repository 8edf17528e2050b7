//! `server start --otlp` and `server trace` against a collector that speaks OTLP over gRPC: spans and metrics arrive.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps what it is sent.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    metrics: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans);
        self.spans.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let resources = request.into_inner().resource_metrics.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        let metrics = scopes.flat_map(|scope| scope.metrics);
        let names = metrics.map(|metric| metric.name);
        self.metrics.lock().unwrap().extend(names);
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

impl Collector {
    /// Listens; says where.
    async fn listen(&self, tls: Option<ServerTlsConfig>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let mut server = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let serving = server
            .add_service(TraceServiceServer::new(self.clone()))
            .add_service(MetricsServiceServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        url
    }

    fn named(&self, name: &str) -> Vec<Span> {
        let spans = self.spans.lock().unwrap();
        let named = spans.iter().filter(|span| span.name == name);
        named.cloned().collect()
    }

    /// Waits until so many of that name are there.
    async fn until(&self, name: &str, count: usize) -> Vec<Span> {
        let begun = Instant::now();
        loop {
            let found = self.named(name);
            if found.len() >= count {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.spans.lock());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What a span says under this name, as text.
fn said(span: &Span, key: &str) -> Option<String> {
    of(&span.attributes, key)
}

fn of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        Value::BoolValue(truth) => Some(truth.to_string()),
        other => panic!("{other:?}"),
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn loxley(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(LOXLEY);
    command
        .args(words)
        .env("LOXLEY_DIR", directory)
        .env_remove("LOXLEY_ACCESS")
        .env_remove("TRACEPARENT")
        .env("OTEL_BSP_SCHEDULE_DELAY", "200")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "300");
    command
}

/// A server in this directory that has said that it is there.
fn serve(place: &Path, more: &[&str]) -> Ended {
    let words = [
        "server",
        "start",
        "--listen",
        "127.0.0.1:0",
        "--log",
        "warn",
    ];
    let words = [&words[..], more].concat();
    let server = loxley(place, &words).stdout(Stdio::piped()).spawn();
    let mut server = Ended(server.unwrap());
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "it started");
    server
}

fn agent(place: &Path, name: &str) -> Ended {
    let words = [
        "agent", "start", "--name", name, "--slots", "1", "--log", "warn",
    ];
    Ended(loxley(place, &words).stdout(Stdio::null()).spawn().unwrap())
}

fn submit(place: &Path, words: &[&str]) -> Output {
    let mut command = loxley(place, &[&["submit", "--wait"], words].concat());
    command.output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_whole_path_of_every_task() {
    let collector = Collector::default();
    let url = collector.listen(None).await;
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let _server = serve(place, &["--otlp", &url]);
    let _robin = agent(place, "robin");
    let made = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let words = ["submit", "--wait", "--array", "1-2", "--", "sh", "-c"];
    let mut traced = loxley(
        place,
        &[&words[..], &["sleep 0.3; echo $TRACEPARENT"]].concat(),
    );
    let output = traced.env("TRACEPARENT", made).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        !submit(place, &["--", "sh", "-c", "sleep 0.1; exit 3"])
            .status
            .success()
    );

    let jobs = collector.until("job", 2).await;
    let tasks = collector.until("task", 3).await;
    let [queued, assigned, run] = ["queued", "assigned", "run"].map(|name| collector.named(name));
    assert_eq!((assigned.len(), run.len()), (3, 3));
    assert!(!queued.is_empty(), "one slot: somebody waited");
    for task in &tasks {
        let job = jobs.iter().find(|job| job.span_id == task.parent_span_id);
        let job = job.expect("a task is part of a job");
        assert_eq!(task.trace_id, job.trace_id);
        assert_eq!(task.start_time_unix_nano, job.start_time_unix_nano);
        let mine = |span: &&Span| span.parent_span_id == task.span_id;
        let assigned = assigned.iter().find(mine).expect("it was assigned");
        let run = run.iter().find(mine).expect("it ran");
        assert!(assigned.start_time_unix_nano >= task.start_time_unix_nano);
        assert_eq!(assigned.end_time_unix_nano, run.start_time_unix_nano);
        assert_eq!(run.end_time_unix_nano, task.end_time_unix_nano);
        assert_eq!(said(run, "loxley.agent").as_deref(), Some("robin"));
        let length = run.end_time_unix_nano - run.start_time_unix_nano;
        assert!(length > 50_000_000, "it ran: {length} ns");
        for queued in queued.iter().filter(mine) {
            assert!(queued.end_time_unix_nano <= assigned.start_time_unix_nano);
        }
    }
    // The submitter's own span is the parent, and its trace holds everything.
    let traced: Vec<&Span> = jobs
        .iter()
        .filter(|job| !job.parent_span_id.is_empty())
        .collect();
    let [traced] = traced[..] else {
        panic!("{jobs:?}")
    };
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    assert_eq!(hex(&traced.trace_id), &made[3..35]);
    assert_eq!(hex(&traced.parent_span_id), &made[36..52]);
    let failed = |span: &&Span| span.status.as_ref().is_some_and(|status| status.code == 2);
    assert_eq!(run.iter().filter(failed).count(), 1);
    assert_eq!(tasks.iter().filter(failed).count(), 1);
    assert_eq!(jobs.iter().filter(failed).count(), 1);
    let failed = run.iter().find(failed).unwrap();
    assert_eq!(said(failed, "process.exit.code").as_deref(), Some("3"));
    let metrics = collector.metrics.lock().unwrap().clone();
    for name in ["loxley.tasks", "loxley.agents"] {
        assert!(metrics.iter().any(|metric| metric == name), "{metrics:?}");
    }
    let logs = loxley(place, &["task", "logs", "1"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&logs.stdout).trim(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_and_attempts_that_were_lost_are_part_of_the_path() {
    let collector = Collector::default();
    let url = collector.listen(None).await;
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let config = place.join("loxley.yaml");
    let short = "load_balancing: {heartbeats: {suspect_after_sec: 5, lost_after_sec: 10}}";
    std::fs::write(&config, short).unwrap();
    let server = serve(
        place,
        &["--otlp", &url, "--config", config.to_str().unwrap()],
    );
    let robin = agent(place, "robin");
    let go = place.join("go");
    let wait = format!("until test -e {}; do sleep 0.05; done", go.display());
    let words = ["submit", "--array", "1-8", "--", "sh", "-c", &wait];
    let submitted = loxley(place, &words).output().unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    // All queue up behind the only slot; who comes later takes some, and nothing ends before the first agent is gone.
    collector.until("assigned", 1).await;
    let _marian = agent(place, "marian");
    let moved = |task: &Span| task.events.iter().any(|event| event.name == "moved");
    let begun = Instant::now();
    while collector
        .named("queued")
        .iter()
        .all(|span| said(span, "loxley.moved_from").is_none())
        && collector
            .named("assigned")
            .iter()
            .all(|span| said(span, "loxley.agent").as_deref() != Some("marian"))
    {
        assert!(begun.elapsed() < PATIENCE, "nobody took anything");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(robin);
    std::fs::write(go, "").unwrap();
    let waited = loxley(place, &["job", "wait", "1"]).output().unwrap();
    assert!(waited.status.success(), "{waited:?}");
    collector.until("job", 1).await;
    let tasks = collector.until("task", 8).await;
    assert!(tasks.iter().any(moved), "{tasks:?}");
    // What robin ran when it was killed came to nothing, and went on elsewhere.
    let runs = collector.named("run");
    let lost = |run: &&Span| {
        said(run, "loxley.agent").as_deref() == Some("robin")
            && said(run, "loxley.state").as_deref() != Some("succeeded")
    };
    let lost = runs.iter().find(lost).expect("one was lost with its agent");
    let again = |run: &&Span| {
        run.parent_span_id == lost.parent_span_id
            && said(run, "loxley.state").as_deref() == Some("succeeded")
    };
    assert_eq!(runs.iter().filter(again).count(), 1);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_are_switched_while_the_server_runs_and_go_over_tls() {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let identity = Identity::from_pem(&certificate, key);
    let collector = Collector::default();
    let tls = ServerTlsConfig::new().identity(identity);
    let url = collector.listen(Some(tls)).await;
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let authority = place.join("collector.pem");
    std::fs::write(&authority, certificate).unwrap();
    let _server = serve(place, &["--otlp-ca", authority.to_str().unwrap()]);
    let _agent = agent(place, "robin");
    assert!(submit(place, &["--", "true"]).status.success());
    let switch = |to: &str| loxley(place, &["server", "trace", to]).output().unwrap();
    assert!(switch(&url).status.success());
    assert!(
        submit(place, &["--name", "traced", "--", "true"])
            .status
            .success()
    );
    let jobs = collector.until("job", 1).await;
    let names: Vec<_> = jobs
        .iter()
        .map(|job| said(job, "loxley.job.name"))
        .collect();
    assert_eq!(names, [Some("traced".to_owned())]);
    let shown = loxley(place, &["server", "trace", "--json"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains(&url),
        "{shown:?}"
    );
    // A task that is open when traces end has no end that anybody saw.
    let open = loxley(place, &["submit", "--", "sleep", "600"])
        .output()
        .unwrap();
    assert!(open.status.success());
    assert!(switch("off").status.success());
    let jobs = collector.until("job", 2).await;
    let states: Vec<_> = jobs.iter().map(|job| said(job, "loxley.state")).collect();
    assert!(
        states.contains(&Some("still_open".to_owned())),
        "{states:?}"
    );
    let nonsense = switch("no url");
    assert!(!nonsense.status.success());
    let shown = loxley(place, &["server", "trace"]).output().unwrap();
    let said = String::from_utf8_lossy(&shown.stderr);
    assert!(said.contains("no traces"), "{said}");
    let untraced = loxley(place, &["submit", "--", "true"]).output().unwrap();
    assert!(untraced.status.success());
    assert_eq!(collector.named("job").len(), 2);
}

#[test]
fn a_collector_that_is_not_there_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let _server = serve(place, &["--otlp", "http://127.0.0.1:1"]);
    let words = ["submit", "--", "true"];
    assert!(loxley(place, &words).output().unwrap().status.success());
    let other = tempfile::tempdir().unwrap();
    let nonsense = [
        "server",
        "start",
        "--listen",
        "127.0.0.1:0",
        "--otlp",
        "no url",
    ];
    let output = loxley(other.path(), &nonsense).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--otlp no url"), "{said}");
}
