//! Fuzzing: a short run of every target on every build, long ones with libFuzzer by hand.

use anyhow::{Context, Result, bail};

use crate::{EVERYTHING, Suite, finish};

/// Every target for a few seconds, from the seed of the quick run; the long one draws its own.
pub(crate) fn quick(suite: &Suite) -> Result<()> {
    let mut command = suite.command("cargo");
    // Asked for the whole workspace, so that nothing is built again with other features.
    command.arg("test").args(EVERYTHING);
    command.args(["--quiet", "--test", "fuzz"]);
    command.env("LOXLEY_FUZZ_SECONDS", if suite.long { "60" } else { "4" });
    if suite.long {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let seed = now.as_secs().to_string();
        eprintln!("   LOXLEY_FUZZ_SEED={seed}");
        command.env("LOXLEY_FUZZ_SEED", seed);
    }
    finish(command)
}

/// What makes the stable compiler count the branches that libFuzzer steers by.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// One target with libFuzzer, for so many seconds.
pub(crate) fn long(suite: &Suite, target: &str, seconds: &str) -> Result<()> {
    if seconds.parse::<u32>().is_err() {
        bail!("`{seconds}` is not a number of seconds");
    }
    let built = suite.root.join("target/fuzz");
    let corpus = built.join("corpus").join(target);
    std::fs::create_dir_all(&corpus)
        .with_context(|| format!("cannot make {}", corpus.display()))?;
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = suite.command("cargo");
    // With a target named, build scripts and macros are built without counters, for which they have no use.
    build
        .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml"])
        .args(["--target", &machine])
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_TARGET_DIR", &built);
    finish(build)?;
    let program = built.join(machine).join("release/loxley-libfuzzer");
    let mut run = suite.command(&program.to_string_lossy());
    run.arg(&corpus)
        .args([
            "-timeout=20",
            "-rss_limit_mb=4096",
            &format!("-max_total_time={seconds}"),
        ])
        .arg(format!("-artifact_prefix={}/", built.display()))
        .env("LOXLEY_FUZZ_TARGET", target)
        .env("LOXLEY_FUZZ_CORPUS", &corpus);
    finish(run)
}
