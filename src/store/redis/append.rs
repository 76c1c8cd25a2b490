//! Records at the end of a stream, for people and programs that read them there. Nobody waits for
//! them: they are handed over, and whoever keeps the connection sends them. Each is sent once at
//! most; what cannot be sent is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::sync::{Mutex, mpsc};

/// How many records wait at once: what comes in some seconds, or in a long outage little by little.
/// About 300 KB.
const MAX_WAITING: usize = 1_024;

/// How often it is looked whether all are sent.
const LOOK: Duration = Duration::from_millis(5);

/// What a stream takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    /// Names and values, at least one.
    pub fields: Vec<(&'static str, String)>,
    /// About how many records the stream keeps, this one included; the oldest go.
    pub keep: u64,
}

/// Where records are handed over.
#[derive(Debug)]
pub struct Appender {
    queue: mpsc::Sender<StreamEntry>,
    left: Arc<Left>,
}

/// The other end, for whoever keeps the connection.
#[derive(Debug)]
pub struct Appending {
    queue: Mutex<mpsc::Receiver<StreamEntry>>,
    left: Arc<Left>,
}

/// A record on its way. It is lost where nobody says that it is there.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    pub(super) entry: StreamEntry,
    left: &'a Left,
    has_arrived: bool,
}

/// What is not there yet, and what never will be.
#[derive(Debug)]
struct Left {
    count: AtomicUsize,
    dropped: IntCounter,
}

/// Both ends. What is lost is counted in `dropped`.
pub fn channel(dropped: IntCounter) -> (Appender, Appending) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let left = Arc::new(Left { count: AtomicUsize::new(0), dropped });
    let appending = Appending { queue: Mutex::new(receiver), left: Arc::clone(&left) };
    (Appender { queue: sender, left }, appending)
}

impl Appender {
    /// Hands over a record, which is lost where too many wait. Never waits itself.
    pub fn append(&self, entry: StreamEntry) {
        self.left.count.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(entry).is_err() {
            self.left.count.fetch_sub(1, Ordering::Relaxed);
            self.lost(1);
        }
    }

    /// Counts records that there were too many of to be handed over.
    pub fn lost(&self, count: u64) {
        self.left.dropped.inc_by(count);
    }

    /// Waits until all records are sent or lost, no longer than `patience`: the process ends.
    pub fn flush(&self, patience: Duration) {
        let looks = patience.as_micros() / LOOK.as_micros().max(1);
        for _ in 0..looks {
            if self.left.count.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::park_timeout(LOOK);
        }
    }
}

impl Appending {
    /// The next record; waits for one.
    pub(super) async fn next(&self) -> Option<Sending<'_>> {
        let entry = self.queue.lock().await.recv().await?;
        Some(Sending { entry, left: &self.left, has_arrived: false })
    }
}

impl Sending<'_> {
    /// Notes that the stream has it.
    pub(super) fn arrived(mut self) {
        self.has_arrived = true;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.left.count.fetch_sub(1, Ordering::Relaxed);
        if !self.has_arrived {
            self.left.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: usize) -> StreamEntry {
        StreamEntry { fields: vec![("a", value.to_string())], keep: 100 }
    }

    #[tokio::test]
    async fn every_record_is_sent_or_counted_as_lost() {
        let dropped = IntCounter::new("a", "b").unwrap();
        let (appender, appending) = channel(dropped.clone());
        for value in 0..MAX_WAITING + 3 {
            appender.append(entry(value));
        }
        assert_eq!(dropped.get(), 3);
        assert_eq!(appending.left.count.load(Ordering::Relaxed), MAX_WAITING);
        let first = appending.next().await.unwrap();
        assert_eq!(first.entry, entry(0));
        first.arrived();
        assert_eq!(dropped.get(), 3);
        // A connection that goes takes what is on its way with it.
        drop(appending.next().await);
        assert_eq!(dropped.get(), 4);
        for _ in 2..MAX_WAITING {
            appending.next().await.unwrap().arrived();
        }
        appender.flush(Duration::ZERO);
        assert_eq!((appending.left.count.load(Ordering::Relaxed), dropped.get()), (0, 4));
        // And whoever waits for the next may be dropped without a loss.
        assert!(tokio::time::timeout(Duration::ZERO, appending.next()).await.is_err());
        appender.append(entry(9));
        assert_eq!(appending.next().await.unwrap().entry, entry(9));
    }
}
