//! A fleet in ten lines: four agents, twenty uneven tasks, and how well the work was balanced.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use loxley::{Fleet, Task};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::builder()
        .agent("ann", ["python"])
        .agent("bob", ["python"])
        .agent("cleo", ["python", "gpu"])
        .agent("dan", ["gpu"])
        .build()?;

    let squares = (1..=20_u64).map(|number| {
        let skill = if number % 3 == 0 { "gpu" } else { "python" };
        let task = Task::new(format!("square-{number}")).skill(skill);
        fleet.submit(task, move || {
            sleep(Duration::from_millis(5 + number % 4));
            number * number
        })
    });
    let squares = squares.collect::<Result<Vec<_>, _>>()?;

    let mut sum = 0;
    for square in squares {
        sum += square.wait()?;
    }
    assert_eq!(sum, 2870);
    println!("the sum of the first twenty squares is {sum}");

    for status in fleet.scheduler().agent_statuses() {
        println!("{status}");
    }
    assert_eq!(fleet.metrics().counts.finished, 20);
    println!("{}", fleet.shutdown());
    Ok(())
}
