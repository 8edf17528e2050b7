//! A server is killed: how long until another one has accepted a task, and until one has run?

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::database::{Database, schema_of};
use crate::Options;
use crate::measure::{Role, Samples};
use crate::report::{Goal, Report};

/// The most that a failover may take, in seconds.
const GOAL: Goal = Goal::AtMost(10.0);

/// Who does not answer within this time never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two servers and an agent, processes of their own; whichever serves is killed, again and again, and started anew.
pub(super) fn stall(options: &Options, database: &Database, report: &mut Report) -> Result<()> {
    let rounds = if options.quick { 2 } else { 9 };
    database.drop_schema(&schema_of("failover"))?;
    let directory = tempfile::tempdir()?;
    let world = World {
        directory: directory.path(),
        journal: database.journal("failover"),
    };
    let mut serving = world.server("a")?;
    let mut standby = world.server("b")?;
    let _agent = Process(
        world
            .loxley("a")?
            .args(["agent", "start", "--slots", "1"])
            .stdout(Stdio::null())
            .stderr(File::create(directory.path().join("agent.log"))?)
            .spawn()?,
    );
    world.until_done("a", &["submit", "--wait", "--", "true"])?;
    let (mut accepted, mut ended) = (Vec::new(), Vec::new());
    let (mut old, mut new) = ("a", "b");
    for _ in 0..rounds {
        // Long enough for whoever was started last to stand by.
        std::thread::sleep(Duration::from_secs(4));
        let killed = Instant::now();
        drop(serving);
        world.until_done(new, &["submit", "--", "true"])?;
        accepted.push(killed.elapsed().as_secs_f64());
        world.until_done(new, &["submit", "--wait", "--", "true"])?;
        ended.push(killed.elapsed().as_secs_f64());
        serving = standby;
        standby = world.server(old)?;
        (old, new) = (new, old);
    }
    for (name, times) in [
        ("failover, a task is accepted", accepted),
        ("failover, a task has run", ended),
    ] {
        let longest = times.iter().copied().fold(0.0, f64::max);
        let samples = [
            Samples::new("loxley", Role::Subject, times),
            Samples::single("longest", Role::Floor, longest),
        ];
        report.case(name, "s", Some(GOAL), &samples);
    }
    Ok(())
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World<'a> {
    directory: &'a Path,
    journal: String,
}

impl World<'_> {
    /// The program, with the access file of this server.
    fn loxley(&self, server: &str) -> Result<Command> {
        let program = std::env::current_exe()?.with_file_name("loxley");
        let mut command = Command::new(program);
        command
            .env("LOXLEY_DIR", self.directory.join(server))
            .env_remove("LOXLEY_ACCESS")
            .env_remove("LOXLEY_JOURNAL")
            .stdin(Stdio::null())
            .current_dir(self.directory);
        Ok(command)
    }

    /// Starts a server; it serves, or stands by.
    fn server(&self, name: &str) -> Result<Process> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join(format!("{name}.log")))?;
        let mut command = self.loxley(name)?;
        command
            .args(["server", "start", "--listen", "127.0.0.1:0", "--json"])
            .args(["--instance", name, "--journal", &self.journal])
            .stdout(Stdio::piped())
            .stderr(log);
        let child = command.spawn().context("build loxley first")?;
        let mut process = Process(child);
        let mut line = String::new();
        let out = process.0.stdout.take().context("it has an output")?;
        BufReader::new(out).read_line(&mut line)?;
        let log = || std::fs::read_to_string(self.directory.join(format!("{name}.log")));
        ensure!(!line.is_empty(), "{name} did not start: {}", log()?);
        Ok(process)
    }

    /// Runs a command until it succeeds.
    fn until_done(&self, server: &str, arguments: &[&str]) -> Result<()> {
        let begun = Instant::now();
        loop {
            let output = self.loxley(server)?.args(arguments).output()?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(begun.elapsed() < PATIENCE, "{arguments:?}: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
