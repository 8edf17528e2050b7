//! A table of tasks: the format for everything that has no format.
//!
//! The first line names the columns, in any order. Only `work` (seconds) is required; the others
//! are `name`, `release` (seconds), `after` (names, separated by `;`), `priority` (1 to 5),
//! `skills` (separated by `;`), `memory` (bytes) and `processors`. A column of another name is an
//! error, because a misspelt one would silently change the run.

use csv::{ReaderBuilder, StringRecord, Trim};
use loxley_model::{Names, SkillId};

use crate::readers::{Malformed, number};
use crate::time::nanos;
use crate::workload::{TaskRecord, Workload, WorkloadBuilder};

/// Reads the text of a `.csv` file.
pub fn parse(text: &str) -> Result<Workload, Malformed> {
    let mut reader = ReaderBuilder::new()
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| malformed(&error))?;
    let columns = header
        .iter()
        .map(Column::named)
        .collect::<Result<Vec<Column>, Malformed>>()?;
    if !columns.contains(&Column::Work) {
        return Err(Malformed::new(1, "the column `work` is missing"));
    }
    let mut builder = WorkloadBuilder::default();
    let mut last_line = 1;
    for record in reader.records() {
        let record = record.map_err(|error| malformed(&error))?;
        last_line = record.position().map_or(last_line, csv::Position::line);
        row(&mut builder, &columns, &record, last_line)?;
    }
    builder
        .build()
        .map_err(|error| Malformed::of_graph(&error, last_line))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Work,
    Release,
    After,
    Priority,
    Skills,
    Memory,
    Processors,
}

impl Column {
    fn named(name: &str) -> Result<Self, Malformed> {
        match name {
            "name" => Ok(Self::Name),
            "work" => Ok(Self::Work),
            "release" => Ok(Self::Release),
            "after" => Ok(Self::After),
            "priority" => Ok(Self::Priority),
            "skills" => Ok(Self::Skills),
            "memory" => Ok(Self::Memory),
            "processors" => Ok(Self::Processors),
            other => Err(Malformed::new(
                1,
                format!(
                    "unknown column `{other}`; known are name, work, release, after, priority, \
                     skills, memory, processors"
                ),
            )),
        }
    }
}

fn row(
    builder: &mut WorkloadBuilder,
    columns: &[Column],
    record: &StringRecord,
    line: u64,
) -> Result<(), Malformed> {
    let mut task = TaskRecord::new(format!("t{}", builder.len()), 0);
    let mut after = Vec::new();
    for (column, value) in columns.iter().zip(record) {
        match column {
            Column::Name if value.is_empty() => {}
            Column::Name => task.name = value.into(),
            Column::Work => task.work = nanos(duration(value, "the work", line)?),
            Column::Release if value.is_empty() => {}
            Column::Release => task.release = nanos(duration(value, "the release", line)?),
            Column::After => after = list(value),
            Column::Priority if value.is_empty() => {}
            Column::Priority => task.priority = priority(value, line)?,
            Column::Skills => task.skills = skills(value, line)?,
            Column::Memory if value.is_empty() => {}
            Column::Memory => task.memory = number(Some(value), "the memory", line)?,
            Column::Processors if value.is_empty() => {}
            Column::Processors => {
                task.processors = number(Some(value), "the processors", line)?;
                if !(1..=1_000_000).contains(&task.processors) {
                    return Err(Malformed::new(line, "processors must be 1 to 1000000"));
                }
            }
        }
    }
    let task = builder.add(task);
    for before in after {
        builder.named_edge(before, task);
    }
    Ok(())
}

fn duration(value: &str, what: &str, line: u64) -> Result<f64, Malformed> {
    let seconds: f64 = number(Some(value), what, line)?;
    if seconds.is_finite() && seconds >= 0.0 {
        Ok(seconds)
    } else {
        Err(Malformed::new(
            line,
            format!("{what} is not a duration: `{value}`"),
        ))
    }
}

fn priority(value: &str, line: u64) -> Result<u8, Malformed> {
    let priority: u8 = number(Some(value), "the priority", line)?;
    if (1..=5).contains(&priority) {
        Ok(priority)
    } else {
        Err(Malformed::new(
            line,
            format!("the priority must be 1 to 5, not {priority}"),
        ))
    }
}

fn skills(value: &str, line: u64) -> Result<Vec<String>, Malformed> {
    let skills = list(value);
    let mut names = Names::<SkillId>::new();
    for skill in &skills {
        (names.intern(skill)).map_err(|error| Malformed::new(line, error.to_string()))?;
    }
    Ok(skills)
}

fn list(value: &str) -> Vec<String> {
    value
        .split(';')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

fn malformed(error: &csv::Error) -> Malformed {
    let line = error.position().map_or(1, csv::Position::line);
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("{len} columns where the first line has {expected_len}"),
        csv::ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    Malformed::new(line, reason)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::time::SECOND;

    #[test]
    fn names_edges_and_defaults() {
        let text = "name,work,after,priority,skills\n\
                    fetch,1.5,,5,net\n\
                    # a comment\n\
                    parse,2,fetch,,\n\
                    \"load, all\",1,fetch; parse,1,db;net\n";
        let workload = parse(text).unwrap();
        assert_eq!(workload.predecessors(2), [0, 1]);
        assert_eq!(workload.tasks()[0].work, 3 * SECOND / 2);
        assert_eq!(workload.tasks()[1].priority, 3);
        assert_eq!(workload.tasks()[2].skills, ["db", "net"]);
        assert_eq!(&*workload.tasks()[2].name, "load, all");
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("name\nx\n", "1: the column `work` is missing"),
            ("work\nfast\n", "2: the work is not a number: `fast`"),
            ("work\n1\n-1\n", "3: the work is not a duration: `-1`"),
            (
                "work,name\n1,a\n2\n",
                "3: 1 columns where the first line has 2",
            ),
            (
                "work,priority\n1,9\n",
                "2: the priority must be 1 to 5, not 9",
            ),
            (
                "name,work,after\na,1,b\nb,1,a\n",
                "3: tasks wait for each other in a circle: a -> b -> a",
            ),
            (
                "work,after\n1,z\n",
                "2: task `t0` waits for `z`, which is not in the file",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text:?}");
        }
        let unknown = parse("work,prio\n1,1\n").unwrap_err();
        assert!(unknown.to_string().starts_with("1: unknown column `prio`"));
    }
}
