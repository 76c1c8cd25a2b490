//! Adaptive rates: what part of their rates rules with `adapt` have now, agreed with the gateways
//! that share Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use redis::{FromRedisValue, Value};
use tracing::{info, warn};

use super::{CurrentSnapshot, Snapshot};
use crate::base::background::Background;
use crate::base::clock;
use crate::limit::adapt::{AdaptRule, Answer, Controller, PERIOD_US, WHOLE};
use crate::limit::charge::Charge;
use crate::policy::Policy;
use crate::policy::redis::Redis;
use crate::store::redis::link::records::{Records, RecordsError};

/// Source of `lua/rates.lua`.
const SOURCE: &str = include_str!("../../lua/rates.lua");

/// Name of the keys in Redis before the name of a rule, after the prefix. The part in braces is
/// their hash tag in a cluster.
const KEYS: &str = "{rates}:";

/// The adaptive rates of one policy.
#[derive(Debug, Default)]
pub struct Rates {
    all: Vec<Arc<Rate>>,
    /// The index of the upstream of each of them.
    upstreams: Vec<u32>,
    /// By the index of a rule, which of them it has.
    of_rule: Vec<Option<usize>>,
}

/// The adaptive rate of one rule. A reload keeps it.
#[derive(Debug)]
struct Rate {
    rule: Arc<str>,
    /// Name of the upstream.
    upstream: Arc<str>,
    setting: AdaptRule,
    controller: Mutex<Controller>,
    /// The lowest share of all gateways, in thousandths.
    agreed: AtomicU16,
}

impl Rates {
    /// The rates of the rules of a policy that adapt. Those that `before` has are kept.
    pub fn of(policy: &Policy, before: Option<&Self>) -> Self {
        let mut rates = Self::default();
        for rule in &policy.rules {
            let setting = rule.adapt.filter(|_| rule.enabled);
            let upstream =
                setting.and_then(|setting| policy.upstreams.get(setting.upstream as usize));
            let (Some(setting), Some(upstream)) = (setting, upstream) else {
                rates.of_rule.push(None);
                continue;
            };
            let known = before.into_iter().flat_map(|before| &before.all);
            let mut known = known.filter(|rate| {
                // A reload may give the upstream another index.
                let of_its_upstream = AdaptRule { upstream: rate.setting.upstream, ..setting };
                rate.rule == rule.name
                    && rate.upstream == upstream.name
                    && rate.setting == of_its_upstream
            });
            let new = || {
                Arc::new(Rate {
                    rule: Arc::clone(&rule.name),
                    upstream: Arc::clone(&upstream.name),
                    setting,
                    controller: Mutex::new(Controller::new(clock::now())),
                    agreed: AtomicU16::new(WHOLE),
                })
            };
            rates.of_rule.push(Some(rates.all.len()));
            rates.all.push(known.next().map_or_else(new, Arc::clone));
            rates.upstreams.push(setting.upstream);
        }
        rates
    }

    /// Whether no rule adapts.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The share of its rate that a rule has now, in thousandths; `None` if it does not adapt.
    pub fn share(&self, rule: u32) -> Option<u16> {
        let index = (*self.of_rule.get(rule as usize)?)?;
        Some(self.all.get(index)?.agreed.load(Ordering::Relaxed))
    }

    /// The names of rules that adapt, and their shares.
    pub fn shares(&self) -> impl Iterator<Item = (&str, u16)> {
        self.all.iter().map(|rate| (&*rate.rule, rate.agreed.load(Ordering::Relaxed)))
    }

    /// Gives charges the rates that their rules have now.
    pub fn apply(&self, charges: &mut [Charge]) {
        for charge in charges {
            if let Some(share) = self.share(charge.rule).filter(|share| *share < WHOLE) {
                charge.limit = charge.limit.slowed(share / 10);
            }
        }
    }

    /// Counts a request that was sent to the upstream with this index at `started`.
    pub fn note(&self, upstream: u32, started: u64, answer: Answer) {
        let of_upstream = self.all.iter().zip(&self.upstreams).filter(|(_, of)| **of == upstream);
        for (rate, _) in of_upstream {
            rate.controller.lock().add(&rate.setting, started, answer);
        }
    }

    /// Decides on the shares that this gateway finds right at `now`.
    fn decide(&self, snapshot: &Snapshot, now: u64) -> Vec<u16> {
        let decide = |(rate, upstream): (&Arc<Rate>, &u32)| {
            let load = snapshot.loads.get(*upstream as usize);
            let in_flight = load.map_or(0, |load| load.in_flight());
            rate.controller.lock().decide(&rate.setting, in_flight, now)
        };
        self.all.iter().zip(&self.upstreams).map(decide).collect()
    }

    fn agree(&self, shares: &[u16]) {
        for (rate, share) in self.all.iter().zip(shares) {
            rate.agreed.store(*share, Ordering::Relaxed);
        }
    }
}

/// Decides on adaptive rates once a second, and agrees on them with the other gateways.
pub struct RateSync {
    current: Arc<CurrentSnapshot>,
    /// `None`: there is no Redis.
    records: Option<Records>,
}

impl RateSync {
    /// Creates the service, by the Redis of the file.
    pub fn new(current: Arc<CurrentSnapshot>, redis: Option<&Redis>) -> Self {
        Self { current, records: redis.cloned().map(Records::new) }
    }

    async fn run(&self) {
        let mut is_failing = false;
        loop {
            tokio::time::sleep(Duration::from_micros(PERIOD_US)).await;
            let snapshot = self.current.load_full();
            let rates = &snapshot.rates;
            if rates.is_empty() {
                continue;
            }
            let own = rates.decide(&snapshot, clock::now());
            let agreed = match &self.records {
                None => Ok(own.clone()),
                Some(records) => exchange(records, rates, &own).await,
            };
            match &agreed {
                Ok(_) if is_failing => info!("adaptive rates are agreed again"),
                Err(cause) if !is_failing => {
                    warn!(%cause, "adaptive rates are not agreed: this gateway has its own");
                }
                _ => {}
            }
            is_failing = agreed.is_err();
            rates.agree(agreed.as_ref().unwrap_or(&own));
        }
    }
}

/// States the shares of this gateway, and returns the lowest of all.
async fn exchange(records: &Records, rates: &Rates, own: &[u16]) -> Result<Vec<u16>, RecordsError> {
    let mut command = redis::cmd("EVAL");
    command.arg(SOURCE).arg(own.len());
    for rate in &rates.all {
        command.arg(records.key(&format!("{KEYS}{}", rate.rule)));
    }
    command.arg("").arg(own);
    let reply = records.call_all(&[command]).await?.pop();
    let reply: Value = reply.unwrap_or_else(|| Err(RecordsError::malformed()))?;
    let agreed = Vec::<u16>::from_redis_value(reply).map_err(|_| RecordsError::malformed())?;
    if agreed.len() != own.len() {
        return Err(RecordsError::malformed());
    }
    // Never above what this gateway finds right, whatever is in Redis.
    Ok(agreed.into_iter().zip(own).map(|(agreed, own)| agreed.min(*own)).collect())
}

impl Background for RateSync {
    /// Runs until the process ends: rates apply to requests of connections that drain.
    fn start(&self, _shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(self.run())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::fixture::RedisServer;

    #[test]
    fn lowest_share_that_a_gateway_has_stated_lately_counts() {
        let server = RedisServer::start(&[]);
        let mut redis = server.client().get_connection().unwrap();
        let mut state = |now: u64, shares: [u16; 2]| -> Vec<u16> {
            let mut command = redis::cmd("EVAL");
            command.arg(SOURCE).arg(2).arg("{rates}:a").arg("{rates}:b").arg(now).arg(&shares[..]);
            command.query(&mut redis).unwrap()
        };
        assert_eq!(state(100, [1_000, 1_000]), [1_000, 1_000]);
        assert_eq!(state(100, [500, 1_000]), [500, 1_000], "another gateway");
        assert_eq!(state(101, [1_000, 1_000]), [500, 1_000]);
        assert_eq!(state(102, [1_000, 700]), [500, 700], "the epoch before");
        assert_eq!(state(103, [520, 1_000]), [500, 700]);
        assert_eq!(state(104, [1_000, 1_000]), [520, 700]);
        assert_eq!(state(106, [1_000, 1_000]), [1_000, 1_000]);
    }
}
