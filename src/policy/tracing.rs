//! `[tracing]`, resolved: where spans are sent, and which requests are recorded.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

pub use crate::config::words::Follow;
use crate::net::address::HostPort;
use crate::net::tls::ClientTls;

/// The export of traces to an OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracing {
    /// Address of the collector.
    pub endpoint: Endpoint,
    /// Additional headers of each export. Their values are secrets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Maximum time of one export.
    pub timeout: Duration,
    /// Fraction of the requests that is recorded, unless a followed `traceparent` decides.
    pub sample: SamplingRatio,
    /// Whose `traceparent` is continued.
    pub follow: Follow,
    /// `service.name` of the spans.
    pub service_name: String,
}

/// Address of a collector that accepts OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The server. Its name is resolved for every new connection.
    pub origin: HostPort,
    /// TLS settings; `None`: plain HTTP.
    pub tls: Option<ClientTls>,
    /// Path of the request; begins with a slash.
    pub path: String,
}

/// A sampling ratio, decided by the random number in each trace id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingRatio {
    /// Smallest random number that is sampled, 0 to 2^56. 2^56 samples nothing.
    threshold: u64,
}

impl SamplingRatio {
    /// Number of different random numbers.
    const NUMBERS: u64 = 1 << 56;

    /// A ratio from 0 to 1; `None` for any other number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "between 0 and 2^56, which `f64` represents exactly"
    )]
    pub fn of(part: f64) -> Option<Self> {
        let threshold = |part: f64| ((1.0 - part) * Self::NUMBERS as f64).round() as u64;
        (0.0..=1.0).contains(&part).then(|| Self { threshold: threshold(part) })
    }

    /// Whether a trace is sampled. Only the lower 56 bits of `random` count. This is
    /// OpenTelemetry's consistent probability sampling: a sampler with a lower ratio samples a
    /// subset of the traces that one with a higher ratio samples.
    pub fn samples(self, random: u64) -> bool {
        random % Self::NUMBERS >= self.threshold
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(formatter, "{scheme}://{}{}", self.origin, self.path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAST: u64 = SamplingRatio::NUMBERS - 1;

    #[test]
    fn ratio_samples_its_part_of_all_random_numbers() {
        // (ratio, the largest number not sampled, the smallest number sampled)
        let table = [
            (0.0, Some(LAST), None),
            (
                0.25,
                Some(3 * (SamplingRatio::NUMBERS / 4) - 1),
                Some(3 * (SamplingRatio::NUMBERS / 4)),
            ),
            (0.5, Some(SamplingRatio::NUMBERS / 2 - 1), Some(SamplingRatio::NUMBERS / 2)),
            (1.0, None, Some(0)),
        ];
        for (part, lacks, has) in table {
            let ratio = SamplingRatio::of(part).unwrap();
            assert!(lacks.is_none_or(|random| !ratio.samples(random)), "{part}");
            assert!(has.is_none_or(|random| ratio.samples(random)), "{part}");
        }
        for part in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            assert_eq!(SamplingRatio::of(part), None);
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn lower_ratio_samples_a_subset(a in 0.0..=1.0, b in 0.0..=1.0, random: u64) {
            let (fewer, more) = if a < b { (a, b) } else { (b, a) };
            let [fewer, more] = [fewer, more].map(|part| SamplingRatio::of(part).unwrap());
            prop_assert!(!fewer.samples(random) || more.samples(random));
            // The upper 8 bits do not matter.
            prop_assert_eq!(more.samples(random), more.samples(random ^ (0xff << 56)));
        }
    }
}
