//! Heartbeats: how the gateways that share a Redis count each other, and notice that they have
//! different limits.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntGauge;
use redis::aio::ConnectionLike;
use redis::{FromRedisValue, ParsingError, RedisResult, Value};
use tokio::sync::watch;
use tracing::{info, warn};

use super::call::is_unknown;
use crate::base::clock;
use crate::limit::agreement::{Agreement, Change};
use crate::limit::membership::Membership;
use crate::policy::limits_hash::LimitsHash;

pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Time without a heartbeat after which a gateway is not counted, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;

/// Version of what the hash of the limits is made of. Gateways compare only hashes of the same one.
const HASH_VERSION: u32 = 2;

/// Script of the heartbeat, which counts the live gateways.
const ANNOUNCE: &str = include_str!("../../../lua/announce.lua");

/// SHA-1 of [`ANNOUNCE`], by which Redis runs it.
static ANNOUNCE_SHA: LazyLock<String> =
    LazyLock::new(|| redis::Script::new(ANNOUNCE).get_hash().to_string());

/// What this process knows of the gateways that share its Redis, and what they know of it.
#[derive(Debug, Default)]
pub struct Peers {
    /// Hash of the limits in force.
    limits: AtomicU64,
    /// That of the last heartbeat.
    announced: AtomicU64,
    membership: Mutex<Membership>,
    agreement: Mutex<Agreement>,
    is_leaving: watch::Sender<bool>,
    series: Option<PeerSeries>,
}

/// Prometheus series of the gateways that share a Redis.
#[derive(Debug, Clone)]
pub struct PeerSeries {
    /// Number of live gateways.
    pub gateways: IntGauge,
    /// Number of live gateways with other limits than this one.
    pub others: IntGauge,
}

/// Where and as whom a heartbeat is sent.
#[derive(Debug, Clone, Copy)]
pub struct Sender<'a> {
    /// Prefix of the keys in Redis.
    pub prefix: &'a str,
    pub process: u64,
}

/// Reply to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Live gateways.
    live: u32,
    /// Gateways that have left so far.
    left: u64,
    /// Live gateways that publish their limits.
    publishing: u32,
    /// Those with the limits of this one.
    same: u32,
    /// Hash of the limits that were compared.
    limits: u64,
}

/// What a heartbeat says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Alive,
    /// The gateway serves no new connections.
    Leave,
}

impl Peers {
    /// Knows only this gateway, before the first heartbeat.
    pub fn new(series: Option<PeerSeries>) -> Self {
        Self { series, ..Self::default() }
    }

    /// Sets the hash of the limits in force, which the next heartbeat publishes.
    pub fn set_limits(&self, limits: LimitsHash) {
        self.limits.store(limits.0, Ordering::Relaxed);
    }

    /// Number of live gateways, at least 1, as far as they were counted.
    pub fn gateways(&self) -> u32 {
        self.membership.lock().live()
    }

    /// Number of live gateways with other limits than this one.
    pub fn others(&self) -> u32 {
        self.agreement.lock().others()
    }

    /// Ends the heartbeats when `shutdown` is true: the gateway is not counted any more.
    pub async fn leave_at(&self, mut shutdown: watch::Receiver<bool>) {
        // An error means that the process ends.
        let _ = shutdown.wait_for(|is_down| *is_down).await;
        self.is_leaving.send_replace(true);
    }

    /// Completes when heartbeats end.
    pub async fn until_leaving(&self) {
        // An error means that the sender is gone, which this has.
        let _ = self.is_leaving.subscribe().wait_for(|is_leaving| *is_leaving).await;
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// Any error of the server or the connection.
    pub async fn announce(
        &self,
        redis: &mut impl ConnectionLike,
        sender: Sender<'_>,
    ) -> RedisResult<Counts> {
        let limits = self.limits.load(Ordering::Relaxed);
        let before = self.announced.load(Ordering::Relaxed);
        let [live, left, publishing, same] =
            run(redis, sender, (limits, before), Message::Alive).await?;
        self.announced.store(limits, Ordering::Relaxed);
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (live, publishing, same) = (count(live), count(publishing), count(same));
        Ok(Counts { live, left, publishing, same, limits })
    }

    /// Says that this gateway leaves.
    ///
    /// # Errors
    /// Any error of the server or the connection.
    pub async fn announce_leave(
        &self,
        redis: &mut impl ConnectionLike,
        sender: Sender<'_>,
    ) -> RedisResult<()> {
        let limits = self.announced.load(Ordering::Relaxed);
        run(redis, sender, (limits, limits), Message::Leave).await.map(drop)
    }

    /// Records the reply to a heartbeat, and logs if gateways have had other limits for some time.
    pub fn counted(&self, counts: Counts) {
        let now = clock::now();
        let Counts { live, left, publishing, same, limits } = counts;
        self.membership.lock().observe(live, left, now);
        let others = publishing.saturating_sub(same);
        if let Some(PeerSeries { gateways, others: with_others }) = &self.series {
            gateways.set(i64::from(live));
            with_others.set(i64::from(others));
        }
        let limits = LimitsHash(limits);
        match self.agreement.lock().observe(others, now) {
            Some(Change::Differ) => warn!(
                others,
                gateways = live,
                %limits,
                "gateways that share this Redis have other limits than this one"
            ),
            Some(Change::Agree) => {
                info!(gateways = live, %limits, "all gateways that share this Redis have the same limits again");
            }
            None => {}
        }
    }
}

/// Key of the set of gateways. Every version of the gateway has this one.
pub(super) fn key(prefix: &str) -> String {
    format!("{prefix}gateways")
}

/// Another key, in the same slot of a Redis Cluster: its hash tag is [`key`], as the prefix has no
/// braces.
fn beside(prefix: &str, name: &str) -> String {
    format!("{prefix}{{{}}}:{name}", key(prefix))
}

/// Runs the script, with the hash of the limits now and in the heartbeat before. If Redis does not
/// have it, sends its source.
async fn run(
    redis: &mut impl ConnectionLike,
    Sender { prefix, process }: Sender<'_>,
    (limits, before): (u64, u64),
    message: Message,
) -> RedisResult<[u64; 4]> {
    let all = format!("limits:{HASH_VERSION}");
    let of = |hash| beside(prefix, &format!("{all}:{}", LimitsHash(hash)));
    let mut keys = vec![key(prefix), beside(prefix, "left"), beside(prefix, &all), of(limits)];
    if before != limits {
        keys.push(of(before));
    }
    let command = |name: &str, script: &str| {
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len()).arg(&keys);
        command.arg(format!("{process:016x}")).arg(TIMEOUT_MS);
        match message {
            Message::Alive => {}
            Message::Leave => {
                command.arg("leave");
            }
        }
        command
    };
    match command("EVALSHA", &ANNOUNCE_SHA).query_async(redis).await {
        Err(error) if is_unknown(&error) => command("EVAL", ANNOUNCE).query_async(redis).await,
        reply => reply,
    }
    .map(|Reply(counts)| counts)
}

/// Four numbers. Those below zero, which only other data than that of gateways can cause, count as
/// zero.
struct Reply([u64; 4]);

impl FromRedisValue for Reply {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let numbers = <[i64; 4]>::from_redis_value(value)?;
        Ok(Self(numbers.map(|number| u64::try_from(number).unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::fixture::RedisServer;

    const PREFIX: &str = "t:";

    /// Sends a heartbeat of a process. Returns the live gateways, and those with other limits.
    async fn beat(
        redis: &mut redis::aio::MultiplexedConnection,
        peers: &Peers,
        process: u64,
    ) -> (u32, u32) {
        let counts = peers.announce(redis, Sender { prefix: PREFIX, process }).await.unwrap();
        peers.counted(counts);
        (peers.gateways(), peers.others())
    }

    fn with_limits(limits: u64) -> Peers {
        let peers = Peers::default();
        peers.set_limits(LimitsHash(limits));
        peers
    }

    #[tokio::test]
    async fn gateways_count_those_with_other_limits_and_miss_those_that_leave() {
        let server = RedisServer::start(&[]);
        let mut redis = server.client().get_multiplexed_async_connection().await.unwrap();
        let [first, second, third] = [1, 1, 2].map(with_limits);
        assert_eq!(beat(&mut redis, &first, 1).await, (1, 0));
        assert_eq!(beat(&mut redis, &second, 2).await, (2, 0));
        assert_eq!(beat(&mut redis, &third, 3).await, (3, 2));
        assert_eq!(beat(&mut redis, &first, 1).await, (3, 1));
        // A reload of one, at once the same for all.
        third.set_limits(LimitsHash(1));
        assert_eq!(beat(&mut redis, &third, 3).await, (3, 0));
        assert_eq!(beat(&mut redis, &first, 1).await, (3, 0));
        // Again other limits, and then it leaves.
        third.set_limits(LimitsHash(3));
        assert_eq!(beat(&mut redis, &third, 3).await, (3, 2));
        assert_eq!(beat(&mut redis, &second, 2).await, (3, 1));
        for _ in 0..2 {
            third.announce_leave(&mut redis, Sender { prefix: PREFIX, process: 3 }).await.unwrap();
        }
        assert_eq!(beat(&mut redis, &first, 1).await, (2, 0));
        assert_eq!(beat(&mut redis, &second, 2).await, (2, 0));
    }

    #[tokio::test]
    async fn older_gateways_are_counted_and_have_no_other_limits() {
        let server = RedisServer::start(&[]);
        let mut redis = server.client().get_multiplexed_async_connection().await.unwrap();
        let time: (u64, u64) = redis::cmd("TIME").query_async(&mut redis).await.unwrap();
        let mut older = redis::cmd("ZADD");
        older.arg(key(PREFIX)).arg(time.0 * 1_000).arg("00000000000000aa");
        older.query_async::<()>(&mut redis).await.unwrap();
        assert_eq!(beat(&mut redis, &with_limits(1), 1).await, (2, 0));
        // The older script counts the same set.
        let mut all = redis::cmd("ZCARD");
        assert_eq!(all.arg(key(PREFIX)).query_async::<u32>(&mut redis).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn keys_are_in_one_slot_and_begin_with_the_prefix() {
        use crate::store::redis::cluster::slots::slot_of_key;

        let server = RedisServer::start(&[]);
        let mut redis = server.client().get_multiplexed_async_connection().await.unwrap();
        let peers = with_limits(1);
        beat(&mut redis, &peers, 1).await;
        peers.set_limits(LimitsHash(2));
        beat(&mut redis, &peers, 1).await;
        peers.announce_leave(&mut redis, Sender { prefix: PREFIX, process: 1 }).await.unwrap();
        let mut keys = redis::cmd("KEYS");
        let keys: Vec<String> = keys.arg("*").query_async(&mut redis).await.unwrap();
        assert!(!keys.is_empty());
        for key in keys {
            assert!(key.starts_with(PREFIX), "{key}");
            assert_eq!(slot_of_key(key.as_bytes()), slot_of_key(b"t:gateways"), "{key}");
            let mut left = redis::cmd("PTTL");
            let left: i64 = left.arg(&key).query_async(&mut redis).await.unwrap();
            assert!(left > 0, "{key} expires");
        }
    }
}
