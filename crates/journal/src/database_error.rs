//! What can be wrong with a database, in words that say what to do about it.

/// Why a journal in PostgreSQL could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The address makes no sense.
    #[error("this is no address of a PostgreSQL journal: {0}")]
    Address(String),
    /// This program was built without it.
    #[error(
        "this program was built without PostgreSQL; `cargo install --path crates/cli --features full` builds one that has it, as releases do"
    )]
    NotBuiltIn,
    /// The password file cannot be used.
    #[error("cannot use the password file {path}: {why}")]
    PasswordFile {
        /// Which one.
        path: String,
        /// Why not.
        why: String,
    },
    /// The certificate that the database is to be known by cannot be used.
    #[error("cannot use the certificates in {path}: {why}")]
    RootCertificate {
        /// The file.
        path: String,
        /// Why not.
        why: String,
    },
    /// Nobody answers there.
    #[error("cannot reach the database at {place}: {why}")]
    Unreachable {
        /// Host, port and database.
        place: String,
        /// What the system says.
        why: String,
    },
    /// User or password.
    #[error(
        "the database at {place} does not let us in: {why}; set the password with --journal-password-file, \
         PGPASSFILE or PGPASSWORD"
    )]
    Refused {
        /// Host, port and database.
        place: String,
        /// What it says.
        why: String,
    },
    /// The database of this name.
    #[error("{why}: make it first (`createdb`), or name another one in the address")]
    NoDatabase {
        /// What it says.
        why: String,
    },
    /// The tables are missing, and the role may not make them.
    #[error(
        "the role may not make the tables of the journal ({why}): have an administrator run what \
         `loxley journal schema` prints"
    )]
    NoRights {
        /// What it says.
        why: String,
    },
    /// The tables are those of an older version, and the role may not change them.
    #[error(
        "the role may not bring the tables of the journal up to date ({why}): have an administrator run what \
         `loxley journal schema --from {from}` prints"
    )]
    NoUpgrade {
        /// The version that they have.
        from: i32,
        /// What it says.
        why: String,
    },
    /// A copy into the tables was not finished.
    #[error(
        "the journal in schema `{schema}` is a copy that was not finished: run `loxley journal copy` again, or drop \
         the schema"
    )]
    Unfinished {
        /// Which schema.
        schema: String,
    },
    /// Tables of a newer program.
    #[error(
        "the tables in schema `{schema}` have version {found}, and this program knows version {known}: \
         go on with the newer version of Loxley"
    )]
    Newer {
        /// Which schema.
        schema: String,
        /// Its version.
        found: i32,
        /// Ours.
        known: i32,
    },
    /// The schema is there, and it is not ours.
    #[error(
        "schema `{schema}` is there, and is no journal of Loxley: name another one with `?schema=NAME`"
    )]
    NotAJournal {
        /// Which schema.
        schema: String,
    },
    /// Another cluster than the one this server belongs to.
    #[error(
        "schema `{schema}` belongs to the cluster {found}, and this directory to the cluster {known}: \
         give each cluster a schema of its own (`?schema=NAME`), or each server a directory of its own"
    )]
    OtherCluster {
        /// Which schema.
        schema: String,
        /// The cluster in the database.
        found: String,
        /// The cluster of the directory.
        known: String,
    },
    /// The number of shards is chosen once.
    #[error(
        "the cluster in schema `{schema}` has {found} shards, and --shards says {asked}: their number is chosen when the \
         first server starts, and stays. Leave --shards out, or begin another cluster (`?schema=NAME`)"
    )]
    OtherShards {
        /// Which schema.
        schema: String,
        /// How many there are.
        found: u16,
        /// How many were asked for.
        asked: u16,
    },
    /// Acknowledged commits would be lost.
    #[error(
        "the database runs with `{setting} = {value}`: what it acknowledges may be lost when its machine \
         stops. Set `{setting} = on` there"
    )]
    NotDurable {
        /// Which setting.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// It takes no writes.
    #[error(
        "the database at {place} takes no writes: it is a standby, or was made read-only. Name the primary, \
         or all hosts (`postgres://host1,host2/db`), of which the one that takes writes is found"
    )]
    ReadOnly {
        /// Host, port and database.
        place: String,
    },
    /// Anything else it says.
    #[error("the database at {place} says: {why}")]
    Other {
        /// Host, port and database.
        place: String,
        /// What it says.
        why: String,
    },
}
