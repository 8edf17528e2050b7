//! The ready scenarios [X2] and the failures that users of other systems report, one file each.

use crate::scenario::Scenario;

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every ready scenario, in the order in which they are listed.
        pub const READY: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../scenarios/", $name, ".yaml")))),*
        ];
    };
}

scenarios![
    "basic",
    "spawning",
    "adaptive",
    "granularity",
    "hot_spot",
    "uniform",
    "heterogeneous",
    "deep_hierarchy",
    "priority_protection",
    "bursty",
    "stragglers",
    "cascading_failure",
    "flaky_network",
    "all_on_one",
    "scale_up",
    "restricted_tasks",
    "boastful_agent",
    "partition",
    "daily_burst",
    "bad_settings",
];

/// The ready scenario of this name; `-` and `_` are the same.
#[must_use]
pub fn ready(name: &str) -> Option<Scenario> {
    let name = name.replace('-', "_");
    let (name, text) = READY.iter().find(|(ready, _)| *ready == name)?;
    Some(Scenario::parse(name, text).expect("ready scenarios are tested"))
}

/// All ready scenarios.
pub fn all() -> impl Iterator<Item = Scenario> {
    READY.iter().filter_map(|(name, _)| ready(name))
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::scenario::Change;

    #[test]
    fn every_ready_scenario_says_what_it_shows_and_runs() {
        for scenario in all() {
            for sentence in [scenario.about(), scenario.look_for()] {
                assert!(sentence.ends_with('.'), "{}: {sentence}", scenario.name());
                assert!(sentence.len() > 30, "{}: {sentence}", scenario.name());
            }
            let statistics = scenario.build(&[]).unwrap().run(1, &mut ());
            assert!(statistics.executed() > 0, "{}", scenario.name());
            assert!(statistics.ratio_to_bound() >= 1.0, "{}", scenario.name());
            for policy in scenario.compare() {
                let changes = Change::policy(policy).unwrap();
                let statistics = scenario.build(&changes).unwrap().run(1, &mut ());
                assert!(
                    statistics.executed() > 0,
                    "{} with {policy}",
                    scenario.name()
                );
            }
        }
    }
}
