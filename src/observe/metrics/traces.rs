//! The series of traces.

use prometheus::{IntCounter, IntCounterVec};

use super::Registrar;

/// What became of spans, and of the messages that carried them.
#[derive(Clone)]
pub struct TraceSeries {
    /// Spans that the collector took.
    pub sent: IntCounter,
    /// Spans that it refused, one by one.
    pub rejected: IntCounter,
    /// Spans that could not be sent to it.
    pub failed: IntCounter,
    /// Spans that found the queue full.
    pub queue_full: IntCounter,
    exports: IntCounterVec,
}

impl TraceSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let spans = series.counters(
            "tollgate_traces_spans_total",
            "Spans of traced requests, by what became of them: sent; rejected by the collector; \
             failed (it was away); queue_full (it is too slow). All but sent are lost.",
            &["result"],
        )?;
        let exports = series.counters(
            "tollgate_traces_exports_total",
            "Messages to the collector of traces, by how they went: ok, connect, timeout, broken, 4xx, 5xx, other.",
            &["result"],
        )?;
        let of = |result| spans.with_label_values(&[result]);
        Ok(Self {
            sent: of("sent"),
            rejected: of("rejected"),
            failed: of("failed"),
            queue_full: of("queue_full"),
            exports,
        })
    }

    /// Counts a message by how it went.
    pub fn count(&self, result: &str) {
        self.exports.with_label_values(&[result]).inc();
    }
}
