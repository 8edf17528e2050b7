//! What people say of tasks and agents, in the numbers of the core. The same facts in the same order give the
//! same numbers.

use std::sync::Arc;

use loxley_api::{ApiError, TaskRequest, Work};
use loxley_driver::{Directory, data_key, milli, work_key};
use loxley_model::{AgentId, AgentSpec, Dispatch, NameError, RetryRule, Span, TaskKind, WorkKey};

use crate::fact::AgentRecord;

/// What an agent is to the core, under this number.
pub(crate) fn agent_spec(
    names: &mut Directory,
    id: AgentId,
    record: &AgentRecord,
) -> Result<AgentSpec, NameError> {
    let amounts = record.resources.iter();
    let amounts = amounts.map(|(name, amount)| (name.as_str(), *amount));
    Ok(AgentSpec {
        slots: record.slots,
        speed: record.speed,
        resources: names.amounts(record.cpu_milli, record.memory_bytes, amounts)?,
        zone: names.zone(record.zone.as_deref())?,
        holds: record.holds.iter().map(|data| data_key(data)).collect(),
        dispatch: Dispatch::KeepFull,
        heartbeats: true,
        confirms_ends: true,
        ..AgentSpec::new(id, names.skill_set(&record.skills)?)
    })
}

/// What the tasks of a request have in common, shared with all that are alike.
pub(crate) fn kind(names: &mut Directory, task: &TaskRequest) -> Result<Arc<TaskKind>, ApiError> {
    let kind = named_kind(names, task).map_err(bad_name)?;
    Ok(names.kind(kind))
}

fn named_kind(names: &mut Directory, task: &TaskRequest) -> Result<TaskKind, NameError> {
    let needs = &task.needs;
    let amounts = needs.named.iter();
    let amounts = amounts.map(|(name, amount)| (name.as_str(), *amount));
    let cpu_milli = milli(needs.cpus).unwrap_or(u64::MAX);
    Ok(TaskKind {
        work: Some(work(task)),
        once: task.rerun == loxley_model::Rerun::Never,
        skills: names.skill_set(&task.skills)?,
        needs: names.amounts(cpu_milli, needs.memory_bytes, amounts)?,
        group: names.group(task.group.as_deref())?,
        time_limit: time_limit(task),
        hold_limit: task.hold_limit_sec.and_then(Span::try_from_secs_f64),
        retry: RetryRule {
            retries: task.retry.retries,
            base: span(task.retry.base_sec),
            cap: span(task.retry.cap_sec),
        },
        speculate: task.speculate,
        checkpoints: task.checkpoints,
    })
}

/// Which work it is: what it was called, else the function, else the command as it was written, before an entry is
/// put into it. So the tasks of an array are alike, and the same command in another job is the same work.
pub(crate) fn work(task: &TaskRequest) -> WorkKey {
    match (&task.kind, &task.run) {
        (Some(kind), _) => work_key("kind", [kind.trim()]),
        (None, Work::Function(function)) => work_key("function", [function.name.as_str()]),
        (None, Work::Command(command)) => {
            let sort = command.shell.as_deref().unwrap_or("command");
            work_key(sort, command.words.iter().map(String::as_str))
        }
    }
}

/// What a person would call that work.
pub(crate) fn work_name(task: &TaskRequest) -> String {
    match (&task.kind, &task.run) {
        (Some(kind), _) => kind.trim().to_owned(),
        (None, Work::Function(function)) => function.name.clone(),
        (None, Work::Command(command)) => command.words.join(" "),
    }
}

/// When the scheduler gives a task up. An agent ends a process itself, on time, and tells how it ended, after a
/// grace of two seconds at the latest: then the scheduler is there for agents that do not. Nobody can end a
/// function, so there it is the one who says that the time is over.
fn time_limit(task: &TaskRequest) -> Option<Span> {
    let slack = match &task.run {
        Work::Command(_) => 3.0,
        Work::Function(_) => 0.0,
    };
    let limit = task.time_limit_sec?;
    Span::try_from_secs_f64(limit + slack)
}

pub(crate) fn span(seconds: f64) -> Span {
    Span::try_from_secs_f64(seconds).unwrap_or(Span::MAX)
}

pub(crate) fn bad_name(error: NameError) -> ApiError {
    ApiError::invalid(error.to_string())
}
