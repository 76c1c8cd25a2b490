//! [`Flights`]: the results of checks that take time, kept for a while, each made once at a time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::base::clock;
use crate::base::hash::Digest;

/// Maximum number of requests that wait for checks of one kind.
const MAX_WAITING: usize = 1_024;

/// Number of parts of the results that are kept, each with its share of the bytes. Few, so that a
/// large result has a place in one.
const SHARDS: usize = 8;

/// Results by a digest of what was checked, at most a number of them, and of bytes. At most a
/// number of checks run at the same time; those of one digest share one check.
pub(super) struct Flights<T> {
    kept: Cache<Digest, Timed<T>, Size<T>>,
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

/// How many results are kept.
pub(super) struct Kept<T> {
    pub(super) most: usize,
    /// How many bytes they take together.
    pub(super) most_bytes: u64,
    /// How many bytes one takes, beside its own size.
    pub(super) bytes: fn(&T) -> u64,
}

/// The size of a result.
struct Size<T>(fn(&T) -> u64);

/// The turn of one check, until it has ended.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    /// Whether the request has waited for it, or for the check of another one: then what was known
    /// before may have changed.
    pub(super) has_waited: bool,
}

/// Too many checks run or wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

impl<T> Clone for Size<T> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<T> Weighter<Digest, Timed<T>> for Size<T> {
    fn weight(&self, _: &Digest, timed: &Timed<T>) -> u64 {
        let own = size_of::<Digest>() + size_of::<Timed<T>>();
        (own as u64).saturating_add((self.0)(&timed.value))
    }
}

impl<T: Clone> Flights<T> {
    /// Keeps results, and runs at most `max_running` checks.
    pub(super) fn new(kept: &Kept<T>, max_running: usize, patience: Duration) -> Self {
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(kept.most).weight_capacity(kept.most_bytes).shards(SHARDS);
        let size = Size(kept.bytes);
        let cache = match options.build() {
            Err(_) => Cache::with_weighter(kept.most, kept.most_bytes, size),
            Ok(options) => Cache::with_options(
                options,
                size,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
        };
        Self {
            kept: cache,
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

    /// Makes a check, or waits for one of the same digest. `check` holds its turn as long as it
    /// works, also if the request has given up.
    ///
    /// # Errors
    /// Too many checks run or wait.
    pub(super) async fn join<F>(
        &self,
        digest: &Digest,
        check: impl FnOnce(Turn) -> F,
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
                    let turn = Turn { has_waited: true, ..self.turn().await? };
                    let timed = check(turn).await;
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
    pub(super) async fn alone<F>(&self, check: impl FnOnce(Turn) -> F) -> Result<T, Busy>
    where
        F: Future<Output = Timed<T>>,
    {
        let _waiting = self.waiting.try_acquire().map_err(|_| Busy)?;
        Ok(check(self.turn().await?).await.value)
    }

    async fn turn(&self) -> Result<Turn, Busy> {
        if let Ok(permit) = Arc::clone(&self.running).try_acquire_owned() {
            return Ok(Turn { _permit: permit, has_waited: false });
        }
        let permit = timeout(self.patience, Arc::clone(&self.running).acquire_owned()).await;
        let permit = permit.map_err(|_| Busy)?.map_err(|_| Busy)?;
        Ok(Turn { _permit: permit, has_waited: true })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Keeps at most 100 results, of 100 bytes each.
    fn flights(max_running: usize, patience: Duration) -> Flights<u32> {
        let kept = Kept { most: 100, most_bytes: 10_000, bytes: |_| 10 };
        Flights::new(&kept, max_running, patience)
    }

    fn kept<T>(value: T) -> Timed<T> {
        Timed { value, until: u64::MAX }
    }

    #[tokio::test]
    async fn requests_with_the_same_digest_share_one_check() {
        let flights = flights(2, PATIENCE);
        let calls = AtomicUsize::new(0);
        let check = |_turn| async {
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
        let flights = flights(2, PATIENCE);
        for value in 0..3 {
            let until = clock::now();
            let joined = flights.join(&[1; 32], |_| async { Timed { value, until } }).await;
            assert_eq!((joined, flights.kept(&[1; 32])), (Ok(value), None));
        }
    }

    #[tokio::test]
    async fn checks_whose_results_are_not_kept_run_beside_each_other() {
        let flights = flights(10, PATIENCE);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let check = |turn| async {
            let _turn = turn;
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
        let flights = flights(1, PATIENCE);
        let first = flights.join(&[1; 32], |_turn| std::future::pending());
        assert!(timeout(Duration::from_millis(20), first).await.is_err());
        assert_eq!(flights.join(&[1; 32], |_| async { kept(8) }).await, Ok(8));
    }

    #[tokio::test]
    async fn number_of_checks_at_a_time_is_bounded() {
        let flights = Arc::new(flights(1, Duration::from_millis(50)));
        let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let first = tokio::spawn({
            let (flights, begun, end) =
                (Arc::clone(&flights), Arc::clone(&begun), Arc::clone(&end));
            async move {
                let check = |turn| async {
                    let _turn = turn;
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

    #[tokio::test]
    async fn bytes_of_results_are_bounded() {
        let kept =
            Kept { most: 1_000, most_bytes: 1 << 20, bytes: |text: &Vec<u8>| text.len() as u64 };
        let flights = Flights::new(&kept, 2, PATIENCE);
        let digest = |at: u16| std::array::from_fn(|byte| at.to_be_bytes()[byte % 2]);
        for at in 0..1_000 {
            let check = |_| async { Timed { value: vec![7; 64 << 10], until: u64::MAX } };
            assert!(flights.join(&digest(at), check).await.is_ok());
        }
        let bytes = |at| flights.kept(&digest(at)).map_or(0, |text| text.len());
        let all: usize = (0..1_000).map(bytes).sum();
        assert!((1..=1 << 20).contains(&all), "{all}");
    }

    /// What waited in the queue, or for a check whose result is not kept, is asked again.
    #[tokio::test]
    async fn turn_says_whether_the_request_has_waited() {
        let flights = flights(1, PATIENCE);
        let check = |turn: Turn| async move {
            // The whole of it, until the end.
            let turn = turn;
            tokio::task::yield_now().await;
            Timed { value: u32::from(turn.has_waited), until: 0 }
        };
        let same = join_all((0..3).map(|_| flights.join(&[1; 32], check))).await;
        assert_eq!(same, [Ok(0), Ok(1), Ok(1)]);
        let digests = [[2; 32], [3; 32], [4; 32]];
        let others = join_all(digests.iter().map(|digest| flights.join(digest, check))).await;
        assert_eq!(others, [Ok(0), Ok(1), Ok(1)]);
    }
}
