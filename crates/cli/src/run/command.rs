//! The command of a run: placeholders, the shell it needs, and its surroundings.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Result, bail};
use loxley_exec::{Filling, Template, Vocabulary};

use super::args::Args;
use super::items::Items;

/// Which placeholders there are.
pub(super) fn vocabulary(args: &Args, items: &Items) -> Vocabulary {
    Vocabulary {
        item: args.item_name.clone(),
        plus: args.plus,
        lists: items.names.clone(),
        own: args.rpl.clone(),
    }
}

pub(super) fn template(
    args: &Args,
    command: &[OsString],
    items: &Items,
    vocabulary: &Vocabulary,
) -> Result<Template> {
    let shell = shell(args.shell.as_ref());
    let lists = if args.fills_lines() {
        usize::MAX
    } else {
        items.lists
    };
    let last = !args.no_item;
    let keeps_words = !command.is_empty() && (args.quote || is_script_of_a_shell(command));
    let mut template = if args.retry_failed {
        Template::parse(&[], 1, false, &shell)?
    } else if keeps_words {
        Template::parse_words_as(command, lists, last, vocabulary)?
    } else {
        Template::parse_as(command, lists, last, &shell, vocabulary)?
    };
    if !keeps_words
        && command
            .first()
            .is_some_and(|program| is_exported_function(program))
    {
        template = template.in_shell();
    }
    if args.many_words {
        template = template.repeating_words();
    }
    if let Some(niceness) = args.nice {
        let words = ["nice", "-n"].map(OsString::from).into_iter();
        template = template.behind(words.chain([niceness.to_string().into()]).collect());
    }
    Ok(template)
}

/// Shells whose quoting is the one we know.
const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

pub(super) fn is_shell(path: &OsStr) -> bool {
    let name = Path::new(path).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| SHELLS.contains(&name))
}

/// The shell for commands that need one: whose functions and syntax people are used to.
pub(super) fn shell(given: Option<&OsString>) -> OsString {
    let named = ["PARALLEL_SHELL", "SHELL"]
        .into_iter()
        .filter_map(std::env::var_os);
    let named = given
        .cloned()
        .or_else(|| named.into_iter().find(|shell| is_shell(shell)));
    named.unwrap_or_else(|| "/bin/sh".into())
}

/// `sh -c 'echo $0' …`: joined to a line, the shell would take the script for several words.
pub(super) fn is_script_of_a_shell(command: &[OsString]) -> bool {
    let is_script = |word: &OsString| word.as_encoded_bytes().iter().any(u8::is_ascii_whitespace);
    matches!(command, [shell, flag, script, ..] if is_shell(shell) && flag == "-c" && is_script(script))
}

/// Whether bash has exported a function of this name to us.
pub(super) fn is_exported_function(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let name = name.split_ascii_whitespace().next().unwrap_or_default();
    !name.is_empty() && std::env::var_os(format!("BASH_FUNC_{name}%%")).is_some()
}

/// What the command line says of the surroundings of tasks must be there.
pub(super) fn check_surroundings(args: &Args) -> Result<()> {
    for name in &args.env {
        let is_there = name == "_"
            || std::env::var_os(name).is_some()
            || is_exported_function(OsStr::new(name));
        if !is_there {
            bail!(
                "--env {name}: there is no such variable; `export {name}` first (`export -f` for a function)"
            );
        }
    }
    for (option, directory) in [("--workdir", &args.workdir), ("--tmpdir", &args.tmpdir)] {
        if let Some(directory) = directory
            && !directory.is_dir()
        {
            bail!("{option}: there is no directory {}", directory.display());
        }
    }
    if let Some(directory) = &args.tmpdir {
        // Fails only when somebody set it before.
        let _ = tempfile::env::override_temp_dir(directory);
    }
    Ok(())
}

/// What stands in front of each line of output.
pub(super) fn tag_text(args: &Args, vocabulary: &Vocabulary) -> Result<Option<Template>> {
    let Some(text) = &args.tagstring else {
        return Ok(None);
    };
    let words = [text.clone()];
    Ok(Some(Template::parse_words_as(
        &words,
        usize::MAX,
        false,
        vocabulary,
    )?))
}

/// The number of no task: where it shows up in a command, the number of the task goes.
const UNLIKELY: u64 = 8_734_129_065_177_203_417;

/// The command as people who look at a journal see it, with their items filled in where that can be exact. The entry
/// of a task is all its items as one text: parts of it stand in round brackets, since nothing would fill them.
pub(super) fn line_for_readers(template: &Template) -> String {
    let line = |items: &[&str]| {
        let items: Vec<OsString> = items.iter().map(Into::into).collect();
        let filling = Filling {
            items: &items,
            sequence: UNLIKELY,
            slot: None,
        };
        let line = template.line(&filling);
        let line = line.to_string_lossy().into_owned();
        line.replace(&UNLIKELY.to_string(), "{#}")
    };
    // A word that no shell needs quotes for.
    let item = format!("item{UNLIKELY}");
    let whole = line(&[&item]).replace("item{#}", "{}");
    let filled = |items: &[&str]| whole.replace("{}", &items.join(" ")) == line(items);
    if filled(&["a/b.c"]) && filled(&["d", "e"]) {
        return whole;
    }
    let part = line(&[&item]).replace("item{#}", "(item)");
    part.replace('{', "(").replace('}', ")")
}
