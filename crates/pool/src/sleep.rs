//! Who is awake, and whom to wake.
//!
//! One word counts four kinds of threads:
//!
//! ```text
//!   bits 48..64  dozing     asleep for a while, because the joins are too small; also counted as parked
//!   bits 32..48  active     awake: running something or searching
//!   bits 16..32  parked     asleep for want of work, listed in `parked`
//!   bits  0..16  searching  awake and looking for work; also counted as active
//! ```
//!
//! A new unit wakes at most one thread, and none while somebody searches: the searcher will find
//! it. No more than `limit` threads are kept active, so a guest that brings its own thread does not
//! crowd the machine; the surplus worker sleeps.
//!
//! A thread that found the joins of others too small to be worth stealing *dozes*. It gets up by
//! itself and looks again, so to joins it is like a searcher, only slower: no other thread is woken
//! for one. To everything else it is like any parked thread.
//!
//! # Why no wake-up is lost
//! A producer makes its unit visible, fences, then reads the word. A thread that goes to sleep (or
//! stops being the last searcher) changes the word, fences, then looks at all queues. Both fences
//! are `SeqCst`, so at least one of the two sees the other: either the producer reads a word with
//! nobody searching and wakes someone, or the other thread finds the unit. For the injector its lock does the
//! same without a fence: the producer reads the word while it holds the lock, and the other thread takes the lock
//! when it looks there. Whoever lowers `active`
//! looks at the queues as well, because a producer may have been held back by the limit. Whoever
//! begins to doze looks for all but joins; for those it looks when it gets up, or is parked as surplus
//! and leaves them to whoever lowers `active` next.

use crate::sync::{Apart, AtomicBool, AtomicU64, Mutex, Ordering, fence, lock};

const SEARCHING: u64 = 1;
const PARKED: u64 = 1 << 16;
const ACTIVE: u64 = 1 << 32;
const DOZING: u64 = 1 << 48;

fn searching(word: u64) -> u64 {
    word & 0xffff
}

fn parked(word: u64) -> u64 {
    (word >> 16) & 0xffff
}

fn active(word: u64) -> u64 {
    (word >> 32) & 0xffff
}

fn dozing(word: u64) -> u64 {
    word >> 48
}

/// What became visible.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum News {
    /// A join, which its owner will run if nobody takes it.
    Join,
    /// Something else, which may wait for a thread that has time.
    Spawned,
}

/// A thread that sleeps for want of work.
#[derive(Debug)]
struct Sleeper {
    seat: u32,
    is_dozing: bool,
}

/// The sleep state of a pool.
#[derive(Debug)]
pub(crate) struct Sleep {
    word: Apart<AtomicU64>,
    limit: u64,
    /// Who sleeps for want of work, the latest last. `word` changes its counts of parked and dozing
    /// threads only while this is locked.
    parked: Mutex<Vec<Sleeper>>,
    /// For each seat: it was taken off the list and may go on.
    woken: Box<[AtomicBool]>,
}

impl Sleep {
    /// Everyone is away at first; `limit` threads may be active at once.
    pub(crate) fn new(limit: usize, seats: usize) -> Self {
        Self {
            word: Apart(AtomicU64::new(0)),
            limit: limit as u64,
            parked: Mutex::new(Vec::with_capacity(seats)),
            woken: (0..seats).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// A thread becomes active.
    pub(crate) fn enter(&self) {
        self.word.fetch_add(ACTIVE, Ordering::SeqCst);
    }

    /// A thread stops being active: it leaves, waits or blocks. If work waits, the caller has to
    /// [`wake_one`](Self::wake_one).
    pub(crate) fn leave(&self) {
        self.word.fetch_sub(ACTIVE, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// An active thread starts to search.
    pub(crate) fn start_searching(&self) {
        self.word.fetch_add(SEARCHING, Ordering::SeqCst);
    }

    /// A searcher found work. `true`: it was the last one, so if more work is visible the caller
    /// has to [`wake_one`](Self::wake_one).
    #[must_use]
    pub(crate) fn stop_searching(&self) -> bool {
        let before = self.word.fetch_sub(SEARCHING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        searching(before) == 1
    }

    /// How many threads have nothing to do and would take a join.
    #[inline]
    pub(crate) fn idle(&self) -> usize {
        let word = self.word.load(Ordering::Relaxed);
        if dozing(word) != 0 {
            return searching(word) as usize;
        }
        let room = self.limit.saturating_sub(active(word));
        (searching(word) + parked(word).min(room)) as usize
    }

    /// Has somebody found the joins too small?
    #[inline]
    pub(crate) fn is_anyone_dozing(&self) -> bool {
        dozing(self.word.load(Ordering::Relaxed)) != 0
    }

    /// Are more threads active than there should be?
    pub(crate) fn is_crowded(&self) -> bool {
        active(self.word.load(Ordering::Relaxed)) > self.limit
    }

    /// After a unit became visible, and a `SeqCst` fence, which pairs with those after the changes
    /// of the word (see the module's header): wakes one thread unless that is pointless. Returns
    /// the seat whose thread the caller must unpark.
    #[inline]
    pub(crate) fn notify_after_fence(&self, news: News) -> Option<usize> {
        let word = self.word.load(Ordering::Relaxed);
        if parked(word) == 0 || !self.wants_waking(word, news) {
            return None;
        }
        self.wake_one(news)
    }

    /// Could a thread more be active, and there is none to wake? Threads of ours sit in waits then, in
    /// which they may not run what has become visible.
    #[inline]
    pub(crate) fn lacks_a_thread(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        parked(word) == 0 && searching(word) == 0 && active(word) < self.limit
    }

    /// Should somebody be woken, or started, for a spawned unit? To be asked where no fence is needed: under a lock
    /// that whoever goes to sleep takes, too.
    #[inline]
    pub(crate) fn needs_a_thread(&self) -> bool {
        self.wants_waking(self.word.load(Ordering::Relaxed), News::Spawned)
    }

    fn wants_waking(&self, word: u64, news: News) -> bool {
        let is_left_to_dozers = news == News::Join && dozing(word) != 0;
        searching(word) == 0 && active(word) < self.limit && !is_left_to_dozers
    }

    /// Takes one thread off the list; it wakes as a searcher.
    #[cold]
    pub(crate) fn wake_one(&self, news: News) -> Option<usize> {
        let mut list = lock(&self.parked);
        if !self.wants_waking(self.word.load(Ordering::SeqCst), news) {
            return None;
        }
        let sleeper = list.pop()?;
        self.release(&sleeper);
        Some(sleeper.seat as usize)
    }

    /// Takes this one off the list, whoever searches: it has mail. `false`: it is awake.
    pub(crate) fn wake(&self, seat: usize) -> bool {
        let mut list = lock(&self.parked);
        let Some(position) = position(&list, seat) else {
            return false;
        };
        let sleeper = list.swap_remove(position);
        self.release(&sleeper);
        true
    }

    fn release(&self, sleeper: &Sleeper) {
        let awake = ACTIVE + SEARCHING;
        let change = awake.wrapping_sub(asleep(sleeper.is_dozing));
        self.word.fetch_add(change, Ordering::SeqCst);
        // A swap, so that it is ordered after every earlier `take_woken` (loom does not see that a
        // store cannot come between the two halves of a swap).
        self.woken[sleeper.seat as usize].swap(true, Ordering::AcqRel);
    }

    /// A searcher lists itself as asleep. `true`: it may park, but first it must look at all
    /// queues and [`stay_awake`](Self::stay_awake) if there is something, unless we are crowded.
    #[must_use]
    pub(crate) fn lie_down(&self, seat: usize) -> LieDown {
        let before = self.enlist(seat, false);
        if active(before) > self.limit {
            LieDown::Surplus
        } else {
            LieDown::LookOnceMore
        }
    }

    /// A searcher lists itself as dozing. It may sleep for a while and then has to
    /// [`get_up`](Self::get_up), but first it must look for everything but joins and
    /// [`stay_awake`](Self::stay_awake) if there is something.
    pub(crate) fn doze(&self, seat: usize) {
        self.enlist(seat, true);
    }

    /// What the word was before.
    fn enlist(&self, seat: usize, is_dozing: bool) -> u64 {
        let mut list = lock(&self.parked);
        list.push(Sleeper {
            seat: seat as u32,
            is_dozing,
        });
        let awake = ACTIVE + SEARCHING;
        let change = asleep(is_dozing).wrapping_sub(awake);
        let before = self.word.fetch_add(change, Ordering::SeqCst);
        drop(list);
        fence(Ordering::SeqCst);
        before
    }

    /// The end of a doze. `false`: it sleeps on, as any parked thread, until it is woken; enough others
    /// are active, or somebody already took it off the list.
    #[must_use]
    pub(crate) fn get_up(&self, seat: usize) -> bool {
        let mut list = lock(&self.parked);
        let Some(position) = position(&list, seat) else {
            return false;
        };
        if active(self.word.load(Ordering::SeqCst)) >= self.limit {
            list[position].is_dozing = false;
            self.word.fetch_sub(DOZING, Ordering::SeqCst);
            return false;
        }
        drop(list);
        self.stay_awake(seat)
    }

    /// Undoes `lie_down`. `false`: somebody already took it off the list.
    pub(crate) fn stay_awake(&self, seat: usize) -> bool {
        let woke = self.wake(seat);
        if woke {
            self.woken[seat].swap(false, Ordering::Relaxed);
        }
        woke
    }

    /// Was this seat taken off the list? Resets the answer.
    pub(crate) fn take_woken(&self, seat: usize) -> bool {
        self.woken[seat].swap(false, Ordering::Acquire)
    }
}

/// How a sleeping thread is counted.
fn asleep(is_dozing: bool) -> u64 {
    PARKED + if is_dozing { DOZING } else { 0 }
}

fn position(list: &[Sleeper], seat: usize) -> Option<usize> {
    list.iter()
        .position(|sleeper| sleeper.seat as usize == seat)
}

/// What a thread does between lying down and sleeping.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum LieDown {
    /// Look at all queues once more.
    LookOnceMore,
    /// Too many are active: sleep even though there may be work.
    Surplus,
}
