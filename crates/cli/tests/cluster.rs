//! Several servers on one PostgreSQL: the real binary, real processes, a real database.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[path = "../../journal/tests/postgres_server/mod.rs"]
mod postgres_server;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use postgres_server::Postgres;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");
/// Nothing here takes as long, also on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(180);

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World {
    postgres: Postgres,
    directory: tempfile::TempDir,
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The program, with the access file of this server.
    fn command(&self, server: &str) -> Command {
        let mut command = Command::new(LOXLEY);
        command
            .env("LOXLEY_DIR", self.path(server))
            .env_remove("LOXLEY_ACCESS")
            .env_remove("LOXLEY_JOURNAL")
            .current_dir(self.directory.path());
        command
    }

    /// A server that is called so, in this directory.
    fn start(&self, directory: &str, name: &str) -> Command {
        let mut command = self.command(directory);
        command
            .args(["server", "start", "--listen", "127.0.0.1:0", "--json"])
            .args(["--journal", &self.url("fleet"), "--log", "debug"])
            .arg("--journal-password-file")
            .arg(self.path("password"))
            .args(["--instance", name]);
        command
    }

    /// The address of a schema, for a role that has a password.
    fn url(&self, schema: &str) -> String {
        self.postgres.url_of(ROLE, "postgres", schema)
    }

    /// Starts a server, and returns it with where it listens.
    fn server(&self, name: &str) -> (Process, String) {
        self.started(name, self.start(name, name))
    }

    fn started(&self, name: &str, mut command: Command) -> (Process, String) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.log")))
            .unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let process = Process(child);
        let started: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("{name} did not start: {}", self.log(name));
        });
        (process, started["url"].as_str().unwrap().to_owned())
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    fn agent(&self, server: &str, name: &str, slots: &str) -> Process {
        self.agent_with(server, name, slots, &[])
    }

    fn agent_with(&self, server: &str, name: &str, slots: &str, more: &[&str]) -> Process {
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let child = self
            .command(server)
            .args(["agent", "start", "--name", name, "--slots", slots])
            .args(more)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Process(child.unwrap())
    }

    fn run(&self, server: &str, args: &[&str]) -> Output {
        self.command(server).args(args).output().unwrap()
    }

    fn json(&self, server: &str, args: &[&str]) -> Value {
        let output = self.run(server, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {said}"))
    }

    /// Which server answers, asked with the access file of this one.
    fn who_answers(&self, server: &str) -> Option<String> {
        let output = self.run(server, &["server", "info", "--json"]);
        let info: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(info["url"].as_str()?.to_owned())
    }

    /// The numbers that tasks wrote into their book.
    fn book(&self, name: &str) -> Vec<u64> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(
                begun.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}\n{}",
                ["a", "b", "c", "ada", "bob", "cleo", "dan"]
                    .map(|name| format!("{name}: {}", self.log(name)))
                    .join("\n")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A job of so many tasks, each of which writes its number into a book.
    fn submit(&self, server: &str, book: &str, tasks: u64) -> u64 {
        let script = format!("echo {{}} >>{}; sleep 0.05", self.path(book).display());
        let range = format!("1-{tasks}");
        let job = self.json(
            server,
            &[
                "submit", "--json", "--array", &range, "--", "sh", "-c", &script,
            ],
        );
        job["id"].as_u64().unwrap()
    }

    /// Waits for the end of a job, and looks at its books.
    fn finish(&self, server: &str, job: u64, book: &str, tasks: u64) {
        let id = job.to_string();
        self.until("the job ends", || {
            let output = self.run(server, &["job", "info", &id, "--json"]);
            let info: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            info.is_some_and(|info| info["state"] == "succeeded")
        });
        let mut written = self.book(book);
        written.sort_unstable();
        written.dedup();
        // Nothing was lost. A task may have run twice, where an agent's word did not come through; it counts once.
        assert_eq!(written.len() as u64, tasks);
        let counted = format!("SELECT count(*) FROM fleet.task WHERE job = {job} AND ended = 0");
        assert_eq!(self.postgres.sql(&counted), tasks.to_string());
    }
}

/// Who the servers are to the database, and what lets them in.
const ROLE: &str = "robin";
const PASSWORD: &str = "longbow-of-yew";

fn world() -> Option<World> {
    let postgres = Postgres::start()?;
    postgres.sql(&format!(
        "CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON DATABASE postgres TO {ROLE}"
    ));
    postgres.ask_for_passwords();
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    fs::write(&password, PASSWORD).unwrap();
    let only_me = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&password, only_me).unwrap();
    Some(World {
        postgres,
        directory,
    })
}

#[test]
fn another_server_takes_over_from_one_that_is_killed() {
    const TASKS: u64 = 120;
    let Some(world) = world() else {
        return;
    };
    let a = world.server("a");
    world.until("a serves", || world.who_answers("a").is_some());
    let health = world.json("a", &["server", "health", "--json"]);
    assert!(health.to_string().contains("no_standby"), "{health}");
    let mut servers = vec![("a", a), ("b", world.server("b")), ("c", world.server("c"))];
    let knows = |name: &str, other: &str| {
        let file = fs::read_to_string(world.path(name).join("access.json"));
        file.is_ok_and(|text| text.contains(other))
    };
    world.until("access files name all", || {
        let urls = || servers.iter().map(|(_, (_, url))| url);
        servers
            .iter()
            .all(|(name, _)| urls().all(|url| knows(name, url)))
    });
    let _ada = world.agent("b", "ada", "2");
    let _bob = world.agent("c", "bob", "2");
    what_makes_no_sense_is_refused(&world, &servers[0].1.0);
    world.until("all are seen", || {
        let output = world.run("b", &["server", "list", "--json"]);
        let Ok(seen) = serde_json::from_slice::<Value>(&output.stdout) else {
            return false;
        };
        let states = seen["instances"].as_array().unwrap().iter();
        let states: Vec<&str> = states.map(|one| one["state"].as_str().unwrap()).collect();
        let holder = &seen["shards"][0]["holder"];
        states == ["serving", "standby", "standby"]
            && *holder == seen["instances"][0]["name"]
            && seen["replication"] == "none"
    });
    world.until("health is well of standbys", || {
        let output = world.run("c", &["server", "health", "--json"]);
        let health: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        health.is_some_and(|health| !health.to_string().contains("no_standby"))
    });

    // The one that serves is killed while tasks run.
    let job = world.submit("a", "first", TASKS);
    world.until("tasks run", || world.book("first").len() > 20);
    let mut killed = None;
    world.until("somebody serves", || {
        killed = world.who_answers("b");
        killed.is_some()
    });
    let killed = killed.unwrap();
    servers.retain(|(_, (_, url))| *url != killed);
    assert_eq!(servers.len(), 2);
    let (left, other) = (servers[0].0, servers[1].0);
    world.until("another one serves", || {
        world.who_answers(left).is_some_and(|url| url != killed)
    });
    world.finish(left, job, "first", TASKS);

    // The one that serves gives its shard away while tasks run.
    let job = world.submit(left, "second", TASKS);
    world.until("tasks run", || world.book("second").len() > 20);
    world.until("it is handed over", || {
        let handover = ["server", "handover", "--timeout", "3m"];
        world.run(other, &handover).status.success()
    });
    let epoch: u64 = world
        .postgres
        .sql("SELECT epoch FROM fleet.shard")
        .parse()
        .unwrap();
    assert!(epoch >= 3, "{epoch}");
    world.finish(other, job, "second", TASKS);
    what_is_in_the_database_can_be_replayed(&world);
    let mut forgotten = Value::Null;
    world.until("the past is forgotten", || {
        let prune = ["journal", "prune", "--keep", "1", "--json"];
        let output = world.run(left, &prune);
        forgotten = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        output.status.success()
    });
    assert_eq!(forgotten["jobs"], 1, "{forgotten}");

    // One writer at a time, in the order of their epochs.
    let writers = "SELECT bool_and(epoch >= before) FROM (SELECT epoch, \
        lag(epoch, 1, 0::bigint) OVER (ORDER BY pos) AS before FROM fleet.grp) AS written";
    assert_eq!(world.postgres.sql(writers), "t");

    // Back to one server, with everything.
    for (_, (server, _)) in &servers {
        server.signal(Signal::TERM);
    }
    for (_, (mut server, _)) in servers {
        assert!(server.0.wait().unwrap().success());
    }
    let home = world.path("home").display().to_string();
    let password = world.path("password").display().to_string();
    let url = world.url("fleet");
    let copy = ["journal", "copy", &url, &home, "--json"];
    let with_password = ["--journal-password-file", &password];
    let copied = world.json("home", &[&copy[..], &with_password].concat());
    assert_eq!(copied["tasks"], TASKS, "{copied}");
    let checked = world.json("home", &["journal", "check", "--dir", &home, "--json"]);
    assert_eq!(checked["whole"], true, "{checked}");

    // Nobody wrote the password down.
    for name in ["a", "b", "c", "ada", "bob"] {
        assert!(!world.log(name).contains(PASSWORD), "{name}");
    }
}

/// While servers use it.
fn what_is_in_the_database_can_be_replayed(world: &World) {
    let run = |args: &[&str]| {
        let mut command = world.command("home");
        command.env("PGPASSWORD", PASSWORD).args(args);
        command.output().unwrap()
    };
    let url = world.url("fleet");
    for args in [
        ["replay", &url, "--seeds=2", "--json"],
        ["sim", &url, "--seeds=1", "--json"],
    ] {
        let output = run(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        let _: Value = serde_json::from_slice(&output.stdout).unwrap();
    }
    let advised = run(&["advise", &url]);
    assert!(advised.status.success(), "{advised:?}");
    let foreign = run(&["replay", &world.url("nobodys")]);
    let said = String::from_utf8_lossy(&foreign.stderr);
    assert!(
        !foreign.status.success() && said.contains("nobodys"),
        "{said}"
    );
    assert!(!said.contains(PASSWORD), "{said}");
}

fn what_makes_no_sense_is_refused(world: &World, holder: &Process) {
    let cmdline = fs::read(format!("/proc/{}/cmdline", holder.0.id())).unwrap();
    let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
    assert!(cmdline.contains("--journal") && !cmdline.contains(PASSWORD));
    let refused = |mut command: Command, word: &str| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(word), "{said}");
        assert!(
            !said.contains(PASSWORD) && !said.contains("hunter2"),
            "{said}"
        );
    };
    // A name that another one has.
    refused(world.start("other", "b"), "`b` is there already");
    let start = |dir: &str, journal: &str| {
        let mut command = world.command(dir);
        command.args(["server", "start", "--listen", "127.0.0.1:0"]);
        command.args(["--journal", journal]);
        command
    };
    refused(
        start("other", "postgres://r:hunter2@h/d"),
        "--journal-password-file",
    );
    refused(start("other", "/var/lib/loxley"), "postgres://");
    // No password, and a wrong one.
    refused(
        start("other", &world.url("fleet")),
        "--journal-password-file",
    );
    let mut wrong = start("other", &world.url("fleet"));
    wrong.env("PGPASSWORD", "hunter2");
    refused(wrong, "does not let us in");
    // The directory of one cluster with the schema of another.
    refused(
        start("b", &world.postgres.url("other")),
        "belongs to the cluster",
    );
    // A copy of a journal that is served from.
    let mut copy = world.command("other");
    copy.args(["journal", "copy", &world.url("fleet"), "copied"]);
    copy.env("PGPASSWORD", PASSWORD);
    refused(copy, "stop its servers first");
}

#[test]
fn a_standby_takes_over_from_a_holder_that_is_killed_or_stands_still() {
    const TASKS: u64 = 300;
    // It waits for leases to run out, again and again: a minute on a quiet machine.
    if std::env::var_os("LOXLEY_TEST_LONG").is_none() {
        eprintln!("NOT RUN: the takeover with real processes; set LOXLEY_TEST_LONG=1");
        return;
    }
    let Some(mut world) = world() else {
        return;
    };
    let (a, a_url) = world.server("a");
    world.until("a serves", || world.who_answers("a").is_some());
    let _ada = world.agent("a", "ada", "2");
    let (b, b_url) = world.server("b");
    // Both know of both, and b sends everybody to a.
    let knows = |name: &str, other: &str| {
        let file = fs::read_to_string(world.path(name).join("access.json"));
        file.is_ok_and(|text| text.contains(other))
    };
    world.until("access files name both", || {
        knows("a", &b_url) && knows("b", &a_url)
    });
    assert_eq!(world.who_answers("b").as_ref(), Some(&a_url));
    let _bob = world.agent("b", "bob", "2");
    // An agent that came before b hears of it.
    let has_heard = |agent: &str, url: &str| world.log(agent).contains(url);
    world.until("ada knows b", || has_heard("ada", &b_url));

    // The holder is killed while tasks run, one of which runs all the time.
    let long = format!(
        "echo 1 >>{0}; while [ ! -e {1} ]; do sleep 0.1; done",
        world.path("long").display(),
        world.path("go").display()
    );
    // It fails when its agent is given up, and there is no second copy of it.
    let submit = ["submit", "--json", "--no-rerun", "--", "sh", "-c", &long];
    let long = world.json("a", &submit)["id"].clone();
    world.until("the long one runs", || world.book("long") == [1]);
    let job = world.submit("a", "first", TASKS);
    world.until("tasks run", || world.book("first").len() > 20);
    drop(a);
    world.until("b serves", || {
        world.who_answers("b").as_ref() == Some(&b_url)
    });
    world.finish("b", job, "first", TASKS);
    fs::write(world.path("go"), "").unwrap();
    let long = long.to_string();
    world.until("the long one ends", || {
        let output = world.run("b", &["job", "info", &long, "--json"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            !said.contains("\"failed\","),
            "{said}\nada: {}\nbob: {}",
            world.log("ada"),
            world.log("bob")
        );
        said.contains("\"succeeded\",")
    });
    // It went on running through all of it.
    assert_eq!(world.book("long"), [1]);

    // The holder stands still; when it wakes up, it finds out.
    let (_a, a_url) = world.server("a");
    world.until("everybody knows a", || {
        knows("b", &a_url) && has_heard("ada", &a_url) && has_heard("bob", &a_url)
    });
    let job = world.submit("b", "second", TASKS);
    world.until("tasks run", || world.book("second").len() > 20);
    b.signal(Signal::STOP);
    world.until("a serves", || {
        world.who_answers("a").as_ref() == Some(&a_url)
    });
    b.signal(Signal::CONT);
    world.finish("a", job, "second", TASKS);
    let alone = world.path("alone.json");
    let mut access: Value =
        serde_json::from_slice(&fs::read(world.path("b").join("access.json")).unwrap()).unwrap();
    access["others"] = Value::Array(Vec::new());
    fs::write(&alone, access.to_string()).unwrap();
    let only_me = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&alone, only_me).unwrap();
    // Asked b, which stands by again and names a.
    let access = alone.display().to_string();
    world.until("b stands by", || {
        let info = world.run("b", &["server", "info", "--json", "--access", &access]);
        String::from_utf8_lossy(&info.stdout).contains(&a_url)
    });
    // One writer at a time, in the order of their epochs.
    let writers = "SELECT bool_and(epoch >= before) FROM (SELECT epoch, \
        lag(epoch, 1, 0::bigint) OVER (ORDER BY pos) AS before FROM fleet.grp) AS written";
    assert_eq!(world.postgres.sql(writers), "t");
    assert_eq!(world.postgres.sql("SELECT epoch FROM fleet.shard"), "3");

    // The database dies, and comes back.
    let job = world.submit("a", "restarted", TASKS);
    world.until("tasks run", || world.book("restarted").len() > 20);
    world.postgres.kill();
    world.postgres.run();
    world.finish("a", job, "restarted", TASKS);

    // Whoever is told to end gives its shard away at once.
    let before = world.who_answers("a").unwrap();
    world.run("a", &["server", "stop"]);
    world.until("the other serves", || {
        let answers = world.who_answers("b");
        answers.is_some_and(|url| url != before)
    });
    let job = world.submit("b", "third", 10);
    world.finish("b", job, "third", 10);
}

impl World {
    /// A server of a cluster that the first one divided into so many shards.
    fn server_of(&self, name: &str, shards: Option<&str>) -> (Process, String) {
        let mut command = self.start(name, name);
        command.args(shards.into_iter().flat_map(|count| ["--shards", count]));
        self.started(name, command)
    }

    /// How many shards each instance holds, as the database says.
    fn holders(&self) -> Vec<u64> {
        let held = "SELECT count(*) FROM fleet.shard WHERE expires > clock_timestamp() GROUP BY holder ORDER BY 1";
        let held = self.postgres.sql(held);
        held.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// A job whose tasks write their numbers into a book of their own; where it goes is by its key.
    fn submit_with_key(&self, server: &str, book: &str, tasks: u64, more: &[&str]) -> u64 {
        let script = format!("echo {{}} >>{}; sleep 0.05", self.path(book).display());
        let range = format!("1-{tasks}");
        let submit = [
            "submit", "--json", "--user", "mia", "--key", book, "--array", &range,
        ];
        let command = ["--", "sh", "-c", &script];
        let mut job = Value::Null;
        self.until("the job is accepted", || {
            let output = self.run(server, &[&submit[..], more, &command].concat());
            job = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
            output.status.success()
        });
        job["id"].as_u64().unwrap()
    }

    /// What a list has under this key: one JSON object a line.
    fn listed(&self, server: &str, list: &[&str], key: &str) -> Vec<Value> {
        let output = self.run(server, &[list, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let items = said.lines().map(serde_json::from_str::<Value>);
        items.map(|item| item.unwrap()[key].clone()).collect()
    }
}

/// What an agent can do, and what a task needs.
const GPU: &[&str] = &["--skills", "gpu"];
/// Bits of a number above these are its shard.
const SHARD_BITS: u32 = 40;

#[test]
fn several_servers_serve_shards_of_one_fleet_and_any_of_them_answers() {
    const TASKS: u64 = 20;
    let Some(world) = world() else {
        return;
    };
    let (a, _) = world.server_of("a", Some("4"));
    let mut other = world.start("other", "other");
    other.args(["--shards", "3"]);
    let refused = other.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("has 4 shards"), "{said}");
    let (b, _) = world.server_of("b", None);
    let _ada = world.agent("a", "ada", "2");
    let _bob = world.agent("b", "bob", "2");
    // The one that came later gets its share of the shards.
    world.until("both hold two", || world.holders() == [2, 2]);

    // Whoever is asked, jobs go where they belong, and everybody answers for them.
    let books: Vec<String> = (0..8).map(|number| format!("book-{number}")).collect();
    let mut jobs = Vec::new();
    for (book, server) in books.iter().zip(["a", "b"].into_iter().cycle()) {
        jobs.push(world.submit_with_key(server, book, TASKS, &[]));
    }
    let shards: std::collections::BTreeSet<u64> =
        jobs.iter().map(|job| job >> SHARD_BITS).collect();
    assert!(shards.len() > 1, "{jobs:?}");
    // The same again is the same job, also by way of the other one.
    assert_eq!(world.submit_with_key("b", &books[0], TASKS, &[]), jobs[0]);
    for (job, (book, server)) in jobs
        .iter()
        .zip(books.iter().zip(["b", "a"].into_iter().cycle()))
    {
        world.finish(server, *job, book, TASKS);
    }
    for server in ["a", "b"] {
        let listed = world.listed(server, &["job", "list", "--limit", "100"], "id");
        let listed = listed.iter().map(|id| id.as_u64().unwrap());
        let listed: std::collections::BTreeSet<u64> = listed.collect();
        assert_eq!(listed, jobs.iter().copied().collect());
        let first = world.listed(server, &["job", "list", "--limit", "3"], "id");
        assert_eq!(first.len(), 3);
        let mut agents = world.listed(server, &["agent", "list"], "name");
        agents.sort_by_key(Value::to_string);
        assert_eq!(agents, ["ada", "bob"]);
        let seen = world.json(server, &["server", "list", "--json"]);
        assert_eq!(seen["shards"].as_array().unwrap().len(), 4, "{seen}");
        let health = world.json(server, &["server", "health", "--json"]);
        assert!(!health.to_string().contains("no_standby"), "{health}");
    }
    let job = jobs[1].to_string();
    let tasks = world.listed("a", &["task", "list", &job], "state");
    assert_eq!(tasks.len() as u64, TASKS);
    assert!(tasks.iter().all(|state| state == "succeeded"), "{tasks:?}");

    // What waits, listens and looks does so whichever shard it is.
    for server in ["a", "b", "a"] {
        let waited = world.run(server, &["submit", "--wait", "--", "echo", "told"]);
        assert!(waited.status.success(), "{waited:?}");
        let top = world.run(server, &["top", "--once"]);
        assert!(top.status.success(), "{top:?}");
    }

    // A task that no agent of its shard can do gets one that can, wherever that is.
    let _cleo = world.agent_with("b", "cleo", "1", GPU);
    let skilled: Vec<u64> = (0..2)
        .map(|number| {
            let book = format!("gpu-{number}");
            world.submit_with_key("a", &book, 2, GPU)
        })
        .collect();
    let places: std::collections::BTreeSet<u64> =
        skilled.iter().map(|job| job >> SHARD_BITS).collect();
    assert!(places.len() > 1, "{skilled:?}");
    for (job, number) in skilled.iter().zip(0..) {
        world.finish("b", *job, &format!("gpu-{number}"), 2);
    }

    // One is killed while tasks run: the other takes over what it held.
    let late: Vec<(u64, String)> = (0..4)
        .map(|number| format!("late-{number}"))
        .map(|book| (world.submit_with_key("a", &book, 25, &[]), book))
        .collect();
    world.until("tasks run", || {
        late.iter().any(|(_, book)| world.book(book).len() > 3)
    });
    drop(a);
    for (job, book) in &late {
        world.finish("b", *job, book, 25);
    }
    world.until("b holds all", || world.holders() == [4]);
    drop(b);
    one_writer_at_a_time(&world);
}

/// Tasks write when they begin and end, so their own book says how many ran at once.
#[test]
fn the_limit_of_a_group_holds_in_all_shards_together_though_a_server_is_killed() {
    const LIMIT: i32 = 3;
    const TASKS: u64 = 15;
    let Some(world) = world() else {
        return;
    };
    let (a, _) = world.server_of("a", Some("2"));
    let (_b, _) = world.server_of("b", None);
    let _agents = ["ada", "bob", "cleo"].map(|name| world.agent("b", name, "4"));
    world.until("both hold one", || world.holders() == [1, 1]);
    // The limit is known when the first task of the group has ended.
    let limit = format!("disk={LIMIT}");
    let first = ["submit", "--wait", "--group", "disk", "--limit", &limit];
    let first = world.run("a", &[&first[..], &["--", "true"]].concat());
    assert!(first.status.success(), "{first:?}");

    let ran = world.path("ran");
    let script = format!("echo + >>{0}; sleep 0.1; echo - >>{0}", ran.display());
    let range = format!("1-{TASKS}");
    let jobs: Vec<u64> = (0..6)
        .map(|number| {
            let key = format!("disk-{number}");
            let submit = [
                "submit", "--json", "--user", "mia", "--key", &key, "--group", "disk", "--array",
                &range, "--", "sh", "-c", &script,
            ];
            world.json("b", &submit)["id"].as_u64().unwrap()
        })
        .collect();
    let shards: std::collections::BTreeSet<u64> =
        jobs.iter().map(|job| job >> SHARD_BITS).collect();
    assert_eq!(shards.len(), 2, "{jobs:?}");
    let lines = || fs::read_to_string(&ran).unwrap_or_default();
    world.until("some ran", || lines().lines().count() > 20);
    drop(a);
    for job in &jobs {
        let id = job.to_string();
        world.until("the job ends", || {
            let output = world.run("b", &["job", "info", &id, "--json"]);
            let info: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            info.is_some_and(|info| info["state"] == "succeeded")
        });
    }
    let (mut now, mut most) = (0, 0);
    for line in lines().lines() {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!(most, LIMIT, "as many as may, and never more");
}

/// Tasks that one agent alone can do, in both shards. Whether it goes to them or they to it is not asked here: shards write
/// to each other about it, and are killed meanwhile. (`engine/src/moving/storm.rs` sees tasks moved.)
#[test]
fn tasks_that_one_agent_can_do_end_once_in_two_shards_though_servers_are_killed_while_letters_are_on_their_way()
 {
    const TASKS: u64 = 80;
    const JOBS: usize = 12;
    let Some(world) = world() else {
        return;
    };
    let (a, _) = world.server_of("a", Some("2"));
    let (b, _) = world.server_of("b", None);
    world.until("both hold one", || world.holders() == [1, 1]);
    let _ada = world.agent_with("a", "ada", "4", GPU);
    // As many jobs as it takes to have some in both shards.
    let mut jobs: Vec<(u64, String)> = Vec::new();
    while jobs.len() < JOBS {
        let book = format!("book-{}", jobs.len());
        jobs.push((world.submit_with_key("a", &book, TASKS, GPU), book));
    }
    let places: std::collections::BTreeSet<u64> =
        jobs.iter().map(|(job, _)| job >> SHARD_BITS).collect();
    assert_eq!(places.len(), 2, "{jobs:?}");
    // Each is killed while something is on its way, and started again.
    let is_on_its_way = || world.postgres.sql("SELECT count(*) FROM fleet.letter") != "0";
    let done = || -> usize {
        (0..JOBS)
            .map(|at| world.book(&format!("book-{at}")).len())
            .sum()
    };
    // Servers come back at another port: whoever is killed next must not be the last that the agent knows.
    let goes_on = || {
        let before = done();
        world.until("tasks run again", || done() > before + 2);
    };
    world.until("something is on its way", is_on_its_way);
    drop(a);
    let (_a, _) = world.server_of("a", None);
    goes_on();
    // Some are not wanted any more, wherever they are.
    let (unwanted, _) = jobs.pop().unwrap();
    let cancel = ["job", "cancel", &unwanted.to_string()];
    world.until("it is cancelled", || {
        world.run("b", &cancel).status.success()
    });
    world.until("something is on its way again", is_on_its_way);
    drop(b);
    let (_b, _) = world.server_of("b", None);
    for (job, book) in &jobs {
        world.finish("b", *job, book, TASKS);
    }
    let twice = "SELECT count(*) - count(DISTINCT task) FROM fleet.task";
    assert_eq!(world.postgres.sql(twice), "0");
    // A job that comes after jobs of both shards waits for both.
    let of_shard = |shard: u64| jobs.iter().find(|(job, _)| job >> SHARD_BITS == shard);
    let after = [0, 1].map(|shard| of_shard(shard).unwrap().0.to_string());
    let after = after.join(",");
    let more = [GPU, &["--after", &after]].concat();
    let last = world.submit_with_key("b", "last", 3, &more);
    world.finish("a", last, "last", 3);
    world.until("every letter was read", || !is_on_its_way());
    one_writer_at_a_time(&world);
}

/// Each shard has an agent that cannot leave, for it runs something all the time. What waits in one shard goes to the agent of
/// the other, then, and comes home with output and result; also when the servers of both are killed meanwhile. The tasks must
/// not run twice, and do not.
#[test]
fn tasks_that_wait_go_to_another_shard_and_come_home_once_though_servers_are_killed() {
    const TASKS: u64 = 240;
    let Some(world) = world() else {
        return;
    };
    let mut servers = vec![("a", world.server_of("a", Some("2")))];
    servers.push(("b", world.server_of("b", None)));
    world.until("both hold one", || world.holders() == [1, 1]);
    let seen_by = |server: &str| -> Option<Vec<Value>> {
        let output = world.run(server, &["server", "list", "--json"]);
        let seen: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(seen["shards"].as_array()?.clone())
    };
    let shards = || seen_by("a");
    // Each server places agents by what it knows.
    let agents_are = |expected: [u64; 2]| {
        ["a", "b"].iter().all(|server| {
            seen_by(server).is_some_and(|shards| {
                let agents = shards.iter().map(|shard| shard["agents"].as_u64());
                agents.eq(expected.map(Some))
            })
        })
    };
    let _ada = world.agent("a", "ada", "2");
    world.until("ada is there", || agents_are([1, 0]));
    let _bob = world.agent("b", "bob", "3");
    world.until("bob is where ada is not", || agents_are([1, 1]));
    // Keys lead to the same shard in every version.
    let submit = |key: &str, shard: u64, args: &[&str]| -> u64 {
        let who = ["submit", "--json", "--user", "mia", "--key", key];
        let job = world.json("a", &[&who[..], &["--no-rerun"], args].concat());
        let job = job["id"].as_u64().unwrap();
        assert_eq!(job >> SHARD_BITS, shard, "{key}");
        job
    };
    let go = world.path("go").display().to_string();
    let keep = |agent: &str| {
        let book = world.path(agent).display().to_string();
        format!("echo 1 >>{book}.book; while [ ! -e {go} ]; do sleep 0.1; done")
    };
    let kept = [
        submit("keeps-ada", 0, &["--", "sh", "-c", &keep("ada")]),
        submit("keeps-bob", 1, &["--", "sh", "-c", &keep("bob")]),
    ];
    world.until("both have something to do", || {
        ["ada.book", "bob.book"]
            .iter()
            .all(|book| world.book(book) == [1])
    });
    let script = format!(
        "echo {{}} >>{}; echo said {{}}; sleep 0.4",
        world.path("moved").display()
    );
    let range = format!("1-{TASKS}");
    let job = submit(
        "moved",
        0,
        &[
            "--cost", "0.4s", "--array", &range, "--", "sh", "-c", &script,
        ],
    );

    // Seen by everybody, and killed while guests run: first the holder of the shard that has them, then that of their home.
    for victim in [1, 0] {
        let mut holder = None;
        world.until("guests are there", || {
            let Some(shards) = shards() else { return false };
            holder = shards[victim]["holder"].as_str().map(ToOwned::to_owned);
            holder.is_some()
                && shards[0]["away"].as_u64() > Some(2)
                && shards[1]["guests"].as_u64() > Some(2)
        });
        let at = servers
            .iter()
            .position(|(name, _)| holder.as_deref() == Some(*name));
        let (name, killed) = servers.remove(at.unwrap());
        drop(killed);
        let again = world.server_of(name, None);
        // It is at another port: whoever is killed next must not be the last that an agent knows.
        world.until("agents know it", || {
            ["ada", "bob"]
                .iter()
                .all(|agent| world.log(agent).contains(&again.1))
        });
        servers.push((name, again));
    }
    world.finish("a", job, "moved", TASKS);
    // It ran where its row says, and once, by its own book.
    assert_eq!(world.book("moved").len() as u64, TASKS);
    let by_bob =
        format!("SELECT count(*) FROM fleet.task_history WHERE job = {job} AND agent = 'bob'");
    let by_bob: u64 = world.postgres.sql(&by_bob).parse().unwrap();
    assert!(by_bob > 10 && by_bob < TASKS, "{by_bob}");
    // What they wrote came home.
    let output = world.run("b", &["job", "logs", &job.to_string()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut said: Vec<&str> = said.lines().collect();
    said.sort_unstable();
    let mut expected: Vec<String> = (1..=TASKS).map(|entry| format!("said {entry}")).collect();
    expected.sort_unstable();
    assert_eq!(said, expected);
    // Those that kept the agents busy went on through all of it.
    fs::write(world.path("go"), "").unwrap();
    for (kept, book) in kept.into_iter().zip(["ada.book", "bob.book"]) {
        world.finish("b", kept, book, 1);
        assert_eq!(world.book(book), [1]);
    }
    world.until("nobody is away any more", || {
        shards().is_some_and(|shards| shards[0]["away"] == 0 && shards[1]["guests"] == 0)
            && world.postgres.sql("SELECT count(*) FROM fleet.letter") == "0"
    });
    one_writer_at_a_time(&world);
    shards_are_replayed_one_by_one(&world);
}

/// Each has a journal of its own.
fn shards_are_replayed_one_by_one(world: &World) {
    let run = |args: &[&str]| {
        let mut command = world.command("home");
        command.env("PGPASSWORD", PASSWORD).args(args);
        command.output().unwrap()
    };
    let url = world.url("fleet");
    let access = world.path("a").join("access.json").display().to_string();
    for args in [
        ["replay", &url],
        ["sim", &url],
        ["advise", &url],
        ["replay", &access],
    ] {
        let refused = run(&args);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{args:?}");
        assert!(said.contains("2 journals") && said.contains("#1"), "{said}");
    }
    for shard in ["0", "1"] {
        let one = format!("{url}#{shard}");
        let replayed = run(&["replay", &one, "--seeds=2", "--json"]);
        let said = String::from_utf8_lossy(&replayed.stderr).into_owned();
        assert!(replayed.status.success(), "{one}: {said}");
    }
    let beyond = run(&["replay", &format!("{url}#2")]);
    let said = String::from_utf8_lossy(&beyond.stderr).into_owned();
    assert!(
        !beyond.status.success() && said.contains("0 to 1"),
        "{said}"
    );
}

/// An older copy of the database takes its place, as when it fails over to a standby that lags behind. The agent saw what was
/// committed since.
#[test]
fn servers_stop_and_say_so_when_an_agent_saw_what_the_database_has_lost() {
    let Some(mut world) = world() else {
        return;
    };
    let (a, _) = world.server("a");
    world.until("a serves", || world.who_answers("a").is_some());
    let (b, _) = world.server("b");
    let _ada = world.agent("a", "ada", "2");
    let first = world.submit("a", "first", 10);
    world.finish("a", first, "first", 10);
    world.postgres.set_aside();
    world.until("a server is back", || world.who_answers("a").is_some());
    let lost = world.submit("a", "lost", 10);
    world.finish("a", lost, "lost", 10);
    world.postgres.put_back();

    // Found out, told to everybody who asks, and not served from.
    world.until("health knows", || {
        let health = world.run("b", &["server", "health", "--json"]);
        let said = String::from_utf8_lossy(&health.stdout).into_owned();
        said.contains("lost_commits") && health.status.code() == Some(4)
    });
    assert!(
        ["a", "b"].iter().any(|name| {
            let log = world.log(name);
            log.contains("the agent `ada` saw") && log.contains("has lost what it had acknowledged")
        }),
        "a: {}\nb: {}",
        world.log("a"),
        world.log("b")
    );
    let refused = world.run("b", &["submit", "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("accept-loss"),
        "{said}"
    );
    let listed = world.run("a", &["server", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("shard 0 is not served"), "{listed}");
    assert_eq!(world.holders(), Vec::<u64>::new());

    // Its owners go on without.
    let accept = |world: &World| {
        let mut command = world.command("home");
        let url = world.url("fleet");
        command.env("PGPASSWORD", PASSWORD);
        command.args(["journal", "accept-loss", &url]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = accept(&world);
    assert!(said.contains("shard 0 goes on"), "{said}");
    assert_eq!(accept(&world), "nothing is known to be lost\n");
    world.until("somebody serves again", || world.who_answers("a").is_some());
    // One that stands by hears of it when it next looks at the database.
    world.until("health knows that, too", || {
        let health = world.json("b", &["server", "health", "--json"]);
        !health.to_string().contains("lost_commits")
    });
    let next = world.submit("a", "next", 10);
    world.finish("a", next, "next", 10);
    // A takeover after that is one like any other.
    world.until("it is handed over", || {
        let handover = ["server", "handover", "--timeout", "3m"];
        world.run("a", &handover).status.success()
    });
    let last = world.submit("b", "last", 10);
    world.finish("b", last, "last", 10);

    // All come back at other ports: the agent finds them by its access file.
    drop((a, b));
    let (_b, _) = world.server("b");
    let (_a, _) = world.server("a");
    world.until("somebody serves again", || world.who_answers("a").is_some());
    let found = world.submit("a", "found", 10);
    world.finish("a", found, "found", 10);
}

/// In each shard, in the order of their epochs.
fn one_writer_at_a_time(world: &World) {
    let writers = "SELECT bool_and(epoch >= before) FROM (SELECT epoch, \
        lag(epoch, 1, 0::bigint) OVER (PARTITION BY shard ORDER BY pos) AS before FROM fleet.grp) AS written";
    assert_eq!(world.postgres.sql(writers), "t");
}

#[test]
fn nothing_is_lost_while_servers_and_agents_of_several_shards_are_killed_and_stand_still() {
    const SERVERS: [&str; 3] = ["a", "b", "c"];
    const AGENTS: [&str; 4] = ["ada", "bob", "cleo", "dan"];
    const TASKS: u64 = 60;
    let rounds = match std::env::var("LOXLEY_TEST_LONG") {
        Ok(minutes) => 6 * minutes.parse::<u64>().unwrap_or(1).max(1),
        Err(_) => {
            eprintln!("NOT RUN: shards under faults with real processes; set LOXLEY_TEST_LONG=1");
            return;
        }
    };
    let Some(world) = world() else {
        return;
    };
    let mut servers = vec![Some(world.server_of("a", Some("3")).0)];
    for name in &SERVERS[1..] {
        servers.push(Some(world.server_of(name, None).0));
    }
    let mut agents: Vec<Option<Process>> = Vec::new();
    // One can do what the others cannot: tasks that need it go where it is.
    let start = |name: &str, server: &str| match name {
        "dan" => world.agent_with(server, name, "2", GPU),
        _ => world.agent(server, name, "2"),
    };
    for (name, server) in AGENTS.into_iter().zip(SERVERS.into_iter().cycle()) {
        agents.push(Some(start(name, server)));
    }
    world.until("each holds one", || world.holders() == [1, 1, 1]);
    let mut chance = 7_u64;
    let mut draw = |below: u64| {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (chance >> 33) % below
    };
    let mut jobs = Vec::new();
    for round in 0..rounds {
        let (victim, agent) = (draw(3) as usize, draw(4) as usize);
        for number in 0..3 {
            let book = format!("book-{round}-{number}");
            let server = SERVERS[(victim + 1) % 3];
            let more = if number == 0 { GPU } else { &[] };
            jobs.push((world.submit_with_key(server, &book, TASKS, more), book));
        }
        match draw(4) {
            // Killed, and started again.
            0 => {
                servers[victim] = None;
                std::thread::sleep(Duration::from_secs(3));
                servers[victim] = Some(world.server_of(SERVERS[victim], None).0);
            }
            // It stands still for longer than its leases.
            1 => {
                let server = servers[victim].as_ref().unwrap();
                server.signal(Signal::STOP);
                std::thread::sleep(Duration::from_secs(9));
                server.signal(Signal::CONT);
            }
            2 => {
                agents[agent] = None;
                std::thread::sleep(Duration::from_secs(2));
                agents[agent] = Some(start(AGENTS[agent], SERVERS[victim]));
            }
            _ => {
                let agent = agents[agent].as_ref().unwrap();
                agent.signal(Signal::STOP);
                std::thread::sleep(Duration::from_secs(4));
                agent.signal(Signal::CONT);
            }
        }
    }
    for (job, book) in &jobs {
        world.finish("b", *job, book, TASKS);
    }
    one_writer_at_a_time(&world);
    // Each task ended once: its row says so, and no other row has its number.
    let ended = "SELECT count(*), count(DISTINCT task) FROM fleet.task WHERE ended = 0";
    let all = jobs.len() as u64 * TASKS;
    assert_eq!(world.postgres.sql(ended), format!("{all}|{all}"));
    world.until("every letter was read", || {
        world.postgres.sql("SELECT count(*) FROM fleet.letter") == "0"
    });
}
