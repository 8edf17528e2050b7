//! Speculation: one agent is stuck with a task that usually takes no time. A second copy starts
//! elsewhere, the first result wins, and the stuck one is told to stop.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use loxley::{Context, Fleet, Task, Why};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::builder().agents(2).build()?;
    let task = || Task::unnamed().speculate();

    // The scheduler learns how long tasks of this kind take.
    for _ in 0..10 {
        fleet.submit(task(), || sleep(Duration::from_millis(5)))?;
    }
    fleet.wait_all();

    // On its first agent this one hangs, as on a machine with a failing disk.
    let begin = Instant::now();
    let answer = fleet.submit_with(task(), move |context: &Context| {
        if let Why::Speculation { slow } = &context.why {
            return Ok::<_, String>(format!("a copy, because {slow} was slow"));
        }
        while !context.is_cancelled() && begin.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(1));
        }
        Err(format!("{:?}", context.cancel_reason()))
    })?;
    println!("the result came from {}", answer.wait()?);
    let took = begin.elapsed();
    println!("after {took:.0?}, not after 20 s");
    assert!(took < Duration::from_secs(10));

    let metrics = fleet.metrics();
    // On a busy machine one of the quick tasks may have been slow, and have got a copy too.
    assert!(metrics.speculations >= 1 && metrics.speculations_won >= 1);
    assert_eq!(metrics.counts.finished, 11, "two runs, one result");
    Ok(())
}
