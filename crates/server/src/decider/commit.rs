//! Writing. What is released here is on disk.
//!
//! ```text
//!   deciding thread ──packets──▶ commit thread ──▶ journal
//!          │ a copy of the state      ▲
//!          └──▶ snapshot thread ──────┘ the same as bytes: a piece after each packet, and while there is none
//! ```
//!
//! Nobody waits for a snapshot longer than its copy and one piece of it take.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use loxley_api::{ApiError, ErrorCode, Event};
use loxley_engine::{StateCopy, TaskStep};
use loxley_journal::{
    AppendError, Group, Journal, NotWritten, Position, Pruned, Pruning, Retention, Saving, Snapshot,
};
use loxley_protocol as wire;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::{Link, Listeners, Progress, Release};

/// A group of at most so many facts is worth no change of threads.
const SMALL: u32 = 8;

/// A group, and what follows from it.
#[derive(Default)]
pub(crate) struct Packet {
    pub(crate) group: Option<Group>,
    pub(crate) frames: Vec<(Link, wire::ServerFrame)>,
    pub(crate) releases: Vec<Release>,
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) steps: Vec<TaskStep>,
}

/// What the commit thread is given.
enum Work {
    Packet(Packet),
    Snapshot(Underway),
    Prune(Forgetting),
}

/// The past on its way to be forgotten: a step after each packet, and while there is none.
pub(crate) struct Forgetting {
    pruning: Pruning,
    /// Then it is told how far it came.
    until: Instant,
    answer: oneshot::Sender<Result<Pruned, ApiError>>,
}

impl Forgetting {
    pub(crate) fn new(
        retention: Retention,
        until: Instant,
        answer: oneshot::Sender<Result<Pruned, ApiError>>,
    ) -> Self {
        Self {
            pruning: Pruning::new(retention),
            until,
            answer,
        }
    }
}

/// A snapshot on its way to the journal.
struct Underway {
    saving: Saving,
    begun: Instant,
    /// Who waits for it.
    waiting: Vec<Kept>,
    _place: SnapshotSlot,
}

/// Hears that a snapshot is on disk, or why not.
pub(crate) type Kept = oneshot::Sender<Result<(), ApiError>>;

impl Underway {
    /// A newer one is worth more than one that is half written, and does for those who wait for that.
    fn in_place_of(mut self, older: Option<Self>) -> Self {
        self.waiting
            .extend(older.into_iter().flat_map(|older| older.waiting));
        self
    }

    fn tell(self, kept: &Result<(), ApiError>) {
        for waiting in self.waiting {
            let _ = waiting.send(kept.clone());
        }
    }
}

/// What is known of snapshots outside the deciding thread.
#[derive(Debug, Default)]
struct Snapshots {
    /// Whether one is being packed or written.
    underway: AtomicBool,
    /// How large the last one was.
    bytes: AtomicU64,
}

/// Says that a snapshot is under way, for as long as it is held.
struct SnapshotSlot(Arc<Snapshots>);

impl Drop for SnapshotSlot {
    fn drop(&mut self) {
        self.0.underway.store(false, Ordering::Release);
    }
}

impl Packet {
    pub(crate) fn is_empty(&self) -> bool {
        self.group.is_none()
            && self.frames.is_empty()
            && self.releases.is_empty()
            && self.events.is_empty()
            && self.steps.is_empty()
    }
}

pub(crate) struct Committer {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) position: Position,
    pub(crate) progress: Arc<Progress>,
    pub(crate) listeners: Listeners,
    /// Why nothing more is written.
    pub(crate) failed: Option<AppendError>,
}

/// The engine's way to the journal: through the thread that writes, so that the engine can go on; or by its
/// own hand when it has nothing else to do, which spares a lone request two changes of threads.
pub(crate) struct Outbox {
    work: SyncSender<Work>,
    committer: Arc<Mutex<Committer>>,
    /// Packets that the thread was given and has not carried out.
    underway: Arc<AtomicUsize>,
    /// The place after all groups that were sent.
    position: Position,
    snapshots: Arc<Snapshots>,
}

/// The thread that writes.
pub(crate) struct CommitThread {
    work: Receiver<Work>,
    committer: Arc<Mutex<Committer>>,
    underway: Arc<AtomicUsize>,
}

/// Both ends of the way to a journal.
pub(crate) fn outbox(committer: Committer) -> (Outbox, CommitThread) {
    let (sender, work) = std::sync::mpsc::sync_channel(1);
    let position = committer.position;
    let committer = Arc::new(Mutex::new(committer));
    let underway = Arc::new(AtomicUsize::new(0));
    let thread = CommitThread {
        work,
        committer: Arc::clone(&committer),
        underway: Arc::clone(&underway),
    };
    let outbox = Outbox {
        work: sender,
        committer,
        underway,
        position,
        snapshots: Arc::default(),
    };
    (outbox, thread)
}

fn lock(committer: &Mutex<Committer>) -> MutexGuard<'_, Committer> {
    committer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    /// Has a packet carried out, after all that were sent before. False when a write failed. `alone`: nothing
    /// else waits for the engine.
    pub(crate) fn send(&mut self, packet: Packet, alone: bool) -> bool {
        let group = packet.group.as_ref();
        let is_small = group.is_none_or(|group| group.fact_count <= SMALL);
        if group.is_some() {
            self.position = self.position.next();
        }
        // Pairs with the thread's Release: what it sent before left before.
        if alone && is_small && self.underway.load(Ordering::Acquire) == 0 {
            return lock(&self.committer).carry_out(packet);
        }
        self.underway.fetch_add(1, Ordering::Relaxed);
        self.work.send(Work::Packet(packet)).is_ok()
    }

    /// The place after all groups that were sent.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Whether a snapshot is being packed or written.
    pub(crate) fn is_snapshot_underway(&self) -> bool {
        self.snapshots.underway.load(Ordering::Acquire)
    }

    /// How large the last snapshot was.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.snapshots.bytes.load(Ordering::Relaxed)
    }

    /// Has some of the past forgotten. False when a write failed.
    pub(crate) fn forget(&self, forgetting: Forgetting) -> bool {
        self.work.send(Work::Prune(forgetting)).is_ok()
    }

    /// Has the state after all groups that were sent packed and kept. Without it the next start takes longer,
    /// and that is all: so nobody waits for it.
    pub(crate) fn keep(&self, state: StateCopy, waiting: Option<Kept>) {
        self.snapshots.underway.store(true, Ordering::Relaxed);
        let place = SnapshotSlot(Arc::clone(&self.snapshots));
        let (position, work) = (self.position, self.work.clone());
        let begun = Instant::now();
        let pack = move || {
            let state = state.pack();
            place.0.bytes.store(state.len() as u64, Ordering::Relaxed);
            let saving = Saving::new(Snapshot { position, state });
            // Fails when a write failed: then there is no next start from here.
            let _ = work.send(Work::Snapshot(Underway {
                saving,
                begun,
                waiting: Vec::from_iter(waiting),
                _place: place,
            }));
        };
        let thread = std::thread::Builder::new().name("snapshot".to_owned());
        if let Err(error) = thread.spawn(pack) {
            tracing::warn!(%error, "no thread to pack a snapshot");
        }
    }
}

impl CommitThread {
    /// Carries out packet after packet until the engine ends, or a write fails.
    pub(crate) fn run(self) -> Result<(), AppendError> {
        let mut underway = None;
        let mut forgetting = VecDeque::new();
        loop {
            match self.next(underway.is_some(), !forgetting.is_empty()) {
                Ok(Some(Work::Packet(packet))) => {
                    if !lock(&self.committer).carry_out(packet) {
                        break;
                    }
                    self.underway.fetch_sub(1, Ordering::Release);
                }
                Ok(Some(Work::Snapshot(newer))) => underway = Some(newer.in_place_of(underway)),
                Ok(Some(Work::Prune(more))) => forgetting.push_back(more),
                Ok(None) => {}
                Err(RecvError) => break,
            }
            if !lock(&self.committer).keep_some(&mut underway)
                || !lock(&self.committer).forget_some(&mut forgetting)
            {
                break;
            }
        }
        lock(&self.committer).failed.take().map_or(Ok(()), Err)
    }

    /// What is next; nothing, while a snapshot can be written or something forgotten instead. A server that ends
    /// waits for its last snapshot, and forgets no more.
    fn next(&self, is_snapshot_underway: bool, forgets: bool) -> Result<Option<Work>, RecvError> {
        if !is_snapshot_underway && !forgets {
            return self.work.recv().map(Some);
        }
        match self.work.try_recv() {
            Ok(work) => Ok(Some(work)),
            Err(TryRecvError::Disconnected) if !is_snapshot_underway => Err(RecvError),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(None),
        }
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

    fn write(&mut self, packet: Packet) -> Result<(), AppendError> {
        match &packet.group {
            Some(group) => self.append(group)?,
            // An answer from what is known may be out of date once another server may have taken over.
            None if !self.journal.may_answer() => {
                return Err(AppendError::Unknown("the lease is over".into()));
            }
            None => {}
        }
        self.send(packet);
        Ok(())
    }

    /// Writes a piece of a snapshot, if there is one to be written. False when a write failed in a way that
    /// ends the server.
    fn keep_some(&mut self, underway: &mut Option<Underway>) -> bool {
        let Some(mut this) = underway.take() else {
            return true;
        };
        let bytes = this.saving.snapshot().state.len();
        if self.progress.disk_full.load(Ordering::Relaxed) {
            // What room is left is for ends, and for forgetting.
            let why = "could not keep a snapshot: the disk is full";
            this.tell(&Err(ApiError::new(ErrorCode::DiskFull, why)));
            return true;
        }
        match self.journal.save_piece(&mut this.saving) {
            Ok(true) => *underway = Some(this),
            Ok(false) => {
                let position = this.saving.snapshot().position.0;
                let ms = this.begun.elapsed().as_millis();
                tracing::debug!(position, bytes, ms, "kept a snapshot");
                this.tell(&Ok(()));
            }
            Err(AppendError::NotWritten(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, bytes, "could not keep a snapshot");
                let why = format!("could not keep a snapshot: {error}");
                this.tell(&Err(ApiError::new(ErrorCode::Internal, why)));
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                return false;
            }
        }
        true
    }

    /// Takes the next step of the first that wants something forgotten. False when a write failed in a way that ends
    /// the server.
    fn forget_some(&mut self, forgetting: &mut VecDeque<Forgetting>) -> bool {
        let Some(mut this) = forgetting.pop_front() else {
            return true;
        };
        let answer = match self.journal.prune_some(&mut this.pruning) {
            Ok(true) if Instant::now() < this.until => {
                forgetting.push_front(this);
                return true;
            }
            Ok(more) => Ok(Pruned {
                more,
                ..this.pruning.pruned()
            }),
            Err(AppendError::NotWritten(NotWritten::DiskFull)) if self.give_up_reserve() => {
                forgetting.push_front(this);
                return true;
            }
            Err(AppendError::NotWritten(error)) => {
                let code = match error {
                    NotWritten::DiskFull => ErrorCode::DiskFull,
                    _ => ErrorCode::Internal,
                };
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "could not forget the past");
                Err(ApiError::new(
                    code,
                    format!("could not forget the past: {error}"),
                ))
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                return false;
            }
        };
        self.look_at_room();
        let _ = this.answer.send(answer);
        true
    }

    /// The disk is full: gives up what was kept for this moment. False when that is gone already, or there was none.
    fn give_up_reserve(&mut self) -> bool {
        let Some(bytes) = self.journal.give_up_reserve() else {
            return false;
        };
        tracing::error!(
            bytes,
            "the disk of the journal is full: gave up the reserve; no more jobs are taken until there is room"
        );
        self.progress.disk_full.store(true, Ordering::Relaxed);
        self.progress.wants_room.notify_one();
        true
    }

    /// Notes how large the journal is, and whether a full disk has room again.
    pub(crate) fn look_at_room(&mut self) {
        if let Ok(room) = self.journal.room() {
            self.progress.bytes.store(room.bytes, Ordering::Relaxed);
            self.progress.unused.store(room.unused, Ordering::Relaxed);
        }
        if self.progress.disk_full.load(Ordering::Relaxed) && self.journal.renew_reserve() {
            tracing::warn!("there is room on the disk of the journal again");
            self.progress.disk_full.store(false, Ordering::Relaxed);
        }
    }

    fn append(&mut self, group: &Group) -> Result<(), AppendError> {
        let begun = Instant::now();
        let mut appended = self.journal.append(self.position, group);
        if matches!(appended, Err(AppendError::NotWritten(NotWritten::DiskFull)))
            && self.give_up_reserve()
        {
            appended = self.journal.append(self.position, group);
        }
        if self.journal.is_short_of_room() {
            self.give_up_reserve();
        }
        // Whether it was written or not, nobody has heard of it: whoever starts next reads the tail.
        self.position = appended.inspect_err(|error| {
            tracing::error!(%error, position = self.position.0, "a write to the journal failed");
        })?;
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.progress.note_commit(took);
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
        for (link, mut frame) in packet.frames {
            frame.position = self.position.0;
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
            let _ = self.listeners.events.send(event);
        }
        if !packet.steps.is_empty() {
            let _ = self.listeners.steps.send(packet.steps.into());
        }
    }
}
