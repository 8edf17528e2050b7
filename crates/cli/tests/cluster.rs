//! Several servers on one PostgreSQL: the real binary, real processes, a real database.
#![cfg(feature = "postgres")]
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
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.log")))
            .unwrap();
        let mut child = self
            .start(name, name)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
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
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let child = self
            .command(server)
            .args(["agent", "start", "--name", name, "--slots", slots])
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
                ["a", "b", "c", "ada", "bob"]
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
