//! A trial of a Redis server: connects as the gateway does, and checks that its user has every
//! right that the gateway needs. Leaves nothing but a probe's bucket, which expires within seconds.

use redis::Cmd;
use thiserror::Error;
use tokio::time::timeout;

use super::cluster::topology;
use super::connect::{self, STEP_TIMEOUT};
use crate::base::blocking::BlockingCalls;
use crate::limit::Limit;
use crate::limit::kind::ScriptCommand;
use crate::net::address::HostPort;
use crate::net::lookup::system_resolver;
use crate::policy::redis::{Address, Redis};
use crate::store::redis::call;
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::durability::{self, Durability};
use crate::store::redis::keys::probe_number;

/// Member and key that no gateway uses.
const NOT_USED: &str = "~check";

/// Why a server cannot be used. Contains no secret.
#[derive(Debug, Error)]
pub enum TrialError {
    /// The connection, the login or the first `PING` failed.
    #[error("{0}")]
    Connection(String),
    /// A check of limits would fail.
    #[error("a check of limits would fail: {0}")]
    Check(String),
    /// The user may not run these commands.
    #[error("its user may not run {}", .0.join(", "))]
    Rights(Vec<&'static str>),
}

impl TrialError {
    /// The same error with the master of a cluster that it concerns.
    fn at(self, master: &HostPort) -> Self {
        match self {
            // The text of a connection has its address.
            Self::Connection(_) | Self::Rights(_) => self,
            Self::Check(text) => Self::Check(format!("{master}: {text}")),
        }
    }

    /// What to do.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Connection(_) => {
                "check address, TLS and login; the gateway starts without Redis and decides locally"
            }
            Self::Check(_) | Self::Rights(_) => {
                "docs/redis.md lists the rights that the gateway needs"
            }
        }
    }
}

/// What the gateway uses a server for, besides token buckets.
#[derive(Debug, Clone, Copy)]
pub struct Uses<'a> {
    /// The limits of the rules, some of which need commands of their own.
    pub limits: &'a [Limit],
    /// What needs commands besides.
    pub parts: &'a [Part],
}

/// A part of the gateway that needs commands of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The audit writes to a stream.
    Streams,
    /// A rule is a quota, whose usage is kept.
    Quotas,
    /// It has the key store.
    Keys,
    /// A rule bans clients.
    Bans,
}

/// Tries out the server of `settings`. Returns whether the server keeps what it stores; `None` if
/// it does not say.
///
/// # Errors
/// See [`TrialError`].
pub async fn run(settings: &Redis, uses: Uses<'_>) -> Result<Option<Durability>, TrialError> {
    let Address::Cluster(nodes) = &settings.address else {
        return run_at(settings, uses, 0).await;
    };
    let asked = topology(settings, nodes, &system_resolver(), &BlockingCalls::default()).await;
    let topology = asked.map_err(|error| TrialError::Connection(error.to_string()))?;
    let mut found = None;
    for master in &topology.masters {
        let at = Redis { address: Address::Server(master.clone()), ..settings.clone() };
        let has = |slot| topology.master_of(slot) == Some(master);
        let number = probe_number(0, has).unwrap_or(0);
        let durability = run_at(&at, uses, number).await.map_err(|error| error.at(master))?;
        found = found.or(durability);
    }
    Ok(found)
}

/// Tries out one server. `number` is that of the bucket of probes.
async fn run_at(
    settings: &Redis,
    uses: Uses<'_>,
    number: u64,
) -> Result<Option<Durability>, TrialError> {
    let reads = BlockingCalls::default();
    let connected = connect::connect(settings, &system_resolver(), &reads).await;
    let fresh = connected.map_err(|error| TrialError::Connection(error.to_string()))?;
    let mut redis = fresh.connection.redis.clone();
    let prefix = &settings.prefix;
    match timeout(STEP_TIMEOUT, call::probe(&mut redis, prefix, number)).await {
        Ok(Ok(Ok(_))) => {}
        Ok(Ok(Err(error))) => return Err(TrialError::Check(error.to_string())),
        Ok(Err(error)) => {
            let text = fresh.secrets.describe(&error) + classify(&error).help();
            return Err(TrialError::Check(text));
        }
        Err(_) => return Err(TrialError::Check("it took longer than a second".to_owned())),
    }
    let mut missing = Vec::new();
    for (name, command) in harmless(prefix, uses) {
        let reply = timeout(STEP_TIMEOUT, command.query_async::<redis::Value>(&mut redis)).await;
        if matches!(reply, Ok(Err(error)) if classify(&error) == ErrorClass::NoPermission) {
            missing.push(name);
        }
    }
    if !missing.is_empty() {
        return Err(TrialError::Rights(missing));
    }
    Ok(timeout(STEP_TIMEOUT, durability::ask(&mut redis)).await.ok().flatten())
}

/// The commands of heartbeats, and of these uses, in a form that leaves nothing.
fn harmless(prefix: &str, uses: Uses<'_>) -> Vec<(&'static str, Cmd)> {
    let gateways = format!("{prefix}gateways");
    let command = |name: &'static str, arguments: &[&str]| {
        let mut command = redis::cmd(name);
        command.arg(arguments);
        (name, command)
    };
    let not_used = format!("{prefix}{NOT_USED}");
    let mut commands = vec![
        command("ZADD", &[&gateways, "XX", "0", NOT_USED]),
        command("ZREMRANGEBYSCORE", &[&gateways, "-inf", "(-inf"]),
        command("ZCARD", &[&gateways]),
    ];
    let has = |part| uses.parts.contains(&part);
    if has(Part::Quotas) {
        commands.push(command("HGET", &[&not_used, "a"]));
        commands.push(command("HSET", &[&not_used, "a", "b"]));
        // An error, since it is no number.
        commands.push(command("HINCRBY", &[&not_used, "a", "1"]));
        commands.push(command("HSCAN", &[&not_used, "0"]));
        commands.push(command("HDEL", &[&not_used, "a"]));
    }
    if has(Part::Bans) {
        commands.push(command("HGET", &[&not_used, "a"]));
        commands.push(command("HSET", &[&not_used, "a", "b"]));
        // An error, since it is no number.
        commands.push(command("HINCRBY", &[&not_used, "a", "1"]));
        commands.push(command("HDEL", &[&not_used, "a"]));
        commands.push(command("ZREM", &[&gateways, NOT_USED]));
        commands.push(command("ZRANGEBYLEX", &[&gateways, "(a", "(a"]));
    }
    if has(Part::Keys) {
        commands.push(command("HGET", &[&not_used, "a"]));
        commands.push(command("HMGET", &[&not_used, "a"]));
        commands.push(command("HSET", &[&not_used, "a", "b"]));
        commands.push(command("HDEL", &[&not_used, "a"]));
        commands.push(command("ZREM", &[&gateways, NOT_USED]));
        commands.push(command("ZRANGEBYLEX", &[&gateways, "(a", "(a"]));
        commands.push(command("XRANGE", &[&not_used, "-", "+", "COUNT", "1"]));
        commands.push(command("XREVRANGE", &[&not_used, "+", "-", "COUNT", "1"]));
    }
    commands.push(command("PEXPIRE", &[&not_used, "1"]));
    let mut tried = Vec::new();
    commands.retain(|(name, _)| {
        let is_first = !tried.contains(name);
        tried.push(name);
        is_first
    });
    let mut own: Vec<ScriptCommand> =
        uses.limits.iter().flat_map(Limit::script_commands).copied().collect();
    own.sort_unstable();
    own.dedup();
    for (name, arguments) in own {
        commands.push(command(name, &[&[&*not_used][..], arguments].concat()));
    }
    if has(Part::Streams) || has(Part::Keys) {
        commands.push(command("XADD", &[&not_used, "NOMKSTREAM", "*", "a", "b"]));
    }
    commands
}
