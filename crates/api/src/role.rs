//! Who may do what.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What the holder of a token is to the server.
///
/// | role | looks | submits, cancels, retries | runs tasks | stops, drains, configures, makes tokens |
/// |---|---|---|---|---|
/// | `admin` | yes | yes | yes | yes |
/// | `submit` | yes | yes | no | no |
/// | `agent` | at results, for tasks that depend on them | no | yes | no |
/// | `read` | yes | no | no | no |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Admin,
    /// Work: submit it, wait for it, cancel it.
    Submit,
    /// Run tasks, and nothing else.
    Agent,
    /// Look, and nothing else.
    Read,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// To see jobs, tasks, agents and figures.
    Look,
    /// To submit, cancel and retry.
    Submit,
    /// To run tasks as an agent.
    RunTasks,
    /// To stop, drain and configure the server and its agents, and to make tokens.
    Administer,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Submit, Self::Agent, Self::Read];

    /// Whether this role has a permission.
    #[must_use]
    pub const fn may(self, permission: Permission) -> bool {
        match permission {
            Permission::Look => matches!(self, Self::Admin | Self::Submit | Self::Read),
            Permission::Submit => matches!(self, Self::Admin | Self::Submit),
            Permission::RunTasks => matches!(self, Self::Admin | Self::Agent),
            Permission::Administer => matches!(self, Self::Admin),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Submit => "submit",
            Self::Agent => "agent",
            Self::Read => "read",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a role: admin, submit, agent or read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_can_run_tasks_and_nothing_else() {
        let all = [
            Permission::Look,
            Permission::Submit,
            Permission::RunTasks,
            Permission::Administer,
        ];
        let of = |role: Role| all.map(|permission| role.may(permission));
        assert_eq!(of(Role::Admin), [true, true, true, true]);
        assert_eq!(of(Role::Submit), [true, true, false, false]);
        assert_eq!(of(Role::Agent), [false, false, true, false]);
        assert_eq!(of(Role::Read), [true, false, false, false]);
    }
}
