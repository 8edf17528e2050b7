//! How balanced work was, for people: four figures with their targets, and how quickly work got to agents.

use std::io::{self, Write};

use loxley_api::{BalanceFigure, Figures};

use super::show::span;

/// All of them.
pub(super) fn print(out: &mut dyn Write, figures: &Figures) -> io::Result<()> {
    for figure in &figures.balance {
        writeln!(out, "{}", line(figure))?;
    }
    print_more(out, figures)
}

/// Whether there is enough to judge one of them.
pub(super) fn say_something(figures: &Figures) -> bool {
    let judged = |figure: &BalanceFigure| matches!(figure.verdict.as_str(), "met" | "missed");
    figures.balance.iter().any(judged)
}

/// Those without a target, in two lines.
pub(crate) fn print_more(out: &mut dyn Write, figures: &Figures) -> io::Result<()> {
    if figures.tasks_ended == 0 {
        return writeln!(out, "no task has run to its end");
    }
    let size = figures.task_mean_sec.map(span).unwrap_or_default();
    writeln!(
        out,
        "{:.1} tasks/s, a task took {size} on average, {} slots idle for {} together",
        figures.tasks_per_sec.unwrap_or_default(),
        figures.slots,
        span(figures.idle_sec)
    )?;
    let mut way = Vec::new();
    if let (Some(half), Some(most)) = (figures.assign_p50_sec, figures.assign_p99_sec) {
        way.push(format!(
            "ready to assigned p50 {} p99 {}",
            span(half),
            span(most)
        ));
    }
    if let (Some(stolen), Some(rate)) = (figures.tasks_stolen, figures.steal_rate) {
        let took = figures.steal_mean_sec.map(span);
        let took = took.map_or_else(String::new, |took| format!(", each in {took} on average"));
        way.push(format!("{stolen} stolen ({:.1} %){took}", rate * 100.0));
    }
    match way.is_empty() {
        true => Ok(()),
        false => writeln!(out, "{}", way.join("; ")),
    }
}

fn line(figure: &BalanceFigure) -> String {
    let show = |number: f64| match figure.is_share {
        true => format!("{:.1} %", number * 100.0),
        false => format!("{number:.2}"),
    };
    let value = figure.value.map_or_else(|| "-".to_owned(), show);
    let sign = if figure.is_above { '>' } else { '<' };
    let (name, target, verdict) = (&figure.name, show(figure.target), &figure.verdict);
    format!("{name:<22} {value:<7} target {sign} {target:<7} {verdict}")
}
