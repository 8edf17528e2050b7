//! `loxley server tuning`: which settings the server changed by itself, and what came of it.

use std::io::{self, Write};

use anyhow::Result;
use loxley_api::TuningInfo;

use crate::exit::Exit;
use crate::fleet::connect::print_json;
use crate::fleet::show::ago;
use crate::fleet::table::Table;

use super::PlainArgs;

/// Show which settings the server changed by itself, what it measured, and what it took back.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    plain: PlainArgs,
}

const HELP: &str = "\
A server tunes its settings when its configuration says so (load_balancing.self_tuning.enabled): one
setting at a time, windows with the change and without it in turn. What is compared is the time for
each finished task while work waits all the time, else how long a task takes from when it could run
to its end.

Examples:
  loxley server tuning
  loxley server tuning --json | jq '.story[-1]'";

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let client = args.plain.connect.client()?;
    let tuning = client.call(async |client| client.tuning().await)?;
    match args.plain.json {
        true => print_json(out, &tuning)?,
        false => show(out, &tuning)?,
    }
    Ok(Exit::Done)
}

fn show(out: &mut dyn Write, tuning: &TuningInfo) -> io::Result<()> {
    match (tuning.enabled, &tuning.trial) {
        (false, _) => writeln!(
            out,
            "self-tuning is off; load_balancing.self_tuning.enabled in the configuration switches it on"
        )?,
        (true, None) => writeln!(out, "self-tuning is on; nothing is being tried")?,
        (true, Some(trial)) => writeln!(
            out,
            "self-tuning is on; {} {} instead of {} is being tried, {} of {} windows are over",
            trial.key, trial.to, trial.from, trial.windows, trial.windows_max
        )?,
    }
    let mut table = Table::new(["SETTING", "VALUE", "GIVEN", "BOUNDS"]);
    for setting in &tuning.settings {
        let bounds = match setting.tuned {
            true => format!("{} to {}", setting.least, setting.most),
            false => "off".to_owned(),
        };
        let given = setting.given.map(|given| given.to_string());
        table.row([
            setting.key.clone(),
            setting.value.to_string(),
            given.unwrap_or_default(),
            bounds,
        ]);
    }
    writeln!(out)?;
    table.print(out)?;
    if tuning.story.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["WHEN", "WHAT", "SETTING", "FROM", "TO", "BECAUSE"]);
    for step in &tuning.story {
        table.row([
            ago(Some(step.at_unix_ms)),
            step.what.replace('_', " "),
            step.key.clone(),
            step.from.to_string(),
            step.to.to_string(),
            step.because.clone(),
        ]);
    }
    writeln!(out)?;
    table.print(out)
}

#[cfg(test)]
mod tests {
    use loxley_api::{TunedSetting, TuningStep, TuningTrial};

    use super::*;

    fn shown(tuning: &TuningInfo) -> String {
        let mut out = Vec::new();
        show(&mut out, tuning).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_story_is_told_with_its_reasons() {
        let key = "prefetch.max_depth".to_owned();
        let mut tuning = TuningInfo {
            settings: vec![TunedSetting {
                key: key.clone(),
                value: 256.0,
                given: Some(0.0),
                tuned: true,
                least: 1.0,
                most: 1024.0,
            }],
            ..TuningInfo::default()
        };
        assert!(shown(&tuning).starts_with("self-tuning is off"));
        tuning.enabled = true;
        tuning.trial = Some(TuningTrial {
            key: key.clone(),
            from: 256.0,
            to: 512.0,
            windows: 3,
            windows_max: 8,
        });
        tuning.story = vec![TuningStep {
            at_unix_ms: 0,
            key,
            from: 0.0,
            to: 256.0,
            what: "kept".to_owned(),
            without_sec: Some(2.0),
            with_sec: Some(1.0),
            because: "1.00 s with it, 2.00 s without: 50.0 % better".to_owned(),
        }];
        let text = shown(&tuning);
        for part in [
            "512 instead of 256",
            "3 of 8 windows",
            "1 to 1024",
            "50.0 % better",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
