//! What an agent says: the frames of one stream, each after its length.
//!
//! They go the way of all frames, into an engine that has work for whoever comes. Whatever was said, the
//! engine goes on, and its journal replays to the same decisions.

use std::sync::{Arc, Mutex};

use loxley_api::{Blob, Entries, FunctionRequest, JobRequest, TaskRequest, Work};
use loxley_engine::replay;
use loxley_journal::{
    AppendError, Group, Journal, Limit, MemoryJournal, Position, ReadError, Saving, Snapshot,
    StoredGroup,
};
use loxley_protocol as wire;
use loxley_server::decider::{self, EngineOptions, HistorySource};
use prost::Message;

pub(crate) fn run(bytes: &[u8]) {
    crate::block_on(hear(decode(bytes)));
}

fn decode(mut bytes: &[u8]) -> Vec<wire::AgentFrame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        match wire::AgentFrame::decode_length_delimited(&mut bytes) {
            Ok(frame) => frames.push(frame),
            Err(_) => break,
        }
    }
    frames
}

async fn hear(frames: Vec<wire::AgentFrame>) {
    let journal = Shared::default();
    let history = HistorySource::none(0);
    let options = EngineOptions::default();
    let started = decider::start(Box::new(journal.clone()), history, &options);
    let (handle, running) = started.unwrap();
    handle.submit(&work(), "somebody").await.unwrap();
    // A refusal is an answer, too.
    let _ = loxley_server::hear_frames(&handle, frames).await;
    handle.fleet().await.expect("the engine goes on");
    let digest = handle.digest().await.expect("the engine goes on");
    running.stop().await.expect("memory takes every write");
    let replayed = replay(&mut journal.clone()).expect("the journal can be replayed");
    assert_eq!(replayed.digest, digest, "replayed, it decides otherwise");
}

fn work() -> JobRequest {
    let function = FunctionRequest {
        name: "echo".to_owned(),
        input: Blob(b"x".to_vec()),
    };
    let mut task = TaskRequest::new(Work::Function(function));
    task.entries = Some(Entries::Range {
        first: 1,
        last: 20,
        step: 1,
    });
    task.checkpoints = true;
    JobRequest {
        tasks: vec![task],
        ..JobRequest::default()
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let hello = wire::AgentFrame {
        hello: Some(wire::Hello {
            version: wire::VERSION,
            name: "ada".to_owned(),
            process: 7,
            slots: 2,
            speed: 1.0,
            skills: vec!["gpu".to_owned()],
            functions: vec!["echo".to_owned()],
            ..wire::Hello::default()
        }),
        ..wire::AgentFrame::default()
    };
    let started = wire::AgentFrame {
        started: pairs()
            .map(|(task, lease)| wire::Started { task, lease })
            .collect(),
        vitals: Some(wire::Vitals {
            throttle: 0.25,
            load: 1.5,
            cpu_pressure: Some(0.1),
            ..wire::Vitals::default()
        }),
        ..wire::AgentFrame::default()
    };
    let finished = wire::AgentFrame {
        number: 1,
        finished: pairs().map(ended).collect(),
        yielded: vec![wire::Yielded {
            task: 3,
            lease: 3,
            yielded: true,
        }],
        checkpoints: vec![wire::Checkpoint {
            task: 2,
            lease: 2,
            state: b"half".as_slice().into(),
        }],
        outputs: vec![wire::Output {
            task: 1,
            lease: 1,
            stdout: b"out".as_slice().into(),
            ..wire::Output::default()
        }],
        ..wire::AgentFrame::default()
    };
    let leaving = wire::AgentFrame {
        leaving: true,
        ..wire::AgentFrame::default()
    };
    vec![
        encode(&[&hello]),
        encode(&[&hello, &started, &finished]),
        encode(&[&hello, &finished, &finished, &started, &leaving]),
        encode(&[&started, &hello]),
    ]
}

/// The first tasks and leases of an engine.
fn pairs() -> impl Iterator<Item = (u64, u64)> {
    (0..4).flat_map(|task| (0..4).map(move |lease| (task, lease)))
}

fn ended((task, lease): (u64, u64)) -> wire::Finished {
    wire::Finished {
        task,
        lease,
        outcome: (task as i32) % 4,
        code: Some(3),
        duration_ns: 1_000_000,
        result: b"x".as_slice().into(),
        ..wire::Finished::default()
    }
}

fn encode(frames: &[&wire::AgentFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.encode_length_delimited(&mut bytes).unwrap();
    }
    bytes
}

/// A journal that can be read after the engine that wrote it is gone.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<MemoryJournal>>);

impl Default for Shared {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(MemoryJournal::new())))
    }
}

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
