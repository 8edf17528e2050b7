//! Where traces go: the server hands out the steps of tasks, whoever starts it may bring somebody who sends them on.

use std::fmt::Debug;

use crate::decider::Handle;

/// Sends the path of every task to a collector of traces. It can be switched while the server runs.
pub trait TraceExport: Debug + Send + Sync {
    /// A server begins to serve; one of several does so whenever it takes over. What is sent goes on from here.
    fn serve(&self, server: &Handle);

    /// Sends everything from now on there; nowhere, when nothing is said.
    ///
    /// # Errors
    /// What is wrong with it, in words. Then nothing changes.
    fn send_to(&self, server: &Handle, collector: Option<&str>) -> Result<(), String>;

    /// Where everything goes now.
    fn collector(&self) -> Option<String>;
}
