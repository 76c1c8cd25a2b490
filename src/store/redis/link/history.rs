//! Reads streams in Redis for an operator, on a connection that no check uses: a long reply delays
//! no request. Pages are small, so that Redis itself is not busy for long either.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use super::cluster::connect_for;
use super::connect::NewConnection;
use super::error::ConnectError;
use super::watch::CallResult;
use crate::base::blocking::BlockingCalls;
use crate::net::lookup::Resolver;
use crate::policy::redis::{Address, Redis};
use crate::store::redis::class::ErrorClass;

/// Time limit of a search, with its connection attempt and the searches before it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of records in one reply.
const PAGE: usize = 500;

/// What the number of records in a reply is divided by if their reply was too large: most have
/// 300 bytes, those of an import up to 60 KB.
const DIVISOR: usize = 4;

/// Bytes of values in a reply that the next one is to have, about.
const PAGE_BYTES: usize = 256 << 10;

/// Maximum number of records that a search reads from one stream.
const MAX_RECORDS: usize = 20_000;

/// Searches streams.
pub struct History {
    settings: Redis,
    resolver: Resolver,
    /// Threads that read certificates.
    reads: BlockingCalls,
    turns: Turns,
}

/// Who searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Searcher {
    /// A caller that sees what is of all tenants.
    Operator,
    /// A caller that is limited to a tenant.
    Tenant,
}

/// Lets one search run at a time, and at most one of a tenant before the next of an operator.
#[derive(Debug, Default)]
struct Turns {
    running: Mutex<()>,
    /// Held by the one search of a tenant that runs or is next.
    of_tenant: Mutex<()>,
}

/// Held while a search runs.
struct Turn<'a> {
    _running: MutexGuard<'a, ()>,
    _of_tenant: Option<MutexGuard<'a, ()>>,
}

impl Turns {
    async fn take(&self, searcher: Searcher) -> Turn<'_> {
        let of_tenant = match searcher {
            Searcher::Operator => None,
            Searcher::Tenant => Some(self.of_tenant.lock().await),
        };
        Turn { _running: self.running.lock().await, _of_tenant: of_tenant }
    }
}

/// A record of a stream.
#[derive(Debug)]
pub struct Record {
    /// Index of its stream in the search.
    pub stream: usize,
    /// Names and values. Any client of Redis may have written them.
    pub fields: HashMap<Vec<u8>, Vec<u8>>,
}

/// Which records to read.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    pub searcher: Searcher,
    /// Keys of the streams, after the prefix.
    pub streams: &'a [&'static str],
    /// Time of the earliest record in milliseconds since 1970, by the clock of Redis.
    pub from_ms: u64,
    /// Time of the latest record.
    pub to_ms: u64,
}

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// There is no connection, or it broke.
    #[error("Redis cannot be reached: {0}")]
    Unreachable(String),
    /// The gateway's user must not read streams.
    #[error("the user of Redis lacks a right: {0}; it needs `+xrevrange`")]
    NoPermission(String),
    /// Redis is too slow.
    #[error("Redis did not answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// A reply to `XREVRANGE`: ids and fields.
type Page = Vec<(String, HashMap<Vec<u8>, Vec<u8>>)>;

impl History {
    /// Creates a reader of the Redis of `settings`. Does no I/O.
    pub(in crate::store::redis) fn new(settings: Redis, resolver: Resolver) -> Self {
        Self { settings, resolver, reads: BlockingCalls::default(), turns: Turns::default() }
    }

    /// Passes the records of each stream to `visit`, the latest first, until it breaks. Returns
    /// whether all records in the range were passed or `visit` ended the stream.
    ///
    /// # Errors
    /// See [`HistoryError`]. `visit` may have had some records before.
    pub async fn read(
        &self,
        range: Range<'_>,
        visit: impl FnMut(Record) -> ControlFlow<()>,
    ) -> Result<bool, HistoryError> {
        match timeout(TIMEOUT, self.search(range, visit)).await {
            Ok(Ok(is_complete)) => Ok(is_complete),
            Ok(Err(error)) => Err(HistoryError::from(error)),
            Err(_) => Err(HistoryError::Timeout),
        }
    }

    async fn search(
        &self,
        range: Range<'_>,
        mut visit: impl FnMut(Record) -> ControlFlow<()>,
    ) -> Result<bool, ConnectError> {
        let _turn = self.turns.take(range.searcher).await;
        let mut kept: Option<NewConnection> = None;
        let mut is_complete = true;
        for (stream, name) in range.streams.iter().enumerate() {
            let key = format!("{}{name}", self.settings.prefix);
            // In a cluster, another master may have the next stream.
            let is_cluster = matches!(self.settings.address, Address::Cluster(_));
            let mut fresh = match kept.take().filter(|_| !is_cluster) {
                Some(fresh) => fresh,
                None => self.connect(&key).await?,
            };
            let mut end = range.to_ms.to_string();
            let (mut left, mut most) = (MAX_RECORDS, PAGE);
            'pages: loop {
                let page = match page(&mut fresh, &key, (range.from_ms, &end), most).await {
                    Err(_) if most > 1 && fresh.is_reply_too_large() => {
                        most /= DIVISOR;
                        fresh = self.connect(&key).await?;
                        continue;
                    }
                    page => page?,
                };
                left = left.saturating_sub(page.len());
                let (is_last, next) =
                    (page.len() < most, page.last().and_then(|(id, _)| before(id)));
                most = next_length(&page, most);
                for (_, fields) in page {
                    if visit(Record { stream, fields }).is_break() {
                        break 'pages;
                    }
                }
                match next.filter(|_| !is_last) {
                    None => break,
                    Some(_) if left == 0 => {
                        is_complete = false;
                        break;
                    }
                    Some(next) => end = next,
                }
            }
            kept = Some(fresh);
        }
        Ok(is_complete)
    }

    async fn connect(&self, key: &str) -> Result<NewConnection, ConnectError> {
        connect_for(key, &self.settings, &self.resolver, &self.reads).await
    }
}

/// Reads the latest records up to the id `end`, at most `most`.
async fn page(
    fresh: &mut NewConnection,
    key: &str,
    (from_ms, end): (u64, &str),
    most: usize,
) -> Result<Page, ConnectError> {
    let mut command = redis::cmd("XREVRANGE");
    command.arg(key).arg(end).arg(from_ms).arg("COUNT").arg(most);
    let page = fresh.call("XREVRANGE", &command).await?;
    // Allows the next reply as many bytes as this one.
    fresh.connection.health.note(CallResult::Answered);
    Ok(page)
}

/// How many records the page after this one is to have, of at most `most`: at most twice as many.
fn next_length(page: &Page, most: usize) -> usize {
    let bytes = |fields: &HashMap<Vec<u8>, Vec<u8>>| fields.values().map(Vec::len).sum::<usize>();
    let bytes: usize = page.iter().map(|(_, fields)| bytes(fields)).sum();
    let fitting = PAGE_BYTES.saturating_mul(page.len()) / bytes.max(1);
    fitting.clamp(1, most.saturating_mul(2).min(PAGE))
}

/// The id before `id`: `7-2` after `7-3`. Servers before 6.2 have no exclusive ranges.
fn before(id: &str) -> Option<String> {
    let (ms, number) = id.split_once('-')?;
    let (ms, number): (u64, u64) = (ms.parse().ok()?, number.parse().ok()?);
    match (ms, number) {
        (0, 0) => None,
        (ms, 0) => Some(format!("{}-{}", ms - 1, u64::MAX)),
        (ms, number) => Some(format!("{ms}-{}", number - 1)),
    }
}

impl From<ConnectError> for HistoryError {
    fn from(error: ConnectError) -> Self {
        match &error {
            ConnectError::Refused { class: ErrorClass::NoPermission, .. } => {
                Self::NoPermission(error.to_string())
            }
            _ => Self::Unreachable(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::lookup::system_resolver;
    use crate::store::redis::fixture::RedisServer;

    /// However many searches of tenants wait.
    #[tokio::test]
    async fn operator_waits_for_one_search_of_a_tenant() {
        let (turns, order) = (Turns::default(), parking_lot::Mutex::new(Vec::new()));
        let search = async |searcher: Searcher| {
            let _turn = turns.take(searcher).await;
            order.lock().push(searcher);
            tokio::task::yield_now().await;
        };
        let [first, second, third] = [(); 3].map(|()| search(Searcher::Tenant));
        tokio::join!(first, second, third, search(Searcher::Operator), search(Searcher::Operator));
        let [tenant, operator] = [Searcher::Tenant, Searcher::Operator];
        assert_eq!(*order.lock(), [tenant, operator, operator, tenant, tenant]);
    }

    /// Records of imports name hundreds of clients each: a page of them is larger than a reply may
    /// be. Those before are small again.
    #[tokio::test]
    async fn pages_shrink_until_their_replies_are_small_enough_and_grow_again() {
        const SMALL: usize = 4_000;
        const LARGE: usize = 40;
        let server = RedisServer::start(&[]);
        let settings = server.settings();
        let mut client = server.client();
        let key = format!("{}audit", settings.prefix);
        let add = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'json', ARGV[2]) end";
        for (count, bytes) in [(SMALL, 300), (LARGE, 60_000)] {
            let mut command = redis::cmd("EVAL");
            command.arg(add).arg(1).arg(&key).arg(count).arg("x".repeat(bytes));
            command.query::<()>(&mut client).unwrap();
        }
        let history = History::new(settings, system_resolver());
        let range = Range {
            searcher: Searcher::Operator,
            streams: &["audit"],
            from_ms: 0,
            to_ms: u64::MAX,
        };
        let mut read = 0;
        let is_complete = history
            .read(range, |_| {
                read += 1;
                ControlFlow::Continue(())
            })
            .await
            .unwrap();
        assert_eq!((read, is_complete), (SMALL + LARGE, true));
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut client).unwrap();
        let (_, stats) = stats.split_once("cmdstat_xrevrange:calls=").unwrap();
        let calls: usize = stats.split(',').next().unwrap().parse().unwrap();
        assert!((10..40).contains(&calls), "{calls}");
    }

    #[test]
    fn length_of_a_page_follows_the_size_of_its_records() {
        let page = |count: usize, bytes: usize| -> Page {
            let fields = HashMap::from([(b"json".to_vec(), vec![b'x'; bytes])]);
            vec![("1-1".to_owned(), fields); count]
        };
        let table = [
            ((500, 300), 500, 500),
            ((7, 60_000), 7, 4),
            ((4, 60_000), 4, 4),
            ((4, 300), 4, 8),
            ((300, 300), 300, 500),
            ((1, 900_000), 1, 1),
            ((0, 0), 500, 1),
        ];
        for ((count, bytes), most, expected) in table {
            assert_eq!(next_length(&page(count, bytes), most), expected, "{count} {bytes}");
        }
    }

    #[test]
    fn id_before_an_id() {
        let table = [
            ("7-3", Some("7-2")),
            ("7-0", Some("6-18446744073709551615")),
            ("0-1", Some("0-0")),
            ("0-0", None),
            ("7", None),
            ("x-1", None),
        ];
        for (id, expected) in table {
            assert_eq!(before(id).as_deref(), expected, "{id}");
        }
    }
}
