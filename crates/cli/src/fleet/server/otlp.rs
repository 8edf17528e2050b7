//! `server start --otlp`: jobs and tasks as spans, the fleet as metrics, for a collector of OpenTelemetry.
//!
//! A job is a trace: its span begins when it is accepted and ends with it; each attempt of a task is a span
//! within. They are made of the server's own events, so that what decides knows nothing of them, and a
//! collector that is slow or gone costs events, not tasks.
//!
//! What must stay true: what is remembered of open jobs and tasks is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use loxley_api::{Event, EventKind, FleetInfo, JobState, TaskState};
use loxley_model::{AgentId, JobId, TaskId};
use loxley_server::Context as Server;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::{
    Span as _, SpanBuilder, Status, TraceContextExt, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use tokio::sync::broadcast::error::RecvError;

/// So many open jobs and running tasks are followed; what comes beyond has no span.
const OPEN_MAX: usize = 100_000;
/// How often the fleet is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What goes to a collector. To be [finished](Self::finish) when the server ends.
#[derive(Debug)]
pub(super) struct Telemetry {
    spans: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Telemetry {
    /// Whether this program can do it at all: built with the feature `otlp`, it can.
    #[expect(clippy::unnecessary_wraps, reason = "its twin in `no_otlp.rs` fails")]
    pub(super) fn check() -> Result<()> {
        Ok(())
    }

    /// Begins to tell a collector, by gRPC, what happens on a server.
    pub(super) fn start(collector: &str, server: &Server) -> Result<Self> {
        let wrong = || format!("--otlp {collector}");
        let exporter = SpanExporter::builder().with_tonic();
        let exporter = exporter.with_endpoint(collector).build();
        let spans = SdkTracerProvider::builder()
            .with_batch_exporter(exporter.with_context(wrong)?)
            .with_resource(resource())
            .build();
        let exporter = MetricExporter::builder().with_tonic();
        let exporter = exporter.with_endpoint(collector).build();
        let metrics = SdkMeterProvider::builder()
            .with_periodic_exporter(exporter.with_context(wrong)?)
            .with_resource(resource())
            .build();
        let traces = Traces::new(spans.tracer("loxley"));
        tokio::spawn(follow(server.clone(), traces));
        let fleet = Arc::new(Mutex::new(None));
        observe(&metrics, &fleet);
        tokio::spawn(look(server.clone(), fleet));
        Ok(Self { spans, metrics })
    }

    /// Sends what is left.
    pub(super) async fn finish(self) {
        let ended = tokio::task::spawn_blocking(move || {
            for ended in [self.spans.shutdown(), self.metrics.shutdown()] {
                if let Err(error) = ended {
                    tracing::warn!(%error, "the collector did not take the rest");
                }
            }
        });
        let _ = ended.await;
    }
}

fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name("loxley");
    resource.with_attribute(version).build()
}

/// Makes spans of events for as long as there are events.
async fn follow(server: Server, mut traces: Traces) {
    let mut events = server.handle.subscribe();
    loop {
        match events.recv().await {
            Ok(event) => traces.hear(&event),
            // What ended meanwhile would stay open for ever.
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "events were missed: their spans are missing, too");
                traces.forget();
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Jobs and tasks that have begun.
#[derive(Debug)]
struct Traces {
    tracer: SdkTracer,
    jobs: HashMap<JobId, Context>,
    tasks: HashMap<TaskId, Span>,
}

impl Traces {
    fn new(tracer: SdkTracer) -> Self {
        let (jobs, tasks) = (HashMap::new(), HashMap::new());
        Self {
            tracer,
            jobs,
            tasks,
        }
    }

    fn forget(&mut self) {
        self.jobs.clear();
        self.tasks.clear();
    }

    fn hear(&mut self, event: &Event) {
        let at = UNIX_EPOCH + Duration::from_millis(event.unix_ms);
        match &event.kind {
            EventKind::JobAccepted { job, tasks } => self.job_accepted(at, *job, *tasks),
            EventKind::JobEnded { job, state } => self.job_ended(at, *job, *state),
            EventKind::TaskStarted {
                task,
                job,
                agent,
                attempt,
            } => self.task_started(at, *task, *job, Some((*agent, *attempt))),
            EventKind::TaskRetried { task, failure, .. } => {
                self.task_ended(at, *task, "retried", Some(failure));
            }
            EventKind::TaskEnded {
                task,
                job,
                state,
                failure,
            } => {
                // Short tasks are told of once, with their end.
                if !self.tasks.contains_key(task) {
                    self.task_started(at, *task, *job, None);
                }
                let failed = *state == TaskState::Failed;
                let failure = failure.as_deref().filter(|_| failed);
                self.task_ended(at, *task, state.name(), failure);
            }
            _ => {}
        }
    }

    fn job_accepted(&mut self, at: SystemTime, job: JobId, tasks: u64) {
        if self.jobs.len() >= OPEN_MAX {
            return;
        }
        let attributes = [number("loxley.job", job.0), number("loxley.tasks", tasks)];
        let builder = SpanBuilder::from_name("job").with_start_time(at);
        let span = builder.with_attributes(attributes);
        let span = span.start_with_context(&self.tracer, &Context::new());
        self.jobs.insert(job, Context::new().with_span(span));
    }

    fn job_ended(&mut self, at: SystemTime, job: JobId, state: JobState) {
        let Some(context) = self.jobs.remove(&job) else {
            return;
        };
        let span = context.span();
        span.set_attribute(KeyValue::new("loxley.state", state.name()));
        if state == JobState::Failed {
            span.set_status(Status::error("a task failed"));
        }
        span.end_with_timestamp(at);
    }

    fn task_started(
        &mut self,
        at: SystemTime,
        task: TaskId,
        job: JobId,
        place: Option<(AgentId, u32)>,
    ) {
        if self.tasks.len() >= OPEN_MAX {
            return;
        }
        let mut attributes = vec![number("loxley.task", task.0), number("loxley.job", job.0)];
        if let Some((agent, attempt)) = place {
            attributes.push(number("loxley.agent", agent.0));
            attributes.push(number("loxley.attempt", attempt.into()));
        }
        let builder = SpanBuilder::from_name("task").with_start_time(at);
        let builder = builder.with_attributes(attributes);
        let nobody = Context::new();
        let parent = self.jobs.get(&job).unwrap_or(&nobody);
        let span = self.tracer.build_with_context(builder, parent);
        self.tasks.insert(task, span);
    }

    fn task_ended(
        &mut self,
        at: SystemTime,
        task: TaskId,
        state: &'static str,
        failure: Option<&str>,
    ) {
        let Some(mut span) = self.tasks.remove(&task) else {
            return;
        };
        span.set_attribute(KeyValue::new("loxley.state", state));
        if let Some(failure) = failure {
            span.set_status(Status::error(failure.to_owned()));
        }
        span.end_with_timestamp(at);
    }
}

fn number(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
}

/// The fleet as it was when somebody last looked.
type Seen = Arc<Mutex<Option<FleetInfo>>>;

async fn look(server: Server, seen: Seen) {
    while let Ok(fleet) = server.handle.fleet().await {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(fleet);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn observe(provider: &SdkMeterProvider, seen: &Seen) {
    let meter = provider.meter("loxley");
    let (tasks, agents) = (Arc::clone(seen), Arc::clone(seen));
    meter
        .u64_observable_gauge("loxley.tasks")
        .with_description("Tasks by what they do now, or how they ended")
        .with_callback(move |observer| {
            let seen = tasks.lock().unwrap_or_else(PoisonError::into_inner);
            for (state, count) in seen.iter().flat_map(by_state) {
                observer.observe(count, &[KeyValue::new("state", state)]);
            }
        })
        .build();
    meter
        .u64_observable_gauge("loxley.agents")
        .with_description("Registered agents")
        .with_callback(move |observer| {
            let seen = agents.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(fleet) = seen.as_ref() {
                observer.observe(fleet.agent_count, &[]);
            }
        })
        .build();
}

fn by_state(fleet: &FleetInfo) -> [(&'static str, u64); 8] {
    let tasks = &fleet.tasks;
    [
        ("pending", tasks.pending),
        ("waiting", tasks.waiting),
        ("held", tasks.held),
        ("queued", tasks.queued),
        ("running", tasks.running),
        ("succeeded", tasks.succeeded),
        ("failed", tasks.failed),
        ("cancelled", tasks.cancelled),
    ]
}
