//! `server start --otlp` in a build without it: says how to get one.

use anyhow::{Result, bail};
use loxley_server::Context as Server;

/// What goes to a collector; here nobody has one.
#[derive(Debug)]
pub(super) enum Telemetry {}

impl Telemetry {
    /// Whether this program can do it at all.
    pub(super) fn check() -> Result<()> {
        bail!(
            "--otlp: this program was built without OpenTelemetry; \
             `cargo install --path crates/cli --features otlp` builds one that has it"
        )
    }

    pub(super) fn start(_collector: &str, _server: &Server) -> Result<Self> {
        Self::check()?;
        unreachable!("the check fails")
    }

    pub(super) async fn finish(self) {
        match self {}
    }
}
