//! Clusters of two masters for tests, whose servers need not be in cluster mode.

use std::sync::Arc;
use std::sync::atomic::AtomicU16;

use super::{Carried, Member, Members, Nodes};
use crate::limit::charge::BucketId;
use crate::observe::metrics::Metrics;
use crate::policy::redis::{Address, Colocate, Redis};
use crate::store::debts::Debts;
use crate::store::held::Held;
use crate::store::redis::batch::{Batcher, Target};
use crate::store::redis::cluster::slots::SLOTS;
use crate::store::redis::fixture::{RedisServer, connected};
use crate::store::redis::keys::KeySpace;
use crate::store::redis::link::Link;
use crate::store::redis::node::Node;
use crate::store::rule::rule;

/// A cluster with these two masters, of which the first one has the even slots.
pub(crate) fn cluster(settings: &Redis, links: [Arc<Link>; 2]) -> Arc<Nodes> {
    let series = Metrics::new("test").unwrap().redis();
    let (debts, held) = (Arc::new(Debts::new(1_000)), Arc::new(Held::new(true)));
    let masters = links.map(|link| {
        let target = Target::server(link, "t:", Arc::clone(&debts), Arc::clone(&held));
        let batcher = Batcher::new(target, settings.timeout, series.calls.clone());
        Member { at: None, node: Arc::new(Node::over("master", batcher)), _task: None }
    });
    let owners = (0..SLOTS).map(|slot| AtomicU16::new(slot % 2)).collect();
    let members = Members { masters: masters.into(), owners };
    let keys = Arc::new(KeySpace::new("t:", None, Colocate::Off));
    let settings = Redis { address: Address::Cluster(Vec::new()), ..settings.clone() };
    Nodes::with(&settings, Carried { keys, debts, held, seen: None }, members, series)
}

/// A cluster with two servers as masters, of which the second one refuses all scripts.
pub(crate) async fn cluster_with_one_that_refuses() -> (Arc<Nodes>, RedisServer, RedisServer) {
    let (server, refusing) = (RedisServer::start(&[]), RedisServer::start(&[]));
    let links = [connected(&server.settings()).await, connected(&refusing.settings()).await];
    let nodes = cluster(&server.settings(), links);
    let mut connection = refusing.client().get_connection().unwrap();
    let refuse = ["SETUSER", "default", "-evalsha", "-eval"];
    redis::cmd("ACL").arg(&refuse).exec(&mut connection).unwrap();
    (nodes, server, refusing)
}

/// Whether the first master of [`cluster`] has a bucket.
pub(crate) fn is_of_first(nodes: &Nodes, bucket: BucketId) -> bool {
    nodes.slot_of(bucket, &rule()).is_multiple_of(2)
}
