//! Response times under steady load: every request gets a response, none takes longer than the
//! timeout plus a margin, and no request is used as a probe.
//!
//! Delays of the machine are measured in the same run, by as many requests to another gateway,
//! which has no Redis: what the gateway under test does to its own requests is no delay of the
//! machine. The response times of both are compared. If that shows a delay, limited requests at the
//! time of a delay of the machine are excluded; if too many are, the measurement is inconclusive.

use std::ops::Range;
use std::time::Duration;

use super::{FAST_BREAKER, breaker, times_opened, wait_until_connected};
use crate::support::{
    ClientGroup, CpuWaits, DEMO, FaultProxy, Gateway, Load, Mode, Redis, Report, TIMEOUT,
    Timestamp, inconclusive, inconclusive_if_stalled, inconclusive_if_waited, key, sleep_for,
    within,
};

const BUDGET: Duration = Duration::from_millis(10);

/// How late the breaker may open on a busy machine.
const LATEST: Duration = Duration::from_secs(3);

/// Margin for a request beyond the timeout.
const MORE: Duration = Duration::from_millis(5);

/// Time between two requests of a client: 1,200 requests a second in total leave the machine idle
/// time, and keep at least one request in flight.
const PERIOD: Duration = Duration::from_millis(80);

/// Clients of each gateway.
const CLIENTS: u32 = 48;

/// Duration of the load before the fault.
const BEFORE: Duration = Duration::from_secs(1);

/// A gateway under load, with a timeout of 10 ms.
pub(crate) struct LoadTest {
    pub(crate) gateway: Gateway,
    /// Without Redis.
    _control: Gateway,
    pub(crate) load: Load,
    /// Waits for a CPU until the load.
    waits_before: CpuWaits,
    /// Waits for a CPU until the fault.
    waits: CpuWaits,
}

/// A transition of the breaker.
pub(crate) struct Change {
    /// Time from its cause to the log line; `None` if it did not happen.
    took: Option<Duration>,
    /// Span from its cause to its detection, on the clock of the load.
    pub(crate) span: Range<Duration>,
}

/// Result of the load.
pub(crate) struct LoadReport {
    gateway: Gateway,
    /// Requests with a limit.
    limited: Report,
    /// Requests to the gateway without Redis.
    control: Report,
    /// Waits for a CPU until the load.
    waits_before: CpuWaits,
    /// Waits for a CPU until the fault.
    waits: CpuWaits,
}

impl LoadTest {
    pub(crate) fn open(redis: &str) -> Self {
        Self::open_with("", redis)
    }

    /// Starts the test with another breaker.
    fn open_with(breaker: &str, redis: &str) -> Self {
        let rule = "[rules.per-key]\nper = [\"key\"]\nroutes = [\"all\"]\nrate = \"1000000/s\"\n";
        let key = key("acme", "secret", "free");
        let gateway = Gateway::start(&format!("{DEMO}{redis}{breaker}{rule}{key}"));
        let control = Gateway::start(&format!("{DEMO}{key}"));
        wait_until_connected(&gateway);
        let waits_before = CpuWaits::now();
        let load = Load::start(vec![
            ClientGroup::new(&gateway, &super::request(), CLIENTS, PERIOD),
            ClientGroup::new(&control, &super::request(), CLIENTS, PERIOD),
        ]);
        sleep_for(BEFORE);
        Self { gateway, _control: control, load, waits_before, waits: CpuWaits::now() }
    }

    /// Waits for a further log line with `words`. The time is that between `cause` and the
    /// timestamp of the line.
    fn until(&self, words: &str, cause: impl FnOnce()) -> Change {
        let begun = self.load.elapsed();
        let before = self.gateway.log_times(words).len();
        let moment = Timestamp::now();
        cause();
        let line = || self.gateway.log_times(words).get(before).copied();
        // Longer than guaranteed: the delays of the machine are known only at the end.
        let took = within(2 * TIMEOUT, line).map(|at| at.since(moment));
        Change { took, span: begun..self.load.elapsed() }
    }

    /// Waits until the breaker opens. Asserts that it is open in the end: by this cause, or by a
    /// busy machine before it, without a further line.
    #[track_caller]
    fn opens(&self, cause: impl FnOnce()) -> Change {
        let change = self.until("breaker open", cause);
        assert!(change.took.is_some() || breaker(&self.gateway) != 0, "the breaker stays closed");
        change
    }

    /// Waits until Redis decides; false if a busy machine prevents it.
    pub(crate) fn is_closed(&self) -> bool {
        within(2 * TIMEOUT, || (breaker(&self.gateway) == 0).then_some(())).is_some()
    }

    /// Ends the test as inconclusive if the machine never lets Redis respond in time while there is
    /// load.
    pub(crate) fn give_up(self) {
        let span = Duration::ZERO..self.load.elapsed();
        let report = self.close();
        let noise = report.control.held_up(&span, MORE);
        assert!(
            is_share(noise, &span),
            "Redis does not decide, though the machine is quiet: {noise:?} of noise in {span:?}"
        );
        report.closes_without_load();
        inconclusive(&format!(
            "Redis never decided; no request was served for {noise:?} of {span:?}"
        ));
    }

    /// Waits until the breaker is closed, and half a second longer.
    fn closes(&self, returns: impl FnOnce()) -> Change {
        let change = if breaker(&self.gateway) == 0 {
            // A busy machine has let Redis respond in time before.
            let begun = self.load.elapsed();
            returns();
            Change { took: Some(Duration::ZERO), span: begun..self.load.elapsed() }
        } else {
            self.until("breaker closed", returns)
        };
        sleep_for(Duration::from_millis(500));
        change
    }

    /// Ends the load. Asserts that every response was 200.
    pub(crate) fn close(self) -> LoadReport {
        let [limited, control]: [Report; 2] = self.load.stop().try_into().ok().unwrap();
        for report in [&limited, &control] {
            assert_eq!(report.broken(), 0, "connections that broke");
            assert_eq!(report.counts().keys().copied().collect::<Vec<_>>(), [200]);
        }
        let Self { gateway, waits_before, waits, .. } = self;
        LoadReport { gateway, limited, control, waits_before, waits }
    }
}

impl LoadReport {
    /// How much longer 99 % of the limited requests in this span took than those to the gateway
    /// without Redis; `None` if the machine was too slow for that, or if there were none.
    fn added(&self, span: &Range<Duration>) -> Option<Duration> {
        let [limited, control] = [&self.limited, &self.control].map(|report| report.during(span));
        if limited.len() == 0 || control.len() == 0 {
            return None;
        }
        let [limited, control] = [limited, control].map(|report| report.quantile(990));
        eprintln!("{span:?}: {limited:?}, and {control:?} without Redis");
        (control <= 5 * MORE).then(|| limited.saturating_sub(control))
    }

    /// The 99th percentile of the limited requests in this span that the machine did not delay;
    /// `None` if it delayed most of them.
    fn p99(&self, span: &Range<Duration>) -> Option<Duration> {
        let all = self.limited.during(span);
        let judged = all.undisturbed_by(&self.control, MORE);
        let p99 = (2 * judged.len() > all.len()).then(|| judged.quantile(990));
        eprintln!("{span:?}: {} of {} requests judged: {p99:?}", judged.len(), all.len());
        p99
    }

    /// Asserts that 99 % of the requests in this span took at most `most`, beside what 99 % of
    /// those to the gateway without Redis took: what the machine does to both is in both.
    /// Otherwise, those count that it did not delay. A thread of the gateway alone can wait for a
    /// CPU, which delays no request to the other gateway: the measurement is then inconclusive,
    /// too.
    #[track_caller]
    fn took_at_most(&self, most: Duration, span: &Range<Duration>) {
        self.took_at_most_beside(&self.waits, most, span);
    }

    #[track_caller]
    fn took_at_most_beside(&self, waits: &CpuWaits, most: Duration, span: &Range<Duration>) {
        if self.added(span).is_some_and(|added| added <= most) {
            return;
        }
        match self.p99(span) {
            Some(p99) => {
                if let Some(why) = waits.judge_served(p99, most) {
                    inconclusive(&format!("{why} in {span:?}"));
                }
            }
            None => inconclusive(&format!("the machine disturbed most requests in {span:?}")),
        }
    }

    /// Asserts that requests in this span took at most the timeout plus the margin.
    #[track_caller]
    pub(crate) fn were_not_held_up(&self, span: &Range<Duration>) {
        self.took_at_most(BUDGET + MORE, span);
    }

    /// Checks the measurement itself: without a fault, response times are within the same bound.
    #[track_caller]
    fn was_quiet_until(&self, fault: Duration) {
        let span = BEFORE / 4..fault;
        self.took_at_most_beside(&self.waits_before, BUDGET + MORE, &span);
        // A third of the requests that the clients send if none is delayed.
        let length = span.end.saturating_sub(span.start);
        let turns = u32::try_from(length.as_millis() / PERIOD.as_millis()).unwrap();
        let least = (CLIENTS * turns / 3) as usize;
        let count = self.limited.during(&span).len();
        if count < least {
            inconclusive_if_waited(&format!("{count} requests"), &self.waits_before, length);
        }
    }

    /// Asserts that the breaker opened in time. Inconclusive if the machine caused the delay, which
    /// is no excuse beyond [`LATEST`].
    #[track_caller]
    fn saw_it_open_within(&self, most: Duration, change: &Change) {
        let noise = self.control.held_up(&change.span, MORE);
        eprintln!("open after {:?}, while the machine took {noise:?}", change.took);
        judge(
            change.took.is_some_and(|took| took <= most),
            change.took.map_or(noise > BUDGET, |took| took <= LATEST.min(most + noise)),
            &format!("breaker open after {:?}, {noise:?} of it noise", change.took),
        );
    }

    /// Asserts that the breaker is closed at last once there is no load: no machine is too busy for
    /// that.
    #[track_caller]
    fn closes_without_load(&self) {
        let is_closed = || (breaker(&self.gateway) == 0).then_some(());
        assert!(within(3 * TIMEOUT, is_closed).is_some(), "the breaker never closes");
    }

    /// Asserts that the breaker closed in time. If the machine delays one probe beyond its timeout,
    /// the next one comes up to 15 s later: it is no excuse beyond that.
    #[track_caller]
    fn saw_it_close(&self, change: &Change) {
        self.closes_without_load();
        let noise = self.control.held_up(&change.span, MORE);
        let most = Duration::from_secs(20);
        let is_within = |most| change.took.is_some_and(|took| took <= most);
        let finding = format!("breaker closed after {:?}, with {noise:?} of noise", change.took);
        eprintln!("{finding}");
        let is_noise = noise > BUDGET && is_within(most + Duration::from_secs(15));
        judge(is_within(most), is_noise, &finding);
    }
}

/// Whether noise is a tenth of a span at least, and so may have delayed every probe in it.
fn is_share(noise: Duration, span: &Range<Duration>) -> bool {
    noise * 10 > span.end.saturating_sub(span.start)
}

/// Fails the test unless the guarantee was met, or noise explains that it was not.
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
    let opened = test.opens(|| redis.kill());
    sleep_for(Duration::from_secs(3));
    let closed = test.closes(|| redis.launch());
    let (killed, end) = (opened.span.start, test.load.elapsed());
    let report = test.close();
    report.was_quiet_until(killed);
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
    let opened = test.opens(|| redis.pause());
    let after = timeouts();
    sleep_for(Duration::from_secs(3));
    let stall = test.waits.stall_of_servers();
    let closed = test.closes(|| redis.resume());
    let (stopped, end) = (opened.span.start, test.load.elapsed());
    let report = test.close();
    // Five timeouts in a row, and calls in flight at the fifth.
    let noise = report.control.held_up(&(counted..opened.span.end), MORE);
    let finding = format!("{} timeouts, with {noise:?} of noise", after - before);
    if after - before > 5 + 3 {
        // More can be in flight only if the gateway waited for a CPU for longer than a timeout.
        inconclusive_if_stalled(&finding, stall, BUDGET);
    }
    report.saw_it_open_within(5 * BUDGET, &opened);
    report.saw_it_close(&closed);
    report.were_not_held_up(&(stopped..end));
    report.were_not_held_up(&(stopped..stopped + Duration::from_millis(500)));
}

/// While the breaker is open, no client request reaches Redis: probes are separate.
#[test]
fn row_03_no_request_is_used_as_a_probe() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let test = LoadTest::open_with(FAST_BREAKER, &proxy.table("10ms"));
    let slow = Mode::Delay(Duration::from_millis(30));
    if !test.is_closed() {
        return test.give_up();
    }
    test.opens(|| proxy.set(slow));
    let waits = CpuWaits::now();
    // Calls that were in flight when the breaker opened have arrived.
    sleep_for(Duration::from_millis(100));
    let opened = test.load.elapsed();
    let (calls, times) = (proxy.client_calls(), times_opened(&test.gateway));
    sleep_for(Duration::from_secs(4));
    let stayed_open = times_opened(&test.gateway) == times;
    let calls_while_open = proxy.client_calls() - calls;
    let shut = test.load.elapsed();
    let stall = waits.stall();
    let closed = test.closes(|| proxy.set(Mode::Pass));
    let report = test.close();
    report.saw_it_close(&closed);
    // A gateway that stands still for longer than the delay finds the reply of a probe in time.
    let noise = report.control.held_up(&(opened..shut), MORE);
    judge(stayed_open, noise > BUDGET, &format!("it closed, with {noise:?} of noise"));
    if !stayed_open {
        return;
    }
    if calls_while_open > 0 {
        // Those in flight when it opened can be late if the proxy has to wait for a CPU.
        let finding = format!("{calls_while_open} calls on behalf of clients while it was open");
        inconclusive_if_stalled(&finding, stall, Duration::from_millis(100));
    }
    // No call to Redis is made in this span.
    report.took_at_most(MORE, &(opened..shut));
}
