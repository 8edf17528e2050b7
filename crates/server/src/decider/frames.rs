//! From the engine's words to those of the wire, and back.

use bytes::Bytes;
use loxley_api::Work;
use loxley_engine::{AgentRecord, Finish, Orders, PartView};
use loxley_journal::Usage;
use loxley_model::{Failure, Outcome, Span};
use loxley_protocol as wire;

/// Adds what an agent is to do to the frame that it gets next.
pub(super) fn add_orders(frame: &mut wire::ServerFrame, orders: Orders) {
    frame
        .assign
        .extend(orders.assign.into_iter().map(|assign| wire::Assign {
            task: assign.task.0,
            lease: assign.lease.0,
            template: assign.part.0,
            attempt: assign.attempt,
            position: assign.position,
            entry: assign.entry.map(Into::into),
            checkpoint: assign.checkpoint,
        }));
    frame
        .retract
        .extend(orders.retract.iter().map(|retract| wire::Retract {
            task: retract.task.0,
            lease: retract.lease.0,
            running: retract.running,
        }));
    frame
        .cancel
        .extend(orders.cancel.iter().map(|lease| wire::Cancel {
            // A lease says which task: nobody looks.
            task: 0,
            lease: lease.0,
            awaited: false,
        }));
    frame
        .cancel
        .extend(orders.stop.iter().map(|(task, lease)| wire::Cancel {
            task: task.0,
            lease: lease.0,
            awaited: true,
        }));
}

/// What an agent needs to know to run the tasks of a part.
pub(super) fn template(part: &PartView<'_>) -> wire::Template {
    let nanoseconds = |seconds: Option<f64>| {
        let span = seconds.and_then(Span::try_from_secs_f64);
        span.map_or(0, |span| span.0)
    };
    let request = part.request;
    let base = wire::Template {
        id: part.first.0,
        job: part.job.0,
        time_limit_ns: nanoseconds(request.time_limit_sec),
        memory_limit_bytes: request.needs.memory_bytes,
        output_directory: request.output.directory.clone().unwrap_or_default(),
        checkpoints: request.checkpoints,
        keep_bytes: request.output.keep_bytes,
        hold_ns: part.hold.0,
        priority: u32::from(request.priority.level()),
        ..wire::Template::default()
    };
    match &request.run {
        Work::Command(command) => wire::Template {
            argv: command.words.clone(),
            shell: command.shell.clone().unwrap_or_default(),
            environment: command
                .environment
                .iter()
                .map(|(name, value)| wire::Variable {
                    name: name.clone(),
                    value: value.clone(),
                })
                .collect(),
            directory: command.directory.clone().unwrap_or_default(),
            ..base
        },
        Work::Function(function) => wire::Template {
            function: function.name.clone(),
            input: function.input.0.clone().into(),
            ..base
        },
    }
}

/// How an attempt ended.
pub(super) fn outcome(finished: &wire::Finished) -> Outcome {
    match finished.outcome() {
        wire::Outcome::Succeeded => Outcome::Succeeded,
        wire::Outcome::Failed => Outcome::Failed(Failure::Error),
        wire::Outcome::FailedForGood => Outcome::Failed(Failure::Permanent),
        wire::Outcome::TimeLimit => Outcome::Failed(Failure::TimeLimit),
        wire::Outcome::AgentLost => Outcome::Failed(Failure::AgentLost),
    }
}

/// What an agent says of an attempt beyond its outcome. What is too long is cut to what is kept.
pub(super) fn finish(finished: wire::Finished) -> Finish {
    let tail = |mut bytes: Bytes| {
        let excess = bytes.len().saturating_sub(wire::TAIL_MAX);
        bytes.split_off(excess)
    };
    Finish {
        exit_code: finished.code,
        signal: finished.signal,
        usage: Usage {
            duration: Span(finished.duration_ns),
            user: Span(finished.user_ns),
            system: Span(finished.system_ns),
            memory_bytes: finished.memory_bytes,
        },
        stdout: tail(finished.stdout),
        stderr: tail(finished.stderr),
        stdout_dropped: finished.stdout_dropped,
        stderr_dropped: finished.stderr_dropped,
        result: finished.result,
        message: finished.message,
    }
}

/// An agent as it introduces itself.
pub(super) fn record(hello: &wire::Hello, token: &str) -> AgentRecord {
    AgentRecord {
        name: hello.name.clone(),
        owner: token.to_owned(),
        process: hello.process,
        skills: hello.skills.clone(),
        slots: hello.slots,
        speed: hello.speed,
        cpu_milli: hello.cpu_milli,
        memory_bytes: hello.memory_bytes,
        resources: hello
            .resources
            .iter()
            .map(|amount| (amount.name.clone(), amount.amount))
            .collect(),
        zone: Some(hello.zone.clone()).filter(|zone| !zone.is_empty()),
        holds: hello.holds.clone(),
    }
}
