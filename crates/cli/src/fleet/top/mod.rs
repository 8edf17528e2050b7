//! `loxley top`: the fleet at a glance, in a terminal.
//!
//! ```text
//!  looker (a thread with a client) ── Look, every second ──▶ Model ──▶ draw
//!         ◀── orders: cancel, retry, explain ── keys ─────────┘
//! ```
//!
//! What must stay true: a server that is slow or away never stops the keys; nothing is shown by colour alone.

mod draw;
mod look;
mod model;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::{Terminal, TerminalOptions, Viewport};

use self::look::{Looker, look};
use self::model::{Model, Next};
use super::connect::{Connect, print_json};
use crate::exit::Exit;

/// Watch the fleet in a terminal: agents, jobs, running tasks, moves, figures, health.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Print what there is once, without a terminal, and end.
    #[arg(long)]
    once: bool,
    /// Print what there is once, as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

const HELP: &str = "\
Keys:
  Tab, 1 to 4   agents, jobs, running tasks, moves
  up, down      choose (also k, j, PageUp, PageDown)
  s, S          sort by the next column; the other way round
  /             show only what has this text in it; Enter keeps it, Esc ends it
  Enter         the tasks of the chosen job; Esc goes back
  e             explain why the chosen task is where it is
  c, r          cancel, retry the chosen job or task; asks first
  q             quit

Examples:
  loxley top
  loxley top --once
  ssh fleet.example.org loxley top

Without colour where NO_COLOR is set. Exit codes: 0 done; 6 the server cannot be reached; 7 the server refused.";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let client = args.connect.client()?;
    // The first look is made before the screen is taken: a server that is not there is an error, not an empty screen.
    let first = client.call(async |client| look(client, None).await)?;
    if args.json {
        print_json(out, &first)?;
        return Ok(Exit::Done);
    }
    let mut model = Model::new(std::env::var_os("NO_COLOR").is_none());
    model.seen(first);
    if args.once {
        out.write_all(page(&model)?.as_bytes())?;
        return Ok(Exit::Done);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("this is no terminal; `loxley top --once` prints the same once");
    }
    let looker = Looker::start(&args.connect)?;
    let mut terminal = ratatui::try_init().context("cannot take the terminal")?;
    let watched = watch(&mut terminal, &mut model, &looker);
    ratatui::restore();
    watched?;
    Ok(Exit::Done)
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    looker: &Looker,
) -> Result<()> {
    /// How soon what the looker brings is shown.
    const POLL: Duration = Duration::from_millis(100);
    loop {
        while let Some(news) = looker.news() {
            model.hear(news);
        }
        terminal.draw(|frame| draw::draw(frame, model))?;
        if !event::poll(POLL)? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match model.press(key.code, key.modifiers) {
            Next::Quit => return Ok(()),
            Next::Ask(order) => looker.order(order),
            Next::Nothing => {}
        }
        looker.focus(model.focus());
    }
}

/// One screen as text: as wide as a terminal, and as long as it takes.
fn page(model: &Model) -> Result<String> {
    let backend = TestBackend::new(100, 24.max(model.rows() as u16 + 8));
    let mut terminal = Terminal::with_options(
        backend,
        TerminalOptions {
            viewport: Viewport::Fullscreen,
        },
    )?;
    terminal.draw(|frame| draw::draw(frame, model))?;
    Ok(text_of(terminal.backend()))
}

/// What stands on a screen, line by line.
fn text_of(backend: &TestBackend) -> String {
    let buffer = backend.buffer();
    let width = usize::from(buffer.area.width);
    let lines = buffer.content.chunks(width).map(|line| {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}
