//! [`Limit`]: the parameters of one limit, of any kind.

use super::bucket::Bucket;
use super::double;
use super::share::Share;
use super::token_bucket::{TokenBucket, TokenBucketError};
use super::verdict::Standing;

/// Parameters of a limit. One variant for each kind.
///
/// All kinds count in *units*, so that a store compares and subtracts integers without knowing the
/// kind. A bucket's level is the number of available units, at most [`full`](Self::full). It is below
/// zero while the bucket is in debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Tokens that are added at a constant rate, up to the burst.
    TokenBucket(TokenBucket),
}

/// Number of the kind in a call of `take.lua`.
const TOKEN_BUCKET: u8 = 1;

// === Parameters ===

impl Limit {
    /// A token bucket of `tokens` per `period_us` microseconds, with a capacity of `burst` tokens.
    ///
    /// # Errors
    /// See [`TokenBucket::new`].
    pub const fn token_bucket(
        tokens: u64,
        period_us: u64,
        burst: u64,
    ) -> Result<Self, TokenBucketError> {
        match TokenBucket::new(tokens, period_us, burst) {
            Ok(bucket) => Ok(Self::TokenBucket(bucket)),
            Err(error) => Err(error),
        }
    }

    /// The same limit with tokens of `parts` parts, so that requests can take any number of these.
    ///
    /// # Errors
    /// See [`TokenBucket::with_parts`].
    pub const fn with_parts(&self, parts: u16) -> Result<Self, TokenBucketError> {
        match self {
            Self::TokenBucket(bucket) => match bucket.with_parts(parts) {
                Ok(bucket) => Ok(Self::TokenBucket(bucket)),
                Err(error) => Err(error),
            },
        }
    }

    /// Parts of a token, at least 1. Charges of this limit are counted in these.
    pub const fn parts(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.parts(),
        }
    }

    /// The arguments of [`token_bucket`](Self::token_bucket) and [`with_parts`](Self::with_parts) that
    /// create this limit.
    pub const fn parameters(&self) -> (u64, u64, u64, u16) {
        match self {
            Self::TokenBucket(bucket) => bucket.parameters(),
        }
    }

    /// Largest number of tokens that requests can take at once, at least 1.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.burst(),
        }
    }

    /// Microseconds in which an empty bucket becomes full.
    pub const fn window_us(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.window_us(),
        }
    }

    /// Level of a full bucket in units, 1 to [`MAX_UNITS`](super::MAX_UNITS).
    pub const fn full(&self) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.full(),
        }
    }

    /// Lowest valid level in units, below zero. Larger debts are cut off here, so that a corrupt
    /// value in the store cannot block a client forever.
    pub const fn lowest(&self) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.lowest(),
        }
    }

    /// Converts [`parts`](Self::parts) of a token to units. Saturates.
    pub const fn units(&self, parts: u64) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.units(parts),
        }
    }

    /// Converts whole tokens to units. Saturates.
    pub const fn token_units(&self, tokens: u64) -> i64 {
        self.units(tokens.saturating_mul(self.parts()))
    }

    /// Converts a level to whole tokens, rounded down: below zero, the debt is rounded up.
    pub const fn tokens(&self, level: i64) -> i64 {
        level.div_euclid(self.token_units(1))
    }

    /// Units that a bucket below full regains in `us` microseconds. Saturates.
    pub const fn units_in(&self, us: u64) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.units_in(us),
        }
    }

    /// Microseconds until a bucket below full has regained `missing` units, rounded up; 0 if none
    /// are missing.
    pub const fn time_to_add_us(&self, missing: i64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.time_to_add_us(missing),
        }
    }
}

// === Transition ===

impl Limit {
    /// Returns the bucket as of `now` (microseconds): see [`Bucket::refilled`].
    pub const fn refilled(&self, bucket: Bucket, now: u64) -> Bucket {
        match self {
            Self::TokenBucket(parameters) => parameters.refilled(bucket, now),
        }
    }

    /// Converts a bucket that was counted under `was` to this limit, at the same fraction of full.
    pub fn converted(&self, bucket: Bucket, was: &Self) -> Bucket {
        match (self, was) {
            (Self::TokenBucket(parameters), Self::TokenBucket(was)) => {
                parameters.rescaled(bucket, was.full())
            }
        }
    }

    /// Time in microseconds at which the bucket is full if no tokens are taken.
    pub const fn full_at(&self, bucket: Bucket) -> u64 {
        match self {
            Self::TokenBucket(parameters) => parameters.full_at(bucket),
        }
    }
}

// === Standing ===

impl Limit {
    /// Standing of a bucket at `level` for requests of `cost` parts of a token, on a gateway that grants `share`
    /// of it.
    pub const fn standing(&self, level: i64, cost: u64, share: Share) -> Standing {
        let (needed, remaining) = (share.needed(self, cost), share.tokens(self, level));
        match self {
            Self::TokenBucket(bucket) => bucket.standing(level, needed, remaining),
        }
    }

    /// Whether less than a fifth of a full bucket is left at `level`.
    pub const fn is_nearly_exhausted(&self, level: i64) -> bool {
        level < self.full() / 5
    }
}

// === Codec ===

impl Limit {
    /// Appends the parameters of a bucket to a call of `take.lua`: the number of the kind, and two
    /// doubles. The second is the level of a full bucket.
    pub fn encode(&self, call: &mut Vec<u8>) {
        let (kind, first) = match self {
            Self::TokenBucket(bucket) => (TOKEN_BUCKET, bucket.units_per_us()),
        };
        call.push(kind);
        call.extend_from_slice(&double(first));
        call.extend_from_slice(&double(self.full()));
    }

    /// Bucket at `now` from its stored value in Redis. An invalid value counts as no value, which is
    /// a full bucket. Only `take.lua` decodes buckets in operation; tests compare it with this.
    pub fn decode(&self, stored: &[u8], now: u64) -> Bucket {
        match self {
            Self::TokenBucket(bucket) => bucket.decode(stored, now),
        }
    }
}
