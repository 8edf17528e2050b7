//! What all clones of a scheduler share: the lock, the thread for its timers, and the way of notices.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::{self, JoinHandle};

use loxley_driver::Driver;
use loxley_model::Time;
use loxley_policy::Input;

use crate::clock::Clock;
use crate::state::{Listener, Notice, State};
use crate::ticker::Alarm;

pub(super) struct Shared<T> {
    state: Mutex<State<T>>,
    /// Held by whoever hands over notices, so that they arrive in order.
    listeners: Mutex<Vec<Listener<T>>>,
    pub(super) clock: Arc<dyn Clock>,
    alarm: Arc<Alarm>,
    ticker: Mutex<Option<JoinHandle<()>>>,
    pub(super) next_task: AtomicU64,
    pub(super) next_job: AtomicU64,
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Lets time pass.
    pub(super) fn start(self: &Arc<Self>) {
        let mut ticker = unpoisoned(self.ticker.lock());
        self.with(|state, _| state.stopped = false);
        if ticker.is_none() {
            self.alarm.rearm();
            *ticker = Some(spawn_ticker(self));
        }
    }

    /// Stands still, and tells everybody who waits.
    pub(super) fn stop(&self) {
        let ticker = unpoisoned(self.ticker.lock()).take();
        self.with(|state, _| {
            state.stopped = true;
            let bells = state.desks.values().map(|desk| Arc::clone(&desk.bell));
            let bells: Vec<_> = bells.collect();
            state.wake.extend(bells);
        });
        self.alarm.stop();
        if let Some(ticker) = ticker
            && ticker.thread().id() != thread::current().id()
        {
            // A listener that panicked was dropped, so the thread itself does not panic.
            let _ = ticker.join();
        }
    }
}

impl<T> Shared<T> {
    pub(super) fn new(driver: Driver, clock: Arc<dyn Clock>) -> Self {
        let alarm = Arc::new(Alarm::new());
        alarm.set(driver.next_timer());
        Self {
            state: Mutex::new(State::new(driver)),
            listeners: Mutex::new(Vec::new()),
            clock,
            alarm,
            ticker: Mutex::new(None),
            next_task: AtomicU64::new(1),
            next_job: AtomicU64::new(1),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic under the lock is a broken invariant: whoever comes next must not go on with it.
        self.state
            .lock()
            .expect("the scheduler found its own books to be wrong")
    }

    /// Does something under the lock; what must happen outside of it happens afterwards.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State<T>, Time) -> R) -> R {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = work(&mut state, now);
        self.alarm.set(state.driver.next_timer());
        let wake = mem::take(&mut state.wake);
        let trash = mem::take(&mut state.trash);
        let has_mail = !state.outbox.is_empty();
        drop(state);
        wake.iter().for_each(|bell| bell.notify_all());
        drop(trash);
        if has_mail {
            self.deliver();
        }
        result
    }

    /// Hands notices to the listeners. One thread at a time does it, for all; a thread that finds
    /// another one at it leaves, because that one looks again after it let go.
    fn deliver(&self) {
        loop {
            let mut listeners = match self.listeners.try_lock() {
                Ok(listeners) => listeners,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            loop {
                let notices = self.take_mail(&mut listeners);
                if notices.is_empty() {
                    break;
                }
                for notice in &notices {
                    listeners.retain_mut(|listener| {
                        catch_unwind(AssertUnwindSafe(|| listener(notice))).unwrap_or(false)
                    });
                }
            }
            drop(listeners);
            if self.lock().outbox.is_empty() {
                return;
            }
        }
    }

    fn take_mail(&self, listeners: &mut Vec<Listener<T>>) -> Vec<Notice<T>> {
        let mut state = self.lock();
        listeners.append(&mut state.new_listeners);
        // When nobody is left to listen, no notices are made any more.
        state.listening = !listeners.is_empty();
        mem::take(&mut state.outbox)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.alarm.stop();
    }
}

fn spawn_ticker<T: Send + Sync + 'static>(shared: &Arc<Shared<T>>) -> JoinHandle<()> {
    let weak: Weak<Shared<T>> = Arc::downgrade(shared);
    let alarm = Arc::clone(&shared.alarm);
    let clock = Arc::clone(&shared.clock);
    let run = move || {
        while alarm.sleep(|| clock.now()) {
            let Some(shared) = weak.upgrade() else {
                return;
            };
            shared.with(|state, now| {
                state.feed(now, Input::Tick);
            });
        }
    };
    thread::Builder::new()
        .name("loxley-ticker".into())
        .spawn(run)
        .expect("a thread can be started")
}

fn unpoisoned<G>(locked: Result<G, PoisonError<G>>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}
