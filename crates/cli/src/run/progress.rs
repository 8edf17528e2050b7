//! How far the run is, on a terminal.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::halt::Tally;

/// A bar on the terminal with a line for each agent above it, or nothing.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    whole: MultiProgress,
    agents: Vec<ProgressBar>,
}

/// Of a larger fleet, only the first agents are shown.
const AGENTS_SHOWN: usize = 8;

/// Between two looks at the clock of a bar that moves by itself.
const REDRAW: Duration = Duration::from_millis(500);

impl Progress {
    /// Shows a bar if `visible`.
    pub(super) fn new(visible: bool) -> Self {
        let whole = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let bar = visible.then(|| {
            let bar = whole.add(ProgressBar::no_length());
            bar.set_style(style("{pos} done{msg}  {elapsed}"));
            bar
        });
        Self {
            bar,
            whole,
            agents: Vec::new(),
        }
    }

    /// Shows what each agent does, above the bar.
    pub(super) fn with_agents(mut self, names: &[&str]) -> Self {
        let Some(bar) = &self.bar else { return self };
        let width = names.iter().map(|name| name.chars().count()).max();
        let width = width.unwrap_or(0).min(20);
        for name in names.iter().take(AGENTS_SHOWN) {
            let line = self.whole.insert_before(bar, ProgressBar::no_length());
            line.set_style(style("  {prefix:.bold}  {wide_msg}"));
            line.set_prefix(format!("{name:width$.width$}"));
            self.agents.push(line);
        }
        self
    }

    /// Whether anything is shown at all.
    pub(super) fn is_visible(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows what each agent does.
    pub(super) fn show_agents(&self, doing: impl Iterator<Item = String>) {
        for (line, doing) in self.agents.iter().zip(doing) {
            line.set_message(doing);
        }
    }

    /// Writes a line to standard error, with the bar out of the way.
    pub(super) fn say(&self, line: &str) -> io::Result<()> {
        self.aside(|_| writeln!(io::stderr(), "loxley: {line}"))
    }

    /// Learns how many tasks there will be.
    pub(super) fn expect(&self, total: Option<u64>) {
        if let (Some(bar), Some(total)) = (&self.bar, total)
            && bar.length() != Some(total)
        {
            bar.set_length(total);
            bar.set_style(style("{wide_bar} {pos}/{len}{msg}  {elapsed}, {eta} left"));
        }
    }

    /// Shows how far it is.
    pub(super) fn show(&self, tally: &Tally, running: usize) {
        if let Some(bar) = &self.bar {
            let failed = match tally.failed {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            bar.set_message(format!("{failed}, {running} running"));
            bar.set_position(tally.succeeded + tally.failed + tally.skipped);
        }
    }

    /// When the bar should be drawn again though nothing happened.
    pub(super) fn next_show(&self, now: Instant) -> Option<Instant> {
        self.bar.as_ref().map(|_| now + REDRAW)
    }

    /// Writes something else to the terminal, with the bar out of the way; says whether there is one.
    pub(super) fn aside<T>(&self, write: impl FnOnce(bool) -> T) -> T {
        match &self.bar {
            Some(_) => self.whole.suspend(|| write(true)),
            None => write(false),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        for line in self.agents.iter().chain(&self.bar) {
            line.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}
