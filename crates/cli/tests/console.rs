//! The commands of README, docs and skills, run as they stand there, with what they print.
//!
//! The ```` ```console ```` blocks of a page are one session of bash in an empty directory. A line that begins with `$ `
//! is a command (`> ` goes on with it); the lines below it are what it prints. Numbers and verdicts may differ from run
//! to run, and so may the blanks between columns; a line `…` stands for any lines. A block behind a comment
//! `<!-- not run: why -->` is for the eye.
//!
//! Not trycmd, which runs the transcripts beside this: it has no shell, so no pipes, variables and servers in the
//! background, and pages for people should not be full of its wildcards.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LOXLEY: &str = env!("CARGO_BIN_EXE_loxley");

/// A command with what it is said to print.
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut runs, mut skips) = (false, false);
    for (number, line) in (1..).zip(page.lines()) {
        if line.starts_with("```") {
            runs = !runs && line == "```console" && !skips;
            skips = false;
            continue;
        }
        skips |= line.starts_with("<!-- not run:");
        if !runs {
            continue;
        }
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                line: number,
                command: command.to_owned(),
                expected: Vec::new(),
            });
            continue;
        }
        let step = steps.last_mut().unwrap();
        match line.strip_prefix("> ") {
            Some(more) if step.expected.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            _ => step.expected.push(line.to_owned()),
        }
    }
    steps
}

/// What must be the same in two runs: without numbers, verdicts and the width of columns.
fn shape(line: &str) -> String {
    let line = line
        .replace("too little to judge", "VERDICT")
        .replace("missed", "VERDICT")
        .replace("met", "VERDICT");
    let mut shape = String::new();
    for letter in line.trim_end().chars() {
        let letter = match letter {
            digit if digit.is_ascii_digit() => '0',
            letter if letter.is_whitespace() => ' ',
            letter => letter,
        };
        // 1.25 and 10 and 3 are all one number.
        let goes_on = (letter == '0' || letter == ' ') && shape.ends_with(letter);
        if letter == '0' && shape.ends_with("0.") {
            shape.pop();
        } else if !goes_on {
            shape.push(letter);
        }
    }
    // How long something took is not said in the same unit every time.
    for unit in ["ms", "µs", "ns"] {
        shape = shape
            .replace(&format!("0 {unit}"), "0 s")
            .replace(&format!("0{unit}"), "0s");
    }
    shape
}

fn is_as_said(expected: &[String], printed: &[&str]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((any, rest)) if any == "…" => {
            (0..=printed.len()).any(|from| is_as_said(rest, &printed[from..]))
        }
        Some((line, rest)) => {
            let is_same = printed
                .first()
                .is_some_and(|first| shape(first) == shape(line));
            is_same && is_as_said(rest, &printed[1..])
        }
    }
}

/// One script of a whole page: between the outputs of two commands stands a mark.
fn script(steps: &[Step], log: &Path) -> String {
    let mut script = "said=0\n".to_owned();
    for step in steps {
        // Others may have the usual port.
        let command = step
            .command
            .replace(
                "loxley server start",
                "loxley server start --listen 127.0.0.1:0 --log error",
            )
            .replace("loxley agent start", "loxley agent start --log error");
        script.push_str(&format!("printf '\\n@@@ {}\\n'\n", step.line));
        match command.strip_suffix(" &") {
            // What it says while others speak would be anywhere; whoever needs it waits for its file.
            Some(service) => script.push_str(&format!(
                "{service} >>{} 2>&1 &\nfor i in $(seq 600); do test -e \"$LOXLEY_DIR/agent.json\" && break; sleep 0.1; done\n",
                log.display()
            )),
            None => script.push_str(&format!("(exit $said)\n{command}\nsaid=$?\n")),
        }
    }
    script
}

/// Runs all commands of a page, and compares.
fn run(page: &str) {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{page} has no commands");
    let folder = tempfile::tempdir().unwrap();
    let (bin, work) = (folder.path().join("bin"), folder.path().join("work"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&work).unwrap();
    std::os::unix::fs::symlink(LOXLEY, bin.join("loxley")).unwrap();
    // What pages speak of as being there.
    std::os::unix::fs::symlink(
        root().join("examples").canonicalize().unwrap(),
        work.join("examples"),
    )
    .unwrap();
    for name in ["a.log", "b.log"] {
        fs::write(work.join(name), "some lines\n").unwrap();
    }
    let log = folder.path().join("services");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash")
        .current_dir(&work)
        .env("PATH", path)
        .env("HOME", folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("LOXLEY_DIR", work.join("fleet"))
        .env("SHELL", "/bin/sh")
        .env_remove("LOXLEY_ACCESS")
        .env_remove("PARALLEL")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    let whole = format!(
        "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n{}",
        script(&steps, &log)
    );
    // The whole script at once: a command that reads its input must not read the rest of it.
    input
        .write_all(format!("eval \"$(cat <<'@@END'\n{whole}\n@@END\n)\" </dev/null\n").as_bytes())
        .unwrap();
    drop(input);
    let output = shell.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut wrong = Vec::new();
    for step in &steps {
        let mark = format!("\n@@@ {}\n", step.line);
        let printed = output
            .split_once(&mark)
            .map(|(_, rest)| rest)
            .unwrap_or_default();
        let printed = printed.split("\n@@@ ").next().unwrap_or_default();
        let printed: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
        let expected: Vec<String> = step
            .expected
            .iter()
            .filter(|line| !line.is_empty())
            .cloned()
            .collect();
        if !is_as_said(&expected, &printed) {
            wrong.push(format!(
                "{page}:{}: $ {}\n--- the page says\n{}\n--- it prints\n{}",
                step.line,
                step.command,
                expected.join("\n"),
                printed.join("\n")
            ));
        }
    }
    let services = fs::read_to_string(&log).unwrap_or_default();
    assert!(
        wrong.is_empty(),
        "{}\n--- services\n{services}",
        wrong.join("\n\n")
    );
}

#[test]
fn the_tutorial_runs() {
    run("docs/tutorial.md");
}

#[test]
fn the_best_practices_run() {
    run("docs/best-practices.md");
}

#[test]
fn the_skill_runs() {
    run("skills/loxley/SKILL.md");
}

#[test]
fn the_guides_run() {
    for page in ["from-gnu-parallel", "figures"] {
        run(&format!("docs/guide/{page}.md"));
    }
    // It grows with every feature of the server, also with commands that need more than a machine.
    if std::env::var_os("LOXLEY_TEST_LONG").is_some() {
        run("docs/guide/server.md");
    } else {
        eprintln!("SKIPPED: docs/guide/server.md, only in a long run");
    }
}

/// The commands of README but those of cargo.
#[test]
fn the_readme_runs() {
    run("README.md");
}

#[test]
fn numbers_may_differ_and_words_may_not() {
    assert_eq!(shape("took  12.5 s, met"), shape("took 3 s, missed"));
    assert_ne!(shape("took 3 s"), shape("took 3 m"));
    let any = ["a", "…", "z"].map(str::to_owned);
    assert!(is_as_said(&any, &["a", "b", "c", "z"]));
    assert!(!is_as_said(&any, &["a", "b"]));
    let page =
        "```console\n$ a\nb\n```\n<!-- not run: x -->\n\n```console\n$ c\n```\n```text\n$ d\n```\n";
    let steps = steps(page);
    assert_eq!((steps.len(), steps[0].expected.len()), (1, 1));
}
