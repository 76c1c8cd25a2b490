//! What the [`Kind`] of a rule decides while the file is read and shown.

use super::Kind;
use super::bucket_changes::Effect;

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
