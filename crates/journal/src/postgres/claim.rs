//! Who holds a shard: looked at, taken, renewed and given away, each by one statement.
//!
//! The database's own clock decides when a lease is over, so the clocks of servers may differ. Taking one adds one to its
//! epoch, and every write names its epoch: what an earlier holder still has under way finds another number.

use std::time::Duration;

use tokio_postgres::Error;

use super::link::{Link, says};

/// Who may write: a shard, the epoch under which it was taken, and the process that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which shard.
    pub shard: i32,
    /// The how-manieth holder this is.
    pub epoch: u64,
    /// A number drawn by the process.
    pub holder: u64,
}

/// What the database says of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// The epoch of the last holder.
    pub epoch: u64,
    /// Who that is; none before the first.
    pub holder: Option<u64>,
    /// Where it listens.
    pub url: String,
    /// How long its lease still is; zero when it is over.
    pub left: Duration,
    /// Where its journal ends.
    pub next: u64,
    /// Where its newest snapshot stands: whoever takes over reads what comes after it.
    pub snapshot: Option<u64>,
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// A number drawn by its process.
    pub id: u64,
    /// What it is called.
    pub name: String,
    /// Where it listens.
    pub url: String,
    /// Its version.
    pub version: String,
    /// How long ago it was heard of.
    pub silent: Duration,
    /// Since when, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How far its clock is before that of the database, in milliseconds.
    pub clock_ahead_ms: i64,
}

/// What one shard said to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLetter {
    /// Who.
    pub from: u16,
    /// To whom.
    pub to: u16,
    /// From 1, without a gap.
    pub number: u64,
    /// What.
    pub body: Vec<u8>,
}

/// What a server says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// A number drawn by its process.
    pub id: u64,
    /// What it is called.
    pub name: &'a str,
    /// Where it listens.
    pub url: &'a str,
    /// Its version.
    pub version: &'a str,
    /// What its clock shows, in milliseconds since 1970.
    pub unix_ms: u64,
    /// One of the same name that was silent for so long is gone.
    pub silent: Duration,
}

/// A copy of the database, as the database sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// What it calls itself.
    pub name: String,
    /// Whether commits wait for it: `sync`, `quorum`, `potential`, `async`; none where the role may not know.
    pub sync_state: Option<String>,
    /// How far it is behind, in bytes of the log.
    pub lag_bytes: Option<u64>,
}

/// How the database is set up against the loss of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// There is no copy of it.
    None,
    /// There are copies that may lack the last commits.
    Asynchronous,
    /// Commits wait for a copy.
    Synchronous,
}

/// A question to the database that was not answered.
#[derive(Debug, thiserror::Error)]
#[error("the database did not answer: {0}")]
pub struct Unanswered(String);

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self(says(&error))
    }
}

fn signed(number: u64) -> i64 {
    number as i64
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Link {
    /// Looks at a shard.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn shard(&self, shard: i32) -> Result<ShardState, Unanswered> {
        let row = self
            .client()
            .query_one(
                "SELECT epoch, holder, url, next, \
                 greatest(0, extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint, \
                 (SELECT max(pos) FROM snapshot WHERE shard = $1) \
                 FROM shard WHERE id = $1",
                &[&shard],
            )
            .await?;
        let left: i64 = row.get(4);
        Ok(ShardState {
            epoch: row.get::<_, i64>(0) as u64,
            holder: row.get::<_, Option<i64>>(1).map(|holder| holder as u64),
            url: row.get(2),
            next: row.get::<_, i64>(3) as u64,
            left: Duration::from_millis(left as u64),
            snapshot: row.get::<_, Option<i64>>(5).map(|at| at as u64),
        })
    }

    /// How many shards the cluster has; 1 before anybody said.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn shard_count(&self) -> Result<u16, Unanswered> {
        let statement = "SELECT greatest(shards, 1) FROM meta WHERE one = 1";
        let row = self.client().query_one(statement, &[]).await?;
        Ok(row.get::<_, i32>(0) as u16)
    }

    /// Says how much a shard has to do, while it is ours.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn tell_load(&self, claim: Claim, body: &str) -> Result<(), Unanswered> {
        self.client()
            .execute(
                "INSERT INTO load (shard, seen, body) SELECT id, clock_timestamp(), $4 FROM shard \
                 WHERE id = $1 AND epoch = $2 AND holder = $3 \
                 ON CONFLICT (shard) DO UPDATE SET seen = excluded.seen, body = excluded.body",
                &[
                    &claim.shard,
                    &signed(claim.epoch),
                    &signed(claim.holder),
                    &body,
                ],
            )
            .await?;
        Ok(())
    }

    /// How much each shard has to do, and how long ago that was told.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn loads(&self) -> Result<Vec<(i32, Duration, String)>, Unanswered> {
        let statement = "SELECT shard, \
            greatest(0, extract(epoch FROM clock_timestamp() - seen) * 1000)::bigint, body FROM load ORDER BY shard";
        let rows = self.client().query(statement, &[]).await?;
        let loads = rows.iter().map(|row| {
            let ago = Duration::from_millis(row.get::<_, i64>(1) as u64);
            (row.get(0), ago, row.get(2))
        });
        Ok(loads.collect())
    }

    /// Letters to these shards that were not read yet, in the order of their numbers; some of them when there are many.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn letters_to(&self, shards: &[i32]) -> Result<Vec<StoredLetter>, Unanswered> {
        let statement = "SELECT src, dst, number, body FROM letter WHERE dst = ANY($1::int[]) AND number > \
            coalesce((SELECT number FROM letter_read AS read WHERE read.src = letter.src AND read.dst = letter.dst), 0) \
            ORDER BY number, src, dst LIMIT 64";
        let rows = self.client().query(statement, &[&shards]).await?;
        let letters = rows.iter().map(|row| StoredLetter {
            from: row.get::<_, i32>(0) as u16,
            to: row.get::<_, i32>(1) as u16,
            number: row.get::<_, i64>(2) as u64,
            body: row.get(3),
        });
        Ok(letters.collect())
    }

    /// How far the letters of these shards were read: by whom whose letters up to which.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn letters_read(&self, shards: &[i32]) -> Result<Vec<(u16, u16, u64)>, Unanswered> {
        let statement = "SELECT dst, src, number FROM letter_read WHERE src = ANY($1::int[])";
        let rows = self.client().query(statement, &[&shards]).await?;
        let read = rows.iter().map(|row| {
            let shard = |column: usize| row.get::<_, i32>(column) as u16;
            (shard(0), shard(1), row.get::<_, i64>(2) as u64)
        });
        Ok(read.collect())
    }

    /// Takes a shard whose lease is over and whose epoch is still `seen`; none when somebody else was quicker.
    ///
    /// # Errors
    /// When the database does not answer: then it may have been taken, and nobody knows; the lease runs out unused.
    pub async fn take(
        &self,
        shard: i32,
        seen: u64,
        holder: u64,
        url: &str,
        lease: Duration,
    ) -> Result<Option<Claim>, Unanswered> {
        let row = self
            .client()
            .query_opt(
                "UPDATE shard SET epoch = epoch + 1, holder = $3, url = $4, \
                 expires = clock_timestamp() + $5 * interval '1 millisecond' \
                 WHERE id = $1 AND epoch = $2 AND expires <= clock_timestamp() RETURNING epoch",
                &[
                    &shard,
                    &signed(seen),
                    &signed(holder),
                    &url,
                    &(millis(lease) as f64),
                ],
            )
            .await?;
        Ok(row.map(|row| Claim {
            shard,
            epoch: row.get::<_, i64>(0) as u64,
            holder,
        }))
    }

    /// Makes the lease of a claim last for `lease` from now on. False: somebody else has the shard.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn renew(&self, claim: Claim, lease: Duration) -> Result<bool, Unanswered> {
        let changed = self
            .client()
            .execute(
                "UPDATE shard SET expires = clock_timestamp() + $4 * interval '1 millisecond' \
                 WHERE id = $1 AND epoch = $2 AND holder = $3",
                &[
                    &claim.shard,
                    &signed(claim.epoch),
                    &signed(claim.holder),
                    &(millis(lease) as f64),
                ],
            )
            .await?;
        Ok(changed == 1)
    }

    /// Lets a shard go, so that another server may take it at once.
    ///
    /// # Errors
    /// When the database does not answer: then the lease runs out by itself.
    pub async fn release(&self, claim: Claim) -> Result<(), Unanswered> {
        self.renew(claim, Duration::ZERO).await.map(|_| ())
    }

    /// Has the epoch of a shard be this one at least: whoever takes it next has a higher one.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn raise_epoch(&self, shard: i32, epoch: u64) -> Result<(), Unanswered> {
        let statement = "UPDATE shard SET epoch = greatest(epoch, $2) WHERE id = $1";
        let client = self.client();
        client.execute(statement, &[&shard, &signed(epoch)]).await?;
        Ok(())
    }

    /// Says that this server is there. False: another one of this name is, and was heard of within `silent`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn announce(&self, server: &Announcement<'_>) -> Result<bool, Unanswered> {
        let changed = self
            .client()
            .execute(
                "INSERT INTO instance (id, name, url, version, started, seen, clock_ms) \
                 VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp(), \
                 $5 - (extract(epoch FROM clock_timestamp()) * 1000)::bigint) \
                 ON CONFLICT (name) DO UPDATE SET id = excluded.id, url = excluded.url, \
                 version = excluded.version, seen = excluded.seen, clock_ms = excluded.clock_ms, \
                 started = CASE WHEN instance.id = excluded.id THEN instance.started ELSE excluded.started END \
                 WHERE instance.id = excluded.id \
                 OR instance.seen < clock_timestamp() - $6 * interval '1 millisecond'",
                &[
                    &signed(server.id),
                    &server.name,
                    &server.url,
                    &server.version,
                    &signed(server.unix_ms),
                    &(millis(server.silent) as f64),
                ],
            )
            .await?;
        Ok(changed == 1)
    }

    /// Takes this server off the list, and those that nobody has heard of for a day.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn leave(&self, id: u64) -> Result<(), Unanswered> {
        self.client()
            .execute(
                "DELETE FROM instance WHERE id = $1 OR seen < clock_timestamp() - interval '1 day'",
                &[&signed(id)],
            )
            .await?;
        Ok(())
    }

    /// The servers that are or were there, those first that were heard of last.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn instances(&self) -> Result<Vec<Instance>, Unanswered> {
        let rows = self
            .client()
            .query(
                "SELECT id, name, url, version, \
                 greatest(0, extract(epoch FROM clock_timestamp() - seen) * 1000)::bigint, \
                 (extract(epoch FROM started) * 1000)::bigint, clock_ms \
                 FROM instance ORDER BY seen DESC LIMIT 1000",
                &[],
            )
            .await?;
        let instances = rows.iter().map(|row| Instance {
            id: row.get::<_, i64>(0) as u64,
            name: row.get(1),
            url: row.get(2),
            version: row.get(3),
            silent: Duration::from_millis(row.get::<_, i64>(4) as u64),
            started_unix_ms: row.get::<_, i64>(5) as u64,
            clock_ahead_ms: row.get(6),
        });
        Ok(instances.collect())
    }

    /// Whether commits wait for a copy of the database.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn replication(&self) -> Result<Replication, Unanswered> {
        let row = self
            .client()
            .query_one(
                "SELECT current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication), \
                 current_setting('synchronous_commit')",
                &[],
            )
            .await?;
        let waits = !row.get::<_, &str>(0).trim().is_empty() && row.get::<_, &str>(2) != "local";
        Ok(match (waits, row.get::<_, i64>(1)) {
            (true, _) => Replication::Synchronous,
            (false, 0) => Replication::None,
            (false, _) => Replication::Asynchronous,
        })
    }

    /// The copies of the database that are connected to it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn replicas(&self) -> Result<Vec<Replica>, Unanswered> {
        let rows = self
            .client()
            .query(
                "SELECT coalesce(application_name, ''), sync_state, \
                 greatest(0, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::bigint \
                 FROM pg_stat_replication ORDER BY 1 LIMIT 100",
                &[],
            )
            .await?;
        let replicas = rows.iter().map(|row| Replica {
            name: row.get(0),
            sync_state: row.get(1),
            lag_bytes: row.get::<_, Option<i64>>(2).map(|bytes| bytes as u64),
        });
        Ok(replicas.collect())
    }

    /// What the servers have in common under this name.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn shared(&self, name: &str) -> Result<Option<Vec<u8>>, Unanswered> {
        let row = self
            .client()
            .query_opt("SELECT body FROM shared WHERE name = $1", &[&name])
            .await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Puts it there, if what is there is still `before`. False: it is something else.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn share(
        &self,
        name: &str,
        before: Option<&[u8]>,
        body: &[u8],
    ) -> Result<bool, Unanswered> {
        let changed = match before {
            None => self
                .client()
                .execute(
                    "INSERT INTO shared (name, body) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
                    &[&name, &body],
                )
                .await?,
            Some(before) => {
                self.client()
                    .execute(
                        "UPDATE shared SET body = $3 WHERE name = $1 AND body = $2",
                        &[&name, &before, &body],
                    )
                    .await?
            }
        };
        Ok(changed == 1)
    }

    /// The number of the cluster, drawn when its tables were made.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn cluster(&self) -> Result<u64, Unanswered> {
        let row = self
            .client()
            .query_one("SELECT cluster FROM meta WHERE one = 1", &[])
            .await?;
        Ok(row.get::<_, i64>(0) as u64)
    }
}
