//! A PostgreSQL of the test's own: in a directory that goes with it, behind a socket in that directory, as a user that is
//! not root.
#![allow(dead_code, reason = "not every test uses everything")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that ends when it is dropped.
pub(crate) struct Postgres {
    programs: PathBuf,
    directory: tempfile::TempDir,
    options: Vec<String>,
    process: Option<Child>,
    port: u16,
}

/// Who owns the database.
pub(crate) const OWNER: &str = "loxley";

impl Postgres {
    /// Starts one; none, said aloud, where the programs are missing.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// With settings beside: `wal_level=replica`.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        let mut this = Self::make(options)?;
        this.initialize();
        this.run();
        Some(this)
    }

    /// A copy of it that follows it.
    pub(crate) fn standby(&self) -> Self {
        let mut this = Self::make(&[]).expect("there is a PostgreSQL");
        let copied = this
            .command("pg_basebackup")
            .arg("-h")
            .arg(self.directory.path())
            .args(["-U", OWNER, "-R", "-c", "fast", "--no-sync", "-D"])
            .arg(this.data())
            .output()
            .unwrap();
        assert!(
            copied.status.success(),
            "{}",
            String::from_utf8_lossy(&copied.stderr)
        );
        this.run();
        this
    }

    /// One that also listens on a port of this machine, and speaks TLS there with this certificate and key.
    pub(crate) fn start_with_tls(certificate: &str, key: &str) -> Option<Self> {
        let mut this = Self::make(&["ssl=on", "listen_addresses=localhost"])?;
        this.initialize();
        this.put("server.crt", certificate);
        this.put("server.key", key);
        // Somebody else may take the port between our look and its start.
        for _ in 0..10 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            this.port = free.local_addr().unwrap().port();
            drop(free);
            if this.try_run().is_ok() {
                return Some(this);
            }
        }
        panic!("no port is free");
    }

    fn make(options: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            skipped(
                "no PostgreSQL here (`cargo xtask test others` installs Debian's where it may)",
            );
            return None;
        };
        let directory = tempfile::Builder::new()
            .prefix("lox-pg-")
            .tempdir()
            .unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), everybody).unwrap();
        if is_root() {
            let owned = Command::new("chown")
                .args(["postgres:"])
                .arg(directory.path())
                .status();
            assert!(owned.unwrap().success(), "there is no user `postgres`");
        }
        Some(Self {
            programs,
            directory,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            process: None,
            port: 5432,
        })
    }

    fn initialize(&self) {
        let made = self
            .command("initdb")
            .args([
                "-A",
                "trust",
                "-U",
                OWNER,
                "--no-sync",
                "-E",
                "UTF8",
                "--no-locale",
                "-D",
            ])
            .arg(self.data())
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
    }

    /// Puts a file among its data that its user alone can read.
    fn put(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            let owned = Command::new("chown")
                .args(["postgres:"])
                .arg(&path)
                .status();
            assert!(owned.unwrap().success());
        }
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The hosts of several of them, as they stand in an address.
    pub(crate) fn host(&self) -> String {
        let host = self.directory.path().display().to_string();
        host.replace('/', "%2F")
    }

    /// The address of a schema in it.
    pub(crate) fn url(&self, schema: &str) -> String {
        self.url_of(OWNER, "postgres", schema)
    }

    pub(crate) fn url_of(&self, user: &str, database: &str, schema: &str) -> String {
        let (host, port) = (self.host(), self.port);
        format!("postgres://{user}@{host}:{port}/{database}?schema={schema}")
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        let name = format!(".s.PGSQL.{}", self.port);
        self.directory.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// One of its programs, as the user that it runs as.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
                // Whoever kills the test ends its database.
                command.args(["--pdeathsig", "KILL", "--"]).arg(path);
                command
            }
            false => Command::new(path),
        };
        command
            .current_dir(self.directory.path())
            .env("LC_ALL", "C");
        command
    }

    /// Starts it, and waits until it takes connections.
    pub(crate) fn run(&mut self) {
        if let Err(said) = self.try_run() {
            panic!("{said}");
        }
    }

    fn try_run(&mut self) -> Result<(), String> {
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.directory.path());
        command.args(["-p", &self.port.to_string()]);
        command.args(["-c", "listen_addresses=", "-c", "max_connections=60"]);
        for option in &self.options {
            command.args(["-c", option]);
        }
        command.stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while !self
            .try_sql(OWNER, "SELECT 1")
            .is_ok_and(|answer| answer == "1")
        {
            let log = self.directory.path().join("log");
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(120), "{}", said());
            let process = self.process.as_mut().unwrap();
            if process.try_wait().unwrap().is_some() {
                self.process = None;
                return Err(said());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends it as its machine would: without a word.
    pub(crate) fn kill(&mut self) {
        self.signal("QUIT");
    }

    fn signal(&mut self, signal: &str) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        // `setpriv` became the server: it has the same number.
        let number = process.id().to_string();
        let _ = Command::new("kill")
            .args([&format!("-{signal}"), &number])
            .status();
        let _ = process.wait();
    }

    /// Settings, and a restart.
    pub(crate) fn restart_with(&mut self, options: &[&str]) {
        self.signal("INT");
        self.options = options.iter().map(|&option| option.to_owned()).collect();
        self.run();
    }

    /// Keeps a copy of its data as they are now.
    pub(crate) fn set_aside(&mut self) {
        self.signal("INT");
        self.copy("data", "aside");
        self.run();
    }

    /// Puts that copy in place of what it has: what was committed since is lost.
    pub(crate) fn put_back(&mut self) {
        self.signal("QUIT");
        std::fs::remove_dir_all(self.data()).unwrap();
        self.copy("aside", "data");
        self.run();
    }

    fn copy(&self, from: &str, to: &str) {
        let copied = Command::new("cp")
            .args(["-a", from, to])
            .current_dir(self.directory.path())
            .status();
        assert!(copied.unwrap().success());
    }

    /// Runs a statement and returns what it prints.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.try_sql(OWNER, text).unwrap()
    }

    pub(crate) fn try_sql(&self, user: &str, text: &str) -> Result<String, String> {
        let mut command = self.command("psql");
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            user,
            "-d",
            "postgres",
            "-p",
            &self.port.to_string(),
        ]);
        command.arg("-h").arg(self.directory.path());
        command.args(["-f", "-"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // One that cannot connect may be gone before it has read anything; what it ended with says why.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        let output = child.wait_with_output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Waits until connections of ours that were dropped are gone.
    pub(crate) fn until_nobody_is_connected(&self) {
        let begun = Instant::now();
        let ask = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'loxley'";
        while self.sql(ask) != "0" {
            assert!(begun.elapsed() < Duration::from_secs(120));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Asks for passwords from now on.
    pub(crate) fn ask_for_passwords(&self) {
        let rules = format!("local all {OWNER} trust\nlocal all all scram-sha-256\n");
        std::fs::write(self.data().join("pg_hba.conf"), rules).unwrap();
        self.sql("SELECT pg_reload_conf()");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.signal("QUIT");
    }
}

/// The newest of Debian's, or whatever is on the path.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            let programs = entry.path().join("bin");
            programs
                .join("initdb")
                .exists()
                .then_some((version, programs))
        })
        .collect();
    found.sort();
    if let Some((_, programs)) = found.pop() {
        return Some(programs);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|directory| directory.join("initdb").exists())
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self")
        .is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0)
}

/// Says aloud that a test did not do its work.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
