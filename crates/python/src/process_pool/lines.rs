//! The ways to the processes: what each was sent, and what is to be written to it.
//!
//! A process runs what it is sent one after the other. So the first lease of a line is the one that is
//! running, and one that was answered makes the next one the running one: nobody has to say so.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::mem;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use loxley_model::{AgentId, Lease};

use super::segment::Segment;
use super::wire::{Kind, Outbox};

/// Where frames are written; whoever writes locks it first.
pub(crate) type Stream = Arc<Mutex<UnixStream>>;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: BTreeMap<AgentId, Line>,
    last: u64,
    /// Lines with something in their outbox.
    dirty: Vec<AgentId>,
    /// How long the processes worked that are gone, each until another one takes its place.
    vacated: Vec<u64>,
}

/// The way to one process.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Stream,
    /// The same socket, to be closed while somebody may be writing to it.
    to_hang_up: UnixStream,
    outbox: Outbox,
    /// The functions that the process has.
    known: HashSet<u64>,
    /// What it was sent and has not answered, in order; the first is running.
    sent: VecDeque<Lease>,
    pub(crate) is_ready: bool,
    /// It said that it goes, and runs nothing more.
    pub(crate) is_retired: bool,
    /// How long it worked, and whoever was in its place before.
    pub(crate) busy_ns: u64,
}

impl Lines {
    /// A line to a process that is about to start. Whoever listens to it writes the setup: that may
    /// have to wait until the process reads.
    pub(crate) fn open(
        &mut self,
        stream: UnixStream,
        to_hang_up: UnixStream,
        setup: &[u8],
    ) -> AgentId {
        self.last += 1;
        let id = AgentId(self.last);
        let mut outbox = Outbox::default();
        outbox.put(Kind::Setup, 0, 0, setup, None);
        let line = Line {
            to_hang_up,
            stream: Arc::new(Mutex::new(stream)),
            outbox,
            known: HashSet::new(),
            sent: VecDeque::new(),
            is_ready: false,
            is_retired: false,
            busy_ns: self.vacated.pop().unwrap_or(0),
        };
        self.lines.insert(id, line);
        id
    }

    pub(crate) fn close(&mut self, agent: AgentId) {
        let line = self.lines.remove(&agent);
        self.vacated.extend(line.map(|line| line.busy_ns));
    }

    pub(crate) fn get(&self, agent: AgentId) -> Option<&Line> {
        self.lines.get(&agent)
    }

    pub(crate) fn get_mut(&mut self, agent: AgentId) -> Option<&mut Line> {
        self.lines.get_mut(&agent)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (AgentId, &Line)> {
        self.lines.iter().map(|(agent, line)| (*agent, line))
    }

    /// How long each process worked, whoever was in its place.
    pub(crate) fn busy_ns(&self) -> Vec<u64> {
        let here = self.lines.values().map(|line| line.busy_ns);
        here.chain(self.vacated.iter().copied()).collect()
    }

    /// Says something about a lease to a process.
    pub(crate) fn say(&mut self, agent: AgentId, kind: Kind, lease: Lease) {
        if let Some(line) = self.lines.get_mut(&agent) {
            line.outbox.put(kind, lease.0, 0, &[], None);
            self.dirty.push(agent);
        }
    }

    /// Sends a call, with its function if the process does not have it.
    pub(crate) fn send(
        &mut self,
        agent: AgentId,
        lease: Lease,
        (number, shape): (u64, u8),
        function: impl FnOnce() -> Arc<[u8]>,
        (payload, segment): (&[u8], Option<&Segment>),
    ) {
        let line = self.lines.get_mut(&agent);
        let line = line.expect("the core gave a call to a process that is not there");
        if line.known.insert(number) {
            line.outbox
                .put(Kind::Function, number, 0, &function(), None);
        }
        let extra = number << 8 | u64::from(shape);
        line.outbox
            .put(Kind::Call, lease.0, extra, payload, segment);
        line.sent.push_back(lease);
        self.dirty.push(agent);
    }

    /// Nobody calls this function any more. It is told with whatever is said next.
    pub(crate) fn forget(&mut self, function: u64) {
        for line in self.lines.values_mut() {
            if line.known.remove(&function) {
                line.outbox.put(Kind::Forget, function, 0, &[], None);
            }
        }
    }

    /// Asks every process to go once it has done what it has.
    pub(crate) fn stop(&mut self) {
        for (agent, line) in &mut self.lines {
            line.outbox.put(Kind::Stop, 0, 0, &[], None);
            self.dirty.push(*agent);
        }
    }

    /// Where something is to be written, and how many bytes in all. Whoever writes locks the stream
    /// first and then takes the outbox, so that what was said first is written first.
    pub(crate) fn take_dirty(&mut self) -> (Vec<(AgentId, Stream)>, usize) {
        let mut dirty = mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        let mut bytes = 0;
        let streams = dirty.into_iter().filter_map(|agent| {
            let line = self.lines.get(&agent)?;
            bytes += line.outbox.len();
            (line.outbox.len() > 0).then(|| (agent, Arc::clone(&line.stream)))
        });
        (streams.collect(), bytes)
    }

    pub(crate) fn take_outbox(&mut self, agent: AgentId) -> Outbox {
        let line = self.lines.get_mut(&agent);
        line.map(|line| mem::take(&mut line.outbox))
            .unwrap_or_default()
    }
}

impl Line {
    /// Whoever listens hears that the other end is gone, even while a descendant of the process that
    /// died keeps it open.
    pub(crate) fn hang_up(&self) {
        let _ = self.to_hang_up.shutdown(Shutdown::Both);
    }

    pub(crate) fn stream(&self) -> Stream {
        Arc::clone(&self.stream)
    }

    /// The lease that is running.
    pub(crate) fn running(&self) -> Option<Lease> {
        let runs = self.is_ready && !self.is_retired;
        self.sent.front().copied().filter(|_| runs)
    }

    /// Whether the process was sent this lease and has not answered, and if so whether it is the one
    /// that is running.
    pub(crate) fn is_first(&self, lease: Lease) -> Option<bool> {
        let at = self.sent.iter().position(|sent| *sent == lease)?;
        Some(at == 0)
    }

    /// How many calls wait in the process behind the one that is running.
    pub(crate) fn waiting(&self) -> usize {
        self.sent.len().saturating_sub(1)
    }

    /// The process has answered for a lease. Returns the one that is running now, if that is news.
    pub(crate) fn settle(&mut self, lease: Lease) -> Option<Lease> {
        let was_first = self.sent.front() == Some(&lease);
        self.sent.retain(|other| *other != lease);
        self.sent.front().copied().filter(|_| was_first)
    }
}
