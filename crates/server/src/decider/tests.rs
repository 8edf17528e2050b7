//! The engine with agents made up of channels: no socket, no process.

use std::sync::{Arc, Mutex};

use loxley_api::{
    CommandRequest, DependencyFailure, Entries, JobRequest, JobState, TaskRequest, TaskState, Work,
};
use loxley_engine::{replay, replay_from_snapshot};
use loxley_journal::{
    AppendError, Group, Journal, Limit, MemoryJournal, Position, ReadError, Saving, Snapshot,
    StoredGroup,
};
use loxley_model::TaskId;

use super::*;

/// A journal that outlives the engine that writes it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<MemoryJournal>>);

impl Journal for Shared {
    fn next_position(&self) -> Position {
        self.0.lock().unwrap().next_position()
    }
    fn append(&mut self, at: Position, group: &Group) -> Result<Position, AppendError> {
        self.0.lock().unwrap().append(at, group)
    }
    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        self.0.lock().unwrap().read(from, limit)
    }
    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError> {
        self.0.lock().unwrap().save_piece(saving)
    }
    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError> {
        self.0.lock().unwrap().snapshots()
    }
    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError> {
        self.0.lock().unwrap().snapshot(at)
    }
    fn truncate(&mut self, before: Position) -> Result<u64, AppendError> {
        self.0.lock().unwrap().truncate(before)
    }
}

fn started(journal: &Shared) -> (Handle, Running) {
    start(
        Box::new(journal.clone()),
        HistorySource::none(0),
        &EngineOptions::default(),
    )
    .unwrap()
}

fn task(words: &[&str]) -> TaskRequest {
    TaskRequest::new(Work::Command(CommandRequest {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        ..CommandRequest::default()
    }))
}

fn job(tasks: Vec<TaskRequest>) -> JobRequest {
    JobRequest {
        tasks,
        ..JobRequest::default()
    }
}

fn array(last: u64) -> JobRequest {
    let entries = Entries::Range {
        first: 1,
        last,
        step: 1,
    };
    job(vec![TaskRequest {
        entries: Some(entries),
        ..task(&["echo", "{}"])
    }])
}

/// An agent that does what the test says.
struct FakeAgent {
    handle: Handle,
    id: AgentId,
    session: u64,
    frames: mpsc::Receiver<wire::ServerFrame>,
    templates: std::collections::HashMap<u64, wire::Template>,
}

impl FakeAgent {
    async fn connect(handle: &Handle, name: &str, process: u64, leases: &[u64]) -> Self {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let (sender, frames) = mpsc::channel(64);
        let link = Link {
            session,
            token: "agents".into(),
            frames: sender,
            cut: Arc::default(),
        };
        let hello = wire::Hello {
            version: wire::VERSION,
            name: name.to_owned(),
            process,
            slots: 2,
            speed: 1.0,
            leases: leases.to_vec(),
            ..wire::Hello::default()
        };
        let id = handle.connect(hello, link).await.unwrap();
        Self {
            handle: handle.clone(),
            id,
            session,
            frames,
            templates: std::collections::HashMap::new(),
        }
    }

    async fn next(&mut self) -> wire::ServerFrame {
        let frame = self.frames.recv().await.expect("the session is open");
        for template in &frame.templates {
            self.templates.insert(template.id, template.clone());
        }
        frame
    }

    /// The next frame that holds an assignment. Others only acknowledge.
    async fn next_with_work(&mut self) -> wire::ServerFrame {
        loop {
            let frame = self.next().await;
            if !frame.assign.is_empty() {
                return frame;
            }
        }
    }

    async fn say(&self, frame: wire::AgentFrame) {
        self.handle
            .hear(self.id, self.session, frame)
            .await
            .unwrap();
    }

    async fn finish(&self, assigned: &[wire::Assign], outcome: wire::Outcome) {
        let finished = assigned.iter().map(|assign| wire::Finished {
            task: assign.task,
            lease: assign.lease,
            outcome: outcome.into(),
            code: Some(i32::from(outcome != wire::Outcome::Succeeded)),
            ..wire::Finished::default()
        });
        self.say(wire::AgentFrame {
            finished: finished.collect(),
            number: 1,
            ..wire::AgentFrame::default()
        })
        .await;
    }

    /// Runs everything it is given until it has finished so many; returns the entries.
    async fn work(&mut self, count: usize) -> Vec<String> {
        let mut entries = Vec::new();
        while entries.len() < count {
            let frame = self.next().await;
            for assign in &frame.assign {
                assert!(self.templates.contains_key(&assign.template));
                let entry = assign.entry.clone().unwrap_or_default();
                entries.push(String::from_utf8(entry.to_vec()).unwrap());
            }
            if !frame.assign.is_empty() {
                self.finish(&frame.assign, wire::Outcome::Succeeded).await;
            }
        }
        entries
    }
}

#[tokio::test]
async fn every_entry_of_an_array_runs_once_and_a_replay_decides_alike() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let accepted = handle.submit(&array(20_000), "me").await.unwrap();
    assert_eq!(
        (accepted.state, accepted.tasks.total),
        (JobState::Open, 20_000)
    );
    assert!(accepted.tasks.pending > 10_000, "fed bit by bit");
    let mut entries = agent.work(20_000).await;
    entries.sort_unstable_by_key(|entry| entry.parse::<u64>().unwrap());
    let expected: Vec<String> = (1..=20_000).map(|entry| entry.to_string()).collect();
    assert!(entries == expected, "each entry once");
    let mut templates = agent.templates.values();
    assert!(templates.all(|template| template.hold_ns == 40_000_000));
    let digest = handle.digest().await.unwrap();
    running.stop().await.unwrap();
    let replayed = replay(&mut journal.clone()).unwrap();
    assert_eq!(replayed.digest, digest);
    assert_eq!(replayed.counts.finished, 20_000);
}

#[tokio::test]
async fn a_server_that_starts_again_goes_on_and_an_agent_that_is_back_keeps_its_tasks() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    // So short that one of them lies at the agent while the others run.
    let mut three = array(3);
    three.tasks[0].cost_sec = Some(0.001);
    let accepted = handle.submit(&three, "me").await.unwrap();
    let mut assigned = Vec::new();
    while assigned.len() < 3 {
        assigned.extend(agent.next().await.assign);
    }
    running.stop().await.unwrap();

    let (handle, running) = started(&journal);
    // It lost the second assignment and still has the others; of one lease nobody knows.
    let leases = [assigned[0].lease, assigned[2].lease, 999];
    let mut agent = FakeAgent::connect(&handle, "a", 1, &leases).await;
    let first = agent.next().await;
    assert!(first.welcome.unwrap().resumed);
    assert_eq!(first.cancel[0].lease, 999);
    let again: Vec<_> = first.assign.iter().map(|assign| assign.task).collect();
    assert_eq!(
        again,
        [assigned[1].task],
        "what it never got is given again"
    );
    let all = [&assigned[..1], &assigned[2..], &first.assign[..]].concat();
    agent.finish(&all, wire::Outcome::Succeeded).await;
    let done = handle.wait(accepted.id).await;
    assert!(done.is_err() || done.unwrap().state == JobState::Succeeded);
    let counts = handle.fleet().await.unwrap().tasks;
    assert_eq!((counts.succeeded, counts.total), (3, 3));
    // The answers to leases that are over count for nothing.
    agent.finish(&all, wire::Outcome::Failed).await;
    let fleet = handle.fleet().await.unwrap();
    assert_eq!((fleet.tasks.failed, fleet.stale_answers), (0, 3));
    running.stop().await.unwrap();
    replay(&mut journal.clone()).unwrap();
}

#[tokio::test]
async fn what_an_agent_was_asked_to_give_back_over_a_lost_connection_it_is_asked_for_again() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let mut busy = FakeAgent::connect(&handle, "busy", 1, &[]).await;
    // So short that one of them lies at the agent while the others run.
    let mut three = array(3);
    three.tasks[0].cost_sec = Some(0.001);
    handle.submit(&three, "me").await.unwrap();
    let mut assigned = Vec::new();
    while assigned.len() < 3 {
        assigned.extend(busy.next().await.assign);
    }
    let started = assigned[..2].iter().map(|assign| wire::Started {
        task: assign.task,
        lease: assign.lease,
    });
    let started = wire::AgentFrame {
        started: started.collect(),
        ..wire::AgentFrame::default()
    };
    busy.say(started).await;
    let mut idle = FakeAgent::connect(&handle, "idle", 2, &[]).await;
    let waiting = &assigned[2];
    let is_asked = |frame: &wire::ServerFrame| {
        let mut asked = frame.retract.iter();
        asked.any(|retract| retract.lease == waiting.lease)
    };
    while !is_asked(&busy.next().await) {}
    // That frame was lost with its connection, as after a pause of the server.
    handle.disconnect(busy.id, busy.session).await;
    let leases: Vec<u64> = assigned.iter().map(|assign| assign.lease).collect();
    let mut busy = FakeAgent::connect(&handle, "busy", 1, &leases).await;
    while !is_asked(&busy.next().await) {}
    let yielded = wire::Yielded {
        task: waiting.task,
        lease: waiting.lease,
        yielded: true,
    };
    busy.say(wire::AgentFrame {
        yielded: vec![yielded],
        ..wire::AgentFrame::default()
    })
    .await;
    let taken = idle.next_with_work().await;
    assert_eq!(taken.assign[0].task, waiting.task);
    running.stop().await.unwrap();
    replay(&mut journal.clone()).unwrap();
}

#[tokio::test]
async fn a_new_process_of_the_same_name_has_nothing_of_the_old_one() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    handle.submit(&array(2), "me").await.unwrap();
    let mut old = Vec::new();
    while old.len() < 2 {
        old.extend(agent.next().await.assign);
    }
    handle.disconnect(agent.id, agent.session).await;
    let mut agent = FakeAgent::connect(&handle, "a", 2, &[]).await;
    let frame = agent.next().await;
    assert!(!frame.welcome.unwrap().resumed);
    let mut new = frame.assign;
    while new.len() < 2 {
        new.extend(agent.next().await.assign);
    }
    agent.finish(&old, wire::Outcome::Failed).await;
    agent.finish(&new, wire::Outcome::Succeeded).await;
    let fleet = handle.fleet().await.unwrap();
    assert_eq!((fleet.tasks.succeeded, fleet.tasks.failed), (2, 0));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn two_living_agents_cannot_have_one_name() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let _agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let (sender, _frames) = mpsc::channel(1);
    let link = Link {
        session: u64::MAX,
        token: "agents".into(),
        frames: sender,
        cut: Arc::default(),
    };
    let hello = wire::Hello {
        name: "a".to_owned(),
        process: 2,
        slots: 1,
        speed: 1.0,
        ..wire::Hello::default()
    };
    let refused = handle.connect(hello, link).await.unwrap_err();
    assert_eq!(refused.code, loxley_api::ErrorCode::Conflict);
    running.stop().await.unwrap();
}

/// An agent that says how far it saw the journal, whatever comes of it.
async fn connect_having_seen(
    handle: &Handle,
    seen: wire::Seen,
) -> (Result<AgentId, ApiError>, mpsc::Receiver<wire::ServerFrame>) {
    let (sender, frames) = mpsc::channel(64);
    let link = Link {
        session: u64::MAX,
        token: "agents".into(),
        frames: sender,
        cut: Arc::default(),
    };
    let hello = wire::Hello {
        version: wire::VERSION,
        name: "a".to_owned(),
        process: 1,
        slots: 1,
        speed: 1.0,
        shard: Some(0),
        seen: vec![seen],
        ..wire::Hello::default()
    };
    (handle.connect(hello, link).await, frames)
}

#[tokio::test]
async fn a_server_that_hears_of_more_than_its_journal_has_makes_sure_and_stops() {
    let journal = Shared::default();
    let options = EngineOptions::default();
    options.instances.epoch.store(5, Ordering::Relaxed);
    options.instances.holder.store(77, Ordering::Relaxed);
    let begin = || {
        let source = HistorySource::none(0);
        start(Box::new(journal.clone()), source, &options).unwrap()
    };
    let (handle, running) = begin();
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let frame = agent.next().await;
    let welcome = frame.welcome.expect("the first frame");
    assert_eq!((welcome.epoch, welcome.holder), (5, 77));
    assert!(frame.position > 0);
    handle.disconnect(agent.id, agent.session).await;
    // What it was told by this one, it has.
    let mut seen = wire::Seen {
        shard: 0,
        epoch: 5,
        holder: 77,
        position: frame.position,
    };
    let (connected, mut frames) = connect_having_seen(&handle, seen).await;
    let agent = connected.unwrap();
    let welcome = frames.recv().await.unwrap().welcome.unwrap();
    assert!(welcome.resumed);
    handle.disconnect(agent, u64::MAX).await;
    // Nobody has such an epoch.
    seen.epoch = u64::MAX;
    let refused = connect_having_seen(&handle, seen).await.0.unwrap_err();
    assert_eq!(refused.code, loxley_api::ErrorCode::Invalid);
    // Another one had this epoch: at first it may be that this server was fenced, then it has written.
    (seen.epoch, seen.holder) = (5, 78);
    let refused = connect_having_seen(&handle, seen).await.0.unwrap_err();
    assert_eq!(refused.code, loxley_api::ErrorCode::Unavailable);
    assert!(!running.is_over());
    connect_having_seen(&handle, seen).await.0.unwrap_err();
    running.ended().await.unwrap();
    let loss = options.instances.loss.lock().unwrap().take().unwrap();
    assert_eq!(loss.epoch, 5);
    assert!(loss.message.contains("the agent `a` saw"), "{loss:?}");

    // Its owners go on without: whoever heard of it begins anew.
    options.instances.epoch.store(6, Ordering::Relaxed);
    options.instances.lost_until.store(5, Ordering::Relaxed);
    let (handle, running) = begin();
    let (connected, mut frames) = connect_having_seen(&handle, seen).await;
    connected.unwrap();
    let welcome = frames.recv().await.unwrap().welcome.unwrap();
    assert!(!welcome.resumed);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_saw_more_than_the_journal_of_the_only_server_has_begins_anew() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    handle.disconnect(agent.id, agent.session).await;
    let seen = wire::Seen {
        position: 1_000,
        ..wire::Seen::default()
    };
    let (connected, mut frames) = connect_having_seen(&handle, seen).await;
    connected.unwrap();
    let welcome = frames.recv().await.unwrap().welcome.unwrap();
    assert!(!welcome.resumed);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_after_another_waits_for_it_and_ends_with_its_failure() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let first = handle
        .submit(&job(vec![task(&["false"])]), "me")
        .await
        .unwrap();
    let mut second = array(5000);
    second.after = vec![first.id];
    let second = handle.submit(&second, "me").await.unwrap();
    assert_eq!(second.state, JobState::Waiting);
    let mut third = job(vec![task(&["true"])]);
    third.after = vec![second.id];
    third.on_dependency_failure = DependencyFailure::Skip;
    let third = handle.submit(&third, "me").await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait(third.id).await }
    });
    tokio::task::yield_now().await;
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let frame = agent.next().await;
    agent.finish(&frame.assign, wire::Outcome::Failed).await;
    let ended = waiting.await.unwrap().unwrap();
    assert_eq!(ended.state, JobState::Cancelled);
    let second = handle.job(second.id).await.unwrap();
    assert_eq!(
        (second.state, second.tasks.failed),
        (JobState::Failed, 5000)
    );
    running.stop().await.unwrap();
    replay(&mut journal.clone()).unwrap();
}

#[tokio::test]
async fn a_graph_runs_in_order_and_a_circle_is_refused_whole() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let named = |name: &str, after: &[&str]| TaskRequest {
        name: Some(name.to_owned()),
        depends_on: after.iter().map(|name| (*name).to_owned()).collect(),
        ..task(&[name])
    };
    let circle = job(vec![named("a", &["b"]), named("b", &["a"])]);
    let refused = handle.submit(&circle, "me").await.unwrap_err();
    assert!(refused.message.contains("circle"), "{refused}");
    let graph = job(vec![named("last", &["first"]), named("first", &[])]);
    let accepted = handle.submit(&graph, "me").await.unwrap();
    assert_eq!(
        accepted.first_task,
        TaskId(1),
        "a refused job leaves no trace"
    );
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let mut order = Vec::new();
    while order.len() < 2 {
        let frame = agent.next().await;
        order.extend(frame.assign.iter().map(|assign| assign.task));
        if !frame.assign.is_empty() {
            agent.finish(&frame.assign, wire::Outcome::Succeeded).await;
        }
    }
    assert_eq!(order, [2, 1]);
    let mut templates = agent.templates.values();
    assert!(
        templates.all(|template| template.hold_ns == 2_000_000),
        "an end that another task waits for is not kept back for long"
    );
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_task_may_depend_on_tasks_of_earlier_jobs() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let after = |tasks: &[u64]| TaskRequest {
        depends_on_tasks: tasks.iter().copied().map(TaskId).collect(),
        ..task(&["after"])
    };
    let unknown = handle.submit(&job(vec![after(&[7])]), "me").await;
    assert!(unknown.unwrap_err().message.contains("nobody submitted"));
    handle.submit(&array(3), "me").await.unwrap();
    handle.submit(&job(vec![after(&[2])]), "me").await.unwrap();
    handle
        .submit(&job(vec![after(&[1, 4])]), "me")
        .await
        .unwrap();
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let mut order = Vec::new();
    while order.len() < 5 {
        let frame = agent.next().await;
        for assign in &frame.assign {
            order.push(assign.task);
            let outcome = wire::Outcome::Succeeded;
            agent.finish(std::slice::from_ref(assign), outcome).await;
        }
    }
    let at = |task| order.iter().position(|other| *other == task).unwrap();
    assert!(at(2) < at(4) && at(4) < at(5) && at(1) < at(5), "{order:?}");
    // What is over is known to be: with success, and without.
    handle.submit(&job(vec![after(&[1])]), "me").await.unwrap();
    let last = agent.next_with_work().await;
    agent
        .finish(&last.assign, wire::Outcome::FailedForGood)
        .await;
    let failed = handle.submit(&job(vec![after(&[6])]), "me").await;
    assert!(failed.unwrap_err().message.contains("did not succeed"));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_cancelled_does_not_run_fed_or_not() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let big = handle.submit(&array(10_000), "me").await.unwrap();
    handle
        .cancel(loxley_policy::Selection::Task(TaskId(9_999)))
        .await
        .unwrap();
    handle
        .cancel(loxley_policy::Selection::Task(TaskId(1)))
        .await
        .unwrap();
    let counts = handle.job(big.id).await.unwrap().tasks;
    assert_eq!((counts.cancelled, counts.total), (2, 10_000));
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let entries = agent.work(9_998).await;
    assert!(!entries.contains(&"1".to_owned()) && !entries.contains(&"9999".to_owned()));
    let other = handle.submit(&array(10_000), "me").await.unwrap();
    agent.next_with_work().await;
    handle
        .cancel(loxley_policy::Selection::Job(other.id))
        .await
        .unwrap();
    let mut ended = 0;
    while ended == 0 || handle.open_jobs().await.unwrap() > 0 {
        let cancelled = agent.next().await.cancel;
        ended += cancelled.len();
        let yielded = cancelled.iter().map(|cancel| wire::Yielded {
            task: cancel.task,
            lease: cancel.lease,
            yielded: true,
        });
        let yielded: Vec<_> = yielded.collect();
        if !yielded.is_empty() {
            agent
                .say(wire::AgentFrame {
                    yielded,
                    ..wire::AgentFrame::default()
                })
                .await;
            break;
        }
    }
    let fleet = handle.fleet().await.unwrap();
    assert_eq!((fleet.tasks.cancelled, fleet.tasks.running), (10_002, 0));
    assert_eq!(handle.open_jobs().await.unwrap(), 0);
    running.stop().await.unwrap();
    replay(&mut journal.clone()).unwrap();
}

#[tokio::test]
async fn a_failed_task_can_be_tried_again_and_a_key_makes_one_job() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let mut request = job(vec![task(&["flaky"])]);
    request.key = Some("k1".to_owned());
    let accepted = handle.submit(&request, "me").await.unwrap();
    let again = handle.submit(&request, "me").await.unwrap();
    assert_eq!(accepted.id, again.id);
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let frame = agent.next().await;
    agent.finish(&frame.assign, wire::Outcome::Failed).await;
    let failed = handle.wait(accepted.id).await.unwrap();
    assert_eq!(failed.state, JobState::Failed);
    handle.retry(vec![failed.first_task]).await.unwrap();
    let task = handle.task(failed.first_task).await.unwrap();
    assert!(!task.state.is_over() && task.state != TaskState::Pending);
    agent.work(1).await;
    let refused = handle.retry(vec![failed.first_task]).await.unwrap_err();
    assert_eq!(refused.code, loxley_api::ErrorCode::Conflict);
    running.stop().await.unwrap();
    replay(&mut journal.clone()).unwrap();
}

#[tokio::test]
async fn a_checkpoint_goes_to_whoever_runs_the_task_next() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let request = job(vec![TaskRequest {
        checkpoints: true,
        ..task(&["long"])
    }]);
    handle.submit(&request, "me").await.unwrap();
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let assign = agent.next().await.assign.remove(0);
    assert_eq!(assign.checkpoint, None);
    agent
        .say(wire::AgentFrame {
            checkpoints: vec![wire::Checkpoint {
                task: assign.task,
                lease: assign.lease,
                state: "half way".into(),
            }],
            number: 1,
            ..wire::AgentFrame::default()
        })
        .await;
    assert_eq!(agent.next().await.acknowledged, 1);
    handle.disconnect(agent.id, agent.session).await;
    running.stop().await.unwrap();
    let (handle, running) = started(&journal);
    let mut agent = FakeAgent::connect(&handle, "a", 2, &[]).await;
    let frame = agent.next().await;
    assert_eq!(
        frame.assign[0].checkpoint.as_deref(),
        Some(&b"half way"[..])
    );
    running.stop().await.unwrap();
}

/// A journal whose snapshots are bad, all or only the newest.
#[derive(Clone)]
struct Damaged {
    journal: Shared,
    newest_only: bool,
}

impl Journal for Damaged {
    fn next_position(&self) -> Position {
        self.journal.next_position()
    }
    fn append(&mut self, at: Position, group: &Group) -> Result<Position, AppendError> {
        self.journal.append(at, group)
    }
    fn read(&mut self, from: Position, limit: Limit) -> Result<Vec<StoredGroup>, ReadError> {
        self.journal.read(from, limit)
    }
    fn save_piece(&mut self, saving: &mut Saving) -> Result<bool, AppendError> {
        self.journal.save_piece(saving)
    }
    fn snapshots(&mut self) -> Result<Vec<Position>, ReadError> {
        self.journal.snapshots()
    }
    fn snapshot(&mut self, at: Position) -> Result<Snapshot, ReadError> {
        let mut snapshot = self.journal.snapshot(at)?;
        if !self.newest_only || self.snapshots()?.first() == Some(&at) {
            let half = snapshot.state.len() / 2;
            snapshot.state.truncate(half);
        }
        Ok(snapshot)
    }
    fn truncate(&mut self, before: Position) -> Result<u64, AppendError> {
        self.journal.truncate(before)
    }
}

/// A journal with two snapshots, and the state after everything.
async fn journal_with_snapshots() -> (Shared, u64) {
    let journal = Shared::default();
    for process in 1..=2 {
        let (handle, running) = started(&journal);
        let mut agent = FakeAgent::connect(&handle, "a", process, &[]).await;
        handle.submit(&array(3000), "me").await.unwrap();
        agent.work(2500).await;
        running.stop().await.unwrap();
    }
    let digest = replay_from_snapshot(&mut journal.clone()).unwrap().digest;
    (journal, digest)
}

#[tokio::test]
async fn a_stop_leaves_nothing_to_replay_and_a_replay_of_everything_comes_to_the_same() {
    let (mut journal, digest) = journal_with_snapshots().await;
    let recovered = replay_from_snapshot(&mut journal).unwrap();
    assert_eq!(recovered.facts, 0);
    let whole = replay(&mut journal).unwrap();
    assert!(whole.facts > 5000);
    assert_eq!((whole.digest, whole.counts), (digest, recovered.counts));
    let newest = journal.snapshots().unwrap()[0];
    journal.truncate(newest).unwrap();
    assert_eq!(replay(&mut journal).unwrap().digest, digest);
    let (_, running) = started(&journal);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_used_is_passed_over_while_its_groups_are_there() {
    let (journal, digest) = journal_with_snapshots().await;
    for newest_only in [true, false] {
        let journal = journal.clone();
        let mut damaged = Damaged {
            journal,
            newest_only,
        };
        let recovered = replay_from_snapshot(&mut damaged).unwrap();
        assert_eq!(recovered.digest, digest);
        let from_the_start = recovered.facts > 5000;
        assert_eq!(from_the_start, !newest_only);
    }
    let mut journal = Damaged {
        journal,
        newest_only: false,
    };
    let newest = journal.snapshots().unwrap()[0];
    journal.truncate(newest).unwrap();
    let refused = replay_from_snapshot(&mut journal).err().unwrap();
    assert!(matches!(refused, RecoverError::Snapshot(_)), "{refused}");
}

#[tokio::test]
async fn snapshots_amid_the_work_change_nothing_for_agents_and_those_who_wait() {
    let journal = Shared::default();
    let (handle, running) = started(&journal);
    let mut agent = FakeAgent::connect(&handle, "a", 1, &[]).await;
    let accepted = handle.submit(&array(2000), "me").await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait(accepted.id).await }
    });
    let mut done = 0;
    while done < 1000 {
        done += agent.work(50).await.len();
        handle.take_snapshot().await.unwrap();
    }
    let frame = agent.next_with_work().await;
    let digest = handle.digest().await.unwrap();
    let positions = journal.clone().snapshots().unwrap();
    assert_eq!(positions.len(), 2);
    assert_eq!(replay(&mut journal.clone()).unwrap().digest, digest);
    let recovered = replay_from_snapshot(&mut journal.clone()).unwrap();
    assert_eq!(recovered.digest, digest);
    let held = Engine::open(&mut journal.clone(), 0)
        .unwrap()
        .held_by(agent.id);
    assert!(held >= frame.assign.len(), "leases survive");
    agent.finish(&frame.assign, wire::Outcome::Succeeded).await;
    agent.work(2000 - done - frame.assign.len()).await;
    assert_eq!(waiting.await.unwrap().unwrap().state, JobState::Succeeded);
    running.stop().await.unwrap();
}
