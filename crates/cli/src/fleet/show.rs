//! What jobs, tasks, agents and servers look like to people.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loxley_api::{
    AgentInfo, AttemptInfo, Explanation, Health, JobInfo, Needs, ServerInfo, Severity, TaskCounts,
    TaskInfo,
};

use super::table::{Table, pairs, printable};

pub(super) fn jobs(out: &mut dyn Write, jobs: &[JobInfo]) -> io::Result<()> {
    let mut table = Table::new(["job", "name", "state", "tasks", "done", "failed", "age"]);
    for job in jobs {
        table.row([
            job.id.0.to_string(),
            job.name.clone().unwrap_or_default(),
            job.state.name().to_owned(),
            job.tasks.total.to_string(),
            job.tasks.over().to_string(),
            job.tasks.failed.to_string(),
            ago(Some(job.created_unix_ms)),
        ]);
    }
    table.print(out)
}

fn state_of(job: &JobInfo) -> String {
    match job.open {
        true => format!("{}, takes more entries", job.state.name()),
        false => job.state.name().to_owned(),
    }
}

pub(super) fn job(out: &mut dyn Write, job: &JobInfo) -> io::Result<()> {
    let first = job.first_task.0;
    let last = job.last_task.0;
    let after: Vec<String> = job.after.iter().map(|job| job.0.to_string()).collect();
    pairs(
        out,
        &[
            ("job", job.id.0.to_string()),
            ("name", job.name.clone().unwrap_or_default()),
            ("user", job.user.clone()),
            ("state", state_of(job)),
            ("tasks", tally(&job.tasks)),
            ("ids", format!("{first}-{last}")),
            ("after", after.join(",")),
            ("accepted", with_ago(Some(job.created_unix_ms))),
            ("ended", with_ago(job.ended_unix_ms)),
            (
                "took",
                took(Some(job.created_unix_ms), job.ended_unix_ms).unwrap_or_default(),
            ),
        ],
    )
}

/// `1000: 998 succeeded, 2 failed`.
pub(super) fn tally(counts: &TaskCounts) -> String {
    format!("{}: {}", counts.total, parts(counts))
}

/// `998 succeeded, 2 failed`.
pub(super) fn parts(counts: &TaskCounts) -> String {
    let parts = [
        (counts.pending, "pending"),
        (counts.waiting, "waiting"),
        (counts.held, "held"),
        (counts.not_started(), "queued"),
        (counts.started, "running"),
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    parts.join(", ")
}

pub(super) fn tasks(out: &mut dyn Write, tasks: &[TaskInfo]) -> io::Result<()> {
    let mut table = Table::new(["task", "job", "state", "agent", "attempts", "end", "does"]);
    for task in tasks {
        table.row([
            task.id.0.to_string(),
            task.job.0.to_string(),
            task.state.name().to_owned(),
            task.agent.clone().unwrap_or_default(),
            task.attempts.to_string(),
            task.last.as_ref().map(end).unwrap_or_default(),
            does(task),
        ]);
    }
    table.print(out)
}

pub(super) fn task(out: &mut dyn Write, task: &TaskInfo) -> io::Result<()> {
    let last = task.last.clone().unwrap_or_default();
    let usage = last.usage;
    pairs(
        out,
        &[
            ("task", task.id.0.to_string()),
            ("job", task.job.0.to_string()),
            ("name", task.name.clone().unwrap_or_default()),
            ("does", task.does.join(" ")),
            ("entry", task.entry.clone().unwrap_or_default()),
            ("state", task.state.name().to_owned()),
            ("priority", task.priority.to_string()),
            ("agent", task.agent.clone().unwrap_or_default()),
            ("attempts", task.attempts.to_string()),
            ("moves", task.moves.to_string()),
            ("accepted", with_ago(Some(task.created_unix_ms))),
            ("started", with_ago(task.started_unix_ms)),
            ("ended", with_ago(task.ended_unix_ms)),
            ("deadline", with_ago(task.deadline_unix_ms)),
            ("end", end(&last)),
            ("message", last.message.clone().unwrap_or_default()),
            (
                "ran",
                usage.map_or_else(String::new, |usage| span(usage.duration_sec)),
            ),
            (
                "processor",
                usage.map_or_else(String::new, |usage| span(usage.user_sec + usage.system_sec)),
            ),
            (
                "memory",
                usage.map_or_else(String::new, |usage| size(usage.memory_max_bytes)),
            ),
        ],
    )
}

/// `exit 3`, `signal 9`, `time_limit`.
fn end(attempt: &AttemptInfo) -> String {
    match attempt {
        AttemptInfo {
            signal: Some(signal),
            ..
        } => format!("signal {signal}"),
        AttemptInfo {
            exit_code: Some(code),
            ..
        } if *code != 0 => format!("exit {code}"),
        AttemptInfo { failure, .. } => failure.clone().unwrap_or_default(),
    }
}

/// What a task does, short enough for a table.
fn does(task: &TaskInfo) -> String {
    const LETTERS_MAX: usize = 60;
    let line = task.does.join(" ");
    if line.chars().count() <= LETTERS_MAX {
        return line;
    }
    line.chars().take(LETTERS_MAX - 1).chain(['…']).collect()
}

pub(super) fn explanation(out: &mut dyn Write, explanation: &Explanation) -> io::Result<()> {
    let (task, place) = (explanation.task.0, &explanation.place);
    writeln!(out, "task {task} {}", printable(place))?;
    let why = match explanation.state.is_over() {
        true => "why",
        false => "why it does not run",
    };
    for (title, lines) in [
        (why, &explanation.obstacles),
        ("what would help", &explanation.remedies),
    ] {
        if !lines.is_empty() {
            writeln!(out, "{title}:")?;
        }
        for line in lines {
            writeln!(out, "  - {}", printable(line))?;
        }
    }
    Ok(())
}

pub(super) fn agents(out: &mut dyn Write, agents: &[AgentInfo]) -> io::Result<()> {
    let mut table = Table::new([
        "agent", "name", "state", "slots", "running", "queued", "done", "failed", "skills",
    ]);
    for agent in agents {
        table.row([
            agent.id.0.to_string(),
            agent.name.clone(),
            agent.state.name().to_owned(),
            agent.slots.to_string(),
            agent.running.len().to_string(),
            agent.queue_length.to_string(),
            agent.total_completed.to_string(),
            agent.total_failed.to_string(),
            agent.capabilities.join(","),
        ]);
    }
    table.print(out)
}

pub(super) fn agent(out: &mut dyn Write, agent: &AgentInfo) -> io::Result<()> {
    let running: Vec<String> = agent
        .running
        .iter()
        .map(|task| task.0.to_string())
        .collect();
    let vitals = agent.vitals.iter();
    let vitals: Vec<String> = vitals
        .map(|(name, value)| format!("{name} {value:.2}"))
        .collect();
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let kinds = agent.kinds.iter().map(|kind| {
        let success = percent(kind.success_rate);
        format!("{}: success {success}, speed {:.2}", kind.kind, kind.speed)
    });
    let kinds: Vec<String> = kinds.collect();
    pairs(
        out,
        &[
            ("agent", agent.id.0.to_string()),
            ("name", agent.name.clone()),
            ("state", agent.state.name().to_owned()),
            ("registered", format!("{} times", agent.incarnation)),
            ("skills", agent.capabilities.join(",")),
            ("suspended", agent.suspended.join(",")),
            ("earned", agent.earned.join(",")),
            ("slots", agent.slots.to_string()),
            ("has", needs(&agent.resources)),
            ("zone", agent.zone.clone().unwrap_or_default()),
            ("speed", format!("{:.2}", agent.speed)),
            ("at kinds", kinds.join("; ")),
            ("queued", agent.queue_length.to_string()),
            ("running", running.join(",")),
            ("completed", agent.total_completed.to_string()),
            ("failed", agent.total_failed.to_string()),
            ("success", percent(agent.success_rate)),
            ("throttled", percent(agent.throttle)),
            (
                "round trip",
                agent.round_trip_sec.map(span).unwrap_or_default(),
            ),
            ("vitals", vitals.join(", ")),
            ("notes", agent.notes.join("; ")),
            ("heard", with_ago(agent.heard_unix_ms)),
        ],
    )
}

fn needs(needs: &Needs) -> String {
    let cpus = (needs.cpus > 0.0).then(|| format!("cpus {}", needs.cpus));
    let memory = (needs.memory_bytes > 0).then(|| format!("memory {}", size(needs.memory_bytes)));
    let named = needs
        .named
        .iter()
        .map(|(name, amount)| format!("{name} {amount}"));
    let parts: Vec<String> = cpus.into_iter().chain(memory).chain(named).collect();
    parts.join(", ")
}

pub(super) fn server(out: &mut dyn Write, server: &ServerInfo) -> io::Result<()> {
    let fleet = &server.fleet;
    let state = if server.draining { "draining" } else { "open" };
    let steals = format!(
        "{} of {} succeeded",
        fleet.successful_steals, fleet.total_steals
    );
    pairs(
        out,
        &[
            ("server", server.url.clone()),
            ("state", state.to_owned()),
            ("version", server.version.clone()),
            ("process", server.pid.to_string()),
            ("directory", server.directory.clone()),
            ("started", with_ago(Some(server.started_unix_ms))),
            ("agents", fleet.agent_count.to_string()),
            ("open jobs", server.jobs_open.to_string()),
            ("tasks", tally(&fleet.tasks)),
            ("steals", steals),
            ("migrated", fleet.tasks_migrated.to_string()),
            (
                "waited",
                format!("{} on average", span(fleet.avg_task_wait_time)),
            ),
            ("journal", journal(server)),
        ],
    )
}

fn journal(server: &ServerInfo) -> String {
    let full = match server.disk_full {
        true => "; its disk is full: no more jobs are taken until there is room",
        false => "",
    };
    format!(
        "group {}, {} bytes{full}",
        server.journal_position, server.journal_bytes
    )
}

pub(super) fn health(out: &mut dyn Write, health: &Health) -> io::Result<()> {
    if health.problems.is_empty() {
        return writeln!(out, "nothing is wrong");
    }
    for problem in &health.problems {
        let severity = match problem.severity {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        };
        writeln!(out, "{severity}: {}", printable(&problem.message))?;
        for remedy in &problem.remedies {
            writeln!(out, "  - {}", printable(remedy))?;
        }
    }
    Ok(())
}

/// A length of time, two digits of it.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.2} s"),
        s if s < 3600.0 => format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0),
        s if s < 86_400.0 => format!("{:.0} h {:.0} min", (s / 3600.0).floor(), s % 3600.0 / 60.0),
        s => format!(
            "{:.0} d {:.0} h",
            (s / 86_400.0).floor(),
            s % 86_400.0 / 3600.0
        ),
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

fn with_ago(unix_ms: Option<u64>) -> String {
    let ago = ago(unix_ms);
    match ago.strip_prefix('-') {
        Some(ahead) => format!("in {ahead}"),
        None if ago.is_empty() => ago,
        None => format!("{ago} ago"),
    }
}

/// How long ago, with a minus sign when it lies ahead.
pub(super) fn ago(unix_ms: Option<u64>) -> String {
    let Some(unix_ms) = unix_ms else {
        return String::new();
    };
    let then = UNIX_EPOCH + Duration::from_millis(unix_ms);
    match SystemTime::now().duration_since(then) {
        Ok(ago) => span(ago.as_secs_f64()),
        Err(ahead) => format!("-{}", span(ahead.duration().as_secs_f64())),
    }
}

fn took(from_ms: Option<u64>, to_ms: Option<u64>) -> Option<String> {
    let millis = to_ms?.saturating_sub(from_ms?);
    Some(span(millis as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_short() {
        assert_eq!(span(0.000_02), "20 µs");
        assert_eq!(span(0.25), "250.0 ms");
        assert_eq!(span(12.345), "12.35 s");
        assert_eq!(span(125.0), "2 min 5 s");
        assert_eq!(span(3_720.0), "1 h 2 min");
        assert_eq!(span(90_000.0), "1 d 1 h");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(100), "100 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(8 << 30), "8.0 GiB");
    }
}
