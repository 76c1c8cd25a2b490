//! The series of the file: which one is in force, since when, and what became of those that followed.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts};

use super::Registrar;
use crate::clock;

/// What the operator sees of reloads.
#[derive(Clone)]
pub struct ConfigSeries {
    applied: IntCounter,
    rejected: IntCounter,
    generation: IntGauge,
    last_success: IntGauge,
    is_good: IntGauge,
}

impl ConfigSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let reloads = Opts::new(
            "tollgate_config_reloads_total",
            "Changed files, by what became of them: applied, rejected.",
        );
        let reloads = series.keep(IntCounterVec::new(reloads, &["result"])?)?;
        let all = Self {
            applied: reloads.with_label_values(&["applied"]),
            rejected: reloads.with_label_values(&["rejected"]),
            generation: series.gauge(
                "tollgate_config_generation",
                "How many configurations have been in force.",
            )?,
            last_success: series.gauge(
                "tollgate_config_last_success_timestamp_seconds",
                "When the configuration in force was read, in Unix time.",
            )?,
            is_good: series.gauge(
                "tollgate_config_last_reload_successful",
                "1: the file is what is in force. 0: it was rejected, and the one before is in force.",
            )?,
        };
        all.in_force(1);
        Ok(all)
    }

    /// How many files have been in force.
    pub(super) fn generation(&self) -> i64 {
        self.generation.get()
    }

    /// Whether the file is what is in force.
    pub(super) fn is_good(&self) -> bool {
        self.is_good.get() == 1
    }

    /// A changed file was taken; it is the one with this number.
    pub fn applied(&self, generation: u64) {
        self.applied.inc();
        self.in_force(generation);
    }

    /// A changed file was not taken.
    pub fn rejected(&self) {
        self.rejected.inc();
        self.is_good.set(0);
    }

    /// The file is again what is in force.
    pub fn restored(&self) {
        self.is_good.set(1);
    }

    fn in_force(&self, generation: u64) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.last_success.set(i64::try_from(clock::unix_seconds()).unwrap_or_default());
        self.is_good.set(1);
    }
}
