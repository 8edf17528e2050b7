//! What a server or an agent says while it runs: lines on standard error, for people or for programs.

use std::io::{self, IsTerminal};

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use loxley_server::LogSwitch;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;
use tracing_subscriber::reload;

/// What to say while running.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct LogArgs {
    /// How much: error, warn, info, debug, trace; or for parts, as in info,loxley_server=debug.
    #[arg(long, value_name = "LEVEL", env = "LOXLEY_LOG", default_value = "info")]
    log: String,
    /// For whom.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogArgs {
    /// What LOXLEY_LOG said, for a command line that does not say it.
    pub(super) fn as_arguments(&self) -> Vec<String> {
        let said = |argument: std::ffi::OsString| {
            argument == "--log" || argument.as_encoded_bytes().starts_with(b"--log=")
        };
        match std::env::var_os("LOXLEY_LOG") {
            Some(_) if !std::env::args_os().any(said) => vec!["--log".to_owned(), self.log.clone()],
            _ => Vec::new(),
        }
    }

    /// From now on, everything that is logged goes to standard error. What comes back changes how much that is.
    pub(super) fn start(&self) -> Result<LogSwitch> {
        let targets =
            parse_targets(&self.log).map_err(|wrong| anyhow!("--log {}: {wrong}", self.log))?;
        let lines = fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
        let (targets, switch) = reload::Layer::new(targets);
        match self.log_format {
            Format::Text => tracing_subscriber::registry()
                .with(lines.with_filter(targets))
                .try_init()?,
            Format::Json => tracing_subscriber::registry()
                .with(lines.json().flatten_event(true).with_filter(targets))
                .try_init()?,
        }
        Ok(LogSwitch::new(move |log| {
            let targets = parse_targets(log)?;
            switch.reload(targets).map_err(|wrong| wrong.to_string())
        }))
    }
}

/// How much of what is logged. A word alone is a level: taken for the name of a part, a slip of the pen would silence all.
fn parse_targets(text: &str) -> Result<Targets, String> {
    let words = text.split(',').filter(|part| !part.contains('='));
    for word in words {
        let level: Result<LevelFilter, _> = word.trim().parse();
        level
            .map_err(|_| format!("`{word}` is no level: error, warn, info, debug, trace or off"))?;
    }
    text.parse().map_err(|wrong| format!("{wrong}"))
}

#[cfg(test)]
mod tests {
    use super::parse_targets;

    #[test]
    fn a_slip_of_the_pen_silences_nobody() {
        for good in [
            "debug",
            "off",
            "info,loxley_server=trace",
            "loxley_agent=debug",
        ] {
            assert!(parse_targets(good).is_ok(), "{good}");
        }
        for bad in ["loud", "info,loxley_server", "loxley_server=loud"] {
            assert!(parse_targets(bad).is_err(), "{bad}");
        }
    }
}
