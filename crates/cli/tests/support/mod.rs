//! A server with agents and everything around them: real processes, a directory and a port of their own.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");
/// Nothing here takes as long, also on a machine that does other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A server with its agents; all of them end with it.
pub(crate) struct Fleet {
    directory: TempDir,
    pub(crate) server: Child,
    pub(crate) url: String,
    pub(crate) agents: Vec<Child>,
    config: Option<PathBuf>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in self.agents.iter_mut().chain([&mut self.server]) {
            // One that was stopped would hear nothing else.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Fleet {
    /// A server without agents that gives agents up after so many seconds of silence; as it does by default when
    /// none is given.
    pub(crate) fn new(lost_after: Option<u32>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = lost_after.map(|seconds| {
            let file = directory.path().join("fleet.yaml");
            fs::write(&file, heartbeats(seconds)).unwrap();
            file
        });
        let (server, url) = serve(directory.path(), "127.0.0.1:0", config.as_deref());
        Self {
            directory,
            server,
            url,
            agents: Vec::new(),
            config,
        }
    }

    /// A server in a directory that is made ready for it first.
    pub(crate) fn over(prepare: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let (server, url) = serve(directory.path(), "127.0.0.1:0", None);
        Self {
            directory,
            server,
            url,
            agents: Vec::new(),
            config: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(LOXLEY);
        command
            .env("LOXLEY_DIR", self.path())
            .env_remove("LOXLEY_ACCESS")
            .current_dir(self.path());
        command
    }

    /// Starts an agent, and does not wait for it.
    pub(crate) fn spawn_agent(&mut self, args: &[&str]) -> u32 {
        let child = self
            .command()
            .args(["agent", "start", "--log", "error"])
            .args(args)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        self.agents.push(child);
        pid
    }

    /// Starts an agent and waits until the server knows it.
    pub(crate) fn agent(&mut self, args: &[&str]) -> u32 {
        let before = self.alive();
        let pid = self.spawn_agent(args);
        until("the agent is there", || self.alive() > before);
        pid
    }

    pub(crate) fn alive(&self) -> usize {
        let agents = self.json(&["agent", "list", "--json"]);
        let alive = agents.iter().filter(|agent| agent["state"] == "alive");
        alive.count()
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Runs a command that must succeed; gives what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{args:?}: {:?} {said}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The objects that a command printed.
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let text = self.ok(args);
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Kills the server the hard way.
    pub(crate) fn kill_server(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Starts a server with the same directory and the same port.
    pub(crate) fn restart_server(&mut self) {
        let address = self.url.strip_prefix("https://").unwrap().to_owned();
        let config = self.config.clone();
        (self.server, self.url) = serve(self.path(), &address, config.as_deref());
    }

    /// What tasks wrote into a file of the directory, line by line.
    pub(crate) fn book(&self, name: &str) -> Vec<String> {
        lines(&self.path().join(name))
    }
}

pub(crate) fn heartbeats(lost_after: u32) -> String {
    let suspect_after = f64::from(lost_after) / 3.0;
    format!(
        "load_balancing:\n  heartbeats: {{suspect_after_sec: {suspect_after}, lost_after_sec: {lost_after}}}\n"
    )
}

pub(crate) fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(ToOwned::to_owned).collect()
}

fn serve(directory: &Path, listen: &str, config: Option<&Path>) -> (Child, String) {
    let mut command = Command::new(LOXLEY);
    command
        .args([
            "server", "start", "--json", "--log", "error", "--listen", listen, "--dir",
        ])
        .arg(directory);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let stdout = server.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).expect("it says where it is");
    let url = started["url"].as_str().unwrap().to_owned();
    (server, url)
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(
            started.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Whether a process is there and has not ended.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| {
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next());
        !matches!(state, Some("Z" | "X"))
    })
}
