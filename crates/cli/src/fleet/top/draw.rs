//! From a model to a screen.

use loxley_api::{BalanceFigure, Severity};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, TableState, Wrap};

use super::look::Look;
use super::model::{Model, View};
use crate::fleet::table::printable;

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let [head, figures, health, tabs, list, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    if let Some(look) = &model.look {
        frame.render_widget(Line::from(head_line(look)), head);
        frame.render_widget(figures_line(look, model), figures);
    }
    frame.render_widget(health_line(model), health);
    frame.render_widget(tabs_line(model), tabs);
    draw_list(frame, model, list);
    frame.render_widget(foot_line(model), foot);
    if let Some((title, lines)) = &model.told {
        draw_told(frame, title, lines);
    }
}

fn head_line(look: &Look) -> String {
    let tasks = &look.server.fleet.tasks;
    let here = || look.agents.iter().filter(|agent| agent.state.is_here());
    let slots: u64 = here().map(|agent| u64::from(agent.slots)).sum();
    // What an agent has in hand and has not begun waits too: there, and not with the server.
    let (running, queued) = (tasks.started, tasks.not_started());
    // What matters most stands first: a narrow screen cuts the end off.
    format!(
        "{} agents, {slots} slots: {running} running, {queued} queued, {} waiting, {} held, {} failed, {} done",
        look.server.fleet.agent_count,
        tasks.waiting + tasks.pending,
        tasks.held,
        tasks.failed,
        tasks.succeeded,
    )
}

fn figures_line(look: &Look, model: &Model) -> Line<'static> {
    let mut spans = Vec::new();
    for figure in &look.figures.balance {
        let style = match figure.verdict.as_str() {
            "missed" => emphasis(model, Color::Yellow),
            _ => Style::default(),
        };
        spans.push(Span::styled(figure_text(figure), style));
        spans.push(Span::raw("  "));
    }
    if let Some(rate) = look.figures.tasks_per_sec {
        spans.push(Span::raw(format!("{rate:.1}/s")));
    }
    Line::from(spans)
}

fn figure_text(figure: &BalanceFigure) -> String {
    let short = match figure.name.as_str() {
        "load imbalance" => "imbalance",
        "straggler ratio" => "straggler",
        "worker utilization" => "busy",
        "queue-depth variance" => "variance",
        other => other,
    };
    let value = match figure.value {
        None => "-".to_owned(),
        Some(value) if figure.is_share => format!("{:.0}%", value * 100.0),
        Some(value) => format!("{value:.2}"),
    };
    // Without colour the mark says it.
    let mark = match figure.verdict.as_str() {
        "met" => " ok",
        "missed" => " !",
        _ => "",
    };
    format!("{short} {value}{mark}")
}

fn health_line(model: &Model) -> Line<'static> {
    if let Some(why) = &model.away {
        let text = format!("AWAY: {}; trying again", printable(why));
        return Line::styled(text, emphasis(model, Color::Red));
    }
    let problems = model.look.as_ref().map(|look| &look.health.problems);
    let Some(worst) = problems.and_then(|problems| problems.first()) else {
        return Line::from("health: nothing is wrong");
    };
    let (word, colour) = match worst.severity {
        Severity::Critical => ("CRITICAL", Color::Red),
        Severity::Warning => ("warning", Color::Yellow),
    };
    let more = problems.map_or(0, Vec::len) - 1;
    let more = if more > 0 {
        format!(" (+{more})")
    } else {
        String::new()
    };
    let help = worst.remedies.first().map(|remedy| format!(": {remedy}"));
    let text = format!(
        "{word}{more}: {}{}",
        worst.message,
        help.unwrap_or_default()
    );
    Line::styled(printable(&text).into_owned(), emphasis(model, colour))
}

fn tabs_line(model: &Model) -> Line<'static> {
    let mut spans = Vec::new();
    for (place, view) in View::ALL.into_iter().enumerate() {
        let style = match view == model.view {
            true => Style::default().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            false => Style::default(),
        };
        spans.push(Span::styled(
            format!(" {} {} ", place + 1, view.title()),
            style,
        ));
    }
    let about = model.about_list();
    spans.push(Span::raw(format!("  {about}")));
    if !model.filter.is_empty() && !model.typing {
        let filter = printable(&model.filter);
        spans.push(Span::raw(format!("  only `{filter}`")));
    }
    Line::from(spans)
}

fn draw_list(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.list();
    let (sorted, backwards) = model.sorted_by();
    let columns = model.view.columns();
    let titles = columns.iter().enumerate().map(|(place, title)| {
        let arrow = match (place == sorted, backwards) {
            (true, false) => "^",
            (true, true) => "v",
            _ => "",
        };
        format!("{title}{arrow}")
    });
    let titles: Vec<String> = titles.collect();
    let widths = widths(&titles, &rows, area.width);
    let header = Row::new(titles).style(Style::default().add_modifier(Modifier::BOLD));
    let shown = rows.iter().map(|row| {
        let cells = row.cells.iter().map(|cell| cell.text.clone());
        Row::new(cells.collect::<Vec<_>>()).style(style_of(model, row))
    });
    let chosen = model.chosen_place(&rows);
    let table = Table::new(shown, widths)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::default().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected((!rows.is_empty()).then_some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
    if rows.is_empty() {
        let empty = Rect {
            y: area.y + 1,
            height: area.height.saturating_sub(1),
            ..area
        };
        frame.render_widget("(nothing)", empty);
    }
}

/// As wide as what is in them; the last one has the rest, and names give way first.
fn widths(titles: &[String], rows: &[super::model::Row], room: u16) -> Vec<Constraint> {
    const NAME_MAX: usize = 24;
    let last = titles.len() - 1;
    let wide = |place: usize| {
        let cells = rows.iter().map(|row| row.cells[place].text.chars().count());
        let widest = cells.max().unwrap_or(0).max(titles[place].chars().count());
        widest.min(if room < 100 { NAME_MAX } else { NAME_MAX * 2 }) as u16
    };
    (0..titles.len())
        .map(|place| match place == last {
            true => Constraint::Min(6),
            false => Constraint::Length(wide(place)),
        })
        .collect()
}

fn style_of(model: &Model, row: &super::model::Row) -> Style {
    let has = |word: &str| row.cells.iter().any(|cell| cell.text == word);
    if !model.colour {
        return Style::default();
    }
    if has("failed") || has("lost") || has("held") {
        return Style::default().fg(Color::Red);
    }
    if has("suspected") || has("draining") || has("backoff") {
        return Style::default().fg(Color::Yellow);
    }
    Style::default()
}

fn foot_line(model: &Model) -> Line<'static> {
    if let Some((question, _)) = &model.question {
        let text = format!("{question} y/n");
        return Line::styled(text, Style::default().add_modifier(Modifier::BOLD));
    }
    if model.typing {
        return Line::from(format!("/{}_", printable(&model.filter)));
    }
    if !model.message.is_empty() {
        return Line::from(printable(&model.message).into_owned());
    }
    Line::from("q quit  Tab view  s sort  / filter  Enter tasks  e explain  c cancel  r retry")
}

fn draw_told(frame: &mut Frame<'_>, title: &str, lines: &[String]) {
    let area = frame.area();
    let inside = Rect {
        x: area.x + 2,
        y: area.y + 3,
        width: area.width.saturating_sub(4),
        height: area.height.saturating_sub(6),
    };
    let lines: Vec<Line<'_>> = lines
        .iter()
        .map(|line| Line::from(printable(line)))
        .collect();
    let block = Block::new()
        .borders(Borders::ALL)
        .title(format!(" {} (any key) ", printable(title)));
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .block(block);
    frame.render_widget(Clear, inside);
    frame.render_widget(text, inside);
}

/// What must not be missed: bold, and coloured where there is colour.
fn emphasis(model: &Model, colour: Color) -> Style {
    let style = Style::default().add_modifier(Modifier::BOLD);
    if model.colour {
        style.fg(colour)
    } else {
        style
    }
}
