//! Series of the checks of credentials that take time.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::{Registrar, seconds};

/// Histogram bounds of the duration of a check, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// The checks of all methods.
pub struct ChecksSeries {
    total: IntCounterVec,
    duration: HistogramVec,
}

/// The checks of one method.
#[derive(Debug, Clone)]
pub struct CheckSeries {
    /// Results that were known.
    pub cached: IntCounter,
    /// Credentials that are right.
    pub allowed: IntCounter,
    /// Credentials that are wrong.
    pub refused: IntCounter,
    /// Checks that were not made, or failed.
    pub failed: IntCounter,
    duration: Histogram,
}

impl ChecksSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            total: series.counters(
                "tollgate_auth_checks_total",
                "Checks of credentials by method (basic, introspection, forward_auth) and result: cached (the result was known), allowed, refused, \
                 failed (not made in time).",
                &["method", "result"],
            )?,
            duration: series.histograms(
                "tollgate_auth_check_duration_seconds",
                "Time of a check of credentials whose result was not known, in seconds.",
                "method",
                &SECONDS,
            )?,
        })
    }

    /// The series of passwords.
    pub fn basic(&self) -> CheckSeries {
        self.of("basic")
    }

    /// The series of servers that are asked about requests.
    pub fn forward_auth(&self) -> CheckSeries {
        self.of("forward_auth")
    }

    /// The series of tokens that their issuer is asked about.
    pub fn introspection(&self) -> CheckSeries {
        self.of("introspection")
    }

    fn of(&self, method: &str) -> CheckSeries {
        let of = |result| self.total.with_label_values(&[method, result]);
        CheckSeries {
            cached: of("cached"),
            allowed: of("allowed"),
            refused: of("refused"),
            failed: of("failed"),
            duration: self.duration.with_label_values(&[method]),
        }
    }
}

impl CheckSeries {
    /// Adds the duration of a check, in microseconds.
    pub fn observe(&self, took_us: u64) {
        self.duration.observe(seconds(took_us));
    }
}
