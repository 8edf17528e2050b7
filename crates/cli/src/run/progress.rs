//! How far the run is: a bar on a terminal, lines elsewhere.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::halt::Tally;

/// A bar on the terminal with a line for each agent above it, a line now and then, or nothing.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    whole: MultiProgress,
    agents: Vec<ProgressBar>,
    lines: Option<LineByLine>,
}

/// Says how far it is where no terminal is: in logs, and for programs that read along.
#[derive(Debug)]
struct LineByLine {
    begun: Instant,
    total: Option<u64>,
    /// What was said last, and when.
    said: Option<(u64, Instant)>,
    done: u64,
}

/// Of a larger fleet, only the first agents are shown.
const AGENTS_SHOWN: usize = 8;

/// Between two looks at the clock of a bar that moves by itself.
const REDRAW: Duration = Duration::from_millis(500);

/// Between two lines, at the least.
const LINE_EVERY: Duration = Duration::from_secs(1);

impl Progress {
    /// Shows nothing.
    pub(super) fn none() -> Self {
        Self {
            bar: None,
            whole: MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)),
            agents: Vec::new(),
            lines: None,
        }
    }

    /// Shows a bar on the terminal.
    pub(super) fn bar() -> Self {
        let mut progress = Self::none();
        let bar = progress.whole.add(ProgressBar::no_length());
        bar.set_style(style("{pos} done{msg}  {elapsed}"));
        progress.bar = Some(bar);
        progress
    }

    /// Prints a line to standard error at most once a second, and at the end.
    pub(super) fn lines() -> Self {
        Self {
            lines: Some(LineByLine {
                begun: Instant::now(),
                total: None,
                said: None,
                done: 0,
            }),
            ..Self::none()
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
    pub(super) fn expect(&mut self, total: Option<u64>) {
        if let Some(lines) = &mut self.lines {
            lines.total = total;
        }
        if let (Some(bar), Some(total)) = (&self.bar, total)
            && bar.length() != Some(total)
        {
            bar.set_length(total);
            bar.set_style(style("{wide_bar} {pos}/{len}{msg}  {elapsed}, {eta} left"));
        }
    }

    /// Shows how far it is.
    pub(super) fn show(&mut self, tally: &Tally, running: usize) {
        if let Some(lines) = &mut self.lines {
            lines.show(tally, running);
        }
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
        let is_shown = self.bar.is_some() || self.lines.is_some();
        is_shown.then(|| now + REDRAW)
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

impl LineByLine {
    fn show(&mut self, tally: &Tally, running: usize) {
        self.done = tally.succeeded + tally.failed + tally.skipped;
        let is_last = self.total == Some(self.done);
        let is_due = match self.said {
            None => self.done > 0,
            Some((done, at)) => done != self.done && (is_last || at.elapsed() >= LINE_EVERY),
        };
        if !is_due {
            return;
        }
        self.said = Some((self.done, Instant::now()));
        let of = self.total.map(|total| format!(" of {total}"));
        let failed = match tally.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let (of, seconds) = (of.unwrap_or_default(), self.begun.elapsed().as_secs_f64());
        let line = format!(
            "{}{of} done{failed}, {running} running, {seconds:.1} s",
            self.done
        );
        // Nobody has to read it.
        let _ = writeln!(io::stderr(), "loxley: {line}");
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}
