//! Users and their shares of the fleet.

use serde::{Deserialize, Serialize};

/// Somebody who submits tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserInfo {
    /// Who.
    pub user: String,
    /// The user's share of the slots is proportional to this; 1 when never set.
    pub weight: u32,
    /// How many tasks of the user the scheduler has that are not over.
    pub tasks: u64,
    /// How many of them wait on the queues of agents.
    pub queued: u64,
    /// How many of them agents have.
    pub running: u32,
    /// How many slots the user may have while others wait; 0 while it has no tasks.
    pub share_slots: u32,
}

/// Another weight for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UserWeightRequest {
    /// Whose. It may be somebody who has not submitted anything yet.
    pub user: String,
    /// At least 1, at most 1,000,000. Twice the weight is twice the share.
    pub weight: u32,
}

impl UserWeightRequest {
    /// The greatest weight.
    pub const WEIGHT_MAX: u32 = 1_000_000;

    /// Whether it makes sense.
    ///
    /// # Errors
    /// When the weight is out of range, or nobody can be called that.
    pub fn check(&self) -> Result<(), crate::ApiError> {
        if !(1..=Self::WEIGHT_MAX).contains(&self.weight) {
            let message = format!("weight: from 1 to {}", Self::WEIGHT_MAX);
            return Err(crate::ApiError::invalid(message));
        }
        if self.user.trim().is_empty() || self.user.len() > crate::NAME_BYTES_MAX {
            let message = format!("user: a name of 1 to {} bytes", crate::NAME_BYTES_MAX);
            return Err(crate::ApiError::invalid(message));
        }
        Ok(())
    }
}
