//! The dashboard: its sources in `web/`, its built files in the server.

use std::path::Path;

use anyhow::Result;

use crate::{EVERYTHING, Suite, finish};

/// Builds the dashboard anew and compares it with the files that are in the program; then uses it.
pub(crate) fn test(suite: &Suite) -> Result<()> {
    let is_there = |program: &str| suite.command(program).arg("--version").output().is_ok();
    if !is_there("node") || !is_there("npm") {
        eprintln!(
            "   no node or no npm: NOT CHECKED that the built files are current, nor that they work"
        );
        return Ok(());
    }
    if let Err(error) = install(suite) {
        eprintln!("   the packages could not be brought ({error}): NOT CHECKED, as without npm");
        return Ok(());
    }
    let mut check = suite.command("npm");
    check.args(["--prefix", "web", "run", "--silent", "check"]);
    finish(check)?;
    if !Path::new("/usr/bin/chromium").exists() {
        eprintln!("   no /usr/bin/chromium: the dashboard was built, and NOT USED");
        return Ok(());
    }
    // As a part of the workspace it is what other steps have built; alone, it would be built again.
    suite.cargo(&[&["build"], EVERYTHING, &["--quiet", "--bin", "loxley"]].concat())?;
    let mut browse = suite.command("node");
    browse.arg("web/test/dashboard.mjs");
    browse.arg(suite.program());
    finish(browse)?;
    let mut many = suite.command("node");
    many.arg("web/test/many.mjs").arg(suite.program());
    finish(many)
}

/// Measures how fast the dashboard is, in the program as it is released.
pub(crate) fn bench(suite: &Suite) -> Result<()> {
    install(suite)?;
    suite.cargo(&[
        "build",
        "--quiet",
        "--release",
        "--package",
        "loxley-cli",
        "--target-dir",
        "target",
    ])?;
    let mut bench = suite.command("node");
    bench.args(["web/test/bench.mjs", "target/release/loxley"]);
    finish(bench)?;
    let mut many = suite.command("node");
    many.args(["web/test/many.mjs", "target/release/loxley", "1000000"]);
    finish(many)
}

/// Exactly what the lock file names, without anything that wants to run on the way.
fn install(suite: &Suite) -> Result<()> {
    let mut command = suite.command("npm");
    command.args(["--prefix", "web", "ci", "--ignore-scripts", "--silent"]);
    finish(command)
}
