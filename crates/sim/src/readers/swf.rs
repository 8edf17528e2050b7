//! Standard Workload Format of the Parallel Workloads Archive: one job per line, 18 numbers, `;`
//! before a comment, -1 for unknown.
//!
//! Used here: job number (1), submit time (2), run time (4), processors (5, or 8 when 5 is
//! unknown), memory per processor in KiB (7 or 10), preceding job and think time (17, 18) are left
//! alone. Jobs that never ran (no run time or no processors) are left out, as is usual.

use crate::readers::{Malformed, number};
use crate::time::{Nanos, nanos};
use crate::workload::{TaskRecord, Workload, WorkloadBuilder};

const FIELDS: usize = 18;

/// Reads the text of an `.swf` file. Times are counted from the first submission.
pub fn parse(text: &str) -> Result<Workload, Malformed> {
    let mut builder = WorkloadBuilder::default();
    let mut last_line = 1;
    let mut start: Option<Nanos> = None;
    for (line, line_number) in text.lines().zip(1_u64..) {
        last_line = line_number;
        let line = line.trim();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        let Some(mut task) = job(line, line_number)? else {
            continue;
        };
        let start = *start.get_or_insert(task.release);
        task.release = task.release.checked_sub(start).ok_or_else(|| {
            Malformed::new(line_number, "the job is submitted before the first job")
        })?;
        builder.add(task);
    }
    builder
        .build()
        .map_err(|error| Malformed::of_graph(&error, last_line))
}

fn job(line: &str, line_number: u64) -> Result<Option<TaskRecord>, Malformed> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    if words.len() != FIELDS {
        let reason = format!("a job has {FIELDS} numbers, this line has {}", words.len());
        return Err(Malformed::new(line_number, reason));
    }
    let field = |index: usize, what| number::<f64>(Some(words[index - 1]), what, line_number);
    let submitted = field(2, "the submit time")?;
    let ran = field(4, "the run time")?;
    let processors = first_known(
        field(5, "the processors")?,
        field(8, "the requested processors")?,
    );
    let memory = first_known(field(7, "the memory")?, field(10, "the requested memory")?);
    if !(submitted.is_finite() && ran.is_finite() && processors.is_finite()) {
        return Err(Malformed::new(line_number, "a time is not finite"));
    }
    if submitted < 0.0 || ran <= 0.0 || processors < 1.0 {
        return Ok(None);
    }
    if processors > f64::from(u16::MAX) * 256.0 {
        return Err(Malformed::new(
            line_number,
            "more processors than a machine has",
        ));
    }
    let mut task = TaskRecord::new(format!("job {}", words[0]), nanos(ran));
    task.release = nanos(submitted);
    task.processors = processors as u32;
    task.memory = (memory.max(0.0) * 1024.0 * processors) as u64;
    Ok(Some(task))
}

fn first_known(first: f64, second: f64) -> f64 {
    if first > 0.0 { first } else { second }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::time::SECOND;

    #[test]
    fn jobs_count_from_the_first_submission() {
        let log = "; made up\n\
            1 100 -1 10 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1\n\
            2 105 -1 20 -1 -1 -1 4 -1 64 1 1 1 -1 -1 -1 -1 -1\n\
            3 106 -1 -1 4 -1 -1 4 -1 -1 0 1 1 -1 -1 -1 -1 -1\n";
        let workload = parse(log).unwrap();
        assert_eq!(workload.len(), 2, "a job that never ran is left out");
        assert_eq!(workload.tasks()[1].release, 5 * SECOND);
        assert_eq!(workload.tasks()[1].processors, 4);
        assert_eq!(workload.tasks()[1].memory, 64 * 1024 * 4);
        assert_eq!(workload.split_processors().len(), 6);
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("; nothing\n", "1: there are no tasks"),
            ("1 2 3", "1: a job has 18 numbers, this line has 3"),
            (
                ";\n1 x -1 10 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1",
                "2: the submit time is not a number: `x`",
            ),
            (
                "1 9 -1 10 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1\n\
                 2 8 -1 10 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1",
                "2: the job is submitted before the first job",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text:?}");
        }
    }
}
