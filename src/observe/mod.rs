//! Telemetry: metrics, logs and traces.
//!
//! Reading order: [`address`] (how addresses are shown), [`access_log`] (one line per request),
//! [`audit`] (refusal runs), [`failures`] (log lines of failed requests), `run_span` (when runs of
//! both end), [`consumption`] (the clients with the most requests), [`traces`], [`metrics`],
//! [`process_log`] (the form of log lines).

pub mod access_log;
pub mod address;
pub mod audit;
pub mod consumption;
pub mod failures;
pub mod metrics;
pub mod process_log;
pub mod traces;

mod run_span;
