//! Scenarios: what a person writes (YAML) and what a world needs.
//!
//! A scenario says what it shows (`about`) and what to look for, and then describes one world under
//! `deque:` or `fleet:`. Unknown keys are errors that point at their line. A [`Change`] such as
//! `workers=8` edits the scenario before it is built; a policy is a named bundle of changes, so
//! comparing policies is running one scenario with several bundles.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use loxley_driver::Directory;
use loxley_model::GroupId;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::deque_scenario::DequeSection;
use crate::deque_world::{self, DequeSetup, Load};
use crate::fleet::{self, FleetLoad, FleetSetup, FleetTasks};
use crate::fleet_scenario::FleetSection;
use crate::observer::Observer;
use crate::statistics::RunStatistics;
use crate::timeline::{Recorder, Timeline};
use crate::{library, readers, yaml};

/// A scenario that cannot be used.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The text is no scenario.
    #[error("{name}: {problem}")]
    Text {
        /// Where the text came from.
        name: String,
        /// What is wrong, with its line.
        problem: String,
    },
    /// The numbers do not fit together.
    #[error("`{key}`: {problem}")]
    Value {
        /// Which key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A change that cannot be made.
    #[error("`{change}`: {problem}")]
    Change {
        /// The change as it was written.
        change: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No ready scenario has this name.
    #[error(
        "no ready scenario is called `{0}` (`loxley sim list` shows them), and no such file exists"
    )]
    Unknown(String),
}

impl ScenarioError {
    pub(crate) fn value(key: &str, problem: impl Into<String>) -> Self {
        Self::Value {
            key: key.to_owned(),
            problem: problem.into(),
        }
    }
}

/// A scenario as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    about: String,
    look_for: String,
    /// Policies that are compared when none is named.
    #[serde(default)]
    compare: Vec<String>,
    /// Values that are tried side by side when no sweep is asked for: `granularity=0.1,0.5`.
    #[serde(default)]
    sweep: Option<String>,
    #[serde(default)]
    deque: Option<DequeSection>,
    #[serde(default)]
    fleet: Option<FleetSection>,
}

/// A scenario, read and checked.
#[derive(Debug, Clone)]
pub struct Scenario {
    name: String,
    /// As it was written.
    text: String,
    file: ScenarioFile,
    /// The same as a tree, for changes.
    tree: Value,
    /// The same load on workers with deques, where the load is a workload that both worlds can run.
    on_deques: Option<Value>,
    /// Where the tasks come from, when they are not in the scenario.
    job: Option<Arc<dyn JobSource>>,
    /// The world, when nobody wrote it down as a scenario.
    fleet: Option<Arc<FleetSetup>>,
}

/// A job that somebody else has read.
pub trait JobSource: fmt::Debug + Send + Sync {
    /// Its tasks, in the names of the fleet that will run them.
    ///
    /// # Errors
    /// Why it cannot be run.
    fn load(&self, names: &mut Directory) -> Result<JobLoad, String>;
}

/// The tasks of a job, and what it brings along.
#[derive(Debug)]
pub struct JobLoad {
    /// The tasks.
    pub tasks: FleetTasks,
    /// At most so many tasks of each of these groups run at once.
    pub limits: Vec<(GroupId, u32)>,
}

/// A world that can be run.
#[derive(Debug, Clone)]
pub enum World {
    /// Workers with deques.
    Deque(Box<DequeSetup>),
    /// Agents around the real scheduler.
    Fleet(Box<FleetSetup>),
}

impl Scenario {
    /// Reads a scenario; `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let scenario = Self::read(name, text)?;
        scenario.build(&[])?;
        Ok(scenario)
    }

    /// A scenario that describes agents, with the tasks of a job.
    pub fn of_job(name: &str, text: &str, job: Arc<dyn JobSource>) -> Result<Self, ScenarioError> {
        let mut scenario = Self::read(name, text)?;
        scenario.job = Some(job);
        scenario.build(&[])?;
        Ok(scenario)
    }

    /// A fleet that somebody else has put together, such as one that was recorded. It takes no changes.
    #[must_use]
    pub fn of_fleet(name: &str, about: &str, look_for: &str, fleet: FleetSetup) -> Self {
        Self {
            name: name.to_owned(),
            text: String::new(),
            file: ScenarioFile {
                about: about.to_owned(),
                look_for: look_for.to_owned(),
                compare: Vec::new(),
                sweep: None,
                deque: None,
                fleet: None,
            },
            tree: Value::Null,
            on_deques: None,
            job: None,
            fleet: Some(Arc::new(fleet)),
        }
    }

    fn read(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let problem = |error: yaml::Error| ScenarioError::Text {
            name: name.to_owned(),
            problem: error.to_string(),
        };
        let file: ScenarioFile = yaml::from_str(text).map_err(problem)?;
        let tree: Value = yaml::from_str(text).map_err(problem)?;
        Ok(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            file,
            tree,
            on_deques: None,
            job: None,
            fleet: None,
        })
    }

    /// A scenario that runs a workload file (see [`readers`](crate::readers)): with the real scheduler, or with
    /// thieves alone under policies that speak of stealing.
    pub fn of_workload(path: &Path, workers: u32) -> Result<Self, ScenarioError> {
        let name = path.display().to_string();
        let about = Value::from(format!("The workload {name}"));
        let look_for = "the ratio to the lower bound: what is left to gain";
        let quoted = Value::from(name.as_str());
        let text = format!(
            "about: {about}\nlook_for: {look_for:?}\nfleet:\n  agents:\n    - {{count: {workers}}}\n  file: {quoted}\n"
        );
        let mut scenario = Self::parse(&name, &text)?;
        scenario.on_deques = Some(serde_json::json!({
            "about": about,
            "look_for": look_for,
            "deque": {"workers": workers, "load": {"file": path}},
        }));
        Ok(scenario)
    }

    /// Finds a scenario: a ready one by name, a scenario file, or a workload file.
    pub fn find(what: &str, workers: Option<u32>) -> Result<Self, ScenarioError> {
        if let Some(ready) = library::ready(what) {
            return Ok(ready);
        }
        let path = Path::new(what);
        if readers::is_workload(path) {
            return Self::of_workload(path, workers.unwrap_or(4));
        }
        if !path.exists() {
            return Err(ScenarioError::Unknown(what.to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| ScenarioError::Text {
            name: what.to_owned(),
            problem: error.to_string(),
        })?;
        Self::parse(what, &text)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scenario as it was written, or as it could be.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// One sentence on what it shows.
    #[must_use]
    pub fn about(&self) -> &str {
        self.file.about.trim()
    }

    /// One sentence on what to look for.
    #[must_use]
    pub fn look_for(&self) -> &str {
        self.file.look_for.trim()
    }

    /// The policies it compares by itself.
    #[must_use]
    pub fn compare(&self) -> &[String] {
        &self.file.compare
    }

    /// The sweep it makes by itself.
    #[must_use]
    pub fn sweep(&self) -> Option<&str> {
        self.file.sweep.as_deref()
    }

    /// The world with these changes made.
    pub fn build(&self, changes: &[Change]) -> Result<World, ScenarioError> {
        if let Some(fleet) = &self.fleet {
            return match changes.first() {
                None => Ok(World::Fleet(Box::new((**fleet).clone()))),
                Some(change) => Err(ScenarioError::Change {
                    change: change.to_string(),
                    problem: "a recorded fleet runs as it was; `loxley replay` asks what would be different".to_owned(),
                }),
            };
        }
        if changes.is_empty() {
            return self.file.build(self.job.as_deref());
        }
        let speaks_of_stealing = changes.iter().any(Change::is_for_deques);
        let mut tree = match &self.on_deques {
            Some(tree) if speaks_of_stealing => tree.clone(),
            _ => self.tree.clone(),
        };
        for change in changes {
            change.apply(&mut tree)?;
        }
        let file: ScenarioFile =
            serde_json::from_value(tree).map_err(|error| ScenarioError::Change {
                change: changes
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" "),
                problem: error.to_string(),
            })?;
        file.build(self.job.as_deref())
    }
}

impl World {
    /// Runs it.
    pub fn run<O: Observer>(&self, seed: u64, observer: &mut O) -> RunStatistics {
        match self {
            Self::Deque(setup) => deque_world::run(setup, seed, observer),
            Self::Fleet(setup) => fleet::run(setup, seed, observer).statistics,
        }
    }

    /// Runs it and keeps what can be drawn; `observer` watches too.
    pub fn run_recorded<O: Observer>(
        &self,
        seed: u64,
        observer: &mut O,
    ) -> (RunStatistics, Timeline) {
        let mut both = (Recorder::new(self.workers()), observer);
        let statistics = self.run(seed, &mut both);
        let timeline = both.0.finish(statistics.makespan, &statistics.waits);
        (statistics, timeline)
    }

    /// Names and slots of its workers.
    #[must_use]
    pub fn workers(&self) -> Vec<(String, u32)> {
        match self {
            Self::Deque(setup) => (0..setup.speeds.len())
                .map(|worker| (format!("worker {worker}"), 1))
                .collect(),
            Self::Fleet(setup) => (setup.agents.iter())
                .map(|agent| {
                    (
                        setup.names.agent_name(agent.spec.id).to_string(),
                        agent.spec.slots,
                    )
                })
                .collect(),
        }
    }

    /// How many tasks it will have at least, for progress and for choosing defaults.
    #[must_use]
    pub fn task_count(&self) -> u64 {
        match self {
            Self::Deque(setup) => match &setup.load {
                Load::Stream { count, .. } => u64::from(*count),
                Load::Pieces { total, piece } => total.div_ceil(*piece),
                Load::Graph(workload) => workload.len() as u64,
                Load::Tree { depth, fan_out, .. } => u64::from(*fan_out).pow(u32::from(*depth)),
            },
            Self::Fleet(setup) => match &setup.load {
                FleetLoad::Groups(groups) => {
                    groups.iter().map(|group| u64::from(group.count)).sum()
                }
                FleetLoad::Graph(workload) => workload.len() as u64,
                FleetLoad::Given(tasks) => tasks.len() as u64,
            },
        }
    }
}

impl ScenarioFile {
    fn build(&self, job: Option<&dyn JobSource>) -> Result<World, ScenarioError> {
        match (&self.deque, &self.fleet) {
            (Some(deque), None) => Ok(World::Deque(Box::new(deque.build()?))),
            (None, Some(fleet)) => Ok(World::Fleet(Box::new(fleet.build(job)?))),
            _ => Err(ScenarioError::value(
                "deque",
                "a scenario describes one world, under `deque` or under `fleet`",
            )),
        }
    }
}

/// A text as a tree of values; none if it is no YAML.
#[must_use]
pub fn tree_of(text: &str) -> Option<Value> {
    yaml::from_str(text).ok()
}

/// One edit of a scenario: a path and its new value.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    path: Vec<String>,
    value: Value,
    text: String,
}

impl Change {
    /// Reads `path=value`, such as `workers=8` or `stealing.amount={batch: 4}`.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let problem = |problem: &str| ScenarioError::Change {
            change: text.to_owned(),
            problem: problem.to_owned(),
        };
        let (path, value) = text
            .split_once('=')
            .ok_or_else(|| problem("expected path=value"))?;
        let value = yaml::from_str(value)
            .map_err(|error| problem(&format!("the value is no YAML: {error}")))?;
        Ok(Self::new(path.trim(), value, text))
    }

    fn new(path: &str, value: Value, text: &str) -> Self {
        let path = match path {
            "granularity" => "deque.load.pieces.piece",
            "costs" => "fleet.costs",
            other => other,
        };
        Self {
            path: path.split('.').map(str::to_owned).collect(),
            value,
            text: text.to_owned(),
        }
    }

    /// The changes that a policy stands for: words and `path=value`, separated by `+` or `,`.
    pub fn policy(text: &str) -> Result<Vec<Self>, ScenarioError> {
        text.split(['+', ','])
            .map(str::trim)
            .map(|word| {
                if word.contains('=') {
                    return Self::parse(word);
                }
                let (path, value) = policy_word(word).ok_or_else(|| ScenarioError::Change {
                    change: text.to_owned(),
                    problem: format!("no policy is called `{word}`; known are {POLICY_WORDS}"),
                })?;
                Ok(Self::new(path, value, word))
            })
            .collect()
    }

    /// Whether it can only be meant for workers with deques.
    fn is_for_deques(&self) -> bool {
        let words = ["deque", "stealing", "placement", "owner_end", "topology"];
        words.contains(&self.path[0].as_str())
    }

    /// Sets the value in a scenario's tree. The world's key may be left out of the path.
    fn apply(&self, tree: &mut Value) -> Result<(), ScenarioError> {
        let is_fleet = tree.get("fleet").is_some();
        let mut path = self.path.clone();
        if is_fleet && path == ["workers"] {
            path = ["agents", "0", "count"].map(str::to_owned).to_vec();
        }
        if path[0] == "fleet" && !is_fleet {
            return Err(ScenarioError::Change {
                change: self.text.clone(),
                problem: "this scenario has no scheduler: it describes workers with deques"
                    .to_owned(),
            });
        }
        let starts_at_root = tree.get(&path[0]).is_some() || path[0] == "deque";
        let mut node = match starts_at_root {
            true => tree,
            false if is_fleet => &mut tree["fleet"],
            false => &mut tree["deque"],
        };
        for key in &path {
            if node.is_null() {
                *node = Value::Object(serde_json::Map::new());
            }
            if let Value::Array(list) = node {
                let item = key
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| list.get_mut(index));
                node = item.ok_or_else(|| ScenarioError::Change {
                    change: self.text.clone(),
                    problem: format!("there is no item `{key}` in this list"),
                })?;
                continue;
            }
            let Value::Object(map) = node else {
                return Err(ScenarioError::Change {
                    change: self.text.clone(),
                    problem: format!("`{key}` is inside something that has no keys"),
                });
            };
            node = map.entry(key.clone()).or_insert(Value::Null);
        }
        *node = self.value.clone();
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The words that [`Change::policy`] knows, for messages.
pub const POLICY_WORDS: &str = "\
random, most_loaded, nearest, hierarchical, none (whom to rob); one, half, batchN (how much); \
poll, backoff, once (what an idle worker does); shared, round_robin, blocks (where tasks start); \
for fleets pull, push, hybrid, strict (who moves tasks), best_fit, exact, fallback, earliest_finish \
(who gets a task), copies, no_copies (of stragglers), forecast, no_forecast (room for work that is due), tuned, untuned (settings that \
change by themselves)";

fn policy_word(word: &str) -> Option<(&'static str, Value)> {
    let text = |path| Some((path, Value::from(word)));
    match word {
        "random" | "most_loaded" | "nearest" | "hierarchical" | "none" => text("stealing.victim"),
        "one" | "half" => text("stealing.amount"),
        "backoff" | "once" => text("stealing.idle"),
        "poll" => Some(("stealing.idle", serde_json::json!({"poll": 0.001}))),
        "shared" | "round_robin" | "blocks" => text("placement"),
        "pull" | "push" | "hybrid" => text("fleet.load_balancing.strategy"),
        "best_fit" | "exact" | "fallback" | "earliest_finish" => {
            text("fleet.load_balancing.capabilities.matching_strategy")
        }
        "strict" => Some((
            "fleet.load_balancing.work_stealing.steal_below_busy",
            Value::from(false),
        )),
        "copies" | "no_copies" => Some((
            "fleet.load_balancing.speculation.enabled",
            Value::from(word == "copies"),
        )),
        "forecast" | "no_forecast" => Some((
            "fleet.load_balancing.forecast.enabled",
            Value::from(word == "forecast"),
        )),
        "tuned" | "untuned" => Some((
            "fleet.load_balancing.self_tuning.enabled",
            Value::from(word == "tuned"),
        )),
        _ => {
            let size: usize = word.strip_prefix("batch")?.parse().ok()?;
            Some(("stealing.amount", serde_json::json!({ "batch": size })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Scenario, World};

    const BASIC: &str = "\
about: a
look_for: b
deque:
  workers: 3
  load: {tasks: {count: 10, work: {uniform: [0.5, 2.0]}}}
";

    fn workers(world: &World) -> usize {
        world.workers().len()
    }

    #[test]
    fn a_workload_runs_with_the_scheduler_unless_somebody_speaks_of_stealing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("work.csv");
        let table = "name,work,after,memory\na,1,,700\nb,2,a,\nc,1,,700\n";
        std::fs::write(&path, table).unwrap();
        let scenario = Scenario::find(path.to_str().unwrap(), Some(3)).unwrap();
        assert!(matches!(scenario.build(&[]).unwrap(), World::Fleet(_)));
        let with = |policy: &str| scenario.build(&Change::policy(policy).unwrap()).unwrap();
        assert_eq!(workers(&with("random+half")), 3);
        assert!(matches!(with("random+half"), World::Deque(_)));
        let World::Fleet(setup) = with("earliest_finish+costs=none+agents.0.memory=1000") else {
            panic!("a scheduler's word is for a scheduler");
        };
        let matching = setup.config.capabilities.matching_strategy;
        assert_eq!(matching, loxley_policy::Matching::EarliestFinish);
        let tasks = setup.tasks(&loxley_balance::Rng::new(1));
        let needs = (0..3).map(|task| tasks.spec(task).kind.needs.memory_bytes);
        assert_eq!(needs.sum::<u64>(), 1400, "memory is not dropped");
        assert!((0..3).all(|task| tasks.spec(task).cost.is_none()));
        // What is shown can be run.
        let shown = Scenario::parse("shown", scenario.text()).unwrap();
        assert_eq!(workers(&shown.build(&[]).unwrap()), 3);
    }

    #[test]
    fn changes_reach_the_world() {
        let scenario = Scenario::parse("basic", BASIC).unwrap();
        assert_eq!(workers(&scenario.build(&[]).unwrap()), 3);
        let change = Change::parse("workers=8").unwrap();
        assert_eq!(workers(&scenario.build(&[change]).unwrap()), 8);
        let policy = Change::policy("most_loaded+half+stealing.probes=2").unwrap();
        let World::Deque(setup) = scenario.build(&policy).unwrap() else {
            panic!("the scenario describes a deque world");
        };
        assert_eq!(setup.stealing.unwrap().probes, 2);
    }

    #[test]
    fn mistakes_point_at_their_line() {
        let unknown = BASIC.replace("workers", "wrokers");
        let error = Scenario::parse("x.yaml", &unknown).unwrap_err().to_string();
        assert!(
            error.starts_with("x.yaml: line 4 column 3: unknown field `wrokers`"),
            "{error}"
        );
        let scenario = Scenario::parse("basic", BASIC).unwrap();
        for (change, part) in [
            ("wrokers=8", "unknown field `wrokers`"),
            ("workers=many", "invalid type"),
            ("workers=0", "at least one"),
            ("about.x=1", "no keys"),
        ] {
            let change = Change::parse(change).unwrap();
            let error = scenario.build(&[change]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(
            Change::policy("fastest")
                .unwrap_err()
                .to_string()
                .contains("no policy")
        );
        assert!(Change::parse("workers").is_err());
    }
}
