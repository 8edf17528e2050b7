//! How far the run is, on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::halt::Tally;

/// A line on the terminal, or nothing.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
}

/// Between two looks at the clock of a bar that moves by itself.
const REDRAW: Duration = Duration::from_millis(500);

impl Progress {
    /// Shows a bar if `visible`.
    pub(super) fn new(visible: bool) -> Self {
        let bar = visible.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            bar.set_style(style("{pos} done{msg}  {elapsed}"));
            bar
        });
        Self { bar }
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
            bar.set_position(tally.succeeded + tally.failed);
        }
    }

    /// When the bar should be drawn again though nothing happened.
    pub(super) fn next_show(&self, now: Instant) -> Option<Instant> {
        self.bar.as_ref().map(|_| now + REDRAW)
    }

    /// Writes something else to the terminal, with the bar out of the way; says whether there is one.
    pub(super) fn aside<T>(&self, write: impl FnOnce(bool) -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(|| write(true)),
            None => write(false),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}
