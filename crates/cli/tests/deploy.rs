//! What is in `deploy/` fits the program and the systems that it is for, as far as that can be seen here.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::path::{Path, PathBuf};
use std::process::Command;

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).unwrap()
}

/// Every `--option` in a text, without its value.
fn options(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| letter.is_whitespace() || "\"',[]=".contains(letter));
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(str::to_owned)
        .collect()
}

#[track_caller]
fn knows(command: &[&str], options: &[String]) {
    let help = Command::new(LOXLEY)
        .args(command)
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(!options.is_empty(), "{command:?}: no option was found");
    for option in options {
        assert!(
            help.split([' ', ',', '\n']).any(|word| word == option),
            "loxley {command:?} has no {option}"
        );
    }
}

/// The lines of a file that are what the program is started with.
fn lines_with(file: &str, what: &str) -> String {
    let text = read(file);
    let lines = text.lines().filter(|line| line.contains(what));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_options_in_units_images_manifests_and_scripts_are_the_programs() {
    let server = |file| options(&lines_with(file, "--listen"));
    knows(
        &["server", "start"],
        &server("systemd/loxley-server.service"),
    );
    knows(&["server", "start"], &server("docker/Dockerfile"));
    knows(&["server", "start"], &server("kubernetes/server.yaml"));
    let unit = lines_with("systemd/loxley-agent.service", "ExecStart=");
    knows(&["agent", "start"], &options(&unit));
    let manifest = lines_with("kubernetes/agents.yaml", "- --");
    knows(&["agent", "start"], &options(&manifest));
    let script = read("slurm/agents.sbatch");
    let (_, started) = script.split_once("exec loxley agent start").unwrap();
    knows(&["agent", "start"], &options(started));
    let token = lines_with("kubernetes/server.yaml", "token create");
    let (_, token) = token.split_once("token create").unwrap();
    knows(&["server", "token", "create"], &options(token));
}

#[test]
fn systemd_has_nothing_to_say_against_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let units = ["loxley-server.service", "loxley-agent.service"].map(|name| {
        // The program is not installed here, and systemd wants it to be there.
        let unit = read(&format!("systemd/{name}")).replace("/usr/bin/loxley", LOXLEY);
        let path = folder.path().join(name);
        std::fs::write(&path, unit).unwrap();
        path
    });
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(&units)
        .output();
    let Ok(verified) = verified else {
        eprintln!("SKIPPED: no systemd-analyze here, so nobody has looked at the units");
        return;
    };
    let words = String::from_utf8_lossy(&verified.stderr);
    // It also speaks of units of the machine that it runs on.
    let ours: Vec<_> = words
        .lines()
        .filter(|line| line.contains("loxley"))
        .collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn the_script_for_slurm_is_one_that_a_shell_understands() {
    let checked = Command::new("sh")
        .arg("-n")
        .arg(deploy("slurm/agents.sbatch"))
        .status()
        .unwrap();
    assert!(checked.success());
}
