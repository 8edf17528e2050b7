//! Quotas: a limit for a group of tasks in the whole fleet, and fair shares between users.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use loxley::{Agent, Fleet, Job, Scheduler, Task};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    group_limit()?;
    user_shares()
}

/// Six agents, but only two licences: never more than two of these tasks run at once.
fn group_limit() -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::builder().agents(6).build()?;
    fleet.scheduler().limit_group("licence", 2)?;
    let now = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    for _ in 0..20 {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        fleet.submit(Task::unnamed().group("licence"), move || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(2));
            now.fetch_sub(1, Ordering::SeqCst);
        })?;
    }
    fleet.wait_all();
    let most = most.load(Ordering::SeqCst);
    println!("twenty tasks with two licences: at most {most} ran at once");
    assert!((1..=2).contains(&most));
    assert_eq!(fleet.metrics().counts.finished, 20);
    Ok(())
}

/// Ann floods the fleet first. Bob comes later, and still gets his half.
fn user_shares() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().build();
    let agents = ["a", "b", "c", "d"];
    for agent in agents {
        scheduler.register_agent(Agent::new(agent))?;
    }
    let tasks = |user: &'static str, count: usize| (0..count).map(move |_| (Task::unnamed(), user));
    scheduler.submit_batch(&Job::new().user("ann"), tasks("ann", 100))?;
    scheduler.submit_batch(&Job::new().user("bob"), tasks("bob", 10))?;

    let mut running = Vec::new();
    for agent in agents {
        running.extend(scheduler.try_next_task(agent)?);
    }
    let of = |user| {
        running
            .iter()
            .filter(|assignment| *assignment.payload == user)
            .count()
    };
    println!("of four slots, ann has {} and bob {}", of("ann"), of("bob"));
    assert_eq!((of("ann"), of("bob")), (2, 2));
    Ok(())
}
