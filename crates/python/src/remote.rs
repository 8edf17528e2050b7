//! A Loxley server from Python: asking it, and serving it. Requests and answers are JSON here;
//! `loxley.Client` makes futures of them.
//!
//! A result that is too large for the journal is written to the server in pieces, beside it; what the
//! task returns then is a reference to it.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use loxley_agent::{Agent, AgentOptions, Call, FunctionError, Functions, Stopper};
use loxley_api::{Access, EventKind, JobRequest, RESULT_INLINE_MAX, TaskEnd, TaskFilter};
use loxley_client::{Client, ClientError, Events, access_path};
use loxley_model::{JobId, TaskId};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

/// How often a wait looks whether somebody pressed Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(100);

/// A connection to a server. All methods wait without the interpreter's lock, and for Ctrl-C.
#[pyclass(module = "loxley._core", frozen)]
pub(crate) struct ServerClient {
    runtime: Runtime,
    client: Client,
    news: Arc<News>,
}

/// What was heard of the server and not looked at yet.
#[derive(Default)]
struct News {
    heard: Mutex<Heard>,
    more: Condvar,
}

#[derive(Default)]
struct Heard {
    /// Tasks and jobs that are over.
    tasks: Vec<u64>,
    jobs: Vec<u64>,
    /// Others may be over too.
    missed: bool,
    listens: bool,
}

/// How a task ended: its number, its state, what it returned, why it failed, and what was said of that.
type Ended<'py> = (
    u64,
    &'static str,
    Option<Bound<'py, PyBytes>>,
    Option<String>,
    Option<String>,
);

#[pymethods]
impl ServerClient {
    #[new]
    #[pyo3(signature = (access=None))]
    fn new(access: Option<PathBuf>) -> PyResult<Self> {
        let runtime = runtime()?;
        let client = Client::new(&read_access(access)?).map_err(refusal)?;
        Ok(Self {
            runtime,
            client,
            news: Arc::default(),
        })
    }

    /// Hears from now on of every task and job that ends.
    fn listen(&self, py: Python<'_>) -> PyResult<()> {
        if self.news.heard().listens {
            return Ok(());
        }
        let mut events = self.client.ends_from_now_on();
        self.block(py, events.connect())?.map_err(refusal)?;
        self.news.heard().listens = true;
        self.runtime.spawn(hear(events, Arc::clone(&self.news)));
        Ok(())
    }

    /// Waits no longer than `seconds` for something to end. Returns the tasks and the jobs that did, and
    /// whether others may have of which nobody told.
    fn wait_for_ends(&self, py: Python<'_>, seconds: f64) -> (Vec<u64>, Vec<u64>, bool) {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        py.detach(|| {
            let nothing = |heard: &mut Heard| {
                heard.tasks.is_empty() && heard.jobs.is_empty() && !heard.missed
            };
            let heard = self.news.heard();
            let waited = self.news.more.wait_timeout_while(heard, limit, nothing);
            let (mut heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let tasks = std::mem::take(&mut heard.tasks);
            let jobs = std::mem::take(&mut heard.jobs);
            (tasks, jobs, std::mem::take(&mut heard.missed))
        })
    }

    /// Lets whoever waits for ends look around.
    fn wake(&self) {
        self.news.tell(|heard| heard.missed = true);
    }

    /// As if the server had told of the ends of these tasks and jobs.
    fn hear_of(&self, tasks: Vec<u64>, jobs: Vec<u64>) {
        self.news.tell(|heard| {
            heard.tasks.extend(tasks);
            heard.jobs.extend(jobs);
        });
    }

    /// How tasks ended, at most 1,000; those that are not over are left out, and maybe some more.
    /// Results that are kept in files of their own are brought along.
    fn ends<'py>(&self, py: Python<'py>, tasks: Vec<u64>) -> PyResult<Vec<Ended<'py>>> {
        let tasks: Vec<TaskId> = tasks.into_iter().map(TaskId).collect();
        let ends = self.block(py, self.client.ends(&tasks))?.map_err(refusal)?;
        let show = |end: TaskEnd| {
            let last = end.last.unwrap_or_default();
            let result = end.result.map(|result| PyBytes::new(py, &result.0));
            let state = end.state.name();
            (end.id.0, state, result, last.failure, last.message)
        };
        Ok(ends.into_iter().map(show).collect())
    }

    /// Where the server is.
    #[getter]
    fn url(&self) -> &str {
        self.client.url()
    }

    /// Submits a job.
    fn submit(&self, py: Python<'_>, job: &str) -> PyResult<String> {
        let job: JobRequest =
            serde_json::from_str(job).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.ask(py, self.client.submit(&job))
    }

    /// A job.
    fn job(&self, py: Python<'_>, job: u64) -> PyResult<String> {
        self.ask(py, self.client.job(JobId(job)))
    }

    /// Waits no longer than `seconds` for the end of a job; None when it is not over by then.
    fn wait_job(&self, py: Python<'_>, job: u64, seconds: f64) -> PyResult<Option<String>> {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        let wait = self.client.wait_job(JobId(job));
        let wait = async { tokio::time::timeout(limit, wait).await.ok() };
        match self.block(py, wait)? {
            None => Ok(None),
            Some(answer) => Ok(Some(shown(&answer.map_err(refusal)?)?)),
        }
    }

    /// Tasks of a job from this id on, at most `limit`, and where to go on.
    fn tasks(&self, py: Python<'_>, job: u64, from: u64, limit: u32) -> PyResult<String> {
        let filter = TaskFilter {
            from: Some(from),
            limit: Some(limit),
            ..TaskFilter::default()
        };
        let answer = self.block(py, self.client.tasks(JobId(job), &filter))?;
        shown(&answer.map_err(refusal)?)
    }

    /// A task.
    fn task(&self, py: Python<'_>, task: u64) -> PyResult<String> {
        self.ask(py, self.client.task(TaskId(task)))
    }

    /// What a task returned.
    fn result<'py>(&self, py: Python<'py>, task: u64) -> PyResult<Bound<'py, PyBytes>> {
        let answer = self.block(py, self.client.result(TaskId(task)))?;
        Ok(PyBytes::new(py, &answer.map_err(refusal)?))
    }

    /// Cancels a task.
    fn cancel_task(&self, py: Python<'_>, task: u64) -> PyResult<String> {
        self.ask(py, self.client.cancel_task(TaskId(task)))
    }

    /// Why a task is where it is.
    fn explain(&self, py: Python<'_>, task: u64) -> PyResult<String> {
        self.ask(py, self.client.explain(TaskId(task)))
    }

    /// All agents.
    fn agents(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, self.client.agents())
    }

    /// The server itself.
    fn server(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, self.client.server())
    }

    /// What is wrong with the fleet.
    fn health(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, self.client.health())
    }
}

impl ServerClient {
    fn ask<T: Serialize + Send>(
        &self,
        py: Python<'_>,
        question: impl Future<Output = Result<T, ClientError>> + Send,
    ) -> PyResult<String> {
        shown(&self.block(py, question)?.map_err(refusal)?)
    }

    fn block<T: Send>(
        &self,
        py: Python<'_>,
        question: impl Future<Output = T> + Send,
    ) -> PyResult<T> {
        let mut question = Box::pin(question);
        loop {
            let answer = py.detach(|| {
                let limited = async { tokio::time::timeout(LOOK_UP, question.as_mut()).await };
                self.runtime.block_on(limited)
            });
            match answer {
                Ok(answer) => return Ok(answer),
                Err(_) => py.check_signals()?,
            }
        }
    }
}

impl News {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut self.heard());
        self.more.notify_all();
    }
}

/// Notes what the server tells, for as long as there is somebody to look at it.
async fn hear(mut events: Events, news: Arc<News>) {
    loop {
        match events.next().await {
            Ok(event) => match event.kind {
                EventKind::TaskEnded { task, .. } => news.tell(|heard| heard.tasks.push(task.0)),
                EventKind::JobEnded { job, .. } => news.tell(|heard| heard.jobs.push(job.0)),
                _ => news.tell(|heard| heard.missed = true),
            },
            // Whoever waits looks by itself now and then.
            Err(_) => tokio::time::sleep(Duration::from_secs(5)).await,
        }
    }
}

/// An agent that serves a server until it is stopped.
#[pyclass(module = "loxley._core", frozen)]
pub(crate) struct ServingAgent {
    stopper: Stopper,
    thread: Mutex<Option<JoinHandle<Result<(), String>>>>,
}

#[pymethods]
impl ServingAgent {
    /// Begins to serve. Each function gets bytes and returns a call that is under way: its `poll`
    /// waits a while for whether it succeeded, bytes, and whether it would fail again; its `stop`
    /// ends it.
    #[new]
    #[pyo3(signature = (access, name, skills, slots, speed, cpu, memory, resources, zone, holds, functions))]
    #[expect(clippy::too_many_arguments, reason = "one Python function calls it")]
    fn new(
        access: Option<PathBuf>,
        name: &str,
        skills: Vec<String>,
        slots: u32,
        speed: f64,
        cpu: f64,
        memory: u64,
        resources: Vec<(String, u64)>,
        zone: Option<String>,
        holds: Vec<String>,
        functions: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let access = read_access(access)?;
        let keeper = Arc::new(Keeper {
            runtime: Some(runtime()?),
            client: Client::new(&access).map_err(refusal)?,
        });
        let mut offered = Functions::default();
        for (name, function) in functions {
            let function = Arc::new(function.unbind());
            let name: String = name.extract()?;
            let keeper = Arc::clone(&keeper);
            offered = offered.with(&name, move |call| {
                let result = run(&function, call)?;
                keeper.keep(call, result)
            });
        }
        let options = AgentOptions {
            skills,
            slots,
            speed,
            cpu_milli: (cpu * 1000.0) as u64,
            memory_bytes: memory,
            resources,
            zone,
            holds,
            functions: offered,
            ..AgentOptions::new(access, name)
        };
        let agent = Agent::new(options);
        let stopper = agent.stopper();
        let thread = thread::Builder::new()
            .name("loxley-agent".into())
            .spawn(move || agent.run_blocking().map_err(|error| in_words(&error)))?;
        Ok(Self {
            stopper,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Takes nothing new and finishes what it has.
    fn drain(&self) {
        self.stopper.drain();
    }

    /// Ends now; what it had goes to others.
    fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits no longer than `seconds`. Says whether it has ended; raises if the server refused it.
    fn join(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let end = Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|span| std::time::Instant::now().checked_add(span));
        loop {
            let mut slot = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(thread) = slot.take_if(|thread| thread.is_finished()) else {
                let is_over = slot.is_none();
                drop(slot);
                if is_over || end.is_some_and(|end| std::time::Instant::now() >= end) {
                    return Ok(is_over);
                }
                py.check_signals()?;
                py.detach(|| thread::sleep(LOOK_UP / 5));
                continue;
            };
            drop(slot);
            return match thread.join() {
                Ok(Ok(())) => Ok(true),
                Ok(Err(message)) => Err(PyConnectionError::new_err(message)),
                Err(_) => Err(PyRuntimeError::new_err(
                    "the agent found its own books to be wrong",
                )),
            };
        }
    }
}

/// Keeps what is too large for the journal beside it.
struct Keeper {
    /// There until the end.
    runtime: Option<Runtime>,
    client: Client,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The last one to let go of it is the agent's own runtime, which may not wait for another.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Keeper {
    /// The result, or a reference to where it is kept.
    fn keep(&self, call: &Call<'_>, result: Vec<u8>) -> Result<Vec<u8>, FunctionError> {
        let Some(runtime) = self
            .runtime
            .as_ref()
            .filter(|_| result.len() > RESULT_INLINE_MAX)
        else {
            return Ok(result);
        };
        let (len, result) = (result.len(), result.into());
        let goes_on = || !call.is_cancelled();
        let write = self
            .client
            .write_result(TaskId(call.task), &result, goes_on);
        match runtime.block_on(write) {
            Ok(reference) => Ok(reference.to_bytes()),
            Err(error) => {
                let why = in_words(&error);
                let message = format!("a result of {len} bytes could not be kept: {why}");
                Err(FunctionError::new(message))
            }
        }
    }
}

/// Calls a Python function for a task, until it answers or nobody wants the answer any more.
fn run(function: &Py<PyAny>, call: &mut Call<'_>) -> Result<Vec<u8>, FunctionError> {
    let answer = Python::attach(|py| {
        let under_way = function.call1(py, (PyBytes::new(py, call.input),))?;
        loop {
            let answer = under_way.call_method1(py, "poll", (LOOK_UP.as_secs_f64(),))?;
            if let Some(answer) = answer.extract::<Option<(bool, Vec<u8>, bool)>>(py)? {
                return Ok(answer);
            }
            if call.is_cancelled() {
                under_way.call_method0(py, "stop")?;
                return Ok((false, b"it was stopped".to_vec(), false));
            }
        }
    });
    match answer {
        Ok((true, result, _)) => Ok(result),
        Ok((false, message, permanent)) => Err(FunctionError {
            message: String::from_utf8_lossy(&message).into_owned(),
            permanent,
        }),
        Err::<_, PyErr>(error) => Err(FunctionError::new(error.to_string())),
    }
}

fn runtime() -> PyResult<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("loxley-client")
        .enable_all()
        .build()?)
}

fn read_access(path: Option<PathBuf>) -> PyResult<Access> {
    let path = match path {
        Some(path) => path,
        None => access_path().map_err(|error| PyValueError::new_err(error.to_string()))?,
    };
    Access::read(&path).map_err(|error| PyConnectionError::new_err(in_words(&error)))
}

fn shown(answer: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(answer).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// What the server refused, or why it was not reached.
fn refusal(error: ClientError) -> PyErr {
    let message = in_words(&error);
    match error {
        ClientError::Refused(_) if !error.is_passing() => PyRuntimeError::new_err(message),
        _ => PyConnectionError::new_err(message),
    }
}

/// An error with everything that led to it.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message.push_str(&format!(": {error}"));
        cause = error.source();
    }
    message
}
