//! The output of tasks that still run. It comes too often to be written down, and is written down whole
//! when a task ends: a server that starts again has lost it until then.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use loxley_api::OutputTail;
use loxley_model::TaskId;

/// How much of the end of each output is kept.
const TAIL: usize = 64 << 10;
/// How much is kept of all tasks together. Then the largest talkers are dropped.
const TOTAL: usize = 256 << 20;

/// Ends of outputs.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tasks: HashMap<TaskId, [Tail; 2]>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Tail {
    kept: Vec<u8>,
    dropped: u64,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        let excess = self.kept.len().saturating_sub(TAIL);
        self.kept.drain(..excess);
        self.dropped += excess as u64;
    }
}

impl Outputs {
    /// Takes in a piece.
    pub(crate) fn take(&self, task: TaskId, stdout: &[u8], stderr: &[u8]) {
        let mut inner = self.lock();
        if inner.bytes >= TOTAL {
            inner.tasks.clear();
            inner.bytes = 0;
        }
        let tails = inner.tasks.entry(task).or_default();
        let before = tails[0].kept.len() + tails[1].kept.len();
        tails[0].push(stdout);
        tails[1].push(stderr);
        let after = tails[0].kept.len() + tails[1].kept.len();
        inner.bytes = inner.bytes + after - before;
    }

    /// Forgets a task: it ended, and its output is kept elsewhere.
    pub(crate) fn forget(&self, task: TaskId) {
        let mut inner = self.lock();
        if let Some(tails) = inner.tasks.remove(&task) {
            inner.bytes -= tails[0].kept.len() + tails[1].kept.len();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().tasks.is_empty()
    }

    pub(crate) fn tail(&self, task: TaskId) -> Option<OutputTail> {
        let inner = self.lock();
        let [stdout, stderr] = inner.tasks.get(&task)?;
        let text = |tail: &Tail| String::from_utf8_lossy(&tail.kept).into_owned();
        Some(OutputTail {
            stdout: text(stdout),
            stdout_dropped_bytes: stdout.dropped,
            stderr: text(stderr),
            stderr_dropped_bytes: stderr.dropped,
            directory: None,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
