//! `[tracing]` as it is meant: where traces of requests go, and which requests have one.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::net::address::HostPort;
use crate::net::tls::ClientTls;

/// Traces of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracing {
    /// Who takes them.
    pub endpoint: Endpoint,
    /// What each export has besides; values are sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one export may take, 1 ms to 1 minute.
    pub timeout: Duration,
    /// Which requests are traced, where nobody has decided already.
    pub sample: Ratio,
    /// Whose `traceparent` is followed.
    pub follow: Follow,
    /// What the gateway is called in traces, 1 to 255 characters.
    pub service_name: String,
}

/// Where OTLP is spoken over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The server. Its name is looked up for every new connection.
    pub origin: HostPort,
    /// How the connection is encrypted; none: it is not.
    pub tls: Option<ClientTls>,
    /// The path that spans are sent to; begins with a slash.
    pub path: String,
}

/// Whose `traceparent` is followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Follow {
    /// That of trusted proxies, and their decision.
    #[default]
    Trusted,
    /// That of all clients; the decision of trusted proxies only.
    All,
    /// Nobody's.
    None,
}

/// A part of all traces, told by the random number in each trace's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// The least number that is part of it, 0 to 2^56: the numbers' range ends there.
    least: u64,
}

impl Ratio {
    /// How many different random numbers there are.
    const NUMBERS: u64 = 1 << 56;

    /// `part` of all traces, 0 to 1; none for any other number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "within 0 and 2^56, which doubles have exactly"
    )]
    pub fn of(part: f64) -> Option<Self> {
        let left_out = |part: f64| ((1.0 - part) * Self::NUMBERS as f64).round() as u64;
        (0.0..=1.0).contains(&part).then(|| Self { least: left_out(part) })
    }

    /// Whether it has the trace of that random number, of which the lower 56 bits count. The rule is
    /// that of OpenTelemetry's consistent sampling: of all who go by it, whoever takes fewer traces
    /// takes some of those that the others take.
    pub fn has(self, random: u64) -> bool {
        random % Self::NUMBERS >= self.least
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

    const LAST: u64 = Ratio::NUMBERS - 1;

    #[test]
    fn a_ratio_has_its_part_of_all_numbers() {
        // (part, the last number that it lacks, the first that it has)
        let table = [
            (0.0, Some(LAST), None),
            (0.25, Some(3 * (Ratio::NUMBERS / 4) - 1), Some(3 * (Ratio::NUMBERS / 4))),
            (0.5, Some(Ratio::NUMBERS / 2 - 1), Some(Ratio::NUMBERS / 2)),
            (1.0, None, Some(0)),
        ];
        for (part, lacks, has) in table {
            let ratio = Ratio::of(part).unwrap();
            assert!(lacks.is_none_or(|random| !ratio.has(random)), "{part}");
            assert!(has.is_none_or(|random| ratio.has(random)), "{part}");
        }
        for part in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::of(part), None);
        }
    }

    proptest! {
        #[test]
        fn who_takes_fewer_takes_some_of_the_same(a in 0.0..=1.0, b in 0.0..=1.0, random: u64) {
            let (fewer, more) = if a < b { (a, b) } else { (b, a) };
            let [fewer, more] = [fewer, more].map(|part| Ratio::of(part).unwrap());
            prop_assert!(!fewer.has(random) || more.has(random));
            // What stands before the lower 56 bits is no part of the decision.
            prop_assert_eq!(more.has(random), more.has(random ^ (0xff << 56)));
        }
    }
}
