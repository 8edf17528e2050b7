//! Dependencies: a small build, submitted in any order, run in the right one; and a circle, refused
//! by name.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::{Arc, Mutex};

use loxley::{Fleet, Job, SubmitProblem, Task};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::builder().agents(3).build()?;
    let order = Arc::new(Mutex::new(Vec::new()));

    let mut batch = fleet.batch(Job::new());
    let steps: [(&str, &[&str]); 5] = [
        ("package", &["link", "docs"]),
        ("link", &["compile-a", "compile-b"]),
        ("docs", &[]),
        ("compile-a", &[]),
        ("compile-b", &[]),
    ];
    for (name, after) in steps {
        let order = Arc::clone(&order);
        let task = Task::new(name).after_all(after.iter().copied());
        batch.add(task, move || {
            order.lock().map(|mut order| order.push(name)).is_ok()
        });
    }
    batch.submit()?;
    fleet.wait_all();

    let order = order.lock().map_err(|_| "a step panicked")?.clone();
    println!("run in this order: {}", order.join(", "));
    let position = |name: &str| order.iter().position(|step| *step == name);
    for (name, after) in steps {
        for earlier in after {
            assert!(
                position(earlier) < position(name),
                "{earlier} before {name}"
            );
        }
    }

    // Tasks that wait for each other would wait for ever, so the whole batch is refused.
    let mut circle = fleet.batch(Job::new());
    let egg = circle.add(Task::new("egg").after("hen"), || "egg");
    circle.add(Task::new("hen").after("egg"), || "hen");
    let refusal = circle.submit().err().ok_or("a circle cannot be accepted")?;
    println!("{refusal}");
    assert!(matches!(refusal.first(), SubmitProblem::Cycle(tasks) if tasks.len() == 2));
    assert!(egg.wait().is_err(), "whoever waits for it is told");
    assert_eq!(fleet.metrics().counts.finished, 5);
    Ok(())
}
