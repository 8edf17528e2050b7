//! The client for programs without a runtime of their own.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use loxley_api::{Access, JobInfo, JobRequest};
use loxley_model::{JobId, TaskId};
use tokio::runtime::{Builder, Runtime};

use crate::ClientError;

/// A [client](crate::Client) with a small runtime inside, on the calling thread.
///
/// The most common questions are methods; [`call`](Self::call) asks any other:
///
/// ```no_run
/// # fn with(client: loxley_client::blocking::Client) -> Result<(), loxley_client::ClientError> {
/// let agents = client.call(async |client| client.agents().await)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    client: crate::Client,
}

impl Client {
    /// A client of the server that an access file names.
    pub fn new(access: &Access) -> Result<Self, ClientError> {
        let unreachable = |source: io::Error| ClientError::Unreachable {
            url: access.url.clone(),
            source: source.into(),
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(unreachable)?;
        let client = crate::Client::new(access)?;
        Ok(Self { runtime, client })
    }

    /// The same client, which sends a submission again for so long when its answer got lost.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        let client = self.client.with_patience(patience);
        Self { client, ..self }
    }

    /// Asks anything.
    pub fn call<T>(&self, ask: impl AsyncFnOnce(&crate::Client) -> T) -> T {
        let mut answer = None;
        self.wait(Box::pin(async {
            answer = Some(ask(&self.client).await);
        }));
        answer.expect("it was waited for")
    }

    /// Not generic: the runtime is compiled once, and not for every question.
    fn wait(&self, asking: Pin<Box<dyn Future<Output = ()> + '_>>) {
        self.runtime.block_on(asking);
    }

    /// Submits a job. When this returns, the job survives a crash of the server.
    pub fn submit(&self, job: &JobRequest) -> Result<JobInfo, ClientError> {
        self.call(async |client| client.submit(job).await)
    }

    /// Waits until a job is over, also while the server is away.
    pub fn wait_job(&self, job: JobId) -> Result<JobInfo, ClientError> {
        self.call(async |client| client.wait_job(job).await)
    }

    /// The result of a task that is over.
    pub fn result(&self, task: TaskId) -> Result<Vec<u8>, ClientError> {
        self.call(async |client| Ok(client.result(task).await?.into()))
    }
}
