//! `loxley server forecast`: what the server expects to come, and what it does about it.

use std::io::{self, Write};

use anyhow::Result;
use loxley_api::{ForecastInfo, WorkForecastInfo};

use crate::exit::Exit;
use crate::fleet::connect::print_json;
use crate::fleet::table::Table;

use super::PlainArgs;

/// Show what the server expects to come, how far such forecasts were off, and for what it keeps room.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    plain: PlainArgs,
}

const HELP: &str = "\
A server forecasts what comes when its configuration says so (load_balancing.forecast.enabled). A
forecast is acted on once it was right more often than *as now*: agents that can do work which is due
start nothing long beforehand that others could do.

Examples:
  loxley server forecast
  loxley server forecast --json | jq '.work[] | select(.acts)'";

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let client = args.plain.connect.client()?;
    let forecast = client.call(async |client| client.forecast().await)?;
    match args.plain.json {
        true => print_json(out, &forecast)?,
        false => show(out, &forecast)?,
    }
    Ok(Exit::Done)
}

fn show(out: &mut dyn Write, forecast: &ForecastInfo) -> io::Result<()> {
    if !forecast.enabled {
        return writeln!(
            out,
            "forecasts are off; load_balancing.forecast.enabled in the configuration switches them on"
        );
    }
    writeln!(
        out,
        "forecasts for the next {} s; room was kept {} times, {} tasks moved for it",
        forecast.horizon_sec, forecast.kept, forecast.moved
    )?;
    if forecast.work.is_empty() {
        return writeln!(out, "nothing came yet");
    }
    let mut table = Table::new([
        "WORK",
        "CAME",
        "EXPECTED",
        "SLOTS",
        "REPEATS",
        "ERROR",
        "AS NOW",
        "ACTS",
        "KEPT FOR IT",
    ]);
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    for work in &forecast.work {
        table.row([
            name(work),
            work.last.to_string(),
            work.expected.to_string(),
            number(work.slots_needed),
            work.season_sec
                .map_or_else(|| "no".to_owned(), |season| format!("every {season} s")),
            number(work.error),
            number(work.error_as_now),
            if work.acts { "yes" } else { "no" }.to_owned(),
            work.kept_agents.join(", "),
        ]);
    }
    writeln!(out)?;
    table.print(out)
}

/// What tells a kind of work from others.
fn name(work: &WorkForecastInfo) -> String {
    let mut words = vec![work.user.clone()];
    words.extend(work.group.iter().cloned());
    words.extend(work.urgent.then(|| "urgent".to_owned()));
    words.extend(work.skills.iter().cloned());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_is_shown_with_its_error_and_that_of_as_now() {
        let shown = |forecast: &ForecastInfo| {
            let mut out = Vec::new();
            show(&mut out, forecast).unwrap();
            String::from_utf8(out).unwrap()
        };
        let mut forecast = ForecastInfo::default();
        assert!(shown(&forecast).starts_with("forecasts are off"));
        forecast.enabled = true;
        assert!(shown(&forecast).contains("nothing came yet"));
        forecast.work = vec![WorkForecastInfo {
            skills: vec!["gpu".to_owned()],
            user: "ada".to_owned(),
            expected: 24,
            season_sec: Some(86_400.0),
            error: Some(1.5),
            error_as_now: Some(3.25),
            acts: true,
            kept_agents: vec!["g1".to_owned(), "g2".to_owned()],
            ..WorkForecastInfo::default()
        }];
        let text = shown(&forecast);
        for part in ["ada gpu", "every 86400 s", "1.5", "3.2", "yes", "g1, g2"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
