//! What a request must be before anybody acts on it.
//!
//! Everything is bounded, because it comes from the network: numbers, lengths, and the length of
//! lists. A complaint names the place, as in `tasks[3].needs.cpus`.

use std::collections::BTreeMap;

use loxley_model::Rerun;

use crate::{
    ApiError, CommandRequest, Entries, ExtendRequest, FallbackRequest, FunctionRequest, JobRequest,
    Needs, RetryRequest, TaskRequest, TokenRequest, Work,
};

/// The largest body of a request.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// The most tasks that a job may list; arrays count once.
pub const TASKS_MAX: usize = 1_000_000;
/// The most entries of an array.
pub const ENTRIES_MAX: u64 = 100_000_000;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// The most words of a command.
pub const WORDS_MAX: usize = 10_000;
/// The most variables of an environment.
pub const ENVIRONMENT_MAX: usize = 10_000;
/// The most skills, named needs, dependencies of a task and the like.
pub const LIST_MAX: usize = 10_000;
/// The longest duration: a century.
pub const SECONDS_MAX: f64 = 100.0 * 365.25 * 86_400.0;
/// The longest single text: a word, a path, an entry. A process cannot be given longer ones.
const TEXT_BYTES_MAX: usize = 128 << 10;
const RETRIES_MAX: u32 = 1_000_000;
const CPUS_MAX: f64 = 1e6;
const OUTPUT_KEEP_MAX: u32 = 16 << 20;

type Check = Result<(), ApiError>;

impl JobRequest {
    /// How many tasks it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counts = self.tasks.iter().map(TaskRequest::count);
        counts.fold(0, u64::saturating_add)
    }

    /// Whether the request can be acted on: every name, number and length is in bounds, names are
    /// different, and what tasks refer to is there. Circles are for the scheduler to find.
    pub fn check(&self) -> Check {
        optional_name("name", self.name.as_deref())?;
        optional_name("user", self.user.as_deref())?;
        optional_name("key", self.key.as_deref())?;
        if let Some(parent) = &self.traceparent
            && !crate::is_traceparent(parent)
        {
            let message = "not like 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            return Err(invalid("traceparent", message));
        }
        at_most("after", self.after.len(), LIST_MAX)?;
        at_most("limits", self.limits.len(), LIST_MAX)?;
        for (group, limit) in &self.limits {
            name("limits", group)?;
            if *limit == 0 {
                return Err(invalid("limits", format!("`{group}: 0` would run nothing")));
            }
        }
        if self.tasks.is_empty() {
            return Err(invalid("tasks", "a job has at least one task"));
        }
        at_most("tasks", self.tasks.len(), TASKS_MAX)?;
        if self.count() > ENTRIES_MAX {
            let message = format!("more than {ENTRIES_MAX} tasks in one job");
            return Err(invalid("tasks", message));
        }
        at_most("done", self.done.len(), TASKS_MAX)?;
        for numbers in &self.done {
            if numbers.first == 0 || numbers.last < numbers.first || numbers.last > self.count() {
                let message = "numbers of tasks go from 1 to as many as there are";
                return Err(invalid("done", message));
            }
        }
        if self.open && !self.tasks.iter().any(|task| task.entries.is_some()) {
            return Err(invalid("open", "only an array takes more entries later"));
        }
        let names = self.names()?;
        let mut tasks = self.tasks.iter().enumerate();
        tasks.try_for_each(|(index, task)| {
            task.check(&names, self.open)
                .map_err(|error| at(index, error))
        })
    }

    /// The names of tasks, with how many each stands for.
    fn names(&self) -> Result<BTreeMap<&str, u64>, ApiError> {
        let mut names = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let Some(name) = &task.name else { continue };
            if names.insert(name.as_str(), task.count()).is_some() {
                let twice = invalid("name", format!("`{name}` is there twice"));
                return Err(at(index, twice));
            }
        }
        Ok(names)
    }
}

impl TaskRequest {
    fn check(&self, names: &BTreeMap<&str, u64>, open: bool) -> Check {
        optional_name("name", self.name.as_deref())?;
        match &self.run {
            Work::Command(command) => command.check(self.entries.is_some())?,
            Work::Function(function) => function.check()?,
        }
        // One that takes entries later may begin without any.
        if let Some(entries) = &self.entries
            && !(open && entries.count() == 0)
        {
            entries.check()?;
        }
        at_most("depends_on", self.depends_on.len(), TASKS_MAX)?;
        let earlier = self.depends_on_tasks.len();
        at_most("depends_on_tasks", earlier, TASKS_MAX)?;
        for dependency in &self.depends_on {
            known("depends_on", names, dependency)?;
        }
        at_most("depends_on_each", self.depends_on_each.len(), TASKS_MAX)?;
        for dependency in &self.depends_on_each {
            known("depends_on_each", names, dependency)?;
            self.as_many("depends_on_each", names, dependency)?;
        }
        if let Some(FallbackRequest::Task(task)) = &self.fallback {
            known("fallback", names, task)?;
            self.as_many("fallback", names, task)?;
        }
        at_most("skills", self.skills.len(), LIST_MAX)?;
        for skill in &self.skills {
            name("skills", skill)?;
        }
        if self.rerun == Rerun::Never && (self.retry.retries > 0 || self.speculate) {
            let message = "a task that must not run twice has no retries and no second copies";
            return Err(invalid("rerun", message));
        }
        optional_name("group", self.group.as_deref())?;
        optional_name("kind", self.kind.as_deref())?;
        for (place, value) in [
            ("cost_sec", self.cost_sec),
            ("deadline_sec", self.deadline_sec),
            ("time_limit_sec", self.time_limit_sec),
            ("hold_limit_sec", self.hold_limit_sec),
        ] {
            value.map_or(Ok(()), |value| seconds(place, value))?;
        }
        self.needs.check()?;
        self.retry.check()?;
        if let Some(near) = &self.near {
            name("near.data", &near.data)?;
            seconds("near.transfer_sec", near.transfer_sec)?;
        }
        if self.output.keep_bytes > OUTPUT_KEEP_MAX {
            let message = format!("more than {OUTPUT_KEEP_MAX}");
            return Err(invalid("output.keep_bytes", message));
        }
        optional_path("output.directory", self.output.directory.as_deref())
    }

    /// What goes entry by entry has as many entries.
    fn as_many(&self, place: &str, names: &BTreeMap<&str, u64>, other: &str) -> Check {
        let (own, others) = (self.count(), names[other]);
        if own == others {
            return Ok(());
        }
        let message = format!("`{other}` stands for {others} tasks, this one for {own}");
        Err(invalid(place, message))
    }
}

impl ExtendRequest {
    /// Whether the entries are in bounds.
    pub fn check(&self) -> Check {
        optional_name("task", self.task.as_deref())?;
        self.entries.check()?;
        if self.entries.count() > ENTRIES_MAX {
            let message = format!("more than {ENTRIES_MAX} entries at once");
            return Err(invalid("entries", message));
        }
        self.cost_sec
            .map_or(Ok(()), |value| seconds("cost_sec", value))
    }
}

impl CommandRequest {
    fn check(&self, is_array: bool) -> Check {
        at_most("run.command.words", self.words.len(), WORDS_MAX)?;
        if self.words.first().is_none_or(String::is_empty) {
            return Err(invalid("run.command.words", "the program is missing"));
        }
        for word in &self.words {
            text("run.command.words", word)?;
        }
        optional_path("run.command.shell", self.shell.as_deref())?;
        if let Err(error) = self.template(is_array) {
            return Err(invalid("run.command.words", error));
        }
        let variables = self.environment.len();
        at_most("run.command.environment", variables, ENVIRONMENT_MAX)?;
        for (key, value) in &self.environment {
            if key.is_empty() || key.contains('=') {
                let message = format!("`{key}` cannot be the name of a variable");
                return Err(invalid("run.command.environment", message));
            }
            text("run.command.environment", key)?;
            text("run.command.environment", value)?;
        }
        optional_path("run.command.directory", self.directory.as_deref())
    }
}

impl FunctionRequest {
    fn check(&self) -> Check {
        name("run.function.name", &self.name)
    }
}

impl Entries {
    fn check(&self) -> Check {
        match self {
            Self::Range { step: 0, .. } => Err(invalid("entries.range.step", "must not be 0")),
            Self::Range { first, last, .. } if first > last => Err(invalid(
                "entries.range",
                format!("{first} comes after {last}"),
            )),
            Self::Range { .. } => Ok(()),
            Self::Lines(lines) if lines.is_empty() => {
                Err(invalid("entries.lines", "an array has at least one entry"))
            }
            Self::Lines(lines) => lines
                .iter()
                .try_for_each(|line| text("entries.lines", line)),
        }
    }
}

impl Needs {
    /// Whether these amounts can be counted with.
    pub fn check(&self) -> Check {
        if !(0.0..=CPUS_MAX).contains(&self.cpus) {
            let message = format!("{} is not a number of processors", self.cpus);
            return Err(invalid("needs.cpus", message));
        }
        // Sums of such amounts stay far from the end of the number line.
        let amounts = [&self.memory_bytes].into_iter().chain(self.named.values());
        for amount in amounts {
            if *amount > 1 << 53 {
                return Err(invalid("needs", format!("{amount} is more than 2^53")));
            }
        }
        names_of("needs.named", &self.named)
    }
}

impl RetryRequest {
    fn check(&self) -> Check {
        if self.retries > RETRIES_MAX {
            return Err(invalid("retry.retries", format!("more than {RETRIES_MAX}")));
        }
        seconds("retry.base_sec", self.base_sec)?;
        seconds("retry.cap_sec", self.cap_sec)
    }
}

impl TokenRequest {
    /// Whether such a token can be made. Its name becomes part of no path.
    pub fn check(&self) -> Check {
        name("name", &self.name)?;
        optional_name("user", self.user.as_deref())
    }
}

fn names_of<T>(place: &str, map: &BTreeMap<String, T>) -> Check {
    at_most(place, map.len(), LIST_MAX)?;
    map.keys().try_for_each(|key| name(place, key))
}

fn optional_name(place: &str, text: Option<&str>) -> Check {
    text.map_or(Ok(()), |text| name(place, text))
}

/// The same rule as for names in the scheduler, so that nothing accepted here fails there.
fn name(place: &str, text: &str) -> Check {
    let wrong = if text.trim().is_empty() {
        "is empty"
    } else if text.len() > NAME_BYTES_MAX {
        "is longer than 256 bytes"
    } else if text.chars().any(char::is_control) {
        "holds a control character"
    } else {
        return Ok(());
    };
    Err(invalid(place, format!("a name {wrong}")))
}

/// What a process can be given.
fn text(place: &str, text: &str) -> Check {
    if text.len() > TEXT_BYTES_MAX {
        return Err(invalid(
            place,
            format!("longer than {TEXT_BYTES_MAX} bytes"),
        ));
    }
    if text.contains('\0') {
        return Err(invalid(place, "holds a zero byte"));
    }
    Ok(())
}

fn optional_path(place: &str, path: Option<&str>) -> Check {
    match path {
        Some("") => Err(invalid(place, "is empty")),
        Some(path) => text(place, path),
        None => Ok(()),
    }
}

fn seconds(place: &str, value: f64) -> Check {
    if (0.0..=SECONDS_MAX).contains(&value) {
        return Ok(());
    }
    Err(invalid(
        place,
        format!("{value} is not a number of seconds"),
    ))
}

fn known(place: &str, names: &BTreeMap<&str, u64>, task: &str) -> Check {
    if names.contains_key(task) {
        return Ok(());
    }
    Err(invalid(place, format!("this job has no task `{task}`")))
}

fn at_most(place: &str, count: usize, max: usize) -> Check {
    if count <= max {
        return Ok(());
    }
    Err(invalid(place, format!("{count} of them; at most {max}")))
}

fn invalid(place: &str, message: impl std::fmt::Display) -> ApiError {
    ApiError::invalid(format!("{place}: {message}"))
}

fn at(index: usize, mut error: ApiError) -> ApiError {
    error.message = format!("tasks[{index}].{}", error.message);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> TaskRequest {
        TaskRequest::new(Work::Command(CommandRequest {
            words: vec!["true".to_owned()],
            ..CommandRequest::default()
        }))
    }

    fn complaint(change: impl FnOnce(&mut JobRequest)) -> String {
        let mut job = JobRequest {
            tasks: vec![task(), task()],
            ..JobRequest::default()
        };
        assert_eq!(job.check(), Ok(()));
        change(&mut job);
        job.check().unwrap_err().message
    }

    #[test]
    fn a_complaint_names_the_place() {
        assert_eq!(
            complaint(|job| job.tasks.clear()),
            "tasks: a job has at least one task"
        );
        assert_eq!(
            complaint(|job| job.tasks[1].needs.cpus = f64::NAN),
            "tasks[1].needs.cpus: NaN is not a number of processors"
        );
        assert_eq!(
            complaint(|job| job.tasks[1].time_limit_sec = Some(-1.0)),
            "tasks[1].time_limit_sec: -1 is not a number of seconds"
        );
        assert_eq!(
            complaint(|job| job.tasks[0].depends_on = vec!["first".to_owned()]),
            "tasks[0].depends_on: this job has no task `first`"
        );
        assert_eq!(
            complaint(|job| {
                job.tasks[0].name = Some("one".to_owned());
                job.tasks[1].depends_on_each = vec!["one".to_owned()];
                job.tasks[1].entries = Some(Entries::Lines(vec!["a".to_owned(), "b".to_owned()]));
            }),
            "tasks[1].depends_on_each: `one` stands for 1 tasks, this one for 2"
        );
        assert_eq!(
            complaint(|job| {
                job.tasks[0].run = Work::Command(CommandRequest {
                    words: vec!["echo {2}".to_owned()],
                    shell: Some("/bin/sh".to_owned()),
                    ..CommandRequest::default()
                });
                job.tasks[0].entries = Some(Entries::Lines(vec!["a".to_owned()]));
            }),
            "tasks[0].run.command.words: {2} asks for list 2 of items, there are 1"
        );
        assert_eq!(
            complaint(|job| job.tasks[0].skills = vec!["a\nb".to_owned()]),
            "tasks[0].skills: a name holds a control character"
        );
        assert_eq!(
            complaint(|job| job
                .tasks
                .iter_mut()
                .for_each(|task| task.name = Some("a".to_owned()))),
            "tasks[1].name: `a` is there twice"
        );
    }

    #[test]
    fn a_range_counts_its_entries() {
        let range = |first, last, step| Entries::Range { first, last, step };
        assert_eq!(range(1, 10, 1).count(), 10);
        assert_eq!(range(1, 10, 4).count(), 3);
        assert_eq!(range(1, 10, 4).text(2), Some("9".to_owned()));
        assert_eq!(range(1, 10, 4).text(3), None);
        assert_eq!(range(0, u64::MAX, 1).count(), u64::MAX);
        assert_eq!(range(5, 4, 1).count(), 0);
        assert_eq!(range(1, 2, 0).count(), 0);
        let too_many = |job: &mut JobRequest| {
            for task in &mut job.tasks {
                task.entries = Some(range(0, u64::MAX, 1));
            }
        };
        assert!(complaint(too_many).contains("more than 100000000"));
    }
}
