//! Slots move from one master to another without a failure: limits stay exact.

use std::time::Duration;

use super::{LONG_TIMEOUT, add, allowed, config, send, send_until};
use crate::cluster::gateways;
use crate::shared::{TIMEOUT_OF_CALLS, decided_by};
use crate::support::{
    CpuWaits, Gateway, RedisCluster, StatusCounts, Stopwatch, eventually, inconclusive_if_stalled,
    within,
};

/// Number of clients with a limit of their own.
const CLIENTS: usize = 100;

/// Requests of each of them.
const EACH: usize = 30;

/// Limit on all clients.
const ALL: usize = 3_700;

/// Two limits of a client in one slot, and one of all in another.
fn rules() -> String {
    format!(
        "[rules.client]\nper = [\"key\"]\nrate = \"{EACH}/365d\"\n\
         [rules.client-year]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"100000/year\"\n\
         [rules.all]\nper = []\nkind = \"fixed_window\"\nlimit = \"{ALL}/year\"\n\
         [rules.late]\nper = [\"key\"]\nrate = \"100000/365d\"\n"
    )
}

/// Runs `fault` while three gateways are under load. Returns the responses until its end.
fn under_load(gateways: &[Gateway; 3], fault: impl FnOnce() + Send) -> StatusCounts {
    std::thread::scope(|scope| {
        let fault = scope.spawn(fault);
        send_until(gateways, 0..CLIENTS, || fault.is_finished())
    })
}

/// Each client gets its limit, and what its refused requests took of the limit of all is given
/// back. A local decision may grant a token that Redis grants again, or a check that Redis counted
/// may be refused: one token each.
fn assert_exact(redis: &RedisCluster, lanes: u16, fault: impl FnOnce() + Send) {
    let settings = format!("{LONG_TIMEOUT}lanes = {lanes}\n");
    let rules = rules();
    // The last clients have no limit that they reach but that of all.
    let gateways: [Gateway; 3] = gateways(&config(redis, &settings, &rules, CLIENTS + EACH));
    let (mut waits, watch) = (CpuWaits::now(), Stopwatch::start());
    let mut counts = under_load(&gateways, fault);
    waits.next_phase();
    let (local, in_redis) = (decided_by(&gateways, "local"), decided_by(&gateways, "redis"));
    eprintln!(
        "{counts:?} during the fault, {local} local, {in_redis} in Redis {:?}",
        watch.elapsed()
    );
    let left = CLIENTS * EACH - allowed(&counts);
    add(&mut counts, send(&gateways, 0..CLIENTS, left + 1_000));
    let local = usize::try_from(decided_by(&gateways, "local")).unwrap();
    assert!(allowed(&counts).abs_diff(CLIENTS * EACH) <= local, "{local} local: {counts:?}");
    waits.next_phase();
    let more = send(&gateways, CLIENTS..CLIENTS + EACH, ALL - CLIENTS * EACH + 200);
    let all = allowed(&counts) + allowed(&more);
    let local = decided_by(&gateways, "local");
    assert!(all.abs_diff(ALL) as u64 <= local, "{local} local: {counts:?}, then {more:?}");
    let in_redis = decided_by(&gateways, "redis");
    let what = format!("{local} local decisions, {in_redis} in Redis");
    // A stall of a second opens breakers, but no machine is an excuse for every fifth decision.
    assert!(4 * local <= in_redis, "{what}");
    if 20 * local > in_redis {
        inconclusive_if_stalled(&what, waits.stall_of_servers(), TIMEOUT_OF_CALLS);
    }
}

#[test]
fn resharding_keeps_limits_exact_with_lanes() {
    let redis = RedisCluster::steady(1);
    assert_exact(&redis, 64, || redis.reshard(0, 1, 4_000));
}

#[test]
fn resharding_keeps_limits_exact_without_lanes() {
    let redis = RedisCluster::steady(1);
    assert_exact(&redis, 0, || redis.reshard(0, 1, 4_000));
}

#[test]
fn graceful_failover_keeps_limits_exact() {
    let redis = RedisCluster::steady(1);
    let replica = redis.replica_of(0);
    assert_exact(&redis, 64, || {
        let node = &redis.nodes[replica];
        let has_failed_over = (0..4).any(|_| {
            // A server gives a failover up if the replica has not caught up after 5 s.
            let _ = node.try_query::<()>(&["CLUSTER", "FAILOVER"]);
            within(Duration::from_secs(6), || node.is_master().then_some(())).is_some()
        });
        assert!(has_failed_over, "no failover in four tries");
        eventually("the old master to follow", || (!redis.nodes[0].is_master()).then_some(()));
    });
}
