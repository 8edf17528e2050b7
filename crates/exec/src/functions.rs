//! Functions that an agent program offers by name: bytes in, bytes out.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a function failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionError {
    /// For people.
    pub message: String,
    /// Whether it would fail again: then it is not tried again.
    pub permanent: bool,
}

impl FunctionError {
    /// It may work the next time.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            permanent: false,
        }
    }

    /// It would fail again.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            permanent: true,
        }
    }
}

impl<E: std::error::Error> From<E> for FunctionError {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// One call of a function.
pub struct Call<'a> {
    /// What it gets: the input of the task, and the entry after it.
    pub input: &'a [u8],
    /// The task.
    pub task: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Where an earlier attempt left off.
    pub checkpoint: Option<&'a [u8]>,
    pub(crate) cancelled: &'a AtomicBool,
    pub(crate) save: &'a mut dyn FnMut(Vec<u8>),
}

impl Call<'_> {
    /// Whether nobody wants the answer any more. A long function should ask now and then: a thread
    /// cannot be killed.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Saves where the function is. When its agent is lost, the next attempt gets it.
    pub fn save_checkpoint(&mut self, state: Vec<u8>) {
        (self.save)(state);
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("task", &self.task)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

type Function = dyn Fn(&mut Call<'_>) -> Result<Vec<u8>, FunctionError> + Send + Sync;

/// The functions of an agent, by name.
///
/// ```
/// use loxley_exec::Functions;
///
/// let functions = Functions::default()
///     .with("reverse", |call| Ok(call.input.iter().rev().copied().collect()));
/// assert!(functions.names().any(|name| name == "reverse"));
/// ```
#[derive(Clone, Default)]
pub struct Functions {
    by_name: BTreeMap<String, Arc<Function>>,
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Functions {
    /// Adds a function, in place of an earlier one of the same name.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        function: impl Fn(&mut Call<'_>) -> Result<Vec<u8>, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.by_name.insert(name.to_owned(), Arc::new(function));
        self
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Calls a function. A panic is a failure like any other.
    pub(crate) fn call(&self, name: &str, call: &mut Call<'_>) -> Result<Vec<u8>, FunctionError> {
        let Some(function) = self.by_name.get(name) else {
            let message = format!("this agent has no function `{name}`");
            return Err(FunctionError::new(message));
        };
        match catch_unwind(AssertUnwindSafe(|| function(call))) {
            Ok(result) => result,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "no message".to_owned());
                Err(FunctionError::new(format!("panicked: {text}")))
            }
        }
    }
}
