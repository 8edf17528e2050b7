//! `--line-buffer`: whole lines of tasks that run, as they come.
//!
//! The threads of the slots write them, one at a time. Whoever does not read our output keeps them waiting, and the
//! tasks with them: nothing piles up. With `--keep-order` a task is shown so while it is its turn; the others wait.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use loxley_exec::{LineWriter, Stream, TaskCommand, Template};

use super::delivery::tag_of;
use super::runner::Event;

/// Writes lines of all tasks.
#[derive(Debug)]
pub(super) struct Lines {
    state: Mutex<State>,
    tag: bool,
    tag_text: Option<Template>,
}

#[derive(Debug)]
struct State {
    outputs: [File; 2],
    /// Whose lines are shown, if it is one after the other.
    turn: Option<u64>,
    /// Takes the news that nobody reads any more.
    events: Sender<Event>,
    failed: bool,
}

impl Lines {
    pub(super) fn new(
        in_order: bool,
        tag: bool,
        tag_text: Option<Template>,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        // The lock of standard output is held elsewhere, for as long as the program runs.
        let outputs = [
            File::from(io::stdout().as_fd().try_clone_to_owned()?),
            File::from(io::stderr().as_fd().try_clone_to_owned()?),
        ];
        Ok(Self {
            state: Mutex::new(State {
                outputs,
                turn: in_order.then_some(1),
                events,
                failed: false,
            }),
            tag,
            tag_text,
        })
    }

    /// It is the turn of the task with this number.
    pub(super) fn set_turn(&self, sequence: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = &mut state.turn {
            *turn = sequence;
        }
    }
}

impl LineWriter for Lines {
    fn write(
        &self,
        command: &TaskCommand,
        slot: usize,
        stream: Stream,
        lines: &[u8],
    ) -> io::Result<bool> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.turn.is_some_and(|turn| turn != command.sequence) {
            return Ok(false);
        }
        if lines.is_empty() {
            return Ok(true);
        }
        let tagged;
        let text = match tag_of(command, Some(slot), self.tag, self.tag_text.as_ref()) {
            None => lines,
            Some(tag) => {
                let lines = lines.split_inclusive(|byte| *byte == b'\n');
                tagged = lines
                    .flat_map(|line| [&*tag, line])
                    .collect::<Vec<_>>()
                    .concat();
                &tagged
            }
        };
        let written = state.outputs[stream as usize].write_all(text);
        if let Err(error) = &written
            && !std::mem::replace(&mut state.failed, true)
        {
            let error = io::Error::new(error.kind(), error.to_string());
            // Nobody listens when the run is over anyway.
            let _ = state.events.send(Event::OutputFailed(error));
        }
        written.map(|()| true)
    }
}
