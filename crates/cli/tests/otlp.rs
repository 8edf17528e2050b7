//! `server start --otlp` against a collector that speaks OTLP over gRPC: spans and metrics arrive.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
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
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
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
    async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(self.clone()))
            .add_service(MetricsServiceServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        url
    }

    fn named(&self, name: &str) -> Vec<Span> {
        let spans = self.spans.lock().unwrap();
        spans
            .iter()
            .filter(|span| span.name == name)
            .cloned()
            .collect()
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
        .env("OTEL_BSP_SCHEDULE_DELAY", "200")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "300");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_a_trace_for_each_job_and_the_state_of_the_fleet() {
    let collector = Collector::default();
    let url = collector.listen().await;
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let start = [
        "server",
        "start",
        "--listen",
        "127.0.0.1:0",
        "--log",
        "warn",
        "--otlp",
        &url,
    ];
    let server = loxley(place, &start).stdout(Stdio::piped()).spawn();
    let mut server = Ended(server.unwrap());
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let agent = loxley(place, &["agent", "start", "--log", "warn"]);
    let _agent = Ended({ agent }.stdout(Stdio::null()).spawn().unwrap());
    let words = ["submit", "--wait", "--array", "1-2", "--", "sleep", "0.3"];
    assert!(loxley(place, &words).output().unwrap().status.success());
    let failing = ["submit", "--wait", "--", "sh", "-c", "sleep 0.1; exit 3"];
    assert!(!loxley(place, &failing).output().unwrap().status.success());

    let begun = Instant::now();
    while collector.named("job").len() < 2 || collector.metrics.lock().unwrap().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", collector.spans.lock());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (jobs, tasks) = (collector.named("job"), collector.named("task"));
    assert_eq!((jobs.len(), tasks.len()), (2, 3));
    for task in &tasks {
        let job = jobs.iter().find(|job| job.span_id == task.parent_span_id);
        let job = job.expect("a task is part of a job");
        assert_eq!(task.trace_id, job.trace_id);
        assert!(job.start_time_unix_nano <= task.start_time_unix_nano);
        let length = task.end_time_unix_nano - task.start_time_unix_nano;
        assert!(length > 50_000_000, "it ran: {length} ns");
    }
    let failed = |span: &&Span| span.status.as_ref().is_some_and(|status| status.code == 2);
    assert_eq!(tasks.iter().filter(failed).count(), 1);
    assert_eq!(jobs.iter().filter(failed).count(), 1);
    let metrics = collector.metrics.lock().unwrap().clone();
    for name in ["loxley.tasks", "loxley.agents"] {
        assert!(metrics.iter().any(|metric| metric == name), "{metrics:?}");
    }
}

#[test]
fn a_collector_that_is_not_there_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let url = "http://127.0.0.1:1";
    let start = [
        "server",
        "start",
        "--listen",
        "127.0.0.1:0",
        "--log",
        "off",
        "--otlp",
        url,
    ];
    let server = loxley(place, &start).stdout(Stdio::piped()).spawn();
    let mut server = Ended(server.unwrap());
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let words = ["submit", "--", "true"];
    assert!(loxley(place, &words).output().unwrap().status.success());
    let nonsense = [
        "server",
        "start",
        "--listen",
        "127.0.0.1:0",
        "--otlp",
        "no url",
    ];
    let other = tempfile::tempdir().unwrap();
    let output = loxley(other.path(), &nonsense).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--otlp no url"), "{said}");
}
