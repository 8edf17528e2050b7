//! Where items come from, and how the command line wants them cut, ordered and put together.

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use loxley_exec::Template;

use super::args::Args;
use super::items::{self, Items, List, Room, Separator, Trim};

/// The items, cut into columns or put together as the command line says.
pub(super) fn shaped(mut items: Items, args: &Args) -> Result<Items> {
    if args.skip_first_line {
        items = items.without_first(1);
    }
    if let Some(end) = &args.end {
        items = items.up_to(end.clone());
    }
    if let Some(separator) = args.colsep.as_ref().filter(|_| !args.csv) {
        items = items.columns(separator.clone());
    }
    if args.header.is_some() && items.names.is_empty() {
        items = items.with_names().context("cannot read the items")?;
    }
    // As in GNU parallel, blanks around columns belong to nobody.
    let of_columns = args.colsep.as_ref().filter(|_| !args.csv);
    if let Some(trim) = args.trim.or(of_columns.map(|_| Trim::BOTH)) {
        items = items.trimmed(trim);
    }
    if args.no_run_if_empty {
        items = items.without_blank();
    }
    if args.shuf {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let seed = now.as_nanos() as u64 ^ u64::from(std::process::id());
        items = items.shuffled(seed).context("cannot read the items")?;
    }
    match args.max_args.and_then(NonZero::new) {
        Some(size) if !args.fills_lines() => items.batched(size),
        _ => Ok(items),
    }
}

/// How long a line may get at the most: what the system takes as one argument of a shell.
pub(super) const LINE_MAX: usize = 131_071;

/// Puts as many items into each command as it has room for, if that is asked for.
pub(super) fn packed(items: Items, args: &Args, template: &Template, slots: u32) -> Result<Items> {
    if !args.fills_lines() {
        return Ok(items);
    }
    let fixed = template.fixed_length();
    let times = template.uses_of_items().max(1);
    let room = Room {
        longest: args.max_chars,
        fixed,
        times,
        // A repeated word is at the most the whole line.
        around: if args.many_words && times > 0 {
            template.repeated_length()
        } else {
            0
        },
        items_max: args.max_args.unwrap_or(usize::MAX),
    };
    items.packed(room, if args.xargs { 1 } else { slots as usize })
}

pub(super) fn items(args: &Args, lists: Vec<List>) -> Result<Items> {
    let end = args.delimiter.unwrap_or(if args.null { 0 } else { b'\n' });
    if let Some(array) = &args.array {
        if !lists.is_empty() {
            bail!("items come from one place: `:::` or --array");
        }
        return Ok(Items::array(array));
    }
    let alone = match args.each_line.as_slice() {
        [] => Some(Path::new("-")),
        [file] => Some(file.as_path()),
        _ => None,
    };
    let alone = alone.filter(|_| lists.is_empty());
    let files = args.each_line.iter().cloned().map(List::of_file);
    let lists: Vec<List> = files.chain(lists).collect();
    let Some(file) = alone else {
        let have_names = args.header.is_some() && args.colsep.is_none();
        return match args.link {
            true => Items::linked(lists, end, have_names),
            false => Items::product(lists, end, have_names),
        };
    };
    if args.retry_failed {
        return Ok(Items::none());
    }
    if file == Path::new("-") && io::stdin().is_terminal() {
        writeln!(
            io::stderr(),
            "loxley: reading items from the terminal, one per line; end with ^D"
        )?;
    }
    if args.csv {
        let comma = match &args.colsep {
            None => b',',
            Some(Separator::Text(text)) if text.len() == 1 => text.as_encoded_bytes()[0],
            Some(_) => bail!("--csv: what stands between two columns is one byte"),
        };
        return Ok(Items::csv(items::reader(file)?, comma));
    }
    Items::file(file, end)
}

pub(super) fn weights(file: &Path) -> Result<Vec<f64>> {
    let bytes = crate::input::read(file)?;
    let text = String::from_utf8_lossy(&bytes);
    (1..)
        .zip(text.lines())
        .map(|(number, line)| {
            let weight = line.trim().parse::<f64>().ok();
            weight
                .filter(|weight| weight.is_finite() && *weight >= 0.0)
                .with_context(|| format!("{}:{number}: not a weight", file.display()))
        })
        .collect()
}
