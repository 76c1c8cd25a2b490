//! Series of the key store.

use prometheus::{IntCounter, IntGauge};

use super::Registrar;

/// Look-ups of keys that the file does not have.
#[derive(Debug, Clone)]
pub struct KeySeries {
    /// Known keys, from memory.
    pub hits: IntCounter,
    /// Unknown keys, from memory.
    pub unknown_hits: IntCounter,
    /// Known keys, from the store.
    pub found: IntCounter,
    /// Unknown keys, from the store.
    pub unknown: IntCounter,
    /// Keys that could not be looked up.
    pub failed: IntCounter,
    /// Whether the store can be read.
    pub is_up: IntGauge,
}

impl KeySeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let lookups = series.counters(
            "tollgate_key_lookups_total",
            "API keys that are not in the file, by how they were looked up: cached and cached_unknown (in memory), \
             found and unknown (in the key store), failed (it could not be read, or too many requests waited for it).",
            &["result"],
        )?;
        let of = |result| lookups.with_label_values(&[result]);
        Ok(Self {
            hits: of("cached"),
            unknown_hits: of("cached_unknown"),
            found: of("found"),
            unknown: of("unknown"),
            failed: of("failed"),
            is_up: series.gauge(
                "tollgate_key_store_up",
                "Whether the key store could be read at the last attempt; 0 without one.",
            )?,
        })
    }
}
