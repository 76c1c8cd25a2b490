//! The usual token bucket, for the methods that compute in the client.

use tollgate::base::clock;
use tollgate::base::duration::MICROS_PER_SECOND;
use tollgate::limit::Limit as Kind;

/// The limit of a bucket, in the form that each method needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Tokens per second.
    pub(crate) rate: f64,
    /// Burst in tokens.
    pub(crate) burst: u64,
    /// The limit in the form of tollgate.
    pub(crate) kind: Kind,
}

/// A bucket as methods (b) and (c) store it: two fields of a hash.
pub(crate) struct Plain {
    /// Tokens in the bucket at `at`.
    pub(crate) tokens: f64,
    /// Time in seconds.
    pub(crate) at: f64,
}

impl Limit {
    /// A limit of `tokens` per `seconds`.
    pub(crate) fn new(tokens: u64, seconds: u64, burst: u64) -> Self {
        let kind = Kind::token_bucket(tokens, seconds * MICROS_PER_SECOND, burst).unwrap();
        Self { rate: tokens as f64 / seconds as f64, burst, kind }
    }

    /// Seconds until the bucket is full, rounded up, and one more.
    pub(crate) fn expires_after(&self, plain: &Plain) -> u64 {
        ((self.burst as f64 - plain.tokens) / self.rate).ceil() as u64 + 1
    }

    /// The bucket minus one token, if it has one.
    pub(crate) fn less_one(&self, kept: (Option<f64>, Option<f64>)) -> Option<Plain> {
        let now = clock::now() as f64 / 1e6;
        let burst = self.burst as f64;
        let tokens = match kept {
            (Some(tokens), Some(at)) => burst.min(tokens + (now - at).max(0.0) * self.rate),
            _ => burst,
        };
        (tokens >= 1.0).then_some(Plain { tokens: tokens - 1.0, at: now })
    }
}
