//! What is over, from the history of the journal, in the words of the API.

use std::collections::BTreeMap;

use loxley_api::{
    AttemptInfo, Blob, JobFilter, JobInfo, JobRequest, JobState, OutputTail, TaskCounts, TaskEnd,
    TaskInfo, TaskState, Usage,
};
use loxley_journal::{JobQuery, JobRow, ReadError, ReadHistory, TaskQuery, TaskRow};
use loxley_model::{AgentId, JobId, Priority, Span, TaskId, Time};

pub use crate::api_view::ended_state;
use crate::api_view::task_described;
use crate::effects::Kept;
use loxley_driver::explain_text::failure_word;

/// A job that is in the history.
///
/// # Errors
/// When the history cannot be read.
pub fn job(history: &dyn ReadHistory, id: JobId, epoch: u64) -> Result<Option<JobInfo>, ReadError> {
    let row = history.job(id)?;
    Ok(row.map(|row| job_info(&row, epoch)))
}

/// What a job in the history was made of.
///
/// # Errors
/// When the history cannot be read.
pub fn request(history: &dyn ReadHistory, id: JobId) -> Result<Option<JobRequest>, ReadError> {
    Ok(history.job(id)?.as_ref().and_then(parse))
}

/// Jobs that are over, newest first.
///
/// # Errors
/// When the history cannot be read.
pub fn jobs(
    history: &dyn ReadHistory,
    filter: &JobFilter,
    limit: usize,
    epoch: u64,
) -> Result<Vec<JobInfo>, ReadError> {
    // The engine knows those that are not over.
    if filter.state.is_some_and(|state| !state.is_over()) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut before = filter.before.map(JobId);
    loop {
        let page = history.jobs(&JobQuery {
            state: filter.state,
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
#[must_use]
pub fn admits(filter: &JobFilter, job: &JobInfo) -> bool {
    filter.state.is_none_or(|state| state == job.state)
        && (filter.name.is_none() || filter.name == job.name)
        && filter.user.as_ref().is_none_or(|user| *user == job.user)
        && filter.before.is_none_or(|before| job.id.0 < before)
        && filter
            .search
            .as_ref()
            .is_none_or(|text| is_about(job, text))
}

/// Whether a person who looks for this text means this job.
fn is_about(job: &JobInfo, text: &str) -> bool {
    let text = text.trim().to_lowercase();
    let name = job.name.as_deref().unwrap_or_default();
    [name, &job.user]
        .iter()
        .any(|word| word.to_lowercase().contains(&text))
        || text.trim_start_matches('#') == job.id.0.to_string()
}

fn job_info(row: &JobRow, epoch: u64) -> JobInfo {
    let over = row.succeeded + row.failed + row.cancelled;
    let request = parse(row);
    JobInfo {
        id: row.job,
        name: Some(row.name.clone()).filter(|name| !name.is_empty()),
        user: row.user.clone(),
        state: row.state,
        tasks: TaskCounts {
            // One that takes entries later has gaps between its numbers.
            total: if row.state.is_over() {
                over
            } else {
                row.task_count
            },
            pending: match row.state.is_over() {
                true => 0,
                false => row.task_count.saturating_sub(over),
            },
            succeeded: row.succeeded,
            failed: row.failed,
            cancelled: row.cancelled,
            ..TaskCounts::default()
        },
        first_task: row.first_task,
        last_task: TaskId((row.first_task.0 + row.task_count).saturating_sub(1)),
        open: false,
        after: request.map(|request| request.after).unwrap_or_default(),
        created_unix_ms: unix_ms(row.created, epoch),
        ended_unix_ms: row.finished.map(|at| unix_ms(at, epoch)),
    }
}

pub(crate) fn parse(row: &JobRow) -> Option<JobRequest> {
    JobRequest::from_json(&row.detail).ok()
}

/// A task that is over.
///
/// # Errors
/// When the history cannot be read.
pub fn task(
    history: &dyn ReadHistory,
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
        let added = kept.and_then(|kept| kept.added);
        info = filled_in(info, job, request, row.entry, added);
    }
    if let Some(agent) = row.agent {
        info.agent = agent_name(history, agent)?;
    }
    Ok(Some(info))
}

/// Tasks of a job that are over, from one on.
///
/// # Errors
/// When the history cannot be read.
pub fn tasks(
    history: &dyn ReadHistory,
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
        // Between entries that were added later lie tasks of other jobs.
        .filter(|row| row.job == job.job)
    {
        let mut info = task_info(row, None, epoch);
        if let Some(request) = &request {
            let added = match request.open {
                true => history.output(row.task)?,
                false => None,
            };
            let added = added.and_then(|bytes| Kept::unpack(&bytes)?.added);
            info = filled_in(info, &job, request, row.entry, added);
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
    let is_whole = !request.as_ref().is_some_and(|request| request.open);
    if let Some(state) = ended_unseen(&job).filter(|_| is_whole) {
        let end = (from.0 + count).min(job.first_task.0 + job.task_count);
        for id in (from.0..end).map(TaskId) {
            let unseen = || unseen(&job, id, state, epoch);
            let request = request.as_ref();
            found.entry(id).or_insert_with(|| match request {
                Some(request) => filled_in(unseen(), &job, request, None, None),
                None => unseen(),
            });
        }
    }
    Ok(found)
}

/// How tasks without a row of their own ended.
fn ended_unseen(job: &JobRow) -> Option<TaskState> {
    match job.state {
        JobState::Waiting | JobState::Open => None,
        JobState::Succeeded => Some(TaskState::Succeeded),
        JobState::Failed if job.cancelled == 0 => Some(TaskState::Failed),
        JobState::Failed | JobState::Cancelled => Some(TaskState::Cancelled),
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

/// What an agent was called.
///
/// # Errors
/// When the history cannot be read.
pub fn agent_name(history: &dyn ReadHistory, agent: AgentId) -> Result<Option<String>, ReadError> {
    let before = agent.0.checked_sub(1).map(AgentId);
    let page = history.agents(before, 1)?;
    let row = page.rows.into_iter().find(|row| row.agent == agent);
    Ok(row.map(|row| row.name))
}

/// `added` is the entry of a task that was added later, and to which array; `number` is its place there.
fn filled_in(
    info: TaskInfo,
    job: &JobRow,
    request: &JobRequest,
    number: Option<u64>,
    added: Option<(u32, String)>,
) -> TaskInfo {
    if let Some((array, entry)) = added
        && let Some(task) = request.tasks.get(array as usize)
    {
        return task_described(task, Some(entry), number.unwrap_or(0), info);
    }
    let mut position = info.id.0 - job.first_task.0;
    for task in &request.tasks {
        if position < task.count() {
            let entries = task.entries.as_ref();
            let entry = entries.and_then(|entries| entries.text(position));
            return task_described(task, entry, position, info);
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
            failure: failure.map(|failure| failure_word(failure).to_owned()),
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

/// How tasks ended, without what their jobs say of them: that would have to be read for each. Those that
/// are not over are left out, and those for which there is no room.
///
/// # Errors
/// When the history cannot be read.
pub fn ends(history: &dyn ReadHistory, tasks: &[TaskId]) -> Result<Vec<TaskEnd>, ReadError> {
    /// So many bytes of results make an answer full.
    const BYTES_MAX: usize = 8 << 20;
    let mut bytes = 0;
    let mut found = Vec::new();
    for id in tasks {
        let Some(row) = history.task(*id)? else {
            continue;
        };
        let mut end = TaskEnd {
            id: *id,
            state: ended_state(row.ended).0,
            result: None,
            last: None,
        };
        if end.state == TaskState::Succeeded {
            end.result = history.result(*id)?.map(Blob);
        } else {
            let kept = history.output(*id)?.and_then(|bytes| Kept::unpack(&bytes));
            end.last = task_info(&row, kept.as_ref(), 0).last;
        }
        bytes += end.result.as_ref().map_or(0, |result| result.0.len());
        found.push(end);
        if bytes >= BYTES_MAX {
            break;
        }
    }
    Ok(found)
}

/// What is kept of the output of a task that is over.
///
/// # Errors
/// When the history cannot be read.
pub fn output(history: &dyn ReadHistory, id: TaskId) -> Result<Option<OutputTail>, ReadError> {
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
