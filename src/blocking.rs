//! Calls that may never return, such as reads from a network mount whose server is gone: each runs on
//! a thread of its own, and its caller waits until a deadline at most.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The most calls that run at once, those that never return among them.
pub const MAX_CALLS: usize = 3;

/// Runs calls with a bound on how many threads they may hold.
#[derive(Debug, Clone, Default)]
pub struct BlockingCalls {
    running: Arc<AtomicUsize>,
}

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum NoResult {
    /// It has not returned by its deadline. Its thread is left alone.
    #[error("it took longer than {} s", .0.as_secs())]
    Late(Duration),
    /// So many calls before it have not returned. It was not made.
    #[error("{0} calls before it are still blocked")]
    TooMany(usize),
    /// Its thread could not be started, or panicked.
    #[error("{0}")]
    Thread(io::Error),
}

/// One call that runs.
struct Running(Arc<AtomicUsize>);

impl BlockingCalls {
    /// Makes a call, and waits for its result until the deadline.
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
            // The caller may have given up.
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

/// Makes one call outside of a runtime, and waits for its result until the deadline.
///
/// # Errors
/// See [`NoResult`].
pub fn run_alone<T: Send + 'static>(
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

    const AT_ONCE: Duration = Duration::from_millis(1);
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn calls_that_never_return_are_bounded_and_free_their_places_when_they_do() {
        let calls = BlockingCalls::default();
        let mut blocking = Vec::new();
        for _ in 0..MAX_CALLS {
            let (release, blocked) = mpsc::channel::<()>();
            let late = calls.run(AT_ONCE, move || blocked.recv()).await;
            assert!(matches!(late, Err(NoResult::Late(AT_ONCE))), "{late:?}");
            blocking.push(release);
        }
        let refused = calls.run(PATIENCE, || 1).await;
        assert!(matches!(refused, Err(NoResult::TooMany(MAX_CALLS))), "{refused:?}");
        blocking.pop();
        while calls.running.load(Ordering::Acquire) == MAX_CALLS {
            tokio::task::yield_now().await;
        }
        assert_eq!(calls.run(PATIENCE, || 1).await.unwrap(), 1);
        assert_eq!(
            calls.run(PATIENCE, || 2).await.unwrap(),
            2,
            "a call that returned holds no place"
        );
    }

    #[test]
    fn call_outside_of_a_runtime_has_a_deadline_too() {
        assert_eq!(run_alone(PATIENCE, || 1).unwrap(), 1);
        let (_release, blocked) = mpsc::channel::<()>();
        let late = run_alone(AT_ONCE, move || blocked.recv());
        assert!(matches!(late, Err(NoResult::Late(AT_ONCE))), "{late:?}");
    }
}
