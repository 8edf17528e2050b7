//! `server start --otlp` in a build without it: says how to get one.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use loxley_server::TraceExport;
use loxley_server::decider::Handle;

const HOW: &str = "this program was built without OpenTelemetry; \
    `cargo install --path crates/cli --features full` builds one that has it";

/// Who would tell collectors.
#[derive(Debug)]
pub(super) struct Telemetry;

impl Telemetry {
    pub(super) fn start(collector: Option<&str>, _authority: Option<PathBuf>) -> Result<Arc<Self>> {
        if collector.is_some() {
            bail!("--otlp: {HOW}");
        }
        Ok(Arc::new(Self))
    }

    pub(super) async fn finish(&self) {}
}

impl TraceExport for Telemetry {
    fn serve(&self, _server: &Handle) {}

    fn send_to(&self, _server: &Handle, collector: Option<&str>) -> Result<(), String> {
        match collector {
            Some(_) => Err(HOW.to_owned()),
            None => Ok(()),
        }
    }

    fn collector(&self) -> Option<String> {
        None
    }
}
