//! Runs calls that may block forever, such as reads from a network mount whose server is
//! unreachable. Each call has its own thread; its caller waits until a deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum number of concurrent calls, including those that never return.
pub const MAX_CALLS: usize = 3;

/// Runs blocking calls on at most [`MAX_CALLS`] threads.
#[derive(Debug, Clone, Default)]
pub struct BlockingCalls {
    running: Arc<AtomicUsize>,
}

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum NoResult {
    /// The call did not return before this deadline. Its thread continues.
    #[error("it took longer than {} s", .0.as_secs_f64())]
    Late(Duration),
    /// The call was not made, because this many earlier calls are still blocked.
    #[error("{0} earlier calls are still blocked")]
    TooMany(usize),
    /// The thread could not be started, or it panicked.
    #[error("{0}")]
    Thread(io::Error),
}

/// A running call. Dropping it makes room for another.
struct Running(Arc<AtomicUsize>);

impl BlockingCalls {
    /// Runs `call` on a new thread and waits for its result until the deadline.
    ///
    /// # Errors
    /// See [`NoResult`].
    pub async fn run<T: Send + 'static>(
        &self,
        deadline: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let running = self.begin()?;
        let (sender, receiver) = oneshot::channel();
        start(move || {
            let result = call();
            drop(running);
            // The caller may have stopped waiting.
            let _ = sender.send(result);
        })?;
        match timeout(deadline, receiver).await {
            Ok(result) => result.map_err(|gone| NoResult::Thread(io::Error::other(gone))),
            Err(_) => Err(NoResult::Late(deadline)),
        }
    }

    fn begin(&self) -> Result<Running, NoResult> {
        let one_more = |count| (count < MAX_CALLS).then_some(count + 1);
        match self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Ok(Running(Arc::clone(&self.running))),
            Err(count) => Err(NoResult::TooMany(count)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs one call on a new thread and waits for its result until the deadline. Needs no async
/// runtime.
///
/// # Errors
/// See [`NoResult`].
pub fn run_sync<T: Send + 'static>(
    deadline: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoResult> {
    let (sender, receiver) = mpsc::sync_channel(1);
    start(move || {
        let _ = sender.send(call());
    })?;
    receiver.recv_timeout(deadline).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => NoResult::Late(deadline),
        mpsc::RecvTimeoutError::Disconnected => NoResult::Thread(io::Error::other(error)),
    })
}

fn start(call: impl FnOnce() + Send + 'static) -> Result<(), NoResult> {
    let thread = thread::Builder::new().name("blocking-call".to_owned()).spawn(call);
    thread.map(drop).map_err(NoResult::Thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn blocked_calls_are_limited_and_room_returns_when_one_ends() {
        let calls = BlockingCalls::default();
        let mut blocking = Vec::new();
        for _ in 0..MAX_CALLS {
            let (release, blocked) = mpsc::channel::<()>();
            let late = calls.run(SHORT, move || blocked.recv()).await;
            assert!(matches!(late, Err(NoResult::Late(SHORT))), "{late:?}");
            blocking.push(release);
        }
        let refused = calls.run(LONG, || 1).await;
        assert!(matches!(refused, Err(NoResult::TooMany(MAX_CALLS))), "{refused:?}");
        blocking.pop();
        while calls.running.load(Ordering::Acquire) == MAX_CALLS {
            tokio::task::yield_now().await;
        }
        assert_eq!(calls.run(LONG, || 1).await.unwrap(), 1);
        assert_eq!(
            calls.run(LONG, || 2).await.unwrap(),
            2,
            "a call that returned no longer counts"
        );
    }

    #[test]
    fn call_outside_of_a_runtime_has_a_deadline() {
        assert_eq!(run_sync(LONG, || 1).unwrap(), 1);
        let (_release, blocked) = mpsc::channel::<()>();
        let late = run_sync(SHORT, move || blocked.recv());
        assert!(matches!(late, Err(NoResult::Late(SHORT))), "{late:?}");
    }
}
