//! Many threads submit, agents fail and crash: nothing is lost, and nothing counts twice.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the message")]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use loxley::{
    Agent, AgentError, AskError, Assignment, Fleet, Handle, Job, Scheduler, SubmitProblem, Task,
    TaskError, Ticket,
};
use loxley_balance::Rng;

/// Long enough for a slow machine; nothing here should take a second.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn nothing_is_lost_and_nothing_counts_twice() {
    for seed in 0..4 {
        Storm::new(seed).rage();
    }
}

/// Submitters and unreliable agents, and books of what really counted.
struct Storm {
    seed: u64,
    scheduler: Scheduler<usize>,
    /// How often each task was completed with the scheduler's approval.
    effects: Vec<AtomicU32>,
    failed: AtomicU64,
    calm: AtomicBool,
    submitting: AtomicU32,
}

impl Storm {
    const SUBMITTERS: usize = 6;
    const TASKS_EACH: usize = 300;
    const AGENTS: usize = 5;

    fn new(seed: u64) -> Self {
        let scheduler = Scheduler::builder().build();
        scheduler.start();
        for agent in 0..Self::AGENTS {
            scheduler.register_agent(Self::agent(agent)).unwrap();
        }
        Self {
            seed,
            scheduler,
            effects: (0..Self::SUBMITTERS * Self::TASKS_EACH)
                .map(|_| AtomicU32::new(0))
                .collect(),
            failed: AtomicU64::new(0),
            calm: AtomicBool::new(false),
            submitting: AtomicU32::new(Self::SUBMITTERS as u32),
        }
    }

    fn agent(number: usize) -> Agent {
        let skill = if number.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        };
        Agent::new(format!("agent {number}")).skills(["any", skill])
    }

    fn rage(&self) {
        thread::scope(|scope| {
            for submitter in 0..Self::SUBMITTERS {
                scope.spawn(move || self.submit(submitter));
            }
            for agent in 0..Self::AGENTS {
                scope.spawn(move || self.work(agent));
            }
            while self.submitting.load(Ordering::SeqCst) > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(50));
            self.calm.store(true, Ordering::SeqCst);
            assert!(self.scheduler.wait_idle(LONG), "{:?}", self.scheduler);
            // A task that was with five lost agents is given up; it deserves another chance.
            while self.scheduler.resubmit_all() > 0 {
                assert!(self.scheduler.wait_idle(LONG), "{:?}", self.scheduler);
            }
            self.scheduler.stop();
        });
        self.check_books();
    }

    fn submit(&self, submitter: usize) {
        let mut rng = Rng::new(self.seed).numbered_child("submitter", submitter as u64);
        let first = submitter * Self::TASKS_EACH;
        let mut number = first;
        while number < first + Self::TASKS_EACH {
            let size = (1 + rng.index(20)).min(first + Self::TASKS_EACH - number);
            let tasks = (number..number + size).map(|number| {
                let skill = ["any", "even", "odd"][rng.index(3)];
                let mut task = Task::new(format!("task {number}"))
                    .skill(skill)
                    .priority(1 + rng.below(5) as u8)
                    .retries(1000)
                    .backoff(Duration::from_micros(50), Duration::from_micros(400));
                if rng.chance(0.3) && number > first {
                    let earlier = first + rng.index(number - first);
                    task = task.after(format!("task {earlier}"));
                }
                (task, number)
            });
            let tasks: Vec<_> = tasks.collect();
            self.submit_until_taken(&tasks);
            number += size;
        }
        self.submitting.fetch_sub(1, Ordering::SeqCst);
    }

    /// An agent that everybody needs may have crashed just now; then the batch is refused whole.
    fn submit_until_taken(&self, tasks: &[(Task, usize)]) {
        loop {
            match self.scheduler.submit_batch(&Job::new(), tasks.to_vec()) {
                Ok(submitted) => {
                    assert_eq!(submitted.tasks.len(), tasks.len());
                    return;
                }
                Err(error) => {
                    for problem in &error.problems {
                        let may_be = match problem {
                            SubmitProblem::NoCapableAgent(_) => true,
                            SubmitProblem::FailedDependency { .. } => {
                                self.scheduler.resubmit_all() > 0
                            }
                            _ => false,
                        };
                        assert!(may_be, "seed {}: {problem}", self.seed);
                    }
                    thread::yield_now();
                }
            }
        }
    }

    fn work(&self, agent: usize) {
        let mut rng = Rng::new(self.seed).numbered_child("agent", agent as u64);
        let name = format!("agent {agent}");
        // Tickets of an earlier life: answers to them must never count.
        let mut stale: Vec<Ticket> = Vec::new();
        loop {
            let assignment = match self.scheduler.next_task(&name, LONG) {
                Ok(Some(assignment)) => assignment,
                Ok(None) => continue,
                Err(AskError::Stopped) => return,
                Err(error) => panic!("seed {}: {error}", self.seed),
            };
            for ticket in stale.drain(..) {
                assert!(
                    self.scheduler.complete(ticket).is_err(),
                    "the dead answered"
                );
            }
            match rng.below(20) {
                0..3 if !self.is_calm() => {
                    let _ = self.scheduler.fail(&assignment, "a bad day");
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
                3 if !self.is_calm() => {
                    stale.push((&assignment).into());
                    self.scheduler.remove_agent(&name).unwrap();
                    thread::yield_now();
                    if !self.join(agent) {
                        return;
                    }
                }
                4 if !self.is_calm() => {
                    stale.push((&assignment).into());
                    if !self.join(agent) {
                        return;
                    }
                }
                _ => self.complete(&assignment),
            }
        }
    }

    /// Registers an agent. False when all was done by others meanwhile, and the scheduler stopped.
    fn join(&self, agent: usize) -> bool {
        match self.scheduler.register_agent(Self::agent(agent)) {
            Ok(()) => true,
            Err(AgentError::Stopped) => false,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn complete(&self, assignment: &Assignment<usize>) {
        if self.scheduler.complete(assignment).is_ok() {
            self.effects[*assignment.payload].fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    fn check_books(&self) {
        for (number, effects) in self.effects.iter().enumerate() {
            let effects = effects.load(Ordering::SeqCst);
            assert_eq!(effects, 1, "seed {}: task {number}", self.seed);
        }
        let counts = self.scheduler.counts();
        assert_eq!(counts.submitted, self.effects.len() as u64);
        assert_eq!(counts.finished, counts.submitted);
        assert!(counts.balance());
        assert!(
            self.failed.load(Ordering::Relaxed) > 0,
            "the storm was a calm"
        );
        assert!(self.scheduler.metrics().stale_answers > 0);
    }
}

#[test]
fn a_fleet_survives_the_crash_of_its_agents() {
    let fleet = Fleet::builder().agents(4).build().unwrap();
    let counted: Vec<Handle<usize>> = thread::scope(|scope| {
        let submitters: Vec<_> = (0..4)
            .map(|submitter| {
                let fleet = &fleet;
                scope.spawn(move || {
                    (0..100)
                        .map(|number| {
                            let value = submitter * 100 + number;
                            let run = move || {
                                thread::sleep(Duration::from_micros(200));
                                value
                            };
                            fleet.submit(Task::unnamed(), run).unwrap()
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for round in 0..6 {
            thread::sleep(Duration::from_millis(3));
            let victim = format!("agent-{}", 1 + round % 3);
            fleet.kill(&victim).unwrap();
            fleet.join(victim.as_str()).unwrap();
        }
        submitters
            .into_iter()
            .flat_map(|submitter| submitter.join().unwrap())
            .collect()
    });
    assert!(fleet.wait_all_within(LONG));
    let mut values: Vec<usize> = counted
        .iter()
        .map(|handle| handle.wait().unwrap())
        .collect();
    values.sort_unstable();
    assert_eq!(values, (0..400).collect::<Vec<_>>());
    let counts = fleet.metrics().counts;
    assert_eq!(counts.finished, 400);
    assert!(counts.balance());
}

#[test]
fn many_threads_may_wait_for_one_agent() {
    let scheduler = Scheduler::builder().build();
    scheduler
        .register_agent(Agent::new("ann").slots(4))
        .unwrap();
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok(assignment) = scheduler.next_task("ann", Duration::from_millis(30)) {
                    let Some(assignment) = assignment else {
                        continue;
                    };
                    scheduler.complete(&assignment).unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for number in 0..200_u32 {
            scheduler.submit(Task::unnamed(), number).unwrap();
            if number.is_multiple_of(50) {
                // Long enough for some waits to time out.
                thread::sleep(Duration::from_millis(40));
            }
        }
        assert!(scheduler.wait_idle(LONG));
        scheduler.stop();
    });
    assert_eq!(done.load(Ordering::SeqCst), 200);
}

#[test]
fn a_request_that_timed_out_does_not_swallow_a_task() {
    let scheduler = Scheduler::builder().build();
    scheduler.register_agent(Agent::new("ann")).unwrap();
    let nothing = scheduler
        .next_task("ann", Duration::from_millis(1))
        .unwrap();
    assert!(nothing.is_none());
    scheduler.submit(Task::unnamed(), ()).unwrap();
    assert_eq!(scheduler.counts().queued, 1, "nobody asked any more");
    assert!(scheduler.try_next_task("ann").unwrap().is_some());
}

#[test]
fn a_blocked_agent_is_woken_by_work_by_leaving_and_by_stop() {
    let scheduler = Scheduler::builder().build();
    let wait = |end: &dyn Fn(&Scheduler<u32>)| {
        thread::scope(|scope| {
            scheduler.register_agent(Agent::new("ann")).unwrap();
            let waiter = scope.spawn(|| {
                let begin = Instant::now();
                let found = scheduler.next_task("ann", LONG);
                assert!(begin.elapsed() < LONG / 2);
                let number = found?.map(|assignment| {
                    scheduler.complete(&assignment).unwrap();
                    *assignment.payload
                });
                Ok(number)
            });
            thread::sleep(Duration::from_millis(20));
            end(&scheduler);
            waiter.join().unwrap()
        })
    };
    let got = wait(&|scheduler| {
        scheduler.submit(Task::unnamed(), 7).unwrap();
    });
    assert_eq!(got, Ok(Some(7)));
    let gone = Err(AskError::NotRegistered("ann".into()));
    assert_eq!(
        wait(&|scheduler| drop(scheduler.unregister_agent("ann").unwrap())),
        gone
    );
    assert_eq!(
        wait(&|scheduler| scheduler.register_agent("ann").unwrap()),
        gone
    );
    assert_eq!(wait(&Scheduler::stop), Err(AskError::Stopped));
}

#[test]
fn events_arrive_in_order_and_listeners_may_call_the_scheduler() {
    let scheduler = Scheduler::builder().build();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, inner) = (Arc::clone(&seen), scheduler.clone());
    scheduler.on_event(move |event| {
        let live = inner.counts().live();
        log.lock().unwrap().push((event.to_string(), live));
    });
    scheduler.on_event(|_| panic!("a listener that panics is dropped"));
    scheduler.register_agent(Agent::new("ann")).unwrap();
    scheduler.submit(Task::new("x"), ()).unwrap();
    let assignment = scheduler.try_next_task("ann").unwrap().unwrap();
    scheduler.complete(&assignment).unwrap();
    let words: Vec<String> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|(words, _)| words.clone())
        .collect();
    let position = |part: &str| {
        words
            .iter()
            .position(|words| words.contains(part))
            .unwrap_or_else(|| panic!("no `{part}` in {words:?}"))
    };
    assert!(position("`ann` joined") < position("was accepted"));
    assert!(position("was accepted") < position("`x` goes to `ann`"));
    assert!(position("`x` goes to `ann`") < position("`x` succeeded on `ann`"));
}

#[test]
fn a_panic_is_a_failure_that_is_tried_again() {
    let fleet = Fleet::builder().agents(2).build().unwrap();
    let task = || Task::unnamed().backoff(Duration::from_millis(1), Duration::from_millis(2));
    let lucky = fleet
        .submit_with(task().retries(3), |context| {
            assert!(context.attempt > 2, "not yet");
            Ok::<_, String>(context.attempt)
        })
        .unwrap();
    assert_eq!(lucky.wait(), Ok(3));
    let unlucky = fleet
        .submit(task(), || -> u32 { panic!("the disk is full") })
        .unwrap();
    let error = unlucky.wait().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the task failed: it panicked: the disk is full"
    );
    let letters = fleet.scheduler().dead_letters();
    assert_eq!(letters.len(), 1);
    assert_eq!(
        letters[0].message.as_deref(),
        Some("it panicked: the disk is full")
    );
    let final_one = fleet
        .submit_with(task().retries(9), |context| {
            context.do_not_retry();
            Err::<u32, _>("wrong password")
        })
        .unwrap();
    assert_eq!(
        final_one.wait(),
        Err(TaskError::Failed("wrong password".into()))
    );
}

#[test]
fn time_limits_fall_back_and_cancelled_closures_are_told() {
    let fleet = Fleet::builder().agents(2).build().unwrap();
    let until_told = |context: &loxley::Context| {
        while !context.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        1
    };
    let limited = Task::unnamed().time_limit(Duration::from_millis(20));
    let value = fleet.submit_or(limited.clone(), 42, until_told).unwrap();
    assert_eq!(value.wait(), Ok(42));
    let bare = fleet
        .submit_with(limited.clone(), move |context| {
            Ok::<_, String>(until_told(context))
        })
        .unwrap();
    assert_eq!(bare.wait(), Err(TaskError::TimeLimit));

    let mut batch = fleet.batch(Job::new());
    let primary = batch.add_with(
        Task::new("thorough")
            .time_limit(Duration::from_millis(20))
            .fallback("rough"),
        move |context| Ok::<_, String>(until_told(context)),
    );
    let rough = batch.add(Task::new("rough"), || 3);
    batch.submit().unwrap();
    assert_eq!(primary.wait(), Ok(3));
    assert_eq!(rough.wait(), Ok(3));

    let endless = fleet
        .submit_with(Task::new("endless"), move |context| {
            Ok::<_, String>(until_told(context))
        })
        .unwrap();
    thread::sleep(Duration::from_millis(10));
    fleet.cancel("endless").unwrap();
    assert_eq!(endless.wait(), Err(TaskError::Cancelled));
    assert!(fleet.cancel("endless").is_err(), "it is over");
}

#[test]
fn a_closure_that_runs_once_gives_its_result_away() {
    let fleet = Fleet::builder().agents(1).build().unwrap();
    let text = String::from("moved");
    let handle = fleet.submit_once("once", move || text).unwrap();
    assert_eq!(handle.take(), Ok("moved".into()));
}

#[test]
fn dropping_a_fleet_settles_every_handle() {
    let fleet = Fleet::builder().agents(1).build().unwrap();
    let handles: Vec<_> = (0..10)
        .map(|_| {
            let run = || thread::sleep(Duration::from_millis(5));
            fleet.submit(Task::unnamed(), run).unwrap()
        })
        .collect();
    drop(fleet);
    for handle in handles {
        let outcome = handle.wait_within(LONG);
        assert!(
            matches!(outcome, Ok(()) | Err(TaskError::Cancelled)),
            "{outcome:?}"
        );
    }
}
