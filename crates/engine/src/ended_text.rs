//! What became of a task that is over, and what to do about it: `explain` for the past.

use std::fmt::Write;

use loxley_api::{Explanation, JobRequest, Needs, TaskRequest};
use loxley_journal::{Ended, JobRow, ReadError, ReadHistory, TaskQuery, TaskRow};
use loxley_model::{DependencyFailure, Failure, Span, TaskId};

use crate::api_view::ended_state;
use crate::effects::Kept;
use crate::history_view::{agent_name, parse};

/// So many tasks that did not succeed are named.
const NAMED_MAX: usize = 3;

/// What became of a task; none when the history does not have it.
///
/// # Errors
/// When the history cannot be read.
pub fn explain(history: &dyn ReadHistory, id: TaskId) -> Result<Option<Explanation>, ReadError> {
    let Some(row) = history.task(id)? else {
        return Ok(None);
    };
    let job = history.job(row.job)?;
    let request = job.as_ref().and_then(parse);
    let asked = match (&job, &request) {
        (Some(job), Some(request)) => Asked::find(job, request, id),
        _ => None,
    };
    let culprits = match &asked {
        Some(asked) if needs_culprits(row.ended) => asked.unsuccessful(history)?,
        _ => Vec::new(),
    };
    let kept = history.output(id)?.and_then(|bytes| Kept::unpack(&bytes));
    let past = Past {
        agent: match row.agent {
            Some(agent) => agent_name(history, agent)?,
            None => None,
        },
        message: kept.map(|kept| kept.message).unwrap_or_default(),
        culprits,
        asked,
        row,
    };
    Ok(Some(past.told()))
}

fn needs_culprits(ended: Ended) -> bool {
    matches!(
        ended,
        Ended::Failed(Failure::Dependency) | Ended::Cancelled | Ended::Returned
    )
}

/// What the request says of a task, and where the task stands in it.
struct Asked<'a> {
    job: &'a JobRow,
    request: &'a JobRequest,
    task: &'a TaskRequest,
    position: u64,
}

impl<'a> Asked<'a> {
    fn find(job: &'a JobRow, request: &'a JobRequest, id: TaskId) -> Option<Self> {
        let mut position = id.0.checked_sub(job.first_task.0)?;
        for task in &request.tasks {
            if position < task.count() {
                return Some(Self {
                    job,
                    request,
                    task,
                    position,
                });
            }
            position -= task.count();
        }
        None
    }

    /// Tasks that it depends on and that did not succeed, a few of them.
    fn unsuccessful(&self, history: &dyn ReadHistory) -> Result<Vec<TaskId>, ReadError> {
        let mut found = Vec::new();
        let mut first = self.job.first_task.0;
        for part in &self.request.tasks {
            let count = part.count();
            let named = |names: &[String]| part.name.as_ref().is_some_and(|n| names.contains(n));
            if named(&self.task.depends_on) {
                let rows = history.tasks(&TaskQuery {
                    job: Some(self.job.job),
                    after: Some(TaskId(first - 1)),
                    limit: 10_000,
                    ..TaskQuery::default()
                })?;
                let rows = rows.rows.iter();
                let rows = rows.take_while(|row| row.task.0 < first + count);
                found.extend(rows.filter(|row| !is_success(row)).map(|row| row.task));
            } else if named(&self.task.depends_on_each) {
                found.extend(failed(history, TaskId(first + self.position))?);
            }
            first += count;
        }
        for task in &self.task.depends_on_tasks {
            found.extend(failed(history, *task)?);
        }
        found.truncate(NAMED_MAX);
        Ok(found)
    }
}

fn failed(history: &dyn ReadHistory, id: TaskId) -> Result<Option<TaskId>, ReadError> {
    let row = history.task(id)?;
    Ok(row.filter(|row| !is_success(row)).map(|row| row.task))
}

fn is_success(row: &TaskRow) -> bool {
    matches!(row.ended, Ended::Succeeded | Ended::FellBack)
}

/// A task that is over, with all that is known of it.
struct Past<'a> {
    row: TaskRow,
    asked: Option<Asked<'a>>,
    agent: Option<String>,
    message: String,
    culprits: Vec<TaskId>,
}

impl Past<'_> {
    fn told(&self) -> Explanation {
        let mut text = match self.row.ended {
            Ended::Succeeded => Text::new(format!("succeeded{}", self.where_and_how_long())),
            Ended::FellBack => self.fell_back(),
            Ended::Failed(Failure::Error | Failure::Permanent) => self.failed(),
            Ended::Failed(Failure::TimeLimit) => self.out_of_time(),
            Ended::Failed(Failure::AgentLost) => self.agent_lost(),
            Ended::Failed(Failure::Unassignable) => self.given_up(),
            Ended::Failed(Failure::Dependency) => self.for_want_of_others(),
            Ended::Cancelled | Ended::Returned => self.cancelled(),
        };
        if !self.message.is_empty() && !is_success(&self.row) {
            text.because.insert(0, self.message.clone());
        }
        Explanation {
            task: self.row.task,
            state: ended_state(self.row.ended).0,
            place: text.place,
            obstacles: text.because,
            remedies: text.help,
        }
    }

    fn id(&self) -> u64 {
        self.row.task.0
    }

    /// ` on `a` at attempt 2, after 3 s`, as far as it is known.
    fn where_and_how_long(&self) -> String {
        let mut text = String::new();
        if let Some(agent) = &self.agent {
            let _ = write!(text, " on `{agent}`");
        }
        if self.row.attempt > 1 {
            let _ = write!(text, " at attempt {}", self.row.attempt);
        }
        if let Some(started) = self.row.started {
            let _ = write!(text, ", after {}", self.row.finished.since(started));
        }
        text
    }

    fn failed(&self) -> Text {
        let how = match (self.row.exit_code, self.row.signal) {
            (_, Some(signal)) => format!(": it was ended by signal {signal}"),
            (Some(code), None) if code != 0 => format!(": it ended with exit code {code}"),
            _ => String::new(),
        };
        let id = self.id();
        Text::new(format!("failed{}{how}", self.where_and_how_long()))
            .help(format!("see what it wrote: `loxley task logs {id}`"))
            .help(format!(
                "mend the cause, then try it again: `loxley task retry {id}`"
            ))
    }

    fn out_of_time(&self) -> Text {
        let id = self.id();
        Text::new(format!(
            "was ended{}: it ran longer than its time limit{}",
            self.where_and_how_long(),
            self.time_limit()
        ))
        .help(format!("see how far it got: `loxley task logs {id}`"))
        .help("submit it again with more time: `loxley submit --time-limit TIME`, or `time_limit` in its job file".into())
    }

    fn fell_back(&self) -> Text {
        let id = self.id();
        Text::new(format!(
            "ran into its time limit{}, and its fallback stood in for it",
            self.time_limit()
        ))
        .help(format!("see how far it got: `loxley task logs {id}`"))
        .help("give it more time: `time_limit` in its job file".into())
    }

    fn time_limit(&self) -> String {
        let limit = self
            .asked
            .as_ref()
            .and_then(|asked| asked.task.time_limit_sec);
        limit.map_or_else(String::new, |limit| format!(" of {}", seconds(limit)))
    }

    fn agent_lost(&self) -> Text {
        let agent = self.agent.as_deref().unwrap_or("its agent");
        let id = self.id();
        Text::new(format!("failed: `{agent}` was lost while it had it"))
            .help("see who is there: `loxley agent list`".into())
            .help(format!("try it again: `loxley task retry {id}`"))
    }

    fn given_up(&self) -> Text {
        let limit = self
            .asked
            .as_ref()
            .and_then(|asked| asked.task.hold_limit_sec);
        let limit = limit.map_or_else(
            || "in time".to_owned(),
            |limit| format!("within its hold limit of {}", seconds(limit)),
        );
        let mut text = Text::new(format!("was given up: no agent could do it {limit}"));
        let mut start = String::from("loxley agent start");
        if let Some(asked) = &self.asked {
            let task = asked.task;
            if !task.skills.is_empty() {
                let skills = task.skills.join(",");
                text.because
                    .push(format!("it asks for the skills {skills}"));
                let _ = write!(start, " --skills {skills}");
            }
            let (words, options) = needs(&task.needs);
            if !words.is_empty() {
                text.because.push(format!("it needs {words}"));
                start.push_str(&options);
            }
        }
        let id = self.id();
        text.help(format!("start an agent that can: `{start}`"))
            .help(format!("then try it again: `loxley task retry {id}`"))
    }

    fn for_want_of_others(&self) -> Text {
        let id = self.id();
        let Some(first) = self.culprits.first() else {
            return Text::new(
                "failed before it began: a task that it depends on did not succeed".into(),
            )
            .help(format!(
                "see which: `loxley task list {} --state failed`",
                self.row.job.0
            ));
        };
        let first = first.0;
        Text::new(format!("failed before it began: {} did not succeed", self.culprits()))
            .help(format!("see why: `loxley task explain {first}`"))
            .help(format!(
                "mend that, then `loxley task retry {first}`, and when it has succeeded `loxley task retry {id}`"
            ))
    }

    fn cancelled(&self) -> Text {
        let skips = self
            .asked
            .as_ref()
            .is_some_and(|asked| asked.request.on_dependency_failure == DependencyFailure::Skip);
        match self.culprits.first() {
            Some(first) if skips && self.row.started.is_none() => {
                let first = first.0;
                Text::new(format!("was skipped: {} did not succeed", self.culprits()))
                    .help(format!("see why: `loxley task explain {first}`"))
                    .help("mend that, then submit the job again".into())
            }
            _ => {
                let when = match self.row.started {
                    Some(_) => self.where_and_how_long(),
                    None => " before it began".to_owned(),
                };
                Text::new(format!("was cancelled{when}"))
                    .help("submit it again if it is wanted".into())
            }
        }
    }

    /// `task 3 and task 4`.
    fn culprits(&self) -> String {
        let names: Vec<String> = self
            .culprits
            .iter()
            .map(|id| format!("task {}", id.0))
            .collect();
        names.join(" and ")
    }
}

struct Text {
    place: String,
    because: Vec<String>,
    help: Vec<String>,
}

impl Text {
    fn new(place: String) -> Self {
        Self {
            place,
            because: Vec::new(),
            help: Vec::new(),
        }
    }

    fn help(mut self, line: String) -> Self {
        self.help.push(line);
        self
    }
}

fn seconds(seconds: f64) -> String {
    Span::try_from_secs_f64(seconds)
        .unwrap_or(Span::MAX)
        .to_string()
}

/// What a task needs, in words and as options of `loxley agent start`.
fn needs(needs: &Needs) -> (String, String) {
    let mut words = Vec::new();
    let mut options = String::new();
    if needs.cpus > 0.0 {
        words.push(format!("{} processors", needs.cpus));
        let _ = write!(options, " --cpus {}", needs.cpus);
    }
    if needs.memory_bytes > 0 {
        let mib = needs.memory_bytes.div_ceil(1 << 20);
        words.push(format!("{mib} MiB of memory"));
        let _ = write!(options, " --memory {mib}M");
    }
    for (name, amount) in &needs.named {
        words.push(format!("{amount} of `{name}`"));
        let _ = write!(options, " --resource {name}={amount}");
    }
    (words.join(", "), options)
}
