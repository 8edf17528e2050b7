//! Everything that can be asked of a server, with its types.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};
use loxley_api::{
    Access, AgentInfo, Blob, ClusterInfo, ConfigRequest, EndsRequest, Explanation, ExtendRequest,
    Figures, ForecastInfo, Health, JobFilter, JobInfo, JobRequest, JournalGroup, JournalInfo, Link,
    LinkRequest, LogRequest, MarkFilter, Marks, OutputTail, PIECE_BYTES_MAX, Page, PruneReport,
    PruneRequest, ResultName, ResultReference, RevokeRequest, ServerInfo, TRACEPARENT_HEADER,
    TRACEPARENT_VARIABLE, TaskEnd, TaskFilter, TaskInfo, Timeline, TimelineFilter, Token,
    TokenInfo, TokenRequest, TracesRequest, TuningInfo, UserInfo, UserWeightRequest, WhatIfReport,
    WhatIfRequest, is_traceparent,
};
use loxley_model::{AgentId, JobId, TaskId};

use crate::transport::{Ask, Transport};
use crate::{ClientError, Events, Patience, Waiting};

/// How long one request asks the server to wait. Shorter than what any proxy on the way endures.
const LONG_POLL: Duration = Duration::from_secs(25);
/// How long a submission is sent again when its answer got lost.
const SUBMIT_PATIENCE: Duration = Duration::from_secs(60);
/// How long it is sent again to a server that takes nothing at present.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// How often a piece of a result is asked for again in a row: for some minutes.
const READ_ATTEMPTS: u32 = 60;

type Answer<T> = Result<T, ClientError>;

/// A client of one server. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    patience: Duration,
}

impl Client {
    /// A client of the server that an access file names. Nothing is sent yet.
    pub fn new(access: &Access) -> Answer<Self> {
        let transport = Transport::new(access)?;
        Ok(Self {
            transport,
            patience: SUBMIT_PATIENCE,
        })
    }

    /// The same client, which sends a submission again for so long when its answer got lost; a minute, when
    /// nobody says.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
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
    /// A job without a key gets one, so that a submission whose answer got lost can be sent again: until the
    /// client's [patience](Self::with_patience) ends. When nobody can be reached in the first place, this fails
    /// at once. [`ClientError::Uncertain`] means that the job may have been accepted.
    pub async fn submit_and_wait(&self, job: &JobRequest, wait: Duration) -> Answer<JobInfo> {
        let keyed = job.key.is_none().then(|| JobRequest {
            key: Some(Token::random().reveal().to_owned()),
            ..job.clone()
        });
        let job = keyed.as_ref().unwrap_or(job);
        let begun = Instant::now();
        let mut pauses = Patience::new();
        let mut may_be_accepted = false;
        loop {
            let ask = Ask::post("/v1/jobs").json(job);
            let ask = match trace_of_this_process() {
                Some(parent) => ask.header(HeaderName::from_static(TRACEPARENT_HEADER), parent),
                None => ask,
            };
            let ask = match wait {
                Duration::ZERO => ask,
                wait => ask.waiting("wait", wait.min(LONG_POLL)),
            };
            let error = match self.transport.json(ask).await {
                Err(error) if error.is_passing() => error,
                answer => return answer,
            };
            may_be_accepted |= error.may_be_carried_out();
            let nobody_there = matches!(error, ClientError::Unreachable { .. });
            let pause = pauses.next_pause();
            let several = self.transport.has_several();
            let patience = match may_be_accepted || several {
                true => self.patience,
                // The server said no, for now.
                false => self.patience.min(BUSY_PATIENCE),
            };
            if begun.elapsed() + pause < patience && (may_be_accepted || several || !nobody_there) {
                tokio::time::sleep(pause).await;
                continue;
            }
            return Err(match may_be_accepted {
                false => error,
                true => ClientError::Uncertain {
                    key: job.key.clone().unwrap_or_default(),
                    source: Box::new(error),
                },
            });
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

    /// Adds entries to an array of an open job. Not sent again when the answer is lost: that would add them twice.
    pub async fn extend_job(&self, job: JobId, more: &ExtendRequest) -> Answer<JobInfo> {
        let ask = Ask::post(format!("{}/entries", job_path(job))).json(more);
        self.transport.json(ask).await
    }

    /// Adds nothing more to an open job: it is over when its last task is.
    pub async fn close_job(&self, job: JobId) -> Answer<JobInfo> {
        let ask = Ask::post(format!("{}/close", job_path(job)));
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
        self.whole_result(task, self.transport.bytes(ask).await?.1)
            .await
    }

    /// A result, brought here if it is only a reference to one that is too large for the journal.
    async fn whole_result(&self, task: TaskId, result: Bytes) -> Answer<Bytes> {
        match ResultReference::from_bytes(&result) {
            Some(reference) => self.read_result(task, &reference).await,
            None => Ok(result),
        }
    }

    /// How tasks ended, at most 1,000. Those that are not over are left out, and maybe some more: ask
    /// for them again.
    pub async fn ends(&self, tasks: &[TaskId]) -> Answer<Vec<TaskEnd>> {
        let tasks = tasks.to_vec();
        let ask = Ask::post("/v1/ends").json(&EndsRequest { tasks });
        let mut ends: Vec<TaskEnd> = self.transport.json(ask).await?;
        for end in &mut ends {
            if let Some(result) = end.result.take() {
                let whole = self.whole_result(end.id, result.0.into()).await?;
                end.result = Some(Blob(whole.into()));
            }
        }
        Ok(ends)
    }

    /// Writes a result that is too large for the journal, in pieces, for the task that returns it. Waits
    /// for the server while it is away, for as long as `goes_on`. When this returns, it is on disk.
    pub async fn write_result(
        &self,
        task: TaskId,
        result: &Bytes,
        goes_on: impl Fn() -> bool,
    ) -> Answer<ResultReference> {
        let (name, len) = (ResultName::random(), result.len());
        let mut patience = Patience::new();
        let mut offset = 0;
        loop {
            let end = result.len().min(offset + PIECE_BYTES_MAX);
            let last = end == result.len();
            let ask = Ask::new(Method::PUT, result_path(task, &name))
                .query(&[("offset", offset.to_string()), ("last", last.to_string())])
                .octets(result.slice(offset..end));
            match self.transport.bytes(ask).await {
                Ok(_) if last => return Ok(ResultReference { name, len }),
                Ok(_) => {
                    patience.reset();
                    offset = end;
                }
                Err(error) if error.is_passing() && goes_on() => {
                    tokio::time::sleep(patience.next_pause()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a result that is too large for the journal, in pieces.
    async fn read_result(&self, task: TaskId, reference: &ResultReference) -> Answer<Bytes> {
        let ResultReference { name, len } = reference;
        let mut patience = Patience::new();
        let mut result = Vec::new();
        let mut lost = 0;
        while result.len() < *len {
            let offset = [("offset", result.len())];
            let ask = Ask::get(result_path(task, name)).query(&offset);
            match self.transport.bytes(ask).await {
                Ok((_, piece)) if piece.is_empty() => break,
                Ok((_, piece)) => {
                    lost = 0;
                    result.extend_from_slice(&piece);
                }
                Err(error) if error.is_passing() && lost < READ_ATTEMPTS => {
                    lost += 1;
                    tokio::time::sleep(patience.next_pause()).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(result.into())
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

    /// Has the name of an agent that is not here be anybody's again.
    pub async fn forget_agent(&self, agent: AgentId) -> Answer<AgentInfo> {
        let ask = Ask::post(format!("{}/forget", agent_path(agent)));
        self.transport.json(ask).await
    }

    /// Takes a skill back that an agent earned.
    pub async fn revoke_skill(&self, agent: AgentId, skill: &str) -> Answer<AgentInfo> {
        let request = RevokeRequest {
            skill: skill.to_owned(),
        };
        let ask = Ask::post(format!("{}/revoke", agent_path(agent))).json(&request);
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

    /// The instances of the server, and who of them serves.
    pub async fn cluster(&self) -> Answer<ClusterInfo> {
        self.transport.json(Ask::get("/v1/cluster")).await
    }

    /// Has the instance that serves give everything away to another one.
    pub async fn hand_over(&self) -> Answer<ClusterInfo> {
        self.transport.json(Ask::post("/v1/server/handover")).await
    }

    /// Has the server forget jobs that are over, until nothing is left that is to be forgotten.
    pub async fn prune(&self, request: &PruneRequest) -> Answer<PruneReport> {
        let mut total = PruneReport::default();
        loop {
            let ask = Ask::post("/v1/server/prune").json(request);
            let report: PruneReport = self.transport.json(ask).await?;
            total.jobs += report.jobs;
            total.tasks += report.tasks;
            total.groups += report.groups;
            total.bytes += report.bytes;
            if !report.more {
                return Ok(total);
            }
        }
    }

    /// What is wrong with the fleet.
    pub async fn health(&self) -> Answer<Health> {
        self.transport.json(Ask::get("/v1/health")).await
    }

    /// What the server expects to come.
    pub async fn forecast(&self) -> Answer<ForecastInfo> {
        self.transport.json(Ask::get("/v1/forecast")).await
    }

    /// Which settings the server changed by itself, and what came of it.
    pub async fn tuning(&self) -> Answer<TuningInfo> {
        self.transport.json(Ask::get("/v1/tuning")).await
    }

    /// How balanced the fleet was in the last minutes.
    pub async fn figures(&self) -> Answer<Figures> {
        self.transport.json(Ask::get("/v1/figures")).await
    }

    /// How balanced a job was, of what is over of it.
    pub async fn job_figures(&self, job: JobId) -> Answer<Figures> {
        let path = format!("/v1/jobs/{}/figures", job.0);
        self.transport.json(Ask::get(path)).await
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

    /// Has the server log more, or less.
    pub async fn set_log(&self, log: &str) -> Answer<LogRequest> {
        let request = LogRequest {
            log: log.to_owned(),
        };
        let ask = Ask::new(Method::PUT, "/v1/log").json(&request);
        self.transport.json(ask).await
    }

    /// Where the server sends traces.
    pub async fn traces(&self) -> Answer<TracesRequest> {
        self.transport.json(Ask::get("/v1/traces")).await
    }

    /// Has the server send traces to a collector from now on, or to nobody.
    pub async fn set_traces(&self, collector: Option<&str>) -> Answer<TracesRequest> {
        let request = TracesRequest {
            collector: collector.map(str::to_owned),
        };
        let ask = Ask::new(Method::PUT, "/v1/traces").json(&request);
        self.transport.json(ask).await
    }

    /// A link that signs one browser in, once.
    pub async fn dashboard_link(&self, request: &LinkRequest) -> Answer<Link> {
        let ask = Ask::post("/v1/session/link").json(request);
        self.transport.json(ask).await
    }

    /// Moves, retries and the like, of late.
    pub async fn marks(&self, filter: &MarkFilter) -> Answer<Marks> {
        self.transport
            .json(Ask::get("/v1/marks").query(filter))
            .await
    }

    /// What ran where and when.
    pub async fn timeline(&self, filter: &TimelineFilter) -> Answer<Timeline> {
        self.transport
            .json(Ask::get("/v1/timeline").query(filter))
            .await
    }

    /// What the server's journal holds; for admins.
    pub async fn journal(&self) -> Answer<JournalInfo> {
        self.transport.json(Ask::get("/v1/journal")).await
    }

    /// Groups of facts of the journal from a position on, some megabytes at once; none at the end.
    pub async fn journal_groups(&self, from: u64) -> Answer<Vec<JournalGroup>> {
        let ask = Ask::get("/v1/journal/groups").query(&[("from", from)]);
        let (status, body) = self.transport.bytes(ask).await?;
        JournalGroup::read_all(&body).ok_or_else(|| ClientError::Unintelligible {
            url: self.url().to_owned(),
            status: status.as_u16(),
            source: None,
        })
    }

    /// A snapshot of the journal.
    pub async fn journal_snapshot(&self, at: u64) -> Answer<Bytes> {
        let ask = Ask::get(format!("/v1/journal/snapshots/{at}"));
        Ok(self.transport.bytes(ask).await?.1)
    }

    /// What would have been different.
    pub async fn what_if(&self, request: &WhatIfRequest) -> Answer<WhatIfReport> {
        let ask = Ask::post("/v1/what-if").json(request);
        self.transport.json(ask).await
    }

    /// Everybody who submitted something or was given a weight.
    pub async fn users(&self) -> Answer<Vec<UserInfo>> {
        self.transport.json(Ask::get("/v1/users")).await
    }

    /// Gives a user another weight.
    pub async fn set_user_weight(&self, user: &str, weight: u32) -> Answer<UserInfo> {
        let request = UserWeightRequest {
            user: user.to_owned(),
            weight,
        };
        let ask = Ask::new(Method::PUT, "/v1/users/weight").json(&request);
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

    /// The ends of tasks and of jobs from now on, and word of events that are missing.
    #[must_use]
    pub fn ends_from_now_on(&self) -> Events {
        Events::of_ends(self.transport.clone())
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

fn result_path(task: TaskId, name: &ResultName) -> String {
    format!("{}/results/{name}", task_path(task))
}

fn agent_path(agent: AgentId) -> String {
    format!("/v1/agents/{}", agent.0)
}

/// The trace in which this process runs, if somebody traces it.
fn trace_of_this_process() -> Option<HeaderValue> {
    let parent = std::env::var(TRACEPARENT_VARIABLE).ok()?;
    let parent = is_traceparent(&parent).then_some(parent)?;
    HeaderValue::from_str(&parent).ok()
}
