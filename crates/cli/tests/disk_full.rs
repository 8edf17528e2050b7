//! A disk that fills up under a server: everybody is told, nothing that was accepted is lost, and there is a way out.
//!
//! The disk is a small tmpfs, which only root may mount; elsewhere the test says so and proves nothing.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");

/// A file system of a few megabytes.
struct SmallDisk {
    place: TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=0700"),
                "tmpfs",
            ])
            .arg(place.path())
            .stderr(Stdio::null())
            .status();
        let mounted = mounted.is_ok_and(|status| status.success());
        mounted.then_some(Self { place })
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    /// Leaves so many bytes free.
    fn fill(&self, left: usize) {
        let path = self.path().join("filler");
        // As much as goes in, then a little less.
        let _ = fs::write(&path, vec![1; 64 << 20]);
        let length = fs::metadata(&path).unwrap().len() as usize;
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length.saturating_sub(left) as u64).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// A server, ended with the test.
struct Served(Child);

impl Served {
    fn start(directory: &Path, reserve_mb: u64) -> Self {
        let config = directory.join("server.yaml");
        let text = format!("journal:\n  disk_reserve_mb: {reserve_mb}\n");
        // On a full disk the file is there from before.
        if fs::read_to_string(&config).is_ok_and(|found| found != text) || !config.exists() {
            fs::write(&config, text).unwrap();
        }
        let mut server = Command::new(LOXLEY)
            .args(["server", "start", "--json", "--log", "warn"])
            .args(["--listen", "127.0.0.1:0", "--dir"])
            .arg(directory)
            .arg("--config")
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = server.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).expect("it says where it is");
        Self(server)
    }

    /// How it ended, and what it said.
    fn ended(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "it goes on");
            thread::sleep(Duration::from_millis(20));
        };
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn loxley(directory: &Path, words: &[&str]) -> Output {
    Command::new(LOXLEY)
        .args(words)
        .env("LOXLEY_DIR", directory)
        .env_remove("LOXLEY_ACCESS")
        .output()
        .unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
    objects.collect()
}

#[test]
fn without_a_reserve_a_full_disk_ends_the_server_and_nothing_accepted_is_lost() {
    let Some(disk) = SmallDisk::mount("8m") else {
        eprintln!("skipped: this user may not mount a small disk");
        return;
    };
    let lines = disk.path().join("lines");
    fs::write(&lines, "some text for a task\n".repeat(500)).unwrap();
    let server = Served::start(disk.path(), 0);
    disk.fill(256 << 10);
    let mut accepted = Vec::new();
    let refused = loop {
        let lines = lines.to_str().unwrap();
        let words = ["submit", "--json", "--each-line", lines, "--", "echo", "{}"];
        let output = loxley(disk.path(), &words);
        if !output.status.success() {
            break output;
        }
        accepted.push(objects(&output)[0]["id"].as_u64().unwrap());
        assert!(accepted.len() < 500, "the disk does not fill up");
    };
    assert!(!accepted.is_empty(), "there was room for some");
    // Whoever asked is told, and so is whoever looks at the server.
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(complaint.starts_with("loxley: "), "{complaint}");
    let (code, said) = server.ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("no room is left on the disk of the journal"),
        "{said}"
    );
    assert!(said.contains("loxley journal prune"), "what to do: {said}");

    disk.free();
    let _server = Served::start(disk.path(), 0);
    let words = ["job", "list", "--json", "--limit", "10000"];
    let jobs = objects(&loxley(disk.path(), &words));
    let known: Vec<u64> = jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect();
    for id in &accepted {
        assert!(known.contains(id), "job {id} is lost; {known:?} are there");
    }
    // And it goes on as if nothing had been.
    let output = loxley(disk.path(), &["submit", "--json", "--", "true"]);
    assert_eq!(objects(&output).len(), 1);
    let output = loxley(disk.path(), &["journal", "check", "--json"]);
    assert_eq!(objects(&output)[0]["whole"], true);
}

/// Submits a job of so many lines of text, with no agent to run it.
fn submit(disk: &SmallDisk, lines: &Path) -> Output {
    let lines = lines.to_str().unwrap();
    loxley(
        disk.path(),
        &["submit", "--json", "--each-line", lines, "--", "echo", "{}"],
    )
}

fn server(disk: &SmallDisk) -> Value {
    objects(&loxley(disk.path(), &["server", "info", "--json"])).remove(0)
}

#[test]
fn a_full_disk_has_a_way_out_while_the_server_runs() {
    let Some(disk) = SmallDisk::mount("24m") else {
        eprintln!("skipped: this user may not mount a small disk");
        return;
    };
    let lines = disk.path().join("lines");
    fs::write(&lines, "some text for a task of its own\n".repeat(4_000)).unwrap();
    let served = Served::start(disk.path(), 2);
    assert_eq!(
        fs::metadata(disk.path().join("journal.reserve"))
            .unwrap()
            .len(),
        2 << 20
    );
    // Jobs that are over, and can be forgotten.
    for _ in 0..10 {
        let id = objects(&submit(&disk, &lines))[0]["id"].to_string();
        assert!(
            loxley(disk.path(), &["job", "cancel", &id])
                .status
                .code()
                .is_some()
        );
    }
    disk.fill(256 << 10);
    // It is full when no tidying up helps: the log is moved and cut, and the reserve cannot be made again.
    let (mut refused_in_a_row, mut accepted) = (0, Vec::new());
    while refused_in_a_row < 10 {
        let output = submit(&disk, &lines);
        if output.status.success() {
            accepted.push(objects(&output)[0]["id"].as_u64().unwrap());
            assert!(accepted.len() < 500, "the disk does not fill up");
            refused_in_a_row = 0;
            continue;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("disk of the server is full"), "{said}");
        refused_in_a_row += 1;
    }
    assert_eq!(server(&disk)["disk_full"], true);
    let health = loxley(disk.path(), &["server", "health", "--json"]);
    let health: Value = serde_json::from_slice(&health.stdout).unwrap();
    assert_eq!(health["problems"][0]["kind"], "disk_full");

    // The way out: forget what is over, while the server runs.
    let size = || fs::metadata(disk.path().join("journal.db")).unwrap().len();
    let before = size();
    let words = ["journal", "prune", "--keep", "0", "--json"];
    let report = objects(&loxley(disk.path(), &words)).remove(0);
    assert_eq!(report["jobs"], 10, "{report}");
    assert!(report["bytes"].as_u64().unwrap() > 0, "{report}");
    assert!(size() < before, "{} of {before} bytes are left", size());
    assert_eq!(server(&disk)["disk_full"], false);
    let output = submit(&disk, &lines);
    accepted.push(objects(&output)[0]["id"].as_u64().unwrap());

    // And without a server: nothing is left on the disk but the reserve.
    drop(served);
    assert!(disk.path().join("journal.reserve").exists());
    disk.free();
    disk.fill(0);
    let output = loxley(disk.path(), &["journal", "prune", "--keep", "0", "--json"]);
    assert_eq!(objects(&output)[0]["jobs"], 0);
    disk.free();
    let _served = Served::start(disk.path(), 2);
    let jobs = objects(&loxley(
        disk.path(),
        &["job", "list", "--json", "--limit", "10000"],
    ));
    let known: Vec<u64> = jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect();
    for id in &accepted {
        assert!(known.contains(id), "job {id} is lost; {known:?} are there");
    }
    let output = loxley(disk.path(), &["journal", "check", "--json"]);
    assert_eq!(objects(&output)[0]["whole"], true);
}
