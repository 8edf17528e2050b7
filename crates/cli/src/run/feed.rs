//! The items on their way to the engine: numbered, without those that an earlier run finished, the
//! heaviest first where weights are known.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, sync_channel};
use std::thread;

use anyhow::{Context, Result, bail};
use loxley_exec::Input;
use loxley_model::Span;

use super::blocks::Blocks;
use super::items::Items;
use super::joblog::{Earlier, Failed, Logged};
use super::runner::Event;

/// Items for the engine, never blocking.
pub(super) struct Feed {
    source: Source,
    total: Option<u64>,
    sequence: u64,
    earlier: Earlier,
    /// Whether to run again what failed in the earlier run.
    again: bool,
    /// Read already, to see whether they are those of the earlier run.
    read: VecDeque<Numbered>,
}

enum Source {
    /// They are there, or can be made at once.
    Ready(Box<dyn Iterator<Item = io::Result<Numbered>>>),
    /// Somebody may still be writing them.
    Coming(Receiver<io::Result<Content>>),
}

/// What one task gets: items, or a block of the input.
enum Content {
    Items(Vec<OsString>),
    Block(Input),
}

/// The items of one task.
pub(super) struct Numbered {
    pub(super) sequence: u64,
    pub(super) items: Vec<OsString>,
    pub(super) input: Option<Input>,
    pub(super) cost: Option<Span>,
}

/// What comes next.
pub(super) enum Next {
    Item(Numbered),
    /// An earlier run finished this one.
    Skipped(u64),
    /// Nothing yet; an event tells when it is worth asking again.
    Nothing,
    /// Nothing any more.
    End,
}

/// How many items are read ahead of those who need them.
const READ_AHEAD: usize = 256;

impl Content {
    fn numbered(self, sequence: u64) -> Numbered {
        let (items, input) = match self {
            Self::Items(items) => (items, None),
            // Placeholders are empty, as with GNU parallel.
            Self::Block(input) => (vec![OsString::new()], Some(input)),
        };
        Numbered {
            sequence,
            items,
            input,
            cost: None,
        }
    }
}

impl Feed {
    /// Items in their order.
    pub(super) fn in_order(items: Items, events: &Sender<Event>) -> Result<Self> {
        let total = items.total;
        let source = if items.waits {
            let items = items.map(|items| items.map(Content::Items));
            Source::Coming(read_along(items, READ_AHEAD, events.clone())?)
        } else {
            let numbered = (1..).zip(items).map(|(sequence, items)| {
                Ok(Numbered {
                    sequence,
                    items: items?,
                    input: None,
                    cost: None,
                })
            });
            Source::Ready(Box::new(numbered))
        };
        Ok(Self::new(source, total))
    }

    /// Blocks of one input in their order. Few are read ahead: each may be large.
    pub(super) fn in_blocks(blocks: Blocks, events: &Sender<Event>) -> Result<Self> {
        let blocks = blocks.map(|block| block.map(Content::Block));
        let coming = read_along(blocks, 1, events.clone())?;
        Ok(Self::new(Source::Coming(coming), None))
    }

    /// All items, the heaviest first. A weight is what the task is expected to cost, in seconds.
    pub(super) fn heaviest_first(items: Items, weights: &[f64]) -> Result<Self> {
        let items: Vec<Vec<OsString>> = items
            .collect::<io::Result<_>>()
            .context("cannot read the items")?;
        let mut numbered: Vec<Numbered> = (1..)
            .zip(items)
            .enumerate()
            .map(|(index, (sequence, items))| Numbered {
                sequence,
                items,
                input: None,
                cost: weights
                    .get(index)
                    .and_then(|weight| Span::try_from_secs_f64(*weight)),
            })
            .collect();
        // Stable: equal weights stay in their order. What has no weight comes last.
        numbered.sort_by_key(|numbered| Reverse(numbered.cost));
        let total = numbered.len() as u64;
        let source = Source::Ready(Box::new(numbered.into_iter().map(Ok)));
        Ok(Self::new(source, Some(total)))
    }

    /// What failed in an earlier run: its line, under its number.
    pub(super) fn again(failed: Vec<Failed>) -> Self {
        let total = failed.len() as u64;
        let numbered = failed.into_iter().map(|failed| {
            Ok(Numbered {
                sequence: failed.sequence,
                items: vec![failed.command],
                input: None,
                cost: None,
            })
        });
        Self::new(Source::Ready(Box::new(numbered)), Some(total))
    }

    fn new(source: Source, total: Option<u64>) -> Self {
        Self {
            source,
            total,
            sequence: 0,
            earlier: Earlier::new(),
            again: false,
            read: VecDeque::new(),
        }
    }

    /// Leaves out what an earlier run finished; with `again`, only what it finished well.
    pub(super) fn resume(&mut self, earlier: Earlier, again: bool) {
        self.earlier = earlier;
        self.again = again;
    }

    /// Reads items until all are there that are left out, and has each of those looked at. Waits for them.
    ///
    /// # Errors
    /// When the look says so, or there are none under their numbers: then nothing has run yet.
    pub(super) fn look_at_left_out(
        &mut self,
        look: impl Fn(&Numbered, &Logged) -> Result<()>,
    ) -> Result<()> {
        let left_out = |logged: &Logged| logged.succeeded || !self.again;
        let mut missing: BTreeSet<u64> = self
            .earlier
            .iter()
            .filter(|(_, logged)| left_out(logged))
            .map(|(sequence, _)| *sequence)
            .collect();
        while !missing.is_empty() {
            let next = match &mut self.source {
                Source::Ready(items) => items.next(),
                Source::Coming(items) => items.recv().ok().map(|items| {
                    self.sequence += 1;
                    let sequence = self.sequence;
                    items.map(|content| content.numbered(sequence))
                }),
            };
            let Some(mut numbered) = next.transpose().context("cannot read the items")? else {
                break;
            };
            if missing.remove(&numbered.sequence) {
                look(&numbered, &self.earlier[&numbered.sequence])?;
                // A block may be large, and nobody will read it.
                numbered.input = None;
            }
            self.read.push_back(numbered);
        }
        match missing.first() {
            None => Ok(()),
            Some(sequence) => bail!(
                "task {sequence} of the job log is not there any more: resume with the same command and items, or \
                 begin a new log"
            ),
        }
    }

    /// How many tasks there will be in all, as far as that is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// What comes next.
    pub(super) fn next(&mut self) -> Result<Next> {
        if let Some(numbered) = self.read.pop_front() {
            return Ok(self.sorted(numbered));
        }
        let next = match &mut self.source {
            Source::Ready(items) => items.next(),
            Source::Coming(items) => match items.try_recv() {
                Ok(items) => {
                    self.sequence += 1;
                    let sequence = self.sequence;
                    Some(items.map(|content| content.numbered(sequence)))
                }
                Err(TryRecvError::Empty) => return Ok(Next::Nothing),
                Err(TryRecvError::Disconnected) => {
                    self.total = Some(self.sequence);
                    None
                }
            },
        };
        let Some(numbered) = next.transpose().context("cannot read the items")? else {
            return Ok(Next::End);
        };
        Ok(self.sorted(numbered))
    }

    fn sorted(&self, numbered: Numbered) -> Next {
        match self.earlier.get(&numbered.sequence) {
            Some(logged) if logged.succeeded || !self.again => Next::Skipped(numbered.sequence),
            _ => Next::Item(numbered),
        }
    }
}

/// Reads on a thread of its own, which nobody waits for: it may hang on its input for ever.
fn read_along(
    contents: impl Iterator<Item = io::Result<Content>> + Send + 'static,
    ahead: usize,
    events: Sender<Event>,
) -> io::Result<Receiver<io::Result<Content>>> {
    let (sender, receiver) = sync_channel(ahead);
    thread::Builder::new()
        .name("items".to_owned())
        .spawn(move || {
            for content in contents {
                if sender.send(content).is_err() || events.send(Event::ItemsReady).is_err() {
                    return;
                }
            }
            drop(sender);
            // The end is news, too. Nobody listens any more when this fails.
            let _ = events.send(Event::ItemsReady);
        })?;
    Ok(receiver)
}
