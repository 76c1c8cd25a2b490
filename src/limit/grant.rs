//! [`Grant`]: the limit that a client has under a rule, and how it is written.

use super::Limit;
use super::calendar::Calendar;
use super::concurrency::Concurrency;
use super::cost::greatest_common_divisor;
use super::fixed_window::FixedWindow;

/// The limit that a client has under a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Number by which buckets of this limit refer to it: its index in the policy's limits, or what
    /// the store put in its place.
    pub index: u32,
    /// The limit that the client is granted.
    pub limit: Limit,
    /// The limit as written, for display.
    pub written: WrittenLimit,
}

/// A grant of one client, which the file does not have, under one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnGrant {
    /// Hash of the rule's name: see its `salt`.
    pub rule: u128,
    /// What the client is granted.
    pub grant: Grant,
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

impl Grant {
    /// The same grant with `soft` and `overage` of another one, unless it `has` them itself. Only
    /// of quotas: other limits have neither.
    #[must_use]
    pub fn with_quota_terms_of(self, other: &Self, (has_soft, has_overage): (bool, bool)) -> Self {
        let (Limit::FixedWindow(own), Limit::FixedWindow(of)) = (self.limit, other.limit) else {
            return self;
        };
        if self.limit.quota_calendar().is_none() {
            return self;
        }
        let soft = if has_soft { own.soft() } else { of.soft() };
        let overage = if has_overage { own.overage() } else { of.overage() };
        let window = own.with(overage, soft);
        Self { limit: Limit::FixedWindow(window), written: WrittenLimit::Window(window), ..self }
    }
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
    /// The same rate in its lowest terms: `60/m` is `1/s`.
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
