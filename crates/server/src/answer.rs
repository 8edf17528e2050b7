//! An answer of whatever type was asked for.
//!
//! What waits for an answer (a channel, a thread that may block, the future around it) would otherwise be compiled for
//! every question anew, some forty times, and looks at none of them.

use std::any::Any;

use tokio::task::{JoinError, spawn_blocking};

pub(crate) struct Answer(Box<dyn Any + Send>);

impl Answer {
    pub(crate) fn new<T: Send + 'static>(answer: T) -> Self {
        Self(Box::new(answer))
    }

    /// As the type with which it was made.
    pub(crate) fn open<T: 'static>(self) -> T {
        let answer = self.0.downcast();
        *answer.expect("the asker is told what was asked")
    }
}

/// Works on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let work: Box<dyn FnOnce() -> Answer + Send> = Box::new(move || Answer::new(work()));
    Ok(spawn_blocking(work).await?.open())
}
