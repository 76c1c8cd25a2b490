//! Log lines of failed requests: the first failure of a run at once, and their number when the run
//! ends. A server that is down would otherwise cost a line for each request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::warn;

use super::run_span::{self, Times};
use crate::base::time::UtcTime;

/// Maximum number of open runs. Beyond it, the one whose last failure is oldest ends early.
const MAX_OPEN: usize = 1_024;

/// Logs failed requests.
#[derive(Debug, Default)]
pub(super) struct FailureLog(Mutex<FailureRuns>);

/// A request that got 5xx from the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// Its id in the response and the access log.
    pub request_id: String,
    /// Name of its route.
    pub route: Option<Arc<str>>,
    /// Name of its upstream.
    pub upstream: Option<Arc<str>>,
    /// The server that was tried last.
    pub server: Option<SocketAddr>,
    /// Status of the response.
    pub status: u16,
    /// Code of why it failed.
    pub reason: &'static str,
    /// What was wrong, in plain words.
    pub cause: Cow<'static, str>,
    /// Whether its client can cause such failures at will, although the server is well.
    pub is_at_will: bool,
}

/// What the failures of one run have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RunId {
    upstream: Option<Arc<str>>,
    server: Option<SocketAddr>,
    reason: &'static str,
    /// So that no client hides the failures of a server among those that it causes itself.
    is_at_will: bool,
}

/// Consecutive failures at one server for one reason, all of them by clients' will or none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    first: Times,
    last: Times,
    count: u64,
    /// The last one.
    failed: FailedRequest,
}

/// The open runs. Pure: time is a number.
#[derive(Debug, Default)]
struct FailureRuns(HashMap<RunId, Run>);

impl FailureLog {
    /// Logs a failure, or counts it to the open run.
    pub(super) fn add(&self, failed: &FailedRequest) {
        let Added { is_first, ended } = self.0.lock().add(failed, Times::now());
        ended.iter().for_each(log_run);
        if is_first {
            let FailedRequest { request_id, status, reason, .. } = failed;
            let cause = &*failed.cause;
            let (route, upstream) = (failed.route.as_deref(), failed.upstream.as_deref());
            let server = failed.server.map(tracing::field::display);
            warn!(request_id, route, upstream, server, status, reason, cause, "request failed");
        }
    }

    /// Logs the runs that are over at `now`, in microseconds of the monotonic clock.
    pub(super) fn end_expired(&self, now: u64) {
        self.end_where(|run| run_span::is_over(run.first, run.last, now));
    }

    /// Logs all runs, when the process ends.
    pub(super) fn end_all(&self) {
        self.end_where(|_| true);
    }

    fn end_where(&self, is_over: impl Fn(&Run) -> bool) {
        // Written without the lock: a slow reader of the log must not delay a request.
        let ended = self.0.lock().end_where(is_over);
        ended.iter().for_each(log_run);
    }
}

/// Logs a run that has ended, unless the line of its first failure has said everything.
fn log_run(run: &Run) {
    let Run { first, last, count, failed } = run;
    if *count < 2 {
        return;
    }
    let FailedRequest { request_id, status, reason, .. } = failed;
    let cause = &*failed.cause;
    let (route, upstream) = (failed.route.as_deref(), failed.upstream.as_deref());
    let server = failed.server.map(tracing::field::display);
    let (first, last) = (UtcTime(first.unix_us), UtcTime(last.unix_us));
    warn!(
        count,
        upstream, server, reason, status, cause, route, request_id, %first, %last, "requests failed"
    );
}

/// Result of adding a failure.
#[derive(Debug, PartialEq, Eq)]
struct Added {
    /// Whether it is the first of its run.
    is_first: bool,
    /// A run that has ended by it.
    ended: Option<Run>,
}

impl FailureRuns {
    fn add(&mut self, failed: &FailedRequest, at: Times) -> Added {
        let FailedRequest { upstream, server, reason, is_at_will, .. } = failed;
        let (upstream, is_at_will) = (upstream.clone(), *is_at_will);
        let id = RunId { upstream, server: *server, reason, is_at_will };
        let mut ended = None;
        if let Some(run) = self.0.get_mut(&id) {
            if !run_span::is_over(run.first, run.last, at.monotonic_us) {
                run.count += 1;
                (run.last, run.failed) = (at, failed.clone());
                return Added { is_first: false, ended };
            }
            ended = self.0.remove(&id);
        } else if self.0.len() >= MAX_OPEN {
            ended = self.end_quietest();
        }
        self.0.insert(id, Run { first: at, last: at, count: 1, failed: failed.clone() });
        Added { is_first: true, ended }
    }

    fn end_quietest(&mut self) -> Option<Run> {
        let quietest = self.0.iter().min_by_key(|(_, run)| run.last.monotonic_us);
        let id = quietest.map(|(id, _)| id.clone())?;
        self.0.remove(&id)
    }

    /// Removes runs, and returns them in the order of their last failures.
    fn end_where(&mut self, is_over: impl Fn(&Run) -> bool) -> Vec<Run> {
        let mut ended: Vec<Run> =
            self.0.extract_if(|_, run| is_over(run)).map(|(_, run)| run).collect();
        ended.sort_by_key(|run| run.last.monotonic_us);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(us: u64) -> Times {
        Times { monotonic_us: us, unix_us: us }
    }

    fn failed(port: u16, reason: &'static str) -> FailedRequest {
        FailedRequest {
            request_id: "1".to_owned(),
            route: Some("all".into()),
            upstream: Some("api".into()),
            server: Some(SocketAddr::from(([127, 0, 0, 1], port))),
            status: 502,
            reason,
            cause: "connection refused".into(),
            is_at_will: false,
        }
    }

    /// The number of failures in each run that is over at `now`.
    fn ended(runs: &mut FailureRuns, now: u64) -> Vec<u64> {
        let ended = runs.end_where(|run| run_span::is_over(run.first, run.last, now));
        ended.iter().map(|run| run.count).collect()
    }

    #[test]
    fn first_failure_of_each_server_and_reason_is_reported_at_once_and_the_others_by_number() {
        let mut runs = FailureRuns::default();
        let mut is_first = |port, reason, us| runs.add(&failed(port, reason), at(us)).is_first;
        assert!(is_first(1, "upstream_connect", 0));
        assert!(is_first(2, "upstream_connect", 1));
        assert!(is_first(1, "upstream_timeout", 2));
        for us in 3..600 {
            assert!(!is_first(1, "upstream_connect", us));
        }
        assert_eq!(ended(&mut runs, 10 * SECOND + 2), [1, 1]);
        assert_eq!(ended(&mut runs, 10 * SECOND + 600), [598]);
        assert!(runs.0.is_empty());
    }

    #[test]
    fn failure_of_a_server_is_reported_beside_those_that_clients_cause() {
        let mut runs = FailureRuns::default();
        let by_client = FailedRequest { is_at_will: true, ..failed(1, "upstream_timeout") };
        let is_first = [&by_client, &by_client, &failed(1, "upstream_timeout"), &by_client]
            .map(|failed| runs.add(failed, at(0)).is_first);
        assert_eq!(is_first, [true, false, true, false]);
    }

    #[test]
    fn run_ends_at_its_age_although_failures_continue() {
        let mut runs = FailureRuns::default();
        let mut reported = Vec::new();
        for second in 0..=125 {
            let Added { is_first, ended } = runs.add(&failed(1, "x"), at(second * SECOND));
            reported.extend(is_first.then_some((second, ended.map(|run| run.count))));
        }
        assert_eq!(reported, [(0, None), (60, Some(60)), (120, Some(60))]);
    }

    #[test]
    fn runs_are_bounded() {
        let mut runs = FailureRuns::default();
        let most = u16::try_from(MAX_OPEN).unwrap();
        for port in 0..most {
            runs.add(&failed(port, "x"), at(u64::from(port)));
        }
        let Added { is_first, ended } = runs.add(&failed(most, "x"), at(9_999));
        assert!(is_first);
        assert_eq!(ended.unwrap().failed.server.unwrap().port(), 0);
        assert_eq!(runs.0.len(), MAX_OPEN);
    }
}
