//! Limits on requests in flight in a Redis Cluster.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::chaos::HTTP2;
use super::counting::Counting;
use super::gateways::{RELEASED, assert_limit_of_20_holds, usable};
use super::{config, fill, hang, held};
use crate::cluster::wait_until_connected;
use crate::support::{Connection, Gateway, RedisCluster, eventually, sleep_for};

/// Time until the units of a dead gateway are free.
const LEASE: Duration = Duration::from_secs(15);

/// A cluster, an upstream, and gateways that share a limit of 20.
fn start<const N: usize>(more: &str) -> (RedisCluster, Counting, [Gateway; N]) {
    let (redis, upstream) = (RedisCluster::steady(0), Counting::start());
    let text = config(&upstream, &format!("{more}{}", redis.table()), "limit = 20");
    let gateways: [Gateway; N] = std::array::from_fn(|_| Gateway::start(&text));
    gateways.iter().for_each(wait_until_connected);
    (redis, upstream, gateways)
}

#[test]
fn limit_holds_over_three_gateways_of_a_cluster() {
    let (_redis, upstream, gateways) = start::<3>(HTTP2);
    assert_limit_of_20_holds(&gateways, &upstream, Duration::from_secs(3));
}

/// The slot of the limit moves while requests hold units.
#[test]
fn units_that_are_held_move_with_their_slot() {
    let (redis, upstream, [first, second]) = start::<2>("");
    let hanging: Vec<Connection> = (0..10).map(|_| hang(&second, &upstream)).collect();
    let owner = redis.masters().into_iter().find(|at| {
        let keys: Vec<String> = redis.nodes[*at].query(&["KEYS", "*:in-flight"]);
        !keys.is_empty()
    });
    let owner = owner.unwrap();
    redis.reshard(owner, (owner + 1) % 3, 5_461);
    let own = fill(&first, &upstream);
    assert_eq!((own.len(), upstream.peak()), (10, 20));
    // The units of these are free at the other gateway, which has to state so to the new master.
    drop(hanging);
    eventually("ten to be left", || (upstream.now() == 10).then_some(()));
    eventually("the second one to hold nothing", || (held(&second) == 0).then_some(()));
    assert_eq!(usable(&first, &upstream, 10, RELEASED), 10);
    drop(own);
}

#[test]
fn row_122_units_of_a_gateway_of_a_cluster_are_free_after_its_lease() {
    let (_redis, upstream, [first, second]) = start::<2>("");
    let hanging: Vec<Connection> = (0..10).map(|_| hang(&second, &upstream)).collect();
    let own = fill(&first, &upstream);
    assert_eq!((own.len(), upstream.peak()), (10, 20));
    drop(own);
    eventually("ten to be left", || (upstream.now() == 10).then_some(()));
    kill(Pid::from_raw(second.pid().try_into().unwrap()), Signal::SIGKILL).unwrap();
    eventually("its connections to be closed", || (upstream.now() == 0).then_some(()));
    let most = usable(&first, &upstream, 20, LEASE + Duration::from_secs(5));
    assert_eq!((most, upstream.peak()), (20, 20));
    drop(hanging);
}

/// The replica lacks the units that a gateway holds when it takes over: the gateway states them to
/// it.
#[test]
fn units_that_are_held_count_after_a_lossy_failover() {
    let mut redis = RedisCluster::start(1);
    let upstream = Counting::start();
    let breaker = "[redis.breaker]\nopen = \"100ms\"\nopen_max = \"200ms\"\nramp = [100]\n";
    let text = config(&upstream, &format!("{}{breaker}", redis.table()), "limit = 20");
    let [first, second]: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    [&first, &second].into_iter().for_each(wait_until_connected);
    assert_eq!(first.get("/").status, 200);
    let with_key = |redis: &RedisCluster| {
        redis.masters().into_iter().find(|at| {
            let keys: Vec<String> = redis.nodes[*at].query(&["KEYS", "*:in-flight"]);
            !keys.is_empty()
        })
    };
    let master = eventually("the bucket", || with_key(&redis));
    let replica = redis.replica_of(master);
    redis.nodes[replica].query::<String>(&["CONFIG", "SET", "masterauth", "wrong"]);
    redis.nodes[replica].query::<u64>(&["CLIENT", "KILL", "TYPE", "master"]);
    let hanging: Vec<Connection> = (0..10).map(|_| hang(&second, &upstream)).collect();
    redis.nodes[master].kill();
    eventually("the replica to take over", || redis.nodes[replica].is_master().then_some(()));
    let node = redis.nodes[replica].address.to_string();
    for gateway in [&first, &second] {
        gateway.wait_for_count("tollgate_redis_node_breaker_state", &[("node", &node)], 0);
    }
    // The statement of the second gateway may be a moment late; then there are more, never again.
    sleep_for(Duration::from_secs(2));
    let own = fill(&first, &upstream);
    assert_eq!((own.len(), upstream.peak()), (10, 20));
    drop((own, hanging));
}
