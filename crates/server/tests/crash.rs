//! Processes that die at the worst moment: nothing accepted is lost, nothing finishes twice.
//!
//! This program plays the server and the agents as well: a test starts it again with a role in its
//! environment (see `a_process_of_another_test`), and kills it.

mod support;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use loxley_agent::{Agent, AgentOptions, Functions};
use loxley_api::Access;
use loxley_engine::replay;
use loxley_journal::{History, Journal, Options, SqliteJournal, TaskQuery};
use loxley_model::JobId;
use loxley_policy::Config;
use loxley_server::ServerOptions;
use support::{LOST_AFTER, PATIENCE, TestServer, array, function, quick_config};

const ROLE: &str = "LOXLEY_TEST_ROLE";
const DIRECTORY: &str = "LOXLEY_TEST_DIRECTORY";
const PORT: &str = "LOXLEY_TEST_PORT";
/// Set for a server that gives nobody up in the time of a test.
const PATIENT: &str = "LOXLEY_TEST_PATIENT";

/// Not a test of its own: what the other tests start and kill.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_another_test() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let directory = std::env::var(DIRECTORY).expect("the parent says where");
    let directory = Path::new(&directory);
    if role == "server" {
        let port = std::env::var(PORT).expect("the parent says which port");
        let config = match std::env::var_os(PATIENT) {
            Some(_) => Config::default(),
            None => quick_config(),
        };
        let server = TestServer::start_with(ServerOptions {
            listen: format!("127.0.0.1:{port}").parse().expect("an address"),
            config,
            ..ServerOptions::new(directory.to_owned())
        });
        let server = server.await;
        let ready = directory.join("ready");
        std::fs::write(ready, server.access.url.as_bytes()).expect("the directory is there");
        // Snapshots are rare; here they are taken all the time.
        while server.handle.take_snapshot().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        std::future::pending::<()>().await;
    }
    let access = Access::read(&directory.join(Access::FILE)).expect("the server wrote it");
    let log = directory.join(format!("{role}.log"));
    let functions = Functions::default().with("note", move |call| {
        let mut log = OpenOptions::new().create(true).append(true).open(&log)?;
        log.write_all(&[call.input, b"\n"].concat())?;
        std::thread::sleep(Duration::from_millis(2));
        Ok(call.input.to_vec())
    });
    let options = AgentOptions {
        slots: 2,
        functions,
        ..AgentOptions::new(access, &role)
    };
    let _ = Agent::new(options).run().await;
}

/// A process that is killed when the test is done with it.
struct Process(Child);

impl Process {
    fn start(role: &str, directory: &Path, port: u16, variables: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command
            .args(["--exact", "a_process_of_another_test"])
            .env(ROLE, role)
            .env(DIRECTORY, directory)
            .env(PORT, port.to_string())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("it starts"))
    }

    /// A server that listens.
    fn server(directory: &Path, port: u16, variables: &[(&str, &str)]) -> Self {
        let ready = directory.join("ready");
        let _ = std::fs::remove_file(&ready);
        let mut this = Self::start("server", directory, port, variables);
        let begun = Instant::now();
        while !ready.exists() && this.0.try_wait().expect("it is our child").is_none() {
            assert!(begun.elapsed() < PATIENCE, "the server listens");
            std::thread::sleep(Duration::from_millis(5));
        }
        this
    }

    /// Waits until it has ended by itself, and says how.
    fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it is our child") {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it ends by itself");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it, if it has not ended.
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A free port that stays the same for every server of a test.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    listener.local_addr().expect("it is bound").port()
}

const TASKS: u64 = 400;

/// Accepts a job and leaves it in the journal, without an agent.
async fn prepare(directory: &Path) -> JobId {
    let server = TestServer::start(directory).await;
    let request = array(function("note", b""), TASKS);
    let accepted = server
        .handle
        .submit(&request, "me")
        .await
        .expect("it is accepted");
    server.stop().await;
    accepted.id
}

/// Waits until the history says that the job is over.
fn wait_for_end(directory: &Path, job: JobId) {
    let begun = Instant::now();
    let history = History::open(directory).expect("the journal is there");
    loop {
        let row = history
            .job(job)
            .expect("it can be read")
            .expect("it was accepted");
        if row.state != loxley_journal::JobState::Open {
            assert_eq!((row.succeeded, row.failed, row.cancelled), (TASKS, 0, 0));
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the job ends: {row:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every task is in the history once, and the journal leads to the same decisions: all of it, and what follows
/// its newest snapshot.
fn check_books(directory: &Path, job: JobId) {
    let history = History::open(directory).expect("the journal is there");
    let query = TaskQuery {
        job: Some(job),
        limit: 10_000,
        ..TaskQuery::default()
    };
    let rows = history.tasks(&query).expect("it can be read").rows;
    assert_eq!(rows.len() as u64, TASKS);
    let opened = SqliteJournal::open(directory, &Options::default()).expect("nobody has it");
    let mut journal = opened.journal;
    let replayed = replay(&mut journal).expect("the same decisions");
    assert_eq!(
        (replayed.counts.finished, replayed.counts.submitted),
        (TASKS, TASKS)
    );
    let newest = journal.snapshots().expect("it can be read")[0];
    journal.truncate(newest).expect("a snapshot covers them");
    let from_snapshot = replay(&mut journal).expect("the same decisions");
    assert_eq!(
        (from_snapshot.digest, from_snapshot.counts),
        (replayed.digest, replayed.counts)
    );
}

/// What an agent wrote down of the tasks that it began.
fn lines(directory: &Path, agent: &str) -> Vec<String> {
    let log = std::fs::read_to_string(directory.join(format!("{agent}.log")));
    let log = log.unwrap_or_default();
    log.lines().map(ToOwned::to_owned).collect()
}

/// Whether a process ended as a failpoint ends it: by SIGKILL, which nobody here sent.
fn is_failpoint(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

/// How often tasks ran, by what the agents wrote down themselves.
fn runs(directory: &Path) -> Vec<u64> {
    let mut runs = vec![0; TASKS as usize + 1];
    for agent in ["a", "b"] {
        for line in lines(directory, agent) {
            let entry: usize = line.parse().expect("a whole line");
            runs[entry] += 1;
        }
    }
    runs
}

/// A server with a job, in a process of its own, on a port that stays the same.
struct Scene {
    scratch: tempfile::TempDir,
    job: JobId,
    port: u16,
    server: Process,
}

impl Scene {
    async fn new() -> Self {
        let scratch = tempfile::tempdir().expect("there is room");
        let job = prepare(scratch.path()).await;
        let port = free_port();
        let server = Process::server(scratch.path(), port, &[]);
        Self {
            scratch,
            job,
            port,
            server,
        }
    }

    fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn agent(&self, name: &str) -> Process {
        Process::start(name, self.directory(), self.port, &[])
    }

    /// Kills the server, and starts another one that gives no agent up, and dies at `failpoint`.
    fn replace_server(&mut self, failpoint: Option<&str>) {
        // The journal has one owner: the old one goes first.
        self.server.end();
        let failpoint = failpoint.map(|place| ("LOXLEY_FAILPOINT", place));
        let variables: Vec<_> = [(PATIENT, "1")].into_iter().chain(failpoint).collect();
        self.server = Process::server(self.directory(), self.port, &variables);
    }

    /// Waits until an agent runs tasks.
    fn wait_until_busy(&self, agent: &str) {
        let begun = Instant::now();
        while lines(self.directory(), agent).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "the agent runs tasks");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The only agent there was is kept full until nothing is left: while tasks are left, it holds leases.
    fn assert_leases_held(&self, agent: &str) {
        let history = History::open(self.directory()).expect("the journal is there");
        let row = history.job(self.job).expect("it can be read");
        let row = row.expect("it was accepted");
        assert_eq!(row.state, loxley_journal::JobState::Open);
        assert!(!lines(self.directory(), agent).is_empty(), "it ran tasks");
    }

    /// Waits for the end of the job, lets everybody say what they still want to say, and looks at the books.
    fn finish(mut self) -> Vec<u64> {
        wait_for_end(self.directory(), self.job);
        std::thread::sleep(Duration::from_millis(300));
        self.server.end();
        check_books(self.directory(), self.job);
        runs(self.directory())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_again_and_again_loses_nothing_and_runs_nothing_twice() {
    let mut scene = Scene::new().await;
    scene.replace_server(None);
    let _agents = ["a", "b"].map(|name| scene.agent(name));
    scene.wait_until_busy("a");
    let places = [
        "journal.before_write@5",
        "journal.before_commit@7",
        "journal.after_commit@6",
        "journal.after_commit@2",
        "journal.in_snapshot@2",
        "journal.after_snapshot@3",
        "journal.in_snapshot@1",
    ];
    for place in places {
        scene.replace_server(Some(place));
        let status = scene.server.ended();
        assert!(is_failpoint(status), "{place} fired: {status}");
    }
    scene.replace_server(None);
    // The agents never died: each task ran exactly once.
    let runs = scene.finish();
    assert!(runs[1..].iter().all(|count| *count == 1), "{runs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_s_tasks_go_to_others_and_end_once() {
    let scene = Scene::new().await;
    let mut first = scene.agent("a");
    scene.wait_until_busy("a");
    first.end();
    scene.assert_leases_held("a");
    let _second = scene.agent("b");
    let runs = scene.finish();
    assert!(
        runs[1..].iter().all(|count| (1..=2).contains(count)),
        "{runs:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_stopped_beyond_its_lease_cannot_finish_a_task_twice() {
    let scene = Scene::new().await;
    let first = scene.agent("a");
    scene.wait_until_busy("a");
    first.signal("-STOP");
    scene.assert_leases_held("a");
    let _second = scene.agent("b");
    // Longer than it takes to be given up.
    std::thread::sleep(LOST_AFTER + Duration::from_secs(2));
    first.signal("-CONT");
    scene.finish();
}
