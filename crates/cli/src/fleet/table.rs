//! Rows for people: columns of the same width, and nothing in them that a terminal would act on.

use std::borrow::Cow;
use std::io::{self, Write};

/// A table that grows row by row.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(header: [&str; N]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned)],
        }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| printable(&cell).into()));
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Names and values under each other.
pub(super) fn pairs(out: &mut dyn Write, pairs: &[(&str, String)]) -> io::Result<()> {
    let shown = || pairs.iter().filter(|(_, value)| !value.is_empty());
    let width = shown().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in shown() {
        writeln!(out, "{name:<width$}  {}", printable(value))?;
    }
    Ok(())
}

/// The text with its control characters written out: what somebody put into a name or an argument
/// must not move the cursor of whoever looks at it.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().flat_map(|letter| {
        let escaped = letter.is_control().then(|| letter.escape_default());
        let plain = escaped.is_none().then_some(letter);
        escaped.into_iter().flatten().chain(plain)
    });
    Cow::Owned(escaped.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_moves_the_cursor() {
        let mut table = Table::new(["id", "name"]);
        table.row(["1".to_owned(), "a\u{1b}[2Jb".to_owned()]);
        table.row(["20".to_owned(), "ö".to_owned()]);
        let mut text = Vec::new();
        table.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "id  name\n1   a\\u{1b}[2Jb\n20  ö\n");
    }
}
