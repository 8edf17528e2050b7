//! Units that should run on one particular worker, if it has time, and those that must.

use std::collections::VecDeque;
use std::ptr::NonNull;

use crate::sync::{AtomicUsize, Mutex, Ordering, lock};

/// Units that wait for one worker. Of its *mail* the owner looks first and thieves may take it too, so
/// affinity never makes a unit wait for a busy worker while others are idle. Its *orders* are for the
/// owner alone.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    letters: Mutex<VecDeque<Letter<T>>>,
    len: AtomicUsize,
}

#[derive(Debug)]
struct Letter<T>(NonNull<T>);

// SAFETY: a letter is only moved, never followed, in here; what is posted may be used by whichever
// thread takes it out (see `post`).
unsafe impl<T> Send for Letter<T> {}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            letters: Mutex::new(VecDeque::new()),
            len: AtomicUsize::new(0),
        }
    }

    /// Adds a unit. The pointee must be something that any thread may take over.
    pub(crate) fn post(&self, unit: NonNull<T>) {
        let mut letters = lock(&self.letters);
        letters.push_back(Letter(unit));
        self.len.store(letters.len(), Ordering::SeqCst);
    }

    /// Takes the oldest unit.
    #[inline]
    pub(crate) fn pop(&self) -> Option<NonNull<T>> {
        if self.is_empty() {
            None
        } else {
            self.pop_locked()
        }
    }

    #[cold]
    fn pop_locked(&self) -> Option<NonNull<T>> {
        let mut letters = lock(&self.letters);
        let letter = letters.pop_front()?;
        self.len.store(letters.len(), Ordering::SeqCst);
        Some(letter.0)
    }

    /// Takes the oldest unit that is wanted.
    pub(crate) fn pop_where(&self, wanted: impl Fn(NonNull<T>) -> bool) -> Option<NonNull<T>> {
        if self.is_empty() {
            return None;
        }
        let mut letters = lock(&self.letters);
        let position = letters.iter().position(|letter| wanted(letter.0))?;
        let letter = letters.remove(position)?;
        self.len.store(letters.len(), Ordering::SeqCst);
        Some(letter.0)
    }

    /// Is there a unit that is wanted?
    pub(crate) fn has_where(&self, wanted: impl Fn(NonNull<T>) -> bool) -> bool {
        !self.is_empty() && lock(&self.letters).iter().any(|letter| wanted(letter.0))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}
