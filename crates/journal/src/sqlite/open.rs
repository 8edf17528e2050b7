//! Opening a journal: the lock, the look at the files, the tables.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags};

use super::damage::damaged;
use super::engine::SqliteJournal;
use super::head::Head;
use super::lock::{Lock, Refused};
use super::log::Log;
use super::mark::{Mark, Reading};
use super::reserve::Reserve;
use super::{migrate, private, schema, wal};
use crate::group::Position;
use crate::transfer::Origin;
use crate::{OpenError, ReadError};

/// How a journal is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the lock file says of us: "loxley server".
    pub holder: String,
    /// Make a journal where there is none.
    pub create: bool,
    /// How large the file may become, in bytes; an append beyond that fails as if the disk were full.
    pub bytes_max: Option<u64>,
    /// How large the log may become before it is moved into the file.
    pub checkpoint_bytes: u64,
    /// So much room is written ahead of the log at once, so that most commits overwrite what is there and
    /// need not wait until a longer file is on disk; 0: none.
    pub room_bytes: u64,
    /// The page size of a new file: a power of two between 512 and 65,536.
    pub page_bytes: u32,
    /// Room that is kept for the day when the disk is full; none: as much as there is already.
    pub reserve_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            holder: "loxley".to_owned(),
            create: true,
            bytes_max: None,
            checkpoint_bytes: 16 << 20,
            room_bytes: 1 << 20,
            page_bytes: 4096,
            reserve_bytes: None,
        }
    }
}

/// A journal, and what its owner should tell people about it.
#[derive(Debug)]
pub struct Opened {
    /// The journal.
    pub journal: SqliteJournal,
    /// What was found on opening. Show it.
    pub notices: Vec<Notice>,
}

/// Something that was found on opening and is not a reason to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A commit was cut short by a crash. Nobody was told that it was written.
    TornTail {
        /// How many bytes were dropped.
        bytes: u64,
        /// Where the journal ends now.
        next: Position,
    },
    /// Others could read the journal; now its owner alone can.
    MadePrivate {
        /// The mode that its directory, or one of its files, had.
        mode: u32,
    },
    /// It was written by an earlier version, and brought up to the present format.
    Migrated {
        /// The format that it had.
        from: u32,
        /// Where it is kept as it was.
        copy: PathBuf,
    },
    /// The disk was full: the room that was kept for that day was given up.
    ReserveGivenUp {
        /// How many bytes.
        bytes: u64,
    },
    /// The mark that would betray a lost end is gone or broken; it was made anew.
    MarkRemade {
        /// Where the journal ends.
        next: Position,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornTail { bytes, next } => write!(
                f,
                "the last {bytes} bytes of the journal are a write that was cut short: dropped; \
                 the journal goes on at position {next}"
            ),
            Self::MadePrivate { mode } => write!(
                f,
                "others could read the journal (mode {mode:03o}): its directory has mode 700 now, its files 600"
            ),
            Self::Migrated { from, copy } => write!(
                f,
                "the journal was brought from format {from} to format {}; as it was, it is kept in {}: remove that \
                 when all is well",
                schema::FORMAT,
                copy.display()
            ),
            Self::ReserveGivenUp { bytes } => write!(
                f,
                "the disk is full: gave up the {bytes} bytes of {RESERVE}; `loxley journal prune` makes room"
            ),
            Self::MarkRemade { next } => write!(
                f,
                "{MARK} was missing or damaged and was made anew: whether groups are missing at the \
                 end of the journal (position {next}) cannot be told"
            ),
        }
    }
}

pub(super) const DATABASE: &str = "journal.db";
pub(super) const FILES: [&str; 6] = [DATABASE, LOG, "journal.db-shm", MARK, LOCK, RESERVE];
pub(super) const LOG: &str = "journal.db-wal";
pub(super) const MARK: &str = "journal.mark";
pub(super) const LOCK: &str = "journal.lock";
pub(super) const RESERVE: &str = "journal.reserve";
/// A journal that is being made; it gets its name when it is whole.
const UNFINISHED: &str = "journal.db.new";

/// Whether there is a journal in `directory`, whole or not.
#[must_use]
pub fn exists(directory: &Path) -> bool {
    [DATABASE, LOG, MARK]
        .iter()
        .any(|file| directory.join(file).exists())
}

/// What the journal in `directory` takes on disk, with what of it is not in its file yet; without its reserve, which
/// holds nothing.
#[must_use]
pub fn bytes_on_disk(directory: &Path) -> u64 {
    let files = FILES.iter().filter(|file| **file != RESERVE);
    let lengths = files.filter_map(|file| directory.join(file).metadata().ok());
    lengths.map(|file| file.len()).sum()
}

impl SqliteJournal {
    /// Opens the journal in `directory` to write it; makes directory and journal if
    /// [`Options::create`] says so.
    pub fn open(directory: &Path, options: &Options) -> Result<Opened, OpenError> {
        Self::open_or_make(directory, options, || {
            let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
            Head::new(draw_id(), epoch.map_or(0, |since| since.as_nanos() as u64))
        })
    }

    /// Makes a journal that begins where another one does.
    pub(super) fn create_from(
        directory: &Path,
        options: &Options,
        origin: &Origin,
    ) -> Result<Opened, OpenError> {
        Self::open_or_make(directory, options, || Head {
            base: origin.base,
            base_chain: origin.base_chain,
            next: origin.base,
            chain: origin.base_chain,
            ..Head::new(origin.id, origin.epoch_unix_ns)
        })
    }

    fn open_or_make(
        directory: &Path,
        options: &Options,
        new: impl FnOnce() -> Head,
    ) -> Result<Opened, OpenError> {
        let fail = Fail(directory);
        let found = exists(directory);
        if !found && !options.create {
            return Err(OpenError::Missing {
                directory: directory.to_owned(),
            });
        }
        let mended = private::make(directory).map_err(|error| fail.io(error))?;
        let lock = take_lock(directory, &options.holder)?;
        let found = found || exists(directory);
        let mut notices = Vec::from_iter(mended);
        let mut reserve = Reserve::find(directory.join(RESERVE));
        notices.extend(reserve.give_up_if_full());
        if !found {
            create(directory, options.page_bytes, &new()).map_err(|error| fail.io(error))?;
        }
        let found_log = inspect(directory)?;
        let mut connection =
            connect(directory, options).map_err(|error| fail.damaged(error.into()))?;
        let mut head = load(directory, &connection)?;
        if let wal::Log::Torn { bytes } = found_log {
            notices.push(Notice::TornTail {
                bytes,
                next: head.next,
            });
        }
        if !compare_mark(directory, &head)? && found {
            notices.push(Notice::MarkRemade { next: head.next });
        }
        if let Some(migrated) = migrate::up_to_date(directory, &connection)? {
            head = load(directory, &connection)?;
            notices.push(migrated);
        }
        let mark = Mark::open(&directory.join(MARK), head.id).map_err(|error| fail.io(error))?;
        mark.set(head.next).map_err(|error| fail.io(error))?;
        if let Some(bytes) = options.reserve_bytes {
            reserve.want(bytes);
        }
        let mut log = Log::watch(
            &mut connection,
            &directory.join(LOG),
            reserve.log_bytes_max(options.checkpoint_bytes),
            options.room_bytes,
        )
        .map_err(|error| fail.damaged(error.into()))?;

        log.keep_room(
            !notices
                .iter()
                .any(|notice| matches!(notice, Notice::ReserveGivenUp { .. })),
        );
        let journal = Self::new(connection, head, mark, log, reserve, lock);
        Ok(Opened { journal, notices })
    }
}

/// Makes errors of opening one directory.
#[derive(Clone, Copy)]
pub(super) struct Fail<'a>(pub(super) &'a Path);

impl Fail<'_> {
    pub(super) fn io(
        self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> OpenError {
        OpenError::Io {
            directory: self.0.to_owned(),
            source: source.into(),
        }
    }

    pub(super) fn damaged(self, damage: ReadError) -> OpenError {
        match damage {
            ReadError::Storage(source) => self.io(source),
            damage => OpenError::Damaged {
                directory: self.0.to_owned(),
                damage,
            },
        }
    }
}

pub(super) fn take_lock(directory: &Path, holder: &str) -> Result<Lock, OpenError> {
    Lock::take(&directory.join(LOCK), holder).map_err(|refused| match refused {
        Refused::Held(holder) => OpenError::InUse {
            directory: directory.to_owned(),
            holder,
        },
        Refused::Io(error) => Fail(directory).io(error),
    })
}

/// Makes a journal beside its place and moves it there whole, so that a crash leaves none or all.
fn create(
    directory: &Path,
    page_bytes: u32,
    head: &Head,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let unfinished = directory.join(UNFINISHED);
    remove_if_there(&unfinished)?;
    remove_if_there(&directory.join("journal.db.new-wal"))?;
    remove_if_there(&directory.join("journal.db.new-shm"))?;
    private::create(&unfinished)?;
    let connection = Connection::open(&unfinished)?;
    connection.pragma_update(None, "page_size", page_bytes)?;
    // Before there is a table: so pages that are not in use can be given back while others are.
    connection.pragma_update(None, "auto_vacuum", migrate::INCREMENTAL)?;
    // One transaction: each would wait for the disk several times.
    let tables = connection.unchecked_transaction()?;
    schema::create(&tables)?;
    head.insert(&tables)?;
    tables.commit()?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(format!("the file system offers no log for SQLite (mode {mode:?})").into());
    }
    connection.close().map_err(|(_, error)| error)?;
    std::fs::File::open(&unfinished)?.sync_all()?;
    std::fs::rename(&unfinished, directory.join(DATABASE))?;
    std::fs::File::open(directory)?.sync_all()?;
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The keys of a hasher are drawn from the system: enough to tell journals apart.
fn draw_id() -> u64 {
    RandomState::new().build_hasher().finish() >> 1
}

/// Looks at the files themselves, before SQLite changes them.
pub(super) fn inspect(directory: &Path) -> Result<wal::Log, OpenError> {
    let fail = Fail(directory);
    let page_size = read_page_size(&directory.join(DATABASE))
        .map_err(|error| fail.io(error))?
        .map_err(|damage| fail.damaged(damage))?;
    let log = wal::scan(&directory.join(LOG), page_size).map_err(|error| fail.io(error))?;
    if let wal::Log::Damaged { frame } = log {
        let place = format!("frame {frame} of {LOG}");
        let what = "commits follow after a frame that is not what was written";
        return Err(fail.damaged(damaged(place, what)));
    }
    Ok(log)
}

/// The page size in the header of the file, if the header is one of ours.
fn read_page_size(path: &Path) -> io::Result<Result<usize, ReadError>> {
    let mut header = [0; 100];
    let read = match std::fs::File::open(path) {
        Ok(mut file) => io::Read::read_exact(&mut file, &mut header),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Err(damaged(DATABASE, "the file is missing")));
        }
        Err(error) => return Err(error),
    };
    match read {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(Err(damaged(DATABASE, "the file is cut short")));
        }
        Err(error) => return Err(error),
    }
    // Versions other than 2 would make SQLite ignore the log, or refuse to write.
    if &header[..16] != b"SQLite format 3\0" || header[18..21] != [2, 2, 0] {
        return Ok(Err(damaged(
            DATABASE,
            "the header is not that of a journal",
        )));
    }
    Ok(match u16::from_be_bytes([header[16], header[17]]) {
        1 => Ok(65_536),
        size if size >= 512 && size.is_power_of_two() => Ok(usize::from(size)),
        _ => Err(damaged(DATABASE, "the header names no page size")),
    })
}

fn connect(directory: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(directory.join(DATABASE), flags)?;
    guard(&connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // We move the log into the file ourselves, so that a failure there is seen.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // Only what is far more than usual is given back: a log that is overwritten is faster than one that grows.
    let usual = options.checkpoint_bytes.saturating_add(options.room_bytes);
    let limit = i64::try_from(usual.saturating_mul(2)).unwrap_or(i64::MAX);
    connection.pragma_update(None, "journal_size_limit", limit)?;
    if let Some(bytes) = options.bytes_max {
        let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = i64::try_from((bytes / page as u64).max(1)).unwrap_or(i64::MAX);
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(connection)
}

/// A connection that reads what others write.
pub(super) fn connect_to_read(directory: &Path) -> Result<Connection, OpenError> {
    if !exists(directory) {
        return Err(OpenError::Missing {
            directory: directory.to_owned(),
        });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connect = || {
        let connection = Connection::open_with_flags(directory.join(DATABASE), flags)?;
        guard(&connection)?;
        Ok(connection)
    };
    connect().map_err(|error: rusqlite::Error| Fail(directory).damaged(error.into()))
}

/// How long a connection waits for another one.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(10);

/// What every connection wants: patience, and suspicion of what the file says.
fn guard(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_PATIENCE)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// The head of a file that is a journal of ours, with its ends where the head says.
pub(super) fn load(directory: &Path, connection: &Connection) -> Result<Head, OpenError> {
    let fail = Fail(directory);
    let format = schema::format(connection).map_err(|error| fail.damaged(error.into()))?;
    match format {
        Some(schema::OLDEST..=schema::FORMAT) => {}
        Some(found) => {
            return Err(OpenError::Format {
                directory: directory.to_owned(),
                found,
                oldest: schema::OLDEST,
                known: schema::FORMAT,
            });
        }
        None => return Err(fail.damaged(damaged(DATABASE, "the file is not a journal"))),
    }
    let load = || {
        // One view of the file: somebody may be writing to it meanwhile.
        let view = connection.unchecked_transaction()?;
        schema::verify(&view)?;
        let head = Head::load(&view)?;
        verify_ends(&view, &head)?;
        Ok(head)
    };
    load().map_err(|damage| fail.damaged(damage))
}

/// The first and the last group are where the head says, and the chain ends as it says.
fn verify_ends(connection: &Connection, head: &Head) -> Result<(), ReadError> {
    let ends = "SELECT min(position), max(position) FROM groups";
    let (first, last): (Option<i64>, Option<i64>) =
        connection.query_row(ends, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let expected_first = (head.base < head.next).then_some(head.base.0 as i64);
    let expected_last = expected_first.map(|_| head.next.0 as i64 - 1);
    if (first, last) != (expected_first, expected_last) {
        let place = format!("position {}", head.next);
        let what = format!(
            "groups from {} to {} are expected, {first:?} to {last:?} were found",
            head.base, head.next
        );
        return Err(damaged(place, what));
    }
    let chain: Option<[u8; 32]> = match last {
        Some(last) => Some(connection.query_row(
            "SELECT chain FROM groups WHERE position = ?1",
            [last],
            |row| row.get(0),
        )?),
        None => None,
    };
    if chain.unwrap_or(head.base_chain) != head.chain {
        let place = format!("position {}", head.next.0.saturating_sub(1));
        return Err(damaged(place, "the chain does not end as the head says"));
    }
    Ok(())
}

/// False: there is no mark to compare with.
pub(super) fn compare_mark(directory: &Path, head: &Head) -> Result<bool, OpenError> {
    let fail = Fail(directory);
    match Mark::read(&directory.join(MARK)).map_err(|error| fail.io(error))? {
        Reading::Missing | Reading::Unreadable => Ok(false),
        Reading::Acknowledged { id, .. } if id != head.id => Err(fail.damaged(damaged(
            MARK,
            format!("it belongs to another journal; if {DATABASE} was put here on purpose, remove {MARK}"),
        ))),
        Reading::Acknowledged { next, .. } if next > head.next => Err(fail.damaged(damaged(
            format!("position {}", head.next),
            format!(
                "the journal ends here, but groups up to position {next} were acknowledged: its end is \
                 missing; if an older copy was put here on purpose, remove {MARK}"
            ),
        ))),
        Reading::Acknowledged { .. } => Ok(true),
    }
}
