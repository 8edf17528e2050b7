//! Where recorded work is: in a directory, in a database, beside the access file of a server, or with the server itself.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use loxley_api::{Access, JournalInfo};
use loxley_client::{ClientError, blocking};
use loxley_journal::{
    AppendError, Group, History, Journal, Limit, Position, ReadError, Saving, Snapshot,
    StoredGroup, View,
};

/// Whether a name is that of recorded work, as far as its looks tell.
pub(crate) fn is_meant(name: &Path) -> bool {
    name.is_dir() || is_database(name) || is_access_file(name)
}

/// Opens recorded work to read it; a server may be writing it.
pub(crate) fn open(name: &Path) -> Result<Box<dyn Journal>> {
    if is_database(name) {
        return database(name);
    }
    if is_access_file(name) {
        return beside(name);
    }
    Ok(Box::new(View(History::open(name)?)))
}

fn is_database(name: &Path) -> bool {
    let text = name.to_str().unwrap_or_default();
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

fn is_access_file(name: &Path) -> bool {
    name.is_file() && Access::read(name).is_ok()
}

/// The journal in a database; where there are several, the one of the shard that is named behind a `#`.
#[cfg(feature = "postgres")]
fn database(name: &Path) -> Result<Box<dyn Journal>> {
    use loxley_journal::postgres::{Address, Link, PostgresJournal};
    let name = name.to_str().unwrap_or_default();
    let (url, shard) = match name.split_once('#') {
        Some((url, shard)) => (url, Some(shard)),
        None => (name, None),
    };
    let address = Address::parse(url, None)?;
    let first = PostgresJournal::observe(&address)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let count = runtime.block_on(async {
        let link = Link::connect(&address).await?;
        Ok::<_, anyhow::Error>(link.shard_count().await?)
    })?;
    let shard = match shard {
        None if count == 1 => 0,
        None => bail!("{}", several_journals(count.into(), url)),
        Some(shard) => {
            let number = shard.parse::<u16>().ok().filter(|shard| *shard < count);
            let last = count - 1;
            number.with_context(|| format!("`#{shard}`: the shards there are 0 to {last}"))?
        }
    };
    Ok(Box::new(match shard {
        0 => first,
        shard => PostgresJournal::observe_shard(&address, shard.into())?,
    }))
}

/// Each shard has decided by itself, with agents and a configuration of its own.
fn several_journals(count: usize, url: &str) -> String {
    let last = count - 1;
    format!(
        "there are {count} journals, one for each shard, and each is run again by itself: name the shard behind the \
         address, from {url}#0 to {url}#{last}"
    )
}

#[cfg(not(feature = "postgres"))]
fn database(_: &Path) -> Result<Box<dyn Journal>> {
    Err(loxley_journal::DatabaseError::NotBuiltIn.into())
}

/// The journal of the server whose access file this is: it lies in the same directory, if the server is on this machine;
/// else the server is asked for it.
fn beside(name: &Path) -> Result<Box<dyn Journal>> {
    let directory = match name.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if loxley_journal::exists(directory) {
        return Ok(Box::new(View(History::open(directory)?)));
    }
    let elsewhere = Elsewhere::open(&Access::read(name)?);
    let opened = elsewhere.with_context(|| {
        format!(
            "{}: there is no journal beside it, and it was not to be had from the server",
            name.display()
        )
    });
    Ok(Box::new(opened?))
}

/// The journal of a server elsewhere, as it is when it is opened.
#[derive(Debug)]
struct Elsewhere {
    client: blocking::Client,
    info: JournalInfo,
}

impl Elsewhere {
    fn open(access: &Access) -> Result<Self> {
        let client = blocking::Client::new(access)?;
        let info = client.call(async |client| client.journal().await)?;
        let cluster = client.call(async |client| client.cluster().await)?;
        let count = cluster.shards.len();
        if count > 1 {
            bail!(
                "{}",
                several_journals(count, "postgres://user@host/database")
            );
        }
        Ok(Self { client, info })
    }

    /// Whoever only looks owns nothing to write to.
    fn fenced(&self, expected: Position) -> AppendError {
        let found = self.next_position();
        AppendError::Fenced { expected, found }
    }
}

fn unread(error: ClientError) -> ReadError {
    ReadError::Storage(Box::new(error))
}

impl Journal for Elsewhere {
    fn next_position(&self) -> Position {
        Position(self.info.next)
    }

    fn append(&mut self, at: Position, _: &Group) -> Result<Position, AppendError> {
        Err(self.fenced(at))
    }

    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        let first = Position(self.info.first);
        if from < first {
            return Err(ReadError::Dropped { asked: from, first });
        }
        let asked = self
            .client
            .call(async |client| client.journal_groups(from.0).await);
        let groups = asked.map_err(unread)?.into_iter();
        // What came since is not part of it: the server goes on writing while this is read.
        let groups = groups.filter(|group| group.position < self.info.next);
        let groups = groups.take(limit.groups).map(|group| StoredGroup {
            position: Position(group.position),
            facts: group.facts,
            fact_count: group.fact_count,
        });
        Ok(groups.collect())
    }

    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError> {
        Err(self.fenced(saving.snapshot().position))
    }

    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError> {
        Ok(self.info.snapshots.iter().copied().map(Position).collect())
    }

    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError> {
        let asked = self
            .client
            .call(async |client| client.journal_snapshot(at.0).await);
        Ok(Snapshot {
            position: at,
            state: asked.map_err(unread)?.into(),
        })
    }

    fn truncate(&mut self, before: Position) -> Result<u64, AppendError> {
        Err(self.fenced(before))
    }
}
