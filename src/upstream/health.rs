//! Whether an endpoint gets requests, and why not: connections that fail, health checks, ejection,
//! and orders of operators, in one state. Pure: times are microseconds of the monotonic clock.

use std::fmt;

use super::balance::plan::Availability;
use super::failure_window::FailureWindow;
use crate::base::duration::MICROS_PER_SECOND;
use crate::policy::health::{Eject, HealthChecks};
pub use crate::policy::health::{EjectReason, State};

/// How long an endpoint gets no requests after a connection to it failed. Without that, each time
/// that it is selected, a request loses a try.
pub(super) const UNREACHABLE_US: u64 = 5 * MICROS_PER_SECOND;

/// Minimum number of requests within the window of an error rate.
const MIN_REQUESTS: u32 = 20;

/// How many times an ejection is longer than the first one, at most.
const MAX_GROWTH: u32 = 10;

/// What is known of the health of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Health {
    operator: Option<(Order, u64)>,
    /// Its name does not have it any more.
    absent: Option<Absent>,
    check: Check,
    unreachable: Option<Unreachable>,
    failures: Failures,
    /// When it became healthy last; 0: it has always been.
    healthy_since: u64,
    /// The state that was logged last.
    logged: State,
}

/// An operator's order for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// It gets no requests but those whose cookie selects it.
    Drain,
    /// It gets no requests.
    Disable,
}

/// The state of an endpoint at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthView {
    pub state: State,
    /// Why, in a few words; empty if it gets requests.
    pub reason: String,
    /// When that began; 0: it has always been so.
    pub since: u64,
    /// When it ends by itself; `u64::MAX`: it does not.
    pub until: u64,
}

/// Why a health check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckFailure {
    /// No connection, or no TLS.
    Connect(String),
    Timeout,
    /// The status of a check by HTTP or gRPC is not one of a healthy endpoint.
    Status(u16),
    /// The endpoint responds that the service does not serve; its own word for it.
    NotServing(&'static str),
    /// The response is none, or is malformed.
    Protocol(String),
}

/// The name of an endpoint does not exist any more, or has no addresses.
#[derive(Debug)]
struct Absent {
    reason: Box<str>,
    since: u64,
}

#[derive(Debug, Default)]
enum Check {
    /// The upstream has no health checks.
    #[default]
    Off,
    /// None has ended yet.
    Unchecked,
    Passing {
        /// Failed checks in a row.
        failed: u32,
    },
    Failing {
        /// Successful checks in a row.
        passed: u32,
        /// Why the last check that failed did.
        reason: CheckFailure,
        since: u64,
    },
}

/// A connection failed. It stays so until one succeeds, but gets requests from `until` on.
#[derive(Clone, Copy, Debug)]
struct Unreachable {
    since: u64,
    until: u64,
}

/// The failures of requests, and the ejection that they led to.
#[derive(Debug, Default)]
struct Failures {
    /// Failures in a row.
    consecutive: u32,
    /// Requests of the last time, if their error rate counts.
    window: FailureWindow,
    ejection: Option<Ejection>,
}

#[derive(Clone, Copy, Debug)]
struct Ejection {
    reason: EjectReason,
    since: u64,
    until: u64,
    /// How many times longer than the first one it is.
    growth: u32,
}

/// Why an endpoint should be ejected, unless too many are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    ConsecutiveFailures,
    /// The requests of the window, and those of them that failed. The error rate of the other
    /// endpoints must be half of it or less.
    ErrorRate {
        requests: u32,
        failed: u32,
    },
}

/// All endpoints of an upstream, as far as the ejection of one of them, the suspect, depends on
/// them.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    /// Number of those that may be ejected.
    total: usize,
    ejected: usize,
    /// Requests of the window at all but the suspect, and those of them that failed.
    others: (u64, u64),
}

impl Health {
    /// Whether requests are sent to it at `now`.
    pub(super) fn availability(&self, now: u64) -> Availability {
        match self.state(now) {
            (State::Up, since) => Availability::Up { since },
            (State::Drained | State::Disabled, _) => Availability::Off,
            (
                State::Unreachable
                | State::Ejected
                | State::Unchecked
                | State::Unhealthy
                | State::Unresolved,
                _,
            ) => Availability::Down { until: self.down_until(now) },
        }
    }

    /// Whether requests whose cookie selects it are sent to it although others are not.
    pub(super) fn keeps_clients(&self, now: u64) -> bool {
        let is_drained = matches!(self.operator, Some((Order::Drain, _)));
        is_drained && self.down_until(now) <= now
    }

    /// The state at `now`, with the reason and the time since when.
    pub(super) fn show(&self, now: u64) -> HealthView {
        let (state, since) = self.state(now);
        let reason = match state {
            State::Up => String::new(),
            State::Unreachable => "a connection failed".to_owned(),
            State::Unresolved => {
                let reason = self.absent.as_ref().map(|absent| &*absent.reason);
                format!("look-up: {}", reason.unwrap_or_default())
            }
            State::Unchecked => "no check has ended".to_owned(),
            State::Drained | State::Disabled => "operator".to_owned(),
            State::Ejected => {
                let reason = self.failures.ejection.map(|ejection| ejection.reason.name());
                reason.unwrap_or_default().replace('_', " ")
            }
            State::Unhealthy => match &self.check {
                Check::Failing { reason, .. } => format!("check: {reason}"),
                _ => String::new(),
            },
        };
        let until = match state {
            State::Unreachable | State::Ejected => self.down_until(now),
            _ => u64::MAX,
        };
        HealthView { state, reason, since, until }
    }

    /// The state at `now`, and since when.
    fn state(&self, now: u64) -> (State, u64) {
        match self.operator {
            Some((Order::Disable, since)) => return (State::Disabled, since),
            Some((Order::Drain, since)) => return (State::Drained, since),
            None => {}
        }
        if let Some(absent) = &self.absent {
            return (State::Unresolved, absent.since);
        }
        match self.check {
            Check::Failing { since, .. } => return (State::Unhealthy, since),
            Check::Unchecked => return (State::Unchecked, 0),
            Check::Off | Check::Passing { .. } => {}
        }
        if let Some(ejection) = self.failures.ejection_at(now) {
            return (State::Ejected, ejection.since);
        }
        if let Some(unreachable) = self.unreachable.filter(|it| it.until > now) {
            return (State::Unreachable, unreachable.since);
        }
        (State::Up, self.up_since())
    }

    /// When it began to get requests, if it gets some.
    fn up_since(&self) -> u64 {
        self.healthy_since.max(self.down_for_a_time_until())
    }

    /// When its last ejection and the time after its last failed connection end; 0: there has been
    /// neither.
    fn down_for_a_time_until(&self) -> u64 {
        let ejected = self.failures.ejection.map_or(0, |ejection| ejection.until);
        ejected.max(self.unreachable.map_or(0, |unreachable| unreachable.until))
    }

    /// When what is known now stops it from getting requests no longer.
    fn down_until(&self, now: u64) -> u64 {
        match self.check {
            _ if self.absent.is_some() => u64::MAX,
            Check::Unchecked | Check::Failing { .. } => u64::MAX,
            Check::Off | Check::Passing { .. } => self.down_for_a_time_until().max(now),
        }
    }

    /// The state to log, if it is another than the one that was logged last. One that gets
    /// requests again after a failed connection is logged when one of them has reached it. A new
    /// endpoint whose first check succeeds is not logged.
    pub(super) fn unlogged(&mut self, now: u64) -> Option<HealthView> {
        let (state, _) = self.state(now);
        let is_unproven = state == State::Up && self.unreachable.is_some();
        if state == self.logged || is_unproven {
            return None;
        }
        let before = std::mem::replace(&mut self.logged, state);
        let is_new = (before, state) == (State::Unchecked, State::Up);
        (!is_new).then(|| self.show(now))
    }

    /// A connection to it failed at `now`.
    pub(super) fn unreachable(&mut self, now: u64) {
        let since = self.unreachable.map_or(now, |unreachable| unreachable.since);
        self.unreachable = Some(Unreachable { since, until: now.saturating_add(UNREACHABLE_US) });
    }

    /// A connection to it succeeded at `now`. Returns whether one had failed before.
    pub(super) fn reachable(&mut self, now: u64) -> bool {
        let before = self.unreachable.take();
        if let Some(before) = before {
            self.healthy_since = self.healthy_since.max(before.until.min(now));
        }
        before.is_some()
    }

    /// Notes at `now` since when its name does not have it, and why; `None`: it does, or that is
    /// not known. Returns whether that changes the state.
    pub(super) fn set_absent(&mut self, absent: Option<(u64, &str)>, now: u64) -> bool {
        let changes = self.absent.is_some() != absent.is_some();
        if changes && absent.is_none() {
            self.healthy_since = self.healthy_since.max(now);
        }
        self.absent = absent.map(|(since, reason)| Absent { reason: reason.into(), since });
        changes
    }

    /// Begins or ends to have health checks.
    pub(super) fn set_checked(&mut self, is_checked: bool) {
        match (&self.check, is_checked) {
            (Check::Off, true) => self.check = Check::Unchecked,
            (_, false) => self.check = Check::Off,
            (_, true) => {}
        }
    }

    /// Whether health checks are on, and none has ended yet.
    pub(super) fn is_unchecked(&self) -> bool {
        matches!(self.check, Check::Unchecked)
    }

    /// A health check ended at `now`. Returns whether that changes the state. The first result
    /// counts at once, and one after the upstream's checks were switched off counts not at all.
    pub(super) fn checked(
        &mut self,
        result: Result<(), CheckFailure>,
        checks: &HealthChecks,
        now: u64,
    ) -> bool {
        let mut reached = false;
        if result.is_ok() {
            reached = self.reachable(now);
        }
        let failing = |reason| Check::Failing { passed: 0, reason, since: now };
        let (next, changes) = match (std::mem::take(&mut self.check), result) {
            (Check::Off, _) => (Check::Off, false),
            (Check::Unchecked, Ok(())) => (Check::Passing { failed: 0 }, true),
            (Check::Passing { .. }, Ok(())) => (Check::Passing { failed: 0 }, false),
            (Check::Failing { passed, .. }, Ok(())) if passed + 1 >= checks.rise => {
                self.healthy_since = now;
                self.failures = Failures::default();
                (Check::Passing { failed: 0 }, true)
            }
            (Check::Failing { passed, reason, since }, Ok(())) => {
                (Check::Failing { passed: passed + 1, reason, since }, false)
            }
            (Check::Unchecked, Err(reason)) => (failing(reason), true),
            (Check::Passing { failed }, Err(reason)) if failed + 1 >= checks.fall => {
                (failing(reason), true)
            }
            (Check::Passing { failed }, Err(_)) => (Check::Passing { failed: failed + 1 }, false),
            (Check::Failing { since, .. }, Err(reason)) => {
                (Check::Failing { passed: 0, reason, since }, false)
            }
        };
        self.check = next;
        changes || reached
    }

    /// An operator gives an order at `now`, or takes it back. Returns whether that changes
    /// anything.
    pub(super) fn order(&mut self, order: Option<Order>, now: u64) -> bool {
        if self.operator.map(|(order, _)| order) == order {
            return false;
        }
        self.operator = order.map(|order| (order, now));
        if order.is_none() {
            self.healthy_since = self.healthy_since.max(now);
        }
        true
    }

    /// A request to it succeeded at `now`, or failed in a way that counts. Returns why it should be
    /// ejected, if it should. What was sent before it was ejected does not count afterwards.
    pub(super) fn observe(
        &mut self,
        has_failed: bool,
        eject: &Eject,
        now: u64,
    ) -> Option<Suspicion> {
        if self.is_ejected(now) {
            return None;
        }
        let failures = &mut self.failures;
        failures.consecutive = if has_failed { failures.consecutive.saturating_add(1) } else { 0 };
        if eject.error_rate.is_some() {
            failures.window.add(has_failed, eject.window_us, now);
        }
        if !has_failed {
            return None;
        }
        if eject.consecutive_failures.is_some_and(|most| failures.consecutive >= most) {
            return Some(Suspicion::ConsecutiveFailures);
        }
        let (requests, failed) = self.window(eject, now);
        let is_high = eject
            .error_rate
            .is_some_and(|rate| u64::from(failed) * 1_000 >= u64::from(requests) * u64::from(rate));
        (is_high && requests >= MIN_REQUESTS).then_some(Suspicion::ErrorRate { requests, failed })
    }

    /// The requests of the window of an error rate, and those of them that failed.
    fn window(&self, eject: &Eject, now: u64) -> (u32, u32) {
        self.failures.window.sums(eject.window_us, now)
    }

    /// Ejects it at `now`, for a time that is longer, the sooner it follows the last ejection.
    pub(super) fn eject(&mut self, reason: EjectReason, eject: &Eject, now: u64) {
        let growth = self.failures.ejection.map_or(1, |last| {
            let rested = now.saturating_sub(last.until) / eject.for_us.max(1);
            let left = last.growth.saturating_sub(u32::try_from(rested).unwrap_or(u32::MAX));
            (left + 1).min(MAX_GROWTH)
        });
        let time_us = eject.for_us.saturating_mul(growth.into());
        let ejection = Ejection { reason, since: now, until: now.saturating_add(time_us), growth };
        self.failures = Failures { ejection: Some(ejection), ..Failures::default() };
    }

    /// Whether it is ejected at `now`.
    pub(super) fn is_ejected(&self, now: u64) -> bool {
        self.failures.ejection_at(now).is_some()
    }
}

impl Failures {
    /// The ejection that lasts at `now`.
    fn ejection_at(&self, now: u64) -> Option<Ejection> {
        self.ejection.filter(|ejection| ejection.until > now)
    }
}

impl Endpoints {
    /// Adds an endpoint as it is at `now`. One that an operator has drained or disabled is not one
    /// of those that may be ejected.
    pub(super) fn add(&mut self, health: &Health, is_suspect: bool, eject: &Eject, now: u64) {
        if health.operator.is_none() {
            self.total += 1;
            self.ejected += usize::from(health.is_ejected(now));
        }
        if !is_suspect {
            let (requests, failed) = health.window(eject, now);
            self.others.0 += u64::from(requests);
            self.others.1 += u64::from(failed);
        }
    }

    /// Why the suspect is ejected; `None`: it is not, since too many are, or others fail as well.
    pub(super) fn verdict(&self, suspicion: Suspicion, eject: &Eject) -> Option<EjectReason> {
        let reason = match suspicion {
            Suspicion::ConsecutiveFailures => EjectReason::ConsecutiveFailures,
            Suspicion::ErrorRate { requests, failed } => {
                stands_out(requests, failed, self.others).then_some(EjectReason::ErrorRate)?
            }
        };
        may_eject(self.total, self.ejected, eject.max).then_some(reason)
    }
}

/// Whether the error rate of an endpoint is at least twice that of the others, which together had
/// `others` requests and failures.
fn stands_out(requests: u32, failed: u32, others: (u64, u64)) -> bool {
    // failed / requests >= 2 * others.1 / others.0
    u64::from(failed).saturating_mul(others.0)
        >= others.1.saturating_mul(2).saturating_mul(requests.into())
}

/// Whether one more of `total` endpoints may be ejected, if `ejected` are and `max` thousandths may
/// be.
fn may_eject(total: usize, ejected: usize, max: u16) -> bool {
    let most = total.saturating_mul(max.into()) / 1_000;
    ejected < most.min(total.saturating_sub(1))
}

impl CheckFailure {
    /// The word of metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Timeout => "timeout",
            Self::Status(_) => "status",
            Self::NotServing(_) => "not_serving",
            Self::Protocol(_) => "protocol",
        }
    }
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(cause) | Self::Protocol(cause) => f.write_str(cause),
            Self::Timeout => f.write_str("timeout"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::NotServing(word) => f.write_str(word),
        }
    }
}

#[cfg(test)]
mod tests;
