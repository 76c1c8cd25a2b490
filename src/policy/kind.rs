//! What the [`Kind`] of a rule decides while the file is read and shown, and [`WrittenLimit`], a
//! limit as it is written.

use super::Kind;
use super::bucket_changes::Effect;
use crate::limit::calendar::Calendar;
use crate::limit::concurrency::Concurrency;
use crate::limit::cost::greatest_common_divisor;
use crate::limit::fixed_window::FixedWindow;

impl Kind {
    /// The setting that a grant must have, and a table with it.
    pub const fn grant_example(self) -> (&'static str, &'static str) {
        match self {
            Self::TokenBucket => ("rate", "{ rate = \"10/s\", burst = 20 }"),
            Self::FixedWindow => ("limit", "{ limit = \"10000/d\" }"),
            Self::Concurrency => ("limit", "{ limit = 20 }"),
            Self::SlidingWindow => ("limit", "{ limit = \"100/m\" }"),
            Self::LeakyBucket => ("rate", "{ rate = \"100/s\", max_delay = \"500ms\" }"),
        }
    }

    /// A value of `limit`, for kinds that have no other setting.
    pub const fn limit_example(self) -> Option<&'static str> {
        match self {
            Self::FixedWindow => Some("\"10000/d\""),
            Self::SlidingWindow => Some("\"100/m\""),
            Self::Concurrency => Some("20"),
            Self::TokenBucket | Self::LeakyBucket => None,
        }
    }

    /// What of a limit with this capacity may be used at once, in a few words.
    pub fn at_once(self, capacity: u64) -> String {
        match self {
            Self::TokenBucket | Self::LeakyBucket | Self::FixedWindow => {
                format!("burst {capacity}")
            }
            Self::SlidingWindow => "in any window".to_owned(),
            Self::Concurrency => "until its response ends".to_owned(),
        }
    }

    /// Whether a limit of it bounds what passes in any span, wherever that begins.
    pub const fn bounds_any_span(self) -> bool {
        match self {
            Self::TokenBucket | Self::LeakyBucket | Self::SlidingWindow => true,
            Self::FixedWindow | Self::Concurrency => false,
        }
    }

    /// Whether buckets of one kind are read as buckets of the other.
    pub fn has_buckets_of(self, other: Self) -> bool {
        let counts = |kind| match kind {
            // A leaky bucket counts in a token bucket.
            Self::LeakyBucket => Self::TokenBucket,
            Self::TokenBucket | Self::FixedWindow | Self::SlidingWindow | Self::Concurrency => kind,
        };
        counts(self) == counts(other)
    }

    /// What happens to buckets if their limits change, and which changes these are.
    pub const fn changed_limits(self) -> (Effect, &'static str) {
        match self {
            Self::TokenBucket => (Effect::KeepFraction, "rate or burst changes"),
            Self::LeakyBucket => (Effect::KeepFraction, "rate or delay changes"),
            Self::FixedWindow => (Effect::KeepUsed, "limit, zone or anchor changes"),
            Self::Concurrency => (Effect::KeepHeld, "limit changes"),
            Self::SlidingWindow => (Effect::KeepUsed, "limit or window changes"),
        }
    }
}

/// A limit as written in the file: one variant for each setting that sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WrittenLimit {
    /// `rate`: tokens that a bucket gains per period.
    Rate(Rate),
    /// `limit`: maximum number of tokens in any window as long as the period.
    Limit(Rate),
    /// `limit` of a fixed window: tokens in each calendar period.
    Window(FixedWindow),
    /// `rate` and `max_delay` of a leaky bucket.
    Leaky {
        /// At which requests pass.
        rate: Rate,
        /// Longest time that a request waits, in microseconds.
        max_delay_us: u64,
    },
    /// `limit` of requests in flight.
    InFlight(Concurrency),
    /// `limit` of a sliding window: tokens in any window as long as the period.
    Sliding(Rate),
}

impl WrittenLimit {
    /// The periods of a fixed window.
    pub const fn calendar(self) -> Option<Calendar> {
        match self {
            Self::Window(window) => Some(window.calendar()),
            Self::Rate(_)
            | Self::Limit(_)
            | Self::Leaky { .. }
            | Self::InFlight(_)
            | Self::Sliding(_) => None,
        }
    }

    /// Whether the limit has a burst apart from its number.
    pub const fn has_burst(self) -> bool {
        matches!(self, Self::Rate(_) | Self::Limit(_))
    }

    /// Longest time that a request waits in a leaky bucket, in microseconds.
    pub const fn max_delay_us(self) -> Option<u64> {
        match self {
            Self::Leaky { max_delay_us, .. } => Some(max_delay_us),
            Self::Rate(_)
            | Self::Limit(_)
            | Self::Window(_)
            | Self::InFlight(_)
            | Self::Sliding(_) => None,
        }
    }

    /// What it allows, the same for equal limits: `60/m` is the same rate as `1/s`.
    pub fn amount(self) -> String {
        match self {
            Self::Rate(rate) | Self::Leaky { rate, .. } => rate.reduced(),
            // Tokens in any window as long as the period.
            Self::Limit(rate) | Self::Sliding(rate) => {
                format!("{}/{}us", rate.tokens, rate.period_us)
            }
            Self::Window(_) | Self::InFlight(_) => self.to_string(),
        }
    }

    /// Name of the setting.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Rate(_) | Self::Leaky { .. } => "rate",
            Self::Limit(_) | Self::Window(_) | Self::InFlight(_) | Self::Sliding(_) => "limit",
        }
    }
}

impl std::fmt::Display for WrittenLimit {
    /// The value of the setting: `100/s`, `1000/h`, `20 in flight`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate(rate)
            | Self::Limit(rate)
            | Self::Leaky { rate, .. }
            | Self::Sliding(rate) => rate.fmt(formatter),
            Self::Window(window) => {
                write!(formatter, "{}/{}", window.limit(), window.calendar().period().word())
            }
            Self::InFlight(concurrency) => write!(formatter, "{} in flight", concurrency.limit()),
        }
    }
}

/// A number of tokens per period as written in the file: `tokens` per `period_us`, not reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Tokens per period.
    pub tokens: u64,
    /// Length of the period, in microseconds.
    pub period_us: u64,
}

impl Rate {
    fn reduced(self) -> String {
        let Self { tokens, period_us } = self;
        let divisor = greatest_common_divisor(tokens, period_us).max(1);
        format!("{}/{}us", tokens / divisor, period_us / divisor)
    }
}

impl std::fmt::Display for Rate {
    /// The syntax of the file: `100/s`, `5/250ms`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [(&str, u64); 5] = [
            ("d", 86_400_000_000),
            ("h", 3_600_000_000),
            ("m", 60_000_000),
            ("s", 1_000_000),
            ("ms", 1_000),
        ];
        let Self { tokens, period_us } = *self;
        match UNITS.into_iter().find(|(_, us)| period_us.is_multiple_of(*us)) {
            Some((unit, us)) if us == period_us => write!(formatter, "{tokens}/{unit}"),
            Some((unit, us)) => write!(formatter, "{tokens}/{}{unit}", period_us / us),
            None => write!(formatter, "{tokens}/{period_us}us"),
        }
    }
}
