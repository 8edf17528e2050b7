//! What is looked at, and the thread that looks.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use loxley_api::{
    AgentInfo, Event, EventKind, Figures, Health, JobFilter, JobInfo, MarkFilter, ServerInfo,
    TaskFilter, TaskInfo,
};
use loxley_client::{Client, ClientError};
use loxley_model::{JobId, TaskId};
use serde::Serialize;

use super::super::connect::Connect;

/// How often.
const EVERY: Duration = Duration::from_secs(1);
/// So many running tasks are asked for one by one.
const TASKS_MAX: usize = 200;
/// How long a move is shown.
const MOVES: Duration = Duration::from_secs(300);

/// Everything that is shown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Look {
    pub(super) server: ServerInfo,
    pub(super) figures: Figures,
    pub(super) health: Health,
    pub(super) agents: Vec<AgentInfo>,
    pub(super) jobs: Vec<JobInfo>,
    /// Tasks that run, or those of the job that is looked at.
    pub(super) tasks: Vec<TaskInfo>,
    /// How many more of them there are.
    pub(super) tasks_more: u64,
    pub(super) moves: Vec<Event>,
}

/// What to do for the person at the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    CancelJob(JobId),
    RetryJob(JobId),
    CancelTask(TaskId),
    RetryTask(TaskId),
    Explain(TaskId),
    /// Explains what keeps a job from going on.
    ExplainJob(JobId),
}

/// What came back.
#[derive(Debug)]
pub(super) enum News {
    Seen(Box<Look>),
    Failed(String),
    /// The title and the lines of something to be read.
    Told(String, Vec<String>),
}

/// Looks at everything.
pub(super) async fn look(client: &Client, focus: Option<JobId>) -> Result<Look, ClientError> {
    let agents = client.agents().await?;
    let filter = JobFilter {
        limit: Some(200),
        ..JobFilter::default()
    };
    let (tasks, tasks_more) = match focus {
        Some(job) => tasks_of(client, job).await?,
        None => running(client, &agents).await?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = now.unwrap_or_default().saturating_sub(MOVES);
    let filter_moves = MarkFilter {
        from_unix_ms: Some(since.as_millis() as u64),
        limit: Some(10_000),
        ..MarkFilter::default()
    };
    let mut moves = client.marks(&filter_moves).await?.items;
    moves.retain(|event| matches!(event.kind, EventKind::TaskMoved { .. }));
    moves.reverse();
    Ok(Look {
        server: client.server().await?,
        figures: client.figures().await?,
        health: client.health().await?,
        jobs: client.jobs(&filter).await?.items,
        agents,
        tasks,
        tasks_more,
        moves,
    })
}

async fn tasks_of(client: &Client, job: JobId) -> Result<(Vec<TaskInfo>, u64), ClientError> {
    let filter = TaskFilter {
        limit: Some(TASKS_MAX as u32),
        ..TaskFilter::default()
    };
    let page = client.tasks(job, &filter).await?;
    let total = client.job(job).await?.tasks.total;
    let more = total.saturating_sub(page.items.len() as u64);
    Ok((page.items, more))
}

async fn running(
    client: &Client,
    agents: &[AgentInfo],
) -> Result<(Vec<TaskInfo>, u64), ClientError> {
    let ids: Vec<TaskId> = agents
        .iter()
        .flat_map(|agent| agent.running.iter().copied())
        .collect();
    let mut tasks = Vec::new();
    for id in ids.iter().take(TASKS_MAX) {
        match client.task(*id).await {
            Ok(task) => tasks.push(task),
            // It ended meanwhile, and is forgotten, or belongs to somebody else.
            Err(ClientError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((tasks, ids.len().saturating_sub(TASKS_MAX) as u64))
}

/// The thread that looks, for as long as this is kept.
#[derive(Debug)]
pub(super) struct Looker {
    orders: Sender<Order>,
    news: Receiver<News>,
    focus: Arc<Mutex<Option<JobId>>>,
}

impl Looker {
    pub(super) fn start(connect: &Connect) -> Result<Self> {
        let client = connect.client()?;
        let (orders, wanted) = channel();
        let (sender, news) = channel();
        let focus = Arc::new(Mutex::new(None));
        let focused = Arc::clone(&focus);
        std::thread::Builder::new()
            .name("looker".to_owned())
            .spawn(move || {
                client.call(async |client| watch(client, &wanted, &sender, &focused).await);
            })?;
        Ok(Self {
            orders,
            news,
            focus,
        })
    }

    pub(super) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    pub(super) fn order(&self, order: Order) {
        // The thread ends with us and not before.
        let _ = self.orders.send(order);
    }

    /// Whose tasks are looked at.
    pub(super) fn focus(&self, job: Option<JobId>) {
        *self.focus.lock().unwrap_or_else(PoisonError::into_inner) = job;
    }
}

async fn watch(
    client: &Client,
    orders: &Receiver<Order>,
    news: &Sender<News>,
    focus: &Mutex<Option<JobId>>,
) {
    /// How soon an order is carried out.
    const TICK: Duration = Duration::from_millis(50);
    let mut next = Instant::now();
    let mut seen = None;
    loop {
        match orders.try_recv() {
            Ok(order) => {
                if news.send(carry_out(client, order).await).is_err() {
                    return;
                }
                next = Instant::now();
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => tokio::time::sleep(TICK).await,
        }
        let wanted = *focus.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < next && wanted == seen {
            continue;
        }
        seen = wanted;
        let told = match look(client, wanted).await {
            Ok(look) => News::Seen(Box::new(look)),
            Err(error) => News::Failed(error.to_string()),
        };
        if news.send(told).is_err() {
            return;
        }
        next = Instant::now() + EVERY;
    }
}

async fn carry_out(client: &Client, order: Order) -> News {
    let done = |what: &str| News::Told(what.to_owned(), Vec::new());
    let result = match order {
        Order::CancelJob(job) => {
            let cancelled = client.cancel_job(job).await;
            cancelled.map(|_| done(&format!("job {} is cancelled", job.0)))
        }
        Order::RetryJob(job) => {
            let retried = client.retry_job(job).await;
            retried.map(|_| done(&format!("job {}: what failed is tried again", job.0)))
        }
        Order::CancelTask(task) => {
            let cancelled = client.cancel_task(task).await;
            cancelled.map(|_| done(&format!("task {} is cancelled", task.0)))
        }
        Order::RetryTask(task) => {
            let retried = client.retry_task(task).await;
            retried.map(|_| done(&format!("task {} is tried again", task.0)))
        }
        Order::Explain(task) => explain(client, task).await,
        Order::ExplainJob(job) => explain_job(client, job).await,
    };
    result.unwrap_or_else(|error| News::Told(error.to_string(), Vec::new()))
}

async fn explain(client: &Client, task: TaskId) -> Result<News, ClientError> {
    let explained = client.explain(task).await?;
    let mut lines = vec![format!("It {}.", explained.place)];
    lines.extend(explained.obstacles);
    if !explained.remedies.is_empty() {
        lines.push("What would help:".to_owned());
        lines.extend(
            explained
                .remedies
                .iter()
                .map(|remedy| format!("  {remedy}")),
        );
    }
    Ok(News::Told(format!("task {}", task.0), lines))
}

async fn explain_job(client: &Client, job: JobId) -> Result<News, ClientError> {
    let info = client.job(job).await?;
    match super::super::wait::stuck_task(client, &info).await {
        Some(task) => explain(client, task).await,
        None => {
            let line = "Nothing keeps it from going on; Enter shows its tasks.".to_owned();
            Ok(News::Told(format!("job {}", job.0), vec![line]))
        }
    }
}
