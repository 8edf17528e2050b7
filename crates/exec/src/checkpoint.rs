//! The file behind `LOXLEY_CHECKPOINT`: what the last attempt left, and what this one saves.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use crate::task_command::Assignment;

/// The largest state that can be carried to another agent, in bytes.
pub const CHECKPOINT_MAX: usize = 4 << 20;

/// How a task goes on from an earlier attempt.
#[derive(Clone, Debug, Default)]
pub enum Checkpoint {
    /// It does not.
    #[default]
    None,
    /// From this file, which stays where it is from one attempt to the next.
    InFile(PathBuf),
    /// From this state, if there is one; what it saves is reported, for the next attempt may be elsewhere.
    Carried(Option<Bytes>),
}

/// The checkpoint of a task that runs.
#[derive(Debug)]
pub(crate) struct CheckpointFile {
    path: PathBuf,
    /// Whether somebody wants to hear of what is saved.
    is_carried: bool,
    seen: Option<(SystemTime, u64)>,
}

impl Assignment {
    /// Puts the state of an earlier attempt where the task finds it.
    pub(crate) fn open_checkpoint(&self, scratch: &Path) -> io::Result<Option<CheckpointFile>> {
        let state = match &self.checkpoint {
            Checkpoint::None => return Ok(None),
            Checkpoint::InFile(path) => {
                return Ok(Some(CheckpointFile {
                    path: path.clone(),
                    is_carried: false,
                    seen: None,
                }));
            }
            Checkpoint::Carried(state) => state,
        };
        let path = scratch.join(format!("checkpoint-{}-{}", self.task, self.lease));
        match state {
            Some(state) => fs::write(&path, state)?,
            // Absent until somebody writes it: a task sees that it is the first to run.
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
        let mut file = CheckpointFile {
            path,
            is_carried: true,
            seen: None,
        };
        file.seen = file.stamp();
        Ok(Some(file))
    }
}

impl CheckpointFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn stamp(&self) -> Option<(SystemTime, u64)> {
        let data = fs::metadata(&self.path).ok()?;
        Some((data.modified().ok()?, data.len()))
    }

    /// What was saved since the last look, if it is to be told of.
    pub(crate) fn changed(&mut self) -> Option<Bytes> {
        if !self.is_carried {
            return None;
        }
        let stamp = self.stamp()?;
        if self.seen.replace(stamp) == Some(stamp) {
            return None;
        }
        if stamp.1 > CHECKPOINT_MAX as u64 {
            let (path, bytes) = (self.path.display(), stamp.1);
            tracing::warn!(%path, bytes, "a checkpoint is too large to be carried elsewhere: it is not kept");
            return None;
        }
        fs::read(&self.path).ok().map(Into::into)
    }
}

impl Drop for CheckpointFile {
    fn drop(&mut self) {
        if self.is_carried {
            let _ = fs::remove_file(&self.path);
        }
    }
}
