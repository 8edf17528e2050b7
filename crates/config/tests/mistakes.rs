//! What a person sees who made a mistake. Kept as snapshots: the words are the interface.

use loxley_config::{Kind, parse, parse_bytes};
use miette::{GraphicalReportHandler, GraphicalTheme};

/// The report as a terminal without colour shows it.
fn report(text: &str) -> String {
    let mistakes = parse(text)
        .expect_err("there is a mistake")
        .in_file("fleet.yaml");
    let mut shown = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .render_report(&mut shown, &mistakes.report())
        .expect("a string takes everything");
    format!("{mistakes}\n\n{shown}")
}

#[test]
fn all_mistakes_of_a_file_are_shown_at_once() {
    insta::assert_snapshot!(report(
        "\
load_balancing:
  stratgy: pull
  thresholds:
    busy_threshold: many
    idle_threshold: -2
    severe_imbalance_ratio: 0.5
    busy_threshold: 7
  capabilities:
    matching_strategy: bestfit
    consider_history: yes
  metrics:
    histogram_buckets: [0.1, 5, 1]
  heartbeats:
    suspect_after_sec: 40
    lost_after_sec: 30
"
    ));
}

#[test]
fn a_key_in_the_wrong_place_is_shown_where_it_belongs() {
    insta::assert_snapshot!(report(
        "\
strategy: pull
load_balancing:
  busy_threshold: 5
  thresholds:
    load_balancing: {}
    prefetch: 3
  colour: red
"
    ));
}

#[test]
fn a_value_that_contradicts_a_default_says_so() {
    insta::assert_snapshot!(report("load_balancing: {thresholds: {idle_threshold: 9}}"));
}

#[test]
fn text_that_is_not_yaml_is_shown_where_it_breaks() {
    insta::assert_snapshot!(report("load_balancing:\n  strategy: \"pull\n  seed: 1\n"));
}

#[test]
fn a_group_that_is_a_value_and_a_value_that_is_a_group() {
    insta::assert_snapshot!(report(
        "load_balancing:\n  thresholds: 5\n  seed: {a: 1}\n  strategy:\n  prefetch: [1]\n"
    ));
}

#[test]
fn a_number_in_quotes_is_a_text() {
    insta::assert_snapshot!(report(
        "load_balancing: {seed: \"7\", quotas: {user_shares: 'true'}}"
    ));
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let mistakes = parse_bytes(b"load_balancing:\n  # \xff\n").unwrap_err();
    assert_eq!(
        mistakes.to_string(),
        "configuration:2:5: the file is not UTF-8 text (save it as UTF-8)"
    );
}

#[test]
fn every_sort_of_mistake_is_told_apart() {
    for (text, kind) in [
        ("load_balancing: [", Kind::Syntax),
        ("load_balancing: {x: 1}", Kind::UnknownKey),
        ("load_balancing: {seed: 1, seed: 2}", Kind::DuplicateKey),
        ("load_balancing: {seed: x}", Kind::WrongType),
        ("load_balancing: {seed: -1}", Kind::OutOfRange),
        (
            "load_balancing: {heartbeats: {lost_after_sec: 1}}",
            Kind::Contradiction,
        ),
        (
            "load_balancing: {metrics: {histogram_buckets: []}}",
            Kind::OutOfRange,
        ),
        (
            "load_balancing: {thresholds: {busy_threshold: 5.5}}",
            Kind::WrongType,
        ),
        (
            "load_balancing: {speculation: {budget: .inf}}",
            Kind::WrongType,
        ),
        (
            "load_balancing: {speculation: {budget: 1e999}}",
            Kind::WrongType,
        ),
    ] {
        let mistakes = parse(text).expect_err(text);
        let kinds: Vec<Kind> = mistakes.iter().map(|mistake| mistake.kind).collect();
        assert_eq!(kinds, [kind], "{text}");
    }
    let long = "#".repeat(2 << 20);
    let mistakes = parse(&long).unwrap_err();
    assert_eq!(mistakes.iter().next().unwrap().kind, Kind::TooLarge);
}

#[test]
fn a_value_that_was_not_read_contradicts_nothing() {
    // 40 is above the default of 30, but what the person meant by `soon` nobody knows.
    let text = "load_balancing: {heartbeats: {suspect_after_sec: 40, lost_after_sec: soon}}";
    let mistakes = parse(text).unwrap_err();
    assert_eq!(mistakes.iter().count(), 1, "{mistakes}");
}

#[test]
fn forecasts_look_further_than_a_step_and_seasons_are_longer() {
    let text = report("load_balancing:\n  forecast:\n    step_sec: 700\n");
    assert!(
        text.contains("`step_sec` (700) must not be above `horizon_sec` (600)"),
        "{text}"
    );
    let text = report("load_balancing: {forecast: {season_max_sec: 600}}");
    assert!(
        text.contains("`horizon_sec` (600) must be below `season_max_sec` (600)"),
        "{text}"
    );
    let text = report("load_balancing: {forecast: {error_max: 2}}");
    assert!(text.contains("error_max"), "{text}");
}
