//! Records for streams in Redis. Callers enqueue them and never wait; the supervisor of the
//! connection sends them. Each is sent at most once; those that cannot be sent are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::sync::{Mutex, mpsc};

/// Maximum number of waiting records, about 300 KB. Enough for some seconds, or for a long outage
/// with few records.
const MAX_WAITING: usize = 1_024;

/// Interval at which `flush` checks whether all records are sent.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A record to append to a stream in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    /// Key of the stream, after the prefix.
    pub stream: &'static str,
    /// Names and values, at least one.
    pub fields: Vec<(&'static str, String)>,
    /// Approximate number of records that the stream keeps, including this one.
    pub keep: u64,
}

/// Sending half: accepts records.
#[derive(Debug)]
pub struct Appender {
    queue: mpsc::Sender<StreamEntry>,
    left: Arc<Left>,
}

/// Receiving half, for the supervisor of the connection.
#[derive(Debug)]
pub struct Appending {
    queue: Mutex<mpsc::Receiver<StreamEntry>>,
    left: Arc<Left>,
}

/// A record that is being sent. Counts as lost when dropped, unless `arrived` was called.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    pub(super) entry: StreamEntry,
    left: &'a Left,
    has_arrived: bool,
}

/// Numbers of records that are not sent yet, and that are lost.
#[derive(Debug)]
struct Left {
    count: AtomicUsize,
    dropped: IntCounter,
}

/// Creates both halves. Lost records are counted in `dropped`.
pub fn channel(dropped: IntCounter) -> (Appender, Appending) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let left = Arc::new(Left { count: AtomicUsize::new(0), dropped });
    let appending = Appending { queue: Mutex::new(receiver), left: Arc::clone(&left) };
    (Appender { queue: sender, left }, appending)
}

impl Appender {
    /// Enqueues a record, which is lost if too many wait. Never waits.
    pub fn append(&self, entry: StreamEntry) {
        self.left.count.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(entry).is_err() {
            self.left.count.fetch_sub(1, Ordering::Relaxed);
            self.lost(1);
        }
    }

    /// Counts records that were lost before they could be enqueued.
    pub fn lost(&self, count: u64) {
        self.left.dropped.inc_by(count);
    }

    /// Waits until all records are sent or lost, at most for `timeout`. For the end of the process.
    pub fn flush(&self, timeout: Duration) {
        let polls = timeout.as_micros() / FLUSH_POLL_INTERVAL.as_micros().max(1);
        for _ in 0..polls {
            if self.left.count.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::park_timeout(FLUSH_POLL_INTERVAL);
        }
    }
}

impl Appending {
    /// Waits for the next record.
    pub(super) async fn next(&self) -> Option<Sending<'_>> {
        let entry = self.queue.lock().await.recv().await?;
        Some(Sending { entry, left: &self.left, has_arrived: false })
    }
}

impl Sending<'_> {
    /// Records that Redis has accepted it.
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
        StreamEntry { stream: "audit", fields: vec![("a", value.to_string())], keep: 100 }
    }

    #[tokio::test]
    async fn every_record_is_sent_or_counted_as_dropped() {
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
        // A record that is being sent is lost with its connection.
        drop(appending.next().await);
        assert_eq!(dropped.get(), 4);
        for _ in 2..MAX_WAITING {
            appending.next().await.unwrap().arrived();
        }
        appender.flush(Duration::ZERO);
        assert_eq!((appending.left.count.load(Ordering::Relaxed), dropped.get()), (0, 4));
        // Cancelling a wait for the next record loses none.
        assert!(tokio::time::timeout(Duration::ZERO, appending.next()).await.is_err());
        appender.append(entry(9));
        assert_eq!(appending.next().await.unwrap().entry, entry(9));
    }
}
