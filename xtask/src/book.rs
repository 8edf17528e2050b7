//! The documentation holds together: every link of a page leads to something that is there, and (a long run insists,
//! others tell) SUMMARY.md lists every page of docs. No network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Suite;

/// Where pages are, beside those at the root.
const FOLDERS: &[&str] = &["docs", "deploy", "skills", "benches", "examples", ".github"];

pub(crate) fn check(suite: &Suite) -> Result<()> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(&suite.root)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
    for folder in FOLDERS {
        collect(&suite.root.join(folder), &mut pages)?;
    }
    let mut broken = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page)?;
        for link in links(&text) {
            if let Some(why) = problem(page, &text, link)? {
                let page = page.strip_prefix(&suite.root).unwrap_or(page);
                broken.push(format!("{}: `{link}`: {why}", page.display()));
            }
        }
    }
    broken.extend(missing_in_summary(&suite.root)?);
    if !broken.is_empty() {
        bail!(
            "the documentation does not hold together:\n  {}",
            broken.join("\n  ")
        );
    }
    Ok(())
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // What benchmarks and tests leave there is not ours.
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// What stands between `](` and `)`, outside of code.
fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for piece in line.split("](").skip(1) {
            links.extend(piece.split_once(')').map(|(link, _)| link));
        }
    }
    links
}

/// Why a link leads nowhere.
fn problem(page: &Path, text: &str, link: &str) -> Result<Option<String>> {
    let link = link.split(' ').next().unwrap_or(link);
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => page.parent().context("a page is in a folder")?.join(path),
    };
    if !target.exists() {
        return Ok(Some("there is no such file".to_owned()));
    }
    if anchor.is_empty() || target.extension().is_none_or(|end| end != "md") {
        return Ok(None);
    }
    let other;
    let text = match path {
        "" => text,
        _ => {
            other = fs::read_to_string(&target)?;
            &other
        }
    };
    let is_there = headings(text).contains(anchor);
    Ok((!is_there).then(|| format!("no heading `#{anchor}`")))
}

/// Headings as links name them.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().chars();
            let kept = kept.filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

/// Pages of docs that nobody would find.
fn missing_in_summary(root: &Path) -> Result<Vec<String>> {
    let docs = root.join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).context("docs/SUMMARY.md")?;
    let listed: BTreeSet<PathBuf> = links(&summary)
        .into_iter()
        .map(|link| docs.join(link))
        .collect();
    let mut pages = Vec::new();
    collect(&docs, &mut pages)?;
    let is_missing = |page: &&PathBuf| !page.ends_with("SUMMARY.md") && !listed.contains(*page);
    Ok(pages
        .iter()
        .filter(is_missing)
        .map(|page| format!("docs/SUMMARY.md does not list {}", page.display()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_headings_are_found() {
        let text = "# A `b` page\n[x](y.md#z) and ![p](q.png)\n```\n[no](no.md)\n```\n";
        assert_eq!(links(text), ["y.md#z", "q.png"]);
        assert!(headings(text).contains("a-b-page"));
    }
}
