//! From configuration to text.

use std::fmt::Write as _;

use loxley_policy::Config;

use crate::keys::{Field, ROOT, SECTIONS};
use crate::settings::ServerSettings;

/// The default configuration of a server and of `loxley run` as a file in which every key is explained.
#[must_use]
pub fn default_yaml() -> String {
    let heading = "# How Loxley balances load. Every key is here with its default:\n\
                   # keep what you change, leave out the rest.\n";
    let settings = ServerSettings::default().render(true);
    heading.to_owned() + &render(&Config::served(), true) + &settings
}

/// A configuration as a file with every key. Reads back as the same configuration, provided that
/// each of its values is allowed in a file.
#[must_use]
pub fn to_yaml(config: &Config) -> String {
    render(config, false)
}

/// The configuration of a server, with every key.
#[must_use]
pub fn server_yaml(config: &Config, settings: &ServerSettings) -> String {
    render(config, false) + &settings.render(false)
}

fn render(config: &Config, explained: bool) -> String {
    let mut text = format!("{ROOT}:\n");
    for section in SECTIONS {
        let mut indent = "  ";
        if !section.name.is_empty() {
            if explained {
                text.push('\n');
                comment(&mut text, indent, section.about);
            }
            line(&mut text, indent, section.name, "");
            indent = "    ";
        }
        for key in section.keys {
            if explained {
                let allowed = match key.field {
                    // The value itself says so.
                    Field::Flag(_) => String::new(),
                    _ => format!(" Allowed: {}.", key.field.allowed()),
                };
                comment(&mut text, indent, &format!("{}{allowed}", key.about));
            }
            line(&mut text, indent, key.name, &key.field.show(config));
        }
    }
    text
}

fn line(text: &mut String, indent: &str, key: &str, value: &str) {
    let space = if value.is_empty() { "" } else { " " };
    writeln!(text, "{indent}{key}:{space}{value}").expect("writing to a string cannot fail");
}

/// A sentence as comment lines of at most 100 columns.
fn comment(text: &mut String, indent: &str, sentence: &str) {
    let start = format!("{indent}#");
    let mut row = start.clone();
    for word in sentence.split(' ') {
        if row.len() + 1 + word.len() > 100 {
            text.push_str(&row);
            text.push('\n');
            row.clone_from(&start);
        }
        row.push(' ');
        row.push_str(word);
    }
    text.push_str(&row);
    text.push('\n');
}
