//! Standard Task Graph Set (Tobita and Kasahara 2002).
//!
//! The first line says how many tasks there are; then one line per task: number, processing time,
//! count of predecessors, predecessors. Two dummy tasks of no work (entry and exit) frame the graph
//! and are not counted in the first line. Everything after `#` is a comment. A time unit becomes
//! one second.

use crate::readers::{Malformed, number};
use crate::time::SECOND;
use crate::workload::{TaskRecord, Workload, WorkloadBuilder};

/// Reads the text of an `.stg` file.
pub fn parse(text: &str) -> Result<Workload, Malformed> {
    let mut lines = text
        .lines()
        .zip(1_u64..)
        .map(|(line, number)| (line.split('#').next().unwrap_or("").trim(), number))
        .filter(|(line, _)| !line.is_empty());
    let (first, first_line) = lines
        .next()
        .ok_or_else(|| Malformed::new(1, "the file is empty"))?;
    let declared: u32 = number(Some(first), "the count of tasks", first_line)?;
    let mut builder = WorkloadBuilder::default();
    let mut last_line = first_line;
    for (line, line_number) in lines {
        task(&mut builder, line, line_number)?;
        last_line = line_number;
    }
    let found = builder.len();
    if found != declared && found != declared.saturating_add(2) {
        let reason = format!("the first line promises {declared} tasks, {found} follow");
        return Err(Malformed::new(last_line, reason));
    }
    builder
        .build()
        .map_err(|error| Malformed::of_graph(&error, last_line))
}

fn task(builder: &mut WorkloadBuilder, line: &str, line_number: u64) -> Result<(), Malformed> {
    let mut words = line.split_ascii_whitespace();
    let id: u32 = number(words.next(), "the task number", line_number)?;
    if id != builder.len() {
        let reason = format!("task {id} stands where task {} should", builder.len());
        return Err(Malformed::new(line_number, reason));
    }
    let time: u64 = number(words.next(), "the processing time", line_number)?;
    let work = time
        .checked_mul(SECOND)
        .ok_or_else(|| Malformed::new(line_number, "the processing time is too large"))?;
    let predecessors: u32 = number(words.next(), "the count of predecessors", line_number)?;
    builder.add(TaskRecord::new(format!("t{id}"), work));
    for _ in 0..predecessors {
        let before: u32 = number(words.next(), "a predecessor", line_number)?;
        if before >= id {
            let reason =
                format!("task {id} waits for task {before}, which does not come before it");
            return Err(Malformed::new(line_number, reason));
        }
        builder.edge(before, id);
    }
    match words.next() {
        None => Ok(()),
        Some(word) => Err(Malformed::new(
            line_number,
            format!("`{word}` follows the {predecessors} predecessors that were promised"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::time::SECOND;

    const FORK_JOIN: &str = "2\n0 0 0\n1 5 1 0\n2 3 1 0\n3 0 2 1 2\n# made up\n";

    #[test]
    fn a_small_graph() {
        let workload = parse(FORK_JOIN).unwrap();
        assert_eq!(workload.len(), 4);
        assert_eq!(workload.total_work(), 8 * SECOND);
        assert_eq!(workload.critical_path(), 5 * SECOND);
        assert_eq!(workload.predecessors(3), [1, 2]);
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("", "1: the file is empty"),
            ("x", "1: the count of tasks is not a number: `x`"),
            ("1\n0 1", "2: the count of predecessors is missing"),
            ("1\n1 1 0", "2: task 1 stands where task 0 should"),
            (
                "2\n0 1 0\n1 1 1 7",
                "3: task 1 waits for task 7, which does not come before it",
            ),
            (
                "1\n0 1 0 9",
                "2: `9` follows the 0 predecessors that were promised",
            ),
            ("9\n0 1 0", "2: the first line promises 9 tasks, 1 follow"),
            ("1\n0 -1 0", "2: the processing time is not a number: `-1`"),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text:?}");
        }
    }
}
