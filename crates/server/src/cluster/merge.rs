//! The answers of all shards, made into one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use loxley_api::{
    AgentInfo, AgentState, Event, Figures, FleetInfo, Health, JobInfo, Marks, Page, PruneReport,
    ServerInfo, Severity, TaskCounts,
};
use loxley_cluster::shard::ShardId;
use loxley_model::JobId;

/// Numbers within their shards, and the shard where those are equal: shards get about equally many jobs, so by this order
/// the newest come first, and a number says where the next part of a list begins in every shard.
fn order(job: JobId) -> (u64, u16) {
    let shard = ShardId::try_of(job.0).map_or(0, |shard| shard.0);
    (job.0 - ShardId(shard).number(0), shard)
}

/// Where the list of a shard goes on behind a job that may be of another shard: before this number.
pub(super) fn before(cursor: u64, shard: u16) -> u64 {
    let (local, of) = order(JobId(cursor));
    ShardId(shard).number(local + u64::from(shard < of))
}

/// The first of all lists; each may have more.
pub(super) fn jobs(pages: Vec<Page<JobInfo>>, limit: usize) -> Page<JobInfo> {
    let mut more = pages.iter().any(|page| page.next.is_some());
    let mut items: Vec<JobInfo> = pages.into_iter().flat_map(|page| page.items).collect();
    items.sort_unstable_by_key(|job| std::cmp::Reverse(order(job.id)));
    more |= items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|job| job.id.0);
    Page { items, next }
}

/// Each agent once, though it was with several shards: as the one knows it where it is, or was last.
pub(super) fn agents(lists: Vec<Vec<AgentInfo>>) -> Vec<AgentInfo> {
    let mut by_name: BTreeMap<String, AgentInfo> = BTreeMap::new();
    let rank = |agent: &AgentInfo| {
        let is_here = match agent.state {
            AgentState::Alive | AgentState::Draining | AgentState::Suspected => 2,
            AgentState::Lost => 1,
            AgentState::Left => 0,
        };
        (is_here, agent.heard_unix_ms)
    };
    for agent in lists.into_iter().flatten() {
        match by_name.get(&agent.name) {
            Some(known) if rank(known) >= rank(&agent) => {}
            _ => {
                by_name.insert(agent.name.clone(), agent);
            }
        }
    }
    let mut agents: Vec<AgentInfo> = by_name.into_values().collect();
    agents.sort_unstable_by_key(|agent| agent.id);
    agents
}

/// The worst first; each says of which shard it is.
pub(super) fn health(all: Vec<(u16, Health)>) -> Health {
    let mut merged = Health {
        ok: all.iter().all(|(_, health)| health.ok),
        problems: Vec::new(),
    };
    for (shard, health) in all {
        for mut problem in health.problems {
            problem.message = format!("shard {shard}: {}", problem.message);
            merged.problems.push(problem);
        }
    }
    let is_critical = |severity| severity == Severity::Critical;
    merged
        .problems
        .sort_by_key(|problem| !is_critical(problem.severity));
    merged
}

/// The instance that was asked, with the sums of all shards.
pub(super) fn server(all: Vec<ServerInfo>) -> Option<ServerInfo> {
    let fleet = fleet(all.iter().map(|one| &one.fleet).collect());
    let sum = |of: fn(&ServerInfo) -> u64| all.iter().map(of).sum();
    let (jobs_open, journal_position) = (sum(|one| one.jobs_open), sum(|one| one.journal_position));
    let draining = all.iter().any(|one| one.draining);
    let disk_full = all.iter().any(|one| one.disk_full);
    // Tables are shared: each shard says how large all of them are.
    let bytes = all.iter().map(|one| one.journal_bytes).max().unwrap_or(0);
    let first = all.into_iter().next()?;
    Some(ServerInfo {
        draining,
        jobs_open,
        journal_position,
        journal_bytes: bytes,
        disk_full,
        fleet,
        ..first
    })
}

fn fleet(all: Vec<&FleetInfo>) -> FleetInfo {
    let mut sum = FleetInfo::default();
    let (mut waited, mut histogram) = (0.0, BTreeMap::<u64, u64>::new());
    for one in &all {
        sum.total_steals += one.total_steals;
        sum.successful_steals += one.successful_steals;
        sum.failed_steals += one.failed_steals;
        sum.tasks_migrated += one.tasks_migrated;
        sum.rebalance_cycles += one.rebalance_cycles;
        sum.agent_count += one.agent_count;
        sum.total_queued += one.total_queued;
        sum.busy_agents += one.busy_agents;
        sum.idle_agents += one.idle_agents;
        sum.total_samples += one.total_samples;
        sum.waits_total += one.waits_total;
        sum.deadline_misses += one.deadline_misses;
        sum.retries += one.retries;
        sum.speculations += one.speculations;
        sum.speculations_won += one.speculations_won;
        sum.stale_answers += one.stale_answers;
        waited += one.avg_task_wait_time * one.waits_total as f64;
        // Bounds are positive, so their bits are in the order of their values.
        for (bound, count) in &one.wait_histogram {
            *histogram.entry(bound.to_bits()).or_default() += count;
        }
        add_counts(&mut sum.tasks, &one.tasks);
    }
    let share = |part: f64, all: u64| if all == 0 { 0.0 } else { part / all as f64 };
    sum.success_rate = share(sum.successful_steals as f64, sum.total_steals);
    sum.avg_task_wait_time = share(waited, sum.waits_total);
    let histogram = histogram.into_iter();
    sum.wait_histogram = histogram
        .map(|(bound, count)| (f64::from_bits(bound), count))
        .collect();
    sum
}

fn add_counts(sum: &mut TaskCounts, one: &TaskCounts) {
    sum.total += one.total;
    sum.pending += one.pending;
    sum.waiting += one.waiting;
    sum.held += one.held;
    sum.queued += one.queued;
    sum.running += one.running;
    sum.started += one.started;
    sum.succeeded += one.succeeded;
    sum.failed += one.failed;
    sum.cancelled += one.cancelled;
}

/// What can be added up. What cannot be had from the figures of parts (imbalance, percentiles) is absent.
pub(super) fn figures(all: Vec<Figures>) -> Figures {
    let mut sum = Figures::default();
    let (mut busy, mut stolen) = (0.0, None);
    let mut waits: BTreeMap<u8, u64> = BTreeMap::new();
    for one in all {
        if sum.balance.is_empty() {
            sum.balance = one.balance;
        }
        sum.window_sec = sum.window_sec.max(one.window_sec);
        sum.slots += one.slots;
        sum.idle_sec += one.idle_sec;
        sum.tasks_ended += one.tasks_ended;
        if let Some(rate) = one.tasks_per_sec {
            *sum.tasks_per_sec.get_or_insert(0.0) += rate;
        }
        busy += one.task_mean_sec.unwrap_or(0.0) * one.tasks_ended as f64;
        if let Some(count) = one.tasks_stolen {
            *stolen.get_or_insert(0) += count;
        }
        for wait in one.waits {
            *waits.entry(wait.priority).or_default() += wait.tasks;
        }
        for user in one.users {
            match sum.users.iter_mut().find(|known| known.user == user.user) {
                Some(known) => {
                    known.tasks += user.tasks;
                    known.busy_sec += user.busy_sec;
                    known.wait_mean_sec = None;
                }
                None => sum.users.push(user),
            }
        }
        sum.deadlines_met += one.deadlines_met;
        sum.deadlines_missed += one.deadlines_missed;
    }
    for figure in &mut sum.balance {
        figure.value = None;
        "unknown".clone_into(&mut figure.verdict);
    }
    sum.tasks_stolen = stolen;
    if sum.tasks_ended > 0 {
        sum.task_mean_sec = Some(busy / sum.tasks_ended as f64);
        sum.steal_rate = stolen.map(|stolen| stolen as f64 / sum.tasks_ended as f64);
    }
    let all_busy: f64 = sum.users.iter().map(|user| user.busy_sec).sum();
    for user in &mut sum.users {
        user.share = (all_busy > 0.0).then(|| user.busy_sec / all_busy);
    }
    sum.users
        .sort_by(|one, other| other.busy_sec.total_cmp(&one.busy_sec));
    let waits = waits.into_iter().rev();
    sum.waits = waits
        .map(|(priority, tasks)| loxley_api::PriorityWait {
            priority,
            tasks,
            p50_sec: None,
            p99_sec: None,
        })
        .collect();
    sum
}

/// In the order of their times.
pub(super) fn marks(all: Vec<Marks>) -> Marks {
    let mut items: Vec<Event> = Vec::new();
    let (mut since, mut missed) = (0, 0);
    for one in all {
        items.extend(one.items);
        since = since.max(one.since_unix_ms);
        missed += one.missed;
    }
    items.sort_by_key(|event| event.unix_ms);
    Marks {
        items,
        next: None,
        since_unix_ms: since,
        missed,
    }
}

pub(super) fn pruned(all: Vec<PruneReport>) -> PruneReport {
    let mut sum = PruneReport::default();
    for one in all {
        sum.jobs += one.jobs;
        sum.tasks += one.tasks;
        sum.groups += one.groups;
        sum.bytes += one.bytes;
        sum.more |= one.more;
    }
    sum
}

/// Pages of figures for Prometheus, each value with a label that says of which shard it is.
pub(super) fn metrics(pages: &[(u16, String)]) -> String {
    let mut families: Vec<(&str, String)> = Vec::new();
    for (shard, page) in pages {
        let mut family = "";
        for line in page.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                family = comment.split(' ').nth(1).unwrap_or_default();
            }
            let known = families.iter().position(|(name, _)| *name == family);
            let at = known.unwrap_or_else(|| {
                families.push((family, String::new()));
                families.len() - 1
            });
            let text = &mut families[at].1;
            match line.starts_with('#') {
                // What it is is said once.
                true if text.lines().any(|known| known == line) => {}
                true => {
                    let _ = writeln!(text, "{line}");
                }
                false => {
                    let _ = writeln!(text, "{}", labelled(line, *shard));
                }
            }
        }
    }
    families.into_iter().map(|(_, text)| text).collect()
}

fn labelled(line: &str, shard: u16) -> String {
    let end = line.find([' ', '{']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    match rest.strip_prefix('{') {
        Some(labels) => format!("{name}{{shard=\"{shard}\",{labels}"),
        None => format!("{name}{{shard=\"{shard}\"}}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_jobs_go_on_where_they_ended_and_leave_nothing_out() {
        // Three shards with different numbers of jobs, as a client pages through them.
        let counts = [7_u64, 3, 12];
        let id = |shard: u16, local| ShardId(shard).number(local);
        let mut seen = Vec::new();
        let mut cursor: Option<u64> = None;
        loop {
            let pages = counts.iter().zip(0_u16..).map(|(count, shard)| {
                let end = cursor.map_or(u64::MAX, |cursor| before(cursor, shard));
                let mut ids: Vec<u64> = (1..=*count).map(|local| id(shard, local)).collect();
                ids.retain(|id| *id < end);
                ids.reverse();
                let more = ids.len() > 4;
                ids.truncate(4);
                let next = ids.last().copied().filter(|_| more);
                Page {
                    items: ids.into_iter().map(job).collect(),
                    next,
                }
            });
            let page = jobs(pages.collect(), 4);
            seen.extend(page.items.iter().map(|job| job.id.0));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 22);
        let mut sorted = seen.clone();
        sorted.sort_unstable_by_key(|id| std::cmp::Reverse(order(JobId(*id))));
        assert_eq!(seen, sorted);
        sorted.dedup();
        assert_eq!(sorted.len(), 22);
    }

    fn job(id: u64) -> JobInfo {
        let job = serde_json::json!({
            "id": id, "user": "mia", "state": "open", "first_task": 1, "last_task": 1, "created_unix_ms": 0,
            "tasks": {"total": 1, "pending": 0, "waiting": 0, "held": 0, "queued": 0, "running": 1,
                "succeeded": 0, "failed": 0, "cancelled": 0},
        });
        serde_json::from_value(job).expect("a job")
    }

    #[test]
    fn figures_of_shards_stand_together_and_say_whose_they_are() {
        let page = |count| {
            format!(
                "# HELP a All.\n# TYPE a counter\na {count}\n# HELP b By.\n# TYPE b gauge\nb{{x=\"y\"}} 1\n"
            )
        };
        let merged = metrics(&[(0, page(1)), (1, page(2))]);
        assert_eq!(
            merged,
            "# HELP a All.\n# TYPE a counter\na{shard=\"0\"} 1\na{shard=\"1\"} 2\n\
             # HELP b By.\n# TYPE b gauge\nb{shard=\"0\",x=\"y\"} 1\nb{shard=\"1\",x=\"y\"} 1\n"
        );
    }
}
