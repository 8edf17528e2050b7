//! From text to configuration.

use std::ops::Range;

use loxley_policy::Config;

use crate::keys::{Field, RELATIONS, ROOT, Relation, SECTIONS, Section, path};
use crate::mistake::{Kind, Mistake, Mistakes};
use crate::reader::{Fields, Reader};
use crate::settings::ServerSettings;
use crate::tree::{Limits, Node};

/// What mistakes call a text that has no name; see [`Mistakes::in_file`].
const UNNAMED: &str = "configuration";

/// The configuration in a YAML text, or everything that is wrong with it. What the text leaves out
/// has the default of the embedded scheduler; an empty text is [`Config::default`].
pub fn parse(text: &str) -> Result<Config, Mistakes> {
    parse_over(text, Config::default())
}

/// As [`parse`], where what the text leaves out is as it is in `defaults`.
pub fn parse_over(text: &str, defaults: Config) -> Result<Config, Mistakes> {
    read_all(text, defaults).map(|(config, _)| config)
}

/// The configuration of a server: how it balances load, and what else it keeps to. What the text leaves out is as
/// in [`Config::served`].
pub fn parse_server_bytes(bytes: &[u8]) -> Result<(Config, ServerSettings), Mistakes> {
    read_all(text_of(UNNAMED, bytes)?, Config::served())
}

fn read_all(text: &str, defaults: Config) -> Result<(Config, ServerSettings), Mistakes> {
    let mut reader = Reader::new(UNNAMED, text);
    let mut read = (defaults, ServerSettings::default());
    match Node::parse(text, &Limits::default()) {
        Ok(node) => read_file(&node, &mut read, &mut reader),
        Err(mistake) => reader.note(mistake),
    }
    reader.finish(read)
}

/// As [`parse`], for bytes that may not even be text.
pub fn parse_bytes(bytes: &[u8]) -> Result<Config, Mistakes> {
    parse_bytes_over(bytes, Config::default())
}

/// As [`parse_over`], for bytes that may not even be text.
pub fn parse_bytes_over(bytes: &[u8], defaults: Config) -> Result<Config, Mistakes> {
    parse_over(text_of(UNNAMED, bytes)?, defaults)
}

/// The text in these bytes, which came from the file `name`.
pub fn text_of<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, Mistakes> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (good, bad) = bytes.split_at(error.valid_up_to());
        // Shown are the text before the bad byte and a little after it.
        let good = String::from_utf8_lossy(good);
        let shown = format!(
            "{good}{}",
            String::from_utf8_lossy(&bad[..bad.len().min(80)])
        );
        let message = "the file is not UTF-8 text";
        let label = format!("the byte 0x{:02x}", bad[0]);
        let mistake = Mistake::new(Kind::Syntax, good.len()..good.len(), message, label)
            .with_help("save it as UTF-8");
        Mistakes::new(name, &shown, vec![mistake])
    })
}

/// The configuration in a larger file: takes the key `load_balancing` out of its top level. None if
/// the key is not there. What it leaves out is as on a server.
pub fn take_section(top: &mut Fields<'_>, reader: &mut Reader<'_>) -> Option<Config> {
    let node = top.take(ROOT)?;
    let mut config = Config::served();
    read_root(node, &mut config, reader);
    Some(config)
}

/// A key that stands in the file, where its value is, and whether that could be read.
struct Given {
    section: &'static str,
    key: &'static str,
    span: Range<usize>,
    read: bool,
}

fn read_file(
    node: &Node,
    (config, settings): &mut (Config, ServerSettings),
    reader: &mut Reader<'_>,
) {
    let Some(mut top) = reader.mapping("the file", node) else {
        return;
    };
    let root = top.take(ROOT);
    settings.take(&mut top, reader);
    top.finish_with(reader, place_of);
    if let Some(root) = root {
        read_root(root, config, reader);
    }
}

fn read_root(node: &Node, config: &mut Config, reader: &mut Reader<'_>) {
    let Some(mut root) = reader.mapping(ROOT, node) else {
        return;
    };
    let mut given = Vec::new();
    for section in SECTIONS {
        if section.name.is_empty() {
            read_keys(section, &mut root, config, reader, &mut given);
            continue;
        }
        let fields = root
            .take(section.name)
            .and_then(|node| reader.mapping(section.name, node));
        if let Some(mut fields) = fields {
            read_keys(section, &mut fields, config, reader, &mut given);
            fields.finish_with(reader, place_of);
        }
    }
    root.finish_with(reader, place_of);
    for relation in RELATIONS {
        check(relation, &given, config, reader);
    }
}

fn read_keys(
    section: &Section,
    fields: &mut Fields<'_>,
    config: &mut Config,
    reader: &mut Reader<'_>,
    given: &mut Vec<Given>,
) {
    for key in section.keys {
        let Some(node) = fields.take(key.name) else {
            continue;
        };
        given.push(Given {
            section: section.name,
            key: key.name,
            span: node.span.clone(),
            read: key.field.read(key.name, node, config, reader),
        });
    }
}

/// Where a key that stands in the wrong place belongs.
fn place_of(name: &str) -> Option<String> {
    if name == ROOT {
        return Some(format!("`{ROOT}` belongs at the top of the file"));
    }
    for section in SECTIONS {
        if section.name == name {
            return Some(format!("it belongs under `{ROOT}`"));
        }
        if section.keys.iter().any(|key| key.name == name) {
            let whole = path(section.name, name);
            let parent = whole.strip_suffix(name)?.strip_suffix('.')?;
            return Some(format!("it belongs under `{parent}`"));
        }
    }
    None
}

/// Notes when two values contradict each other. One of them may be the default; where a value could
/// not be read, that is a mistake of its own and nobody knows what it contradicts.
fn check(relation: &Relation, given: &[Given], config: &Config, reader: &mut Reader<'_>) {
    let place = |key: &str| {
        given
            .iter()
            .find(|given| given.section == relation.section && given.key == key)
    };
    let (lower, upper) = (place(relation.lower), place(relation.upper));
    let unread = [lower, upper]
        .into_iter()
        .flatten()
        .any(|given| !given.read);
    let broken = broken_rule(relation, config).filter(|_| !unread);
    let (Some(message), Some(at)) = (broken, lower.or(upper)) else {
        return;
    };
    let mistake = Mistake::new(Kind::Contradiction, at.span.clone(), message, "this");
    reader.note(match (lower, upper) {
        (Some(_), Some(upper)) => mistake.with_other(upper.span.clone(), "and this"),
        (Some(_), None) => mistake.with_help(default_of(relation.upper)),
        _ => mistake.with_help(default_of(relation.lower)),
    });
}

/// What to say when the relation does not hold.
fn broken_rule(relation: &Relation, config: &Config) -> Option<String> {
    let lower = field(relation.section, relation.lower);
    let upper = field(relation.section, relation.upper);
    let (low, high) = (lower.measure(config), upper.measure(config));
    let (holds, rule) = if relation.strict {
        (low < high, "must be below")
    } else {
        (low <= high, "must not be above")
    };
    let broken = || {
        let (low, high) = (lower.show(config), upper.show(config));
        format!(
            "`{}` ({low}) {rule} `{}` ({high})",
            relation.lower, relation.upper
        )
    };
    (!holds).then(broken)
}

fn default_of(key: &str) -> String {
    format!("`{key}` is not given and has its default")
}

fn field(section: &str, key: &str) -> &'static Field {
    SECTIONS
        .iter()
        .filter(|candidate| candidate.name == section)
        .flat_map(|section| section.keys)
        .find(|candidate| candidate.name == key)
        .map(|key| &key.field)
        .expect("a relation names keys of the table")
}
