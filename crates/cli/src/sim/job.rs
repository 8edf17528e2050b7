//! Job files in virtual time: the file that `loxley run` and `loxley submit` take, with what nobody can know of its
//! commands said on the command line or assumed.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use loxley_driver::Directory;
use loxley_engine::core_view;
use loxley_jobfile::{AgentDef, JobFile, Plan, amount};
use loxley_model::TaskId;
use loxley_sim::Scenario;
use loxley_sim::fleet::{Behaviour, FleetTasks};
use loxley_sim::scenario::{JobLoad, JobSource};
use loxley_sim::time::{Nanos, SECOND, nanos};
use serde_json::{Value, json};

use super::Args;
use crate::run::job;

/// How long a task takes of which nobody says anything.
const ASSUMED: Nanos = SECOND;

/// A scenario out of a job file, if the file is one.
pub(super) fn scenario(args: &Args) -> Result<Option<Scenario>> {
    let path = Path::new(&args.scenario);
    let is_yaml = path
        .extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml");
    if !is_yaml || !path.exists() {
        return Ok(None);
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // What is no YAML at all is for whoever reads scenarios to complain of.
    let Some(tree) = loxley_sim::scenario::tree_of(&text) else {
        return Ok(None);
    };
    if tree.get("tasks").is_none() || tree.get("fleet").is_some() || tree.get("deque").is_some() {
        return Ok(None);
    }
    let file = loxley_jobfile::read(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .map_err(|mistakes| anyhow::Error::msg(mistakes.in_file(&path.display().to_string())))?;
    let slots = args.workers.unwrap_or_else(|| job::cores() as u32);
    let agents = job::agents_of(&file, slots);
    let name = file.request.name.clone();
    let name = name.unwrap_or_else(|| args.scenario.clone());
    let scenario = json!({
        "about": format!("The job {name}"),
        "look_for": "how long it takes, and who waits for whom",
        "fleet": {
            "agents": agents.iter().map(section).collect::<Vec<_>>(),
            "load_balancing": tree.get("load_balancing").cloned().unwrap_or_else(as_run_decides),
        },
    });
    let job = Job::new(file, args)?;
    Ok(Some(Scenario::of_job(
        &name,
        &scenario.to_string(),
        Arc::new(job),
    )?))
}

/// What `loxley run` changes of the defaults where a file does not say how to decide.
fn as_run_decides() -> Value {
    json!({"work_stealing": {"prefer_recent_tasks": false}})
}

/// An agent of a file as scenarios describe one.
fn section(agent: &AgentDef) -> Value {
    json!({
        "name": agent.name,
        "skills": agent.skills,
        "slots": agent.slots,
        "speed": agent.speed,
        "cpus": agent.has.cpus,
        "memory": agent.has.memory_bytes,
        "resources": agent.has.named,
    })
}

/// A job file, and what its commands do.
#[derive(Debug)]
struct Job {
    file: JobFile,
    work: Vec<Nanos>,
    behaviours: Vec<Behaviour>,
}

impl Job {
    fn new(file: JobFile, args: &Args) -> Result<Self> {
        let plan = Plan::new(&file.request, TaskId(1));
        let mut titles = Vec::new();
        let (mut work, mut behaviours) = (Vec::new(), Vec::new());
        for number in 1..=file.count() {
            let planned = plan.find(TaskId(number)).expect("all are numbered");
            let task = &file.request.tasks[planned.definition];
            titles.push([task.name.clone().unwrap_or_default(), file.title(planned)]);
            work.push(task.cost_sec.map_or(ASSUMED, nanos));
            behaviours.push(Behaviour {
                failures: 0,
                time_limit: task.time_limit_sec.map(nanos),
            });
        }
        let mut job = Self {
            file,
            work,
            behaviours,
        };
        for said in &args.takes {
            let (places, value) = places_of(&titles, "--takes", said)?;
            let takes = amount::duration(value)
                .map_err(|problem| anyhow::anyhow!("--takes {said}: {problem}"))?;
            for place in places {
                job.work[place] = takes.as_nanos() as Nanos;
            }
        }
        for said in &args.fails {
            let (places, value) = places_of(&titles, "--fails", said)?;
            let failures = value.parse().with_context(|| format!("--fails {said}"))?;
            for place in places {
                job.behaviours[place].failures = failures;
            }
        }
        Ok(job)
    }
}

/// The tasks that `NAME=VALUE` is about, by the name of a task or an array, or by name and entry.
fn places_of<'a>(
    titles: &[[String; 2]],
    option: &str,
    said: &'a str,
) -> Result<(Vec<usize>, &'a str)> {
    let (name, value) = said
        .rsplit_once('=')
        .with_context(|| format!("{option} {said}: expected NAME=VALUE"))?;
    let places = titles.iter().enumerate();
    let places = places.filter(|(_, titles)| titles.iter().any(|title| title == name));
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    anyhow::ensure!(
        !places.is_empty(),
        "{option} {said}: the file has no task `{name}`"
    );
    Ok((places, value))
}

impl JobSource for Job {
    fn load(&self, names: &mut Directory) -> Result<JobLoad, String> {
        let view = core_view(&self.file.request, names).map_err(|error| error.to_string())?;
        Ok(JobLoad {
            tasks: FleetTasks::of_job(
                view.job,
                view.tasks,
                self.work.clone(),
                self.behaviours.clone(),
            ),
            limits: view.limits,
        })
    }
}
