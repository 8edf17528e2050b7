//! What a benchmark prints: a table for people, or one JSON object per case for programs.

use std::fmt;

use serde::Serialize;

use crate::measure::{self, Role, Samples};

/// What the design asks of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// At most this many times the figure of the named contender, in the same run.
    Times(f64, &'static str),
    /// At most this figure.
    AtMost(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(factor, of) => write!(f, "<= {factor} x {of}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}

/// Prints cases as they are measured.
pub(crate) struct Report {
    json: bool,
    header_is_due: bool,
}

/// One line of the report. Fields about a peer are absent where there is none.
#[derive(Serialize)]
struct Line<'a> {
    case: &'a str,
    unit: &'a str,
    value: Option<f64>,
    min: Option<f64>,
    spread: Option<f64>,
    #[serde(flatten)]
    beside: Option<Beside>,
    goal: Option<String>,
    met: Option<bool>,
    all: Vec<Figure>,
}

/// The subject beside the peer that it is compared with.
#[derive(Serialize)]
struct Beside {
    peer: &'static str,
    peer_value: f64,
    ratio: f64,
    ratio_spread: f64,
    /// Best round over best round: what is left when the machine was quiet for both.
    ratio_of_minima: f64,
}

/// What one contender reached.
#[derive(Serialize)]
struct Figure {
    name: &'static str,
    floor: bool,
    median: f64,
    min: f64,
    spread: f64,
    /// Processor time over time: how many processors it kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    processors: Option<f64>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            header_is_due: !json,
        }
    }

    /// Prints one case; lower figures are better.
    pub(crate) fn case(&mut self, case: &str, unit: &str, goal: Option<Goal>, all: &[Samples]) {
        self.print(&line(case, unit, goal, all));
    }

    fn print(&mut self, line: &Line<'_>) {
        if self.json {
            let text = serde_json::to_string(line).expect("numbers and names are always JSON");
            println!("{text}");
            return;
        }
        if std::mem::take(&mut self.header_is_due) {
            println!(
                "{:<24} {:<10} {:>10} {:>22} {:>7} {:>7}  {:<20} met",
                "case", "unit", "loxley", "beside", "ratio", "of min", "goal"
            );
        }
        println!("{line}");
    }
}

/// The subject is compared with the contender that the goal names, else with the best peer, else
/// with the best floor.
fn line<'a>(case: &'a str, unit: &'a str, goal: Option<Goal>, all: &[Samples]) -> Line<'a> {
    let subject = all.iter().find(|samples| samples.role == Role::Subject);
    let beside =
        subject.and_then(|subject| rival(goal, all).map(|rival| Beside::new(subject, rival)));
    let met = match (goal, subject, &beside) {
        (Some(Goal::AtMost(most)), Some(subject), _) => Some(subject.median() <= most),
        (Some(Goal::Times(most, of)), _, Some(beside)) if beside.peer == of => {
            Some(beside.ratio <= most)
        }
        _ => None,
    };
    Line {
        case,
        unit,
        value: subject.map(Samples::median),
        min: subject.map(Samples::min),
        spread: subject.map(Samples::spread),
        beside,
        goal: goal.map(|goal| goal.to_string()),
        met,
        all: all.iter().map(Figure::new).collect(),
    }
}

/// Whom the subject is compared with.
fn rival(goal: Option<Goal>, all: &[Samples]) -> Option<&Samples> {
    let named = match goal {
        Some(Goal::Times(_, of)) => all.iter().find(|samples| samples.name == of),
        _ => None,
    };
    named
        .or_else(|| best(all, Role::Peer))
        .or_else(|| best(all, Role::Floor))
}

fn best(all: &[Samples], role: Role) -> Option<&Samples> {
    all.iter()
        .filter(|samples| samples.role == role)
        .min_by(|left, right| left.median().total_cmp(&right.median()))
}

impl Beside {
    fn new(subject: &Samples, rival: &Samples) -> Self {
        let (ratio, ratio_spread) = measure::ratio(subject, rival);
        Self {
            peer: rival.name,
            peer_value: rival.median(),
            ratio,
            ratio_spread,
            ratio_of_minima: subject.min() / rival.min(),
        }
    }
}

impl Figure {
    fn new(samples: &Samples) -> Self {
        Self {
            name: samples.name,
            floor: samples.role == Role::Floor,
            median: samples.median(),
            min: samples.min(),
            spread: samples.spread(),
            processors: (!samples.processors.is_empty())
                .then(|| measure::quantile(&samples.processors, 0.5)),
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
        let (beside, ratios) = match &self.beside {
            Some(beside) => (
                format!("{} {}", beside.peer, short(beside.peer_value)),
                format!("{:7.3} {:7.3}", beside.ratio, beside.ratio_of_minima),
            ),
            None => ("-".to_owned(), format!("{:>7} {:>7}", "-", "-")),
        };
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        write!(
            f,
            "{:<24} {:<10} {:>10} {beside:>22} {ratios}  {:<20} {met}",
            self.case,
            self.unit,
            number(self.value),
            self.goal.as_deref().unwrap_or("-"),
        )?;
        for figure in &self.all {
            write!(
                f,
                "\n    {:<16}{:>10}  min {:>10}  ±{:.0} %",
                figure.name,
                short(figure.median),
                short(figure.min),
                figure.spread * 50.0
            )?;
            if let Some(processors) = figure.processors {
                write!(f, "  {processors:.2} processors")?;
            }
        }
        Ok(())
    }
}

/// Four significant digits, without an exponent.
fn short(value: f64) -> String {
    let digits_before = if value.abs() < 1.0 {
        1
    } else {
        value.abs().log10() as usize + 1
    };
    format!("{value:.*}", 4_usize.saturating_sub(digits_before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(name: &'static str, role: Role, value: f64) -> Samples {
        Samples::new(name, role, vec![value])
    }

    #[test]
    fn the_goal_decides_whom_we_are_compared_with() {
        let all = [
            samples("loxley", Role::Subject, 1.0),
            samples("slow", Role::Peer, 3.0),
            samples("fast", Role::Peer, 2.0),
            samples("floor", Role::Floor, 0.5),
        ];
        let name = |goal| rival(goal, &all).map(|rival| rival.name);
        assert_eq!(name(None), Some("fast"));
        assert_eq!(name(Some(Goal::Times(1.0, "slow"))), Some("slow"));
        assert_eq!(name(Some(Goal::Times(1.0, "floor"))), Some("floor"));
        assert_eq!(name(Some(Goal::AtMost(1.0))), Some("fast"));
    }

    #[test]
    fn a_line_of_json_has_the_figure_the_peer_and_the_verdict() {
        let all = [
            samples("loxley", Role::Subject, 1.0),
            samples("rayon", Role::Peer, 2.0),
        ];
        let line = line("tree", "ns", Some(Goal::Times(0.9, "rayon")), &all);
        let json = serde_json::to_value(line).unwrap();
        let expected = serde_json::json!({
            "case": "tree", "unit": "ns", "value": 1.0, "spread": 0.0,
            "peer": "rayon", "peer_value": 2.0, "ratio": 0.5,
            "goal": "<= 0.9 x rayon", "met": true,
        });
        for (key, expected) in expected.as_object().unwrap() {
            assert_eq!(&json[key], expected, "{key}");
        }
    }

    #[test]
    fn a_goal_beside_somebody_absent_is_neither_met_nor_missed() {
        let all = [
            samples("loxley", Role::Subject, 1.0),
            samples("sequential", Role::Floor, 2.0),
        ];
        assert_eq!(
            line("tree", "ns", Some(Goal::Times(0.9, "chili")), &all).met,
            None
        );
        assert_eq!(
            line("tree", "ns", Some(Goal::AtMost(0.5)), &all).met,
            Some(false)
        );
    }

    #[test]
    fn figures_keep_four_digits() {
        assert_eq!(short(1234.6), "1235");
        assert_eq!(short(12.345), "12.35");
        assert_eq!(short(0.01234), "0.012");
    }
}
