//! `loxley journal schema`: the tables of a journal in PostgreSQL, for whoever may make them.

use std::io::Write;

use anyhow::Result;

use crate::exit::Exit;

/// Print the SQL that makes the tables of a journal in PostgreSQL.
///
/// A server makes them by itself where its role may. Where it may not, an administrator runs this once, with --role for
/// the role that servers come with.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  loxley journal schema | psql fleet\n  loxley journal schema --schema fleet_1 --role loxley | psql fleet"
)]
pub(super) struct Args {
    /// The schema that the tables are made in.
    #[arg(long, value_name = "NAME", default_value = "loxley", value_parser = word)]
    schema: String,
    /// A role that may use them.
    #[arg(long, value_name = "ROLE", value_parser = word)]
    role: Option<String>,
    /// Print what brings tables of this older version up to date, instead.
    #[arg(long, value_name = "VERSION")]
    from: Option<i32>,
    /// Print one JSON object with the text in it.
    #[arg(long)]
    json: bool,
}

/// What stands in SQL as it is.
fn word(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("a word of small letters, digits and `_`".to_owned()),
    }
}

#[cfg(feature = "postgres")]
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit> {
    let schema = &args.schema;
    let tables = match args.from {
        None => loxley_journal::postgres::schema::sql(schema),
        Some(from) => loxley_journal::postgres::schema::upgrade_sql(schema, from)
            .ok_or_else(|| anyhow::anyhow!("--from {from}: no tables of this version are known"))?,
    };
    let mut text = format!("BEGIN;\n{tables}\n");
    if let Some(role) = &args.role {
        let rights = "SELECT, INSERT, UPDATE, DELETE";
        text += &format!(
            "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
             GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {role};\n"
        );
    }
    text += "COMMIT;\n";
    match args.json {
        true => writeln!(out, "{}", serde_json::json!({ "sql": text }))?,
        false => out.write_all(text.as_bytes())?,
    }
    Ok(Exit::Done)
}

#[cfg(not(feature = "postgres"))]
pub(super) fn run(_: &Args, _: &mut dyn Write) -> Result<Exit> {
    Err(loxley_journal::DatabaseError::NotBuiltIn.into())
}
