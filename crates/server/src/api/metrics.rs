//! The figures in the text format of Prometheus.

use std::fmt::{self, Write};

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use loxley_api::{AgentInfo, AgentState, BalanceFigure, Figures, FleetInfo, ServerInfo};

use super::extract::Refusal;
use crate::Context;
use crate::decider::CommitTimes;

/// The figures in the text format of Prometheus.
#[cfg_attr(feature = "openapi", utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "Version 0.0.4 of the format.", content_type = "text/plain", body = String))
))]
pub(super) async fn metrics(State(context): State<Context>) -> Result<impl IntoResponse, Refusal> {
    let fleet = context.handle.fleet().await?;
    let agents = context.handle.agents().await?;
    let mut page = Page::default();
    page.fleet(&fleet);
    page.figures(&context.handle.figures().await?);
    page.agents(&agents);
    page.gauge(
        "loxley_jobs_open",
        "Jobs that are not over",
        context.handle.open_jobs().await?,
    );
    page.counter(
        "loxley_journal_groups_total",
        "Groups of facts that are on disk",
        context.handle.journal_position(),
    );
    page.gauge(
        "loxley_journal_commit_seconds",
        "How long a write to the journal takes at present",
        context.handle.commit_ns() as f64 / 1e9,
    );
    page.commits(&context.handle.commit_times());
    // A journal that is elsewhere has no files here.
    let bytes = context.journal_bytes().await;
    if bytes > 0 {
        let help = "What the journal takes on disk";
        page.gauge("loxley_journal_bytes", help, bytes);
    }
    page.server(&context.info().await?);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], page.text))
}

/// A figure of each agent: its name, what it is, its kind, and how to come by it.
type Column = (
    &'static str,
    &'static str,
    &'static str,
    fn(&AgentInfo) -> f64,
);

/// A page while it is written.
#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    fn fleet(&mut self, fleet: &FleetInfo) {
        let tasks = &fleet.tasks;
        self.head("loxley_tasks", "Tasks by state", "gauge");
        for (state, count) in [
            ("pending", tasks.pending),
            ("waiting", tasks.waiting),
            ("held", tasks.held),
            ("queued", tasks.queued),
            ("running", tasks.running),
        ] {
            self.value("loxley_tasks", &[("state", state)], count);
        }
        self.head(
            "loxley_tasks_ended_total",
            "Tasks that are over, by how",
            "counter",
        );
        for (state, count) in [
            ("succeeded", tasks.succeeded),
            ("failed", tasks.failed),
            ("cancelled", tasks.cancelled),
        ] {
            self.value("loxley_tasks_ended_total", &[("state", state)], count);
        }
        self.head(
            "loxley_steals_total",
            "Attempts to steal, by result",
            "counter",
        );
        for (result, count) in [
            ("success", fleet.successful_steals),
            ("failure", fleet.failed_steals),
        ] {
            self.value("loxley_steals_total", &[("result", result)], count);
        }
        for (name, help, value) in [
            (
                "loxley_tasks_migrated_total",
                "Tasks that moved between agents",
                fleet.tasks_migrated,
            ),
            (
                "loxley_rebalance_cycles_total",
                "Rebalancing passes that found the fleet out of balance",
                fleet.rebalance_cycles,
            ),
            (
                "loxley_deadline_misses_total",
                "Deadlines that were missed",
                fleet.deadline_misses,
            ),
            (
                "loxley_retries_total",
                "Attempts that were tried again",
                fleet.retries,
            ),
            (
                "loxley_speculations_total",
                "Second copies that were started",
                fleet.speculations,
            ),
            (
                "loxley_speculations_won_total",
                "Second copies that were first",
                fleet.speculations_won,
            ),
            (
                "loxley_stale_answers_total",
                "Answers to leases no longer in force",
                fleet.stale_answers,
            ),
        ] {
            self.counter(name, help, value);
        }
        self.gauge("loxley_agents", "Registered agents", fleet.agent_count);
        self.gauge(
            "loxley_agents_busy",
            "Agents with more queued than busy_threshold",
            fleet.busy_agents,
        );
        self.gauge(
            "loxley_agents_idle",
            "Agents with less queued than idle_threshold",
            fleet.idle_agents,
        );
        self.waits(fleet);
    }

    /// How balanced the fleet was in the last five to ten minutes. What is unknown has no line.
    fn figures(&mut self, figures: &Figures) {
        let name = "loxley_balance";
        self.head(name, "Balance of the last minutes, by figure", "gauge");
        let known = |figure: &&BalanceFigure| figure.value.is_some();
        for figure in figures.balance.iter().filter(known) {
            let value = figure.value.unwrap_or_default();
            self.value(name, &[("figure", &word(&figure.name))], value);
        }
        let name = "loxley_balance_target";
        self.head(
            name,
            "What each figure of the balance should reach",
            "gauge",
        );
        for figure in &figures.balance {
            let side = if figure.is_above { "above" } else { "below" };
            let labels = [("figure", word(&figure.name)), ("side", side.to_owned())];
            let labels = labels
                .each_ref()
                .map(|(label, value)| (*label, value.as_str()));
            self.value(name, &labels, figure.target);
        }
        let name = "loxley_balance_met";
        self.head(
            name,
            "Whether each figure reaches its target; absent where there is too little to judge",
            "gauge",
        );
        for figure in &figures.balance {
            let met = match figure.verdict.as_str() {
                "met" => 1,
                "missed" => 0,
                _ => continue,
            };
            self.value(name, &[("figure", &word(&figure.name))], met);
        }
        let name = "loxley_assign_seconds";
        self.head(
            name,
            "From being ready to being given to an agent, in the last minutes",
            "summary",
        );
        for (quantile, value) in [
            ("0.5", figures.assign_p50_sec),
            ("0.99", figures.assign_p99_sec),
        ] {
            if let Some(value) = value {
                self.value(name, &[("quantile", quantile)], value);
            }
        }
        let name = "loxley_priority_assign_seconds";
        self.head(
            name,
            "From being ready to being given to an agent by priority, in the last minutes",
            "summary",
        );
        for waits in &figures.waits {
            let priority = waits.priority.to_string();
            for (quantile, value) in [("0.5", waits.p50_sec), ("0.99", waits.p99_sec)] {
                if let Some(value) = value {
                    let labels = [("priority", &*priority), ("quantile", quantile)];
                    self.value(name, &labels, value);
                }
            }
            let count = format!("{name}_count");
            self.value(&count, &[("priority", &priority)], waits.tasks);
        }
        let name = "loxley_user_busy_slot_seconds";
        self.head(
            name,
            "For how long slots were busy with a user's attempts that ended in the last minutes",
            "gauge",
        );
        for share in &figures.users {
            self.value(name, &[("user", &share.user)], share.busy_sec);
        }
        let name = "loxley_deadlines";
        self.head(
            name,
            "Tasks with a deadline that ended in the last minutes, by whether it was met",
            "gauge",
        );
        for (result, count) in [
            ("met", figures.deadlines_met),
            ("missed", figures.deadlines_missed),
        ] {
            self.value(name, &[("result", result)], count);
        }
        for (name, help, value) in [
            (
                "loxley_figures_window_seconds",
                "Of how long the figures of the last minutes are",
                Some(figures.window_sec),
            ),
            (
                "loxley_idle_slot_seconds",
                "For how long slots stood idle in the last minutes, all together",
                Some(figures.idle_sec),
            ),
            (
                "loxley_completion_rate",
                "Tasks that ended, for each second of the last minutes",
                figures.tasks_per_sec,
            ),
            (
                "loxley_task_mean_seconds",
                "How long tasks ran on average in the last minutes",
                figures.task_mean_sec,
            ),
            (
                "loxley_steal_rate",
                "Tasks that an idle agent took, for each that ended in the last minutes",
                figures.steal_rate,
            ),
            (
                "loxley_steal_mean_seconds",
                "From asking for a task to having it, on average in the last minutes",
                figures.steal_mean_sec,
            ),
        ] {
            if let Some(value) = value {
                self.gauge(name, help, value);
            }
        }
    }

    fn server(&mut self, server: &ServerInfo) {
        let name = "loxley_build_info";
        self.head(name, "The version of the program", "gauge");
        self.value(name, &[("version", &server.version)], 1);
        self.gauge(
            "loxley_start_time_seconds",
            "When the server started, in seconds since 1970",
            server.started_unix_ms as f64 / 1000.0,
        );
    }

    /// How long writes to the journal took, as a histogram.
    fn commits(&mut self, times: &CommitTimes) {
        let name = "loxley_journal_commit_duration_seconds";
        self.head(name, "How long writes to the journal took", "histogram");
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, count) in CommitTimes::BOUNDS_SEC.iter().zip(times.counts) {
            below += count;
            self.value(&bucket, &[("le", &bound.to_string())], below);
        }
        let all: u64 = times.counts.iter().sum();
        self.value(&bucket, &[("le", "+Inf")], all);
        self.value(&format!("{name}_sum"), &[], times.sum_ns as f64 / 1e9);
        self.value(&format!("{name}_count"), &[], all);
    }

    /// From queued to started, as a histogram.
    fn waits(&mut self, fleet: &FleetInfo) {
        let name = "loxley_task_wait_seconds";
        self.head(name, "From being queued to being started", "histogram");
        let bucket = format!("{name}_bucket");
        for (bound, count) in &fleet.wait_histogram {
            self.value(&bucket, &[("le", &bound.to_string())], count);
        }
        self.value(&bucket, &[("le", "+Inf")], fleet.waits_total);
        let sum = fleet.avg_task_wait_time * fleet.waits_total as f64;
        self.value(&format!("{name}_sum"), &[], sum);
        self.value(&format!("{name}_count"), &[], fleet.waits_total);
    }

    fn agents(&mut self, agents: &[AgentInfo]) {
        let name = "loxley_agents_by_state";
        self.head(
            name,
            "Agents that are here or were in the last day",
            "gauge",
        );
        for state in AgentState::ALL {
            let count = agents.iter().filter(|agent| agent.state == state).count();
            self.value(name, &[("state", state.name())], count);
        }
        self.vitals(agents);
        let columns: [Column; 9] = [
            (
                "loxley_agent_speed",
                "The speed of an agent as learned; 1 runs a task in its expected cost",
                "gauge",
                |agent| agent.speed,
            ),
            (
                "loxley_agent_throttle_ratio",
                "How much an agent says it is slowed down",
                "gauge",
                |agent| agent.throttle,
            ),
            (
                "loxley_agent_round_trip_seconds",
                "The round trip to an agent",
                "gauge",
                |agent| agent.round_trip_sec.unwrap_or_default(),
            ),
            (
                "loxley_agent_queue_length",
                "Tasks on an agent's queue",
                "gauge",
                |agent| agent.queue_length as f64,
            ),
            (
                "loxley_agent_running",
                "Tasks that run on an agent",
                "gauge",
                |agent| agent.started as f64,
            ),
            (
                "loxley_agent_slots",
                "Tasks that an agent runs at once",
                "gauge",
                |agent| f64::from(agent.slots),
            ),
            (
                "loxley_agent_completed_total",
                "Tasks that an agent completed",
                "counter",
                |agent| agent.total_completed as f64,
            ),
            (
                "loxley_agent_failed_total",
                "Tasks that an agent failed",
                "counter",
                |agent| agent.total_failed as f64,
            ),
            (
                "loxley_agent_success_ratio",
                "Successes over outcomes",
                "gauge",
                |agent| agent.success_rate,
            ),
        ];
        for (name, help, kind, value) in columns {
            self.head(name, help, kind);
            for agent in agents {
                self.value(name, &[("agent", &agent.name)], value(agent));
            }
        }
    }

    /// What agents say of their machines. What one does not say has no line.
    fn vitals(&mut self, agents: &[AgentInfo]) {
        for (vital, name, help) in [
            (
                "load",
                "loxley_agent_load",
                "The load average of an agent's machine",
            ),
            (
                "memory_available_bytes",
                "loxley_agent_memory_available_bytes",
                "Memory that an agent's machine has left",
            ),
            (
                "cpu_pressure",
                "loxley_agent_cpu_pressure_ratio",
                "The share of time in which something waited for a processor of an agent's machine",
            ),
            (
                "memory_pressure",
                "loxley_agent_memory_pressure_ratio",
                "The share of time in which something waited for memory of an agent's machine",
            ),
            (
                "io_pressure",
                "loxley_agent_io_pressure_ratio",
                "The share of time in which something waited for a disk of an agent's machine",
            ),
            (
                "context_switches_per_sec",
                "loxley_agent_context_switches_per_second",
                "Context switches of an agent's machine",
            ),
            (
                "temperature_celsius",
                "loxley_agent_temperature_celsius",
                "The hottest sensor of an agent's machine",
            ),
            (
                "power_watts",
                "loxley_agent_power_watts",
                "What the processors of an agent's machine draw, by RAPL",
            ),
            (
                "cache_misses_per_sec",
                "loxley_agent_cache_misses_per_second",
                "Cache misses of an agent and all that it runs, in user mode",
            ),
            (
                "memory_bytes_per_sec",
                "loxley_agent_memory_bytes_per_second",
                "What the memory controllers of an agent's machine move",
            ),
        ] {
            self.head(name, help, "gauge");
            for agent in agents {
                if let Some(value) = agent.vitals.get(vital) {
                    self.value(name, &[("agent", &agent.name)], value);
                }
            }
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: impl fmt::Display) {
        self.head(name, help, "counter");
        self.value(name, &[], value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl fmt::Display) {
        self.head(name, help, "gauge");
        self.value(name, &[], value);
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.write(format_args!(
            "# HELP {name} {help}.\n# TYPE {name} {kind}\n"
        ));
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
            .collect();
        match labels.as_slice() {
            [] => self.write(format_args!("{name} {value}\n")),
            labels => self.write(format_args!("{name}{{{}}} {value}\n", labels.join(","))),
        }
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("memory takes every line");
    }
}

/// The name of a figure as one word.
fn word(name: &str) -> String {
    name.replace([' ', '-'], "_")
}

/// Names come from outside; a quote in one must not end the label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_label() {
        let mut page = Page::default();
        page.value("x", &[("agent", "a\"} 7\n# \\")], 1);
        assert_eq!(page.text, "x{agent=\"a\\\"} 7\\n# \\\\\"} 1\n");
    }

    #[test]
    fn a_histogram_ends_with_everything() {
        let mut page = Page::default();
        page.waits(&FleetInfo {
            wait_histogram: vec![(0.1, 3), (1.0, 5)],
            waits_total: 6,
            avg_task_wait_time: 0.5,
            ..FleetInfo::default()
        });
        let lines: Vec<&str> = page.text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "loxley_task_wait_seconds_bucket{le=\"0.1\"} 3",
                "loxley_task_wait_seconds_bucket{le=\"1\"} 5",
                "loxley_task_wait_seconds_bucket{le=\"+Inf\"} 6",
                "loxley_task_wait_seconds_sum 3",
                "loxley_task_wait_seconds_count 6",
            ]
        );
    }
}
