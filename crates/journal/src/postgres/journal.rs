//! Appending, and finding out what came of it.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use loxley_cluster::{Append, Heard, Outcome, Step};
use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};

use super::address::Address;
use super::claim::Claim;
use super::lease::Lease;
use super::link::{Link, says};
use super::rows::{self, PackedRows, RowStatements};
use super::{prune, snapshots};
use crate::failpoint;
use crate::group::{Group, Journal, Limit, Position, Pruning, Room, Saving, Snapshot, StoredGroup};
use crate::rows::limits;
use crate::sqlite::seal::{self, Chain, first_chain, next_chain};
use crate::{AppendError, DatabaseError, NotWritten, OpenError, ReadError};

/// A pause before the database is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// The journal of one shard, for as long as a claim lasts.
#[derive(Debug)]
pub struct PostgresJournal {
    /// Drives the connection while this thread waits for it. Last to go.
    runtime: Option<Runtime>,
    address: Address,
    connected: Option<Connected>,
    claim: Claim,
    lease: Lease,
    pub(super) head: Head,
    id: u64,
    origin_unix_ns: u64,
    /// No task from this one on has left anything behind.
    outputs_end: i64,
    /// A write ended in doubt: nothing more is taken.
    stopped: bool,
}

/// Where the journal begins and ends.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) base: Position,
    pub(super) base_chain: Chain,
    pub(super) next: Position,
    pub(super) chain: Chain,
}

#[derive(Debug)]
pub(super) struct Connected {
    pub(super) link: Link,
    append: Statement,
    rows: RowStatements,
}

/// What came of a transaction that was sent.
enum Sent {
    Committed,
    /// The fence was closed.
    Fenced,
    /// The database said no before the commit.
    Refused(Error),
    /// Nobody knows.
    Unknown(String),
}

/// What came of looking again.
enum Found {
    Written,
    NotWritten,
}

const APPEND: &str = "WITH own AS (UPDATE shard SET next = $4 + 1, chain = $6 \
    WHERE id = $1 AND epoch = $2 AND holder = $3 AND next = $4 AND chain = $5 RETURNING id) \
    INSERT INTO grp (shard, pos, epoch, chain, n, crc, facts) \
    VALUES ((SELECT id FROM own), $4, $2, $6, $7, $8, $9)";

/// Locks the row: that waits for a transaction of ours that is still under way somewhere. Only a transaction that writes
/// waits for a standby at its commit, and locking a row is writing.
const LOCKED: &str = "SELECT epoch, holder, next, chain FROM shard WHERE id = $1 FOR UPDATE";

impl PostgresJournal {
    /// Opens the journal of a shard that was [taken](Link::take), to write it for as long as `lease` holds.
    ///
    /// # Errors
    /// When the database cannot be used, or somebody else has taken the shard since.
    pub fn open(address: &Address, claim: Claim, lease: Lease) -> Result<Self, OpenError> {
        let runtime = runtime().map_err(|error| DatabaseError::Other {
            place: address.place(),
            why: error.to_string(),
        })?;
        runtime.block_on(Link::open(address))?;
        Self::begin(runtime, address, claim, lease)
    }

    /// Opens a journal to read what is there now, whoever writes it meanwhile. It owns nothing: what it would write is
    /// refused, and no table is made or changed.
    ///
    /// # Errors
    /// When the database cannot be used, or holds no journal.
    pub fn observe(address: &Address) -> Result<Self, OpenError> {
        Self::observe_shard(address, super::SHARD)
    }

    /// As [`observe`](Self::observe), of one of several shards.
    ///
    /// # Errors
    /// When the database cannot be used, or holds no journal.
    pub fn observe_shard(address: &Address, shard: i32) -> Result<Self, OpenError> {
        let runtime = runtime().map_err(|error| DatabaseError::Other {
            place: address.place(),
            why: error.to_string(),
        })?;
        let version = runtime.block_on(async {
            let link = Link::connect(address).await?;
            link.version(address).await
        })?;
        let schema = address.schema().to_owned();
        match version {
            Some(super::schema::VERSION) => {}
            Some(found) if found > super::schema::VERSION => {
                let known = super::schema::VERSION;
                return Err(DatabaseError::Newer {
                    schema,
                    found,
                    known,
                }
                .into());
            }
            _ => return Err(DatabaseError::NotAJournal { schema }.into()),
        }
        let nobody = Claim {
            shard,
            epoch: 0,
            holder: u64::MAX,
        };
        Self::begin(runtime, address, nobody, Lease::forever())
    }

    /// As [`open`](Self::open), without a look at what the database is like.
    pub(super) fn begin(
        runtime: Runtime,
        address: &Address,
        claim: Claim,
        lease: Lease,
    ) -> Result<Self, OpenError> {
        let begun = runtime.block_on(begin(address, claim))?;
        Ok(Self {
            runtime: Some(runtime),
            address: address.clone(),
            connected: Some(begun.connected),
            claim,
            lease,
            head: begun.head,
            id: begun.id,
            origin_unix_ns: begun.origin_unix_ns,
            outputs_end: begun.outputs_end,
            stopped: false,
        })
    }

    /// A number drawn when the journal was made.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// When the journal was made, in nanoseconds since 1970. Times in its rows count from here.
    #[must_use]
    pub fn epoch_unix_nanos(&self) -> u64 {
        self.origin_unix_ns
    }

    /// The first group that is kept.
    #[must_use]
    pub fn first_position(&self) -> Position {
        self.head.base
    }

    pub(super) fn claim(&self) -> Claim {
        self.claim
    }

    /// Waits for something that the database does, as long as the lease holds.
    pub(super) fn wait<T>(
        runtime: Option<&Runtime>,
        lease: &Lease,
        what: impl Future<Output = T>,
    ) -> Option<T> {
        let runtime = runtime.expect("it is there until the journal is dropped");
        runtime.block_on(async {
            tokio::pin!(what);
            loop {
                // The lease may have been renewed meanwhile.
                let left = lease.left();
                if left.is_zero() {
                    return None;
                }
                let left = left.min(Duration::from_secs(3600));
                if let Ok(value) = tokio::time::timeout(left, what.as_mut()).await {
                    return Some(value);
                }
            }
        })
    }

    /// The connection; a new one where the last is gone.
    pub(super) fn connected(&mut self) -> Result<&Connected, String> {
        let is_usable = |connected: &Connected| !connected.link.is_closed();
        if !self.connected.as_ref().is_some_and(is_usable) {
            self.connected = None;
            let connecting = connect(&self.address);
            let made = Self::wait(self.runtime.as_ref(), &self.lease, connecting);
            let made = made.ok_or_else(|| "the lease is over".to_owned())?;
            self.connected = Some(made.map_err(|error| error.to_string())?);
        }
        Ok(self.connected.as_ref().expect("it was just made"))
    }

    /// Sends a group until it is known to be written, or not to be: at most as long as the lease holds.
    fn write(
        &mut self,
        at: Position,
        group: &Group,
        rows: &PackedRows,
        chain: &Chain,
    ) -> Result<(), AppendError> {
        let mut append = Append::default();
        let mut why = "the lease was over".to_owned();
        let mut refused = None;
        let mut found = None;
        loop {
            let heard = match append.next(self.lease.holds()) {
                Step::GiveUp => return Err(self.stop(why)),
                Step::Look => match self.look_again(at, rows, chain) {
                    Ok(Found::Written) => Heard::Found,
                    Ok(Found::NotWritten) => Heard::Absent,
                    Err(LookError::Fenced(at)) => {
                        found = Some(at);
                        Heard::Fenced
                    }
                    Err(LookError::Unanswered) => Heard::Unanswered,
                },
                Step::Send if self.connected().is_err() => Heard::NotNow,
                Step::Send => match self.send(at, group, rows, chain) {
                    Sent::Committed => Heard::Committed,
                    Sent::Fenced => Heard::Fenced,
                    Sent::Refused(error) => {
                        if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                            // Another one of its hosts takes writes now, or will.
                            self.connected = None;
                        }
                        // The database restarts, fails over or is full for a moment: the same again, later.
                        refused = refusal(error);
                        match refused {
                            Some(_) => Heard::Refused,
                            None => Heard::NotNow,
                        }
                    }
                    Sent::Unknown(unknown) => {
                        self.connected = None;
                        why = unknown;
                        Heard::Unknown
                    }
                },
            };
            match append.hear(heard) {
                Some(Outcome::Written) => return Ok(()),
                Some(Outcome::Fenced) => {
                    self.stopped = true;
                    let found = found.unwrap_or_else(|| self.found_position(at));
                    return Err(AppendError::Fenced {
                        expected: at,
                        found,
                    });
                }
                Some(Outcome::Refused) => {
                    let refused = refused.unwrap_or(NotWritten::Stopped);
                    return Err(AppendError::NotWritten(refused));
                }
                None if matches!(heard, Heard::NotNow | Heard::Unanswered) => {
                    std::thread::sleep(PAUSE);
                }
                None => {}
            }
        }
    }

    fn stop(&mut self, why: String) -> AppendError {
        self.stopped = true;
        self.connected = None;
        AppendError::Unknown(why.into())
    }

    /// Sends all of a transaction at once, and sorts its answers.
    fn send(&self, at: Position, group: &Group, rows: &PackedRows, chain: &Chain) -> Sent {
        let connected = self.connected.as_ref().expect("checked by the caller");
        let client = connected.link.client();
        let Claim {
            shard,
            epoch,
            holder,
        } = self.claim;
        let (epoch, holder, pos) = (epoch as i64, holder as i64, at.0 as i64);
        let count = group.fact_count as i32;
        let crc = i64::from(seal::group(at, group.fact_count, &group.facts));
        let (before, after) = (&self.head.chain[..], &chain[..]);
        let parameters: [&(dyn ToSql + Sync); 9] = [
            &shard,
            &epoch,
            &holder,
            &pos,
            &before,
            &after,
            &count,
            &crc,
            &group.facts,
        ];
        let guard = rows::Guard {
            shard,
            pos,
            after,
            run: pos,
        };
        let sending = async {
            let begin = async { client.batch_execute("BEGIN").await.map(|()| 0) };
            let append = client.execute(&connected.append, &parameters);
            let mut steps: Vec<BoxFuture<'_, Result<u64, Error>>> =
                vec![Box::pin(begin), Box::pin(append)];
            connected.rows.add(client, &guard, rows, &mut steps);
            let commit = || async { client.batch_execute("COMMIT").await.map(|()| 0) };
            // In the order in which they stand here they go out, before the first answer is in.
            if failpoint::is_armed(failpoint::BEFORE_COMMIT) {
                let mut answers = join_all(steps).await;
                failpoint::pass(failpoint::BEFORE_COMMIT);
                answers.push(commit().await);
                answers
            } else {
                steps.push(Box::pin(commit()));
                join_all(steps).await
            }
        };
        connected.link.take_warning();
        let answers = Self::wait(self.runtime.as_ref(), &self.lease, sending);
        let Some(answers) = answers else {
            return Sent::Unknown("the database did not answer within the lease".to_owned());
        };
        sort(answers, connected.link.take_warning())
    }

    /// Finds out whether a group was written whose commit nobody heard of. When it was, its rows are written once more,
    /// which changes nothing, for the case that the database refused to begin a transaction and took every statement alone.
    fn look_again(
        &mut self,
        at: Position,
        rows: &PackedRows,
        chain: &Chain,
    ) -> Result<Found, LookError> {
        let (claim, before) = (self.claim, self.head.chain);
        self.connected().map_err(|_| LookError::Unanswered)?;
        let connected = self.connected.as_ref().expect("it was just made");
        let looking = async {
            let client = connected.link.client();
            client.batch_execute("BEGIN").await?;
            let row = client.query_one(LOCKED, &[&claim.shard]).await?;
            let is_mine = row.get::<_, i64>(0) as u64 == claim.epoch
                && row.get::<_, Option<i64>>(1) == Some(claim.holder as i64);
            let next = Position(row.get::<_, i64>(2) as u64);
            let found: &[u8] = row.get(3);
            let verdict = if is_mine && next == at.next() && found == chain {
                let guard = rows::Guard {
                    shard: claim.shard,
                    pos: at.0 as i64,
                    after: &chain[..],
                    run: at.0 as i64,
                };
                let mut steps = Vec::new();
                connected.rows.add(client, &guard, rows, &mut steps);
                for step in steps {
                    step.await?;
                }
                Ok(Found::Written)
            } else if is_mine && next == at && found == before {
                Ok(Found::NotWritten)
            } else {
                Err(LookError::Fenced(next))
            };
            client.batch_execute("COMMIT").await?;
            Ok::<_, Error>(verdict)
        };
        connected.link.take_warning();
        let looked = Self::wait(self.runtime.as_ref(), &self.lease, looking);
        let warned = connected.link.take_warning();
        match looked {
            Some(Ok(verdict)) if !warned => verdict,
            _ => {
                self.connected = None;
                Err(LookError::Unanswered)
            }
        }
    }

    /// Where the journal ends by now, for the message.
    fn found_position(&mut self, at: Position) -> Position {
        let shard = self.claim.shard;
        if self.connected().is_err() {
            return at;
        }
        let link = &self.connected.as_ref().expect("it was just made").link;
        let state = Self::wait(self.runtime.as_ref(), &self.lease, async {
            link.shard(shard).await
        });
        match state {
            Some(Ok(state)) => Position(state.next),
            _ => at,
        }
    }

    /// Runs `change` in a transaction that holds the row of the shard, if it is still ours. For everything but groups:
    /// what is written here may be written again.
    pub(super) fn commit<T: Default>(
        &mut self,
        change: impl AsyncFnOnce(&Connected) -> Result<T, Error>,
    ) -> Result<T, AppendError> {
        if self.stopped {
            return Err(AppendError::NotWritten(NotWritten::Stopped));
        }
        let claim = self.claim;
        let storage = |why: String| AppendError::NotWritten(NotWritten::Storage(why.into()));
        self.connected().map_err(storage)?;
        let connected = self.connected.as_ref().expect("it was just made");
        let committing = async {
            let client = connected.link.client();
            client.batch_execute("BEGIN").await?;
            let row = client.query_one(LOCKED, &[&claim.shard]).await?;
            let is_mine = row.get::<_, i64>(0) as u64 == claim.epoch
                && row.get::<_, Option<i64>>(1) == Some(claim.holder as i64);
            if !is_mine {
                client.batch_execute("ROLLBACK").await?;
                let next = Position(row.get::<_, i64>(2) as u64);
                return Ok(Err(next));
            }
            match change(connected).await {
                Ok(value) => {
                    client.batch_execute("COMMIT").await?;
                    Ok(Ok(value))
                }
                Err(error) => {
                    let _ = client.batch_execute("ROLLBACK").await;
                    Err(error)
                }
            }
        };
        match Self::wait(self.runtime.as_ref(), &self.lease, committing) {
            Some(Ok(Ok(value))) => Ok(value),
            Some(Ok(Err(found))) => {
                self.stopped = true;
                Err(AppendError::Fenced {
                    expected: self.head.next,
                    found,
                })
            }
            Some(Err(error)) => {
                if error.as_db_error().is_none() {
                    self.connected = None;
                }
                Err(storage(says(&error)))
            }
            None => Err(storage("the lease is over".to_owned())),
        }
    }

    /// Asks something, once more on a new connection when the last one turns out to be gone.
    pub(super) fn ask<T>(
        &mut self,
        question: impl AsyncFn(&Connected) -> Result<T, Error>,
    ) -> Result<T, ReadError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let storage = |why: String| ReadError::Storage(why.into());
            self.connected().map_err(storage)?;
            let connected = self.connected.as_ref().expect("it was just made");
            let asked = Self::wait(self.runtime.as_ref(), &self.lease, question(connected));
            match asked {
                Some(Ok(value)) => return Ok(value),
                Some(Err(error)) if error.as_db_error().is_none() && tries < 3 => {
                    self.connected = None;
                }
                Some(Err(error)) => return Err(storage(says(&error))),
                None => return Err(storage("the lease is over".to_owned())),
            }
        }
    }
}

impl Drop for PostgresJournal {
    fn drop(&mut self) {
        self.connected = None;
        if let Some(runtime) = self.runtime.take() {
            // A journal may be dropped where nobody may block.
            runtime.shutdown_background();
        }
    }
}

enum LookError {
    Fenced(Position),
    Unanswered,
}

pub(super) fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

async fn connect(address: &Address) -> Result<Connected, DatabaseError> {
    let link = Link::connect(address).await?;
    let prepared = async {
        let append = link.client().prepare(APPEND).await?;
        let rows = RowStatements::prepare(link.client()).await?;
        Ok::<_, Error>((append, rows))
    };
    let prepared = prepared.await;
    let (append, rows) = prepared.map_err(|error| super::link::in_words(&error, address))?;
    Ok(Connected { link, append, rows })
}

/// What the first connection finds.
struct Begun {
    connected: Connected,
    head: Head,
    id: u64,
    origin_unix_ns: u64,
    outputs_end: i64,
}

/// The first connection: where the journal ends.
async fn begin(address: &Address, claim: Claim) -> Result<Begun, DatabaseError> {
    let connected = connect(address).await?;
    let client = connected.link.client();
    let reading = async {
        let meta = client
            .query_one("SELECT journal, origin_ns FROM meta WHERE one = 1", &[])
            .await?;
        let (id, origin) = (meta.get::<_, i64>(0) as u64, meta.get::<_, i64>(1) as u64);
        let first = first_chain(id, origin);
        // The chain of an empty journal is a function of its number, so anybody may write it down.
        client
            .execute(
                "UPDATE shard SET chain = $2, base_chain = $2 WHERE id = $1 AND chain = ''",
                &[&claim.shard, &&first[..]],
            )
            .await?;
        let row = client
            .query_one(
                "SELECT base, base_chain, next, chain FROM shard WHERE id = $1",
                &[&claim.shard],
            )
            .await?;
        let outputs = "SELECT coalesce(max(task) + 1, 0) FROM output WHERE shard = $1";
        let outputs = client.query_one(outputs, &[&claim.shard]).await?;
        Ok::<_, Error>((row, id, origin, outputs.get(0)))
    };
    let reading = reading.await;
    let (row, id, origin_unix_ns, outputs_end) =
        reading.map_err(|error| super::link::in_words(&error, address))?;
    let chain = |column| {
        let bytes: &[u8] = row.get(column);
        Chain::try_from(bytes).map_err(|_| DatabaseError::NotAJournal {
            schema: address.schema().to_owned(),
        })
    };
    let head = Head {
        base: Position(row.get::<_, i64>(0) as u64),
        base_chain: chain(1)?,
        next: Position(row.get::<_, i64>(2) as u64),
        chain: chain(3)?,
    };
    Ok(Begun {
        connected,
        head,
        id,
        origin_unix_ns,
        outputs_end,
    })
}

/// What the answers to a transaction mean, the last of which is that to its commit.
fn sort(mut answers: Vec<Result<u64, Error>>, warned: bool) -> Sent {
    let commit = answers.pop();
    let mut steps = answers.into_iter();
    if let Some(Err(error)) = steps.next() {
        // No transaction: what follows may have counted, each for itself.
        return Sent::Unknown(says(&error));
    }
    for step in steps {
        let Err(error) = step else { continue };
        if error.as_db_error().is_none() {
            return Sent::Unknown(says(&error));
        }
        // The first error ends the transaction, and its commit rolls it back.
        return match error.code() {
            Some(code) if *code == SqlState::NOT_NULL_VIOLATION => Sent::Fenced,
            _ => Sent::Refused(error),
        };
    }
    match commit {
        Some(Ok(_)) if warned => Sent::Unknown("the commit ended with a warning".to_owned()),
        Some(Ok(_)) => Sent::Committed,
        Some(Err(error)) => Sent::Unknown(says(&error)),
        None => Sent::Unknown("there was no commit".to_owned()),
    }
}

/// Why a group cannot be written; none when it may be, a little later.
fn refusal(error: Error) -> Option<NotWritten> {
    let code = error.code()?;
    let passing = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::QUERY_CANCELED,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    if passing.contains(code) {
        return None;
    }
    Some(match *code == SqlState::DISK_FULL {
        true => NotWritten::DiskFull,
        false => NotWritten::Storage(says(&error).into()),
    })
}

impl Journal for PostgresJournal {
    fn next_position(&self) -> Position {
        self.head.next
    }

    fn append(&mut self, at: Position, group: &Group) -> Result<Position, AppendError> {
        if self.stopped {
            return Err(AppendError::NotWritten(NotWritten::Stopped));
        }
        if at != self.head.next {
            return Err(AppendError::Fenced {
                expected: at,
                found: self.head.next,
            });
        }
        let size = group.facts.len() as u64;
        rows::at_most("a group", size, limits::FACTS_BYTES_MAX as u64)
            .map_err(AppendError::NotWritten)?;
        let packed = PackedRows::new(&group.rows, self.outputs_end);
        let packed = packed.map_err(AppendError::NotWritten)?;
        // Even if it cannot be written: then some are looked at in vain.
        self.outputs_end = self.outputs_end.max(packed.outputs_end());
        failpoint::pass(failpoint::BEFORE_WRITE);
        let chain = next_chain(&self.head.chain, at, group.fact_count, &group.facts);
        self.write(at, group, &packed, &chain)?;
        failpoint::pass(failpoint::AFTER_COMMIT);
        self.head.next = at.next();
        self.head.chain = chain;
        Ok(self.head.next)
    }

    fn may_answer(&self) -> bool {
        self.lease.holds()
    }

    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        let head = self.head.clone();
        if from < head.base {
            return Err(ReadError::Dropped {
                asked: from,
                first: head.base,
            });
        }
        let shard = self.claim.shard;
        // The chain before the first of them comes with the group before it.
        let count = i64::try_from(limit.groups.max(1)).unwrap_or(i64::MAX);
        let mut before = self.chain_before(from)?;
        let mut groups = Vec::new();
        let mut bytes = 0;
        let mut from = from;
        let mut left = count;
        while left > 0 && from < head.next {
            // A few at a time: facts may be large.
            let some = left.min(64);
            let rows = self.ask(async |connected| {
                let client = connected.link.client();
                let statement = "SELECT pos, n, crc, chain, facts FROM grp \
                    WHERE shard = $1 AND pos >= $2 AND pos < $3 ORDER BY pos LIMIT $4";
                let (first, end) = (from.0 as i64, head.next.0 as i64);
                client
                    .query(statement, &[&shard, &first, &end, &some])
                    .await
            })?;
            if rows.is_empty() {
                return Err(damaged(from, "the group is missing"));
            }
            for row in rows {
                let position = Position(row.get::<_, i64>(0) as u64);
                let count = row.get::<_, i32>(1) as u32;
                let facts: Vec<u8> = row.get(4);
                if position != from {
                    return Err(damaged(from, "the group is missing"));
                }
                if i64::from(seal::group(position, count, &facts)) != row.get::<_, i64>(2) {
                    return Err(damaged(position, "the CRC does not fit"));
                }
                before = next_chain(&before, position, count, &facts);
                if row.get::<_, &[u8]>(3) != before {
                    return Err(damaged(position, "the chain of hashes is broken"));
                }
                bytes += facts.len();
                from = position.next();
                left -= 1;
                groups.push(StoredGroup {
                    position,
                    facts,
                    fact_count: count,
                });
                if bytes >= limit.bytes.max(1) {
                    return Ok(groups);
                }
            }
        }
        Ok(groups)
    }

    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError> {
        snapshots::save_piece(self, saving)
    }

    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError> {
        snapshots::list(self)
    }

    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError> {
        snapshots::read(self, at)
    }

    fn truncate(&mut self, before: Position) -> Result<u64, AppendError> {
        let newest = self.snapshots().map_err(snapshots::unreadable)?;
        if newest.first().is_none_or(|newest| *newest < before) {
            return Err(AppendError::NotWritten(NotWritten::NoSnapshot(before)));
        }
        let mut dropped = 0;
        while self.head.base < before {
            dropped += self.drop_some(before)?;
        }
        Ok(dropped)
    }

    fn prune_some(&mut self, pruning: &mut Pruning) -> Result<bool, AppendError> {
        prune::step(self, pruning)
    }

    fn room(&mut self) -> Result<Room, ReadError> {
        prune::room(self)
    }
}

impl PostgresJournal {
    /// The chain before the group at `position`.
    pub(super) fn chain_before(&mut self, position: Position) -> Result<Chain, ReadError> {
        if position == self.head.base {
            return Ok(self.head.base_chain);
        }
        if position == self.head.next {
            return Ok(self.head.chain);
        }
        if position > self.head.next || position < self.head.base {
            return Ok(self.head.chain);
        }
        let (shard, before) = (self.claim.shard, position.0 as i64 - 1);
        let row = self.ask(async |connected| {
            let statement = "SELECT chain FROM grp WHERE shard = $1 AND pos = $2";
            let client = connected.link.client();
            client.query_opt(statement, &[&shard, &before]).await
        })?;
        let chain = row.and_then(|row| Chain::try_from(row.get::<_, &[u8]>(0)).ok());
        chain.ok_or_else(|| damaged(Position(before as u64), "the group is missing"))
    }
}

pub(super) fn damaged(position: Position, what: &str) -> ReadError {
    ReadError::Damaged {
        place: format!("position {position}"),
        what: what.to_owned(),
    }
}
