//! What clients notice under steady load: nothing. Every request is answered, none waits for longer
//! than the budget, and nobody is sent ahead to find out whether Redis is back.
//!
//! What the machine takes is measured in the same run and subtracted: what the same requests took
//! before the fault, and what requests that no rule applies to take at the same time.

use std::ops::Range;
use std::time::Duration;

use super::{connected, times_opened};
use crate::support::{
    DEMO, FaultProxy, Gateway, Lane, Load, Mode, Redis, Report, Request, Stopwatch, eventually,
    key, lasting,
};

const BUDGET: Duration = Duration::from_millis(10);

/// What a request may take beyond the budget.
const MORE: Duration = Duration::from_millis(5);

/// Between two requests of a client: a thousand requests a second leave the machine some room.
const PAUSE: Duration = Duration::from_millis(80);

/// How long nothing is wrong at first.
const BEFORE: Duration = Duration::from_secs(2);

/// A gateway under load, with a budget of 10 ms.
struct Road {
    gateway: Gateway,
    load: Load,
}

/// What became of the load.
struct Travellers {
    /// Those whose requests are limited.
    limited: Report,
    /// The others.
    free: Report,
}

impl Road {
    fn open(redis: &str) -> Self {
        let free = "[routes.free]\npath = \"/free\"\nupstream = \"api\"\n";
        let rule = "[rules.per-key]\nper = [\"key\"]\nroutes = [\"all\"]\nrate = \"1000000/s\"\n";
        let config = format!("{DEMO}{free}{redis}{rule}{}", key("acme", "secret", "free"));
        let gateway = Gateway::start(&config);
        connected(&gateway);
        let free = Request::get("/free").header("X-Api-Key", "secret");
        let load = Load::start(vec![
            Lane::new(&gateway, &super::request(), 64, PAUSE),
            Lane::new(&gateway, &free, 16, PAUSE),
        ]);
        lasting(BEFORE);
        Self { gateway, load }
    }

    /// How often the log says so.
    fn says(&self, words: &str) -> usize {
        self.gateway.log().matches(words).count()
    }

    /// Waits for one more such line. How long that takes.
    fn until(&self, words: &str, begin: impl FnOnce()) -> Duration {
        let before = self.says(words);
        let watch = Stopwatch::start();
        begin();
        eventually(words, || (self.says(words) > before).then_some(()));
        watch.elapsed()
    }

    /// Ends the load. Every request has been answered with 200.
    fn close(self) -> Travellers {
        let [limited, free]: [Report; 2] = self.load.stop().try_into().ok().unwrap();
        for report in [&limited, &free] {
            assert_eq!(report.broken(), 0, "connections that broke");
            assert_eq!(report.tally().keys().copied().collect::<Vec<_>>(), [200]);
        }
        Travellers { limited, free }
    }
}

impl Travellers {
    /// How much longer than usual, and than others at the same time, 99 of 100 limited requests of
    /// this span took at most.
    fn added(&self, span: &Range<Duration>) -> Duration {
        let p99 = |report: &Report, span| report.during(span).within(990);
        let usual = p99(&self.limited, &(Duration::ZERO..BEFORE));
        let noise = p99(&self.free, span).max(usual);
        let took = p99(&self.limited, span);
        eprintln!("{span:?}: {took:?}, of which usual {usual:?}, others {noise:?}");
        took.saturating_sub(noise)
    }

    /// No request of this span waited for longer than the budget, and a little.
    #[track_caller]
    fn were_not_held_up(&self, span: &Range<Duration>) {
        let added = self.added(span);
        assert!(added <= BUDGET + MORE, "{added:?} more than usual in {span:?}");
    }
}

/// Waits until Redis decides about everything, and a little longer.
fn closes(road: &Road, returns: impl FnOnce()) {
    let took = road.until("breaker closed", returns);
    assert!(took <= Duration::from_secs(20), "closed {took:?} after the return");
    lasting(Duration::from_millis(500));
}

#[test]
fn row_01_nobody_notices_that_redis_is_killed() {
    let mut redis = Redis::start();
    let road = Road::open(&redis.table_with_patience("10ms"));
    let killed = road.load.elapsed();
    let took = road.until("breaker open", || redis.kill());
    assert!(took <= Duration::from_millis(100), "open {took:?} after the kill");
    lasting(Duration::from_secs(3));
    closes(&road, || redis.come_up());
    let end = road.load.elapsed();
    let travellers = road.close();
    travellers.were_not_held_up(&(killed..end));
    travellers.were_not_held_up(&(killed..killed + Duration::from_millis(500)));
}

#[test]
fn row_02_nobody_notices_that_redis_hangs() {
    let redis = Redis::start();
    let road = Road::open(&redis.table_with_patience("10ms"));
    let timeouts = || road.gateway.count("tollgate_redis_calls_total", &[("result", "timeout")]);
    let before = timeouts();
    let stopped = road.load.elapsed();
    let took = road.until("breaker open", || redis.pause());
    let opened = road.load.elapsed();
    // Five in a row, and those that were under way beside the fifth.
    let after = timeouts();
    assert!(after - before <= 5 + 3, "{} timeouts", after - before);
    lasting(Duration::from_secs(3));
    closes(&road, || redis.resume());
    let end = road.load.elapsed();
    let travellers = road.close();
    let noise = travellers.free.during(&(stopped..opened)).within(1_000);
    assert!(took <= 5 * BUDGET + noise, "open {took:?} after the stop; the machine took {noise:?}");
    travellers.were_not_held_up(&(stopped..end));
    travellers.were_not_held_up(&(stopped..stopped + Duration::from_millis(500)));
}

/// While the breaker is open, nothing of what clients ask reaches Redis: whether it is back is
/// found out without them.
#[test]
fn row_03_no_request_is_sent_ahead_as_a_probe() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let road = Road::open(&proxy.table("10ms"));
    let slow = Mode::Delay(Duration::from_millis(30));
    road.until("breaker open", || proxy.set(slow));
    // What was under way when it opened has arrived.
    lasting(Duration::from_millis(100));
    let opened = road.load.elapsed();
    let (calls, times) = (proxy.client_calls(), times_opened(&road.gateway));
    lasting(Duration::from_secs(4));
    assert_eq!(times_opened(&road.gateway), times, "it stays open");
    assert_eq!(proxy.client_calls(), calls, "calls on behalf of clients while it was open");
    let shut = road.load.elapsed();
    closes(&road, || proxy.set(Mode::Pass));
    let added = road.close().added(&(opened..shut));
    assert!(added <= MORE, "{added:?} more than usual, though nobody asks Redis");
}

/// A test of the measure: without a fault, the limited requests take as long as the others.
#[test]
fn without_a_fault_nobody_waits_either() {
    let redis = Redis::start();
    let road = Road::open(&redis.table_with_patience("10ms"));
    let begin = road.load.elapsed();
    lasting(Duration::from_secs(2));
    let end = road.load.elapsed();
    let travellers = road.close();
    travellers.were_not_held_up(&(begin..end));
    assert!(travellers.limited.len() > 500, "{} requests", travellers.limited.len());
}
