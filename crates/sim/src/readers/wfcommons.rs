//! WfCommons workflows (WfFormat 1.5): executed scientific workflows as JSON.
//!
//! The graph stands under `workflow.specification` (task ids, parents, children), what happened
//! under `workflow.execution` (run times, memory, cores). A task without a run time is an error:
//! a made-up one would be a made-up result.

use std::collections::HashMap;

use serde::Deserialize;

use crate::readers::Malformed;
use crate::time::nanos;
use crate::workload::{TaskRecord, Workload, WorkloadBuilder};

#[derive(Deserialize)]
struct Instance {
    workflow: Workflow,
}

#[derive(Deserialize)]
struct Workflow {
    specification: Specification,
    execution: Execution,
}

#[derive(Deserialize)]
struct Specification {
    tasks: Vec<SpecifiedTask>,
}

#[derive(Deserialize)]
struct SpecifiedTask {
    id: String,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
}

#[derive(Deserialize)]
struct Execution {
    tasks: Vec<ExecutedTask>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecutedTask {
    id: String,
    runtime_in_seconds: f64,
    #[serde(default)]
    memory_in_bytes: Option<f64>,
}

/// Reads the text of a WfFormat file.
pub fn parse(text: &str) -> Result<Workload, Malformed> {
    let instance: Instance = serde_json::from_str(text).map_err(|error| {
        // serde_json ends its message with the place, which `Malformed` already says.
        let message = error.to_string();
        let reason = message.split(" at line ").next().unwrap_or(&message);
        Malformed::new(error.line().max(1) as u64, reason)
    })?;
    let workflow = instance.workflow;
    let problem = |task: &str, reason: String| Malformed::new(line_of(text, task), reason);
    let mut executed = HashMap::new();
    for task in &workflow.execution.tasks {
        if !(task.runtime_in_seconds.is_finite() && task.runtime_in_seconds >= 0.0) {
            let reason = format!("the run time of task `{}` is no duration", task.id);
            return Err(problem(&task.id, reason));
        }
        executed.insert(task.id.as_str(), task);
    }
    let mut builder = WorkloadBuilder::default();
    for task in &workflow.specification.tasks {
        let Some(run) = executed.get(task.id.as_str()) else {
            let reason = format!("task `{}` has no run time under execution", task.id);
            return Err(problem(&task.id, reason));
        };
        let mut record = TaskRecord::new(task.id.as_str(), nanos(run.runtime_in_seconds));
        record.memory = run.memory_in_bytes.unwrap_or(0.0).max(0.0) as u64;
        builder.add(record);
    }
    add_edges(&mut builder, &workflow.specification.tasks).map_err(|(task, missing)| {
        let reason = format!("task `{task}` names `{missing}`, which is not in the file");
        problem(&task, reason)
    })?;
    builder
        .build()
        .map_err(|error| Malformed::of_graph(&error, 1))
}

/// Both directions are read: some files give only one of them.
fn add_edges(
    builder: &mut WorkloadBuilder,
    tasks: &[SpecifiedTask],
) -> Result<(), (String, String)> {
    let index: HashMap<&str, u32> = tasks.iter().map(|task| task.id.as_str()).zip(0..).collect();
    let find = |task: &SpecifiedTask, other: &String| {
        index
            .get(other.as_str())
            .copied()
            .ok_or_else(|| (task.id.clone(), other.clone()))
    };
    for (task, number) in tasks.iter().zip(0..) {
        for parent in &task.parents {
            builder.edge(find(task, parent)?, number);
        }
        for child in &task.children {
            builder.edge(number, find(task, child)?);
        }
    }
    Ok(())
}

/// The line on which the id of a task first stands.
fn line_of(text: &str, task: &str) -> u64 {
    let quoted = format!("\"{task}\"");
    let before = text.find(&quoted).map_or("", |position| &text[..position]);
    before.lines().count().max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::time::SECOND;

    fn instance(specification: &str, execution: &str) -> String {
        format!(
            "{{\"schemaVersion\": \"1.5\",\n\"workflow\": {{\n\"specification\": {{\"tasks\": [\n\
             {specification}\n]}},\n\"execution\": {{\"tasks\": [\n{execution}\n]}}}}}}"
        )
    }

    #[test]
    fn edges_of_either_direction() {
        let text = instance(
            "{\"id\": \"a\", \"children\": [\"b\"]},\n{\"id\": \"b\"},\n{\"id\": \"c\", \"parents\": [\"a\"]}",
            "{\"id\": \"a\", \"runtimeInSeconds\": 1},\n{\"id\": \"b\", \"runtimeInSeconds\": 2.5},\n\
             {\"id\": \"c\", \"runtimeInSeconds\": 2, \"memoryInBytes\": 7}",
        );
        let workload = parse(&text).unwrap();
        assert_eq!(workload.successors(0), [1, 2]);
        assert_eq!(workload.critical_path(), 7 * SECOND / 2);
        assert_eq!(workload.tasks()[2].memory, 7);
    }

    #[test]
    fn mistakes_name_their_line() {
        let no_time = instance(
            "{\"id\": \"a\"},\n{\"id\": \"b\"}",
            "{\"id\": \"a\", \"runtimeInSeconds\": 1}",
        );
        let error = parse(&no_time).unwrap_err().to_string();
        assert_eq!(error, "5: task `b` has no run time under execution");
        let bad_edge = instance(
            "{\"id\": \"a\", \"parents\": [\"z\"]}",
            "{\"id\": \"a\", \"runtimeInSeconds\": 1}",
        );
        let error = parse(&bad_edge).unwrap_err().to_string();
        assert_eq!(error, "4: task `a` names `z`, which is not in the file");
        let not_json = parse("{\n\"workflow\": 3}").unwrap_err();
        assert_eq!(not_json.line, 2);
        assert!(not_json.reason.contains("invalid type"), "{not_json}");
    }
}
