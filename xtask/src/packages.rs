//! What is released beside the program: packages of the crates, manual pages, completions.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::{Suite, finish};

/// Fields that a registry asks for, or that people look for there.
const FIELDS: &[&str] = &[
    "description",
    "version",
    "edition",
    "rust-version",
    "license",
    "readme",
    "keywords",
    "categories",
];

/// Every crate that is for others can be packed. In a long run all of them are packed in their order and built from
/// their packages, and compared with what was published before.
pub(crate) fn check(suite: &Suite) -> Result<()> {
    let crates = public_crates(suite)?;
    for (name, manifest) in &crates {
        let text = fs::read_to_string(manifest)?;
        let head = text.split("\n[").next().unwrap_or(&text);
        for field in FIELDS {
            let is_there = head.lines().any(|line| {
                let rest = line.strip_prefix(field);
                rest.is_some_and(|rest| rest.starts_with([' ', '.', '=']))
            });
            if !is_there {
                bail!(
                    "{}: no `{field}`: {name} cannot be published",
                    manifest.display()
                );
            }
        }
        let mut list = suite.command("cargo");
        list.args([
            "package",
            "--list",
            "--allow-dirty",
            "--offline",
            "-p",
            name,
        ]);
        let output = list.output().context("cannot start cargo")?;
        let files = String::from_utf8_lossy(&output.stdout);
        let has = |file: &str| files.lines().any(|line| line == file);
        if !output.status.success()
            || !has("README.md")
            || !(has("src/lib.rs") || has("src/main.rs"))
        {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{name} cannot be packed:\n{files}{said}");
        }
    }
    versions_are_given(suite)?;
    if !suite.long {
        return Ok(());
    }
    let mut publish = suite.command("cargo");
    publish.args([
        "publish",
        "--dry-run",
        "--workspace",
        "--allow-dirty",
        "--quiet",
    ]);
    finish(publish)?;
    let mut semver = suite.command("cargo");
    semver.args(["semver-checks", "--version"]);
    if !semver.output().is_ok_and(|output| output.status.success()) {
        eprintln!(
            "   no cargo-semver-checks (`cargo install cargo-semver-checks`): not compared with the version before"
        );
        return Ok(());
    }
    for (name, _) in crates.iter().filter(|(name, _)| name != "loxley-cli") {
        if !suite.cargo_succeeds(&["info", "--quiet", name]) {
            eprintln!("   {name} was never published: nothing to compare with");
            continue;
        }
        suite.cargo(&["semver-checks", "-p", name])?;
    }
    Ok(())
}

/// The crates that are for others, with their manifests: whoever says nothing of publishing.
fn public_crates(suite: &Suite) -> Result<Vec<(String, PathBuf)>> {
    let mut crates = Vec::new();
    for entry in fs::read_dir(suite.root.join("crates"))? {
        let manifest = entry?.path().join("Cargo.toml");
        let Ok(text) = fs::read_to_string(&manifest) else {
            continue;
        };
        if text.lines().any(|line| line.starts_with("publish")) {
            continue;
        }
        let name = text.lines().find_map(|line| line.strip_prefix("name = "));
        let name = name.with_context(|| format!("{} has no name", manifest.display()))?;
        crates.push((name.trim_matches('"').to_owned(), manifest));
    }
    crates.sort();
    Ok(crates)
}

/// A registry does not know paths.
fn versions_are_given(suite: &Suite) -> Result<()> {
    let text = fs::read_to_string(suite.root.join("Cargo.toml"))?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("version = "));
    let version = version.context("the workspace has no version")?;
    for line in text
        .lines()
        .filter(|line| line.starts_with("loxley") && line.contains("path ="))
    {
        if !line.contains(&format!("version = {version}")) {
            bail!("Cargo.toml: `{line}` does not ask for version {version}");
        }
    }
    Ok(())
}

/// Manual pages and completions, for packages: `target/assets`.
pub(crate) fn assets(suite: &Suite) -> Result<()> {
    suite.cargo(&[
        "build",
        "--release",
        "-p",
        "loxley-cli",
        "--features",
        "full",
    ])?;
    let folder = suite.root.join("target/assets");
    let program = suite.root.join("target/release/loxley");
    let program = program
        .to_str()
        .context("the path of the workspace is no text")?;
    let mut man = suite.command(program);
    man.arg("man").arg(folder.join("man"));
    finish(man)?;
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, name) in [
        ("bash", "loxley.bash"),
        ("zsh", "_loxley"),
        ("fish", "loxley.fish"),
    ] {
        let output = suite
            .command(program)
            .args(["completions", shell])
            .output()?;
        if !output.status.success() {
            bail!("no completions for {shell}");
        }
        fs::write(completions.join(name), output.stdout)?;
    }
    eprintln!("{}", folder.display());
    Ok(())
}
