//! What is over, from the history of the journal, in the words of the API.

use std::collections::BTreeMap;

use loxley_api::{
    AttemptInfo, JobFilter, JobInfo, JobRequest, JobState, OutputTail, TaskCounts, TaskInfo,
    TaskState, Usage,
};
use loxley_journal::{History, JobQuery, JobRow, ReadError, TaskQuery, TaskRow};
use loxley_model::{AgentId, JobId, Priority, Span, TaskId, Time};

use super::describe::{ended_state, task_described};
use super::effects::Kept;
use super::state::failure_name;

pub(super) fn job(history: &History, id: JobId, epoch: u64) -> Result<Option<JobInfo>, ReadError> {
    let row = history.job(id)?;
    Ok(row.map(|row| job_info(&row, epoch)))
}

pub(super) fn jobs(
    history: &History,
    filter: &JobFilter,
    limit: usize,
    epoch: u64,
) -> Result<Vec<JobInfo>, ReadError> {
    use loxley_journal::JobState as Stored;
    let state = match filter.state {
        Some(JobState::Succeeded) => Some(Stored::Succeeded),
        Some(JobState::Failed) => Some(Stored::Failed),
        Some(JobState::Cancelled) => Some(Stored::Cancelled),
        // The engine knows these.
        Some(JobState::Waiting | JobState::Open) => return Ok(Vec::new()),
        None => None,
    };
    let mut found = Vec::new();
    let mut before = filter.before.map(JobId);
    loop {
        let page = history.jobs(&JobQuery {
            state,
            user: filter.user.clone(),
            before,
            limit,
        })?;
        let infos = page.rows.iter().map(|row| job_info(row, epoch));
        found.extend(infos.filter(|job| job.state.is_over() && admits(filter, job)));
        before = page.next;
        if before.is_none() || found.len() >= limit {
            return Ok(found);
        }
    }
}

/// Whether a filter lets a job through.
pub(super) fn admits(filter: &JobFilter, job: &JobInfo) -> bool {
    filter.state.is_none_or(|state| state == job.state)
        && (filter.name.is_none() || filter.name == job.name)
        && filter.user.as_ref().is_none_or(|user| *user == job.user)
        && filter.before.is_none_or(|before| job.id.0 < before)
}

fn job_info(row: &JobRow, epoch: u64) -> JobInfo {
    use loxley_journal::JobState as Stored;
    let over = row.succeeded + row.failed + row.cancelled;
    let request = parse(row);
    JobInfo {
        id: row.job,
        name: Some(row.name.clone()).filter(|name| !name.is_empty()),
        user: row.user.clone(),
        state: match row.state {
            Stored::Open => JobState::Open,
            Stored::Succeeded => JobState::Succeeded,
            Stored::Failed => JobState::Failed,
            Stored::Cancelled => JobState::Cancelled,
        },
        tasks: TaskCounts {
            total: row.task_count,
            pending: row.task_count.saturating_sub(over),
            succeeded: row.succeeded,
            failed: row.failed,
            cancelled: row.cancelled,
            ..TaskCounts::default()
        },
        first_task: row.first_task,
        after: request.map(|request| request.after).unwrap_or_default(),
        created_unix_ms: unix_ms(row.created, epoch),
        ended_unix_ms: row.finished.map(|at| unix_ms(at, epoch)),
    }
}

fn parse(row: &JobRow) -> Option<JobRequest> {
    serde_json::from_slice(&row.detail).ok()
}

pub(super) fn task(
    history: &History,
    id: TaskId,
    epoch: u64,
) -> Result<Option<TaskInfo>, ReadError> {
    let Some(row) = history.task(id)? else {
        return Ok(None);
    };
    let job = history.job(row.job)?;
    let request = job.as_ref().and_then(parse);
    let kept = history.output(id)?.and_then(|bytes| Kept::unpack(&bytes));
    let mut info = task_info(&row, kept.as_ref(), epoch);
    if let (Some(job), Some(request)) = (&job, &request) {
        info = filled_in(info, job, request);
    }
    if let Some(agent) = row.agent {
        info.agent = agent_name(history, agent)?;
    }
    Ok(Some(info))
}

pub(super) fn tasks(
    history: &History,
    job: JobId,
    from: TaskId,
    count: u64,
    epoch: u64,
) -> Result<BTreeMap<TaskId, TaskInfo>, ReadError> {
    let Some(job) = history.job(job)? else {
        return Ok(BTreeMap::new());
    };
    let request = parse(&job);
    let page = history.tasks(&TaskQuery {
        job: Some(job.job),
        after: Some(TaskId(from.0 - 1)),
        limit: count as usize,
        ..TaskQuery::default()
    })?;
    let mut agents = BTreeMap::new();
    let mut found = BTreeMap::new();
    for row in page
        .rows
        .iter()
        .take_while(|row| row.task.0 < from.0 + count)
    {
        let mut info = task_info(row, None, epoch);
        if let Some(request) = &request {
            info = filled_in(info, &job, request);
        }
        if let Some(agent) = row.agent {
            if let std::collections::btree_map::Entry::Vacant(vacant) = agents.entry(agent) {
                vacant.insert(agent_name(history, agent)?);
            }
            info.agent = agents[&agent].clone();
        }
        found.insert(row.task, info);
    }
    // Tasks that ended with their job before they ever began have no row of their own.
    if let Some(state) = ended_unseen(&job) {
        let end = (from.0 + count).min(job.first_task.0 + job.task_count);
        for id in (from.0..end).map(TaskId) {
            let unseen = || unseen(&job, id, state, epoch);
            let request = request.as_ref();
            found.entry(id).or_insert_with(|| match request {
                Some(request) => filled_in(unseen(), &job, request),
                None => unseen(),
            });
        }
    }
    Ok(found)
}

/// How tasks without a row of their own ended.
fn ended_unseen(job: &JobRow) -> Option<TaskState> {
    use loxley_journal::JobState as Stored;
    match job.state {
        Stored::Open => None,
        Stored::Succeeded => Some(TaskState::Succeeded),
        Stored::Failed if job.cancelled == 0 => Some(TaskState::Failed),
        Stored::Failed | Stored::Cancelled => Some(TaskState::Cancelled),
    }
}

fn unseen(job: &JobRow, id: TaskId, state: TaskState, epoch: u64) -> TaskInfo {
    TaskInfo {
        id,
        job: job.job,
        name: None,
        entry: None,
        does: Vec::new(),
        state,
        priority: Priority::NORMAL,
        agent: None,
        attempts: 0,
        moves: 0,
        created_unix_ms: unix_ms(job.created, epoch),
        started_unix_ms: None,
        ended_unix_ms: job.finished.map(|at| unix_ms(at, epoch)),
        deadline_unix_ms: None,
        last: None,
    }
}

fn agent_name(history: &History, agent: AgentId) -> Result<Option<String>, ReadError> {
    let before = agent.0.checked_sub(1).map(AgentId);
    let page = history.agents(before, 1)?;
    let row = page.rows.into_iter().find(|row| row.agent == agent);
    Ok(row.map(|row| row.name))
}

fn filled_in(info: TaskInfo, job: &JobRow, request: &JobRequest) -> TaskInfo {
    let mut position = info.id.0 - job.first_task.0;
    for task in &request.tasks {
        if position < task.count() {
            return task_described(task, position, info);
        }
        position -= task.count();
    }
    info
}

fn task_info(row: &TaskRow, kept: Option<&Kept>, epoch: u64) -> TaskInfo {
    let (state, failure) = ended_state(row.ended);
    let seconds = |span: Span| span.as_secs_f64();
    TaskInfo {
        id: row.task,
        job: row.job,
        name: None,
        entry: None,
        does: Vec::new(),
        state,
        priority: Priority::NORMAL,
        agent: None,
        attempts: row.attempt,
        moves: 0,
        created_unix_ms: unix_ms(row.created, epoch),
        started_unix_ms: row.started.map(|at| unix_ms(at, epoch)),
        ended_unix_ms: Some(unix_ms(row.finished, epoch)),
        deadline_unix_ms: None,
        last: Some(AttemptInfo {
            failure: failure.map(|failure| failure_name(failure).to_owned()),
            message: kept
                .map(|kept| kept.message.clone())
                .filter(|message| !message.is_empty()),
            exit_code: row.exit_code,
            signal: row.signal,
            usage: row.usage.map(|usage| Usage {
                duration_sec: seconds(usage.duration),
                user_sec: seconds(usage.user),
                system_sec: seconds(usage.system),
                memory_max_bytes: usage.memory_bytes,
            }),
        }),
    }
}

pub(super) fn output(history: &History, id: TaskId) -> Result<Option<OutputTail>, ReadError> {
    let Some(row) = history.task(id)? else {
        return Ok(None);
    };
    let directory = history
        .job(row.job)?
        .and_then(|job| {
            let request = parse(&job)?;
            let mut position = id.0 - job.first_task.0;
            request.tasks.into_iter().find_map(|task| {
                let here = position < task.count();
                position = position.saturating_sub(task.count());
                here.then_some(task.output.directory)
            })
        })
        .flatten();
    let kept = history.output(id)?.and_then(|bytes| Kept::unpack(&bytes));
    let kept = kept.unwrap_or_default();
    Ok(Some(OutputTail {
        stdout: String::from_utf8_lossy(&kept.stdout).into_owned(),
        stdout_dropped_bytes: kept.stdout_dropped,
        stderr: String::from_utf8_lossy(&kept.stderr).into_owned(),
        stderr_dropped_bytes: kept.stderr_dropped,
        directory,
    }))
}

fn unix_ms(time: Time, epoch: u64) -> u64 {
    epoch.saturating_add(time.0) / 1_000_000
}
