//! The PostgreSQL that is measured on.

use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use loxley_journal::postgres::Address;
use tokio::runtime::Runtime;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls};

use super::WORKERS;
use crate::server::Fleet;

#[expect(clippy::unwrap_used, reason = "it is a part of the tests")]
#[path = "../../../crates/journal/tests/postgres_server/mod.rs"]
mod postgres_server;

use postgres_server::{OWNER, Postgres};

/// What the schemas begin with that are made and dropped.
const PREFIX: &str = "loxley_bench";

/// The database, empty of ours at both ends.
pub(super) struct Database {
    pub(super) runtime: Runtime,
    config: Config,
    /// Without a schema.
    url: String,
    /// Ours, if nobody named one. Last to go.
    _server: Option<Postgres>,
}

impl Database {
    pub(super) fn new(url: Option<&str>) -> Result<Self> {
        let server = match url {
            Some(_) => None,
            None => {
                Some(Postgres::start().context("no PostgreSQL here: name one with --database")?)
            }
        };
        let url = match (url, &server) {
            (Some(url), _) => url.to_owned(),
            (None, Some(server)) => {
                let (host, port) = (server.host(), server.port());
                format!("postgres://{OWNER}@{host}:{port}/postgres")
            }
            (None, None) => unreachable!("one was started"),
        };
        let this = Self {
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?,
            config: Config::from_str(&url).context("--database")?,
            url,
            _server: server,
        };
        this.clear()?;
        Ok(this)
    }

    fn clear(&self) -> Result<()> {
        for schema in ["one", "two", "failover", "table"] {
            self.drop_schema(&schema_of(schema))?;
        }
        self.drop_schema("graphile_worker")
    }

    pub(super) fn drop_schema(&self, schema: &str) -> Result<()> {
        let text = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
        self.runtime
            .block_on(async { Ok(self.connect().await?.batch_execute(&text).await?) })
    }

    pub(super) async fn connect(&self) -> Result<Client> {
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// The address of a journal in a schema of ours.
    pub(super) fn journal(&self, name: &str) -> String {
        let mark = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{mark}schema={}", self.url, schema_of(name))
    }

    /// A new server on a journal there, with its agents.
    pub(super) fn fleet(&self, name: &str, shards: u16) -> Result<Fleet> {
        self.drop_schema(&schema_of(name))?;
        let address = Address::parse(&self.journal(name), None)?;
        Fleet::start_on(address, shards, WORKERS as u32, 1, 1)
    }

    /// Has a program find it as programs of PostgreSQL do.
    pub(super) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => command.env("PGHOST", host),
            Some(Host::Unix(path)) => command.env("PGHOST", path),
            None => command,
        };
        if let Some(port) = self.config.get_ports().first() {
            command.env("PGPORT", port.to_string());
        }
        if let Some(user) = self.config.get_user() {
            command.env("PGUSER", user);
        }
        if let Some(password) = self.config.get_password() {
            command.env("PGPASSWORD", String::from_utf8_lossy(password).as_ref());
        }
        command.env("PGDATABASE", self.config.get_dbname().unwrap_or("postgres"))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.clear();
    }
}

/// The schema of ours of this name.
pub(super) fn schema_of(name: &str) -> String {
    format!("{PREFIX}_{name}")
}
