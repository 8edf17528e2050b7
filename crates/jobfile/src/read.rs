//! From text to a job file: what stands at its top.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use loxley_api::{DependencyFailure, JobRequest, Needs, Work};
use loxley_config::{Fields, Limits, Mistakes, Node, Reader, take_section, text_of};
use loxley_model::{Names, SkillId};

use crate::check;
use crate::job::{AgentDef, JobFile};
use crate::read_task::{self, Draft};

/// What mistakes call a text that has no name; see [`Mistakes::in_file`].
const UNNAMED: &str = "job file";

/// Room for the largest file anybody writes or generates.
const LIMITS: Limits = Limits {
    bytes: 16 << 20,
    nodes: 1_000_000,
    depth: 32,
};

/// Gives the lines of a file that a job file names with `each_line`.
pub type Lines<'a> = &'a mut dyn FnMut(&Path) -> io::Result<Vec<String>>;

/// The job in a file, or everything that is wrong with it. Files that it names are looked for from
/// its own directory on.
pub fn read(path: &Path) -> io::Result<Result<JobFile, Mistakes>> {
    let bytes = fs::read(path)?;
    let base = path.parent().unwrap_or(Path::new(""));
    let mut lines = |file: &Path| {
        let text = fs::read_to_string(base.join(file))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let name = path.display().to_string();
    let parsed = text_of(&name, &bytes).and_then(|text| parse_with(text, &mut lines));
    Ok(parsed
        .map(|mut file| {
            file.start_paths_at(base);
            file
        })
        .map_err(|mistakes| mistakes.in_file(&name)))
}

/// The job in a YAML text, which may not name other files.
pub fn parse(text: &str) -> Result<JobFile, Mistakes> {
    parse_with(text, &mut |_| {
        let message = "other files cannot be read from here";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    })
}

/// As [`parse`], for bytes that may not even be text.
pub fn parse_bytes(bytes: &[u8]) -> Result<JobFile, Mistakes> {
    parse(text_of(UNNAMED, bytes)?)
}

/// The job in a YAML text; `lines` reads the files that it names.
pub fn parse_with(text: &str, lines: Lines<'_>) -> Result<JobFile, Mistakes> {
    let mut reader = Reader::new(UNNAMED, text);
    let file = match Node::parse(text, &LIMITS) {
        Ok(node) => read_file(&node, lines, &mut reader),
        Err(mistake) => {
            reader.note(mistake);
            None
        }
    };
    // Without a mistake there is a file.
    let file = reader.finish(file)?;
    Ok(file.expect("nothing was wrong with it"))
}

impl JobFile {
    fn start_paths_at(&mut self, base: &Path) {
        for task in &mut self.request.tasks {
            if let Work::Command(command) = &mut task.run
                && let Some(directory) = &mut command.directory
            {
                // Both are text, so what is joined is.
                *directory = base.join(&*directory).to_string_lossy().into_owned();
            }
        }
    }
}

/// A name in the file, and where.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) span: Range<usize>,
}

fn read_file(node: &Node, lines: Lines<'_>, reader: &mut Reader<'_>) -> Option<JobFile> {
    let mut top = reader.mapping("the file", node)?;
    let name = top
        .take("name")
        .and_then(|node| read_name("name", node, reader))
        .map(|named| named.name);
    let failure = top
        .take("on_dependency_failure")
        .and_then(|node| reader.choice("on_dependency_failure", node, &["fail", "skip"]));
    let limits = top
        .take("limits")
        .map(|node| read_limits(node, reader))
        .unwrap_or_default();
    let config = take_section(&mut top, reader);
    let agents = top
        .take("agents")
        .map(|node| read_agents(node, reader))
        .unwrap_or_default();
    let defaults = top
        .take("defaults")
        .map(|node| read_task::defaults(node, reader))
        .unwrap_or_default();
    let drafts: Vec<Draft> = top
        .require("tasks", reader)
        .and_then(|node| reader.list("tasks", node, 1..=LIMITS.nodes))
        .unwrap_or_default()
        .iter()
        .filter_map(|node| read_task::task(node, &defaults, lines, reader))
        .collect();
    top.finish(reader);
    check::agents(&agents, reader);
    let tasks = check::tasks(drafts, &agents, &limits, config.as_ref(), reader);
    if reader.has_mistakes() {
        return None;
    }
    let request = JobRequest {
        name,
        on_dependency_failure: match failure {
            Some(1) => DependencyFailure::Skip,
            _ => DependencyFailure::Fail,
        },
        limits: limits
            .into_iter()
            .map(|(name, (_, limit))| (name, limit))
            .collect(),
        tasks,
        ..JobRequest::default()
    };
    let mut file = JobFile {
        request,
        agents: agents.into_iter().map(|agent| agent.agent).collect(),
        config,
    };
    file.drop_empty_arrays();
    if !file.request.tasks.is_empty()
        && let Err(error) = file.request.check()
    {
        let kind = loxley_config::Kind::OutOfRange;
        let span = node.span.clone();
        reader.note(loxley_config::Mistake::new(
            kind,
            span,
            error.message,
            "in this file",
        ));
        return None;
    }
    Some(file)
}

/// The limits of groups, with where each name stands.
pub(crate) type GroupLimits = BTreeMap<String, (Range<usize>, u32)>;

fn read_limits(node: &Node, reader: &mut Reader<'_>) -> GroupLimits {
    let fields = reader.mapping("limits", node).map(Fields::into_rest);
    let mut limits = GroupLimits::new();
    for (key, node) in fields.unwrap_or_default() {
        check_name("the name of a group", &key.name, &key.span, reader);
        if let Some(limit) = reader.whole(&key.name, node, 1..=u64::from(u32::MAX)) {
            limits.insert(key.name.trim().to_owned(), (key.span.clone(), limit as u32));
        }
    }
    limits
}

/// An agent, with where its name stands.
pub(crate) struct PlacedAgent {
    pub(crate) agent: AgentDef,
    pub(crate) span: Range<usize>,
}

/// More would not be agents but a mistake: each slot has a thread.
const SLOTS_MAX: u64 = 4096;

fn read_agents(node: &Node, reader: &mut Reader<'_>) -> Vec<PlacedAgent> {
    let nodes = reader.list("agents", node, 1..=SLOTS_MAX as usize);
    let nodes = nodes.unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| read_agent(node, reader))
        .collect()
}

fn read_agent(node: &Node, reader: &mut Reader<'_>) -> Option<PlacedAgent> {
    let mut fields = reader.mapping("an agent", node)?;
    let name = fields
        .require("name", reader)
        .and_then(|node| read_name("name", node, reader));
    let skills = fields
        .take("skills")
        .map(|node| read_names("skills", node, reader));
    let slots = fields
        .take("slots")
        .and_then(|node| reader.whole("slots", node, 1..=SLOTS_MAX));
    let speed = fields
        .take("speed")
        .and_then(|node| reader.number("speed", node, 0.001..=1000.0));
    let mut has = Needs::default();
    read_needs(&mut fields, &mut has, reader);
    fields.finish(reader);
    let name = name?;
    Some(PlacedAgent {
        agent: AgentDef {
            name: name.name,
            skills: plain(skills.unwrap_or_default()),
            slots: slots.unwrap_or(1) as u32,
            speed: speed.unwrap_or(1.0),
            has,
        },
        span: name.span,
    })
}

/// `cpus`, `memory` and `resources`, of a task or an agent.
pub(crate) fn read_needs(fields: &mut Fields<'_>, needs: &mut Needs, reader: &mut Reader<'_>) {
    if let Some(cpus) = fields
        .take("cpus")
        .and_then(|node| reader.number("cpus", node, 0.0..=100_000.0))
    {
        needs.cpus = cpus;
    }
    if let Some(memory) = fields.take("memory").and_then(|node| {
        amount(
            "memory",
            node,
            crate::amount::SIZE,
            reader,
            crate::amount::bytes,
        )
    }) {
        needs.memory_bytes = memory;
    }
    let Some(node) = fields.take("resources") else {
        return;
    };
    let named = reader.mapping("resources", node).map(Fields::into_rest);
    for (key, node) in named.unwrap_or_default() {
        check_name("the name of a resource", &key.name, &key.span, reader);
        if let Some(amount) = reader.whole(&key.name, node, 0..=u64::from(u32::MAX)) {
            needs.named.insert(key.name.trim().to_owned(), amount);
        }
    }
}

/// A value that is written as text and means an amount.
pub(crate) fn amount<T>(
    what: &str,
    node: &Node,
    allowed: &str,
    reader: &mut Reader<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let text = match &node.value {
        loxley_config::Value::Scalar(text, _) if !node.is_null() => text,
        _ => return reader.wrong_type(what, node, allowed),
    };
    match parse(text) {
        Ok(value) => Some(value),
        Err(_) => reader.out_of_range(what, node, allowed),
    }
}

/// A text that can be a name.
pub(crate) fn read_name(what: &str, node: &Node, reader: &mut Reader<'_>) -> Option<Named> {
    let text = reader.text(what, node)?;
    check_name(what, text, &node.span, reader).then(|| Named {
        name: text.trim().to_owned(),
        span: node.span.clone(),
    })
}

/// Names in a list; a single one may stand without it.
pub(crate) fn read_names(what: &str, node: &Node, reader: &mut Reader<'_>) -> Vec<Named> {
    let one = std::slice::from_ref(node);
    let nodes = match &node.value {
        loxley_config::Value::List(nodes) => nodes,
        _ => one,
    };
    nodes
        .iter()
        .filter_map(|node| read_name(what, node, reader))
        .collect()
}

pub(crate) fn plain(names: Vec<Named>) -> Vec<String> {
    names.into_iter().map(|named| named.name).collect()
}

/// The rules for names are the same for all sorts of them; the sort is in the message.
fn check_name(what: &str, name: &str, span: &Range<usize>, reader: &mut Reader<'_>) -> bool {
    let mut names = Names::<SkillId>::new();
    let Err(_) = names.intern(name) else {
        return true;
    };
    let message = format!("`{what}` is not a name");
    let help = format!(
        "allowed: 1 to {} bytes on one line",
        Names::<SkillId>::LONGEST
    );
    let kind = loxley_config::Kind::OutOfRange;
    reader.note(loxley_config::Mistake::new(kind, span.clone(), message, "this").with_help(help));
    false
}
