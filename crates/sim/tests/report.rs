//! The report in a real browser: it draws, it needs nothing else, and it fits a phone.
//!
//! Needs Chromium (Debian's `chromium`); `cargo xtask test` installs it where it may. Without it the
//! test says so and passes.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test: a failure is the message"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use loxley_sim::experiment;
use loxley_sim::library;
use loxley_sim::report::{DrawnRun, Report, html};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("loxley-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn chromium() -> Option<PathBuf> {
    let found = ["/usr/bin/chromium", "/usr/bin/chromium-browser"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no Chromium on this machine");
    }
    found
}

fn browse(browser: &Path, folder: &Path, page: &Path, more: &[&str]) -> Vec<u8> {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--virtual-time-budget=2000",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

fn write_report(folder: &Path, scenario: &str) -> PathBuf {
    let scenario = library::ready(scenario).unwrap();
    let variants = experiment::variants(&scenario, scenario.compare(), None, &[]).unwrap();
    let results = experiment::run(&variants, &[1, 2, 3], &experiment::one_by_one, &|| {});
    let runs: Vec<DrawnRun> = variants
        .iter()
        .map(|variant| {
            let (statistics, timeline) = variant.world.run_recorded(1, &mut ());
            DrawnRun::new(&variant.label, &statistics, timeline)
        })
        .collect();
    let page = html(&Report {
        title: scenario.name(),
        about: scenario.about(),
        look_for: scenario.look_for(),
        notes: &[],
        runs: &runs,
        results: Some(&results),
        command: "a test",
    });
    let path = folder.join(format!("{}.html", scenario.name()));
    std::fs::write(&path, page).unwrap();
    path
}

/// Width and height out of the header of a PNG.
fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[1..4], b"PNG");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn a_report_draws_itself_in_a_browser() {
    let Some(browser) = chromium() else { return };
    let folder = Folder::new("report");
    for scenario in ["adaptive", "partition"] {
        let page = write_report(&folder.0, scenario);
        let dom = browse(&browser, &folder.0, &page, &["--dump-dom"]);
        let dom = String::from_utf8(dom).unwrap();
        assert!(
            dom.contains("data-ready=\"yes\""),
            "the script ran to its end"
        );
        for chart in ["queues", "utilization", "waits", "workers"] {
            let start = dom.find(&format!("id=\"{chart}\"")).unwrap();
            let drawing = &dom[start..start + dom[start..].find("</svg>").unwrap()];
            assert!(
                drawing.contains("<path") || drawing.contains("<rect"),
                "{chart} is drawn"
            );
        }
        assert!(
            dom.contains("changed hands"),
            "the timeline says what it shows"
        );
        assert!(dom.contains("id=\"comparison\""));
    }
}

#[test]
fn a_screenshot_is_as_large_as_the_window_and_not_blank() {
    let Some(browser) = chromium() else { return };
    let folder = Folder::new("screenshot");
    let page = write_report(&folder.0, "adaptive");
    for (width, height) in [(1200, 1400), (390, 2000)] {
        let picture = folder.0.join(format!("{width}.png"));
        let arguments = [
            format!("--window-size={width},{height}"),
            format!("--screenshot={}", picture.display()),
        ];
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        browse(&browser, &folder.0, &page, &words);
        let bytes = std::fs::read(&picture).unwrap();
        let (shot_width, shot_height) = png_size(&bytes);
        assert!(shot_width >= width.min(390) && shot_height >= 1000);
        // A blank page of this size compresses to a few kilobytes.
        assert!(bytes.len() > 30_000, "{} bytes", bytes.len());
    }
}
