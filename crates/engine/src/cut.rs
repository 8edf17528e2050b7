//! A small journal out of a large one, also without the names in it.

use std::collections::HashMap;
use std::sync::Arc;

use loxley_api::{Entries, FallbackRequest, JobRequest, TaskRequest, Work};
use loxley_journal::{AppendError, Group, Journal, Limit, Position, Snapshot};
use loxley_model::Time;

use crate::effects::{Effects, Records};
use crate::engine::Engine;
use crate::fact::{AgentRecord, Fact, GroupReader};
use crate::recover::{Begin, RecoverError, beginning};
use crate::submission::Submission;

/// What was cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Facts in the new journal.
    pub facts: u64,
    /// Facts before it, which its snapshot stands for.
    pub before: u64,
    /// Facts after it, which are left out.
    pub after: u64,
    /// Whether the new journal was decided as the old one: then a bug shows in it as well.
    pub same_decisions: bool,
}

/// Why nothing could be cut out.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// The journal cannot be read.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// What other shards wrote holds names that cannot be replaced.
    #[error(
        "the journal is that of one of several shards, and holds what others wrote to it: it cannot be cut without names"
    )]
    OneOfSeveral,
    /// The new one cannot be written.
    #[error("cannot write the new journal")]
    Append(#[from] AppendError),
    /// The journal begins with a snapshot that holds names.
    #[error(
        "the beginning of this journal was pruned, and what stands for it holds names: \
         it cannot be made anonymous"
    )]
    Pruned,
    /// Nothing happened in that time.
    #[error("nothing happened in that time: the journal goes from {first:.3} s to {last:.3} s")]
    Nothing {
        /// The first fact, in seconds since the beginning.
        first: f64,
        /// The last.
        last: f64,
    },
}

/// Writes what happened from `from` to `to`, times of the journal, into a new one. What came before is in its
/// snapshot. With `anonymous`, all names are replaced, and commands, entries, inputs and checkpoints with them.
/// Outputs are never carried along.
///
/// # Errors
/// When one cannot be read or the other not written, or nothing is left.
pub fn cut(
    source: &mut dyn Journal,
    target: &mut dyn Journal,
    from: Time,
    to: Time,
    anonymous: bool,
) -> Result<Cut, CutError> {
    let Begin {
        state,
        mut position,
    } = beginning(source)?;
    let is_pruned = position != Position::START;
    if is_pruned && anonymous {
        return Err(CutError::Pruned);
    }
    let mut aliases = anonymous.then(Aliases::default);
    let mut writer = Writer {
        engine: Engine::resumed(state),
        target,
        next: Position::START,
        has_begun: false,
        before: if is_pruned { 1 } else { 0 },
    };
    let mut cut = Cut {
        facts: 0,
        before: 0,
        after: 0,
        same_decisions: true,
    };
    let (mut first, mut last) = (None, Time::ZERO);
    loop {
        let read = source
            .read(position, Limit::default())
            .map_err(RecoverError::from)?;
        let Some(end) = read.last() else { break };
        position = end.position.next();
        for group in &read {
            let mut reader =
                GroupReader::new(group.position, &group.facts).map_err(RecoverError::from)?;
            let mut is_whole = true;
            while let Some((now, fact)) = reader.next_fact().map_err(RecoverError::from)? {
                first.get_or_insert(now);
                last = now;
                if now > to {
                    cut.after += 1;
                    is_whole = false;
                    continue;
                }
                if anonymous && matches!(fact, Fact::LetterReceived(_) | Fact::GuestFinished { .. })
                {
                    return Err(CutError::OneOfSeveral);
                }
                let fact = match &mut aliases {
                    Some(aliases) => aliases.fact(fact),
                    None => fact,
                };
                if now < from {
                    cut.before += 1;
                    writer.pass_over(now, fact);
                } else {
                    cut.facts += 1;
                    writer.write(now, fact)?;
                }
            }
            writer.flush()?;
            cut.same_decisions &= !is_whole || reader.digest == writer.engine.digest();
        }
    }
    if cut.facts == 0 {
        let seconds = |time: Time| time.0 as f64 / 1e9;
        return Err(CutError::Nothing {
            first: seconds(first.unwrap_or(Time::ZERO)),
            last: seconds(last),
        });
    }
    Ok(cut)
}

/// Writes the new journal.
struct Writer<'a> {
    engine: Engine,
    target: &'a mut dyn Journal,
    next: Position,
    has_begun: bool,
    /// Facts that only the snapshot knows of.
    before: u64,
}

impl Writer<'_> {
    /// Something that happened before.
    fn pass_over(&mut self, now: Time, fact: Fact) {
        let mut effects = Effects::of_the_past();
        let _ = self.engine.state.apply(now, fact, None, &mut effects);
        self.before += 1;
    }

    fn write(&mut self, now: Time, fact: Fact) -> Result<(), AppendError> {
        if !std::mem::replace(&mut self.has_begun, true) && self.before > 0 {
            self.begin_with_snapshot()?;
        }
        // What was refused then is refused now.
        let _ = self.engine.record_and_apply(now, fact, None);
        Ok(())
    }

    /// The state so far stands for everything before. A journal that begins with a snapshot is one whose beginning
    /// was dropped: so there is a group to drop.
    fn begin_with_snapshot(&mut self) -> Result<(), AppendError> {
        let dropped = Group {
            facts: vec![0],
            fact_count: 0,
            ..Group::default()
        };
        let position = self.target.append(Position::START, &dropped)?;
        let state = self.engine.copy_state().pack();
        self.target.save_snapshot(&Snapshot { position, state })?;
        self.target.truncate(position)?;
        self.next = position;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), AppendError> {
        if let Some(group) = self.engine.flush().group {
            self.next = self.target.append(self.next, &group)?;
        }
        Ok(())
    }
}

impl Engine {
    /// An engine that goes on from a state and writes everything down.
    fn resumed(state: crate::state::State) -> Self {
        Self::with(state, Records::Everything, 0)
    }
}

/// Other names, the same for the same: so numbers and decisions stay.
#[derive(Debug, Default)]
struct Aliases {
    known: HashMap<(&'static str, String), usize>,
}

impl Aliases {
    fn of(&mut self, noun: &'static str, name: &str) -> String {
        let next = self.known.len() + 1;
        let number = self.known.entry((noun, name.trim().to_owned()));
        format!("{noun}-{}", number.or_insert(next))
    }

    fn each(&mut self, noun: &'static str, names: &mut [String]) {
        for name in names {
            *name = self.of(noun, name);
        }
    }

    fn maybe(&mut self, noun: &'static str, name: &mut Option<String>) {
        if let Some(name) = name {
            *name = self.of(noun, name);
        }
    }

    fn fact(&mut self, fact: Fact) -> Fact {
        match fact {
            Fact::AgentJoined(record) => Fact::AgentJoined(Box::new(self.agent(*record))),
            Fact::JobSubmitted { request, user } => Fact::JobSubmitted {
                request: Submission::unchecked(self.job(request.request())),
                user: self.of("user", &user),
            },
            Fact::SkillRevoked { agent, skill } => Fact::SkillRevoked {
                agent,
                skill: self.of("skill", &skill),
            },
            Fact::UserWeightSet { user, weight } => Fact::UserWeightSet {
                user: self.of("user", &user),
                weight,
            },
            Fact::JobExtended {
                job,
                task,
                entries,
                cost,
            } => Fact::JobExtended {
                job,
                task,
                entries: nameless(&entries),
                cost,
            },
            Fact::Checkpoint {
                agent, task, lease, ..
            } => Fact::Checkpoint {
                agent,
                task,
                lease,
                state: bytes::Bytes::new(),
            },
            other => other,
        }
    }

    fn agent(&mut self, mut record: AgentRecord) -> AgentRecord {
        record.name = self.of("agent", &record.name);
        if !record.owner.is_empty() {
            record.owner = self.of("owner", &record.owner);
        }
        self.each("skill", &mut record.skills);
        self.maybe("zone", &mut record.zone);
        self.each("data", &mut record.holds);
        for (name, _) in &mut record.resources {
            *name = self.of("resource", name);
        }
        record
    }

    fn job(&mut self, request: &Arc<JobRequest>) -> JobRequest {
        let mut job = JobRequest::clone(request);
        self.maybe("job", &mut job.name);
        self.maybe("user", &mut job.user);
        self.maybe("key", &mut job.key);
        let limits = std::mem::take(&mut job.limits);
        for (group, limit) in limits {
            job.limits.insert(self.of("group", &group), limit);
        }
        for task in &mut job.tasks {
            self.task(task);
        }
        job
    }

    fn task(&mut self, task: &mut TaskRequest) {
        self.maybe("task", &mut task.name);
        self.maybe("kind", &mut task.kind);
        self.maybe("group", &mut task.group);
        self.each("skill", &mut task.skills);
        self.each("task", &mut task.depends_on);
        self.each("task", &mut task.depends_on_each);
        let named = std::mem::take(&mut task.needs.named);
        for (resource, amount) in named {
            task.needs
                .named
                .insert(self.of("resource", &resource), amount);
        }
        if let Some(near) = &mut task.near {
            near.data = self.of("data", &near.data);
        }
        match &mut task.fallback {
            Some(FallbackRequest::Task(name)) => *name = self.of("task", name),
            Some(FallbackRequest::Value(value)) => value.0.clear(),
            None => {}
        }
        task.output.directory = None;
        if let Some(entries) = &mut task.entries {
            *entries = nameless(entries);
        }
        match &mut task.run {
            Work::Command(command) => {
                let whole = format!("{:?} {}", command.shell, command.words.join("\0"));
                command.words = vec![self.of("command", &whole)];
                command.shell = None;
                command.environment.clear();
                command.directory = None;
            }
            Work::Function(function) => {
                function.name = self.of("function", &function.name);
                function.input.0.clear();
            }
        }
    }
}

/// As many entries that say nothing.
fn nameless(entries: &Entries) -> Entries {
    match entries {
        Entries::Range { .. } => entries.clone(),
        Entries::Lines(lines) => Entries::Range {
            first: 1,
            last: lines.len() as u64,
            step: 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_has_the_same_alias_and_another_one_another() {
        let mut aliases = Aliases::default();
        let first = aliases.of("skill", "gpu");
        assert_eq!(first, aliases.of("skill", " gpu "));
        assert_ne!(first, aliases.of("skill", "cpu"));
        assert_ne!(first, aliases.of("zone", "gpu"));
        assert!(!first.contains("gpu"));
    }
}
