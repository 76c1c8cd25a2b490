//! [`Flights`]: the results of checks that take time, kept for a while, each made once at a time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::base::clock;
use crate::base::hash::Digest;

/// Maximum number of requests that wait for checks of one kind.
const MAX_WAITING: usize = 1_024;

/// Results by a digest of what was checked, at most a number of them. At most a number of checks
/// run at the same time; those of one digest share one check.
pub(super) struct Flights<T> {
    kept: Cache<Digest, Timed<T>>,
    running: Arc<Semaphore>,
    waiting: Semaphore,
    /// How long a request waits for its turn, and for the check of another one.
    patience: Duration,
}

/// A result, and until when it is used, in microseconds of the monotonic clock.
#[derive(Debug, Clone)]
pub(super) struct Timed<T> {
    pub(super) value: T,
    pub(super) until: u64,
}

/// Too many checks run or wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

impl<T: Clone> Flights<T> {
    /// Keeps at most `max_kept` results, and runs at most `max_running` checks.
    pub(super) fn new(max_kept: usize, max_running: usize, patience: Duration) -> Self {
        Self {
            kept: Cache::new(max_kept),
            running: Arc::new(Semaphore::new(max_running)),
            waiting: Semaphore::new(MAX_WAITING),
            patience,
        }
    }

    /// The result that is kept for a digest.
    pub(super) fn kept(&self, digest: &Digest) -> Option<T> {
        let timed = self.kept.get(digest)?;
        (clock::now() < timed.until).then_some(timed.value)
    }

    /// Makes a check, or waits for one of the same digest. `check` holds its permit as long as it
    /// works, also if the request has given up.
    ///
    /// # Errors
    /// Too many checks run or wait.
    pub(super) async fn join<F>(
        &self,
        digest: &Digest,
        check: impl FnOnce(OwnedSemaphorePermit) -> F,
    ) -> Result<T, Busy>
    where
        F: Future<Output = Timed<T>>,
    {
        let _waiting = self.waiting.try_acquire().map_err(|_| Busy)?;
        loop {
            self.kept.remove_if(digest, |timed| timed.until <= clock::now());
            let mut joining = pin!(self.kept.get_value_or_guard_async(digest));
            let at_once = poll_immediate(joining.as_mut()).await;
            let has_waited = at_once.is_none();
            let joined = match at_once {
                Some(joined) => joined,
                None => timeout(self.patience, joining).await.map_err(|_| Busy)?,
            };
            match joined {
                Ok(timed) if clock::now() < timed.until => return Ok(timed.value),
                Ok(_) => {}
                // The check of another request had a result that is not kept, so that of this one
                // is not for others either: they need not wait for it.
                Err(guard) if has_waited => {
                    drop(guard);
                    let timed = check(self.turn().await?).await;
                    if clock::now() < timed.until {
                        self.kept.insert(*digest, timed.clone());
                    }
                    return Ok(timed.value);
                }
                Err(guard) => {
                    let timed = check(self.turn().await?).await;
                    if clock::now() < timed.until {
                        // An error means that it was removed meanwhile.
                        let _ = guard.insert(timed.clone());
                    }
                    return Ok(timed.value);
                }
            }
        }
    }

    /// Makes a check whose result is not kept.
    ///
    /// # Errors
    /// Too many checks run or wait.
    pub(super) async fn alone<F>(
        &self,
        check: impl FnOnce(OwnedSemaphorePermit) -> F,
    ) -> Result<T, Busy>
    where
        F: Future<Output = Timed<T>>,
    {
        let _waiting = self.waiting.try_acquire().map_err(|_| Busy)?;
        Ok(check(self.turn().await?).await.value)
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, Busy> {
        let turn = timeout(self.patience, Arc::clone(&self.running).acquire_owned()).await;
        turn.map_err(|_| Busy)?.map_err(|_| Busy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn kept<T>(value: T) -> Timed<T> {
        Timed { value, until: u64::MAX }
    }

    #[tokio::test]
    async fn requests_with_the_same_digest_share_one_check() {
        let flights = Flights::new(100, 2, PATIENCE);
        let calls = AtomicUsize::new(0);
        let check = |_permit| async {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            kept(7)
        };
        let all = join_all((0..50).map(|_| flights.join(&[1; 32], check))).await;
        assert!(all.iter().all(|value| *value == Ok(7)), "{all:?}");
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!((flights.kept(&[1; 32]), flights.kept(&[2; 32])), (Some(7), None));
    }

    #[tokio::test]
    async fn result_is_kept_until_its_time_only() {
        let flights = Flights::new(100, 2, PATIENCE);
        for value in 0..3 {
            let until = clock::now();
            let joined = flights.join(&[1; 32], |_| async { Timed { value, until } }).await;
            assert_eq!((joined, flights.kept(&[1; 32])), (Ok(value), None));
        }
    }

    #[tokio::test]
    async fn checks_whose_results_are_not_kept_run_beside_each_other() {
        let flights = Flights::new(100, 10, PATIENCE);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let check = |permit| async {
            let _permit = permit;
            most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            running.fetch_sub(1, Ordering::Relaxed);
            Timed { value: 7, until: 0 }
        };
        let all = join_all((0..50).map(|_| flights.join(&[1; 32], check))).await;
        assert!(all.iter().all(|value| *value == Ok(7)), "{all:?}");
        assert_eq!(most.load(Ordering::Relaxed), 10);
    }

    #[tokio::test]
    async fn check_goes_to_the_next_request_if_the_first_gives_up() {
        let flights = Flights::new(100, 1, PATIENCE);
        let first = flights.join(&[1; 32], |_permit| std::future::pending());
        assert!(timeout(Duration::from_millis(20), first).await.is_err());
        assert_eq!(flights.join(&[1; 32], |_| async { kept(8) }).await, Ok(8));
    }

    #[tokio::test]
    async fn number_of_checks_at_a_time_is_bounded() {
        let flights = Arc::new(Flights::new(100, 1, Duration::from_millis(50)));
        let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let first = tokio::spawn({
            let (flights, begun, end) =
                (Arc::clone(&flights), Arc::clone(&begun), Arc::clone(&end));
            async move {
                let check = |permit| async {
                    let _permit = permit;
                    begun.notify_one();
                    end.notified().await;
                    kept(1)
                };
                flights.join(&[1; 32], check).await
            }
        });
        begun.notified().await;
        assert_eq!(flights.join(&[2; 32], |_| async { kept(2) }).await, Err(Busy));
        assert_eq!(flights.alone(|_| async { kept(2) }).await, Err(Busy));
        end.notify_one();
        assert_eq!(first.await.unwrap(), Ok(1));
        assert_eq!(flights.join(&[2; 32], |_| async { kept(2) }).await, Ok(2));
    }
}
