//! rayon's own tests on our pool.
//!
//! The suites of `rayon` and `rayon-core` are unpacked from the registry into the build directory; nothing
//! of them is committed, and not a line of their tests is changed. `rayon` is tested as it is, with our
//! `rayon-core` patched in. The unit tests of `rayon-core` are modules of its crate, so they are put beside
//! a copy of our sources, as modules of that; a few lines there stand for private things that those tests
//! use.
//!
//! What is not run: nothing. `rayon-core` 1.13 has no tests of modules that we do not have.
//!
//! A step of its own, in long runs, tests three packages that use rayon heavily, with their own tests, and compares the speed of
//! rayon's iterators and of those packages on both cores (`benches/rayon`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::{Suite, finish};

/// The present rayon, and the `rayon-core` that it asks for and that ours stands in for.
const RAYON: &str = "1.12.0";
const CORE: &str = "1.13.0";

/// Packages that use rayon heavily, with the features that switch it on. They are tested as they were published.
const USERS: &[(&str, &str, &str)] = &[
    ("indexmap", "2.14.2", "rayon"),
    ("hashbrown", "0.17.1", "rayon"),
    ("jwalk", "0.8.1", ""),
];

/// Modules of `rayon-core` with tests of their own.
const TESTED: &[&str] = &["broadcast", "join", "scope", "spawn", "thread_pool"];

/// What its tests use of the private parts of `rayon-core`, beside the modules and fields of the same name
/// that we have.
const PRIVATE_PARTS: &[(&str, &str)] = &[
    (
        "lib.rs",
        "
#[cfg(test)]
mod test;
#[cfg(test)]
mod unwind {
    pub(crate) fn halt_unwinding<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
    }
}
mod compile_fail;
",
    ),
    ("join.rs", "#[cfg(test)]\nuse crate::unwind;\n"),
    (
        "registry.rs",
        "
#[cfg(test)]
pub(crate) fn in_worker<R: Send>(op: impl FnOnce((), bool) -> R + Send) -> R {
    current().run(|moved| op((), moved))
}
#[cfg(test)]
impl Registry {
    pub(crate) fn wait_until_stopped(&self) {
        self.pool.wait_for_ends(self.num_threads());
    }
}
",
    ),
];

pub(crate) fn test(suite: &Suite) -> Result<()> {
    let folder = suite.root.join("target/rayon");
    let vendor = fetch(suite, &folder)?;
    let tests = folder.join("suite");
    lay_out(suite, &vendor, &tests)?;
    let mut command = suite.command("cargo");
    command
        .args(["test", "--quiet", "--workspace"])
        .current_dir(&tests)
        .env("CARGO_TARGET_DIR", folder.join("target"));
    finish(command)
}

/// In a long run, packages that use rayon heavily: their own tests on our core, and their speed on both.
pub(crate) fn test_users(suite: &Suite) -> Result<()> {
    if !suite.long {
        eprintln!("   only in a long run");
        return Ok(());
    }
    run_their_tests(suite, &suite.root.join("target/rayon"))?;
    compare(suite)
}

/// The tests of packages that use rayon, each in a workspace of its own with our core patched in.
fn run_their_tests(suite: &Suite, folder: &Path) -> Result<()> {
    let dependencies: String = USERS
        .iter()
        .map(|(name, version, _)| format!("{name} = \"={version}\"\n"))
        .collect();
    let vendor = vendor(suite, folder, "users-fetch", &dependencies)?;
    let core = suite.root.join("crates/rayon-core");
    for (name, version, feature) in USERS {
        eprintln!("   the tests of {name} {version}");
        let package = folder.join("users").join(name);
        if package.exists() {
            fs::remove_dir_all(&package)?;
        }
        copy(&vendor.join(format!("{name}-{version}")), &package)?;
        let patch = format!(
            "\n[workspace]\n[patch.crates-io]\nrayon-core = {{ path = {:?} }}\n",
            core
        );
        append(&package.join("Cargo.toml"), &patch)?;
        let mut command = suite.command("cargo");
        command
            .args(["test", "--quiet", "--lib", "--tests", "--features", feature])
            .current_dir(&package)
            .env("CARGO_TARGET_DIR", folder.join("target"));
        finish(command)?;
    }
    Ok(())
}

/// The same program on both cores, in turns; prints how they compare.
fn compare(suite: &Suite) -> Result<()> {
    let manifest = suite.root.join("benches/rayon/Cargo.toml");
    let patch = suite.root.join("crates/rayon-core");
    let patch = format!("patch.crates-io.rayon-core.path={patch:?}");
    let mut programs = Vec::new();
    for (name, config) in [("loxley", Some(patch)), ("rayon", None)] {
        let target = suite.root.join("target/cases").join(name);
        let mut command = suite.command("cargo");
        command
            .args(["build", "--quiet", "--release", "--manifest-path"])
            .arg(&manifest)
            .arg("--target-dir")
            .arg(&target);
        if let Some(config) = config {
            command.args(["--config", &config]);
        }
        finish(command)?;
        programs.push(target.join("release/rayon-cases"));
    }
    let mut command = std::process::Command::new(&programs[1]);
    command.arg("compare").args(&programs);
    finish(command)
}

/// Unpacks both packages; returns where.
fn fetch(suite: &Suite, folder: &Path) -> Result<PathBuf> {
    let dependencies = format!("rayon = \"={RAYON}\"\nrayon-core = \"={CORE}\"\n");
    vendor(suite, folder, "fetch", &dependencies)
}

/// Unpacks these dependencies from the registry; returns where.
fn vendor(suite: &Suite, folder: &Path, name: &str, dependencies: &str) -> Result<PathBuf> {
    let package = folder.join(name);
    let vendor = package.join("vendor");
    let manifest = package.join("Cargo.toml");
    let wanted = format!(
        "[package]\nname = \"{name}\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{dependencies}"
    );
    let is_there = vendor.exists() && fs::read_to_string(&manifest).is_ok_and(|is| is == wanted);
    if is_there {
        return Ok(vendor);
    }
    write(&manifest, &wanted)?;
    write(&package.join("src/lib.rs"), "")?;
    let mut command = suite.command("cargo");
    command
        .args(["vendor", "--quiet", "--versioned-dirs", "--manifest-path"])
        .args([&manifest, &vendor])
        .stdout(Stdio::null());
    finish(command)?;
    Ok(vendor)
}

/// A workspace of both suites.
fn lay_out(suite: &Suite, vendor: &Path, tests: &Path) -> Result<()> {
    let ours = suite.root.join("crates/rayon-core");
    let manifest = fs::read_to_string(ours.join("Cargo.toml"))?;
    ensure!(
        manifest.contains(&format!("\nversion = \"{CORE}\"\n")),
        "crates/rayon-core stands in for rayon-core {CORE}"
    );
    if tests.exists() {
        fs::remove_dir_all(tests)?;
    }
    copy(&vendor.join(format!("rayon-{RAYON}")), &tests.join("rayon"))?;
    let core = tests.join("rayon-core");
    let theirs = vendor.join(format!("rayon-core-{CORE}"));
    copy(&ours.join("src"), &core.join("src"))?;
    copy(&theirs.join("tests"), &core.join("tests"))?;
    let source = |name: &str| (theirs.join("src").join(name), core.join("src").join(name));
    let (from, to) = source("compile_fail");
    copy(&from, &to)?;
    let (from, to) = source("test.rs");
    copy(&from, &to)?;
    for module in TESTED {
        let (from, to) = source(&format!("{module}/test.rs"));
        copy(&from, &to)?;
        append(
            &core.join("src").join(format!("{module}.rs")),
            "\n#[cfg(test)]\nmod test;\n",
        )?;
    }
    for (file, text) in PRIVATE_PARTS {
        append(&core.join("src").join(file), text)?;
    }
    write(
        &core.join("Cargo.toml"),
        &format!(
            "[package]\nname = \"rayon-core-suite\"\nversion = \"{CORE}\"\nedition = \"2024\"\n\
             [lib]\nname = \"rayon_core\"\n[features]\nweb_spin_lock = []\n\
             [dependencies]\nloxley-pool = {{ path = \"../../../../crates/pool\" }}\n\
             [dev-dependencies]\ncrossbeam-utils = \"0.8\"\nlibc = \"0.2\"\nrand = \"0.9\"\n\
             rand_xorshift = \"0.4\"\nscoped-tls = \"1\"\n"
        ),
    )?;
    // Optimizing rayon's tests takes longer than it saves.
    write(
        &tests.join("Cargo.toml"),
        "[workspace]\nresolver = \"2\"\nmembers = [\"rayon\", \"rayon-core\"]\n\
         [patch.crates-io]\nrayon-core = { path = \"../../../crates/rayon-core\" }\n\
         [profile.dev]\ndebug = false\n",
    )
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file in a folder")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn append(path: &Path, text: &str) -> Result<()> {
    let before = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    write(path, &format!("{before}{text}"))
}

/// A file, or a folder with all it holds.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_file() {
        fs::create_dir_all(to.parent().context("a file in a folder")?)?;
        fs::copy(from, to).with_context(|| from.display().to_string())?;
        return Ok(());
    }
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}
