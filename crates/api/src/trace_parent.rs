//! To which trace of OpenTelemetry a job belongs: the `traceparent` of W3C's Trace Context.

use crate::{JobRequest, Work};

/// The header and, in capitals, the variable of the environment.
pub const TRACEPARENT_HEADER: &str = "traceparent";
/// The variable of the environment.
pub const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";

/// Whether this names a trace and a span within: `00-` 32 digits `-` 16 digits `-` 2 digits, none all zero but the last.
#[must_use]
pub fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_number = |part: &str, digits: usize| {
        let is_digit = |letter: u8| letter.is_ascii_digit() || (b'a'..=b'f').contains(&letter);
        part.len() == digits && part.bytes().all(is_digit)
    };
    let is_something = |part: &str| part.bytes().any(|digit| digit != b'0');
    match parts.as_slice() {
        [version, trace, span, flags, rest @ ..] => {
            // Later versions may have more to say, and nothing is known of version ff.
            is_number(version, 2)
                && *version != "ff"
                && (rest.is_empty() || *version != "00")
                && is_number(trace, 32)
                && is_something(trace)
                && is_number(span, 16)
                && is_something(span)
                && is_number(flags, 2)
        }
        _ => false,
    }
}

impl JobRequest {
    /// Has every command of the job find its trace in the environment, unless its own environment names another.
    pub fn hand_down_trace(&mut self) {
        let Some(parent) = &self.traceparent else {
            return;
        };
        for task in &mut self.tasks {
            if let Work::Command(command) = &mut task.run {
                let variable = TRACEPARENT_VARIABLE.to_owned();
                let known = command.environment.entry(variable);
                known.or_insert_with(|| parent.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommandRequest, TaskRequest};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_no_traceparent_is_refused() {
        assert!(is_traceparent(PARENT));
        assert!(is_traceparent(&format!("01{}-more", &PARENT[2..])));
        for wrong in [
            "",
            "00",
            &PARENT.to_uppercase(),
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &format!("ff{}", &PARENT[2..]),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        ] {
            assert!(!is_traceparent(wrong), "{wrong}");
        }
    }

    #[test]
    fn commands_find_their_trace_unless_they_name_another() {
        let command = CommandRequest::default();
        let mut own = command.clone();
        let variable = TRACEPARENT_VARIABLE.to_owned();
        own.environment.insert(variable, "mine".to_owned());
        let mut job = JobRequest {
            traceparent: Some(PARENT.to_owned()),
            tasks: [command, own]
                .map(|command| TaskRequest::new(Work::Command(command)))
                .into(),
            ..JobRequest::default()
        };
        job.hand_down_trace();
        let found: Vec<&str> = job
            .tasks
            .iter()
            .map(|task| match &task.run {
                Work::Command(command) => command.environment[TRACEPARENT_VARIABLE].as_str(),
                Work::Function(_) => "",
            })
            .collect();
        assert_eq!(found, [PARENT, "mine"]);
    }
}
