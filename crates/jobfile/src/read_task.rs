//! One task of a job file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use loxley_config::{Fields, Kind, Mistake, Node, Reader, Value};
use loxley_model::{RetryRule, Span};

use crate::TASKS_MAX;
use crate::amount::{self, DURATION, PRIORITY};
use crate::entries::Entries;
use crate::job::{FallbackDef, Line, TaskDef, Traits};
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
    pub(crate) task: TaskDef,
}

/// What `defaults` says, with where skills and group stand.
#[derive(Default)]
pub(crate) struct Defaults {
    traits: Traits,
    skills: Vec<Named>,
    group: Option<Named>,
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
    let mut own = Defaults {
        traits: defaults.traits.clone(),
        skills: defaults.skills.clone(),
        group: defaults.group.clone(),
    };
    read_traits(&mut fields, &mut own, reader);
    fields.finish(reader);
    if let Some(node) = fallback
        && own.traits.time_limit.is_none()
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
    if let (Some(node), Some(line)) = (command, &line) {
        check_command(node, line, entries.is_some(), &own.traits.shell, reader);
    }
    let name = name?;
    if own.traits.checkpoint && own.traits.speculate {
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
        task: TaskDef {
            name: name.name,
            // A task whose command is wrong keeps its name: others may wait for it.
            command: line.unwrap_or(Line::Words(Vec::new())),
            entries,
            after: Vec::new(),
            after_each: Vec::new(),
            fallback: value.map(FallbackDef::Value),
            traits: own.traits,
        },
    })
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

fn check_command(
    node: &Node,
    line: &Line,
    has_entries: bool,
    shell: &str,
    reader: &mut Reader<'_>,
) {
    if let Err(error) = line.template(has_entries, shell) {
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
        let ranges: crate::Ranges = amount("array", node, ALLOWED, reader, |text| text.parse())?;
        if ranges.count() > TASKS_MAX {
            return reader.out_of_range("array", node, &format!("at most {TASKS_MAX} entries"));
        }
        return Some(Entries::Numbers(ranges));
    }
    if let Some(node) = each {
        let nodes = reader.list("each", node, 0..=TASKS_MAX as usize)?;
        let items: Option<Vec<String>> = nodes.iter().map(|node| word(node, reader)).collect();
        return items.map(|items| Entries::Items(items.into()));
    }
    let node = each_line?;
    let path = reader.text("each_line", node)?;
    match lines(Path::new(path)) {
        Ok(lines)
            if lines.len() as u64 <= TASKS_MAX && !lines.iter().any(|line| line.contains('\0')) =>
        {
            Some(Entries::Items(lines.into()))
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
    let traits = &mut into.traits;
    if let Some(node) = fields.take("skills") {
        into.skills = read_names("skills", node, reader);
        traits.skills = plain(into.skills.clone());
    }
    if let Some(node) = fields.take("group") {
        into.group = read_name("group", node, reader);
        traits.group = into.group.as_ref().map(|named| named.name.clone());
    }
    if let Some(priority) = fields
        .take("priority")
        .and_then(|node| amount("priority", node, PRIORITY, reader, amount::priority))
    {
        traits.priority = priority;
    }
    for (key, place) in [
        ("deadline", &mut traits.deadline),
        ("cost", &mut traits.cost),
        ("time_limit", &mut traits.time_limit),
        ("hold_limit", &mut traits.hold_limit),
    ] {
        if let Some(node) = fields.take(key) {
            *place = span(key, node, reader);
        }
    }
    read_needs(fields, &mut traits.needs, reader);
    if let Some(node) = fields.take("retries") {
        read_retries(node, &mut traits.retry, reader);
    }
    for (key, place) in [
        ("checkpoint", &mut traits.checkpoint),
        ("speculate", &mut traits.speculate),
    ] {
        if let Some(flag) = fields.take(key).and_then(|node| reader.flag(key, node)) {
            *place = flag;
        }
    }
    if let Some(node) = fields.take("env") {
        read_environment(node, &mut traits.environment, reader);
    }
    if let Some(directory) = fields
        .take("directory")
        .and_then(|node| reader.text("directory", node))
    {
        traits.directory = Some(directory.into());
    }
    if let Some(shell) = fields
        .take("shell")
        .and_then(|node| reader.text("shell", node))
    {
        traits.shell = shell.to_owned();
    }
}

/// A length of time, longer than none.
fn span(what: &str, node: &Node, reader: &mut Reader<'_>) -> Option<Span> {
    amount(what, node, DURATION, reader, |text| {
        let duration = amount::duration(text)?;
        Span::try_from_secs_f64(duration.as_secs_f64())
            .filter(|span| *span > Span::ZERO)
            .ok_or_else(String::new)
    })
}

/// `3`, or `{count: 3, first: 100ms, longest: 30s}`.
fn read_retries(node: &Node, retry: &mut RetryRule, reader: &mut Reader<'_>) {
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
    for (key, place) in [("first", &mut retry.base), ("longest", &mut retry.cap)] {
        if let Some(pause) = fields.take(key).and_then(|node| span(key, node, reader)) {
            *place = pause;
        }
    }
    fields.finish(reader);
}

fn read_environment(
    node: &Node,
    environment: &mut BTreeMap<String, String>,
    reader: &mut Reader<'_>,
) {
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
            environment.insert(key.name.clone(), value);
        }
    }
}
