//! Where a scene is watched: a progress bar on a terminal, plain lines elsewhere, and an ear for
//! Ctrl-C.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use loxley::Fleet;
use signal_hook::consts::{SIGINT, SIGTERM};

/// How often the display is brought up to date.
const FRAME: Duration = Duration::from_millis(40);

/// Somebody pressed Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(super) struct Interrupted;

pub(super) struct Stage {
    is_terminal: bool,
    interrupted: Arc<AtomicBool>,
}

impl Stage {
    pub(super) fn new(is_terminal: bool) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))
                .context("cannot listen for Ctrl-C")?;
        }
        Ok(Self {
            is_terminal,
            interrupted,
        })
    }

    /// Watches a fleet until its tasks are over. `cue` is told how many are, and may step in.
    pub(super) fn watch(
        &self,
        title: &str,
        fleet: &Fleet,
        total: usize,
        mut cue: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let mut display = Display::new(self.is_terminal, title, total);
        loop {
            let is_over = fleet.wait_all_within(FRAME);
            if self.interrupted.load(Ordering::Relaxed) {
                display.clear();
                return Err(Interrupted.into());
            }
            let counts = fleet.scheduler().counts();
            let done = usize::try_from(counts.finished + counts.failed).unwrap_or(usize::MAX);
            cue(done)?;
            display.update(done, fleet)?;
            if is_over {
                display.clear();
                return Ok(());
            }
        }
    }
}

/// How far a scene is.
enum Display {
    Bar(ProgressBar),
    /// A line for each quarter.
    Lines {
        title: String,
        total: usize,
        quarters: usize,
    },
}

impl Display {
    fn new(is_terminal: bool, title: &str, total: usize) -> Self {
        if !is_terminal {
            return Self::Lines {
                title: title.to_owned(),
                total,
                quarters: 0,
            };
        }
        let bar = ProgressBar::new(total as u64).with_prefix(title.to_owned());
        let style = ProgressStyle::with_template("{prefix}  {bar:30.cyan/dim} {pos}/{len}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self::Bar(bar)
    }

    fn update(&mut self, done: usize, fleet: &Fleet) -> io::Result<()> {
        match self {
            Self::Bar(bar) => {
                bar.set_position(done as u64);
                let moved = fleet.metrics().tasks_migrated;
                let queues = fleet.scheduler().queue_lengths();
                bar.set_message(format!("{moved} moved  queues {queues:?}"));
            }
            Self::Lines {
                title,
                total,
                quarters,
            } => {
                let now = (done * 4).checked_div(*total).unwrap_or(4);
                if now > *quarters {
                    *quarters = now;
                    writeln!(io::stderr(), "{title}: {done} of {total} tasks")?;
                }
            }
        }
        Ok(())
    }

    fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
