//! The shape of a job, and the chain that decides when it is over.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
#[cfg(feature = "openapi")]
use loxley_api::ErrorBody;
use loxley_api::{
    ApiError, GraphNode, JobGraph, JobRequest, TaskCounts, TaskFilter, TaskInfo, TaskState, Work,
};
use loxley_model::{JobId, TaskId};

use super::extract::{Number, Refusal};
use crate::Context;

/// So many tasks are looked at one by one.
const TASKS_MAX: u64 = 20_000;

/// The graph of a job: what waits for what, where it stands, and the critical path.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/v1/jobs/{id}/graph", tag = "jobs",
    params(("id" = u64, Path, description = "Its number.")),
    responses(
        (status = 200, description = "As it is now.", body = JobGraph),
        (status = 404, description = "There is none.", body = ErrorBody),
    )
))]
pub(super) async fn graph(
    State(context): State<Context>,
    Number(id): Number,
) -> Result<Json<JobGraph>, Refusal> {
    let id = JobId(id);
    let job = context.handle.job(id).await?;
    let request = context.handle.job_request(id).await?;
    let mut nodes = nodes(&request, job.first_task);
    let tasks_counted = count(&context, id, &request, &mut nodes).await?;
    let critical_sec = mark_critical(&mut nodes);
    Ok(Json(JobGraph {
        job: id,
        nodes,
        tasks_counted,
        tasks_total: job.tasks.total,
        critical_sec,
    }))
}

/// The nodes as the request has them.
fn nodes(request: &JobRequest, first: TaskId) -> Vec<GraphNode> {
    let names = request.tasks.iter().enumerate();
    let places: HashMap<&str, usize> = names
        .filter_map(|(place, task)| Some((task.name.as_deref()?, place)))
        .collect();
    let mut next = first.0;
    let mut nodes = Vec::new();
    for task in &request.tasks {
        let before = task.depends_on.iter().chain(&task.depends_on_each);
        let mut after: Vec<usize> = before
            .filter_map(|name| places.get(name.as_str()).copied())
            .collect();
        after.sort_unstable();
        after.dedup();
        let name = task.name.clone().unwrap_or_else(|| match &task.run {
            Work::Command(command) => command.words.join(" "),
            Work::Function(function) => function.name.clone(),
        });
        nodes.push(GraphNode {
            is_array: task.entries.is_some(),
            after,
            expected_sec: task.cost_sec,
            ..GraphNode::new(name, TaskId(next))
        });
        next += task.count();
    }
    nodes
}

/// Counts where tasks are, node by node. Returns how many were looked at.
async fn count(
    context: &Context,
    id: JobId,
    request: &JobRequest,
    nodes: &mut [GraphNode],
) -> Result<u64, ApiError> {
    let mut filter = TaskFilter {
        limit: Some(1000),
        ..TaskFilter::default()
    };
    let mut counted = 0;
    loop {
        let page = context.handle.tasks(id, filter.clone()).await?;
        for task in &page.items {
            counted += 1;
            if let Some(place) = place_of(request, nodes, task) {
                add(&mut nodes[place], task);
            }
        }
        filter.from = page.next;
        if page.next.is_none() || counted >= TASKS_MAX {
            return Ok(counted);
        }
    }
}

/// Which node a task is of: by its number, or by its name when it was added later.
fn place_of(request: &JobRequest, nodes: &[GraphNode], task: &TaskInfo) -> Option<usize> {
    let after = nodes.partition_point(|node| node.first_task <= task.id);
    let place = after.checked_sub(1)?;
    if request.open && task.id.0 >= nodes[place].first_task.0 + request.tasks[place].count() {
        return nodes
            .iter()
            .position(|node| Some(&node.name) == task.name.as_ref());
    }
    Some(place)
}

fn add(node: &mut GraphNode, task: &TaskInfo) {
    let TaskCounts {
        total,
        pending,
        waiting,
        held,
        queued,
        running,
        started,
        succeeded,
        failed,
        cancelled,
    } = &mut node.tasks;
    *total += 1;
    *started += u64::from(task.state == TaskState::Running);
    *match task.state {
        TaskState::Pending => pending,
        TaskState::Waiting | TaskState::Backoff | TaskState::Standby | TaskState::Delegated => {
            waiting
        }
        TaskState::Held => held,
        TaskState::Queued => queued,
        TaskState::Assigned | TaskState::Running => running,
        TaskState::Succeeded => succeeded,
        TaskState::Failed => failed,
        TaskState::Cancelled => cancelled,
    } += 1;
    let ended = task.started_unix_ms.zip(task.ended_unix_ms);
    let took = task.last.as_ref().and_then(|last| last.usage);
    let took = took
        .map(|usage| usage.duration_sec)
        .or_else(|| ended.map(|(started, ended)| ended.saturating_sub(started) as f64 / 1000.0));
    if let Some(took) = took {
        node.longest_sec = Some(node.longest_sec.map_or(took, |longest| longest.max(took)));
    }
}

/// Marks the longest way through the job; returns how long it is. A node takes as long as its longest task took, or is
/// expected to; what nobody knows counts as the mean of what is known.
fn mark_critical(nodes: &mut [GraphNode]) -> f64 {
    let known: Vec<f64> = nodes.iter().filter_map(|node| node.longest_sec).collect();
    let mean = match known.is_empty() {
        true => 1.0,
        false => known.iter().sum::<f64>() / known.len() as f64,
    };
    let time = |node: &GraphNode| node.longest_sec.or(node.expected_sec).unwrap_or(mean);
    let Some(order) = in_order(nodes) else {
        return 0.0;
    };
    // How long it takes from the beginning of the job to the end of each node, at least, and through which.
    let mut ends: Vec<(f64, Option<usize>)> = vec![(0.0, None); nodes.len()];
    for &place in &order {
        let before = nodes[place].after.iter().copied();
        let last = before.max_by(|one, other| ends[*one].0.total_cmp(&ends[*other].0));
        let begins = last.map_or(0.0, |last| ends[last].0);
        ends[place] = (begins + time(&nodes[place]), last);
    }
    let last = (0..nodes.len()).max_by(|one, other| ends[*one].0.total_cmp(&ends[*other].0));
    let total = last.map_or(0.0, |last| ends[last].0);
    let mut next = last;
    while let Some(place) = next {
        nodes[place].is_critical = true;
        next = ends[place].1;
    }
    total
}

/// The nodes, each behind those that it waits for; none when they wait in a circle, which no job does.
fn in_order(nodes: &[GraphNode]) -> Option<Vec<usize>> {
    let mut missing: Vec<usize> = nodes.iter().map(|node| node.after.len()).collect();
    let mut behind = vec![Vec::new(); nodes.len()];
    for (place, node) in nodes.iter().enumerate() {
        node.after
            .iter()
            .for_each(|before| behind[*before].push(place));
    }
    let mut order: Vec<usize> = (0..nodes.len())
        .filter(|place| missing[*place] == 0)
        .collect();
    let mut next = 0;
    while let Some(&place) = order.get(next) {
        next += 1;
        for &later in &behind[place] {
            missing[later] -= 1;
            if missing[later] == 0 {
                order.push(later);
            }
        }
    }
    (order.len() == nodes.len()).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(after: &[usize], longest_sec: Option<f64>) -> GraphNode {
        GraphNode {
            after: after.to_vec(),
            longest_sec,
            ..GraphNode::new(String::new(), TaskId(1))
        }
    }

    #[test]
    fn the_critical_path_is_the_longest_way_through() {
        // 0 ─▶ 1 ─▶ 3,  0 ─▶ 2 ─▶ 3: 2 takes longer than 1.
        let mut nodes = [
            node(&[], Some(1.0)),
            node(&[0], Some(2.0)),
            node(&[0], Some(5.0)),
            node(&[1, 2], Some(1.0)),
            node(&[], Some(6.0)),
        ];
        assert_eq!(mark_critical(&mut nodes), 7.0);
        let critical: Vec<bool> = nodes.iter().map(|node| node.is_critical).collect();
        assert_eq!(critical, [true, false, true, true, false]);
    }

    #[test]
    fn what_nobody_knows_counts_as_the_mean() {
        let mut nodes = [node(&[], Some(4.0)), node(&[0], None), node(&[], Some(2.0))];
        assert_eq!(mark_critical(&mut nodes), 7.0);
        assert_eq!(mark_critical(&mut []), 0.0);
        let mut circle = [node(&[1], None), node(&[0], None)];
        assert_eq!(mark_critical(&mut circle), 0.0);
    }
}
