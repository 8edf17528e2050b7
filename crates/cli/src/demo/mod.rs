//! `loxley demo`: a real fleet of agents at real work, in the five situations that users meet.
//!
//! `scenes` says what happens, `mill` is the work, `stage` is where it is watched (progress, Ctrl-C),
//! `show` puts the results into text and JSON.
//!
//! What must stay true: every figure is measured in this run; what a scene claims is checked, and a
//! claim that does not hold makes the command fail.

mod mill;
mod scenes;
mod show;
mod stage;

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Result;

use crate::exit::Exit;
use mill::Mill;
use scenes::{SCENES, Setting};
use stage::{Interrupted, Stage};

/// Show a real fleet of agents at work: stealing, a hot spot, crashes, priorities, all figures.
///
/// The agents are threads of this process, one for each core, and their tasks are real computations
/// of uneven length. Takes about a quarter of a minute.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// How many agents [default: one for each core].
    #[arg(long, value_name = "N")]
    agents: Option<NonZero<u16>>,
    /// Where the lengths of the tasks come from: the same seed gives the same tasks.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A sixth of the work, for a first look.
    #[arg(long)]
    quick: bool,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  loxley demo
  loxley demo --quick --json | jq .balance

Exit codes: 0 done (a figure may have missed its target, which is said), 1 a claim did not hold, 130
interrupted.";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let agents = args.agents.map_or(cores, |agents| agents.get().into());
    let stage = Stage::new(io::stderr().is_terminal())?;
    let setting = Setting {
        agents,
        seed: args.seed,
        scene_secs: if args.quick { 0.4 } else { 2.4 },
        mill: Mill::calibrate(),
    };
    if !args.json {
        show::opening(&setting, cores, out)?;
    }
    let mut results = Vec::new();
    for (number, scene) in (1..).zip(SCENES) {
        let result = match scene.play(&setting, &stage) {
            Ok(result) => result,
            Err(error) if error.is::<Interrupted>() => {
                writeln!(
                    io::stderr(),
                    "loxley demo: interrupted; all agents were stopped"
                )?;
                return Ok(Exit::Interrupted);
            }
            Err(error) => return Err(error),
        };
        if !args.json {
            show::scene(number, &result, out)?;
            out.flush()?;
        }
        results.push(result);
    }
    if args.json {
        show::json(&setting, &results, out)?;
    } else {
        show::closing(&results, out)?;
    }
    let all_held = results.iter().all(|result| result.claims_hold());
    Ok(if all_held { Exit::Done } else { Exit::Failed })
}
