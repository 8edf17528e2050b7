//! `loxley dashboard`: a browser that is signed in.
//!
//! The server's certificate is its own work, which no browser knows. So this command stands in between: a door on
//! 127.0.0.1, behind which it speaks TLS to the server and knows its certificate by the fingerprint in the access file.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use loxley_api::LinkRequest;
use loxley_client::Tunnel;
use serde::Serialize;
use tempfile::TempPath;

use super::connect::{Connect, print_json};
use crate::exit::Exit;

/// Open the dashboard of the server in a browser, signed in.
///
/// The link works once and for a minute. It goes to a door on this machine that this command holds open, so that the
/// browser needs not know the server's certificate: the command does, by its fingerprint. Ctrl-C closes the door.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Print the link, and open no browser.
    #[arg(long)]
    no_open: bool,
    /// Sign in to look, and nothing else.
    #[arg(long)]
    read_only: bool,
    /// The port of the door on 127.0.0.1 [default: any free one].
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    /// Print a link to the server itself, and end. The browser warns of its certificate, once: what it shows as the
    /// SHA-256 fingerprint must be the one that is printed with the link.
    #[arg(long, conflicts_with = "port")]
    direct: bool,
    /// Print one JSON object: the link, and for how long it works.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

const HELP: &str = "\
Examples:
  loxley dashboard                       opens a browser, signed in
  loxley dashboard --read-only           for a screen on the wall
  loxley dashboard --no-open --port 8420 on a machine without a screen; from another one:
                                         ssh -L 8420:127.0.0.1:8420 there
  loxley dashboard --direct              a link to the server itself

Exit codes: 0 done; 6 the server cannot be reached; 7 the server refused; 130 interrupted.";

/// What `--json` prints.
#[derive(Serialize)]
struct Opened<'a> {
    url: &'a str,
    lifetime_sec: u64,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let access = args.connect.access()?;
    let client = args.connect.client()?;
    client.call(async |client| {
        let request = LinkRequest {
            read_only: args.read_only,
        };
        let link = client.dashboard_link(&request).await?;
        let tunnel = match args.direct {
            true => None,
            false => {
                let tunnel = Tunnel::open(&access, args.port).await;
                let port = args.port;
                let tunnel =
                    tunnel.with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
                Some(tunnel)
            }
        };
        let base = match &tunnel {
            Some(tunnel) => format!("http://{}", tunnel.address()),
            None => access.url.trim_end_matches('/').to_owned(),
        };
        let url = format!("{base}{}", link.path);
        let opened = Opened {
            url: &url,
            lifetime_sec: link.lifetime_sec,
        };
        match args.json {
            true => print_json(out, &opened)?,
            false => writeln!(out, "{url}")?,
        }
        out.flush()?;
        let seconds = link.lifetime_sec;
        let mut note = io::stderr();
        let Some(tunnel) = tunnel else {
            let fingerprint = access.certificate_sha256;
            writeln!(
                note,
                "The link works once, for {seconds} s. The browser will warn that it does not know the certificate: \
                 go on only if the SHA-256 fingerprint that it shows is\n{fingerprint}"
            )?;
            return Ok(Exit::Done);
        };
        // It leads to the link for as long as the link works, and goes with us.
        let page = match !args.no_open && !args.json && has_screen() {
            true => open(&url),
            false => None,
        };
        let how = match page {
            Some(_) => "A browser was asked to open it.",
            None => "Open it in a browser.",
        };
        writeln!(
            note,
            "{how} The link works once, for {seconds} s; the door stays open until Ctrl-C."
        )?;
        tokio::select! {
            () = tunnel.run() => Ok(Exit::Done),
            pressed = tokio::signal::ctrl_c() => {
                pressed.context("cannot watch for signals")?;
                Ok(Exit::Interrupted)
            }
        }
    })
}

/// Whether there is somebody who would see a browser. Where there is no screen, what looks for a browser may take over the
/// terminal instead.
fn has_screen() -> bool {
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    (has_screen || cfg!(target_os = "macos")) && io::stderr().is_terminal()
}

/// Asks the desktop to show a page that leads to the link. Whether it does, nobody says. Everybody on this machine can read
/// the command line of a browser, and the link signs in: so what stands there is a file that only its owner can read.
fn open(url: &str) -> Option<TempPath> {
    let page = page_to(url).ok()?;
    let asked = ["xdg-open", "open", "wslview"].iter().any(|program| {
        Command::new(program)
            .arg(page.as_os_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .is_ok()
    });
    asked.then_some(page)
}

/// A page for its owner alone that leads to this address. The address is one of ours: nothing in it means anything in HTML.
fn page_to(url: &str) -> io::Result<TempPath> {
    let mut file = tempfile::Builder::new()
        .prefix("loxley-dashboard-")
        .suffix(".html")
        .tempfile()?;
    write!(
        file,
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<title>Loxley</title>\n\
         <p>The dashboard opens; if it does not, <a href=\"{url}\">open it</a>.</p>\n"
    )?;
    Ok(file.into_temp_path())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_its_owner_can_read_the_page_that_leads_in() {
        let url = "http://127.0.0.1:1/#ticket=abc-_1";
        let page = super::page_to(url).expect("there is room");
        let mode = std::fs::metadata(&page).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&page).expect("it is ours");
        assert!(
            text.contains(&format!("content=\"0; url={url}\"")),
            "{text}"
        );
        assert!(
            !page.to_string_lossy().contains("abc"),
            "its name tells nothing"
        );
        let path = page.to_path_buf();
        drop(page);
        assert!(!path.exists(), "it goes with the command");
    }
}
