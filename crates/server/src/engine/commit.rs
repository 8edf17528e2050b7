//! Writing. What is released here is on disk.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use loxley_api::Event;
use loxley_journal::{AppendError, Group, Journal, Position, Snapshot};
use loxley_protocol as wire;
use tokio::sync::broadcast;
use tokio::sync::mpsc::error::TrySendError;

use super::{Link, Progress, Release};

/// A group of at most so many facts is worth no change of threads.
const SMALL: u32 = 8;

/// A group, and what follows from it.
#[derive(Default)]
pub(crate) struct Packet {
    pub(crate) group: Option<Group>,
    pub(crate) frames: Vec<(Link, wire::ServerFrame)>,
    pub(crate) releases: Vec<Release>,
    pub(crate) events: Vec<Arc<Event>>,
    /// The state after the group, to be kept.
    pub(crate) snapshot: Option<Vec<u8>>,
}

impl Packet {
    pub(crate) fn is_empty(&self) -> bool {
        self.group.is_none()
            && self.frames.is_empty()
            && self.releases.is_empty()
            && self.events.is_empty()
    }
}

pub(crate) struct Committer {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) position: Position,
    pub(crate) progress: Arc<Progress>,
    pub(crate) events: broadcast::Sender<Arc<Event>>,
    /// Why nothing more is written.
    pub(crate) failed: Option<AppendError>,
}

/// The engine's way to the journal: through the thread that writes, so that the engine can go on; or by its
/// own hand when it has nothing else to do, which spares a lone request two changes of threads.
pub(crate) struct Outbox {
    packets: SyncSender<Packet>,
    committer: Arc<Mutex<Committer>>,
    /// Packets that the thread was given and has not carried out.
    underway: Arc<AtomicUsize>,
}

/// The thread that writes.
pub(crate) struct CommitThread {
    packets: Receiver<Packet>,
    committer: Arc<Mutex<Committer>>,
    underway: Arc<AtomicUsize>,
}

/// Both ends of the way to a journal.
pub(crate) fn outbox(committer: Committer) -> (Outbox, CommitThread) {
    let (sender, packets) = std::sync::mpsc::sync_channel(1);
    let committer = Arc::new(Mutex::new(committer));
    let underway = Arc::new(AtomicUsize::new(0));
    let thread = CommitThread {
        packets,
        committer: Arc::clone(&committer),
        underway: Arc::clone(&underway),
    };
    let outbox = Outbox {
        packets: sender,
        committer,
        underway,
    };
    (outbox, thread)
}

fn lock(committer: &Mutex<Committer>) -> MutexGuard<'_, Committer> {
    committer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    /// Has a packet carried out, after all that were sent before. False when a write failed. `alone`: nothing
    /// else waits for the engine.
    pub(crate) fn send(&self, packet: Packet, alone: bool) -> bool {
        let is_small = packet.snapshot.is_none()
            && packet
                .group
                .as_ref()
                .is_none_or(|group| group.fact_count <= SMALL);
        // Pairs with the thread's Release: what it sent before left before.
        if alone && is_small && self.underway.load(Ordering::Acquire) == 0 {
            return lock(&self.committer).carry_out(packet);
        }
        self.underway.fetch_add(1, Ordering::Relaxed);
        self.packets.send(packet).is_ok()
    }
}

impl CommitThread {
    /// Carries out packet after packet until the engine ends, or a write fails.
    pub(crate) fn run(self) -> Result<(), AppendError> {
        while let Ok(packet) = self.packets.recv() {
            if !lock(&self.committer).carry_out(packet) {
                break;
            }
            self.underway.fetch_sub(1, Ordering::Release);
        }
        lock(&self.committer).failed.take().map_or(Ok(()), Err)
    }
}

impl Committer {
    /// Writes a group and lets out what follows from it. False when a write failed: then nothing more is
    /// written.
    fn carry_out(&mut self, packet: Packet) -> bool {
        match self.write(packet) {
            Ok(()) => true,
            Err(error) => {
                self.failed.get_or_insert(error);
                false
            }
        }
    }

    fn write(&mut self, mut packet: Packet) -> Result<(), AppendError> {
        if let Some(group) = &packet.group {
            self.append(group)?;
        }
        let snapshot = packet.snapshot.take();
        // Nobody has to wait for a snapshot: it says nothing new.
        self.send(packet);
        snapshot.map_or(Ok(()), |state| self.keep(state))
    }

    /// Keeps the state after the last group. Without it the next start takes longer, and that is all.
    fn keep(&mut self, state: Vec<u8>) -> Result<(), AppendError> {
        let begun = Instant::now();
        let position = self.position;
        let bytes = state.len();
        let kept = self.journal.save_snapshot(&Snapshot { position, state });
        let ms = begun.elapsed().as_millis();
        match kept {
            Ok(()) => tracing::debug!(position = position.0, bytes, ms, "kept a snapshot"),
            Err(AppendError::NotWritten(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, bytes, "could not keep a snapshot");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn append(&mut self, group: &Group) -> Result<(), AppendError> {
        let begun = Instant::now();
        // Whether it was written or not, nobody has heard of it: whoever starts next reads the tail.
        self.position = self
            .journal
            .append(self.position, group)
            .inspect_err(|error| {
                tracing::error!(%error, position = self.position.0, "a write to the journal failed");
            })?;
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let commit_ns = &self.progress.commit_ns;
        let before = commit_ns.load(Ordering::Relaxed);
        let mean = if before == 0 {
            took
        } else {
            before - before / 8 + took / 8
        };
        commit_ns.store(mean, Ordering::Relaxed);
        self.progress
            .position
            .store(self.position.0, Ordering::Release);
        Ok(())
    }

    fn send(&self, packet: Packet) {
        for (link, frame) in packet.frames {
            match link.frames.try_send(frame) {
                Ok(()) | Err(TrySendError::Closed(_)) => {}
                // It does not read: whoever waits for it would wait for ever.
                Err(TrySendError::Full(_)) => link.cut.notify_one(),
            }
        }
        for release in packet.releases {
            release();
        }
        for event in packet.events {
            // Fails when nobody listens.
            let _ = self.events.send(event);
        }
    }
}
