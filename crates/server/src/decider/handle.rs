//! The way into the engine, for everybody else.
//!
//! A handle can be cloned and used from any task. What it answers is on disk.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use loxley_api::{
    AgentInfo, ApiError, ErrorCode, Event, Explanation, ExtendRequest, Figures, FleetInfo,
    ForecastInfo, Health, JobFilter, JobInfo, JobRequest, JournalGroup, JournalInfo, OutputTail,
    Page, Problem, Severity, TaskEnd, TaskFilter, TaskInfo, Timeline, TimelineFilter, TuningInfo,
    UserInfo, UserWeightRequest, WhatIfReport, WhatIfRequest,
};
use loxley_engine::{Fact, Submission, TaskStep, ended_text, history_view, run_figures};
use loxley_journal::{
    History, Journal, Limit, OpenError, Position, Pruned, ReadError, ReadHistory, Retention, Room,
    View as ReadOnly,
};
use loxley_model::{AgentId, JobId, Span, TaskId, Time};
use loxley_policy::{Config, Selection};
use loxley_protocol as wire;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};

use super::commit::Forgetting;
use super::{CommitTimes, Link, Listeners, Progress, Request, Told, View};
use crate::answer::{Answer, blocking};
use crate::outputs::Outputs;
use crate::timeline::{self, TimelineIndex};
use crate::what_if;

/// The most items of a page.
const PAGE_MAX: u32 = 1000;
/// The items of a page when nobody says.
const PAGE_DEFAULT: u32 = 100;

/// Where the history of a journal can be asked: readers that are used again.
#[derive(Clone, Debug, Default)]
pub struct HistorySource {
    inner: Option<Arc<Readers>>,
    epoch_unix_ns: u64,
}

struct Readers {
    open: Box<OpenReader>,
    idle: Mutex<Idle>,
    /// How many may read at once.
    room: Semaphore,
    open_journal: Box<OpenJournal>,
    /// Work that is run again takes its time: one at once.
    run_again: Semaphore,
}

type OpenReader = dyn Fn() -> Result<Box<dyn ReadHistory>, OpenError> + Send + Sync;
type OpenJournal = dyn Fn() -> Result<Box<dyn Journal>, OpenError> + Send + Sync;

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}

/// A question to the history, boxed: what waits for its answer is compiled once.
type HistoryQuestion = Box<dyn FnOnce(&dyn ReadHistory) -> Result<Answer, ReadError> + Send>;

impl HistorySource {
    /// The history in this directory.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(directory: PathBuf) -> Result<Self, ApiError> {
        let place = directory.clone();
        let open = move || Ok(Box::new(History::open(&directory)?) as Box<dyn ReadHistory>);
        let open_journal =
            move || Ok(Box::new(ReadOnly(History::open(&place)?)) as Box<dyn Journal>);
        Self::with(
            Box::new(open),
            Box::new(open_journal),
            Semaphore::MAX_PERMITS,
        )
    }

    /// The history of a shard in a database, with so many connections at most. Blocks.
    ///
    /// # Errors
    /// When it cannot be opened.
    #[cfg(feature = "postgres")]
    pub fn postgres(
        address: loxley_journal::postgres::Address,
        shard: i32,
        readers: usize,
    ) -> Result<Self, ApiError> {
        use loxley_journal::postgres::{PostgresHistory, PostgresJournal};
        let place = address.clone();
        let open =
            move || Ok(Box::new(PostgresHistory::open(&address, shard)?) as Box<dyn ReadHistory>);
        let open_journal = move || {
            let journal = PostgresJournal::observe_shard(&place, shard)?;
            Ok(Box::new(journal) as Box<dyn Journal>)
        };
        Self::with(Box::new(open), Box::new(open_journal), readers)
    }

    fn with(
        open: Box<OpenReader>,
        open_journal: Box<OpenJournal>,
        room: usize,
    ) -> Result<Self, ApiError> {
        let history = open().map_err(|error| internal(&error))?;
        let epoch_unix_ns = history
            .epoch_unix_nanos()
            .map_err(|error| internal(&error))?;
        Ok(Self {
            epoch_unix_ns,
            inner: Some(Arc::new(Readers {
                open,
                idle: Mutex::new(vec![history]),
                room: Semaphore::new(room),
                open_journal,
                run_again: Semaphore::new(1),
            })),
        })
    }

    /// No history: for journals that keep none. Times count from this moment since 1970.
    #[must_use]
    pub fn none(epoch_unix_ns: u64) -> Self {
        Self {
            inner: None,
            epoch_unix_ns,
        }
    }

    /// The same, with times that count from another moment: that of an engine whose clock did not begin with the
    /// journal.
    #[must_use]
    pub fn counting_from(self, epoch_unix_ns: u64) -> Self {
        Self {
            epoch_unix_ns,
            ..self
        }
    }

    /// When the journal was made.
    #[must_use]
    pub fn epoch_unix_ns(&self) -> u64 {
        self.epoch_unix_ns
    }

    /// Asks the history on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn ReadHistory) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<Option<T>, ApiError> {
        let question = move |history: &dyn ReadHistory| -> Result<Answer, ReadError> {
            question(history).map(Answer::new)
        };
        let answer = self.ask_any(Box::new(question)).await?;
        Ok(answer.map(Answer::open))
    }

    async fn ask_any(&self, question: HistoryQuestion) -> Result<Option<Answer>, ApiError> {
        let Some(readers) = self.inner.clone() else {
            return Ok(None);
        };
        let place = Arc::clone(&readers);
        let _place = place
            .room
            .acquire()
            .await
            .map_err(|error| internal(&error))?;
        let asked = tokio::task::spawn_blocking(move || {
            let idle = lock(&readers.idle).pop();
            let history = match idle {
                Some(history) => history,
                None => (readers.open)().map_err(|error| internal(&error))?,
            };
            let answer = question(&*history).map_err(|error| internal(&error));
            lock(&readers.idle).push(history);
            answer
        });
        asked.await.map_err(|error| internal(&error))?.map(Some)
    }

    fn readers(&self) -> Result<Arc<Readers>, ApiError> {
        self.inner.clone().ok_or_else(|| {
            ApiError::new(ErrorCode::Conflict, "there is no journal")
                .with_help("`loxley run --journal DIR` keeps one; a server always does")
        })
    }

    /// Asks the journal itself on a thread that may block.
    async fn ask_journal<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Journal) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let readers = self.readers()?;
        let asked = blocking(move || {
            let mut journal = (readers.open_journal)().map_err(|error| internal(&error))?;
            question(&mut *journal)
        });
        asked.await.map_err(|error| internal(&error))?
    }
}

/// What cannot be read, as an answer.
fn unread(error: &ReadError) -> ApiError {
    match error {
        ReadError::Dropped { .. } => ApiError::new(ErrorCode::Gone, error.to_string()),
        ReadError::NoSnapshot(_) => ApiError::new(ErrorCode::NotFound, error.to_string()),
        error => internal(error),
    }
}

/// So many kinds of tasks that nobody can do are told of.
#[cfg(feature = "postgres")]
const HELD_KINDS_MAX: usize = 16;

/// What an engine has to do, and who is there to do it.
#[cfg(feature = "postgres")]
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Where its tasks are.
    pub(crate) counts: loxley_api::TaskCounts,
    /// What tasks ask for that nobody here can do: skills and room.
    pub(crate) held: Vec<(Vec<String>, loxley_api::Needs)>,
    /// All agents that were ever here.
    pub(crate) agents: Vec<AgentInfo>,
    /// What waits here that others might do.
    pub(crate) waiting: Vec<loxley_engine::WaitingKind>,
    /// How many tasks of this shard are with others, and how many of others are here.
    pub(crate) moved: (u64, u64),
}

type Idle = Vec<Box<dyn ReadHistory>>;

fn lock(idle: &Mutex<Idle>) -> std::sync::MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the engine, and tells it things.
#[derive(Clone)]
pub struct Handle {
    requests: mpsc::Sender<Request>,
    listeners: Listeners,
    history: HistorySource,
    progress: Arc<Progress>,
    outputs: Arc<Outputs>,
    timeline: Arc<Mutex<TimelineIndex>>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    pub(super) fn new(
        requests: mpsc::Sender<Request>,
        listeners: Listeners,
        history: HistorySource,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            requests,
            listeners,
            history,
            progress,
            outputs: Arc::new(Outputs::default()),
            timeline: Arc::default(),
        }
    }

    // Jobs.

    /// Accepts a job. `user` is for whom it counts when it does not say so itself.
    ///
    /// # Errors
    /// When it makes no sense, or the server is stopping.
    pub async fn submit(&self, request: &JobRequest, user: &str) -> Result<JobInfo, ApiError> {
        let request = Submission::new(request.clone())?;
        if self.is_draining() {
            let message = "the server drains and takes no more jobs";
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
        self.need_room()?;
        let fact = Fact::JobSubmitted {
            request,
            user: user.to_owned(),
        };
        match self.tell(fact).await? {
            Told::Job(job) => Ok(*job),
            Told::Ended(id) => self.job(id).await.map_err(|error| match error.code {
                ErrorCode::NotFound => {
                    let message = format!(
                        "this key was used for job {}, which is over and forgotten",
                        id.0
                    );
                    ApiError::new(ErrorCode::Gone, message).with_help("submit it under another key")
                }
                _ => error,
            }),
            Told::Done => Err(ApiError::new(ErrorCode::Gone, "the job is gone")),
        }
    }

    /// Adds entries to an array of an open job.
    ///
    /// # Errors
    /// When they make no sense, or the job is not open.
    pub async fn extend(&self, job: JobId, request: ExtendRequest) -> Result<JobInfo, ApiError> {
        request.check()?;
        self.need_room()?;
        let ExtendRequest {
            task,
            entries,
            cost_sec,
        } = request;
        let task = self.ask(move |view| view.engine.array_of(job, task.as_deref()));
        let fact = Fact::JobExtended {
            job,
            task: task.await??,
            entries,
            cost: cost_sec.and_then(Span::try_from_secs_f64),
        };
        self.tell(fact).await?;
        self.job(job).await
    }

    /// Adds nothing more to an open job: it is over when its last task is.
    ///
    /// # Errors
    /// When it is not open.
    pub async fn close(&self, job: JobId) -> Result<JobInfo, ApiError> {
        self.tell(Fact::JobClosed(job)).await?;
        self.job(job).await
    }

    /// A job, whether it is over or not.
    ///
    /// # Errors
    /// When there is none.
    pub async fn job(&self, id: JobId) -> Result<JobInfo, ApiError> {
        let live = self.ask(move |view| view.engine.job_info(id)).await?;
        if let Some(job) = live {
            return Ok(job);
        }
        let epoch = self.history.epoch_unix_ns;
        let past = self
            .history
            .ask(move |history| history_view::job(history, id, epoch))
            .await?;
        past.flatten()
            .ok_or_else(|| ApiError::not_found("job", id.0))
    }

    /// What a job was made of.
    ///
    /// # Errors
    /// When there is no such job.
    pub async fn job_request(&self, id: JobId) -> Result<Arc<JobRequest>, ApiError> {
        let live = self.ask(move |view| view.engine.job_request(id));
        if let Some(request) = live.await? {
            return Ok(request);
        }
        let past = self
            .history
            .ask(move |history| history_view::request(history, id));
        let past = past.await?.flatten().map(Arc::new);
        past.ok_or_else(|| ApiError::not_found("job", id.0))
    }

    /// Jobs, newest first.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Page<JobInfo>, ApiError> {
        let limit = page_size(filter.limit);
        let wanted = filter.clone();
        let mut items = self
            .ask(move |view| {
                let jobs = view.engine.jobs();
                let mut infos: Vec<JobInfo> = jobs
                    .filter(|job| history_view::admits(&wanted, job))
                    .collect();
                infos.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
                infos.truncate(limit + 1);
                infos
            })
            .await?;
        let epoch = self.history.epoch_unix_ns;
        let ended = self
            .history
            .ask(move |history| history_view::jobs(history, &filter, limit + 1, epoch));
        for job in ended.await?.unwrap_or_default() {
            if !items.iter().any(|known| known.id == job.id) {
                items.push(job);
            }
        }
        items.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|job| job.id.0);
        Ok(Page { items, next })
    }

    /// Waits until a job is over. Dropping the future takes the wait back.
    ///
    /// # Errors
    /// When there is no such job, or the server is stopping.
    pub async fn wait(&self, id: JobId) -> Result<JobInfo, ApiError> {
        let (answer, over) = oneshot::channel();
        self.send(Request::Wait { job: id, answer }).await?;
        match over.await.map_err(|_| stopping())? {
            Some(job) => Ok(job),
            None => self.job(id).await,
        }
    }

    // Tasks.

    /// A task, whether it is over or not.
    ///
    /// # Errors
    /// When there is none.
    pub async fn task(&self, id: TaskId) -> Result<TaskInfo, ApiError> {
        let live = self.ask(move |view| view.engine.task_info(id)).await?;
        if let Some(task) = live {
            return Ok(task);
        }
        let epoch = self.history.epoch_unix_ns;
        let past = self
            .history
            .ask(move |history| history_view::task(history, id, epoch))
            .await?;
        past.flatten()
            .ok_or_else(|| ApiError::not_found("task", id.0))
    }

    /// Tasks of a job, in the order of their ids.
    ///
    /// # Errors
    /// When there is no such job.
    pub async fn tasks(&self, job: JobId, filter: TaskFilter) -> Result<Page<TaskInfo>, ApiError> {
        let job = self.job(job).await?;
        let limit = page_size(filter.limit);
        let last = job.last_task.0 + 1;
        let mut next = filter.from.unwrap_or(0).max(job.first_task.0);
        let mut items = Vec::new();
        // A filter may pass over many: so many are looked at for one page.
        const LOOKED_AT_MAX: u64 = 20_000;
        let end = last.min(next + LOOKED_AT_MAX);
        let epoch = self.history.epoch_unix_ns;
        while next < end && items.len() < limit {
            let count = (end - next).min(1000);
            let from = TaskId(next);
            let id_of_job = job.id;
            let live = self.ask(move |view| {
                let ids = (from.0..from.0 + count).map(TaskId);
                let infos = ids.filter_map(|id| view.engine.task_info(id));
                let infos = infos.filter(|task| task.job == id_of_job);
                infos.map(|task| (task.id, task)).collect()
            });
            let live: BTreeMap<TaskId, TaskInfo> = live.await?;
            let id = job.id;
            let past = self
                .history
                .ask(move |history| history_view::tasks(history, id, from, count, epoch))
                .await?;
            let mut all = past.unwrap_or_default();
            all.extend(live);
            for (id, task) in all {
                next = id.0 + 1;
                if filter.state.is_none_or(|state| state == task.state) {
                    items.push(task);
                    if items.len() == limit {
                        break;
                    }
                }
            }
            if items.len() < limit {
                next = from.0 + count;
            }
        }
        let next = (next < last).then_some(next);
        Ok(Page { items, next })
    }

    /// What is kept of a task's output: so far, while it runs.
    ///
    /// # Errors
    /// When there is no such task.
    pub async fn output(&self, id: TaskId) -> Result<OutputTail, ApiError> {
        let task = self.task(id).await?;
        if !task.state.is_over()
            && let Some(tail) = self.outputs.tail(id)
        {
            return Ok(tail);
        }
        let kept = self
            .history
            .ask(move |history| history_view::output(history, id))
            .await?;
        Ok(kept.flatten().unwrap_or_default())
    }

    /// What a task returned.
    ///
    /// # Errors
    /// When there is no such task, or it is not over.
    pub async fn result(&self, id: TaskId) -> Result<Vec<u8>, ApiError> {
        let task = self.task(id).await?;
        if !task.state.is_over() {
            let message = format!("task {} is not over", id.0);
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        let kept = self.history.ask(move |history| history.result(id)).await?;
        Ok(kept.flatten().unwrap_or_default())
    }

    /// How tasks ended: of those that are over as many as fit into one answer.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub async fn ends(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskEnd>, ApiError> {
        let ends = self
            .history
            .ask(move |history| history_view::ends(history, &tasks));
        Ok(ends.await?.unwrap_or_default())
    }

    /// Why a task is where it is.
    ///
    /// # Errors
    /// When there is no such task.
    pub async fn explain(&self, id: TaskId) -> Result<Explanation, ApiError> {
        let live = self
            .ask(move |view| view.engine.explain(id, view.now))
            .await?;
        if let Some(explanation) = live {
            return Ok(explanation);
        }
        let past = self
            .history
            .ask(move |history| ended_text::explain(history, id))
            .await?;
        if let Some(explanation) = past.flatten() {
            return Ok(explanation);
        }
        // It ended with its job, before it was looked at.
        let task = self.task(id).await?;
        let job = task.job.0;
        Ok(Explanation {
            task: id,
            state: task.state,
            place: format!("is over with its job, {}: it never ran", task.state.name()),
            obstacles: Vec::new(),
            remedies: vec![format!(
                "see what became of its job: `loxley job info {job}`"
            )],
        })
    }

    /// Cancels a task, a job or everything.
    ///
    /// # Errors
    /// When it is not there, or over.
    pub async fn cancel(&self, selection: Selection) -> Result<(), ApiError> {
        self.tell(Fact::Cancelled(selection)).await.map(drop)
    }

    /// Gives failed tasks another chance.
    ///
    /// # Errors
    /// When one of them did not fail.
    pub async fn retry(&self, tasks: Vec<TaskId>) -> Result<(), ApiError> {
        self.tell(Fact::Resubmitted(tasks)).await.map(drop)
    }

    // Agents.

    /// All agents that are here, or were and came to an end less than a day ago.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn agents(&self) -> Result<Vec<AgentInfo>, ApiError> {
        self.ask(|view| {
            let ids = view.engine.agents();
            ids.filter_map(|id| view.agent_info(id)).collect()
        })
        .await
    }

    /// An agent.
    ///
    /// # Errors
    /// When there is none.
    pub async fn agent(&self, id: AgentId) -> Result<AgentInfo, ApiError> {
        let info = self.ask(move |view| view.agent_info(id)).await?;
        info.ok_or_else(|| ApiError::not_found("agent", id.0))
    }

    /// The number of the agent with this name.
    ///
    /// # Errors
    /// When there is none.
    pub async fn agent_named(&self, name: &str) -> Result<AgentId, ApiError> {
        let wanted = name.to_owned();
        let id = self
            .ask(move |view| view.engine.agent_named(&wanted))
            .await?;
        id.ok_or_else(|| ApiError::not_found("agent", name))
    }

    /// Lets an agent finish what it has, and end.
    ///
    /// # Errors
    /// When it is not here.
    pub async fn drain_agent(&self, agent: AgentId) -> Result<(), ApiError> {
        self.dismiss(agent, wire::Farewell::Drain).await
    }

    /// Ends an agent. What it runs is killed, and goes to others.
    ///
    /// # Errors
    /// When it is not here.
    pub async fn stop_agent(&self, agent: AgentId) -> Result<(), ApiError> {
        self.dismiss(agent, wire::Farewell::Stop).await
    }

    /// Has an agent go to another shard, if it is here.
    #[cfg(feature = "postgres")]
    pub(crate) async fn send_away(&self, agent: AgentId, shard: u32) {
        // Fails when the engine has ended: then nobody is here.
        let _ = self.send(Request::SendAway { agent, shard }).await;
    }

    /// What this engine has to do, and who could do more.
    #[cfg(feature = "postgres")]
    pub(crate) async fn look_at_load(&self) -> Result<Load, ApiError> {
        self.ask(|view| Load {
            counts: view.engine.fleet_info().tasks,
            held: {
                let (kinds, _) = view.engine.held_kinds();
                let kinds = kinds.into_iter().take(HELD_KINDS_MAX);
                let kinds = kinds.map(|request| (request.skills.clone(), request.needs.clone()));
                kinds.collect()
            },
            agents: {
                let ids = view.engine.agents();
                ids.filter_map(|id| view.engine.agent_info(id)).collect()
            },
            waiting: view.engine.waiting_kinds(),
            moved: view.engine.moved_counts(),
        })
        .await
    }

    /// Tells what was heard of other shards.
    #[cfg(feature = "postgres")]
    pub(crate) async fn tell_neighbours(&self, news: super::News) {
        // Fails when the engine has ended: whoever takes over hears it anew.
        let _ = self.send(Request::Neighbours(Box::new(news))).await;
    }

    /// Which other shard has a task of this one, if one has.
    #[cfg(feature = "postgres")]
    pub(crate) async fn whereabouts(&self, task: TaskId) -> Option<u16> {
        let asked = self.ask(move |view| view.engine.whereabouts(task));
        asked.await.ok().flatten().map(|shard| shard.0)
    }

    async fn dismiss(&self, agent: AgentId, farewell: wire::Farewell) -> Result<(), ApiError> {
        let (answer, dismissed) = oneshot::channel();
        self.send(Request::Dismiss {
            agent,
            farewell,
            answer,
        })
        .await?;
        dismissed.await.map_err(|_| stopping())?
    }

    /// Has the name of an agent be anybody's again.
    ///
    /// # Errors
    /// When it is here, or was never.
    pub async fn forget_agent(&self, agent: AgentId) -> Result<(), ApiError> {
        self.tell(Fact::AgentForgotten(agent)).await.map(drop)
    }

    /// Takes a skill back that an agent earned.
    ///
    /// # Errors
    /// When it has not earned it.
    pub async fn revoke_skill(&self, agent: AgentId, skill: String) -> Result<(), ApiError> {
        let fact = Fact::SkillRevoked { agent, skill };
        self.tell(fact).await.map(drop)
    }

    // The server.

    /// Replaces the configuration.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn reload(&self, config: Config) -> Result<(), ApiError> {
        let fact = Fact::ConfigChanged(Box::new(config));
        self.tell(fact).await.map(drop)
    }

    /// The configuration in force.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn config(&self) -> Result<Config, ApiError> {
        self.ask(|view| view.engine.config().clone()).await
    }

    /// Asks for a rebalancing pass now.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn rebalance(&self) -> Result<(), ApiError> {
        self.tell(Fact::RebalanceRequested).await.map(drop)
    }

    /// The figures of the scheduler.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn fleet(&self) -> Result<FleetInfo, ApiError> {
        self.ask(|view| view.engine.fleet_info()).await
    }

    /// The figures of the fleet in the last minutes.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn figures(&self) -> Result<Figures, ApiError> {
        self.ask(|view| view.engine.fleet_figures()).await
    }

    /// The figures of what is over of a job.
    ///
    /// # Errors
    /// When there is no such job, or the history cannot be read.
    pub async fn job_figures(&self, id: JobId) -> Result<Figures, ApiError> {
        let counted = self.ask(move |view| view.engine.counted(id)).await?;
        let figures = self
            .history
            .ask(move |history| run_figures::of_job(history, id, &counted));
        let figures = figures.await?.flatten();
        figures.ok_or_else(|| ApiError::not_found("job", id.0))
    }

    /// What the journal holds.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn journal_info(&self) -> Result<JournalInfo, ApiError> {
        let asked = self.history.ask_journal(|journal| {
            let first = match journal.read(Position::START, Limit::ONE) {
                Ok(_) => Position::START,
                Err(ReadError::Dropped { first, .. }) => first,
                Err(error) => return Err(unread(&error)),
            };
            let snapshots = journal.snapshots().map_err(|error| unread(&error))?;
            Ok(JournalInfo {
                first: first.0,
                next: journal.next_position().0,
                snapshots: snapshots.iter().map(|at| at.0).collect(),
            })
        });
        asked.await
    }

    /// Groups of facts from here on, as [`JournalGroup`]s behind each other; nothing at the end.
    ///
    /// # Errors
    /// When there is no journal, they were dropped, or it cannot be read.
    pub async fn journal_groups(&self, from: Position) -> Result<Vec<u8>, ApiError> {
        let asked = self.history.ask_journal(move |journal| {
            let groups = journal.read(from, Limit::default());
            let groups = groups.map_err(|error| unread(&error))?;
            let mut bytes = Vec::new();
            for group in groups {
                let group = JournalGroup {
                    position: group.position.0,
                    fact_count: group.fact_count,
                    facts: group.facts,
                };
                group.write(&mut bytes);
            }
            Ok(bytes)
        });
        asked.await
    }

    /// The bytes of a snapshot.
    ///
    /// # Errors
    /// When there is none there, or it cannot be read.
    pub async fn journal_snapshot(&self, at: Position) -> Result<Vec<u8>, ApiError> {
        let asked = self
            .history
            .ask_journal(move |journal| journal.snapshot(at).map_err(|error| unread(&error)));
        Ok(asked.await?.state)
    }

    /// What would have been different.
    ///
    /// # Errors
    /// When there is no journal, what is asked for makes no sense, or somebody else asks.
    pub async fn what_if(&self, request: WhatIfRequest) -> Result<WhatIfReport, ApiError> {
        let readers = self.history.readers()?;
        let epoch = self.history.epoch_unix_ns;
        let Ok(_turn) = readers.run_again.try_acquire() else {
            let message = "somebody else has work run again";
            return Err(
                ApiError::new(ErrorCode::Busy, message).with_help("ask again in some seconds")
            );
        };
        let asked = self
            .history
            .ask_journal(move |journal| what_if::answer(&request, journal, epoch));
        asked.await
    }

    /// What ran where and when.
    ///
    /// # Errors
    /// When the time that is asked for is none, or the history cannot be read.
    pub async fn timeline(&self, filter: TimelineFilter) -> Result<Timeline, ApiError> {
        let (from, to) = (filter.from_unix_ms, filter.to_unix_ms);
        if !(from.is_finite() && to.is_finite() && from < to) {
            return Err(ApiError::invalid("to_unix_ms: not behind from_unix_ms"));
        }
        let mut builder = timeline::Builder::new(filter, self.history.epoch_unix_ns);
        // What runs now comes with the first part.
        if filter.cursor.is_none() {
            let running = self.ask(|view| (view.engine.running(), view.now));
            let (running, now) = running.await?;
            builder.add_running(&running, now.0);
        }
        let index = Arc::clone(&self.timeline);
        if self.history.inner.is_some() {
            let read = self.history.ask(move |history| {
                let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
                builder.add_history(history, &mut index)?;
                Ok(builder)
            });
            builder = read.await?.ok_or_else(stopping)?;
        }
        let ids = builder.agents();
        let known = self.ask(move |view| {
            let known = ids.into_iter().map(|id| {
                let info = view.engine.agent_info(id);
                (id, info.map(|info| (info.name, info.slots)))
            });
            known.collect::<Vec<_>>()
        });
        let known = known.await?;
        let names = self.history.ask(move |history| {
            let mut names = BTreeMap::new();
            for (id, known) in known {
                let name = match known {
                    Some(known) => Some(known),
                    None => history_view::agent_name(history, id)?.map(|name| (name, 1)),
                };
                names.extend(name.map(|name| (id, name)));
            }
            Ok(names)
        });
        Ok(builder.finish(&names.await?.unwrap_or_default()))
    }

    /// Has a snapshot of the state taken now, whether it is worth it or not, and waits until it is on disk.
    ///
    /// # Errors
    /// When the server is stopping, or there is no room for it.
    pub async fn take_snapshot(&self) -> Result<(), ApiError> {
        let (answer, kept) = oneshot::channel();
        self.send(Request::Snapshot(answer)).await?;
        kept.await.map_err(|_| stopping())?
    }

    /// What is wrong with the fleet.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn health(&self) -> Result<Health, ApiError> {
        let mut health = self.ask(|view| view.engine.health()).await?;
        if self.is_disk_full() {
            health.ok = false;
            health.problems.insert(0, disk_full());
        }
        Ok(health)
    }

    /// What is expected to come, and what is done about it.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn forecast(&self) -> Result<ForecastInfo, ApiError> {
        self.ask(|view| view.engine.forecast()).await
    }

    /// Which settings were changed by themselves, and what came of it.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn tuning(&self) -> Result<TuningInfo, ApiError> {
        self.ask(|view| view.engine.tuning()).await
    }

    /// Everybody who submitted something or was given a weight.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn users(&self) -> Result<Vec<UserInfo>, ApiError> {
        self.ask(|view| view.engine.users()).await
    }

    /// Gives a user another weight.
    ///
    /// # Errors
    /// When it makes no sense, or the server is stopping.
    pub async fn set_user_weight(&self, request: UserWeightRequest) -> Result<UserInfo, ApiError> {
        request.check()?;
        let UserWeightRequest { user, weight } = request;
        let name = user.trim().to_owned();
        let fact = Fact::UserWeightSet {
            user: name.clone(),
            weight,
        };
        self.tell(fact).await?;
        let users = self.users().await?.into_iter();
        let found = users.into_iter().find(|info| info.user == name);
        found.ok_or_else(|| ApiError::not_found("user", name))
    }

    /// Forgets some of the past, for some seconds at most, and gives room back.
    ///
    /// # Errors
    /// When the server is stopping, or there is too little room even for that.
    pub async fn prune(&self, retention: Retention) -> Result<Pruned, ApiError> {
        /// Whoever asked wants to hear of it while the request is still alive.
        const AT_ONCE: Duration = Duration::from_secs(10);
        let (answer, pruned) = oneshot::channel();
        let forgetting = Forgetting::new(retention, Instant::now() + AT_ONCE, answer);
        self.send(Request::Prune(forgetting)).await?;
        pruned.await.map_err(|_| stopping())?
    }

    /// The moment so long ago, in the time of the journal.
    #[must_use]
    pub fn moment(&self, ago: Duration) -> Time {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let then = now.saturating_sub(ago).as_nanos();
        let then = then.saturating_sub(u128::from(self.history.epoch_unix_ns()));
        Time(u64::try_from(then).unwrap_or(u64::MAX))
    }

    /// How large the journal was when somebody last looked, and how much of that was not in use.
    #[must_use]
    pub fn room(&self) -> Room {
        Room {
            bytes: self.progress.bytes.load(Ordering::Relaxed),
            unused: self.progress.unused.load(Ordering::Relaxed),
        }
    }

    /// Whether the disk is full, and no more jobs are taken.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.progress.disk_full.load(Ordering::Relaxed)
    }

    /// The disk was full when the journal was opened.
    pub(crate) fn note_disk_full(&self) {
        self.progress.disk_full.store(true, Ordering::Relaxed);
    }

    /// Returns when the disk has become full.
    pub(crate) async fn wants_room(&self) {
        self.progress.wants_room.notified().await;
    }

    fn need_room(&self) -> Result<(), ApiError> {
        if !self.is_disk_full() {
            return Ok(());
        }
        let message = "the disk of the server is full: it takes no more jobs until there is room";
        let help = "an admin makes room with `loxley journal prune --older-than 7d`, or by removing other files";
        Err(ApiError::new(ErrorCode::DiskFull, message).with_help(help))
    }

    /// Accepts no more jobs from now on.
    pub fn drain(&self) {
        self.progress.draining.store(true, Ordering::Relaxed);
    }

    /// Whether no more jobs are accepted.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.progress.draining.load(Ordering::Relaxed)
    }

    /// How many jobs are not over.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn open_jobs(&self) -> Result<u64, ApiError> {
        self.ask(|view| view.engine.open_jobs()).await
    }

    /// The place after the last group that is on disk.
    #[must_use]
    pub fn journal_position(&self) -> u64 {
        self.progress.position.load(Ordering::Acquire)
    }

    /// How long a write to the journal takes at present, in nanoseconds.
    #[must_use]
    pub fn commit_ns(&self) -> u64 {
        self.progress.commit_ns.load(Ordering::Relaxed)
    }

    /// How long writes to the journal took since the server started.
    #[must_use]
    pub fn commit_times(&self) -> CommitTimes {
        self.progress.commit_times()
    }

    /// Everything that happens from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.listeners.events.subscribe()
    }

    /// What tasks and jobs go through from now on, for as long as somebody holds this.
    #[must_use]
    pub fn task_steps(&self) -> broadcast::Receiver<Arc<[TaskStep]>> {
        self.listeners.steps.subscribe()
    }

    /// A time of the engine's clock as one of the calendar.
    #[must_use]
    pub fn system_time(&self, time: Time) -> SystemTime {
        let since_1970 = self.history.epoch_unix_ns().saturating_add(time.0);
        UNIX_EPOCH + Duration::from_nanos(since_1970)
    }

    /// A digest of all decisions so far: a replay of the journal comes to the same one.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn digest(&self) -> Result<u64, ApiError> {
        self.ask(|view| view.engine.digest()).await
    }

    // For sessions.

    pub(super) fn shared_outputs(&self) -> Arc<Outputs> {
        Arc::clone(&self.outputs)
    }

    pub(crate) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    pub(crate) async fn connect(
        &self,
        hello: wire::Hello,
        link: Link,
    ) -> Result<AgentId, ApiError> {
        let (answer, connected) = oneshot::channel();
        let hello = Box::new(hello);
        self.send(Request::Connect {
            hello,
            link,
            answer,
        })
        .await?;
        connected.await.map_err(|_| stopping())?
    }

    pub(crate) async fn hear(
        &self,
        agent: AgentId,
        session: u64,
        frame: wire::AgentFrame,
    ) -> Result<(), ApiError> {
        let frame = Box::new(frame);
        self.send(Request::Frame {
            agent,
            session,
            frame,
        })
        .await
    }

    pub(crate) async fn disconnect(&self, agent: AgentId, session: u64) {
        // Fails when the engine has ended: then the next start counts the agent as away.
        let _ = self.send(Request::Disconnect { agent, session }).await;
    }

    // The way in.

    async fn tell(&self, fact: Fact) -> Result<Told, ApiError> {
        let (answer, told) = oneshot::channel();
        self.send(Request::Tell { fact, answer }).await?;
        told.await.map_err(|_| stopping())?
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&View<'_>) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let question = move |view: &View<'_>| Answer::new(question(view));
        self.ask_any(Box::new(question)).await.map(Answer::open)
    }

    async fn ask_any(
        &self,
        question: Box<dyn FnOnce(&View<'_>) -> Answer + Send>,
    ) -> Result<Answer, ApiError> {
        let (sender, answer) = oneshot::channel();
        let ask = Request::Ask(Box::new(move |view: &View<'_>| {
            let found = question(view);
            Box::new(move || {
                let _ = sender.send(found);
            })
        }));
        self.send(ask).await?;
        answer.await.map_err(|_| stopping())
    }

    async fn send(&self, request: Request) -> Result<(), ApiError> {
        self.requests.send(request).await.map_err(|_| stopping())
    }
}

fn disk_full() -> Problem {
    Problem {
        severity: Severity::Critical,
        kind: "disk_full".to_owned(),
        message: "the disk of the journal is full, and the reserve was given up: no more jobs are taken; what runs goes on \
                  while there is room for its end"
            .to_owned(),
        remedies: vec![
            "forget old jobs: `loxley journal prune --older-than 7d`".to_owned(),
            "remove other files from that disk, or make it larger".to_owned(),
            "say what is kept: `journal: {keep_days: 30}` in the configuration, and `loxley config reload`"
                .to_owned(),
        ],
    }
}

fn page_size(limit: Option<u32>) -> usize {
    limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX) as usize
}

fn stopping() -> ApiError {
    ApiError::new(ErrorCode::Unavailable, "the server is stopping")
}

fn internal(error: &(dyn std::error::Error + 'static)) -> ApiError {
    tracing::error!(error, "cannot answer");
    ApiError::new(ErrorCode::Internal, error.to_string())
}
