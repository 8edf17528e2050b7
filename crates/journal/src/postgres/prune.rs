//! Forgetting: jobs that have been over for long, with all their tasks, a short transaction at a time.
//!
//! The room that rows leave behind is used again once the database has vacuumed; to give it back to the system is the
//! database's business, and its administrator's.

use loxley_model::Time;

use super::journal::{PostgresJournal, damaged};
use super::snapshots::unreadable;
use crate::group::{Journal, Position, PruneStage, Pruned, Pruning, Retention, Room};
use crate::reader::BLOCK_TASKS;
use crate::rows::limits;
use crate::{AppendError, ReadError};

/// Tasks and jobs that one step deletes, and at most a block more: others wait for it.
const DELETED_IN_A_STEP: u64 = 1_000;

/// Jobs that go at once because the journal is too large, as a share of those that are over.
const SHARE_AT_ONCE: i64 = 16;

/// What a row of a job or a run takes, beside its texts and its tasks, with its place in the indexes: about.
const ROW_BYTES: i64 = 250;

/// What a task takes in its run: about.
const TASK_BYTES: i64 = 64;

/// Takes the next step; false when that was the last.
pub(super) fn step(
    journal: &mut PostgresJournal,
    pruning: &mut Pruning,
) -> Result<bool, AppendError> {
    match pruning.stage {
        PruneStage::Begin => {
            pruning.stage = match limit(journal, &pruning.retention).map_err(unreadable)? {
                Time::ZERO => PruneStage::Measure,
                before => PruneStage::Jobs(before),
            };
        }
        PruneStage::Jobs(before) => {
            let step = forget(journal, before)?;
            pruning.pruned.jobs += step.jobs;
            pruning.pruned.tasks += step.tasks;
            if !step.more {
                pruning.stage = PruneStage::Measure;
            }
        }
        PruneStage::Measure => {
            let too_large = match pruning.retention.bytes_max {
                Some(max) => is_larger(journal, max).map_err(unreadable)?,
                None => false,
            };
            let forgot = pruning.pruned.jobs + pruning.pruned.tasks > 0;
            pruning.stage = if !pruning.groups_dropped && (too_large || forgot) {
                pruning.groups_dropped = true;
                let to = covered(journal);
                PruneStage::Groups(to.unwrap_or(journal.first_position()))
            } else if too_large && let Some(before) = oldest(journal).map_err(unreadable)? {
                PruneStage::Jobs(before)
            } else {
                PruneStage::Room
            };
        }
        PruneStage::Groups(before) => {
            if journal.first_position() < before {
                pruning.pruned.groups += journal.drop_some(before)?;
            } else {
                pruning.stage = PruneStage::Measure;
            }
        }
        PruneStage::Room => return Ok(false),
    }
    Ok(true)
}

/// The groups before this are not needed to go on: the newest snapshot can be read.
fn covered(journal: &mut PostgresJournal) -> Option<Position> {
    let newest = journal.snapshots().ok()?.first().copied()?;
    if newest <= journal.first_position() {
        return None;
    }
    journal.snapshot(newest).ok().map(|kept| kept.position)
}

/// What the tables of the journal take, with what of it is not in use: nobody knows that without reading all of it.
pub(super) fn room(journal: &mut PostgresJournal) -> Result<Room, ReadError> {
    let row = journal.ask(async |connected| {
        let statement = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint \
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
            WHERE n.nspname = current_schema() AND c.relkind = 'r'";
        connected.link.client().query_one(statement, &[]).await
    })?;
    Ok(Room {
        bytes: row.get::<_, i64>(0) as u64,
        unused: 0,
    })
}

/// Whether what is there takes more than so many bytes. Tables do not become smaller when rows go, so they are counted,
/// but only when the tables are large enough that it can be so.
fn is_larger(journal: &mut PostgresJournal, max: u64) -> Result<bool, ReadError> {
    if room(journal)?.bytes <= max {
        return Ok(false);
    }
    let shard = journal.claim().shard;
    let row = journal.ask(async |connected| {
        let statement = "SELECT (\
            (SELECT coalesce(sum(octet_length(facts) + 150), 0) FROM grp WHERE shard = $1) + \
            (SELECT coalesce(sum(octet_length(data) + 50), 0) FROM piece WHERE shard = $1) + \
            (SELECT coalesce(sum(octet_length(output) + octet_length(result) + 80), 0) FROM output WHERE shard = $1) + \
            (SELECT coalesce(sum(octet_length(detail) + $2::bigint), 0) FROM job WHERE shard = $1) + \
            (SELECT coalesce(sum(count * $3::bigint + $2::bigint), 0) FROM task_run WHERE shard = $1))::bigint";
        let client = connected.link.client();
        client
            .query_one(statement, &[&shard, &ROW_BYTES, &TASK_BYTES])
            .await
    })?;
    Ok(row.get::<_, i64>(0) as u64 > max)
}

/// Jobs that ended before this are to go, whatever room there is.
fn limit(journal: &mut PostgresJournal, retention: &Retention) -> Result<Time, ReadError> {
    let by_count = match retention.jobs_max {
        Some(keep) => Some(end_of_nth(journal, keep)?),
        None => None,
    };
    let limits = [retention.older_than, by_count].into_iter().flatten();
    let limit = match retention.both {
        true => limits.min(),
        false => limits.max(),
    };
    Ok(limit.unwrap_or(Time::ZERO))
}

/// When the job ended that is the last to be kept, counted from the one that ended last; nothing is before the start
/// when there are fewer.
fn end_of_nth(journal: &mut PostgresJournal, keep: u64) -> Result<Time, ReadError> {
    let newest = "SELECT finished FROM job WHERE shard = $1 AND finished IS NOT NULL \
        ORDER BY finished DESC LIMIT 1 OFFSET $2";
    Ok(match keep.checked_sub(1) {
        Some(nth) => end_at(journal, newest, nth)?.map_or(Time::ZERO, Time),
        None => end_at(journal, newest, 0)?.map_or(Time::ZERO, |end| Time(end + 1)),
    })
}

/// The moment before which the first of the jobs ended that are over: a share of them, at least one. None: no job is
/// over.
fn oldest(journal: &mut PostgresJournal) -> Result<Option<Time>, ReadError> {
    let shard = journal.claim().shard;
    let row = journal.ask(async |connected| {
        let statement = "SELECT count(*) FROM job WHERE shard = $1 AND finished IS NOT NULL";
        let client = connected.link.client();
        client.query_one(statement, &[&shard]).await
    })?;
    let share = row.get::<_, i64>(0) / SHARE_AT_ONCE;
    let first = "SELECT finished FROM job WHERE shard = $1 AND finished IS NOT NULL \
        ORDER BY finished LIMIT 1 OFFSET $2";
    let end = end_at(journal, first, share as u64)?;
    Ok(end.map(|end| Time(end + 1)))
}

fn end_at(
    journal: &mut PostgresJournal,
    statement: &str,
    skip: u64,
) -> Result<Option<u64>, ReadError> {
    let (shard, skip) = (journal.claim().shard, skip.min(limits::NUMBER_MAX) as i64);
    let row = journal.ask(async |connected| {
        let client = connected.link.client();
        client.query_opt(statement, &[&shard, &skip]).await
    })?;
    Ok(row.map(|row| row.get::<_, i64>(0) as u64))
}

/// Forgets the tasks of a job in the first of these blocks that has any. A task that ended twice is one task: all its runs
/// are in one block.
const FORGET_BLOCK: &str = "WITH runs AS (DELETE FROM task_run WHERE shard = $1 AND job = $2 AND block = \
    CASE WHEN $3::bigint = $4::bigint THEN $3::bigint ELSE (SELECT block FROM task_run \
    WHERE shard = $1 AND job = $2 AND block >= $3 AND block <= $4 ORDER BY block LIMIT 1) END RETURNING task), \
    gone AS (SELECT DISTINCT unnest(task) AS task FROM runs), \
    left_behind AS (DELETE FROM output USING gone WHERE output.shard = $1 AND output.task = gone.task) \
    SELECT count(*) FROM gone";

/// Forgets some of the jobs that ended before. The row of a job goes last: as long as it is there, it says how its tasks
/// ended as a whole.
fn forget(journal: &mut PostgresJournal, before: Time) -> Result<Pruned, AppendError> {
    let shard = journal.claim().shard;
    let before = before.0.min(limits::NUMBER_MAX) as i64;
    let (jobs, tasks, more) = journal.commit(async |connected| {
        let client = connected.link.client();
        let most = DELETED_IN_A_STEP as i64;
        let over = client
            .query(
                "SELECT job, first_task, task_count FROM job WHERE shard = $1 AND finished < $2 \
                 ORDER BY job LIMIT $3",
                &[&shard, &before, &(most + 1)],
            )
            .await?;
        let (mut jobs, mut gone): (Vec<i64>, i64) = (Vec::new(), 0);
        let mut more = false;
        for row in &over {
            let left = most - gone - jobs.len() as i64;
            if left <= 0 {
                more = true;
                break;
            }
            let (job, first, count): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let last = first.saturating_add(count - 1).max(first);
            let block = |task: i64| task / BLOCK_TASKS as i64;
            let mut is_empty = false;
            while !is_empty && gone < most {
                let deleted = client
                    .query_one(FORGET_BLOCK, &[&shard, &job, &block(first), &block(last)])
                    .await?;
                let deleted: i64 = deleted.get(0);
                gone += deleted;
                is_empty = deleted == 0;
            }
            if !is_empty {
                more = true;
                break;
            }
            jobs.push(job);
        }
        let rows = "DELETE FROM job WHERE shard = $1 AND job = ANY($2)";
        let jobs = client.execute(rows, &[&shard, &jobs]).await?;
        Ok((jobs, gone as u64, more))
    })?;
    Ok(Pruned {
        jobs,
        tasks,
        more,
        ..Pruned::default()
    })
}

impl PostgresJournal {
    /// Drops some groups before `before`, which a snapshot makes needless, and says how many.
    pub(super) fn drop_some(&mut self, before: Position) -> Result<u64, AppendError> {
        /// Groups that one transaction drops.
        const DROPPED_AT_ONCE: u64 = 1024;
        let to = Position(before.0.min(self.head.base.0 + DROPPED_AT_ONCE));
        if to > self.head.next {
            return Err(unreadable(damaged(to, "it is beyond the end")));
        }
        let chain = self.chain_before(to).map_err(unreadable)?;
        let shard = self.claim().shard;
        let dropped = self.commit(async |connected| {
            let client = connected.link.client();
            let at = to.0 as i64;
            client
                .execute(
                    "DELETE FROM snapshot WHERE shard = $1 AND pos < $2",
                    &[&shard, &at],
                )
                .await?;
            client
                .execute(
                    "UPDATE shard SET base = $2, base_chain = $3 WHERE id = $1",
                    &[&shard, &at, &&chain[..]],
                )
                .await?;
            let gone = "DELETE FROM grp WHERE shard = $1 AND pos < $2";
            client.execute(gone, &[&shard, &at]).await
        })?;
        (self.head.base, self.head.base_chain) = (to, chain);
        Ok(dropped)
    }
}
