//! Names become numbers here. The same facts in the same order give the same numbers.

use std::collections::HashMap;
use std::sync::Arc;

use loxley_api::{ApiError, Needs, TaskRequest};
use loxley_model::{
    AgentId, AgentSpec, DataKey, Dispatch, GroupId, NameError, NameId, Names, ResourceId,
    Resources, RetryRule, SkillId, SkillSet, Span, TaskKind, UserId, ZoneId,
};

use super::fact::AgentRecord;

/// How many kinds are remembered so that like tasks share one; then it starts afresh.
const KINDS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) skills: Names<SkillId>,
    pub(crate) resources: Names<ResourceId>,
    pub(crate) groups: Names<GroupId>,
    pub(crate) users: Names<UserId>,
    pub(crate) zones: Names<ZoneId>,
    pub(super) kinds: HashMap<TaskKind, Arc<TaskKind>>,
}

impl Directory {
    pub(crate) fn user(&mut self, name: &str) -> Result<UserId, ApiError> {
        self.users.intern(name).map_err(bad_name)
    }

    pub(crate) fn group(&mut self, name: &str) -> Result<GroupId, ApiError> {
        self.groups.intern(name).map_err(bad_name)
    }

    /// What an agent is to the policy.
    pub(crate) fn agent_spec(
        &mut self,
        id: AgentId,
        record: &AgentRecord,
    ) -> Result<AgentSpec, NameError> {
        let named = record
            .resources
            .iter()
            .map(|(name, amount)| Ok((self.resources.intern(name)?, *amount)))
            .collect::<Result<_, NameError>>()?;
        let zone = record.zone.as_deref();
        Ok(AgentSpec {
            slots: record.slots,
            speed: record.speed,
            resources: Resources {
                cpu_milli: record.cpu_milli,
                memory_bytes: record.memory_bytes,
                named,
            },
            zone: zone.map(|zone| self.zones.intern(zone)).transpose()?,
            holds: record.holds.iter().map(|data| data_key(data)).collect(),
            dispatch: Dispatch::KeepFull,
            heartbeats: true,
            ..AgentSpec::new(id, self.skill_set(&record.skills)?)
        })
    }

    /// What the tasks of a request have in common, shared with all that are alike.
    pub(crate) fn kind(&mut self, task: &TaskRequest) -> Result<Arc<TaskKind>, ApiError> {
        let group = task.group.as_deref();
        let kind = TaskKind {
            skills: self.skill_set(&task.skills).map_err(bad_name)?,
            needs: self.needs(&task.needs)?,
            group: group.map(|group| self.group(group)).transpose()?,
            time_limit: task.time_limit_sec.and_then(Span::try_from_secs_f64),
            hold_limit: task.hold_limit_sec.and_then(Span::try_from_secs_f64),
            retry: RetryRule {
                retries: task.retry.retries,
                base: span(task.retry.base_sec),
                cap: span(task.retry.cap_sec),
            },
            speculate: task.speculate,
            checkpoints: task.checkpoints,
        };
        if let Some(known) = self.kinds.get(&kind) {
            return Ok(Arc::clone(known));
        }
        if self.kinds.len() >= KINDS_MAX {
            self.kinds.clear();
        }
        let shared = Arc::new(kind.clone());
        self.kinds.insert(kind, Arc::clone(&shared));
        Ok(shared)
    }

    fn skill_set(&mut self, skills: &[String]) -> Result<SkillSet, NameError> {
        skills
            .iter()
            .map(|skill| self.skills.intern(skill))
            .collect()
    }

    fn needs(&mut self, needs: &Needs) -> Result<Resources, ApiError> {
        let named = needs
            .named
            .iter()
            .map(|(name, amount)| Ok((self.resources.intern(name).map_err(bad_name)?, *amount)))
            .collect::<Result<_, ApiError>>()?;
        Ok(Resources {
            cpu_milli: (needs.cpus * 1000.0) as u64,
            memory_bytes: needs.memory_bytes,
            named,
        })
    }

    /// Names of skills, for people.
    pub(crate) fn skill_names(&self, skills: impl IntoIterator<Item = SkillId>) -> Vec<String> {
        skills
            .into_iter()
            .map(|id| name_of(&self.skills, id))
            .collect()
    }
}

/// The name behind an id, or the id itself when it is of no table of ours.
pub(crate) fn name_of<Id: NameId + std::fmt::Display>(names: &Names<Id>, id: Id) -> String {
    names
        .name(id)
        .map_or_else(|| id.to_string(), ToOwned::to_owned)
}

/// Data is known by its name alone: the same name, the same key, in every run.
pub(crate) fn data_key(name: &str) -> DataKey {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    DataKey(hash)
}

pub(crate) fn span(seconds: f64) -> Span {
    Span::try_from_secs_f64(seconds).unwrap_or(Span::MAX)
}

fn bad_name(error: NameError) -> ApiError {
    ApiError::invalid(error.to_string())
}
