//! A job file as a request to a server.
//!
//! An array stays an array where the server can fill in its entries itself: a command in words with
//! `{}` and `{#}`. Any other command is filled in here, entry by entry, and so are arrays whose entries
//! wait for each other one by one.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use loxley_agent::Filling;
use loxley_api::{
    Blob, CommandRequest, DependencyFailure, Entries, FallbackRequest, JobRequest, Needs,
    RetryRequest, TaskRequest, Work,
};
use loxley_jobfile::{FallbackDef, JobFile, Line, TaskDef};
use loxley_model::Span;

/// The request that has a server do what the file says. The agents and the configuration in the file
/// are for local runs; a server has its own.
pub(super) fn request(file: &JobFile) -> Result<JobRequest> {
    let expanded = expanded(file);
    let mut tasks = Vec::new();
    for (definition, task) in file.tasks.iter().enumerate() {
        if expanded.contains(&definition) {
            for entry in 0..task.count() {
                tasks.push(single(file, &expanded, definition, entry)?);
            }
        } else {
            tasks.push(array(file, &expanded, task)?);
        }
    }
    Ok(JobRequest {
        name: file.name.clone(),
        on_dependency_failure: match file.dependency_failure {
            loxley_model::DependencyFailure::Fail => DependencyFailure::Fail,
            loxley_model::DependencyFailure::Skip => DependencyFailure::Skip,
        },
        limits: file.limits.clone(),
        tasks,
        ..JobRequest::default()
    })
}

/// The arrays that must be spelled out entry by entry.
fn expanded(file: &JobFile) -> BTreeSet<usize> {
    let mut expanded = BTreeSet::new();
    for (definition, task) in file.tasks.iter().enumerate() {
        if task.entries.is_some() && !is_plain(&task.command) {
            expanded.insert(definition);
        }
        if !task.after_each.is_empty() {
            expanded.insert(definition);
            expanded.extend(&task.after_each);
        }
    }
    expanded.retain(|definition| file.tasks[*definition].entries.is_some());
    expanded
}

/// Whether the server can fill in the entries: words with no other braces than `{}` and `{#}`.
fn is_plain(line: &Line) -> bool {
    let Line::Words(words) = line else {
        return false;
    };
    words.iter().all(|word| {
        let rest = word.replace("{}", "").replace("{#}", "");
        !rest.contains('{')
    })
}

/// A definition as it is: one task, or an array that the server fills in.
fn array(file: &JobFile, expanded: &BTreeSet<usize>, task: &TaskDef) -> Result<TaskRequest> {
    let words = match (&task.command, &task.entries) {
        (Line::Words(words), _) => words.clone(),
        (Line::Shell(line), None) => vec![task.traits.shell.clone(), "-c".into(), line.clone()],
        (Line::Shell(_), Some(_)) => bail!("`{}` was to be spelled out", task.name),
    };
    let mut request = common(task, words)?;
    request.name = Some(task.name.clone());
    request.entries = task.entries.as_ref().map(entries);
    for other in &task.after {
        request.depends_on.extend(names(file, expanded, *other));
    }
    request.fallback = match &task.fallback {
        None => None,
        Some(FallbackDef::Value(text)) => {
            Some(FallbackRequest::Value(Blob(text.clone().into_bytes())))
        }
        Some(FallbackDef::Task(other)) => {
            Some(FallbackRequest::Task(file.tasks[*other].name.clone()))
        }
    };
    Ok(request)
}

/// One entry of an array that is spelled out.
fn single(
    file: &JobFile,
    expanded: &BTreeSet<usize>,
    definition: usize,
    entry: u64,
) -> Result<TaskRequest> {
    let task = &file.tasks[definition];
    let text = task.entries.as_ref().and_then(|entries| entries.get(entry));
    let text = text.context("an entry that is not there")?;
    let template = task.template()?;
    let command = template.command(&Filling {
        items: &[text.into()],
        sequence: entry + 1,
        slot: 1,
    });
    let words = std::iter::once(command.program).chain(command.arguments);
    let words = words.map(|word| {
        let word = word.into_string();
        word.map_err(|word| anyhow::anyhow!("{} is not UTF-8", word.display()))
    });
    let mut request = common(task, words.collect::<Result<_>>()?)?;
    request.name = Some(entry_name(&task.name, entry));
    for other in &task.after {
        request.depends_on.extend(names(file, expanded, *other));
    }
    for other in &task.after_each {
        let other = entry_name(&file.tasks[*other].name, entry);
        request.depends_on.push(other);
    }
    request.fallback = match &task.fallback {
        Some(FallbackDef::Value(text)) => {
            Some(FallbackRequest::Value(Blob(text.clone().into_bytes())))
        }
        Some(FallbackDef::Task(_)) => bail!("`{}`: an array has no fallback task", task.name),
        None => None,
    };
    Ok(request)
}

/// What a definition is called in the request: once, or once for each entry.
fn names(file: &JobFile, expanded: &BTreeSet<usize>, definition: usize) -> Vec<String> {
    let task = &file.tasks[definition];
    match expanded.contains(&definition) {
        true => (0..task.count())
            .map(|entry| entry_name(&task.name, entry))
            .collect(),
        false => vec![task.name.clone()],
    }
}

fn entry_name(task: &str, entry: u64) -> String {
    format!("{task}[{}]", entry + 1)
}

/// What an entry has in common with its array.
fn common(task: &TaskDef, words: Vec<String>) -> Result<TaskRequest> {
    let traits = &task.traits;
    let directory = match &traits.directory {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_dir()?,
    };
    let directory = directory.into_os_string().into_string();
    let command = CommandRequest {
        words,
        environment: traits.environment.clone(),
        directory: Some(
            directory
                .map_err(|path| anyhow::anyhow!("the directory {} is not UTF-8", path.display()))?,
        ),
    };
    Ok(TaskRequest {
        skills: traits.skills.clone(),
        priority: traits.priority,
        cost_sec: traits.cost.map(Span::as_secs_f64),
        deadline_sec: traits.deadline.map(Span::as_secs_f64),
        needs: Needs {
            cpus: traits.needs.cpu_milli as f64 / 1000.0,
            memory_bytes: traits.needs.memory_bytes,
            named: traits.needs.named.clone(),
        },
        group: traits.group.clone(),
        time_limit_sec: traits.time_limit.map(Span::as_secs_f64),
        hold_limit_sec: traits.hold_limit.map(Span::as_secs_f64),
        retry: RetryRequest {
            retries: traits.retry.retries,
            base_sec: traits.retry.base.as_secs_f64(),
            cap_sec: traits.retry.cap.as_secs_f64(),
        },
        speculate: traits.speculate,
        checkpoints: traits.checkpoint,
        ..TaskRequest::new(Work::Command(command))
    })
}

fn entries(entries: &loxley_jobfile::Entries) -> Entries {
    match entries {
        loxley_jobfile::Entries::Numbers(ranges) => numbers(ranges),
        loxley_jobfile::Entries::Items(items) => Entries::Lines(items.to_vec()),
    }
}

/// Numbers as a range if they are one, else one by one.
pub(super) fn numbers(ranges: &loxley_jobfile::Ranges) -> Entries {
    let (count, first) = (ranges.count(), ranges.get(0).unwrap_or(0));
    let last = ranges.get(count - 1).unwrap_or(first);
    let step = ranges.get(1).and_then(|second| second.checked_sub(first));
    let range = Entries::Range {
        first,
        last,
        step: step.filter(|step| *step > 0).unwrap_or(1),
    };
    // Equal numbers of entries between equal ends, evenly spaced: only one range does that, unless
    // the numbers jump back and forth.
    let is_one = range.count() == count
        && (count <= 2 || {
            let step = step.unwrap_or(1);
            ranges
                .iter()
                .zip(0..)
                .all(|(number, at)| number == first + at * step)
        });
    match is_one {
        true => range,
        false => Entries::Lines(ranges.iter().map(|number| number.to_string()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_a_range_if_they_can_be() {
        let of = |text: &str| numbers(&text.parse().unwrap());
        let range = |first, last, step| Entries::Range { first, last, step };
        assert_eq!(of("1-1000"), range(1, 1000, 1));
        assert_eq!(of("1-9:4"), range(1, 9, 4));
        assert_eq!(of("7"), range(7, 7, 1));
        assert_eq!(of("1,2,3"), range(1, 3, 1));
        let lines =
            |texts: &[&str]| Entries::Lines(texts.iter().map(|t| (*t).to_owned()).collect());
        assert_eq!(of("1,3,5-6"), lines(&["1", "3", "5", "6"]));
        assert_eq!(of("5,1"), lines(&["5", "1"]));
        assert_eq!(of("1,2,9,3"), lines(&["1", "2", "9", "3"]));
    }

    #[test]
    fn a_file_becomes_a_job() {
        let file = loxley_jobfile::parse(
            "name: nightly
limits: {disk: 2}
tasks:
  - {name: split, command: [split, big], time_limit: 10s}
  - {name: plain, each: [a, b], command: [wc, '{}'], after: [split]}
  - {name: shell, each: [a, 'b c'], command: 'wc {}', after: [plain]}
  - {name: pair, each: [x, y], command: [echo, '{}'], after_each: [shell]}
",
        )
        .unwrap();
        let job = request(&file).unwrap();
        assert_eq!(job.check(), Ok(()));
        let named: Vec<(&str, u64, &[String])> = job
            .tasks
            .iter()
            .map(|task| {
                let name = task.name.as_deref().unwrap();
                (name, task.count(), &*task.depends_on)
            })
            .collect();
        let own = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            named,
            [
                ("split", 1, &*own(&[])),
                ("plain", 2, &*own(&["split"])),
                ("shell[1]", 1, &*own(&["plain"])),
                ("shell[2]", 1, &*own(&["plain"])),
                ("pair[1]", 1, &*own(&["shell[1]"])),
                ("pair[2]", 1, &*own(&["shell[2]"])),
            ]
        );
        let Work::Command(command) = &job.tasks[3].run else {
            panic!("a command");
        };
        assert!(command.words.concat().contains("b c"));
    }
}
