//! Topology of a cluster, from its nodes.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::connect::{self, NewConnection};
use super::error::ConnectError;
use crate::base::blocking::BlockingCalls;
use crate::net::address::HostPort;
use crate::net::lookup::Resolver;
use crate::policy::redis::{Address, Redis};
use crate::store::redis::class::ErrorClass;
use crate::store::redis::cluster::topology::Topology;

/// Nodes that are asked at once.
const ASKED_AT_ONCE: usize = 5;

/// Time that other nodes have to answer after the first one, so that one that lags behind does not
/// decide.
const SECOND_OPINIONS: Duration = Duration::from_millis(100);

/// A node's view of the cluster.
#[derive(Debug)]
struct View {
    topology: Topology,
    /// Whether the node serves its slots.
    is_ok: bool,
    /// Number of the latest change that it has heard of.
    epoch: u64,
}

/// Asks nodes for the topology, some at once. Of several answers, the latest counts.
///
/// # Errors
/// The last error, if no node has answered.
pub(in crate::store::redis) async fn topology(
    settings: &Redis,
    nodes: &[HostPort],
    resolver: &Resolver,
    reads: &BlockingCalls,
) -> Result<Topology, ConnectError> {
    let mut last = None;
    for some in nodes.chunks(ASKED_AT_ONCE) {
        let asked = some.iter().map(|node| ask(settings, node, resolver, reads));
        let mut answers: FuturesUnordered<_> = asked.collect();
        let mut best: Option<View> = None;
        loop {
            let next = answers.next();
            let answer = match &best {
                None => next.await,
                Some(_) => timeout(SECOND_OPINIONS, next).await.ok().flatten(),
            };
            match answer {
                None => break,
                Some(Err(error)) => last = Some(error),
                Some(Ok(view)) => {
                    let rank = |view: &View| (view.is_ok, view.epoch);
                    if best.as_ref().is_none_or(|best| rank(&view) > rank(best)) {
                        best = Some(view);
                    }
                }
            }
        }
        if let Some(best) = best {
            return Ok(best.topology);
        }
    }
    Err(last.unwrap_or_else(|| ConnectError::Silent { at: "(none)".to_owned(), step: "a cluster" }))
}

/// Adds what to do to the error of a server that is in no cluster.
fn with_help(error: ConnectError) -> ConnectError {
    match error {
        ConnectError::Refused { at, step, class, text }
            if text.contains("cluster support disabled") =>
        {
            let text = format!(
                "{text}; the server is not in cluster mode: use `redis://` in `redis.url`, or start it with \
                 `cluster-enabled yes`"
            );
            ConnectError::Refused { at, step, class, text }
        }
        other => other,
    }
}

async fn ask(
    settings: &Redis,
    node: &HostPort,
    resolver: &Resolver,
    reads: &BlockingCalls,
) -> Result<View, ConnectError> {
    let at = Redis { address: Address::Server(node.clone()), ..settings.clone() };
    let mut fresh = connect::connect(&at, resolver, reads).await?;
    let mut slots = redis::cmd("CLUSTER");
    let reply = fresh.call::<redis::Value>("CLUSTER SLOTS", slots.arg("SLOTS")).await;
    let reply = reply.map_err(with_help)?;
    let topology = Topology::read(&reply, node).map_err(|error| ConnectError::Refused {
        at: node.to_string(),
        step: "CLUSTER SLOTS",
        class: ErrorClass::Cluster,
        text: error.to_string(),
    })?;
    let mut info = redis::cmd("CLUSTER");
    let info: String = fresh.call("CLUSTER INFO", info.arg("INFO")).await?;
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
    };
    let is_ok = field("cluster_state") == Some("ok");
    let epoch = field("cluster_current_epoch").and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(View { topology, is_ok, epoch })
}

/// Connects to the server that has a key: in a cluster the master of its slot, otherwise the one
/// server.
pub(super) async fn connect_for(
    key: &str,
    settings: &Redis,
    resolver: &Resolver,
    reads: &BlockingCalls,
) -> Result<NewConnection, ConnectError> {
    let Address::Cluster(nodes) = &settings.address else {
        return connect::connect(settings, resolver, reads).await;
    };
    let topology = topology(settings, nodes, resolver, reads).await?;
    let slot = crate::store::redis::cluster::slots::slot_of_key(key.as_bytes());
    let master = topology.master_of(slot).ok_or(ConnectError::NoMaster { slot })?;
    let at = Redis { address: Address::Server(master.clone()), ..settings.clone() };
    connect::connect(&at, resolver, reads).await
}
