//! Zones [D6] around the real scheduler: less goes from zone to zone, and nobody waits longer for it.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use loxley_sim::fleet::run;
use loxley_sim::{Change, Happening, Observer, Scenario, World};

const ZONES: u32 = 4;
const AGENTS: u32 = 4;

/// Counts the tasks that idle agents took.
#[derive(Default)]
struct Moves {
    all: u32,
    far: u32,
}

impl Observer for Moves {
    fn see(&mut self, _: u64, happening: &Happening) {
        if let Happening::Moved {
            from,
            to,
            stolen: true,
            ..
        } = *happening
        {
            self.all += 1;
            self.far += u32::from(from / AGENTS != to / AGENTS);
        }
    }
}

/// Four zones of four agents each, which say so or not, and tasks of very different lengths that nobody knows: else the
/// longest is taken first, wherever it is.
fn scenario(say_zones: bool) -> String {
    // Half of them are slower than anybody knows, so that there is something to take.
    let groups = (0..ZONES).map(|zone| {
        let zone = match say_zones {
            true => format!("zone: rack{zone}, "),
            false => String::new(),
        };
        let count = AGENTS / 2;
        format!("{{{zone}count: {count}}}, {{{zone}count: {count}, true_speed: 0.2}}")
    });
    let groups: Vec<String> = groups.collect();
    format!(
        "
about: a
look_for: b
fleet:
  agents: [{}]
  tasks: [{{count: 3000, work: {{exponential: 1.0}}}}]
  load_balancing:
    capabilities: {{matching_strategy: best_fit}}
",
        groups.join(", ")
    )
}

fn outcome(say_zones: bool, seed: u64) -> (Moves, f64) {
    let scenario = Scenario::parse("test", &scenario(say_zones)).unwrap();
    let World::Fleet(setup) = scenario
        .build(&[Change::parse("costs=none").unwrap()])
        .unwrap()
    else {
        panic!("a fleet")
    };
    let mut moves = Moves::default();
    let outcome = run(&setup, seed, &mut moves);
    (moves, outcome.statistics.makespan as f64)
}

#[test]
fn who_is_idle_takes_from_its_own_zone_first_and_nobody_waits_longer() {
    let (mut far, mut far_before, mut ratio) = (0, 0, 0.0);
    const SEEDS: u64 = 5;
    for seed in 0..SEEDS {
        let (before, makespan_before) = outcome(false, seed);
        let (after, makespan) = outcome(true, seed);
        assert!(before.all > 30, "tasks are stolen: {}", before.all);
        (far, far_before) = (far + after.far, far_before + before.far);
        ratio += makespan / makespan_before / SEEDS as f64;
    }
    println!("{far} instead of {far_before} went to another zone; makespan {ratio:.4}");
    assert!(2 * far < far_before, "{far} of {far_before}");
    assert!(ratio < 1.01, "{ratio}");
}
