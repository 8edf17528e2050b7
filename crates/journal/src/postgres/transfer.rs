//! One end of a [transfer](crate::transfer()), in PostgreSQL.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::Error;

use super::SHARD;
use super::address::Address;
use super::claim::{Claim, Unanswered};
use super::history::PostgresHistory;
use super::journal::{PostgresJournal, runtime};
use super::lease::Lease;
use super::link::{Link, in_words};
use super::rows::{Guard, PackedRows, RowStatements};
use super::schema::{UNFINISHED, VERSION};
use crate::rows::Rows;
use crate::sqlite::seal::Chain;
use crate::transfer::{Both, Copied, Origin, TransferError, Transferred};
use crate::{AppendError, DatabaseError, OpenError};

/// How long others leave a shard to us after we last said that we use it.
const LEASE: Duration = Duration::from_secs(60);

/// Who holds the shard meanwhile: no server.
const HOLDER: u64 = 0;

/// Takes all shards, so that nobody serves from them while they are read.
pub(crate) fn sources(address: &Address) -> Result<Vec<Both>, TransferError> {
    let count = new_runtime(address)?.block_on(async {
        let link = Link::open(address).await.map_err(OpenError::from)?;
        let count = link.shard_count().await;
        count.map_err(|error| other(address, &error))
    })?;
    let mut taken: Vec<Both> = Vec::new();
    for shard in 0..count {
        match source(address, shard.into()) {
            Ok(both) => taken.push(both),
            Err(error) => {
                for both in &mut taken {
                    both.journal.finish()?;
                }
                return Err(error);
            }
        }
    }
    Ok(taken)
}

fn source(address: &Address, shard: i32) -> Result<Both, TransferError> {
    let runtime = new_runtime(address)?;
    let claim = runtime.block_on(async {
        let link = Link::connect(address).await.map_err(OpenError::from)?;
        let state = link
            .shard(shard)
            .await
            .map_err(|error| other(address, &error))?;
        let taken = link.take(shard, state.epoch, HOLDER, "", LEASE).await;
        let taken = taken.map_err(|error| other(address, &error))?;
        taken.ok_or_else(|| TransferError::InUse {
            place: address.place(),
            url: match state.url.is_empty() {
                true => "another copy".to_owned(),
                false => state.url,
            },
        })
    })?;
    let journal = PostgresJournal::begin(runtime, address, claim, Lease::forever())?;
    Ok(Both {
        journal: Box::new(journal),
        history: Box::new(PostgresHistory::open(address, shard)?),
    })
}

/// Has tables filled that say that they are not finished, until they are. `letters`: where what the shards say to each
/// other is copied from.
pub(crate) fn target(
    address: &Address,
    origins: &[Origin],
    letters: Option<&Address>,
    mut fill: impl FnMut(usize, &mut Both) -> Result<Transferred, TransferError>,
) -> Result<Vec<Transferred>, TransferError> {
    let claims = new_runtime(address)?.block_on(prepare(address, origins))?;
    let mut done = Vec::new();
    for (shard, claim) in claims.into_iter().enumerate() {
        let journal =
            PostgresJournal::begin(new_runtime(address)?, address, claim, Lease::forever())?;
        let mut both = Both {
            journal: Box::new(journal),
            history: Box::new(PostgresHistory::open(address, claim.shard)?),
        };
        done.push(fill(shard, &mut both)?);
    }
    let finished = new_runtime(address)?.block_on(async {
        let link = Link::connect(address).await.map_err(OpenError::from)?;
        if let Some(from) = letters {
            copy_letters(from, address, &link).await?;
        }
        let statement = "UPDATE meta SET version = $1 WHERE one = 1 AND version = $2";
        let finished = link.client().execute(statement, &[&VERSION, &UNFINISHED]);
        let finished = finished.await;
        finished.map_err(|error| TransferError::from(OpenError::from(in_words(&error, address))))
    })?;
    match finished {
        1 => Ok(done),
        _ => Err(present(address)),
    }
}

/// What shards have said to each other and not read, and how far they have read.
async fn copy_letters(from: &Address, to: &Address, target: &Link) -> Result<(), TransferError> {
    let failed = |address: &Address, error: &Error| {
        TransferError::from(OpenError::from(in_words(error, address)))
    };
    let source = Link::connect(from).await.map_err(OpenError::from)?;
    let letters = "SELECT src, dst, number, body FROM letter";
    let letters = source.client().query(letters, &[]).await;
    for row in letters.map_err(|error| failed(from, &error))? {
        let statement = "INSERT INTO letter (src, dst, number, body) VALUES ($1, $2, $3, $4)";
        let (src, dst): (i32, i32) = (row.get(0), row.get(1));
        let (number, body): (i64, Vec<u8>) = (row.get(2), row.get(3));
        let put = target.client();
        let put = put.execute(statement, &[&src, &dst, &number, &body]).await;
        put.map_err(|error| failed(to, &error))?;
    }
    let read = "SELECT src, dst, number FROM letter_read";
    let read = source.client().query(read, &[]).await;
    for row in read.map_err(|error| failed(from, &error))? {
        let statement = "INSERT INTO letter_read (src, dst, number) VALUES ($1, $2, $3)";
        let (src, dst, number): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
        let put = target.client();
        let put = put.execute(statement, &[&src, &dst, &number]).await;
        put.map_err(|error| failed(to, &error))?;
    }
    Ok(())
}

fn new_runtime(address: &Address) -> Result<Runtime, OpenError> {
    let runtime = runtime().map_err(|error| DatabaseError::Other {
        place: address.place(),
        why: error.to_string(),
    });
    Ok(runtime?)
}

fn other(address: &Address, error: &Unanswered) -> TransferError {
    let failed = DatabaseError::Other {
        place: address.place(),
        why: error.to_string(),
    };
    OpenError::from(failed).into()
}

fn present(address: &Address) -> TransferError {
    TransferError::Present {
        place: address.place(),
        schema: address.schema().to_owned(),
    }
}

/// Makes the tables, or finds them as they were made, and has them say that they are not finished and where their
/// journal begins.
async fn prepare(address: &Address, origins: &[Origin]) -> Result<Vec<Claim>, TransferError> {
    let link = Link::connect(address).await.map_err(OpenError::from)?;
    let checked = link.check_durability(address).await;
    checked.map_err(OpenError::from)?;
    let version = link.version(address).await.map_err(OpenError::from)?;
    match version {
        None => {
            let made = link.make_tables(address, UNFINISHED).await;
            made.map_err(OpenError::from)?;
        }
        // What an administrator made, or an earlier copy left behind.
        Some(VERSION | UNFINISHED) => {}
        Some(_) => {
            Link::open(address).await.map_err(OpenError::from)?;
        }
    }
    let prepared = claim_empty(&link, origins).await;
    let prepared = prepared.map_err(|error| OpenError::from(in_words(&error, address)))?;
    prepared.ok_or_else(|| present(address))
}

/// None: there is something in it.
async fn claim_empty(link: &Link, origins: &[Origin]) -> Result<Option<Vec<Claim>>, Error> {
    let origin = &origins[0];
    let client = link.client();
    client.batch_execute("BEGIN").await?;
    let locked = "SELECT version FROM meta WHERE one = 1 FOR UPDATE";
    let version: i32 = client.query_one(locked, &[]).await?.get(0);
    if version != UNFINISHED {
        // Somebody served from it, or is about to.
        let used = "SELECT epoch > 0 OR next > 0 OR EXISTS (SELECT 1 FROM shared) \
            OR EXISTS (SELECT 1 FROM instance) FROM shard WHERE id = $1 FOR UPDATE";
        let used: bool = client.query_one(used, &[&SHARD]).await?.get(0);
        if used {
            client.batch_execute("ROLLBACK").await?;
            return Ok(None);
        }
    }
    client
        .batch_execute(
            "DELETE FROM grp; DELETE FROM snapshot; DELETE FROM piece; DELETE FROM job; DELETE FROM task_run; \
             DELETE FROM output; DELETE FROM agent; DELETE FROM shared; DELETE FROM instance; DELETE FROM load; \
             DELETE FROM letter; DELETE FROM letter_read; DELETE FROM shard WHERE id > 0",
        )
        .await?;
    client
        .execute(
            "UPDATE meta SET version = $1, shards = $4, journal = $2, origin_ns = $3 WHERE one = 1",
            &[
                &UNFINISHED,
                &(origin.id as i64),
                &(origin.epoch_unix_ns as i64),
                &(origins.len() as i32),
            ],
        )
        .await?;
    let mut claims = Vec::new();
    for (shard, origin) in (0..).zip(origins) {
        let row = client
            .query_one(
                "INSERT INTO shard (id, epoch, holder, url, expires, base, base_chain, next, chain) \
                 VALUES ($1, 1, $2, '', clock_timestamp(), $3, $4, $3, $4) ON CONFLICT (id) DO UPDATE SET \
                 epoch = shard.epoch + 1, holder = $2, url = '', expires = clock_timestamp(), base = $3, \
                 base_chain = $4, next = $3, chain = $4 RETURNING epoch",
                &[
                    &shard,
                    &(HOLDER as i64),
                    &(origin.base.0 as i64),
                    &&origin.base_chain[..],
                ],
            )
            .await?;
        claims.push(Claim {
            shard,
            epoch: row.get::<_, i64>(0) as u64,
            holder: HOLDER,
        });
    }
    client.batch_execute("COMMIT").await?;
    Ok(Some(claims))
}

impl Copied for PostgresJournal {
    fn origin(&self) -> Origin {
        Origin {
            id: self.id(),
            epoch_unix_ns: self.epoch_unix_nanos(),
            base: self.head.base,
            base_chain: self.head.base_chain,
        }
    }

    fn chain(&self) -> Chain {
        self.head.chain
    }

    fn put_rows(&mut self, rows: &Rows) -> Result<(), AppendError> {
        // The target was empty.
        let packed = PackedRows::new(rows, 0).map_err(AppendError::NotWritten)?;
        let ids = rows.tasks.iter().map(|row| row.task.0 as i64);
        let run = -1 - ids.min().unwrap_or(0);
        let (shard, pos) = (self.claim().shard, self.head.next.0 as i64);
        let after = self.head.chain;
        self.commit(async |connected| {
            let guard = Guard {
                shard,
                pos,
                after: &after[..],
                // Each page has other tasks: all that is copied is older than what comes after it, and of one age.
                run,
            };
            let client = connected.link.client();
            let statements = RowStatements::prepare_for_copies(client).await?;
            let mut steps = Vec::new();
            statements.add(client, &guard, &packed, &mut steps);
            for step in steps {
                step.await?;
            }
            Ok(())
        })
    }

    fn keep(&mut self) -> Result<(), AppendError> {
        // Those that wait for their turn, too.
        let all = "UPDATE shard SET expires = clock_timestamp() + $2 * interval '1 millisecond' \
            WHERE id = $1 OR (holder = 0 AND expires > clock_timestamp())";
        self.lease_for(all, LEASE)
    }

    fn finish(&mut self) -> Result<(), AppendError> {
        let one = "UPDATE shard SET expires = clock_timestamp() + $2 * interval '1 millisecond' WHERE id = $1";
        self.lease_for(one, Duration::ZERO)
    }
}

impl PostgresJournal {
    fn lease_for(&mut self, statement: &str, lease: Duration) -> Result<(), AppendError> {
        let claim = self.claim();
        self.commit(async |connected| {
            let lease = lease.as_millis() as f64;
            let client = connected.link.client();
            client.execute(statement, &[&claim.shard, &lease]).await
        })?;
        Ok(())
    }
}
