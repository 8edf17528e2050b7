//! The thread that writes. What it releases is on disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use loxley_api::Event;
use loxley_journal::{AppendError, Group, Journal, Position, Snapshot};
use loxley_protocol as wire;
use tokio::sync::broadcast;
use tokio::sync::mpsc::error::TrySendError;

use super::{Link, Progress, Release};

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
}

impl Committer {
    /// Writes packet after packet until the engine ends, or a write fails.
    pub(crate) fn run(mut self, packets: &Receiver<Packet>) -> Result<(), AppendError> {
        while let Ok(mut packet) = packets.recv() {
            if let Some(group) = &packet.group {
                self.append(group)?;
            }
            let snapshot = packet.snapshot.take();
            // Nobody has to wait for a snapshot: it says nothing new.
            self.send(packet);
            if let Some(state) = snapshot {
                self.keep(state)?;
            }
        }
        Ok(())
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
