//! Tests that would hang fail instead.

use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Fails instead of hanging when something deadlocks.
pub(crate) fn within_a_minute<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = body();
        send.send(()).ok();
        result
    });
    match receive.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => match thread.join() {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        },
    }
}
