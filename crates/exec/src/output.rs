//! Where the output of a command goes.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::task_command::{Keep, TaskCommand};

/// Which of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes what a command writes, as it comes, and hears about a command that takes its time.
pub trait Sink {
    /// The command has run for the time of its [`notice`](crate::Command::notice) and is not over.
    fn runs_on(&mut self) {}

    /// Some bytes. An error stops the taking, not the command: the rest is read and dropped, and
    /// [`Slot::run`](crate::Slot::run) reports the error at the end.
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()>;
}

/// Takes the lines of tasks while they run, from the threads of all slots.
pub trait LineWriter: std::fmt::Debug + Send + Sync {
    /// Some whole lines of a task, or none, to ask; says whether they were taken, or would be. Those that were not
    /// come again with the next ones,
    /// and the rest of an output, the end of a line included, is what is kept of it.
    ///
    /// # Errors
    /// When they cannot be written; whoever writes them makes that known, and gets no more of this task.
    fn write(
        &self,
        command: &TaskCommand,
        slot: usize,
        stream: Stream,
        lines: &[u8],
    ) -> io::Result<bool>;
}

/// Keeps the last 64 KiB of each output, whatever a command writes.
#[derive(Debug)]
pub struct Tail {
    outputs: [VecDeque<u8>; 2],
    dropped: [u64; 2],
    capacity: usize,
}

impl Default for Tail {
    fn default() -> Self {
        Self::with_capacity(64 << 10)
    }
}

impl Tail {
    /// Keeps the last so many bytes of each output.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            outputs: [VecDeque::new(), VecDeque::new()],
            dropped: [0, 0],
            capacity,
        }
    }

    /// What is kept of standard output.
    pub fn stdout(&mut self) -> &[u8] {
        self.outputs[0].make_contiguous()
    }

    /// What is kept of standard error.
    pub fn stderr(&mut self) -> &[u8] {
        self.outputs[1].make_contiguous()
    }

    /// How many earlier bytes of an output are gone.
    #[must_use]
    pub fn dropped(&self, stream: Stream) -> u64 {
        self.dropped[stream as usize]
    }
}

impl Sink for Tail {
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let kept = &mut self.outputs[stream as usize];
        let total = kept.len() + bytes.len();
        let excess = total.saturating_sub(self.capacity);
        let old = excess.min(kept.len());
        kept.drain(..old);
        kept.extend(&bytes[excess - old..]);
        self.dropped[stream as usize] += excess as u64;
        Ok(())
    }
}

/// Keeps the whole of each output: in memory while it is small, in a nameless file when it grows.
#[derive(Debug, Default)]
pub struct Spool {
    outputs: [Roll; 2],
}

#[derive(Debug, Default)]
struct Roll {
    memory: Vec<u8>,
    file: Option<File>,
    length: u64,
    /// How many bytes were taken out again.
    taken: u64,
}

/// What one output of one command may hold in memory.
const MEMORY_MAX: usize = 256 << 10;

impl Spool {
    /// Writes out the whole of an output.
    pub fn copy(&mut self, stream: Stream, out: &mut dyn Write) -> io::Result<()> {
        let roll = &mut self.outputs[stream as usize];
        if let Some(file) = &mut roll.file {
            file.rewind()?;
            io::copy(file, out)?;
        }
        out.write_all(&roll.memory)
    }

    /// Whether a command wrote nothing to an output.
    #[must_use]
    pub fn is_empty(&self, stream: Stream) -> bool {
        self.len(stream) == 0
    }

    /// How many bytes of an output are kept.
    #[must_use]
    pub fn len(&self, stream: Stream) -> u64 {
        self.outputs[stream as usize].length
    }

    /// How many bytes a command wrote to an output, with those that were taken out again.
    #[must_use]
    pub fn written(&self, stream: Stream) -> u64 {
        let roll = &self.outputs[stream as usize];
        roll.length + roll.taken
    }

    /// Counts bytes that went elsewhere.
    pub(crate) fn pass(&mut self, stream: Stream, bytes: usize) {
        self.outputs[stream as usize].taken += bytes as u64;
    }

    /// Takes out everything but the last so many bytes.
    pub(crate) fn take_all_but(&mut self, stream: Stream, last: usize) -> io::Result<Vec<u8>> {
        let taken = self.outputs[stream as usize].taken;
        let mut bytes = Vec::new();
        self.copy(stream, &mut bytes)?;
        let rest = bytes.split_off(bytes.len() - last);
        self.outputs[stream as usize] = Roll {
            file: None,
            length: rest.len() as u64,
            memory: rest,
            taken: taken + bytes.len() as u64,
        };
        Ok(bytes)
    }

    /// The last so many bytes of an output.
    pub fn tail(&mut self, stream: Stream, most: usize) -> io::Result<Vec<u8>> {
        let roll = &mut self.outputs[stream as usize];
        let mut tail = Vec::new();
        let missing = most.saturating_sub(roll.memory.len()) as u64;
        if let Some(file) = &mut roll.file
            && missing > 0
        {
            let length = file.seek(io::SeekFrom::End(0))?;
            file.seek(io::SeekFrom::Start(length.saturating_sub(missing)))?;
            file.read_to_end(&mut tail)?;
        }
        let start = roll.memory.len().saturating_sub(most);
        tail.extend_from_slice(&roll.memory[start..]);
        Ok(tail)
    }

    /// The whole of an output, for reading; the spool starts again, empty.
    pub fn reader(&mut self, stream: Stream) -> io::Result<impl Read + use<>> {
        let roll = std::mem::take(&mut self.outputs[stream as usize]);
        let mut file = roll.file;
        if let Some(file) = &mut file {
            file.rewind()?;
        }
        let file: Box<dyn Read + Send> = match file {
            Some(file) => Box::new(file),
            None => Box::new(io::empty()),
        };
        Ok(file.chain(io::Cursor::new(roll.memory)))
    }
}

impl Sink for Spool {
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let roll = &mut self.outputs[stream as usize];
        if roll.memory.len() + bytes.len() > MEMORY_MAX {
            let file = match &mut roll.file {
                Some(file) => file,
                None => roll.file.insert(tempfile::tempfile()?),
            };
            file.write_all(&roll.memory)?;
            roll.memory.clear();
        }
        roll.memory.extend_from_slice(bytes);
        roll.length += bytes.len() as u64;
        Ok(())
    }
}

/// What is kept of the output of a task.
#[derive(Debug, Default)]
pub enum Captured {
    /// Nothing: it went elsewhere, or there was none.
    #[default]
    Nothing,
    /// All of it.
    Whole(Spool),
    /// The end of it.
    Tail(Tail),
}

impl Captured {
    pub(crate) fn new(keep: Keep) -> Self {
        match keep {
            Keep::Whole => Self::Whole(Spool::default()),
            Keep::Tail(bytes) => Self::Tail(Tail::with_capacity(bytes)),
        }
    }

    /// The whole of it; nothing when it was not kept.
    #[must_use]
    pub fn into_whole(self) -> Spool {
        match self {
            Self::Whole(spool) => spool,
            Self::Nothing | Self::Tail(_) => Spool::default(),
        }
    }

    /// How many bytes are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        match self {
            // Whoever keeps the whole hands it over as it is.
            Self::Nothing | Self::Whole(_) => 0,
            Self::Tail(tail) => tail.outputs.iter().map(VecDeque::len).sum(),
        }
    }
}

impl Sink for Captured {
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Whole(spool) => spool.take(stream, bytes),
            Self::Tail(tail) => tail.take(stream, bytes),
        }
    }
}

/// Writes each output, whole, to a file.
#[derive(Debug)]
pub struct Files {
    outputs: [File; 2],
}

impl Files {
    /// Makes both files; what was in them is gone.
    pub fn create(stdout: &Path, stderr: &Path) -> io::Result<Self> {
        Ok(Self {
            outputs: [create(stdout)?, create(stderr)?],
        })
    }
}

/// Makes a file, or empties the one that is there. Names of outputs can be guessed, so nobody who may write to their
/// directory shall lead us elsewhere by a link.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        let what = format!("{} is a symbolic link, and is not followed", path.display());
        if is_link {
            io::Error::other(what)
        } else {
            error
        }
    })
}

impl Sink for Files {
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.outputs[stream as usize].write_all(bytes)
    }
}

/// Both take everything.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.0.take(stream, bytes)?;
        self.1.take(stream, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_tail_is_the_end_of_everything(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..20),
            capacity in 0..50usize,
        ) {
            let mut tail = Tail::with_capacity(capacity);
            for piece in &pieces {
                tail.take(Stream::Stdout, piece).unwrap();
            }
            let all = pieces.concat();
            let kept = all.len().min(capacity);
            prop_assert_eq!(tail.stdout(), &all[all.len() - kept..]);
            prop_assert_eq!(tail.dropped(Stream::Stdout), (all.len() - kept) as u64);
            prop_assert_eq!(tail.stderr(), b"");
        }
    }

    #[test]
    fn an_output_does_not_go_where_a_link_leads() {
        let scratch = tempfile::tempdir().unwrap();
        let [secret, out, err] = ["secret", "1.out", "1.err"].map(|name| scratch.path().join(name));
        std::fs::write(&secret, "kept").unwrap();
        std::os::unix::fs::symlink(&secret, &out).unwrap();
        let refused = Files::create(&out, &err).unwrap_err().to_string();
        assert!(refused.contains("is a symbolic link"), "{refused}");
        assert_eq!(std::fs::read(&secret).unwrap(), b"kept");
        std::fs::remove_file(&out).unwrap();
        let mut files = Files::create(&out, &err).unwrap();
        files.take(Stream::Stdout, b"said").unwrap();
        assert_eq!(std::fs::read(&out).unwrap(), b"said");
    }

    #[test]
    fn a_spool_keeps_everything_in_order() {
        let mut spool = Spool::default();
        let mut all = Vec::new();
        for index in 0..40_000u32 {
            let line = format!("line {index} of many\n");
            spool.take(Stream::Stderr, line.as_bytes()).unwrap();
            all.extend_from_slice(line.as_bytes());
        }
        assert!(all.len() > 2 * MEMORY_MAX && spool.is_empty(Stream::Stdout));
        for most in [10, MEMORY_MAX + 10, 2 * all.len()] {
            let tail = spool.tail(Stream::Stderr, most).unwrap();
            assert!(tail == all[all.len().saturating_sub(most)..], "{most}");
        }
        let mut copied = Vec::new();
        spool.copy(Stream::Stderr, &mut copied).unwrap();
        assert!(copied == all, "a copy differs");
        copied.clear();
        spool
            .reader(Stream::Stderr)
            .unwrap()
            .read_to_end(&mut copied)
            .unwrap();
        assert!(copied == all, "the reader differs");
        assert!(spool.is_empty(Stream::Stderr));
    }
}
