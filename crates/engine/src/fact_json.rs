//! What a journal tells, for people: its facts by their names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use loxley_journal::Position;
use loxley_model::Time;
use serde_json::{Map, Value, json};

use crate::fact::{Fact, GroupError, GroupReader};

/// The facts of a group in their order, each an object that begins with the name of the `fact`.
///
/// # Errors
/// When the group does not hold facts, or those of a newer Loxley.
pub fn facts_of(position: Position, group: &[u8]) -> Result<Vec<(Time, Value)>, GroupError> {
    let mut reader = GroupReader::new(position, group)?;
    let mut facts = Vec::new();
    while let Some((now, fact)) = reader.next_fact()? {
        facts.push((now, as_json(&fact)));
    }
    Ok(facts)
}

fn as_json(fact: &Fact) -> Value {
    match fact {
        // In the client's own words, which are JSON themselves.
        Fact::JobSubmitted { request, user } => {
            let request: Value = serde_json::from_slice(request.text()).unwrap_or(Value::Null);
            json!({"fact": "job_submitted", "user": user, "request": request})
        }
        Fact::Checkpoint {
            agent,
            task,
            lease,
            state,
        } => json!({
            "fact": "checkpoint",
            "agent": agent,
            "task": task,
            "lease": lease,
            "state_base64": STANDARD.encode(state),
        }),
        fact => flattened(serde_json::to_value(fact).unwrap_or(Value::Null)),
    }
}

/// `{"AgentLeft": 7}` as `{"fact": "agent_left", "agent": 7}`: one shape for all facts.
fn flattened(tagged: Value) -> Value {
    let (name, content) = match tagged {
        Value::Object(object) => match object.into_iter().next() {
            Some(entry) => entry,
            None => return Value::Null,
        },
        Value::String(name) => (name, Value::Null),
        other => return other,
    };
    let mut flat = Map::new();
    flat.insert("fact".to_owned(), snake_case(&name).into());
    match content {
        Value::Object(fields) => flat.extend(fields),
        Value::Null => {}
        other => {
            let key = match &*name {
                "JobClosed" => "job",
                name if name.starts_with("Agent") => "agent",
                _ => "of",
            };
            flat.insert(key.to_owned(), other);
        }
    }
    Value::Object(flat)
}

fn snake_case(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::GroupWriter;
    use crate::submission::Submission;
    use loxley_api::{CommandRequest, JobRequest, TaskRequest, Work};
    use loxley_journal::Rows;
    use loxley_model::{AgentId, Lease, TaskId};

    fn submission() -> Submission {
        let command = CommandRequest {
            words: vec!["true".to_owned()],
            ..CommandRequest::default()
        };
        let tasks = vec![TaskRequest::new(Work::Command(command))];
        let request = JobRequest {
            tasks,
            ..JobRequest::default()
        };
        Submission::new(request).unwrap()
    }

    #[test]
    fn every_fact_has_its_name_and_its_fields() {
        let (agent, task, lease) = (AgentId(3), TaskId(7), Lease(9));
        let facts = [
            Fact::Tick,
            Fact::AgentLeft(agent),
            Fact::Started { agent, task, lease },
            Fact::Resubmitted(vec![task]),
            Fact::JobSubmitted {
                request: submission(),
                user: "ada".to_owned(),
            },
        ];
        let mut writer = GroupWriter::new();
        for (number, fact) in facts.iter().enumerate() {
            writer.push(Time(number as u64), fact);
        }
        let group = writer.finish(0, Rows::default());
        let told = facts_of(Position(0), &group.facts).unwrap();
        let mut told: Vec<Value> = told.into_iter().map(|(_, fact)| fact).collect();
        let request = told.pop().unwrap();
        assert_eq!(request["fact"], "job_submitted");
        assert_eq!(request["user"], "ada");
        assert_eq!(
            request["request"]["tasks"][0]["run"]["command"]["words"][0],
            "true"
        );
        assert_eq!(
            told,
            [
                json!({"fact": "tick"}),
                json!({"fact": "agent_left", "agent": 3}),
                json!({"fact": "started", "agent": 3, "task": 7, "lease": 9}),
                json!({"fact": "resubmitted", "of": [7]}),
            ]
        );
        assert!(facts_of(Position(0), b"facts").is_err());
    }
}
