//! One task of a job file.

use std::ops::Range;
use std::path::Path;

use loxley_api::{Blob, CommandRequest, Entries, FallbackRequest, RetryRequest, TaskRequest, Work};
use loxley_config::{Fields, Kind, Mistake, Node, Reader, Value};
use loxley_model::{Rerun, Span};

use crate::TASKS_MAX;
use crate::amount::{self, DURATION, PRIORITY};
use crate::ranges::Ranges;
use crate::read::{Lines, Named, amount, plain, read_name, read_names, read_needs};

/// A task whose names nobody has looked up yet.
pub(crate) struct Draft {
    /// Where its name stands.
    pub(crate) span: Range<usize>,
    pub(crate) after: Vec<Named>,
    pub(crate) after_each: Vec<Named>,
    /// The task that stands in.
    pub(crate) fallback: Option<Named>,
    /// Skills and group, with where they stand; empty where `defaults` says them.
    pub(crate) skills: Vec<Named>,
    pub(crate) group: Option<Named>,
    /// Without what it waits for and what stands in for it, unless that is a value.
    pub(crate) task: TaskRequest,
}

/// What `defaults` says, with where skills and group stand.
#[derive(Clone)]
pub(crate) struct Defaults {
    task: TaskRequest,
    /// Its surroundings; the words come from the task itself.
    command: CommandRequest,
    shell: String,
    skills: Vec<Named>,
    group: Option<Named>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            task: TaskRequest::new(Work::Command(CommandRequest::default())),
            command: CommandRequest::default(),
            shell: "/bin/sh".to_owned(),
            skills: Vec::new(),
            group: None,
        }
    }
}

pub(crate) fn defaults(node: &Node, reader: &mut Reader<'_>) -> Defaults {
    let mut defaults = Defaults::default();
    if let Some(mut fields) = reader.mapping("defaults", node) {
        read_traits(&mut fields, &mut defaults, reader);
        fields.finish_with(reader, |key| {
            [
                "name",
                "command",
                "array",
                "each",
                "each_line",
                "after",
                "after_each",
                "fallback",
            ]
            .contains(&key)
            .then(|| "each task says this for itself".to_owned())
        });
    }
    defaults
}

pub(crate) fn task(
    node: &Node,
    defaults: &Defaults,
    lines: Lines<'_>,
    reader: &mut Reader<'_>,
) -> Option<Draft> {
    let mut fields = reader.mapping("a task", node)?;
    let name = fields
        .require("name", reader)
        .and_then(|node| read_name("name", node, reader));
    let entries = read_entries(&mut fields, lines, reader);
    let command = fields.require("command", reader);
    let line = command.and_then(|node| read_command(node, reader));
    let mut names = |key| {
        let node: Option<&Node> = fields.take(key);
        node.map(|node| read_names(key, node, reader))
            .unwrap_or_default()
    };
    let (after, after_each) = (names("after"), names("after_each"));
    let fallback = fields.take("fallback");
    let (value, stand_in) = fallback
        .map(|node| read_fallback(node, reader))
        .unwrap_or_default();
    let mut own = defaults.clone();
    read_traits(&mut fields, &mut own, reader);
    fields.finish(reader);
    if let Some(node) = fallback
        && own.task.time_limit_sec.is_none()
    {
        let message = "a `fallback` without a `time_limit` is never used";
        reader.note(
            Mistake::new(
                Kind::Contradiction,
                node.span.clone(),
                message,
                "stands in for what?",
            )
            .with_help("it stands in when the time limit passes: give one"),
        );
    }
    let mut work = own.command;
    if let (Some(node), Some(line)) = (command, line) {
        (work.words, work.shell) = match line {
            Line::Shell(line) => (vec![line], Some(own.shell)),
            Line::Words(words) => (words, None),
        };
        check_command(node, &work, entries.is_some(), reader);
    }
    let name = name?;
    if own.task.rerun == Rerun::Never && (own.task.speculate || own.task.retry.retries > 0) {
        let message = "`rerun: never` does not go together with `retries` or `speculate`";
        reader.note(
            Mistake::new(Kind::Contradiction, name.span.clone(), message, "this task")
                .with_help("they would run it a second time: leave one of them out"),
        );
    }
    if own.task.checkpoints && own.task.speculate {
        let message = "`checkpoint` and `speculate` do not go together";
        reader.note(
            Mistake::new(Kind::Contradiction, name.span.clone(), message, "this task")
                .with_help("two copies would write one checkpoint: leave one of them out"),
        );
    }
    Some(Draft {
        span: name.span,
        after,
        after_each,
        fallback: stand_in,
        skills: own.skills,
        group: own.group,
        task: TaskRequest {
            // A task whose command is wrong keeps its name: others may wait for it.
            name: Some(name.name),
            run: Work::Command(work),
            entries,
            fallback: value.map(|text| FallbackRequest::Value(Blob(text.into_bytes()))),
            ..own.task
        },
    })
}

/// A command as it was written.
enum Line {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments: no shell.
    Words(Vec<String>),
}

/// A line for the shell, or a list of words.
fn read_command(node: &Node, reader: &mut Reader<'_>) -> Option<Line> {
    const ALLOWED: &str = "a line for the shell, or a list of a program and its arguments";
    match &node.value {
        Value::Scalar(text, _) if text.trim().is_empty() => {
            reader.out_of_range("command", node, ALLOWED)
        }
        Value::Scalar(text, _) if text.contains('\0') => {
            reader.out_of_range("command", node, ALLOWED)
        }
        Value::Scalar(text, _) => Some(Line::Shell(text.trim_end().to_owned())),
        Value::List(nodes) => {
            let words: Option<Vec<String>> = nodes.iter().map(|node| word(node, reader)).collect();
            match words {
                Some(words) if words.first().is_none_or(String::is_empty) => {
                    reader.out_of_range("command", node, ALLOWED)
                }
                words => words.map(Line::Words),
            }
        }
        Value::Mapping(_) => reader.wrong_type("command", node, ALLOWED),
    }
}

/// A word of a command, or the value of a variable: any text, also an empty one in quotes.
fn word(node: &Node, reader: &mut Reader<'_>) -> Option<String> {
    match &node.value {
        Value::Scalar(text, _) if !text.contains('\0') => Some(text.clone()),
        _ => reader.wrong_type("command", node, "texts and numbers, without a zero byte"),
    }
}

fn check_command(node: &Node, command: &CommandRequest, is_array: bool, reader: &mut Reader<'_>) {
    if let Err(error) = command.template(is_array) {
        let message = format!("this command cannot be filled: {error}");
        reader.note(Mistake::new(
            Kind::OutOfRange,
            node.span.clone(),
            message,
            "this command",
        ));
    }
}

/// `array`, `each` or `each_line`.
fn read_entries(
    fields: &mut Fields<'_>,
    lines: Lines<'_>,
    reader: &mut Reader<'_>,
) -> Option<Entries> {
    let array = fields.take("array");
    let each = fields.take("each");
    let each_line = fields.take("each_line");
    let given: Vec<&Node> = [array, each, each_line].into_iter().flatten().collect();
    if let [first, second, ..] = given.as_slice() {
        let message = "entries come from one place";
        reader.note(
            Mistake::new(
                Kind::Contradiction,
                second.span.clone(),
                message,
                "and here",
            )
            .with_other(first.span.clone(), "from here")
            .with_help("keep one of `array`, `each` and `each_line`"),
        );
    }
    if let Some(node) = array {
        const ALLOWED: &str = "numbers and ranges like 1-1000, 1-9:2 or 1,3,5-8";
        let ranges: Ranges = amount("array", node, ALLOWED, reader, |text| text.parse())?;
        if ranges.count() > TASKS_MAX {
            return reader.out_of_range("array", node, &format!("at most {TASKS_MAX} entries"));
        }
        return Some(Entries::from(&ranges));
    }
    if let Some(node) = each {
        let nodes = reader.list("each", node, 0..=TASKS_MAX as usize)?;
        let items: Option<Vec<String>> = nodes.iter().map(|node| word(node, reader)).collect();
        return items.map(Entries::Lines);
    }
    let node = each_line?;
    let path = reader.text("each_line", node)?;
    match lines(Path::new(path)) {
        Ok(lines)
            if lines.len() as u64 <= TASKS_MAX && !lines.iter().any(|line| line.contains('\0')) =>
        {
            Some(Entries::Lines(lines))
        }
        Ok(_) => reader.out_of_range(
            "each_line",
            node,
            &format!("a file of at most {TASKS_MAX} lines, without a zero byte"),
        ),
        Err(error) => {
            let message = format!("the file of `each_line` cannot be read: {error}");
            reader.note(Mistake::new(
                Kind::OutOfRange,
                node.span.clone(),
                message,
                "this file",
            ));
            None
        }
    }
}

/// `{value: TEXT}` or `{task: NAME}`.
fn read_fallback(node: &Node, reader: &mut Reader<'_>) -> (Option<String>, Option<Named>) {
    let Some(mut fields) = reader.mapping("fallback", node) else {
        return (None, None);
    };
    let (value, task) = (fields.take("value"), fields.take("task"));
    fields.finish(reader);
    if value.is_some() == task.is_some() {
        let message = "a fallback is one thing: a value or a task";
        reader.note(
            Mistake::new(
                Kind::Contradiction,
                node.span.clone(),
                message,
                "this fallback",
            )
            .with_help("allowed: {value: TEXT} or {task: NAME}"),
        );
    }
    (
        value.and_then(|node| word(node, reader)),
        task.and_then(|node| read_name("task", node, reader)),
    )
}

/// What both `defaults` and a task may say.
fn read_traits(fields: &mut Fields<'_>, into: &mut Defaults, reader: &mut Reader<'_>) {
    let task = &mut into.task;
    if let Some(node) = fields.take("skills") {
        into.skills = read_names("skills", node, reader);
        task.skills = plain(into.skills.clone());
    }
    if let Some(node) = fields.take("group") {
        into.group = read_name("group", node, reader);
        task.group = into.group.as_ref().map(|named| named.name.clone());
    }
    if let Some(node) = fields.take("kind") {
        task.kind = read_name("kind", node, reader).map(|named| named.name);
    }
    if let Some(priority) = fields
        .take("priority")
        .and_then(|node| amount("priority", node, PRIORITY, reader, amount::priority))
    {
        task.priority = priority;
    }
    for (key, place) in [
        ("deadline", &mut task.deadline_sec),
        ("cost", &mut task.cost_sec),
        ("time_limit", &mut task.time_limit_sec),
        ("hold_limit", &mut task.hold_limit_sec),
    ] {
        if let Some(node) = fields.take(key) {
            *place = seconds(key, node, reader);
        }
    }
    read_needs(fields, &mut task.needs, reader);
    if let Some(node) = fields.take("retries") {
        read_retries(node, &mut task.retry, reader);
    }
    if let Some(rerun) = fields
        .take("rerun")
        .and_then(|node| reader.choice("rerun", node, &["on_loss", "never"]))
    {
        task.rerun = match rerun {
            0 => Rerun::OnLoss,
            _ => Rerun::Never,
        };
    }
    for (key, place) in [
        ("checkpoint", &mut task.checkpoints),
        ("speculate", &mut task.speculate),
    ] {
        if let Some(flag) = fields.take(key).and_then(|node| reader.flag(key, node)) {
            *place = flag;
        }
    }
    if let Some(node) = fields.take("env") {
        read_environment(node, &mut into.command, reader);
    }
    if let Some(directory) = fields
        .take("directory")
        .and_then(|node| reader.text("directory", node))
    {
        into.command.directory = Some(directory.to_owned());
    }
    if let Some(shell) = fields
        .take("shell")
        .and_then(|node| reader.text("shell", node))
    {
        into.shell = shell.to_owned();
    }
}

/// A length of time, longer than none.
fn seconds(what: &str, node: &Node, reader: &mut Reader<'_>) -> Option<f64> {
    amount(what, node, DURATION, reader, |text| {
        let seconds = amount::duration(text)?.as_secs_f64();
        let span = Span::try_from_secs_f64(seconds).filter(|span| *span > Span::ZERO);
        let fits = span.is_some() && seconds <= loxley_api::SECONDS_MAX;
        fits.then_some(seconds).ok_or_else(String::new)
    })
}

/// `3`, or `{count: 3, first: 100ms, longest: 30s}`.
fn read_retries(node: &Node, retry: &mut RetryRequest, reader: &mut Reader<'_>) {
    const MOST: u64 = 1000;
    if !matches!(node.value, Value::Mapping(_)) {
        if let Some(count) = reader.whole("retries", node, 0..=MOST) {
            retry.retries = count as u32;
        }
        return;
    }
    let Some(mut fields) = reader.mapping("retries", node) else {
        return;
    };
    if let Some(count) = fields
        .require("count", reader)
        .and_then(|node| reader.whole("count", node, 0..=MOST))
    {
        retry.retries = count as u32;
    }
    for (key, place) in [
        ("first", &mut retry.base_sec),
        ("longest", &mut retry.cap_sec),
    ] {
        if let Some(pause) = fields.take(key).and_then(|node| seconds(key, node, reader)) {
            *place = pause;
        }
    }
    fields.finish(reader);
}

fn read_environment(node: &Node, command: &mut CommandRequest, reader: &mut Reader<'_>) {
    let pairs = reader.mapping("env", node).map(Fields::into_rest);
    for (key, node) in pairs.unwrap_or_default() {
        let good = !key.name.is_empty() && !key.name.contains(['=', '\0']);
        if !good {
            let message = "this cannot be the name of a variable";
            reader.note(
                Mistake::new(Kind::OutOfRange, key.span.clone(), message, "this")
                    .with_help("allowed: not empty, without `=` and zero bytes"),
            );
        } else if let Some(value) = word(node, reader) {
            command.environment.insert(key.name.clone(), value);
        }
    }
}
