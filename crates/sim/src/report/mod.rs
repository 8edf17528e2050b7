//! The report: one HTML file that needs nothing else, not even a network [X3].
//!
//! Figures and tables are written here, so they can be read (and tested) without a script; the
//! drawings are made by `report.js` from the [`Timeline`]s embedded as JSON. Timelines are bounded,
//! so a report of a million tasks still opens.

use std::fmt::Write as _;

use loxley_balance::BalanceReport;
use loxley_balance::figures::{Figure, Target};
use serde::Serialize;

use crate::experiment::Results;
use crate::statistics::RunStatistics;
use crate::time::{human, nanos};
use crate::timeline::Timeline;

/// One run that is drawn.
#[derive(Debug, Clone)]
pub struct DrawnRun {
    /// What sets it apart from the others.
    pub label: String,
    /// What it looked like.
    pub timeline: Timeline,
    /// Its figures as pairs of a name and a value.
    pub tiles: Vec<(String, String)>,
    /// Its four balance figures.
    pub balance: BalanceReport,
}

impl DrawnRun {
    /// A simulated run.
    #[must_use]
    pub fn new(label: &str, statistics: &RunStatistics, timeline: Timeline) -> Self {
        let executed = statistics.executed();
        let stolen = format!("{} stolen", statistics.stolen());
        let tiles = [
            ("makespan", human(statistics.makespan)),
            (
                "÷ lower bound",
                format!("{:.3}", statistics.ratio_to_bound()),
            ),
            ("speedup", format!("{:.2}", statistics.speedup())),
            ("tasks executed", executed.to_string()),
            (
                stolen.as_str(),
                format!("{:.1} %", statistics.steal_rate() * 100.0),
            ),
            ("mean wait", human(nanos(statistics.mean_wait()))),
        ];
        Self {
            label: label.to_owned(),
            timeline,
            tiles: tiles
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            balance: statistics.balance(),
        }
    }
}

/// What a report shows.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// Its heading.
    pub title: &'a str,
    /// One sentence on what it shows.
    pub about: &'a str,
    /// One sentence on what to look for.
    pub look_for: &'a str,
    /// What else there is to say, a sentence each.
    pub notes: &'a [String],
    /// The runs that are drawn.
    pub runs: &'a [DrawnRun],
    /// The comparison, if there is more than one variant or seed.
    pub results: Option<&'a Results>,
    /// How to make it again.
    pub command: &'a str,
}

#[derive(Serialize)]
struct Data<'a> {
    runs: Vec<DataRun<'a>>,
}

#[derive(Serialize)]
struct DataRun<'a> {
    timeline: &'a Timeline,
}

/// The report as one HTML document.
#[must_use]
pub fn html(report: &Report<'_>) -> String {
    let data = Data {
        runs: report
            .runs
            .iter()
            .map(|run| DataRun {
                timeline: &run.timeline,
            })
            .collect(),
    };
    let json = serde_json::to_string(&data).expect("a timeline is plain data");
    // A task name must not be able to end the script element.
    let json = json.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · Loxley</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"soft\">{about}</p>\n\
         <p class=\"note\"><b>Look for:</b> {look_for}</p>\n{tabs}{tiles}{notes}{gantt}{comparison}\
         <footer>{footer}</footer>\n</main>\n<div id=\"tip\" role=\"status\"></div>\n\
         <script id=\"data\" type=\"application/json\">{json}</script>\n<script>\n{js}</script>\n\
         </body>\n</html>\n",
        title = escape(report.title),
        about = escape(report.about),
        look_for = escape(report.look_for),
        css = include_str!("report.css"),
        tabs = tabs(report.runs),
        tiles = tiles(report.runs),
        notes = notes(report.notes),
        gantt = CHARTS,
        comparison = report.results.map(comparison).unwrap_or_default(),
        footer = escape(report.command),
        js = include_str!("report.js"),
    )
}

const CHARTS: &str = "\
<section class=\"card\">
<div class=\"row\"><div><h2>Timeline</h2><p class=\"soft\" id=\"kind\"></p></div>
<div class=\"tools\"><button id=\"in\" aria-label=\"zoom in\">+</button>\
<button id=\"out\" aria-label=\"zoom out\">−</button><button id=\"all\">whole run</button>\
<button id=\"steals\" aria-pressed=\"true\">steals</button></div></div>
<div class=\"legend\"><span><i style=\"background:var(--own)\"></i>ran where it was put</span>\
<span><i style=\"background:var(--stolen)\"></i>taken from another worker</span>\
<span><i style=\"background:var(--failed)\"></i>failed</span>\
<span><i style=\"background:var(--stopped)\"></i>stopped</span></div>
<canvas id=\"overview\" aria-label=\"overview of the whole run\"></canvas>
<div class=\"scroll\"><canvas id=\"gantt\" tabindex=\"0\" aria-label=\"Gantt chart of all workers\"></canvas></div>
</section>
<div class=\"pair\">
<section class=\"card\"><h2>Queue lengths</h2><p class=\"soft\">mean (blue), longest (amber), each worker (thin)</p>
<svg id=\"queues\" viewBox=\"0 0 560 210\" role=\"img\" aria-label=\"queue lengths over time\"></svg></section>
<section class=\"card\"><h2>Utilization</h2><p class=\"soft\">share of all workers that were busy; the dashed line is the target</p>
<svg id=\"utilization\" viewBox=\"0 0 560 210\" role=\"img\" aria-label=\"utilization over time\"></svg></section>
<section class=\"card\"><h2>Waiting times</h2><p class=\"soft\">share of tasks that waited no longer than this</p>
<svg id=\"waits\" viewBox=\"0 0 560 210\" role=\"img\" aria-label=\"distribution of waiting times\"></svg></section>
<section class=\"card\"><h2>Workers</h2><p class=\"soft\">how much of the time shown above each was busy</p>
<svg id=\"workers\" viewBox=\"0 0 560 210\" role=\"img\" aria-label=\"busy share of each worker\"></svg></section>
</div>
";

fn notes(sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let mut text = String::from("<section class=\"card\"><h2>What moved, and why</h2><ul>");
    for sentence in sentences {
        push(&mut text, format_args!("<li>{}</li>", escape(sentence)));
    }
    text.push_str("</ul></section>\n");
    text
}

fn tabs(runs: &[DrawnRun]) -> String {
    if runs.len() < 2 {
        return String::new();
    }
    let mut text = String::from("<div class=\"tabs\" role=\"tablist\">");
    for (index, run) in runs.iter().enumerate() {
        push(
            &mut text,
            format_args!(
                "<button role=\"tab\" data-run=\"{index}\" aria-selected=\"{}\">{}</button>",
                index == 0,
                escape(&run.label)
            ),
        );
    }
    text.push_str("</div>\n");
    text
}

fn tiles(runs: &[DrawnRun]) -> String {
    let mut text = String::new();
    for (index, run) in runs.iter().enumerate() {
        let hidden = if index == 0 { "" } else { " hidden" };
        push(
            &mut text,
            format_args!("<div data-run=\"{index}\"{hidden}>"),
        );
        text.push_str("<div class=\"tiles\">");
        for (name, value) in &run.tiles {
            push(
                &mut text,
                format_args!(
                    "<div class=\"tile\"><b>{}</b><span>{}</span></div>",
                    escape(value),
                    escape(name)
                ),
            );
        }
        for figure in run.balance.figures() {
            text.push_str(&balance_tile(figure));
        }
        text.push_str("</div></div>\n");
    }
    text
}

fn balance_tile(figure: &Figure) -> String {
    let show = |value: f64| {
        if figure.is_share {
            format!("{:.1} %", value * 100.0)
        } else {
            format!("{value:.2}")
        }
    };
    let (class, word) = match figure.met() {
        Some(true) => ("met", "met"),
        Some(false) => ("missed", "missed"),
        None => ("soft", "unknown"),
    };
    let target = match figure.target {
        Target::Below(limit) => format!("&lt; {}", show(limit)),
        Target::Above(limit) => format!("&gt; {}", show(limit)),
    };
    format!(
        "<div class=\"tile\"><b class=\"{class}\">{}</b><span>{}, target {target} {word}</span></div>",
        figure.value.map_or_else(|| "–".to_owned(), show),
        figure.name
    )
}

fn comparison(results: &Results) -> String {
    let mut text = String::from(
        "<section class=\"card\"><h2>Comparison</h2><div class=\"wide\"><table id=\"comparison\">\
         <thead><tr><th>variant</th><th>makespan</th><th>± 95 %</th><th>÷ bound</th>\
         <th>utilization</th><th>stolen</th><th>mean wait</th></tr></thead><tbody>",
    );
    let best = results.best();
    let mean = |variant, figure: fn(&RunStatistics) -> f64| results.estimate(variant, figure).mean;
    let longest = (0..results.labels.len())
        .map(|variant| mean(variant, RunStatistics::makespan_seconds))
        .fold(0.0, f64::max)
        .max(1e-12);
    for (variant, label) in results.labels.iter().enumerate() {
        let makespan = results.estimate(variant, RunStatistics::makespan_seconds);
        let spread = if makespan.half_width.is_finite() {
            human(nanos(makespan.half_width))
        } else {
            "–".to_owned()
        };
        let class = if variant == best && results.labels.len() > 1 {
            " class=\"best\""
        } else {
            ""
        };
        push(
            &mut text,
            format_args!(
                "<tr{class}><td>{}</td><td><span class=\"bar\" style=\"width:{:.0}px\"></span>{}</td>\
                 <td>{spread}</td><td>{:.3}</td><td>{:.1} %</td><td>{:.1} %</td><td>{}</td></tr>",
                escape(label),
                makespan.mean / longest * 90.0,
                human(nanos(makespan.mean)),
                mean(variant, RunStatistics::ratio_to_bound),
                mean(variant, |run| run
                    .balance()
                    .utilization
                    .value
                    .unwrap_or(0.0))
                    * 100.0,
                mean(variant, RunStatistics::steal_rate) * 100.0,
                human(nanos(mean(variant, RunStatistics::mean_wait))),
            ),
        );
    }
    text.push_str("</tbody></table></div>");
    for sentence in crate::text::verdicts(results).lines() {
        push(
            &mut text,
            format_args!("<p class=\"soft\">{}.</p>", escape(sentence)),
        );
    }
    text.push_str("</section>\n");
    text
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("a string takes everything");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{DrawnRun, Report, html};
    use crate::library;

    #[test]
    fn a_report_needs_nothing_else_and_nothing_escapes_from_its_data() {
        let world = library::ready("basic").unwrap().build(&[]).unwrap();
        let (statistics, mut timeline) = world.run_recorded(1, &mut ());
        timeline.lanes[0].name = "</script><b>".to_owned();
        let runs = [DrawnRun::new("<i>", &statistics, timeline)];
        let page = html(&Report {
            title: "a <b>",
            about: "about",
            look_for: "look",
            notes: &["a note with <b>".to_owned()],
            runs: &runs,
            results: None,
            command: "loxley sim basic",
        });
        assert!(page.contains("<h1>a &lt;b&gt;</h1>"));
        assert!(page.contains("<li>a note with &lt;b&gt;</li>"));
        assert_eq!(page.matches("</script>").count(), 2);
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
