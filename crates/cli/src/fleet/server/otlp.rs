//! `server start --otlp`, `server trace`: the path of every task as spans, the fleet as metrics, for a collector of
//! OpenTelemetry.
//!
//! ```text
//! job ─┬─ task ─┬─ queued      on one agent's queue; a move ends it and begins another
//!      │        ├─ assigned    given to an agent, until that starts it
//!      │        └─ run         on the agent, to its end; one for each attempt and each copy
//!      └─ task ─ …
//! ```
//!
//! They are made of the steps that the engine notes while somebody wants them, so that what decides knows nothing of
//! them, and a collector that is slow or gone costs spans, not tasks.
//!
//! What must stay true: what is remembered of open jobs and tasks is bounded; no span claims an end that nobody saw.

mod spans;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use loxley_api::FleetInfo;
use loxley_engine::TaskStep;
use loxley_model::Time;
use loxley_server::TraceExport;
use loxley_server::decider::Handle;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use spans::TaskSpans;

/// How often the fleet is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many spans wait for the collector: those of a burst of some ten thousand tasks. What comes beyond is dropped, and
/// the log says so.
const SPANS_WAITING_MAX: usize = 65_536;

/// Who tells collectors. To be [finished](Self::finish) when the server ends.
#[derive(Debug)]
pub(super) struct Telemetry {
    /// The certificate, or the authority behind it, by which an `https` collector is known; those that the system knows,
    /// when absent.
    authority: Option<PathBuf>,
    sending: Mutex<Option<Sending>>,
}

impl Telemetry {
    /// Begins to tell `collector`, by gRPC, as soon as there is a server; nobody, when nothing is said.
    pub(super) fn start(collector: Option<&str>, authority: Option<PathBuf>) -> Result<Arc<Self>> {
        let this = Self {
            authority,
            sending: Mutex::default(),
        };
        if let Some(collector) = collector {
            let sending = this.connect(collector);
            let sending = sending.with_context(|| format!("--otlp {collector}"))?;
            *this.lock() = Some(sending);
        }
        Ok(Arc::new(this))
    }

    /// Sends what is left.
    pub(super) async fn finish(&self) {
        let sending = self.lock().take();
        if let Some(sending) = sending {
            sending.finish().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sending>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, collector: &str) -> Result<Sending> {
        let tls = match collector.starts_with("https://") {
            true => Some(self.tls()?),
            false => None,
        };
        let spans = SpanExporter::builder().with_tonic();
        let metrics = MetricExporter::builder().with_tonic();
        let (spans, metrics) = match tls {
            Some(tls) => (
                spans.with_tls_config(tls.clone()),
                metrics.with_tls_config(tls),
            ),
            None => (spans, metrics),
        };
        let spans = spans.with_endpoint(collector).build()?;
        let metrics = metrics.with_endpoint(collector).build()?;
        let mut batches = BatchConfigBuilder::default();
        if std::env::var_os("OTEL_BSP_MAX_QUEUE_SIZE").is_none() {
            batches = batches.with_max_queue_size(SPANS_WAITING_MAX);
        }
        let processor = BatchSpanProcessor::builder(spans).with_batch_config(batches.build());
        let spans = SdkTracerProvider::builder()
            .with_span_processor(processor.build())
            .with_resource(resource())
            .build();
        let metrics = SdkMeterProvider::builder()
            .with_periodic_exporter(metrics)
            .with_resource(resource())
            .build();
        let fleet = Arc::default();
        observe(&metrics, &fleet);
        Ok(Sending {
            collector: collector.to_owned(),
            spans,
            metrics,
            fleet,
            followed: Vec::new(),
        })
    }

    fn tls(&self) -> Result<ClientTlsConfig> {
        let tls = ClientTlsConfig::new();
        let Some(file) = &self.authority else {
            return Ok(tls.with_native_roots());
        };
        let wrong = || format!("cannot read {}", file.display());
        let authority = std::fs::read(file).with_context(wrong)?;
        Ok(tls.ca_certificate(Certificate::from_pem(authority)))
    }
}

impl TraceExport for Telemetry {
    fn serve(&self, server: &Handle) {
        if let Some(sending) = self.lock().as_mut() {
            sending.follow(server);
        }
    }

    fn send_to(&self, server: &Handle, collector: Option<&str>) -> Result<(), String> {
        let mut next = match collector {
            Some(collector) => {
                let connected = self.connect(collector);
                Some(connected.map_err(|wrong| format!("{wrong:#}"))?)
            }
            None => None,
        };
        if let Some(next) = &mut next {
            next.follow(server);
        }
        let before = std::mem::replace(&mut *self.lock(), next);
        if let Some(before) = before {
            // A collector that is gone may take its time; whoever switches does not wait for it.
            tokio::spawn(before.finish());
        }
        Ok(())
    }

    fn collector(&self) -> Option<String> {
        let sending = self.lock();
        sending.as_ref().map(|sending| sending.collector.clone())
    }
}

/// What goes to one collector.
#[derive(Debug)]
struct Sending {
    collector: String,
    spans: SdkTracerProvider,
    metrics: SdkMeterProvider,
    fleet: Seen,
    followed: Vec<Followed>,
}

/// A server that is followed.
#[derive(Debug)]
struct Followed {
    finish: oneshot::Sender<()>,
    spans: JoinHandle<()>,
    fleet: JoinHandle<()>,
}

impl Sending {
    fn follow(&mut self, server: &Handle) {
        let (finish, finished) = oneshot::channel();
        let spans = TaskSpans::new(self.spans.tracer("loxley"), server.system_time(Time(0)));
        // It must not hold the server itself: it ends when that does.
        let steps = server.task_steps();
        self.followed.push(Followed {
            finish,
            spans: tokio::spawn(follow(steps, spans, finished)),
            fleet: tokio::spawn(look(server.clone(), Arc::clone(&self.fleet))),
        });
    }

    async fn finish(self) {
        for followed in self.followed {
            followed.fleet.abort();
            // Fails when the server has ended, and this with it.
            let _ = followed.finish.send(());
            let _ = followed.spans.await;
        }
        let (spans, metrics) = (self.spans, self.metrics);
        let ended = tokio::task::spawn_blocking(move || {
            for ended in [spans.shutdown(), metrics.shutdown()] {
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

/// Makes spans of steps until the server ends or somebody says so.
async fn follow(
    mut steps: Receiver<Arc<[TaskStep]>>,
    mut spans: TaskSpans,
    mut finished: oneshot::Receiver<()>,
) {
    loop {
        let heard = tokio::select! {
            heard = steps.recv() => heard,
            _ = &mut finished => break,
        };
        match heard {
            Ok(group) => spans.hear_all(&group),
            // What ended meanwhile would stay open for ever.
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(
                    missed,
                    "groups of steps were missed, and their spans with them"
                );
                spans.give_up(SystemTime::now());
            }
            Err(RecvError::Closed) => break,
        }
    }
    loop {
        match steps.try_recv() {
            Ok(group) => spans.hear_all(&group),
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    spans.give_up(SystemTime::now());
}

/// The fleet as it was when somebody last looked.
type Seen = Arc<Mutex<Option<FleetInfo>>>;

async fn look(server: Handle, seen: Seen) {
    while let Ok(fleet) = server.fleet().await {
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
