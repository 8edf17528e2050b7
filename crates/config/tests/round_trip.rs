//! What is written reads back the same; what is read never panics.

use std::collections::BTreeSet;

use loxley_config::{default_yaml, keys, parse, parse_bytes, parse_server_bytes, to_yaml};
use loxley_model::{Priority, Span};
use loxley_policy::{
    AddedRules, Bounds, Capabilities, Config, Earning, ForecastRules, Guards, HealthRules,
    Heartbeats, Learning, Matching, MetricsRules, Performance, Prefetch, PriorityRules, Quotas,
    SelfTuning, Speculation, Strategy as Moves, Thresholds, WorkStealing,
};
use proptest::prelude::*;

#[test]
fn the_default_file_is_the_default_configuration() {
    assert_eq!(parse(&default_yaml()).unwrap(), Config::served());
    assert_eq!(parse_server_bytes(b"").unwrap().0, Config::served());
    assert_eq!(parse("").unwrap(), Config::default());
    // They differ in one thing; a file that names another is left alone.
    let named = "load_balancing:\n  capabilities:\n    matching_strategy: best_fit\n";
    let named = parse_server_bytes(named.as_bytes()).unwrap().0;
    assert_eq!(named, Config::default());
    assert_eq!(
        parse("# nothing\nload_balancing:\n").unwrap(),
        Config::default()
    );
    assert_eq!(
        parse("load_balancing:\n  thresholds:\n").unwrap(),
        Config::default()
    );
    assert_eq!(
        parse("\u{feff}load_balancing:\r\n  seed: 0\r\n").unwrap(),
        Config::default()
    );
}

#[test]
fn the_default_file_stays_as_it_is() {
    insta::assert_snapshot!(default_yaml());
}

/// The configuration is asked for its own fields, so that a new one cannot be forgotten here.
#[test]
fn every_field_of_the_configuration_has_a_key() {
    let mut fields = BTreeSet::new();
    let mut config = serde_json::to_value(Config::default()).unwrap();
    // Journals hold it as a fact of its own.
    config["self_tuning"] = serde_json::to_value(SelfTuning::default()).unwrap();
    // The same of these, which stand under other keys.
    let AddedRules {
        earning: Earning {
            enabled: _,
            successes: _,
        },
        agent_shares: _,
        near_share: _,
    } = AddedRules::default();
    fields.extend(
        [
            "learning.earn_skills",
            "learning.earn_successes",
            "quotas.agent_shares",
            "capabilities.near_share",
        ]
        .map(str::to_owned),
    );
    config["forecast"] = serde_json::to_value(ForecastRules::default()).unwrap();
    for (name, value) in config.as_object().unwrap() {
        match value.as_object() {
            Some(section) => fields.extend(section.keys().map(|key| format!("{name}.{key}"))),
            None => _ = fields.insert(name.clone()),
        }
    }
    let keys: BTreeSet<String> = keys().iter().map(|key| without_unit(&key.path)).collect();
    assert_eq!(fields, keys);
}

fn without_unit(path: &str) -> String {
    let path = path
        .strip_prefix("load_balancing.")
        .expect("all keys stand under one");
    ["_sec", "_ms"]
        .iter()
        .find_map(|unit| path.strip_suffix(unit))
        .unwrap_or(path)
        .to_owned()
}

/// Each key, set to something else than its default, changes the configuration and nothing is lost.
#[test]
fn every_key_is_read() {
    for key in keys() {
        let other = match key.default.as_str() {
            "true" => "false",
            "false" => "true",
            "hybrid" => "pull",
            "earliest_finish" => "exact",
            "4" => "2",
            "1.0" | "0.5" | "0.3" | "0.2" | "0.1" | "0.03" | "0.8" => "0.7",
            "600" => "700",
            "86400" => "90000",
            list if list.starts_with('[') => "[3, 4]",
            "2" | "5" | "3" => "4",
            _ => "17",
        };
        let words: Vec<&str> = key.path.split('.').collect();
        let text = match words.as_slice() {
            [root, name] => format!("{root}: {{{name}: {other}}}"),
            [root, section, name] => format!("{root}: {{{section}: {{{name}: {other}}}}}"),
            _ => panic!("{}", key.path),
        };
        let config = parse(&text).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}"));
        assert_ne!(config, Config::default(), "{text}");
    }
}

fn span() -> impl Strategy<Value = Span> {
    (1_000_000..31_536_000_000_000_000u64).prop_map(Span)
}

fn any_config() -> impl Strategy<Value = Config> {
    let count = || 1..=1_000_000u32;
    let from_zero = || 0..=1_000_000u32;
    let share = || 0.0..=1.0f64;
    let ratio = || 1.0..=1e6f64;
    let moves = prop_oneof![Just(Moves::Pull), Just(Moves::Push), Just(Moves::Hybrid)];
    let matching = prop_oneof![
        Just(Matching::BestFit),
        Just(Matching::Exact),
        Just(Matching::Fallback),
        Just(Matching::EarliestFinish)
    ];
    let first = (
        moves,
        matching,
        any::<[bool; 12]>(),
        [
            count(),
            count(),
            count(),
            count(),
            count(),
            count(),
            count(),
            count(),
        ],
        [
            from_zero(),
            from_zero(),
            from_zero(),
            from_zero(),
            from_zero(),
        ],
    );
    let second = (
        [
            span(),
            span(),
            span(),
            span(),
            span(),
            span(),
            span(),
            span(),
            span(),
        ],
        [ratio(), ratio()],
        [share(), share(), share()],
        1..=5u8,
        prop::collection::btree_set(1..1_000_000u32, 1..64),
        any::<u64>(),
    );
    (first, second).prop_map(|((strategy, matching, flags, counts, more), second)| {
        let (spans, ratios, shares, level, buckets, seed) = second;
        Config {
            strategy,
            thresholds: Thresholds {
                idle_threshold: counts[0].min(counts[1]),
                busy_threshold: counts[0].max(counts[1]),
                rebalance_interval: spans[0],
                severe_imbalance_ratio: ratios[0],
            },
            work_stealing: WorkStealing {
                max_steal_per_cycle: counts[2],
                prefer_recent_tasks: flags[0],
                allow_task_migration: flags[1],
                min_tasks_to_steal: counts[3],
                steal_below_busy: flags[2],
            },
            capabilities: Capabilities {
                matching_strategy: matching,
                consider_history: flags[3],
                fallback_enabled: flags[4],
                history_weight: shares[0].fract(),
                locality_bonus: shares[1],
            },
            priority: PriorityRules {
                high_priority_threshold: Priority::new(level).expect("1 to 5"),
                preserve_high_priority: flags[5],
                rescue_high_priority: flags[6] ^ flags[0],
                priority_stealing_order: flags[6],
            },
            metrics: MetricsRules {
                track_migrations: flags[7],
                track_utilization: flags[8],
                track_wait_times: flags[9],
                histogram_buckets: buckets.into_iter().map(|b| f64::from(b) / 7.0).collect(),
                utilization_sample_interval: spans[1],
            },
            performance: Performance {
                max_concurrent_steals: counts[4],
                steal_batch_size: counts[5],
                cache_capability_matches: flags[10],
                cache_ttl: spans[2],
            },
            guards: Guards {
                robbed_cooldown: spans[3],
                max_moves: more[0],
                steal_backoff: spans[4],
            },
            heartbeats: Heartbeats {
                suspect_after: spans[5].min(spans[6]),
                lost_after: spans[5].max(spans[6]) + Span(1),
            },
            learning: Learning {
                half_life: spans[7],
                breaker_failures: more[1],
                breaker_probe: spans[8],
            },
            speculation: Speculation {
                enabled: flags[11],
                straggler_ratio: ratios[1],
                min_samples: counts[6],
                budget: shares[2],
            },
            quotas: Quotas {
                user_shares: flags[0],
                backfill_limit: more[2],
                reserved_slots: more[3],
                large_task_ratio: counts[7],
            },
            prefetch: Prefetch { max_depth: more[4] },
            health: HealthRules {
                queue_variance_max: ratios[1],
                steal_success_min: shares[0].fract(),
                queued_max: more[1],
                short_task: spans[5],
                hot_spot_share: shares[1].fract(),
            },
            added: AddedRules {
                earning: Earning {
                    enabled: flags[4],
                    successes: counts[2],
                },
                agent_shares: flags[5],
                near_share: shares[1].fract(),
            },
            self_tuning: SelfTuning {
                enabled: flags[1],
                window: spans[2],
                pairs: 2 + counts[0] % 63,
                min_gain: shares[2],
                steal_backoff: Bounds::new(ratios[0].min(ratios[1]), ratios[0].max(ratios[1])),
                max_depth: if flags[2] {
                    Bounds::OFF
                } else {
                    Bounds::new(0.0, ratios[0])
                },
                user_shares: flags[3],
                ..SelfTuning::default()
            },
            forecast: ForecastRules {
                enabled: flags[2],
                step: Span::from_secs(1 + u64::from(counts[1] % 1000)),
                horizon: Span::from_secs(1000 + u64::from(counts[2] % 1000)),
                season_max: Span::from_secs(2000 + u64::from(counts[3] % 1000)),
                error_max: shares[0],
                share_max: shares[2],
            },
            seed,
        }
    })
}

/// Text made of the words of the file and of YAML's own signs: deeper than random bytes reach.
fn nearly_yaml() -> impl Strategy<Value = String> {
    let words = [
        "load_balancing:",
        "thresholds:",
        "busy_threshold:",
        "metrics:",
        "histogram_buckets:",
        "strategy:",
        "seed:",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "&a ",
        "*a",
        "!x ",
        "? ",
        "|",
        ">",
        "'",
        "\"",
        "#",
        "---",
        "...",
        "%YAML",
        "5",
        "0.5",
        "-1",
        "1e9",
        "pull",
        "true",
        "null",
        "~",
        "\u{feff}",
        "ö",
        "\t",
        "\r\n",
        " ",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..40)
        .prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn what_is_written_reads_back_the_same(config in any_config()) {
        let text = to_yaml(&config);
        match parse(&text) {
            Ok(read) => prop_assert_eq!(read, config),
            Err(mistakes) => prop_assert!(false, "{}\n{}", mistakes, text),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Err(mistakes) = parse_bytes(&bytes) {
            prop_assert!(!mistakes.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_that_looks_like_yaml_is_read_or_refused(text in nearly_yaml()) {
        if let Err(mistakes) = parse(&text) {
            for mistake in mistakes.iter() {
                let (line, column) = mistakes.position(mistake);
                prop_assert!(line >= 1 && column >= 1);
                prop_assert!(mistake.span.end <= text.len(), "{mistake:?}");
                prop_assert!(text.get(mistake.span.clone()).is_some(), "{mistake:?}");
            }
        }
    }

    #[test]
    fn a_damaged_file_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = default_yaml().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = parse_bytes(&bytes).map_err(|mistakes| mistakes.to_string());
    }
}
