//! A disk that fills up under a server: everybody is told, and nothing that was accepted is lost.
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
    fn start(directory: &Path) -> Self {
        let mut server = Command::new(LOXLEY)
            .args(["server", "start", "--json", "--log", "warn"])
            .args(["--listen", "127.0.0.1:0", "--dir"])
            .arg(directory)
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
            assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
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
fn a_full_disk_is_told_and_nothing_accepted_is_lost() {
    let Some(disk) = SmallDisk::mount("8m") else {
        eprintln!("skipped: this user may not mount a small disk");
        return;
    };
    let lines = disk.path().join("lines");
    fs::write(&lines, "some text for a task\n".repeat(500)).unwrap();
    let server = Served::start(disk.path());
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

    disk.free();
    let _server = Served::start(disk.path());
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
