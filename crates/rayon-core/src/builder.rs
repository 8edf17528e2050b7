//! Settings for a pool.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::thread;

use crate::registry::{self, CustomSpawn, DefaultSpawn, PanicHandler, ThreadHandler, ThreadSpawn};
use crate::{ThreadBuilder, ThreadPool};

/// Why a pool could not be built.
#[derive(Debug)]
pub struct ThreadPoolBuildError(Reason);

#[derive(Debug)]
enum Reason {
    AlreadyInitialized,
    CurrentThreadInPool,
    Io(io::Error),
}

impl ThreadPoolBuildError {
    pub(crate) fn already_initialized() -> Self {
        Self(Reason::AlreadyInitialized)
    }

    pub(crate) fn current_thread_in_pool() -> Self {
        Self(Reason::CurrentThreadInPool)
    }

    pub(crate) fn io(error: io::Error) -> Self {
        Self(Reason::Io(error))
    }
}

impl fmt::Display for ThreadPoolBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::AlreadyInitialized => {
                f.write_str("The global thread pool has already been initialized.")
            }
            Reason::CurrentThreadInPool => {
                f.write_str("The current thread is already part of another thread pool.")
            }
            Reason::Io(error) => error.fmt(f),
        }
    }
}

impl Error for ThreadPoolBuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Reason::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Settings for a new [`ThreadPool`].
pub struct ThreadPoolBuilder<S = DefaultSpawn> {
    num_threads: usize,
    pub(crate) use_current_thread: bool,
    pub(crate) panic_handler: Option<Box<PanicHandler>>,
    pub(crate) thread_name: Option<Box<dyn FnMut(usize) -> String>>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) start_handler: Option<Box<ThreadHandler>>,
    pub(crate) exit_handler: Option<Box<ThreadHandler>>,
    pub(crate) spawn_handler: S,
}

impl Default for ThreadPoolBuilder {
    fn default() -> Self {
        Self {
            num_threads: 0,
            use_current_thread: false,
            panic_handler: None,
            thread_name: None,
            stack_size: None,
            start_handler: None,
            exit_handler: None,
            spawn_handler: DefaultSpawn,
        }
    }
}

impl ThreadPoolBuilder {
    /// The settings as they are by default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a pool whose threads may borrow, calls `with_pool` with it, and ends its threads. Each
    /// thread calls `wrapper`, which has to call [`ThreadBuilder::run`].
    pub fn build_scoped<W, F, R>(self, wrapper: W, with_pool: F) -> Result<R, ThreadPoolBuildError>
    where
        W: Fn(ThreadBuilder) + Sync,
        F: FnOnce(&ThreadPool) -> R,
    {
        thread::scope(|scope| {
            let wrapper = &wrapper;
            let pool = self
                .spawn_handler(|thread| {
                    let mut builder = thread::Builder::new();
                    if let Some(name) = thread.name() {
                        builder = builder.name(name.to_owned());
                    }
                    if let Some(size) = thread.stack_size() {
                        builder = builder.stack_size(size);
                    }
                    builder.spawn_scoped(scope, move || wrapper(thread))?;
                    Ok(())
                })
                .build()?;
            Ok(with_pool(&pool))
        })
    }
}

impl<S: ThreadSpawn> ThreadPoolBuilder<S> {
    /// Starts a pool.
    pub fn build(self) -> Result<ThreadPool, ThreadPoolBuildError> {
        ThreadPool::build(self)
    }

    /// Starts the global pool, if it has not been started, and waits until its threads have begun.
    pub fn build_global(self) -> Result<(), ThreadPoolBuildError> {
        registry::init_global(self)?;
        registry::global().wait_until_begun();
        Ok(())
    }
}

impl<S> ThreadPoolBuilder<S> {
    /// Lets `spawn` start each thread, in which [`ThreadBuilder::run`] has to be called.
    pub fn spawn_handler<F>(self, spawn: F) -> ThreadPoolBuilder<CustomSpawn<F>>
    where
        F: FnMut(ThreadBuilder) -> io::Result<()>,
    {
        ThreadPoolBuilder {
            num_threads: self.num_threads,
            use_current_thread: self.use_current_thread,
            panic_handler: self.panic_handler,
            thread_name: self.thread_name,
            stack_size: self.stack_size,
            start_handler: self.start_handler,
            exit_handler: self.exit_handler,
            spawn_handler: CustomSpawn(spawn),
        }
    }

    /// How many threads are wanted: what was set, else what the environment says, else one per
    /// processor.
    pub(crate) fn threads(&self) -> usize {
        if self.num_threads > 0 {
            return self.num_threads;
        }
        let by_default = || thread::available_parallelism().map_or(1, usize::from);
        let variable = |name| std::env::var(name).ok()?.parse::<usize>().ok();
        match variable("RAYON_NUM_THREADS") {
            Some(0) => by_default(),
            Some(threads) => threads,
            // The old name, of which zero never meant anything.
            None => variable("RAYON_RS_NUM_CPUS")
                .filter(|&threads| threads > 0)
                .unwrap_or_else(by_default),
        }
    }

    /// What each thread is called, by its number.
    #[must_use]
    pub fn thread_name<F>(mut self, closure: F) -> Self
    where
        F: FnMut(usize) -> String + 'static,
    {
        self.thread_name = Some(Box::new(closure));
        self
    }

    /// How many threads; zero means what `RAYON_NUM_THREADS` says, or one per processor.
    #[must_use]
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.num_threads = num_threads;
        self
    }

    /// Makes the calling thread one of the pool's, with number 0. It works for the pool only while it
    /// waits for something in it, or yields.
    #[must_use]
    pub fn use_current_thread(mut self) -> Self {
        self.use_current_thread = true;
        self
    }

    /// What to do with a panic that nobody waits for. Without a handler the process ends.
    #[must_use]
    pub fn panic_handler<H>(mut self, panic_handler: H) -> Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.panic_handler = Some(Box::new(panic_handler));
        self
    }

    /// The stack size of the threads, in bytes.
    #[must_use]
    pub fn stack_size(mut self, stack_size: usize) -> Self {
        self.stack_size = Some(stack_size);
        self
    }

    /// Has no effect: a wish that rayon keeps for old programs. `scope_fifo` and `spawn_fifo` do it.
    #[deprecated(note = "use `scope_fifo` and `spawn_fifo` for similar effect")]
    #[must_use]
    pub fn breadth_first(self) -> Self {
        self
    }

    /// Called on each thread before it does anything else, with its number.
    #[must_use]
    pub fn start_handler<H>(mut self, start_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.start_handler = Some(Box::new(start_handler));
        self
    }

    /// Called on each thread when it has nothing left to do, with its number.
    #[must_use]
    pub fn exit_handler<H>(mut self, exit_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.exit_handler = Some(Box::new(exit_handler));
        self
    }
}

impl<S> fmt::Debug for ThreadPoolBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPoolBuilder")
            .field("num_threads", &self.num_threads)
            .field("use_current_thread", &self.use_current_thread)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}
