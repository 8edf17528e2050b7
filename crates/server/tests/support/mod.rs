//! A server and agents in one process, on loopback and a port of their own.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    reason = "each test file uses its part, and a test may panic"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use loxley_agent::{Agent, AgentError, AgentOptions, Functions, Stopper};
use loxley_api::{
    Access, CommandRequest, Entries, FunctionRequest, JobInfo, JobRequest, TaskRequest, Work,
    client_config,
};
use loxley_model::{JobId, Span};
use loxley_policy::Config;
use loxley_server::decider::Handle;
use loxley_server::{Server, ServerError, ServerOptions};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Nothing takes longer than this unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct TestServer {
    pub(crate) access: Access,
    pub(crate) handle: Handle,
    pub(crate) context: loxley_server::Context,
    running: JoinHandle<Result<(), ServerError>>,
}

/// After so much silence an agent is given up here: soon enough for a test, and long enough for a machine that has
/// other things to do.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(6);

/// Heartbeats short enough for a test.
pub(crate) fn quick_config() -> Config {
    let mut config = Config::default();
    config.heartbeats.suspect_after = Span::from_millis(600);
    config.heartbeats.lost_after = Span::from_secs(LOST_AFTER.as_secs());
    config
}

impl TestServer {
    pub(crate) async fn start(directory: &Path) -> Self {
        Self::start_at(directory, "127.0.0.1:0").await
    }

    pub(crate) async fn start_at(directory: &Path, listen: &str) -> Self {
        Self::start_with(ServerOptions {
            listen: listen.parse().unwrap(),
            config: quick_config(),
            ..ServerOptions::new(directory.to_owned())
        })
        .await
    }

    pub(crate) async fn start_with(options: ServerOptions) -> Self {
        let server = Server::start(options, loxley_server::api::router);
        let server = server.await.unwrap();
        Self {
            access: server.access().clone(),
            handle: server.context().handle.clone(),
            context: server.context().clone(),
            running: tokio::spawn(server.run()),
        }
    }

    pub(crate) async fn stop(self) {
        self.context.stop();
        self.running.await.unwrap().unwrap();
    }

    pub(crate) fn agent(&self, name: &str, slots: u32) -> TestAgent {
        TestAgent::start(self.options(name, slots))
    }

    pub(crate) fn options(&self, name: &str, slots: u32) -> AgentOptions {
        AgentOptions {
            slots,
            functions: functions(),
            ..AgentOptions::new(self.access.clone(), name)
        }
    }

    pub(crate) async fn over(&self, job: JobId) -> JobInfo {
        tokio::time::timeout(PATIENCE, self.handle.wait(job))
            .await
            .expect("the job ends")
            .unwrap()
    }
}

fn functions() -> Functions {
    Functions::default()
        .with("echo", |call| Ok(call.input.to_vec()))
        .with("panic", |_| panic!("on purpose"))
}

pub(crate) struct TestAgent {
    pub(crate) stopper: Stopper,
    running: JoinHandle<Result<(), AgentError>>,
}

impl TestAgent {
    pub(crate) fn start(options: AgentOptions) -> Self {
        let agent = Agent::new(options);
        let stopper = agent.stopper();
        let running = tokio::spawn(agent.run());
        Self { stopper, running }
    }

    pub(crate) async fn ended(self) -> Result<(), AgentError> {
        tokio::time::timeout(PATIENCE, self.running)
            .await
            .expect("the agent ends")
            .unwrap()
    }
}

pub(crate) fn command(words: &[&str]) -> TaskRequest {
    TaskRequest::new(Work::Command(CommandRequest {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        ..CommandRequest::default()
    }))
}

pub(crate) fn function(name: &str, input: &[u8]) -> TaskRequest {
    TaskRequest::new(Work::Function(FunctionRequest {
        name: name.to_owned(),
        input: loxley_api::Blob(input.to_vec()),
    }))
}

pub(crate) fn job(tasks: Vec<TaskRequest>) -> JobRequest {
    JobRequest {
        tasks,
        ..JobRequest::default()
    }
}

pub(crate) fn array(task: TaskRequest, last: u64) -> JobRequest {
    job(vec![TaskRequest {
        entries: Some(Entries::Range {
            first: 1,
            last,
            step: 1,
        }),
        ..task
    }])
}

/// Where a server listens.
pub(crate) fn address(access: &Access) -> String {
    access.url.trim_start_matches("https://").to_owned()
}

/// A connection to it.
pub(crate) async fn tls(access: &Access, protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = client_config(access.certificate_sha256);
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(address(access)).await?;
    let name = ServerName::try_from("loxley").expect("a name");
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// The way of agents.
pub(crate) async fn channel(access: &Access) -> Channel {
    let access = access.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let access = access.clone();
        async move { tls(&access, "h2").await.map(hyper_util::rt::TokioIo::new) }
    });
    Endpoint::from_static("http://loxley")
        .origin(Uri::from_static("https://loxley"))
        .connect_with_connector(connector)
        .await
        .expect("the server is there")
}
