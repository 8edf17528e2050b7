//! A pool and its threads; the global one.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use loxley_pool::raw::{self, RawPool, StandIns};

use crate::builder::{ThreadPoolBuildError, ThreadPoolBuilder};

pub(crate) type PanicHandler = dyn Fn(Box<dyn Any + Send>) + Send + Sync;
pub(crate) type ThreadHandler = dyn Fn(usize) + Send + Sync;

/// More are of no use: what they stand in for runs on as many processors.
const MOST_STAND_INS: usize = 64;

/// A pool, and what its threads have to know besides.
pub(crate) struct Registry {
    pub(crate) pool: RawPool,
    on_panic: Arc<PanicHandler>,
    on_start: Option<Box<ThreadHandler>>,
    on_exit: Option<Box<ThreadHandler>>,
    /// How many threads have begun.
    begun: Mutex<usize>,
    one_begun: Condvar,
}

/// Lets the pool end when building it fails, by an error or a panic.
struct Unfinished<'a>(&'a RawPool);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl Registry {
    pub(crate) fn new<S: ThreadSpawn>(
        mut builder: ThreadPoolBuilder<S>,
    ) -> Result<Arc<Self>, ThreadPoolBuildError> {
        let threads = builder.threads().min(crate::max_num_threads());
        let on_panic = panic_handler(builder.panic_handler.take());
        let pool = RawPool::new(threads, stand_ins(&builder, threads), Arc::clone(&on_panic));
        let registry = Arc::new(Self {
            pool: pool.clone(),
            on_panic,
            on_start: builder.start_handler.take(),
            on_exit: builder.exit_handler.take(),
            begun: Mutex::new(0),
            one_begun: Condvar::new(),
        });
        let unfinished = Unfinished(&pool);
        for index in 0..threads {
            let thread = ThreadBuilder {
                name: builder.thread_name.as_mut().map(|name| name(index)),
                stack_size: builder.stack_size,
                registry: Arc::clone(&registry),
                index,
            };
            if index == 0 && builder.use_current_thread {
                if raw::is_inside() {
                    return Err(ThreadPoolBuildError::current_thread_in_pool());
                }
                registry.pool.adopt(index);
                registry.count_begun();
                continue;
            }
            let started = builder.spawn_handler.spawn(thread);
            started.map_err(ThreadPoolBuildError::io)?;
        }
        std::mem::forget(unfinished);
        Ok(registry)
    }

    pub(crate) fn num_threads(&self) -> usize {
        self.pool.threads()
    }

    /// What a thread of the pool does.
    fn serve(&self, index: usize) {
        let begin = || {
            self.count_begun();
            self.call(self.on_start.as_deref(), index);
        };
        let end = || self.call(self.on_exit.as_deref(), index);
        self.pool.serve(index, begin, end);
    }

    fn call(&self, handler: Option<&ThreadHandler>, index: usize) {
        let Some(handler) = handler else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(index))) {
            (self.on_panic)(panic);
        }
    }

    fn count_begun(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.one_begun.notify_all();
    }

    /// Waits until all threads have begun.
    pub(crate) fn wait_until_begun(&self) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        while *begun < self.num_threads() {
            begun = self
                .one_begun
                .wait(begun)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// How many threads may stand in for those that wait. None where the threads are prepared for what they run: they are
/// started by the user, or call a handler first.
fn stand_ins<S: ThreadSpawn>(builder: &ThreadPoolBuilder<S>, threads: usize) -> StandIns {
    let has_handlers = builder.start_handler.is_some() || builder.exit_handler.is_some();
    let may_start = S::IS_OURS && !has_handlers;
    StandIns {
        count: if may_start {
            threads.min(MOST_STAND_INS)
        } else {
            0
        },
        stack_size: builder.stack_size,
    }
}

/// Gives a panic that nobody waits for to the handler. Without one the process ends, as it does when the
/// handler panics itself.
fn panic_handler(handler: Option<Box<PanicHandler>>) -> Arc<PanicHandler> {
    struct Abort;
    impl Drop for Abort {
        #[expect(clippy::print_stderr, reason = "the last words of the process")]
        fn drop(&mut self) {
            eprintln!("rayon (on loxley-pool): a panic that nobody waits for; the process ends");
            std::process::abort();
        }
    }
    Arc::new(move |panic| {
        let abort = Abort;
        if let Some(handler) = &handler {
            handler(panic);
            std::mem::forget(abort);
        }
    })
}

/// The pool that is used outside of all pools.
static GLOBAL: OnceLock<Arc<Registry>> = OnceLock::new();
/// Who starts it, goes one at a time.
static STARTING: Mutex<()> = Mutex::new(());

/// The global pool, started if need be.
pub(crate) fn global() -> &'static Arc<Registry> {
    GLOBAL.get().unwrap_or_else(|| {
        let started = init_global(ThreadPoolBuilder::new());
        GLOBAL.get().unwrap_or_else(|| match started {
            Err(error) => panic!("the global thread pool could not be started: {error}"),
            Ok(()) => unreachable!("it was started"),
        })
    })
}

/// Starts the global pool, unless there is one.
pub(crate) fn init_global<S: ThreadSpawn>(
    builder: ThreadPoolBuilder<S>,
) -> Result<(), ThreadPoolBuildError> {
    let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if GLOBAL.get().is_some() {
        return Err(ThreadPoolBuildError::already_initialized());
    }
    let registry = Registry::new(builder)?;
    let is_first = GLOBAL.set(registry).is_ok();
    assert!(is_first, "one at a time");
    Ok(())
}

/// The pool that the calling thread is in, else the global one.
pub(crate) fn current() -> RawPool {
    RawPool::current().unwrap_or_else(|| global().pool.clone())
}

/// A thread that a pool needs, for [`ThreadPoolBuilder::spawn_handler`].
pub struct ThreadBuilder {
    name: Option<String>,
    stack_size: Option<usize>,
    registry: Arc<Registry>,
    index: usize,
}

impl ThreadBuilder {
    /// The number of the thread in its pool.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name that [`ThreadPoolBuilder::thread_name`] gave it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What [`ThreadPoolBuilder::stack_size`] asked for.
    #[must_use]
    pub fn stack_size(&self) -> Option<usize> {
        self.stack_size
    }

    /// What the thread does; returns when the pool has been dropped and nothing is left to do.
    pub fn run(self) {
        self.registry.serve(self.index);
    }
}

impl fmt::Debug for ThreadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadBuilder")
            .field("pool", &self.registry.pool.id())
            .field("index", &self.index)
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .finish()
    }
}

/// How the threads of a pool are started. Implemented in this crate only.
pub trait ThreadSpawn: sealed::Sealed {
    /// Are they started by us, so that one more makes no difference?
    const IS_OURS: bool;

    /// Starts a thread that runs it.
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::DefaultSpawn {}
    impl<F> Sealed for super::CustomSpawn<F> {}
}

/// Threads of the standard library.
#[derive(Debug, Default)]
pub struct DefaultSpawn;

impl ThreadSpawn for DefaultSpawn {
    const IS_OURS: bool = true;

    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        let mut builder = thread::Builder::new();
        if let Some(name) = thread.name() {
            builder = builder.name(name.to_owned());
        }
        if let Some(stack_size) = thread.stack_size() {
            builder = builder.stack_size(stack_size);
        }
        builder.spawn(|| thread.run())?;
        Ok(())
    }
}

/// Threads that the user starts.
#[derive(Debug)]
pub struct CustomSpawn<F>(pub(crate) F);

impl<F: FnMut(ThreadBuilder) -> io::Result<()>> ThreadSpawn for CustomSpawn<F> {
    const IS_OURS: bool = false;

    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        (self.0)(thread)
    }
}
