//! One connection to the database, with its settings made sure of.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Error};

use super::address::{Address, CONNECT_TIME};
use super::schema;
use crate::DatabaseError;

/// What a session keeps to. A holder that stops in the middle of a transaction must not keep the row of its shard locked
/// for longer than its lease, or nobody could take over; and nothing may cut a commit short.
const SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
    SET idle_in_transaction_session_timeout = 4000; SET tcp_user_timeout = 4000; \
    SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3; \
    SET default_transaction_isolation = 'read committed'; SET client_min_messages = warning;";

/// A connection, its other end looked after by a task.
#[derive(Debug)]
pub struct Link {
    client: Client,
    /// Whether the database warned of something since this was last asked.
    warned: Arc<AtomicBool>,
}

impl Link {
    /// Connects, and looks at nothing but the way in.
    ///
    /// # Errors
    /// When nobody answers, or nobody lets us in.
    pub async fn connect(address: &Address) -> Result<Self, DatabaseError> {
        let connecting = async {
            let tls = address.tls.as_ref().clone();
            let (client, mut connection) = address.config.connect(tls).await?;
            let warned = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&warned);
            // Ends when the client is dropped or the connection breaks.
            tokio::spawn(async move {
                while let Some(Ok(message)) =
                    poll_fn(|context| connection.poll_message(context)).await
                {
                    if let AsyncMessage::Notice(notice) = message {
                        // Before the answer to the commit that it is about: in this order they come in.
                        seen.store(true, Ordering::Release);
                        drop(notice);
                    }
                }
            });
            let settings = format!("{SESSION} SET search_path = {};", address.schema());
            client.batch_execute(&settings).await?;
            Ok(Self { client, warned })
        };
        // Longer than a connection may take, for there may be several hosts.
        let timed = tokio::time::timeout(CONNECT_TIME * 2, connecting).await;
        timed
            .map_err(|_| DatabaseError::Unreachable {
                place: address.place(),
                why: "it does not answer".to_owned(),
            })?
            .map_err(|error| in_words(&error, address))
    }

    /// Connects, refuses a database that does not keep what it acknowledges, and makes the tables where there are none.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn open(address: &Address) -> Result<Self, DatabaseError> {
        let link = Self::connect(address).await?;
        link.check_durability(address).await?;
        link.check_tables(address).await?;
        Ok(link)
    }

    /// How many shards the cluster has. Whoever comes first says it, with `asked`, or 1; later another number is refused.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn settle_shards(
        &self,
        address: &Address,
        asked: Option<u16>,
    ) -> Result<u16, DatabaseError> {
        let settled = self.add_shards(asked.unwrap_or(1)).await;
        let found = settled.map_err(|error| in_words(&error, address))?;
        match asked {
            Some(asked) if asked != found => Err(DatabaseError::OtherShards {
                schema: address.schema().to_owned(),
                found,
                asked,
            }),
            _ => Ok(found),
        }
    }

    /// Makes the rows of all shards, unless their number is settled. Returns it.
    async fn add_shards(&self, count: u16) -> Result<u16, Error> {
        // Two that come at once meet at this row: the second one finds what the first one said.
        let text = format!(
            "BEGIN; UPDATE meta SET shards = -{count} WHERE one = 1 AND shards = 0; \
             INSERT INTO shard (id, epoch, holder, url, expires, base, base_chain, next, chain) \
             SELECT number, 0, NULL, '', clock_timestamp(), 0, '', 0, '' \
             FROM meta, generate_series(1, -shards - 1) AS number WHERE shards < 0; \
             UPDATE meta SET shards = -shards WHERE one = 1 AND shards < 0; COMMIT;"
        );
        if let Err(error) = self.client.batch_execute(&text).await {
            let _ = self.client.batch_execute("ROLLBACK").await;
            return Err(error);
        }
        let row = self
            .client
            .query_one("SELECT shards FROM meta WHERE one = 1", &[])
            .await?;
        Ok(row.get::<_, i32>(0) as u16)
    }

    /// For statements.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the connection is over.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether the database warned of something since the last time. A commit whose wait for a standby was cut short is
    /// a success with a warning.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::AcqRel)
    }

    pub(super) async fn check_durability(&self, address: &Address) -> Result<(), DatabaseError> {
        let row = self
            .client
            .query_one(
                "SELECT current_setting('fsync', true), current_setting('full_page_writes', true), \
                 current_setting('synchronous_commit', true), current_setting('transaction_read_only')",
                &[],
            )
            .await
            .map_err(|error| in_words(&error, address))?;
        let settings = ["fsync", "full_page_writes", "synchronous_commit"];
        for (index, setting) in settings.into_iter().enumerate() {
            // A database that only speaks the protocol of PostgreSQL may not have it.
            let value: Option<&str> = row.get(index);
            if let Some("off") = value {
                let value = "off".to_owned();
                return Err(DatabaseError::NotDurable { setting, value });
            }
        }
        if row.get::<_, &str>(3) == "on" {
            return Err(DatabaseError::ReadOnly {
                place: address.place(),
            });
        }
        Ok(())
    }

    async fn check_tables(&self, address: &Address) -> Result<(), DatabaseError> {
        let schema = address.schema();
        for _ in 0..TRIES {
            match self.version(address).await? {
                Some(schema::VERSION) => return Ok(()),
                Some(schema::UNFINISHED) => {
                    let schema = schema.to_owned();
                    return Err(DatabaseError::Unfinished { schema });
                }
                Some(found @ schema::OLDEST..schema::VERSION) => {
                    self.upgrade(address, found).await?;
                }
                Some(found) => {
                    return Err(DatabaseError::Newer {
                        schema: schema.to_owned(),
                        found,
                        known: schema::VERSION,
                    });
                }
                None => self.make_tables(address, schema::VERSION).await?,
            }
        }
        let schema = schema.to_owned();
        Err(DatabaseError::NotAJournal { schema })
    }

    /// The version of the tables; none when there are none.
    pub(super) async fn version(&self, address: &Address) -> Result<Option<i32>, DatabaseError> {
        let schema = address.schema();
        let found = self
            .client
            .query_opt("SELECT version FROM meta WHERE one = 1", &[])
            .await;
        match found {
            Ok(Some(row)) => Ok(Some(row.try_get(0).map_err(|_| {
                DatabaseError::NotAJournal {
                    schema: schema.to_owned(),
                }
            })?)),
            Ok(None) => Err(DatabaseError::NotAJournal {
                schema: schema.to_owned(),
            }),
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_COLUMN) => {
                let schema = schema.to_owned();
                Err(DatabaseError::NotAJournal { schema })
            }
            Err(error) => Err(in_words(&error, address)),
        }
    }

    /// Makes the tables, unless somebody else was quicker.
    pub(super) async fn make_tables(
        &self,
        address: &Address,
        version: i32,
    ) -> Result<(), DatabaseError> {
        let text = schema::sql_of(address.schema(), version);
        self.change_tables(address, &text, |why| DatabaseError::NoRights { why })
            .await
    }

    /// Brings tables of an older version up to date, unless somebody else was quicker.
    async fn upgrade(&self, address: &Address, from: i32) -> Result<(), DatabaseError> {
        let text = schema::upgrade_sql(address.schema(), from).unwrap_or_default();
        self.change_tables(address, &text, |why| DatabaseError::NoUpgrade { from, why })
            .await
    }

    async fn change_tables(
        &self,
        address: &Address,
        text: &str,
        no_rights: impl FnOnce(String) -> DatabaseError,
    ) -> Result<(), DatabaseError> {
        let text = format!("BEGIN; {text} COMMIT;");
        let Err(error) = self.client.batch_execute(&text).await else {
            return Ok(());
        };
        let _ = self.client.batch_execute("ROLLBACK").await;
        match error.code() {
            Some(code)
                if [
                    SqlState::UNIQUE_VIOLATION,
                    SqlState::DUPLICATE_TABLE,
                    SqlState::DUPLICATE_COLUMN,
                    SqlState::DUPLICATE_SCHEMA,
                    SqlState::DUPLICATE_OBJECT,
                    SqlState::T_R_DEADLOCK_DETECTED,
                ]
                .contains(code) =>
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Ok(())
            }
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Err(no_rights(says(&error))),
            _ => Err(in_words(&error, address)),
        }
    }
}

/// How often tables are looked for, when somebody else makes them at the same time.
const TRIES: u32 = 50;

/// What the database says, without its place in the program.
pub(super) fn says(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => {
            let source = std::error::Error::source(error);
            source.map_or_else(|| error.to_string(), ToString::to_string)
        }
    }
}

/// What is wrong, told apart by what to do about it.
pub(super) fn in_words(error: &Error, address: &Address) -> DatabaseError {
    let (place, why) = (address.place(), says(error));
    match error.code() {
        Some(code)
            if [
                SqlState::INVALID_PASSWORD,
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            ]
            .contains(code) =>
        {
            DatabaseError::Refused { place, why }
        }
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => DatabaseError::NoDatabase { why },
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            DatabaseError::ReadOnly { place }
        }
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => DatabaseError::NoRights { why },
        Some(_) => DatabaseError::Other { place, why },
        None if why.contains("password") => DatabaseError::Refused { place, why },
        None => DatabaseError::Unreachable { place, why },
    }
}
