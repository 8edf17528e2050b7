//! The pages of docs/reference, made from what the program itself says: they cannot rot.
//! `LOXLEY_BLESS=1 cargo test -p loxley-cli reference` writes them anew.

use std::fmt::Write;
use std::path::Path;

use clap::CommandFactory;

/// Compares a page with the file, or writes it.
fn check(name: &str, page: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let path = folder.join(name);
    if std::env::var_os("LOXLEY_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let line = (1..)
        .zip(page.lines().zip(written.lines()))
        .find(|(_, (is, was))| is != was);
    assert!(
        written == page,
        "docs/reference/{name} is not what the program says (first difference: {line:?}); \
         LOXLEY_BLESS=1 cargo test -p loxley-cli reference"
    );
}

/// Every command below one, with its help.
fn commands(command: &clap::Command, words: &str, page: &mut String) {
    let words = format!("{words} {}", command.get_name()).trim().to_owned();
    let mut shown = command.clone().term_width(100).bin_name(&words);
    let help = shown.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = writeln!(
        page,
        "## {words}\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    );
    for below in command.get_subcommands() {
        if below.get_name() != "help" && !below.is_hide_set() {
            commands(below, &words, page);
        }
    }
}

#[test]
fn the_commands_are_what_the_reference_says() {
    let mut page = "# Commands\n\nWhat `--help` says, of every command. Made from the source; do not edit.\n\n".to_owned();
    let mut command = crate::Cli::command();
    command.build();
    commands(&command, "", &mut page);
    check("commands.md", &format!("{}\n", page.trim_end()));
}

#[test]
fn the_exit_codes_are_what_the_reference_says() {
    let source = include_str!("exit.rs");
    let mut page = "# Exit codes\n\nMade from the source; do not edit. `loxley run` counts failures as GNU parallel \
                    does, so it ends with 255 where others end with 1 or 2.\n\n"
        .to_owned();
    let rows = source.split("pub(crate) enum Exit").nth(1).unwrap();
    let rows = rows.split("\n}").next().unwrap();
    for line in rows
        .lines()
        .filter_map(|line| line.trim().strip_prefix("/// "))
    {
        let _ = writeln!(page, "- {line}");
    }
    check("exit-codes.md", &page);
}

#[test]
fn the_configuration_is_what_the_reference_says() {
    let page = format!(
        "# Configuration\n\nEvery key with its default, what it allows and what it is for: what `loxley config default` \
         prints. Made from the source; do not edit.\n\n```yaml\n{}\n```\n",
        loxley_config::default_yaml().trim_end()
    );
    check("configuration.md", &page);
}

#[test]
fn the_metrics_are_what_the_reference_says() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let text = runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let options = loxley_server::ServerOptions::new(folder.path().to_owned());
        let server = loxley_server::Server::start(options, loxley_server::api::router);
        let server = server.await.unwrap();
        let client = loxley_client::Client::new(server.access()).unwrap();
        let running = tokio::spawn(server.run());
        let text = client.metrics().await.unwrap();
        running.abort();
        text
    });
    let mut page = "# Metrics\n\nWhat `GET /metrics` answers, in the text format of Prometheus. Made from a server that \
                    runs; do not edit.\n\n| name | kind | is |\n|---|---|---|\n"
        .to_owned();
    let kinds: std::collections::BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, is) = line.split_once(' ').unwrap();
        let _ = writeln!(page, "| `{name}` | {} | {is} |", kinds[name]);
    }
    assert!(kinds.len() > 20, "{text}");
    check("metrics.md", &page);
}
