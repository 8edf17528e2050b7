//! Checks that no lint can express: which crate may depend on which, and where `unsafe` may live.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Suite;

/// The arrows of ARCHITECTURE.md: a crate may use these of our crates and no others.
const ARROWS: &[(&str, &[&str])] = &[
    ("balance", &[]),
    ("model", &[]),
    ("policy", &["model", "balance"]),
    ("config", &["policy", "model", "balance"]),
    ("pool", &["balance"]),
    ("journal", &["model"]),
    ("protocol", &[]),
    (
        "server",
        &["api", "config", "journal", "model", "policy", "protocol"],
    ),
    ("agent", &["model", "pool", "balance", "protocol", "api"]),
    ("api", &["model"]),
    ("client", &["api", "model", "balance"]),
    ("jobfile", &["config", "policy", "model", "agent"]),
];

/// What the deciding core may depend on from outside: little enough to read in a day, and none of
/// it with a clock, a thread, a socket or a random source.
const POLICY_DEPENDENCIES: &[&str] = &[
    "hashbrown",
    "loxley-model",
    "loxley-balance",
    "serde",
    "smallvec",
    "thiserror",
];

pub(crate) fn check(suite: &Suite) -> Result<()> {
    let crates = suite.root.join("crates");
    let mut problems = Vec::new();
    for (name, allowed) in ARROWS {
        let manifest = crates.join(name).join("Cargo.toml");
        if !manifest.exists() {
            continue;
        }
        for dependency in dependencies(&manifest)? {
            let Some(ours) = dependency.strip_prefix("loxley-") else {
                continue;
            };
            if !allowed.contains(&ours) {
                problems.push(format!("crates/{name} must not depend on {dependency}"));
            }
        }
    }
    for dependency in dependencies(&crates.join("policy/Cargo.toml"))? {
        if !POLICY_DEPENDENCIES.contains(&dependency.as_str()) {
            problems.push(format!("crates/policy must not depend on {dependency}"));
        }
    }
    for core in ["balance", "model", "policy"] {
        let source = fs::read_to_string(crates.join(core).join("src/lib.rs"))?;
        if !source.contains("#![no_std]") {
            problems.push(format!(
                "crates/{core} must be #![no_std]: it has no clock and no thread"
            ));
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        bail!("{}", problems.join("\n"))
    }
}

/// The names under `[dependencies]` of a manifest, target-specific ones included, test-only not.
fn dependencies(manifest: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let mut section = String::new();
    let mut names = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            continue;
        }
        let is_dependency = section == "dependencies" || section.ends_with(".dependencies");
        if is_dependency && !line.starts_with('#') && !line.is_empty() {
            let name = line.split(['.', '=', ' ']).next().unwrap_or(line);
            names.insert(name.to_owned(), ());
        }
    }
    Ok(names.into_keys().collect())
}
