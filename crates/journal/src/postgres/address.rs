//! Where the database is, and how to get in.
//!
//! `postgres://user@host:5432/database?sslmode=verify-full&sslrootcert=/etc/ssl/db.pem&schema=loxley`: as every tool of
//! PostgreSQL takes it, with `schema` beside. A password in the address is refused: it would stand in the list of
//! processes.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::tls::{self, Tls};
use crate::DatabaseError;

/// The schema, when none is named.
const SCHEMA: &str = "loxley";

/// How long a connection may take to come about.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Where a journal in PostgreSQL is. It knows the password, and does not show it.
#[derive(Clone)]
pub struct Address {
    pub(super) config: Config,
    pub(super) tls: Arc<Tls>,
    schema: String,
}

impl Address {
    /// Whether this text means a database, and not a directory.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Reads an address. The password comes from the file that is named, else from `PGPASSWORD`, else from the file
    /// that `PGPASSFILE` names, else from `~/.pgpass`.
    ///
    /// # Errors
    /// When it makes no sense, holds a password, or a file cannot be used.
    pub fn parse(text: &str, password_file: Option<&Path>) -> Result<Self, DatabaseError> {
        if !Self::is_meant(text) {
            let message = "it begins with postgres://".to_owned();
            return Err(DatabaseError::Address(message));
        }
        let Parameters {
            rest,
            schema,
            mode,
            root,
        } = Parameters::take(text)?;
        // What the library says of a bad address may quote it.
        let mut config = Config::from_str(&rest)
            .map_err(|error| DatabaseError::Address(format!("{error} (in the address)")))?;
        if config.get_password().is_some() {
            return Err(DatabaseError::Address(
                "it holds a password, which everybody could see in the list of processes; put it into a file and name \
                 that with --journal-password-file, or set PGPASSFILE or PGPASSWORD"
                    .to_owned(),
            ));
        }
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_user().is_none() {
            config.user(default_user());
        }
        config.ssl_mode(mode.ssl_mode());
        config.application_name("loxley");
        config.connect_timeout(CONNECT_TIME);
        config.keepalives_idle(Duration::from_secs(2));
        config.keepalives_interval(Duration::from_secs(1));
        config.keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(5));
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = Arc::new(tls::connector(mode, root.as_deref())?);
        let mut address = Self {
            config,
            tls,
            schema,
        };
        if let Some(password) = address.password(password_file)? {
            address.config.password(password);
        }
        Ok(address)
    }

    /// The schema with the tables.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Host, port and database, for people: no user, no password.
    #[must_use]
    pub fn place(&self) -> String {
        let ports = self.config.get_ports();
        let hosts = self.config.get_hosts().iter().enumerate();
        let hosts: Vec<String> = hosts
            .map(|(index, host)| {
                let port = ports.get(index).or(ports.first()).unwrap_or(&5432);
                match host {
                    Host::Tcp(name) => format!("{name}:{port}"),
                    Host::Unix(path) => format!("{}:{port}", path.display()),
                }
            })
            .collect();
        format!("{}/{}", hosts.join(","), self.database())
    }

    fn database(&self) -> &str {
        let named = self.config.get_dbname().or(self.config.get_user());
        named.unwrap_or_default()
    }

    fn password(&self, file: Option<&Path>) -> Result<Option<String>, DatabaseError> {
        if let Some(path) = file {
            let text = read_secret(path)?;
            return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
        }
        if let Ok(password) = std::env::var("PGPASSWORD") {
            return Ok(Some(password));
        }
        if let Some(path) = std::env::var_os("PGPASSFILE") {
            return Ok(self.find_password(&read_secret(Path::new(&path))?));
        }
        let home = std::env::home_dir().map(|home| home.join(".pgpass"));
        match home.filter(|path| path.exists()) {
            // As everywhere: one that others can read is passed over, here aloud only when it was named.
            Some(path) => Ok(read_secret(&path)
                .ok()
                .and_then(|text| self.find_password(&text))),
            None => Ok(None),
        }
    }

    /// The first line of a password file that fits: `host:port:database:user:password`.
    fn find_password(&self, text: &str) -> Option<String> {
        let ports = self.config.get_ports();
        let user = self.config.get_user().unwrap_or_default();
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .find_map(|line| {
                let [host, port, database, name, password] = fields(line)?;
                let fits = |field: &str, value: &str| field == "*" || field == value;
                let reached = self
                    .config
                    .get_hosts()
                    .iter()
                    .enumerate()
                    .any(|(index, known)| {
                        let number = ports.get(index).or(ports.first()).unwrap_or(&5432);
                        let known = match known {
                            Host::Tcp(name) => name.clone(),
                            Host::Unix(_) => "localhost".to_owned(),
                        };
                        fits(&host, &known) && fits(&port, &number.to_string())
                    });
                let fits = reached && fits(&database, self.database()) && fits(&name, user);
                fits.then_some(password)
            })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("place", &self.place())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// How the connection is kept from strangers, as `libpq` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyFull,
}

impl Mode {
    fn ssl_mode(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyFull => SslMode::Require,
        }
    }
}

/// What the library does not know, taken out of the address.
struct Parameters {
    rest: String,
    schema: String,
    mode: Mode,
    root: Option<String>,
}

impl Parameters {
    fn take(text: &str) -> Result<Self, DatabaseError> {
        let bad = |what: String| DatabaseError::Address(what);
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut this = Self {
            rest: String::new(),
            schema: SCHEMA.to_owned(),
            mode: Mode::Prefer,
            root: None,
        };
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => this.schema = checked_schema(value)?,
                "sslmode" => {
                    this.mode = match value {
                        "disable" => Mode::Disable,
                        "prefer" => Mode::Prefer,
                        "require" => Mode::Require,
                        "verify-full" => Mode::VerifyFull,
                        other => {
                            let known = "disable, prefer, require or verify-full";
                            return Err(bad(format!("sslmode is {known}, not `{other}`")));
                        }
                    }
                }
                "sslrootcert" => this.root = Some(value.replace("%2F", "/").replace("%2f", "/")),
                _ => others.push(pair),
            }
        }
        this.rest = match others.is_empty() {
            true => base.to_owned(),
            false => format!("{base}?{}", others.join("&")),
        };
        Ok(this)
    }
}

/// A schema is written into statements, so it is a plain word.
fn checked_schema(name: &str) -> Result<String, DatabaseError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || name.len() > 63 || !name.chars().all(is_plain) || name.starts_with("pg_") {
        return Err(DatabaseError::Address(format!(
            "a schema is a word of small letters, digits and `_`, not `{name}`"
        )));
    }
    Ok(name.to_owned())
}

fn default_user() -> String {
    let named = std::env::var("PGUSER").or_else(|_| std::env::var("USER"));
    named.unwrap_or_else(|_| "postgres".to_owned())
}

/// The five fields of a line of a password file; a backslash takes the meaning from `:` and `\`.
fn fields(line: &str) -> Option<[String; 5]> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => fields.last_mut()?.push(letters.next()?),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut()?.push(other),
        }
    }
    fields.try_into().ok()
}

/// A file that others can read is no secret, and is refused as `libpq` does.
fn read_secret(path: &Path) -> Result<String, DatabaseError> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let refused = |why: String| DatabaseError::PasswordFile {
        path: path.display().to_string(),
        why,
    };
    let mut file = std::fs::File::open(path).map_err(|error| refused(error.to_string()))?;
    let data = file
        .metadata()
        .map_err(|error| refused(error.to_string()))?;
    if data.is_file() && data.mode() & 0o077 != 0 {
        return Err(refused(format!(
            "others can read it (mode {:o}); run chmod 600",
            data.mode() & 0o777
        )));
    }
    let mut text = String::new();
    let read = file.by_ref().take(1 << 20).read_to_string(&mut text);
    read.map_err(|error| refused(error.to_string()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, DatabaseError> {
        Address::parse(text, None)
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        let error = parse("postgres://robin:hunter2@host/db").unwrap_err();
        let words = error.to_string();
        assert!(words.contains("--journal-password-file"), "{words}");
        assert!(!words.contains("hunter2"), "{words}");
        let error = parse("postgres://robin@host/db?password=hunter2").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn what_is_shown_of_an_address_holds_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "hunter2\n").unwrap();
        let others = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, others).unwrap();
        let refused = Address::parse("postgres://r@h/db", Some(&path)).unwrap_err();
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
        let alone = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, alone).unwrap();
        let address = Address::parse("postgres://r@h/db", Some(&path)).unwrap();
        assert_eq!(address.config.get_password(), Some(&b"hunter2"[..]));
        assert!(!format!("{address:?}").contains("hunter2"));
        assert_eq!(address.place(), "h:5432/db");
    }

    #[test]
    fn lines_of_a_password_file_are_matched_by_their_fields() {
        let address = parse("postgres://robin@db.example:5433/jobs?schema=fleet_1").unwrap();
        assert_eq!(address.schema(), "fleet_1");
        let file = "# a comment\nother:*:*:*:no\ndb.example:5433:jobs:will:no\n*:*:jobs:robin:a\\:b\\\\c\n";
        assert_eq!(address.find_password(file).as_deref(), Some("a:b\\c"));
        assert_eq!(address.find_password("h:1:d:u:p"), None);
    }

    #[test]
    fn bad_addresses_say_what_is_wrong() {
        for (text, word) in [
            ("mysql://h/db", "postgres://"),
            ("postgres://h/db?sslmode=maybe", "verify-full"),
            ("postgres://h/db?schema=a;drop", "small letters"),
            ("postgres://h/db?schema=pg_catalog", "small letters"),
            ("postgres://h/db?sslmode=verify-full", "sslrootcert"),
            ("postgres://h:notaport/db", "address"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
