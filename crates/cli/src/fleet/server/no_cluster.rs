//! `server start --journal` in a build without PostgreSQL: says how to get one.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use loxley_api::ClusterInfo;
use loxley_server::ServerOptions;

use super::start::Args;

pub(super) async fn serve(_: &Args, _: &str, _: ServerOptions, _: &mut dyn Write) -> Result<()> {
    Err(loxley_journal::DatabaseError::NotBuiltIn.into())
}

pub(super) fn look(_: &str, _: Option<&Path>) -> Result<ClusterInfo> {
    Err(loxley_journal::DatabaseError::NotBuiltIn.into())
}
