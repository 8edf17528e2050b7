//! Results that are too large for the journal: files of their own, written and read in pieces.
//!
//! ```text
//! results/17-3f….part    being written, piece by piece, by whoever runs task 17
//! results/17-3f…         whole, and on disk before the task is reported to be over
//! ```
//!
//! The task's own result, in the journal, then only names the file. A piece may be written twice (its
//! answer got lost): the same bytes go to the same place. A file whose task nobody knows any more is
//! removed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use loxley_api::{ApiError, ErrorCode, RESULT_BYTES_MAX, ResultName};
use loxley_model::TaskId;

/// Where they are.
#[derive(Clone, Debug)]
pub(crate) struct LargeResults {
    directory: PathBuf,
}

/// Part of a result.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    /// How long the whole is.
    pub(crate) total: u64,
}

impl LargeResults {
    pub(crate) fn new(server: &Path) -> Self {
        Self {
            directory: server.join("results"),
        }
    }

    /// Writes a piece; with the last one the result is whole, and on disk.
    pub(crate) fn write(
        &self,
        task: TaskId,
        name: &ResultName,
        offset: u64,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<(), ApiError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > RESULT_BYTES_MAX {
            let message = format!("a result has at most {RESULT_BYTES_MAX} bytes");
            return Err(ApiError::new(ErrorCode::TooLarge, message));
        }
        let written = self.try_write(task, name, offset, bytes, is_last);
        written.map_err(|error| disk(&error))
    }

    fn try_write(
        &self,
        task: TaskId,
        name: &ResultName,
        offset: u64,
        bytes: &[u8],
        is_last: bool,
    ) -> io::Result<()> {
        let whole = self.path(task, name);
        if whole.exists() {
            // The answer to the last piece got lost.
            return Ok(());
        }
        fs::create_dir_all(&self.directory)?;
        let part = whole.with_extension("part");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&part)?;
        file.write_all_at(bytes, offset)?;
        if is_last {
            file.set_len(offset + bytes.len() as u64)?;
            file.sync_all()?;
            fs::rename(&part, &whole)?;
            File::open(&self.directory)?.sync_all()?;
        }
        Ok(())
    }

    /// Reads a piece.
    pub(crate) fn read(
        &self,
        task: TaskId,
        name: &ResultName,
        offset: u64,
        length: u64,
    ) -> Result<Piece, ApiError> {
        let read = || {
            let file = File::open(self.path(task, name))?;
            let total = file.metadata()?.len();
            let length = length.min(total.saturating_sub(offset));
            let mut bytes = vec![0; length as usize];
            file.read_exact_at(&mut bytes, offset)?;
            io::Result::Ok(Piece { bytes, total })
        };
        read().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ApiError::not_found("large result of task", task.0),
            _ => disk(&error),
        })
    }

    /// The tasks that have files here, each as often as it has one.
    pub(crate) fn tasks(&self) -> Vec<(TaskId, PathBuf)> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let files = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let (task, _) = path.file_name()?.to_str()?.split_once('-')?;
            Some((TaskId(task.parse().ok()?), path.clone()))
        });
        files.collect()
    }

    fn path(&self, task: TaskId, name: &ResultName) -> PathBuf {
        self.directory.join(format!("{}-{name}", task.0))
    }
}

fn disk(error: &io::Error) -> ApiError {
    tracing::warn!(%error, "a large result");
    let message = format!("the server cannot keep or read the result: {error}");
    ApiError::new(ErrorCode::Internal, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> ResultName {
        "0123456789abcdef0123456789abcdef".parse().unwrap()
    }

    #[test]
    fn pieces_in_any_number_make_a_whole_and_only_then_can_it_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let results = LargeResults::new(folder.path());
        let task = TaskId(17);
        results.write(task, &name(), 0, b"one ", false).unwrap();
        results.write(task, &name(), 0, b"one ", false).unwrap();
        assert!(results.read(task, &name(), 0, 100).is_err());
        results.write(task, &name(), 4, b"two", true).unwrap();
        results.write(task, &name(), 4, b"two", true).unwrap();
        let piece = results.read(task, &name(), 2, 3).unwrap();
        assert_eq!((piece.bytes.as_slice(), piece.total), (&b"e t"[..], 7));
        assert_eq!(results.read(task, &name(), 9, 3).unwrap().bytes, b"");
        assert_eq!(results.tasks()[0].0, task);
        assert!(results.read(TaskId(18), &name(), 0, 1).is_err());
    }

    #[test]
    fn what_is_larger_than_allowed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let results = LargeResults::new(folder.path());
        let refused = results.write(TaskId(1), &name(), RESULT_BYTES_MAX, b"x", false);
        assert_eq!(refused.unwrap_err().code, ErrorCode::TooLarge);
    }
}
