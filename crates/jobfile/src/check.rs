//! What only the whole file shows: names that nobody defined, circles, skills that no agent has.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use loxley_api::{FallbackRequest, Needs, TaskRequest};
use loxley_config::{Kind, Mistake, Reader, suggestion};
use loxley_model::Priority;
use loxley_policy::{Config, Matching};

use crate::read::{GroupLimits, Named, PlacedAgent};
use crate::read_task::Draft;
use crate::{EDGES_MAX, TASKS_MAX};

/// No two agents share a name.
pub(crate) fn agents(agents: &[PlacedAgent], reader: &mut Reader<'_>) {
    let names = agents
        .iter()
        .map(|agent| (agent.agent.name.as_str(), &agent.span));
    twice("agent", names, reader);
}

fn twice<'a>(
    noun: &str,
    names: impl Iterator<Item = (&'a str, &'a Range<usize>)>,
    reader: &mut Reader<'_>,
) {
    let mut first_of = HashMap::new();
    for (name, span) in names {
        let first = *first_of.entry(name).or_insert(span);
        if first != span {
            let message = format!("there are two {noun}s `{name}`");
            reader.note(
                Mistake::new(Kind::DuplicateKey, span.clone(), message, "again")
                    .with_other(first.clone(), "first here")
                    .with_help("give one of them another name"),
            );
        }
    }
}

/// Looks up every name, and gives the tasks with what they wait for and what stands in for them.
pub(crate) fn tasks(
    drafts: Vec<Draft>,
    agents: &[PlacedAgent],
    limits: &GroupLimits,
    config: Option<&Config>,
    reader: &mut Reader<'_>,
) -> Vec<TaskRequest> {
    twice(
        "task",
        drafts
            .iter()
            .map(|draft| (name_of(&draft.task), &draft.span)),
        reader,
    );
    let places: HashMap<String, usize> = drafts
        .iter()
        .enumerate()
        .rev()
        .map(|(place, draft)| (name_of(&draft.task).to_owned(), place))
        .collect();
    let lengths: Vec<u64> = drafts.iter().map(|draft| draft.task.count()).collect();
    check_sizes(&drafts, &lengths, reader);
    let mut stand_ins = HashMap::new();
    let mut spans = Vec::with_capacity(drafts.len());
    let mut edges: u64 = 0;
    let mut tasks = Vec::with_capacity(drafts.len());
    let mut waits_for = Vec::with_capacity(drafts.len());
    for (place, draft) in drafts.into_iter().enumerate() {
        check_group(&draft, limits, reader);
        check_agents(&draft, agents, config, reader);
        let mut task = draft.task;
        let mut others = Vec::new();
        let find = |named: &Named, reader: &mut Reader<'_>| look_up(named, &places, reader);
        for named in &draft.after {
            if let Some(other) = find(named, reader) {
                edges = edges.saturating_add(lengths[place].saturating_mul(lengths[other]));
                task.depends_on.push(named.name.clone());
                others.push(other);
            }
        }
        for named in &draft.after_each {
            if let Some(other) = find(named, reader)
                && same_length(&lengths, place, other, named, "after_each", reader)
            {
                edges = edges.saturating_add(lengths[place]);
                task.depends_on_each.push(named.name.clone());
                others.push(other);
            }
        }
        if edges > EDGES_MAX {
            let message =
                format!("up to here the entries wait for each other in more than {EDGES_MAX} ways");
            reader.note(
                Mistake::new(
                    Kind::TooLarge,
                    draft.span.clone(),
                    message,
                    "too much from here on",
                )
                .with_help(
                    "put one task in between that waits for all of one array, or use `after_each`",
                ),
            );
            edges = 0;
        }
        if let Some(named) = &draft.fallback
            && let Some(other) = find(named, reader)
            && same_length(&lengths, place, other, named, "fallback", reader)
            && stands_in_once(&mut stand_ins, place, other, named, reader)
        {
            task.fallback = Some(FallbackRequest::Task(named.name.clone()));
        }
        for names in [&mut task.depends_on, &mut task.depends_on_each] {
            names.sort_unstable();
            names.dedup();
        }
        spans.push(draft.span);
        tasks.push(task);
        waits_for.push(others);
    }
    if let Some(circle) = find_circle(&waits_for) {
        note_circle(&circle, &tasks, &spans, reader);
    }
    tasks
}

fn name_of(task: &TaskRequest) -> &str {
    task.name
        .as_deref()
        .expect("every task of a file has a name")
}

fn check_sizes(drafts: &[Draft], lengths: &[u64], reader: &mut Reader<'_>) {
    let mut total: u64 = 0;
    for (draft, length) in drafts.iter().zip(lengths) {
        let before = total;
        total = total.saturating_add(*length);
        if before <= TASKS_MAX && total > TASKS_MAX {
            let message = format!("the file has more than {TASKS_MAX} tasks, entries counted");
            let label = "too many from here on";
            reader.note(Mistake::new(
                Kind::TooLarge,
                draft.span.clone(),
                message,
                label,
            ));
        }
    }
}

fn look_up(
    named: &Named,
    places: &HashMap<String, usize>,
    reader: &mut Reader<'_>,
) -> Option<usize> {
    let place = places.get(&named.name).copied();
    if place.is_none() && !reader.is_full() {
        // Comparing with each of very many names would take longer than reading the file.
        let few = Some(places).filter(|places| places.len() <= 1000);
        let known = few.into_iter().flat_map(HashMap::keys).map(String::as_str);
        let message = format!("there is no task `{}`", named.name);
        let help = suggestion(&named.name, known).map_or_else(
            || match few {
                Some(few) => format!("the tasks are {}", listed(few.keys().cloned().collect())),
                None => format!("there are {} tasks", places.len()),
            },
            |word| format!("did you mean `{word}`?"),
        );
        reader.note(
            Mistake::new(
                Kind::OutOfRange,
                named.span.clone(),
                message,
                "nobody defines it",
            )
            .with_help(help),
        );
    }
    place
}

fn same_length(
    lengths: &[u64],
    place: usize,
    other: usize,
    named: &Named,
    key: &str,
    reader: &mut Reader<'_>,
) -> bool {
    let (own, others) = (lengths[place], lengths[other]);
    if own != others {
        let message = format!("`{key}` goes entry by entry, and the numbers of entries differ");
        let label = format!("`{}` has {others}, this task has {own}", named.name);
        reader.note(Mistake::new(
            Kind::Contradiction,
            named.span.clone(),
            message,
            label,
        ));
    }
    own == others
}

/// A task stands in for one other, and not for itself.
fn stands_in_once(
    stand_ins: &mut HashMap<usize, Range<usize>>,
    place: usize,
    other: usize,
    named: &Named,
    reader: &mut Reader<'_>,
) -> bool {
    if place == other {
        let message = "a task cannot stand in for itself";
        let label = "this is the task itself";
        reader.note(Mistake::new(
            Kind::Contradiction,
            named.span.clone(),
            message,
            label,
        ));
        return false;
    }
    if let Some(first) = stand_ins.insert(other, named.span.clone()) {
        let message = format!("`{}` stands in for two tasks", named.name);
        reader.note(
            Mistake::new(Kind::Contradiction, named.span.clone(), message, "and here")
                .with_other(first, "here")
                .with_help("give each its own"),
        );
        return false;
    }
    true
}

fn check_group(draft: &Draft, limits: &GroupLimits, reader: &mut Reader<'_>) {
    let Some(group) = &draft.group else { return };
    if limits.contains_key(&group.name) {
        return;
    }
    let message = format!("the group `{}` has no limit", group.name);
    let known = limits.keys().map(String::as_str);
    let help = suggestion(&group.name, known).map_or_else(
        || {
            format!(
                "say how many may run at once, at the top: limits: {{{}: 2}}",
                group.name
            )
        },
        |word| format!("did you mean `{word}`?"),
    );
    let label = "not under `limits`";
    reader.note(Mistake::new(Kind::OutOfRange, group.span.clone(), message, label).with_help(help));
}

/// A local run needs somebody for every task: the rules of the scheduler, known before it starts.
fn check_agents(
    draft: &Draft,
    agents: &[PlacedAgent],
    config: Option<&Config>,
    reader: &mut Reader<'_>,
) {
    if agents.is_empty() {
        return;
    }
    let mut unknown = false;
    for skill in &draft.skills {
        let known = || agents.iter().flat_map(|agent| &agent.agent.skills);
        if known().any(|name| *name == skill.name) {
            continue;
        }
        unknown = true;
        let message = format!("no agent has the skill `{}`", skill.name);
        let help = suggestion(&skill.name, known().map(String::as_str)).map_or_else(
            || format!("the agents have {}", listed(known().cloned().collect())),
            |word| format!("did you mean `{word}`?"),
        );
        let label = "nobody can do this";
        reader.note(
            Mistake::new(Kind::OutOfRange, skill.span.clone(), message, label).with_help(help),
        );
    }
    if unknown {
        return;
    }
    let strict = needs_every_skill(draft.task.priority, config);
    let skills = &draft.task.skills;
    let able = |agent: &&PlacedAgent| {
        let has = |skill: &String| agent.agent.skills.contains(skill);
        match strict {
            true => skills.iter().all(has),
            false => skills.is_empty() || skills.iter().any(has),
        }
    };
    let mut able = agents.iter().filter(able).peekable();
    let (message, help) = if able.peek().is_none() {
        let message = format!("no agent has all the skills of `{}`", name_of(&draft.task));
        (message, "an urgent task needs all of them on one agent")
    } else if !able.any(|agent| has_room(&agent.agent.has, &draft.task.needs)) {
        let message = format!("no agent is large enough for `{}`", name_of(&draft.task));
        let help =
            "one with its skills needs as many `cpus`, `memory` and `resources` as it asks for";
        (message, help)
    } else {
        return;
    };
    let label = "nobody can do this";
    reader.note(Mistake::new(Kind::OutOfRange, draft.span.clone(), message, label).with_help(help));
}

fn needs_every_skill(priority: Priority, config: Option<&Config>) -> bool {
    let default = Config::served();
    let config = config.unwrap_or(&default);
    config.capabilities.matching_strategy == Matching::Exact
        || priority >= config.priority.high_priority_threshold
}

/// As [`Resources::have_room`](loxley_model::Resources::have_room), by name.
fn has_room(has: &Needs, needs: &Needs) -> bool {
    let fits = |total: u64, need: u64| total == 0 || need <= total;
    let named = |(name, need): (&String, &u64)| *need <= has.named.get(name).copied().unwrap_or(0);
    fits(cpu_milli(has.cpus), cpu_milli(needs.cpus))
        && fits(has.memory_bytes, needs.memory_bytes)
        && needs.named.iter().all(named)
}

/// Tasks that wait for each other in a circle, each for the next and the last for the first.
fn find_circle(waits_for: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        OnPath,
        Done,
    }
    let mut seen = vec![Seen::Never; waits_for.len()];
    for start in 0..waits_for.len() {
        if seen[start] != Seen::Never {
            continue;
        }
        // A path of places, each with how many of its dependencies were followed: no recursion, so
        // that a long chain of tasks needs no deep stack.
        let mut path = vec![(start, 0)];
        seen[start] = Seen::OnPath;
        while let Some((place, at)) = path.last_mut() {
            let Some(&next) = waits_for[*place].get(*at) else {
                seen[*place] = Seen::Done;
                path.pop();
                continue;
            };
            *at += 1;
            match seen[next] {
                Seen::Done => {}
                Seen::Never => {
                    seen[next] = Seen::OnPath;
                    path.push((next, 0));
                }
                Seen::OnPath => {
                    let from = path.iter().position(|(place, _)| *place == next);
                    let circle = path[from.unwrap_or(0)..].iter();
                    return Some(circle.map(|(place, _)| *place).collect());
                }
            }
        }
    }
    None
}

fn note_circle(
    circle: &[usize],
    tasks: &[TaskRequest],
    spans: &[Range<usize>],
    reader: &mut Reader<'_>,
) {
    const SHOWN: usize = 12;
    let mut names: Vec<&str> = circle
        .iter()
        .take(SHOWN)
        .map(|place| name_of(&tasks[*place]))
        .collect();
    if circle.len() > SHOWN {
        names.push("…");
    }
    names.push(names[0]);
    let message = format!(
        "tasks wait for each other in a circle: {}",
        names.join(" → ")
    );
    let first = circle.iter().min().copied().unwrap_or_default();
    reader.note(
        Mistake::new(
            Kind::Contradiction,
            spans[first].clone(),
            message,
            "waits for itself in the end",
        )
        .with_help("take one of these out of an `after`"),
    );
}

/// A few of these names, in their order.
fn listed(names: BTreeSet<String>) -> String {
    const SHOWN: usize = 10;
    let more = names.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = names.into_iter().take(SHOWN).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.is_empty() {
        true => "none".to_owned(),
        false => shown.join(", "),
    }
}

/// Processors in thousandths.
fn cpu_milli(cpus: f64) -> u64 {
    (cpus * 1000.0).round() as u64
}
