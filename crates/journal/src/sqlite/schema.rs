//! The tables. Their text is compared on opening: a journal with other tables is not ours.

use rusqlite::Connection;

use super::damage::damaged;
use crate::ReadError;

/// The number of this arrangement of tables. Format 4: pages that are not in use can be given back one by one.
pub(super) const FORMAT: u32 = 4;

/// The first format that is still read: with the same tables as this one. What is older than [`FORMAT`] is
/// [brought up to it](super::migrate) when it is opened to be written.
pub(super) const OLDEST: u32 = 3;

/// `PRAGMA application_id` of a journal: "LoxJ".
pub(super) const APPLICATION: u32 = 0x4C6F_784A;

/// Every object: its name and the text that makes it. Indexes come last, as `VACUUM` leaves them.
pub(super) const OBJECTS: [(&str, &str); 9] = [
    (
        "head",
        "CREATE TABLE head (one INTEGER PRIMARY KEY, id INTEGER, epoch INTEGER, \
         base INTEGER, base_chain BLOB, next INTEGER, chain BLOB, \
         tasks INTEGER, outputs INTEGER, jobs INTEGER, agents INTEGER, crc INTEGER) STRICT",
    ),
    (
        "groups",
        "CREATE TABLE groups (position INTEGER PRIMARY KEY, count INTEGER, crc INTEGER, \
         chain BLOB, facts BLOB) STRICT",
    ),
    (
        "snapshots",
        "CREATE TABLE snapshots (position INTEGER PRIMARY KEY, chain BLOB, first_piece INTEGER, \
         piece_count INTEGER, crc INTEGER) STRICT",
    ),
    (
        "pieces",
        "CREATE TABLE pieces (piece INTEGER PRIMARY KEY, data BLOB, crc INTEGER) STRICT",
    ),
    (
        "runs",
        "CREATE TABLE runs (run INTEGER PRIMARY KEY, first INTEGER, last INTEGER, count INTEGER, \
         unsuccessful INTEGER, packed BLOB, crc INTEGER) STRICT",
    ),
    (
        "outputs",
        "CREATE TABLE outputs (task INTEGER PRIMARY KEY, output BLOB, result BLOB, crc INTEGER) STRICT",
    ),
    (
        "jobs",
        "CREATE TABLE jobs (job INTEGER PRIMARY KEY, name TEXT, user TEXT, first_task INTEGER, \
         task_count INTEGER, state INTEGER, created INTEGER, finished INTEGER, \
         succeeded INTEGER, failed INTEGER, cancelled INTEGER, detail BLOB, crc INTEGER) STRICT",
    ),
    (
        "agents",
        "CREATE TABLE agents (agent INTEGER PRIMARY KEY, name TEXT, crc INTEGER) STRICT",
    ),
    (
        "runs_unsuccessful",
        "CREATE INDEX runs_unsuccessful ON runs (run) WHERE unsuccessful > 0",
    ),
];

/// Makes the tables in an empty file.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", FORMAT)?;
    for (_, text) in OBJECTS {
        connection.execute_batch(text)?;
    }
    Ok(())
}

/// The format that the file says it has, if it is a journal at all.
pub(super) fn format(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    if number("application_id")? != i64::from(APPLICATION) {
        return Ok(None);
    }
    Ok(u32::try_from(number("user_version")?).ok())
}

/// Refuses a file whose tables are not exactly ours.
pub(super) fn verify(connection: &Connection) -> Result<(), ReadError> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY rowid")?;
    let found = statement.query_map((), |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    let mut expected = OBJECTS.iter();
    for object in found {
        let (name, text) = object?;
        if expected.next() != Some(&(name.as_str(), text.as_str())) {
            return Err(damaged(
                "the list of tables",
                format!("{name:?} is not as it was made"),
            ));
        }
    }
    match expected.next() {
        None => Ok(()),
        Some((name, _)) => Err(damaged(
            "the list of tables",
            format!("{name:?} is missing"),
        )),
    }
}
