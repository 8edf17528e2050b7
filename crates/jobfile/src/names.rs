//! Names become numbers.

use loxley_model::{GroupId, Names, ResourceId, Resources, SkillId, SkillSet};

use crate::job::Needs;

/// The names of a local run, or of a server.
#[derive(Clone, Debug, Default)]
pub struct NameTable {
    /// Skills.
    pub skills: Names<SkillId>,
    /// Named resources.
    pub resources: Names<ResourceId>,
    /// Groups with a limit.
    pub groups: Names<GroupId>,
}

impl NameTable {
    /// The skills of these names.
    ///
    /// # Panics
    /// When a name was not checked: a job file holds only names that can be one.
    pub fn skill_set(&mut self, names: &[String]) -> SkillSet {
        let skills = &mut self.skills;
        let id = |name: &String| skills.intern(name).expect("checked when it was read");
        names.iter().map(id).collect()
    }

    /// The group of this name.
    ///
    /// # Panics
    /// As [`skill_set`](Self::skill_set).
    pub fn group(&mut self, name: &str) -> GroupId {
        self.groups.intern(name).expect("checked when it was read")
    }

    /// The amounts, with numbers for names.
    ///
    /// # Panics
    /// As [`skill_set`](Self::skill_set).
    pub fn amounts(&mut self, needs: &Needs) -> Resources {
        let resources = &mut self.resources;
        let mut id = |name: &String| resources.intern(name).expect("checked when it was read");
        Resources {
            cpu_milli: needs.cpu_milli,
            memory_bytes: needs.memory_bytes,
            named: needs
                .named
                .iter()
                .map(|(name, amount)| (id(name), *amount))
                .collect(),
        }
    }
}
