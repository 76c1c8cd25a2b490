//! The bound of docs/outages.md on requests in flight: three gateways whose Redis is killed, and
//! restarted without its data. What is in flight is what the upstream counts.

use std::time::Duration;

use super::chaos::{Clients, HTTP2, addresses};
use super::counting::Counting;
use super::gateways::usable;
use super::{config, fill, held};
use crate::shared::Phase;
use crate::support::{Data, Fleet, eventually, inconclusive, sleep_for};

/// At least the time after its return in which a gateway keeps to its share: `open_max` of
/// [`Fleet`] and two seconds.
const SETTLING: Duration = Duration::from_secs(3);

/// Time in which requests of the clients end.
const ENDED: Duration = Duration::from_secs(1);

/// Three gateways and their upstream.
struct World {
    fleet: Fleet,
    upstream: Counting,
    /// Requests of the cost that can be in flight at once.
    limit: usize,
    /// Those of one gateway without Redis.
    share: usize,
}

impl World {
    /// Starts gateways that allow `limit` units in flight, for requests that hold `cost`.
    fn start(limit: usize, cost: usize) -> Self {
        let upstream = Counting::start();
        let settings = format!("limit = {limit}");
        let text = |redis: &str| {
            let text = config(&upstream, &format!("{HTTP2}{redis}"), &settings);
            text.replace("path = ", &format!("cost = {cost}\npath = "))
        };
        let fleet = Fleet::start(Data::Lost, None, text);
        Self { fleet, upstream, limit: limit / cost, share: (limit / 3 / cost).max(1) }
    }

    /// Begins to send requests to all gateways, which clients end in all ways.
    fn clients(&self) -> Clients {
        Clients::start(48, &self.fleet.gateways.each_ref().map(addresses))
    }

    /// Begins a phase in which Redis decides.
    fn begin(&self) -> Phase {
        Phase::begin(&self.fleet.gateways)
    }

    /// Whether more than `most` requests were in flight since the last check, because gateways have
    /// not heard from Redis in a second since `phase`: each then decides by its share, which comes
    /// on top. Such a test is inconclusive if they had to wait for a CPU, else it fails.
    #[track_caller]
    fn is_spoilt(&self, phase: &Phase, most: usize) -> bool {
        self.upstream.peak() > most && phase.is_decided_locally(&self.fleet.gateways)
    }

    /// Asserts that no more than `most` requests were in flight since the last call.
    #[track_caller]
    fn check(&self, when: &str, most: usize) {
        let peak = self.upstream.take_peak();
        eprintln!("{when}: {peak} of at most {most} in flight");
        assert!(peak <= most, "{when}: {peak} of at most {most} in flight");
        assert!(peak > 0, "{when}");
    }

    /// Waits until the requests have ended that could pass before, and only `most` are in flight.
    /// On a busy machine, they take longer than [`ENDED`].
    fn settle(&self, most: usize) {
        eventually("earlier requests to end", || (self.upstream.now() <= most).then_some(()));
        self.upstream.take_peak();
    }

    /// Asserts that one gateway can hold the limit, and all of them no more, in this phase.
    fn check_usable(&self, phase: &Phase) {
        for gateway in &self.fleet.gateways {
            eventually("all units to be free", || (held(gateway) == 0).then_some(()));
        }
        let first = &self.fleet.gateways[0];
        let most = usable(first, &self.upstream, self.limit, Duration::from_secs(20));
        if self.is_spoilt(phase, self.limit) {
            return;
        }
        assert_eq!(most, self.limit);
        self.check("one gateway", self.limit);
    }
}

/// Clients end their requests in all ways before, in and after the outage.
fn stays_within_the_bound(limit: usize, cost: usize) {
    let world = World::start(limit, cost);
    let phase = world.begin();
    let clients = world.clients();
    sleep_for(ENDED);
    if world.is_spoilt(&phase, world.limit) {
        return;
    }
    world.check("with Redis", world.limit);
    world.fleet.kill_redis();
    sleep_for(ENDED);
    // One gateway may have held all of it.
    world.check("when it is killed", world.limit + 2 * world.share);
    world.settle(3 * world.share);
    sleep_for(ENDED);
    world.check("without Redis", 3 * world.share);
    world.fleet.restart_redis();
    sleep_for(ENDED);
    let phase = world.begin();
    world.check("when it returns", 3 * world.share);
    sleep_for(SETTLING + ENDED);
    let most = world.limit.max(3 * world.share);
    if world.is_spoilt(&phase, most) {
        return;
    }
    world.check("when all may have stated", most);
    let phase = world.begin();
    world.settle(world.limit);
    sleep_for(ENDED);
    if world.is_spoilt(&phase, world.limit) {
        return;
    }
    world.check("afterwards", world.limit);
    let (passed, refused) = clients.stop();
    eprintln!("{passed} passed, {refused} refused");
    assert!(passed > 0 && refused > 0, "{passed} passed, {refused} refused");
    if passed <= 100 || refused <= 100 {
        inconclusive(&format!("a weak load: {passed} passed, {refused} refused"));
    }
    world.check_usable(&phase);
}

#[test]
fn three_gateways_stay_within_the_bound_while_redis_is_killed() {
    stays_within_the_bound(12, 1);
}

/// The share of a gateway is less than one request, and each has one in flight.
#[test]
fn costly_requests_stay_within_the_bound_while_redis_is_killed() {
    stays_within_the_bound(4, 2);
}

#[test]
fn requests_that_outlast_the_outage_count_before_and_after_it() {
    let world = World::start(20, 1);
    let phase = world.begin();
    let hanging = fill(&world.fleet.gateways[0], &world.upstream);
    if world.is_spoilt(&phase, 20) {
        return;
    }
    assert_eq!(hanging.len(), 20);
    world.check("with Redis", 20);
    world.fleet.kill_redis();
    let shares = world.fleet.gateways.each_ref().map(|gateway| fill(gateway, &world.upstream));
    assert_eq!(shares.each_ref().map(Vec::len), [0, 6, 6]);
    world.check("without Redis", 20 + 2 * 6);
    drop(shares);
    eventually("twenty to be left", || (world.upstream.now() == 20).then_some(()));
    let clients = world.clients();
    world.fleet.restart_redis();
    let phase = world.begin();
    sleep_for(SETTLING + ENDED);
    if world.is_spoilt(&phase, 20 + 2 * 6) {
        return;
    }
    world.check("when it returns", 20 + 2 * 6);
    let phase = world.begin();
    world.settle(20);
    sleep_for(ENDED);
    if world.is_spoilt(&phase, 20) {
        return;
    }
    world.check("when it has all statements", 20);
    let (passed, refused) = clients.stop();
    assert!(refused > 0, "{passed} passed, {refused} refused");
    if refused <= 100 {
        inconclusive(&format!("a weak load: {passed} passed, {refused} refused"));
    }
    drop(hanging);
    world.check_usable(&phase);
}
