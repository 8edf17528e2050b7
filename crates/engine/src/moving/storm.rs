//! Several engines, each with a journal, and the tables that letters go through; every fault that a seed can choose: an
//! engine dies before what it decided is written, goes on from a snapshot, letters are read late and twice, agents come and go,
//! tasks fail, are cancelled, are tried again. At the end every task has ended once, at home.

use std::collections::{BTreeMap, BTreeSet};

use loxley_api::{CommandRequest, Entries, JobRequest, RetryRequest, TaskRequest, Work};
use loxley_balance::Rng;
use loxley_cluster::moves::{Item, Kind, Letter, Receipt};
use loxley_cluster::rebalancer::{Load, RebalancePace, Rebalancer};
use loxley_cluster::shard::ShardId;
use loxley_journal::{Ended, Journal, MemoryJournal, Position, Snapshot};
use loxley_model::{AgentId, Failure, JobId, JobState, Lease, Outcome, Span, TaskId, Time};
use loxley_policy::{Selection, Vitals};

use crate::{AgentRecord, Applied, Engine, Fact, Finish, Flushed, Submission};

const SKILLS: [&str; 3] = ["cpu", "gpu", "tpu"];
/// A group of which so many may run, in all shards together.
const GROUP: (&str, u32) = ("disk", 3);

struct Shard {
    id: ShardId,
    engine: Engine,
    journal: MemoryJournal,
    rebalancer: Rebalancer,
    /// What each agent holds: that survives the engine, as it does with real ones.
    agents: BTreeMap<AgentId, Vec<(TaskId, Lease)>>,
    joined: u64,
}

#[derive(Default)]
struct Seen {
    moved: u64,
    sent_home: u64,
    died: u64,
    restored: u64,
    cancelled: u64,
    retried: u64,
    after_others: u64,
    /// How often tasks of the group were under lease in several shards at once.
    shared_limit: u64,
}

struct Storm {
    rng: Rng,
    now: Time,
    shards: Vec<Shard>,
    letters: BTreeMap<(u16, u16, u64), Vec<u8>>,
    read: BTreeMap<(u16, u16), u64>,
    /// How each task ended, by the rows of its home.
    ended: BTreeMap<TaskId, Ended>,
    outputs: BTreeSet<TaskId>,
    jobs: BTreeMap<JobId, (u64, Option<JobState>)>,
    /// The first and the last task of arrays that are in the group.
    grouped: Vec<(TaskId, TaskId)>,
    seen: Seen,
}

fn open(journal: &mut MemoryJournal, id: ShardId, now: Time) -> Engine {
    let mut engine = Engine::open(journal, 0).expect("what was written can be read");
    engine.number_from(now, id.number(0)).expect("its numbers");
    engine.join_shards(now);
    engine.begin(now, &loxley_policy::Config::served());
    engine
}

impl Storm {
    fn new(seed: u64, count: u16) -> Self {
        let now = Time(1_000_000_000);
        let shards = (0..count).map(|number| {
            let mut journal = MemoryJournal::new();
            let id = ShardId(number);
            let zone = format!("zone{number}");
            Shard {
                id,
                engine: open(&mut journal, id, now),
                journal,
                rebalancer: Rebalancer::new(id, zone, RebalancePace::default()),
                agents: BTreeMap::new(),
                joined: 0,
            }
        });
        let mut this = Self {
            rng: Rng::new(seed),
            now,
            shards: shards.collect(),
            letters: BTreeMap::new(),
            read: BTreeMap::new(),
            ended: BTreeMap::new(),
            outputs: BTreeSet::new(),
            jobs: BTreeMap::new(),
            grouped: Vec::new(),
            seen: Seen::default(),
        };
        this.submit_with_limit();
        for at in 0..this.shards.len() {
            this.commit(at);
        }
        this
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng.next_u64() % limit.max(1)
    }

    /// Says the limit where it belongs, before anybody has any of it.
    fn submit_with_limit(&mut self) {
        let nothing = CommandRequest {
            words: vec!["true".to_owned()],
            ..CommandRequest::default()
        };
        let request = Submission::unchecked(JobRequest {
            tasks: vec![TaskRequest::new(Work::Command(nothing))],
            limits: [(GROUP.0.to_owned(), GROUP.1)].into(),
            ..JobRequest::default()
        });
        let user = "me".to_owned();
        let told = self.tell(0, Fact::JobSubmitted { request, user });
        assert!(told.is_some(), "it makes sense");
    }

    /// By what agents hold: no more of the group than may.
    fn check_limit(&mut self) {
        let is_grouped = |task: &TaskId| {
            let mut arrays = self.grouped.iter();
            arrays.any(|(first, last)| first <= task && task <= last)
        };
        let held = self.shards.iter().map(|shard| {
            let held = shard.agents.values().flatten();
            held.filter(|(task, _)| is_grouped(task)).count() as u32
        });
        let held: Vec<u32> = held.collect();
        let whole: u32 = held.iter().sum();
        assert!(whole <= GROUP.1, "{held:?} of the group under lease");
        let several = held.iter().filter(|count| **count > 0).count() > 1;
        self.seen.shared_limit += u64::from(several);
    }

    /// Writes the open group, and only then lets out what follows from it.
    fn commit(&mut self, at: usize) {
        let shard = &mut self.shards[at];
        let me = shard.id.0;
        let Flushed { group, effects } = shard.engine.flush();
        let Some(group) = group else {
            assert!(effects.orders.is_empty(), "orders follow from facts");
            return;
        };
        let position = shard.journal.next_position();
        shard.journal.append(position, &group).expect("memory");
        for row in group.rows.letters {
            let before = self.letters.insert((me, row.to, row.number), row.body);
            assert!(before.is_none(), "a letter is written once");
        }
        for (from, number) in group.rows.letters_read {
            let read = self.read.entry((from, me)).or_default();
            assert!(number > *read, "each is read once");
            *read = number;
        }
        for (to, number) in group.rows.letters_arrived {
            assert!(self.read.get(&(me, to)).is_some_and(|read| *read >= number));
            let gone = |key: &(u16, u16, u64)| key.0 == me && key.1 == to && key.2 <= number;
            self.letters.retain(|key, _| !gone(key));
        }
        for row in group.rows.tasks {
            assert_eq!(
                ShardId::of(row.task),
                shard.id,
                "the history of a task is at home"
            );
            let before = self.ended.insert(row.task, row.ended);
            assert!(
                matches!(before, None | Some(Ended::Failed(_))),
                "{:?} ended twice: {before:?}",
                row.task
            );
            if row.ended == Ended::Succeeded {
                assert!(row.agent.is_some() && row.exit_code == Some(0), "{row:?}");
            }
        }
        self.outputs
            .extend(group.rows.outputs.iter().map(|row| row.task));
        for row in group.rows.jobs {
            let job = self.jobs.entry(row.job).or_insert((row.task_count, None));
            job.1 = row.finished.map(|_| row.state);
            if row.finished.is_some() {
                assert_eq!(
                    row.succeeded + row.failed + row.cancelled,
                    row.task_count,
                    "a job is over when all of it is"
                );
            }
        }
        for agent in &effects.parted {
            shard.agents.remove(agent);
        }
        for (agent, orders) in effects.orders {
            let Some(held) = shard.agents.get_mut(&agent) else {
                continue;
            };
            held.extend(orders.assign.iter().map(|one| (one.task, one.lease)));
            held.retain(|(_, lease)| !orders.cancel.contains(lease));
            let mut given_back = Vec::new();
            for retract in &orders.retract {
                let place = held.iter().position(|(_, lease)| *lease == retract.lease);
                if let Some(place) = place {
                    held.remove(place);
                    given_back.push((retract.task, retract.lease));
                }
            }
            let mut stopped = Vec::new();
            for (task, lease) in &orders.stop {
                let place = held.iter().position(|(_, known)| known == lease);
                if let Some(place) = place {
                    held.remove(place);
                    stopped.push((*task, *lease));
                }
            }
            for (task, lease) in given_back {
                shard.engine.yielded(self.now, agent, task, lease, true);
            }
            for (task, lease) in stopped {
                let outcome = Outcome::Failed(Failure::Error);
                let finish = Finish::default();
                shard
                    .engine
                    .finished(self.now, agent, task, lease, outcome, Span(1), finish);
            }
        }
    }

    /// The engine is gone, and what it had not written with it. Its agents say what they hold.
    fn die(&mut self, at: usize) {
        self.seen.died += 1;
        let now = self.now;
        let shard = &mut self.shards[at];
        shard.engine = open(&mut shard.journal, shard.id, now);
        let zone = format!("zone{at}");
        shard.rebalancer = Rebalancer::new(shard.id, zone, RebalancePace::default());
        let agents: Vec<(AgentId, Vec<Lease>)> = shard
            .agents
            .iter()
            .map(|(agent, held)| (*agent, held.iter().map(|(_, lease)| *lease).collect()))
            .collect();
        for (agent, leases) in agents {
            let resumed = Fact::AgentResumed { agent, leases };
            shard
                .engine
                .record_and_apply(now, resumed, None)
                .expect("it is known");
        }
        self.commit(at);
    }

    fn keep_snapshot(&mut self, at: usize) {
        self.commit(at);
        let shard = &mut self.shards[at];
        // Answers of agents to what was just committed are told already.
        if shard.engine.is_group_empty() {
            self.seen.restored += 1;
            let state = shard.engine.copy_state().pack();
            let position: Position = shard.journal.next_position();
            shard
                .journal
                .save_snapshot(&Snapshot { position, state })
                .expect("memory");
        }
    }

    fn read_letters(&mut self, at: usize) {
        let me = self.shards[at].id;
        let now = self.now;
        let mut waiting: Vec<(u16, u64)> = self
            .letters
            .keys()
            .filter(|(_, to, _)| *to == me.0)
            .map(|(from, _, number)| (*from, *number))
            .collect();
        waiting.sort_by_key(|(from, number)| (*number, *from));
        let most = 1 + self.below(4) as usize;
        for (from, number) in waiting.into_iter().take(most) {
            let body = &self.letters[&(from, me.0, number)];
            let items: Vec<Item> = postcard::from_bytes(body).expect("it was written here");
            let letter = Letter {
                from: ShardId(from),
                to: me,
                number,
                items,
            };
            let shard = &mut self.shards[at];
            match shard.engine.receipt(&letter) {
                Receipt::Next => {
                    for item in &letter.items {
                        match item {
                            Item::Given(tasks) => {
                                self.seen.moved += tasks.len() as u64;
                                shard.rebalancer.answered(now, letter.from, tasks.len());
                            }
                            Item::Home(_) => self.seen.sent_home += 1,
                            _ => {}
                        }
                    }
                    shard.engine.receive(now, letter);
                }
                Receipt::Repeated => {}
                Receipt::Ahead => panic!("shard {me} is behind, and nobody else serves it"),
            }
        }
        let read: Vec<(u16, u64)> = self
            .read
            .iter()
            .filter(|((from, _), _)| *from == me.0)
            .map(|((_, by), number)| (*by, *number))
            .collect();
        for (by, number) in read {
            let shard = &mut self.shards[at];
            assert!(shard.engine.letters_read(now, ShardId(by), number));
        }
    }

    fn rebalance(&mut self, at: usize) {
        let now = self.now;
        let told: Vec<_> = self
            .shards
            .iter()
            .map(|shard| (shard.id, shard.engine.waiting_kinds()))
            .collect();
        let mut kinds: BTreeMap<Kind, _> = BTreeMap::new();
        let shard = &mut self.shards[at];
        for (id, waiting) in told {
            let load = Load {
                zone: format!("zone{}", id.0),
                kinds: waiting.iter().map(|kind| kind.load).collect(),
            };
            for kind in waiting {
                kinds.insert(kind.load.kind, (kind.skills, kind.needs));
            }
            shard.rebalancer.hear(now, id, load);
        }
        shard
            .engine
            .rebalance_shards(now, &mut shard.rebalancer, &kinds);
    }

    fn submit(&mut self, at: usize) {
        let skill = SKILLS[self.below(3) as usize];
        let many = 1 + self.below(30);
        let task = |words: &[&str], skill: &str| TaskRequest {
            skills: vec![skill.to_owned()],
            cost_sec: Some(1.0),
            ..TaskRequest::new(Work::Command(CommandRequest {
                words: words.iter().map(|word| (*word).to_owned()).collect(),
                ..CommandRequest::default()
            }))
        };
        let is_grouped = self.chance(3);
        let array = TaskRequest {
            name: Some("each".to_owned()),
            group: is_grouped.then(|| GROUP.0.to_owned()),
            entries: Some(Entries::Range {
                first: 1,
                last: many,
                step: 1,
            }),
            retry: RetryRequest {
                retries: self.below(3) as u32,
                ..RetryRequest::default()
            },
            speculate: self.chance(2),
            ..task(&["echo", "{}"], skill)
        };
        let mut tasks = vec![array];
        if self.chance(2) {
            let other = SKILLS[self.below(3) as usize];
            tasks.push(TaskRequest {
                depends_on: vec!["each".to_owned()],
                ..task(&["true"], other)
            });
        }
        // Some come after others, of any shard.
        let earlier: Vec<JobId> = self.jobs.keys().copied().collect();
        let count = self.below(3).saturating_sub(1).min(earlier.len() as u64);
        let after = (0..count).map(|_| earlier[self.below(earlier.len() as u64) as usize]);
        let after: Vec<JobId> = after.collect();
        let here = self.shards[at].id;
        let is_elsewhere = |job: &JobId| ShardId::try_of(job.0) != Some(here);
        self.seen.after_others += after.iter().filter(|job| is_elsewhere(job)).count() as u64;
        let request = Submission::unchecked(JobRequest {
            tasks,
            after,
            ..JobRequest::default()
        });
        let user = ["me", "you"][self.below(2) as usize].to_owned();
        let fact = Fact::JobSubmitted { request, user };
        let told = self.tell(at, fact);
        if let (true, Some(Applied::Job(job))) = (is_grouped, told) {
            let first = self.shards[at].engine.job_info(job).expect("it is open");
            let first = first.first_task;
            self.grouped.push((first, TaskId(first.0 + many - 1)));
        }
    }

    fn tell(&mut self, at: usize, fact: Fact) -> Option<Applied> {
        let applied = self.shards[at]
            .engine
            .record_and_apply(self.now, fact, None);
        applied.ok()
    }

    fn join(&mut self, at: usize, skills: &[&str]) {
        let shard = &mut self.shards[at];
        shard.joined += 1;
        let record = AgentRecord {
            name: format!("agent {}", shard.joined),
            owner: String::new(),
            process: shard.joined,
            skills: skills.iter().map(|skill| (*skill).to_owned()).collect(),
            slots: 2,
            speed: 1.0,
            cpu_milli: 0,
            memory_bytes: 0,
            resources: Vec::new(),
            zone: None,
            holds: Vec::new(),
        };
        let fact = Fact::AgentJoined(Box::new(record));
        if let Some(Applied::Agent(agent)) = self.tell(at, fact) {
            self.commit(at);
            self.shards[at].agents.insert(agent, Vec::new());
            // What it was given with its own joining it never got: it says so.
            let leases = Vec::new();
            self.tell(at, Fact::AgentResumed { agent, leases });
        }
    }

    /// They are there, and say so.
    fn hear_agents(&mut self, at: usize) {
        let shard = &mut self.shards[at];
        for agent in shard.agents.keys() {
            shard.engine.heard(self.now, *agent, Vitals::default());
        }
    }

    fn part(&mut self, at: usize) {
        let pick = self.below(8) as usize;
        let agent = self.shards[at].agents.keys().nth(pick).copied();
        if let Some(agent) = agent {
            self.shards[at].agents.remove(&agent);
            self.tell(at, Fact::AgentLeft(agent));
        }
    }

    /// An agent ends something.
    fn work(&mut self, at: usize, fails: bool) {
        let pick = self.below(8) as usize;
        let now = self.now;
        let shard = &mut self.shards[at];
        let busy = shard.agents.iter_mut().filter(|(_, held)| !held.is_empty());
        let busy: Vec<_> = busy.collect();
        let count = busy.len();
        let Some((agent, held)) = busy.into_iter().nth(pick % count.max(1)) else {
            return;
        };
        let (task, lease) = held.remove(0);
        let agent = *agent;
        shard.engine.started(now, agent, task, lease);
        let outcome = match fails {
            true => Outcome::Failed(Failure::Error),
            false => Outcome::Succeeded,
        };
        let finish = Finish {
            exit_code: Some(i32::from(fails)),
            stdout: task.0.to_string().into_bytes().into(),
            ..Finish::default()
        };
        let ran = Span::from_millis(10);
        shard
            .engine
            .finished(now, agent, task, lease, outcome, ran, finish);
    }

    fn cancel(&mut self, at: usize) {
        let me = self.shards[at].id;
        let open: Vec<JobId> = self.shards[at]
            .engine
            .jobs()
            .map(|job| job.id)
            .filter(|job| self.shards[at].engine.is_open(*job))
            .collect();
        if open.is_empty() {
            return;
        }
        let job = open[self.below(open.len() as u64) as usize];
        assert_eq!(ShardId::try_of(job.0), Some(me), "guests are no jobs of it");
        let info = self.shards[at].engine.job_info(job).expect("it is open");
        let one = TaskId(info.first_task.0 + self.below(info.tasks.total));
        let what = match self.chance(3) {
            true => Selection::Job(job),
            false => Selection::Task(one),
        };
        if self.tell(at, Fact::Cancelled(what)).is_some() {
            self.seen.cancelled += 1;
        }
    }

    fn step(&mut self) {
        let at = self.below(self.shards.len() as u64) as usize;
        self.now = self.now + Span::from_millis(self.below(300));
        self.hear_agents(at);
        self.shards[at].engine.tick_if_due(self.now);
        match self.below(40) {
            0 | 1 => self.submit(at),
            2..=14 => {
                let fails = self.chance(6);
                self.work(at, fails);
            }
            15..=20 => self.read_letters(at),
            21..=26 => self.rebalance(at),
            27 => {
                // Each shard has what the others lack, most of the time.
                let skills = [SKILLS[at % 3], SKILLS[self.below(3) as usize]];
                self.join(at, &skills);
            }
            28 if self.chance(3) => self.part(at),
            29 => self.cancel(at),
            30 if self.chance(2) => return self.die(at),
            31 => self.keep_snapshot(at),
            32 if self.chance(2) => {
                let dead: Vec<TaskId> = self.shards[at].engine.scheduler().dead_letters().collect();
                for task in &dead {
                    assert_eq!(
                        ShardId::of(*task),
                        self.shards[at].id,
                        "a guest that failed"
                    );
                }
                let again = Fact::Resubmitted(dead);
                if self.tell(at, again).is_some() {
                    self.seen.retried += 1;
                }
            }
            _ => {}
        }
        if !self.chance(4) {
            self.commit(at);
        }
        self.check_limit();
    }

    /// After the storm: everybody who is needed is there, and everything comes to its end.
    fn calm_down(&mut self) {
        for at in 0..self.shards.len() {
            self.commit(at);
            self.join(at, &SKILLS);
        }
        for round in 0..4_000 {
            self.now = self.now + Span::from_millis(100);
            for at in 0..self.shards.len() {
                self.hear_agents(at);
                self.shards[at].engine.tick_if_due(self.now);
                self.read_letters(at);
                for _ in 0..4 {
                    self.work(at, false);
                }
                if round < 200 && round % 10 == 0 {
                    self.rebalance(at);
                }
                self.commit(at);
                self.check_limit();
            }
            let is_over = |shard: &Shard| {
                let (away, guests) = shard.engine.moved_counts();
                shard.engine.open_jobs() == 0 && away == 0 && guests == 0
            };
            if round > 250 && self.letters.is_empty() && self.shards.iter().all(is_over) {
                return;
            }
        }
        for shard in &self.shards {
            std::eprintln!(
                "shard {}: {} open jobs, moved {:?}, {:?}",
                shard.id,
                shard.engine.open_jobs(),
                shard.engine.moved_counts(),
                shard.engine.scheduler().counts()
            );
        }
        panic!(
            "not everything came to its end: {} letters",
            self.letters.len()
        );
    }
}

fn run(seed: u64) -> Seen {
    let mut storm = Storm::new(seed, 2 + (seed % 2) as u16);
    for _ in 0..1_500 {
        storm.step();
    }
    storm.calm_down();
    for (job, (count, state)) in &storm.jobs {
        assert!(state.is_some(), "{job:?} with {count} tasks is not over");
    }
    let mut total = loxley_api::TaskCounts::default();
    for shard in &storm.shards {
        let counts = shard.engine.fleet_info().tasks;
        total.total += counts.total;
        total.succeeded += counts.succeeded;
        total.failed += counts.failed;
        total.cancelled += counts.cancelled;
    }
    let submitted: u64 = storm.jobs.values().map(|(count, _)| count).sum();
    assert_eq!(total.total, submitted, "each task counts once");
    assert_eq!(total.over(), submitted, "and is over once");
    for (task, ended) in &storm.ended {
        if *ended == Ended::Succeeded {
            assert!(storm.outputs.contains(task), "its output is at home");
        }
    }
    storm.seen
}

#[test]
fn whatever_goes_wrong_between_shards_every_task_ends_once_and_at_home() {
    let seeds = match std::env::var_os("LOXLEY_TEST_LONG") {
        Some(_) => 2_000,
        None => 6,
    };
    let mut all = Seen::default();
    for seed in 0..seeds {
        let seen = std::panic::catch_unwind(|| run(seed));
        let seen = seen.unwrap_or_else(|_| panic!("seed {seed}"));
        all.moved += seen.moved;
        all.sent_home += seen.sent_home;
        all.died += seen.died;
        all.restored += seen.restored;
        all.cancelled += seen.cancelled;
        all.retried += seen.retried;
        all.after_others += seen.after_others;
        all.shared_limit += seen.shared_limit;
    }
    for (what, count) in [
        ("moved", all.moved),
        ("sent home", all.sent_home),
        ("died", all.died),
        ("kept a snapshot", all.restored),
        ("cancelled", all.cancelled),
        ("retried", all.retried),
        ("after a job of another shard", all.after_others),
        ("in several shards under one limit", all.shared_limit),
    ] {
        std::eprintln!("{what}: {count}");
        assert!(count > 0, "nothing was {what}");
    }
}
