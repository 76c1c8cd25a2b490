//! Series of copies of requests, which a second upstream gets.

use prometheus::{IntCounterVec, IntGauge};

use super::{Metrics, Registrar, UpstreamResult};

pub(super) struct MirrorFamilies {
    pub(super) results: IntCounterVec,
    in_flight: IntGauge,
}

/// What has become of a request of which a copy was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorResult {
    /// A copy was sent, or could not be.
    Sent(UpstreamResult),
    /// No copy: as many were in flight as may be.
    Dropped,
    /// No copy: the body is too large.
    TooLarge,
}

impl MirrorResult {
    fn label(self) -> &'static str {
        match self {
            Self::Sent(result) => result.label(),
            Self::Dropped => "dropped",
            Self::TooLarge => "too_large",
        }
    }
}

impl MirrorFamilies {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            results: series.counters(
                "tollgate_mirrored_requests_total",
                "Requests to be copied to the upstream by result: 1xx to 5xx (the status of its response), connect, \
                 timeout, broken, no_server, overflow, dropped (max_in_flight of mirror), too_large (max_body_bytes).",
                &["upstream", "result"],
            )?,
            in_flight: series
                .gauge("tollgate_mirrored_requests_in_flight", "Copies of requests in flight.")?,
        })
    }
}

impl Metrics {
    /// Counts a request of which a copy was to be sent to the upstream with this name.
    pub fn count_mirrored(&self, upstream: &str, result: MirrorResult) {
        self.upstreams.mirrors.results.with_label_values(&[upstream, result.label()]).inc();
    }

    /// Number of copies in flight.
    pub fn mirrored_in_flight(&self) -> &IntGauge {
        &self.upstreams.mirrors.in_flight
    }
}
