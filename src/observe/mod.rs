//! Telemetry: metrics, logs and traces.
//!
//! Reading order: [`address`] and `time` (how addresses and times are shown), [`access_log`] (one line
//! per request), [`audit`] (refusal runs), [`failures`] (log lines of failed requests), `run_span` (when runs of both end), [`consumption`] (the clients with the most requests),
//! `shard` (data by thread, of both), [`traces`], [`metrics`], [`process_log`] (the form of log lines),
//! `log_interval` and [`bounded_log`] (bound the rate of a log line).

pub mod access_log;
pub mod address;
pub mod audit;
pub mod bounded_log;
pub mod consumption;
pub mod failures;
pub(crate) mod log_interval;
pub mod metrics;
pub mod process_log;
pub mod traces;

pub(crate) mod shard;

mod run_span;

/// Times in UTC, for logs and the admin API.
pub(crate) mod time;
