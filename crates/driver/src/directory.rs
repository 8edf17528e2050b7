//! Who is called what. People speak names; the core knows only numbers.
//!
//! A name that was used once keeps its number: the same names in the same order give the same numbers,
//! which is what makes a journal of names replay to the same decisions.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use loxley_model::{
    AgentId, DataKey, GroupId, NameError, NameId, Names, ResourceId, Resources, SkillId, SkillSet,
    Span, TaskId, TaskKind, UserId, WorkKey, ZoneId,
};

/// How many kinds are remembered so that like tasks share one; then it starts afresh.
pub const KINDS_MAX: usize = 4096;

/// The names of everything that has one, but tasks.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Agents, numbered from 1.
    pub agents: Names<AgentId>,
    /// Skills.
    pub skills: Names<SkillId>,
    /// Named resources.
    pub resources: Names<ResourceId>,
    /// Groups with a limit.
    pub groups: Names<GroupId>,
    /// Users.
    pub users: Names<UserId>,
    /// Zones.
    pub zones: Names<ZoneId>,
    kinds: BTreeSet<Arc<TaskKind>>,
}

impl Directory {
    /// A directory in which user 0 is nobody in particular.
    #[must_use]
    pub fn with_default_user() -> Self {
        let mut directory = Self::default();
        directory
            .users
            .intern("default")
            .expect("a word can be a name");
        directory
    }

    /// The numbers of skills.
    ///
    /// # Errors
    /// When one cannot be a name.
    pub fn skill_set(&mut self, skills: &[impl AsRef<str>]) -> Result<SkillSet, NameError> {
        let ids = skills
            .iter()
            .map(|skill| self.skills.intern(skill.as_ref()));
        ids.collect()
    }

    /// Amounts, with numbers for the names of what is not processor or memory.
    ///
    /// # Errors
    /// When one cannot be a name.
    pub fn amounts<'a>(
        &mut self,
        cpu_milli: u64,
        memory_bytes: u64,
        named: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Result<Resources, NameError> {
        let named = named.into_iter();
        Ok(Resources {
            cpu_milli,
            memory_bytes,
            named: named
                .map(|(name, amount)| Ok((self.resources.intern(name)?, amount)))
                .collect::<Result<_, NameError>>()?,
        })
    }

    /// The number of a group, if there is one.
    ///
    /// # Errors
    /// When it cannot be a name.
    pub fn group(&mut self, name: Option<&str>) -> Result<Option<GroupId>, NameError> {
        name.map(|name| self.groups.intern(name)).transpose()
    }

    /// The number of a zone, if there is one.
    ///
    /// # Errors
    /// When it cannot be a name.
    pub fn zone(&mut self, name: Option<&str>) -> Result<Option<ZoneId>, NameError> {
        name.map(|name| self.zones.intern(name)).transpose()
    }

    /// What like tasks have in common, shared by all of them.
    pub fn kind(&mut self, kind: TaskKind) -> Arc<TaskKind> {
        if let Some(known) = self.kinds.get(&kind) {
            return Arc::clone(known);
        }
        if self.kinds.len() >= KINDS_MAX {
            self.kinds.clear();
        }
        let kind = Arc::new(kind);
        self.kinds.insert(Arc::clone(&kind));
        kind
    }

    /// What an agent is called; its number where it has no name here.
    #[must_use]
    pub fn agent_name(&self, id: AgentId) -> Arc<str> {
        shared(&self.agents, id)
    }

    /// What a skill is called.
    #[must_use]
    pub fn skill_name(&self, id: SkillId) -> Arc<str> {
        shared(&self.skills, id)
    }

    /// What skills are called.
    pub fn skill_names(&self, skills: impl IntoIterator<Item = SkillId>) -> Vec<Arc<str>> {
        skills.into_iter().map(|id| self.skill_name(id)).collect()
    }

    /// What a group is called.
    #[must_use]
    pub fn group_name(&self, id: GroupId) -> Arc<str> {
        shared(&self.groups, id)
    }

    /// What a named resource is called.
    #[must_use]
    pub fn resource_name(&self, id: ResourceId) -> Arc<str> {
        shared(&self.resources, id)
    }

    /// What a user is called.
    #[must_use]
    pub fn user_name(&self, id: UserId) -> Arc<str> {
        shared(&self.users, id)
    }

    /// Puts names in the place of `agent-3`, `skill-1`, `group-2`, `user-1` and `task-7` in a text of the
    /// core, each in backquotes. `task_name` knows the names of tasks.
    pub fn with_names(&self, text: &str, task_name: impl Fn(TaskId) -> Option<Arc<str>>) -> String {
        let mut words = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((start, end, name)) = self.next_id(rest, &task_name) {
            words.push_str(&rest[..start]);
            words.push_str(&format!("`{name}`"));
            rest = &rest[end..];
        }
        words.push_str(rest);
        words
    }

    /// The first id in a text: where it starts and ends, and what it is called.
    fn next_id(
        &self,
        text: &str,
        task_name: &impl Fn(TaskId) -> Option<Arc<str>>,
    ) -> Option<(usize, usize, Arc<str>)> {
        let prefixes = ["agent-", "task-", "skill-", "group-", "user-"];
        let mut starts: Vec<(usize, &str)> = prefixes
            .into_iter()
            .flat_map(|prefix| text.match_indices(prefix))
            .collect();
        starts.sort_unstable();
        starts.into_iter().find_map(|(start, prefix)| {
            let digits = &text[start + prefix.len()..];
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = digits[..length].parse().ok()?;
            let small = u32::try_from(number).ok();
            let name = match prefix {
                "agent-" => named(&self.agents, AgentId(number)),
                "task-" => task_name(TaskId(number)),
                "skill-" => named(&self.skills, SkillId(small?)),
                "group-" => named(&self.groups, GroupId(small?)),
                _ => named(&self.users, UserId(small?)),
            };
            Some((start, start + prefix.len() + length, name?))
        })
    }
}

fn named<Id: NameId>(names: &Names<Id>, id: Id) -> Option<Arc<str>> {
    names.shared(id)
}

fn shared<Id: NameId + core::fmt::Display>(names: &Names<Id>, id: Id) -> Arc<str> {
    named(names, id).unwrap_or_else(|| id.to_string().into())
}

/// The number of a piece of data, the same in every process and every run.
#[must_use]
pub fn data_key(name: &str) -> DataKey {
    DataKey(fnv1a(name.trim().bytes()))
}

/// The number of a kind of work: of a word that says what sort of name follows, and of all that makes the name.
/// The same in every process and every run.
pub fn work_key<'a>(sort: &'a str, words: impl IntoIterator<Item = &'a str>) -> WorkKey {
    // No word has a zero in it, so what ends with one cannot run into the next.
    let words = core::iter::once(sort).chain(words);
    WorkKey(fnv1a(words.flat_map(|word| word.bytes().chain([0]))))
}

fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Thousandths, as the core counts processors; none when the number is negative, no number or too large.
#[must_use]
pub fn milli(number: f64) -> Option<u64> {
    Span::try_from_secs_f64(number).map(|span| span.0 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_a_text_become_names() {
        let mut directory = Directory::default();
        let agent = directory.agents.intern("ann").expect("a name");
        assert_eq!(agent, AgentId(1));
        directory.skills.intern("gpu").expect("a name");
        let text = "agent-1 lacks skill-0 and skill-9; task-3, task-4 and non-agent-, agent-0";
        let task_name = |id: TaskId| (id.0 == 4).then(|| "sort".into());
        assert_eq!(
            directory.with_names(text, task_name),
            "`ann` lacks `gpu` and skill-9; task-3, `sort` and non-agent-, agent-0"
        );
    }

    #[test]
    fn tasks_that_are_alike_share_one_kind_and_few_are_remembered() {
        let mut directory = Directory::default();
        let kind = |directory: &mut Directory, cpu_milli: u64| {
            let needs = directory.amounts(cpu_milli, 0, []).expect("no names");
            directory.kind(TaskKind {
                needs,
                ..TaskKind::default()
            })
        };
        let first = kind(&mut directory, 1);
        assert!(Arc::ptr_eq(&first, &kind(&mut directory, 1)));
        for number in 2..10_000 {
            kind(&mut directory, number);
            assert!(directory.kinds.len() <= KINDS_MAX);
        }
    }

    #[test]
    fn data_has_one_number_whatever_surrounds_its_name() {
        assert_eq!(data_key(" a "), data_key("a"));
        assert_ne!(data_key("a"), data_key("b"));
        assert_ne!(
            work_key("command", ["a", "bc"]),
            work_key("command", ["ab", "c"])
        );
        assert_ne!(work_key("command", ["a"]), work_key("function", ["a"]));
        assert_eq!(milli(1.5), Some(1500));
        assert_eq!(milli(-1.0), None);
    }
}
