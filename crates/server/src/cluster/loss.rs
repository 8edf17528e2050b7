//! What the journal of a shard has lost, as all servers know it.
//!
//! Whoever finds out writes it into the database, where it stays: nobody takes the shard until somebody who is responsible
//! has said that the fleet is to go on without what is gone. What agents were told until then counts for nothing after that:
//! they begin anew.

use loxley_journal::OpenError;
use loxley_journal::postgres::{Address, Link, Unanswered};
use serde::{Deserialize, Serialize};

use super::failed;
use crate::decider::Loss;
use crate::server::ServerError;

/// What stands in the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) loss: Loss,
    /// Whether the fleet goes on without.
    pub(super) accepted: bool,
}

fn name(shard: u16) -> String {
    format!("loss of shard {shard}")
}

/// What is known of a loss.
pub(super) async fn of(link: &Link, shard: u16) -> Result<Option<Mark>, Unanswered> {
    let known = link.shared(&name(shard)).await?;
    // One of a later version that cannot be read is one that was not accepted.
    Ok(known.map(|known| {
        serde_json::from_slice(&known).unwrap_or_else(|_| Mark {
            loss: Loss {
                message: String::from_utf8_lossy(&known).into_owned(),
                epoch: u64::MAX,
            },
            accepted: false,
        })
    }))
}

/// Has everybody know of a loss.
pub(super) async fn note(link: &Link, shard: u16, loss: Loss) -> Result<(), Unanswered> {
    let accepted = false;
    put(link, shard, &Mark { loss, accepted }).await
}

async fn put(link: &Link, shard: u16, mark: &Mark) -> Result<(), Unanswered> {
    let body = serde_json::to_vec(mark).expect("it is JSON");
    loop {
        let before = link.shared(&name(shard)).await?;
        if before.as_deref() == Some(&body)
            || link.share(&name(shard), before.as_deref(), &body).await?
        {
            return Ok(());
        }
    }
}

/// Has the fleet go on without what its database lost, and returns which shards lost what.
///
/// # Errors
/// When the database cannot be used, or does not answer.
pub async fn accept(address: &Address) -> Result<Vec<(u16, String)>, ServerError> {
    let unanswered = |error: Unanswered| failed(&error);
    let link = Link::connect(address).await.map_err(OpenError::from)?;
    let mut accepted = Vec::new();
    for shard in 0..link.shard_count().await.map_err(unanswered)? {
        let known = of(&link, shard).await.map_err(unanswered)?;
        let Some(mut mark) = known.filter(|mark| !mark.accepted) else {
            continue;
        };
        let state = link.shard(shard.into()).await.map_err(unanswered)?;
        // Agents do not go with an epoch that is lower than one they know, and what is told from here on is told under a
        // higher one than all that was told before.
        mark.loss.epoch = mark.loss.epoch.max(state.epoch);
        mark.accepted = true;
        let raised = link.raise_epoch(shard.into(), mark.loss.epoch).await;
        raised.map_err(unanswered)?;
        put(&link, shard, &mark).await.map_err(unanswered)?;
        accepted.push((shard, mark.loss.message));
    }
    Ok(accepted)
}
