//! What clients notice under steady load: nothing. Every request is answered, none waits for longer
//! than the budget, and nobody is sent ahead to find out whether Redis is back.
//!
//! What the machine does to requests is measured in the same run: beside the limited requests go
//! others that no rule applies to. What happens while those have to wait is not held against the
//! gateway, and does not count as a success either: the test reports that measurement as
//! inconclusive.

use std::ops::Range;
use std::time::Duration;

use super::{FAST_BREAKER, breaker, times_opened, wait_until_connected};
use crate::support::{
    ClientGroup, DEMO, FaultProxy, Gateway, Load, Mode, Redis, Report, Request, TIMEOUT, Timestamp,
    inconclusive, key, sleep_for, within,
};

const BUDGET: Duration = Duration::from_millis(10);

/// What a request may take beyond the budget.
const MORE: Duration = Duration::from_millis(5);

/// From one request of a client to the next: a thousand requests a second in all leave the machine
/// some room, and are enough for one to be under way at any time.
const PERIOD: Duration = Duration::from_millis(80);

/// How long nothing is wrong at first.
const BEFORE: Duration = Duration::from_secs(2);

/// A gateway under load, with a budget of 10 ms.
struct LoadTest {
    gateway: Gateway,
    load: Load,
}

/// The breaker changed.
struct Change {
    /// How long after its cause; none where it was not seen.
    took: Option<Duration>,
    /// By the watch of the load: from its cause until it was seen, or later.
    span: Range<Duration>,
}

/// What became of the load.
struct LoadReport {
    /// Those whose requests are limited.
    limited: Report,
    /// The others.
    free: Report,
}

impl LoadTest {
    fn open(redis: &str) -> Self {
        Self::open_with("", redis)
    }

    /// With another breaker.
    fn open_with(breaker: &str, redis: &str) -> Self {
        let free = "[routes.free]\npath = \"/free\"\nupstream = \"api\"\n";
        let rule = "[rules.per-key]\nper = [\"key\"]\nroutes = [\"all\"]\nrate = \"1000000/s\"\n";
        let config = format!("{DEMO}{free}{redis}{breaker}{rule}{}", key("acme", "secret", "free"));
        let gateway = Gateway::start(&config);
        wait_until_connected(&gateway);
        let free = Request::get("/free").header("X-Api-Key", "secret");
        let load = Load::start(vec![
            ClientGroup::new(&gateway, &super::request(), 64, PERIOD),
            ClientGroup::new(&gateway, &free, 32, PERIOD),
        ]);
        sleep_for(BEFORE);
        Self { gateway, load }
    }

    /// Waits for one more line of the log that says so. How long after `cause` the gateway wrote
    /// it, by its own account.
    fn until(&self, words: &str, cause: impl FnOnce()) -> Change {
        let begun = self.load.elapsed();
        let before = self.gateway.log_times(words).len();
        let moment = Timestamp::now();
        cause();
        let line = || self.gateway.log_times(words).get(before).copied();
        // Longer than is promised: what the machine did in the meantime is known at the end only.
        let took = within(2 * TIMEOUT, line).map(|at| at.since(moment));
        Change { took, span: begun..self.load.elapsed() }
    }

    /// Waits until Redis decides: a busy machine may have kept it from that, and may go on to.
    fn is_closed(&self) -> bool {
        within(2 * TIMEOUT, || (breaker(&self.gateway) == 0).then_some(())).is_some()
    }

    /// Ends a test on a machine that never lets Redis answer in time, if that is the machine.
    fn give_up(self) {
        let span = Duration::ZERO..self.load.elapsed();
        let noise = self.close().free.held_up(&span, MORE);
        assert!(noise > BUDGET, "Redis does not decide, though the machine is quiet");
        inconclusive(&format!(
            "Redis never decided; no request was served for {noise:?} of {span:?}"
        ));
    }

    /// Waits until Redis decides about everything again, and a little longer.
    fn closes(&self, returns: impl FnOnce()) -> Change {
        let change = self.until("breaker closed", returns);
        sleep_for(Duration::from_millis(500));
        change
    }

    /// Ends the load. Every request has been answered with 200.
    fn close(self) -> LoadReport {
        let [limited, free]: [Report; 2] = self.load.stop().try_into().ok().unwrap();
        for report in [&limited, &free] {
            assert_eq!(report.broken(), 0, "connections that broke");
            assert_eq!(report.counts().keys().copied().collect::<Vec<_>>(), [200]);
        }
        LoadReport { limited, free }
    }
}

impl LoadReport {
    /// How long 99 of 100 limited requests of this span took at most, of those that the machine
    /// did not disturb. None where it disturbed most of them.
    fn p99(&self, span: &Range<Duration>) -> Option<Duration> {
        let all = self.limited.during(span);
        let judged = all.undisturbed_by(&self.free, MORE);
        let p99 = (2 * judged.len() > all.len()).then(|| judged.quantile(990));
        eprintln!("{span:?}: {} of {} requests judged: {p99:?}", judged.len(), all.len());
        p99
    }

    /// 99 of 100 requests of this span took no longer than `most`.
    #[track_caller]
    fn took_at_most(&self, most: Duration, span: &Range<Duration>) {
        match self.p99(span) {
            Some(p99) => assert!(p99 <= most, "{p99:?} in {span:?}"),
            None => inconclusive(&format!("the machine disturbed most requests in {span:?}")),
        }
    }

    /// No request of this span waited for longer than the budget, and a little.
    #[track_caller]
    fn were_not_held_up(&self, span: &Range<Duration>) {
        self.took_at_most(BUDGET + MORE, span);
    }

    /// The breaker took no longer to open than it may. With as much noise as it took longer, or
    /// where it had been opened by the machine before, that cannot be judged.
    #[track_caller]
    fn saw_it_open_within(&self, most: Duration, change: &Change) {
        let noise = self.free.held_up(&change.span, MORE);
        eprintln!("open after {:?}, while the machine took {noise:?}", change.took);
        judge(
            change.took.is_some_and(|took| took <= most),
            change.took.map_or(noise > BUDGET, |took| took <= most + noise),
            &format!("breaker open after {:?}, {noise:?} of it noise", change.took),
        );
    }

    /// The same for the breaker to close. One probe that the machine holds up for longer than its
    /// budget, and the next comes up to 15 s later.
    #[track_caller]
    fn saw_it_close(&self, change: &Change) {
        let noise = self.free.held_up(&change.span, MORE);
        let most = Duration::from_secs(20);
        let in_time = change.took.is_some_and(|took| took <= most);
        let finding = format!("breaker closed after {:?}, with {noise:?} of noise", change.took);
        eprintln!("{finding}");
        judge(in_time, noise > BUDGET, &finding);
    }
}

/// Fails the test unless the promise was kept, or noise explains that it was not.
#[track_caller]
fn judge(is_kept: bool, is_noise: bool, finding: &str) {
    assert!(is_kept || is_noise, "{finding}");
    if !is_kept {
        inconclusive(finding);
    }
}

#[test]
fn row_01_killed_redis_delays_no_request() {
    let mut redis = Redis::start();
    let test = LoadTest::open(&redis.table_with_timeout("10ms"));
    if !test.is_closed() {
        return test.give_up();
    }
    let opened = test.until("breaker open", || redis.kill());
    sleep_for(Duration::from_secs(3));
    let closed = test.closes(|| redis.launch());
    let (killed, end) = (opened.span.start, test.load.elapsed());
    let report = test.close();
    report.saw_it_open_within(Duration::from_millis(100), &opened);
    report.saw_it_close(&closed);
    report.were_not_held_up(&(killed..end));
    report.were_not_held_up(&(killed..killed + Duration::from_millis(500)));
}

#[test]
fn row_02_hanging_redis_delays_no_request() {
    let redis = Redis::start();
    let test = LoadTest::open(&redis.table_with_timeout("10ms"));
    let timeouts = || test.gateway.count("tollgate_redis_calls_total", &[("result", "timeout")]);
    if !test.is_closed() {
        return test.give_up();
    }
    let (counted, before) = (test.load.elapsed(), timeouts());
    let opened = test.until("breaker open", || redis.pause());
    let after = timeouts();
    sleep_for(Duration::from_secs(3));
    let closed = test.closes(|| redis.resume());
    let (stopped, end) = (opened.span.start, test.load.elapsed());
    let report = test.close();
    // Five in a row, and those that were under way beside the fifth.
    let noise = report.free.held_up(&(counted..opened.span.end), MORE);
    let finding = format!("{} timeouts, with {noise:?} of noise", after - before);
    judge(after - before <= 5 + 3, !noise.is_zero(), &finding);
    report.saw_it_open_within(5 * BUDGET, &opened);
    report.saw_it_close(&closed);
    report.were_not_held_up(&(stopped..end));
    report.were_not_held_up(&(stopped..stopped + Duration::from_millis(500)));
}

/// While the breaker is open, nothing of what clients ask reaches Redis: whether it is back is
/// found out without them.
#[test]
fn row_03_no_request_is_used_as_a_probe() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let test = LoadTest::open_with(FAST_BREAKER, &proxy.table("10ms"));
    let slow = Mode::Delay(Duration::from_millis(30));
    if !test.is_closed() {
        return test.give_up();
    }
    test.until("breaker open", || proxy.set(slow));
    // What was under way when it opened has arrived.
    sleep_for(Duration::from_millis(100));
    let opened = test.load.elapsed();
    let (calls, times) = (proxy.client_calls(), times_opened(&test.gateway));
    sleep_for(Duration::from_secs(4));
    assert_eq!(times_opened(&test.gateway), times, "it stays open");
    assert_eq!(proxy.client_calls(), calls, "calls on behalf of clients while it was open");
    let shut = test.load.elapsed();
    let closed = test.closes(|| proxy.set(Mode::Pass));
    let report = test.close();
    report.saw_it_close(&closed);
    // Redis is not asked meanwhile.
    report.took_at_most(MORE, &(opened..shut));
}

/// A test of the measure: without a fault, no request waits for longer than with one.
#[test]
fn healthy_redis_delays_no_request() {
    let redis = Redis::start();
    let test = LoadTest::open_with(FAST_BREAKER, &redis.table_with_timeout("10ms"));
    let begin = test.load.elapsed();
    sleep_for(Duration::from_secs(2));
    let end = test.load.elapsed();
    let report = test.close();
    report.were_not_held_up(&(begin..end));
    assert!(report.limited.len() > 500, "{} requests", report.limited.len());
}
