//! Whoever reads our output may stop at any time: no message, no panic, no failure.

use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for words in [
        &["config", "default"][..],
        &["advise", "tests/cmd/advise.in/costs.txt"],
        &["config", "default", "--json"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_loxley"))
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        // Before it has written anything, or in the middle of it: both must be quiet.
        drop(child.stdout.take());
        let mut complaints = String::new();
        let mut stderr = child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut complaints).expect("text");
        assert_eq!(complaints, "", "{words:?}");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{words:?}");
    }
}
