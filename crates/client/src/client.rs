//! Everything that can be asked of a server, with its types.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use loxley_api::{
    Access, AgentInfo, ConfigRequest, Explanation, Health, JobFilter, JobInfo, JobRequest,
    OutputTail, Page, ServerInfo, TaskFilter, TaskInfo, Token, TokenInfo, TokenRequest,
};
use loxley_model::{AgentId, JobId, TaskId};

use crate::transport::{Ask, Transport};
use crate::{ClientError, Events, Patience, Waiting};

/// How long one request asks the server to wait. Shorter than what any proxy on the way endures.
const LONG_POLL: Duration = Duration::from_secs(25);
/// How often a submission is sent again when its answer got lost.
const SUBMIT_ATTEMPTS: u32 = 5;

type Answer<T> = Result<T, ClientError>;

/// A client of one server. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// A client of the server that an access file names. Nothing is sent yet.
    pub fn new(access: &Access) -> Answer<Self> {
        let transport = Transport::new(access)?;
        Ok(Self { transport })
    }

    /// Where the server is.
    #[must_use]
    pub fn url(&self) -> &str {
        self.transport.url()
    }

    /// Submits a job. When this returns, the job survives a crash of the server.
    pub async fn submit(&self, job: &JobRequest) -> Answer<JobInfo> {
        self.submit_and_wait(job, Duration::ZERO).await
    }

    /// Submits a job, and has the server wait up to so long for its end before it answers.
    ///
    /// A job without a key gets one, so that a submission whose answer got lost can be sent again.
    /// When nobody can be reached in the first place, this fails at once.
    pub async fn submit_and_wait(&self, job: &JobRequest, wait: Duration) -> Answer<JobInfo> {
        let keyed = job.key.is_none().then(|| JobRequest {
            key: Some(Token::random().reveal().to_owned()),
            ..job.clone()
        });
        let job = keyed.as_ref().unwrap_or(job);
        let mut patience = Patience::new();
        let mut lost = 0;
        loop {
            let ask = Ask::post("/v1/jobs").json(job);
            let ask = match wait {
                Duration::ZERO => ask,
                wait => ask.waiting("wait", wait.min(LONG_POLL)),
            };
            match self.transport.json(ask).await {
                Err(error) if error.is_passing() && lost < SUBMIT_ATTEMPTS => {
                    if lost == 0 && matches!(error, ClientError::Unreachable { .. }) {
                        return Err(error);
                    }
                    lost += 1;
                    tokio::time::sleep(patience.next_pause()).await;
                }
                answer => return answer,
            }
        }
    }

    /// Jobs, the newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Answer<Page<JobInfo>> {
        let ask = Ask::get("/v1/jobs").query(filter);
        self.transport.json(ask).await
    }

    /// One job.
    pub async fn job(&self, job: JobId) -> Answer<JobInfo> {
        self.transport.json(Ask::get(job_path(job))).await
    }

    /// Waits until a job is over, also while the server is away.
    pub async fn wait_job(&self, job: JobId) -> Answer<JobInfo> {
        self.watch_job(job, LONG_POLL, |_| {}).await
    }

    /// Waits until a job is over, and tells how it goes: at least once in `every`, and when the
    /// server is away.
    pub async fn watch_job(
        &self,
        job: JobId,
        every: Duration,
        mut tell: impl FnMut(Waiting<'_, JobInfo>),
    ) -> Answer<JobInfo> {
        let path = format!("{}/wait", job_path(job));
        self.watch(
            &path,
            every,
            |info: &JobInfo| info.state.is_over(),
            &mut tell,
        )
        .await
    }

    /// Cancels what is left of a job.
    pub async fn cancel_job(&self, job: JobId) -> Answer<JobInfo> {
        self.transport.json(Ask::delete(job_path(job))).await
    }

    /// Gives the failed tasks of a job another chance.
    pub async fn retry_job(&self, job: JobId) -> Answer<JobInfo> {
        let ask = Ask::post(format!("{}/retry", job_path(job)));
        self.transport.json(ask).await
    }

    /// Tasks of a job, by their ids.
    pub async fn tasks(&self, job: JobId, filter: &TaskFilter) -> Answer<Page<TaskInfo>> {
        let ask = Ask::get(format!("{}/tasks", job_path(job))).query(filter);
        self.transport.json(ask).await
    }

    /// One task.
    pub async fn task(&self, task: TaskId) -> Answer<TaskInfo> {
        self.transport.json(Ask::get(task_path(task))).await
    }

    /// Waits until a task is over, also while the server is away.
    pub async fn wait_task(&self, task: TaskId) -> Answer<TaskInfo> {
        self.watch_task(task, LONG_POLL, |_| {}).await
    }

    /// Waits until a task is over, and tells how it goes.
    pub async fn watch_task(
        &self,
        task: TaskId,
        every: Duration,
        mut tell: impl FnMut(Waiting<'_, TaskInfo>),
    ) -> Answer<TaskInfo> {
        let path = format!("{}/wait", task_path(task));
        self.watch(
            &path,
            every,
            |info: &TaskInfo| info.state.is_over(),
            &mut tell,
        )
        .await
    }

    /// Cancels a task.
    pub async fn cancel_task(&self, task: TaskId) -> Answer<TaskInfo> {
        self.transport.json(Ask::delete(task_path(task))).await
    }

    /// Gives a failed task another chance.
    pub async fn retry_task(&self, task: TaskId) -> Answer<TaskInfo> {
        let ask = Ask::post(format!("{}/retry", task_path(task)));
        self.transport.json(ask).await
    }

    /// What the server kept of a task's output.
    pub async fn output(&self, task: TaskId) -> Answer<OutputTail> {
        let ask = Ask::get(format!("{}/output", task_path(task)));
        self.transport.json(ask).await
    }

    /// The result of a task: what its function returned, or the value of its fallback.
    pub async fn result(&self, task: TaskId) -> Answer<Bytes> {
        let ask = Ask::get(format!("{}/result", task_path(task)));
        Ok(self.transport.bytes(ask).await?.1)
    }

    /// Why a task is where it is.
    pub async fn explain(&self, task: TaskId) -> Answer<Explanation> {
        let ask = Ask::get(format!("{}/explain", task_path(task)));
        self.transport.json(ask).await
    }

    /// All agents.
    pub async fn agents(&self) -> Answer<Vec<AgentInfo>> {
        self.transport.json(Ask::get("/v1/agents")).await
    }

    /// One agent.
    pub async fn agent(&self, agent: AgentId) -> Answer<AgentInfo> {
        self.transport.json(Ask::get(agent_path(agent))).await
    }

    /// Lets an agent finish what it has and gives it nothing new.
    pub async fn drain_agent(&self, agent: AgentId) -> Answer<AgentInfo> {
        let ask = Ask::post(format!("{}/drain", agent_path(agent)));
        self.transport.json(ask).await
    }

    /// Tells an agent to end now. What it had goes to others.
    pub async fn stop_agent(&self, agent: AgentId) -> Answer<AgentInfo> {
        let ask = Ask::post(format!("{}/stop", agent_path(agent)));
        self.transport.json(ask).await
    }

    /// The server itself.
    pub async fn server(&self) -> Answer<ServerInfo> {
        self.transport.json(Ask::get("/v1/server")).await
    }

    /// Lets the server finish what it has and take nothing new.
    pub async fn drain_server(&self) -> Answer<ServerInfo> {
        self.transport.json(Ask::post("/v1/server/drain")).await
    }

    /// Stops the server. Everything accepted is still there when it starts again.
    pub async fn stop_server(&self) -> Answer<ServerInfo> {
        self.transport.json(Ask::post("/v1/server/stop")).await
    }

    /// What is wrong with the fleet.
    pub async fn health(&self) -> Answer<Health> {
        self.transport.json(Ask::get("/v1/health")).await
    }

    /// The configuration in force.
    pub async fn config(&self) -> Answer<ConfigRequest> {
        self.transport.json(Ask::get("/v1/config")).await
    }

    /// Puts another configuration in force. No task is lost.
    pub async fn reload_config(&self, yaml: &str) -> Answer<ConfigRequest> {
        let body = ConfigRequest {
            yaml: yaml.to_owned(),
        };
        let ask = Ask::new(Method::PUT, "/v1/config").json(&body);
        self.transport.json(ask).await
    }

    /// All tokens, without their secrets.
    pub async fn tokens(&self) -> Answer<Vec<TokenInfo>> {
        self.transport.json(Ask::get("/v1/tokens")).await
    }

    /// Makes a token. The answer is the only place where its secret ever is.
    pub async fn create_token(&self, request: &TokenRequest) -> Answer<Access> {
        let ask = Ask::post("/v1/tokens").json(request);
        self.transport.json(ask).await
    }

    /// Makes a token worthless.
    pub async fn revoke_token(&self, name: &str) -> Answer<TokenInfo> {
        let ask = Ask::delete("/v1/tokens").query(&[("name", name)]);
        self.transport.json(ask).await
    }

    /// The figures in the text format of Prometheus.
    pub async fn metrics(&self) -> Answer<String> {
        let (_, body) = self.transport.bytes(Ask::get("/metrics")).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// What happens from now on, or from after the event with this number.
    #[must_use]
    pub fn events(&self, after: Option<u64>) -> Events {
        Events::new(self.transport.clone(), after)
    }

    async fn watch<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        every: Duration,
        is_over: impl Fn(&T) -> bool,
        tell: &mut impl FnMut(Waiting<'_, T>),
    ) -> Answer<T> {
        let mut patience = Patience::new();
        loop {
            let ask = Ask::get(path).waiting("timeout", every.min(LONG_POLL));
            match self.transport.json::<T>(ask).await {
                Ok(info) if is_over(&info) => return Ok(info),
                Ok(info) => {
                    patience.reset();
                    tell(Waiting::Now(&info));
                }
                Err(error) if error.is_passing() => {
                    let pause = patience.next_pause();
                    tell(Waiting::Away(&error, pause));
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn job_path(job: JobId) -> String {
    format!("/v1/jobs/{}", job.0)
}

fn task_path(task: TaskId) -> String {
    format!("/v1/tasks/{}", task.0)
}

fn agent_path(agent: AgentId) -> String {
    format!("/v1/agents/{}", agent.0)
}
