//! Cascading failure: agents crash one after the other, in the middle of their work. Their tasks
//! move on, nothing is lost, and nothing counts twice.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use loxley::{Fleet, Task};

const TASKS: u64 = 60;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::builder().agents(4).build()?;
    let runs = Arc::new(AtomicU32::new(0));
    let mut handles = Vec::new();
    for number in 0..TASKS {
        let runs = Arc::clone(&runs);
        handles.push(fleet.submit(Task::unnamed(), move || {
            runs.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(4));
            number
        })?);
    }

    for agent in ["agent-1", "agent-2", "agent-3"] {
        sleep(Duration::from_millis(15));
        fleet.kill(agent)?;
        let counts = fleet.scheduler().counts();
        println!(
            "{agent} crashed; {} tasks done, {} left",
            counts.finished,
            counts.live()
        );
    }
    // The last one is alone with the work of four, until somebody comes to help.
    fleet.join("agent-1")?;
    println!("agent-1 is back, as a new incarnation");

    let mut sum = 0;
    for handle in handles {
        sum += handle.wait()?;
    }
    let metrics = fleet.metrics();
    println!(
        "{} tasks finished in {} runs; {} answers came from the dead and were dropped",
        metrics.counts.finished,
        runs.load(Ordering::Relaxed),
        metrics.stale_answers
    );
    assert_eq!(sum, (0..TASKS).sum::<u64>(), "every result, once");
    assert_eq!(metrics.counts.finished, TASKS);
    assert!(metrics.counts.balance());
    assert_eq!(fleet.scheduler().agent_statuses().len(), 2);
    Ok(())
}
