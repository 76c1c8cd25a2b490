//! The answer: names are a contract, which `docs/own-limits.md` lists.

use serde::Serialize;

use crate::policy::Policy;
use crate::policy::client::{self, ClientKey, counted_address, counted_as};

/// The answer.
#[derive(Debug, Serialize)]
pub(in crate::gateway::own_limits) struct Limits<'a> {
    pub(super) client: Client<'a>,
    /// Whether any rule limits it.
    pub(super) limited: bool,
    /// Whether this gateway alone says so, for want of Redis or of leave to ask it.
    pub(super) approximate: bool,
    pub(super) rules: Vec<Told<'a>>,
    /// How many rules did not fit.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) left_out: usize,
}

/// Who asks.
#[derive(Debug, Serialize)]
pub(super) struct Client<'a> {
    /// `key`, `ip` or `unknown_key`.
    pub(super) kind: &'static str,
    /// The id of the key, or the address that is counted; none of an unknown key.
    pub(super) id: Option<String>,
    pub(super) plan: &'a str,
    /// The address or the network that rules count.
    pub(super) counted_as: Option<String>,
}

/// One rule; one that counts each route by itself, on one route.
#[derive(Debug, Serialize)]
pub(super) struct Told<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'a str>,
    pub(super) per: Vec<String>,
    /// What it counts; empty: everything, at one cost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) routes: Vec<Counted<'a>>,
    /// How many routes did not fit.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) more_routes: usize,
    #[serde(flatten)]
    pub(super) what: What,
}

/// A route, as a client may know it, and what a request costs there.
#[derive(Debug, Serialize)]
pub(super) struct Counted<'a> {
    pub(super) name: &'a str,
    pub(super) path: String,
    pub(super) cost: u64,
}

/// What the rule does to the client.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum What {
    Limits(Allowance),
    Exempts {
        /// Always true.
        exempt: bool,
    },
    DemandsKey {
        /// Always true.
        needs_key: bool,
    },
}

/// What it allows, and what is left of that.
#[derive(Debug, Serialize)]
pub(super) struct Allowance {
    /// The bucket's burst.
    pub(super) limit: u64,
    pub(super) rate: Option<String>,
    /// Seconds that an empty bucket takes to fill.
    pub(super) window_seconds: u64,
    /// Tokens of the cheapest request.
    pub(super) cost: u64,
    /// Whether others take from the same bucket.
    pub(super) shared: bool,
    /// What names the bucket and is not known before a request is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unknown: Vec<String>,
    /// What becomes of requests while Redis cannot be asked, where nothing is counted then: `allow`
    /// or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) without_redis: Option<&'static str>,
    #[serde(flatten)]
    pub(super) left: Option<Left>,
}

/// What is in the bucket.
#[derive(Debug, Serialize)]
pub(super) struct Left {
    /// Whole tokens.
    pub(super) remaining: u64,
    /// Seconds until the bucket is full.
    pub(super) reset_seconds: u64,
    /// Until a request of that cost can pass, where it cannot now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_ms: Option<u64>,
}

impl<'a> Client<'a> {
    pub(super) fn of(policy: &'a Policy, client: &client::Client) -> Self {
        let prefix = policy.clients.ipv6_prefix;
        let counted = client.ip.map(|ip| counted_as(counted_address(ip, prefix), prefix));
        let (kind, id) = match client.key {
            ClientKey::Known(key) => {
                ("key", policy.keys.get(key as usize).map(|key| key.id.to_string()))
            }
            ClientKey::Unknown(_) => ("unknown_key", None),
            ClientKey::Missing => ("ip", counted.clone()),
        };
        Self { kind, id, plan: policy.plan_name(client.plan), counted_as: counted }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
