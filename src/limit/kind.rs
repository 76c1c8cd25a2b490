//! [`Limit`]: the parameters of one limit, of any kind.

use super::bucket::Bucket;
use super::calendar::{Bounds, Calendar, Period};
use super::charge::Mode;
use super::concurrency::entries::Entries;
use super::concurrency::{Concurrency, LEASE_US, Statement, retry_guess_us};
use super::double;
use super::fixed_window::{FixedWindow, Overage};
use super::reading::Times;
use super::share::Share;
use super::sliding_window::SlidingWindow;
use super::stamp_log::StampLog;
use super::token_bucket::{TokenBucket, TokenBucketError};
use super::verdict::Standing;
use crate::base::duration::{MICROS_PER_SECOND, seconds_up};
use crate::base::now::Now;

/// Parameters of a limit. One variant for each kind.
///
/// All kinds count in *units*, so that a store compares and subtracts integers without knowing the
/// kind. A bucket's level is the number of available units, at most [`full`](Self::full). It is
/// below zero while the bucket is in debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Tokens that are added at a constant rate, up to the burst.
    TokenBucket(TokenBucket),
    /// A number of tokens in each calendar period.
    FixedWindow(FixedWindow),
    /// A number of units that requests in flight hold.
    Concurrency(Concurrency),
    /// A number of tokens in any window of a length.
    SlidingWindow(SlidingWindow),
}

/// Numbers of the kinds in a call of `take.lua`.
const TOKEN_BUCKET: u8 = 1;
const FIXED_WINDOW: u8 = 2;
const CONCURRENCY: u8 = 4;
const SLIDING_WINDOW: u8 = 3;

/// Of an exported limit: a fixed window that warns, or allows more than the limit.
const FIXED_WINDOW_WITH_OVERAGE: u8 = 5;

/// Why a bucket refuses requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What is the matter with the limit, in a few words.
    pub what: &'static str,
    /// Whether the time until it allows the request is a guess.
    pub is_guess: bool,
}

/// Name of a command of Redis, and arguments.
pub type ScriptCommand = (&'static str, &'static [&'static str]);

/// Flags of a charge in a call of `take.lua`.
const SHADOW: u8 = 1;
const WITH_TIMES: u8 = 2;
const WITH_OVERAGE: u8 = 4;

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
            // These count in the smallest parts that a cost can have. A sliding window counts whole
            // tokens: a cost with decimals is an error of the configuration.
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => Ok(*self),
        }
    }

    /// The same limit in units in which [`slowed`](Self::slowed) is exact; `None` if they would be
    /// too many.
    pub fn adaptable(&self) -> Option<Self> {
        match self {
            Self::TokenBucket(bucket) => bucket.adaptable().map(Self::TokenBucket),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => Some(*self),
        }
    }

    /// The same limit with this part of its rate, in hundredths; the same if it has no rate. Levels
    /// are those of the whole rate, so a store takes either for a bucket: it refills by the rate of
    /// the charge since the last one.
    #[must_use]
    pub fn slowed(&self, hundredths: u16) -> Self {
        match self {
            Self::TokenBucket(bucket) => Self::TokenBucket(bucket.slowed(hundredths)),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => *self,
        }
    }

    /// Parts of a token, at least 1. Charges of this limit are counted in these.
    pub const fn parts(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.parts(),
            Self::FixedWindow(_) => FixedWindow::PARTS,
            Self::Concurrency(_) => Concurrency::PARTS,
            Self::SlidingWindow(_) => 1,
        }
    }

    /// Largest number of tokens that requests can take at once, at least 1.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.burst(),
            Self::FixedWindow(window) => window.limit(),
            Self::SlidingWindow(window) => window.limit(),
            Self::Concurrency(concurrency) => concurrency.limit(),
        }
    }

    /// Microseconds in which an empty bucket becomes full, or the length of the current period or
    /// of the window; 0 if requests hold units.
    pub fn window_us(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.window_us(),
            Self::FixedWindow(window) => window.window_us(),
            Self::Concurrency(_) => 0,
            Self::SlidingWindow(window) => window.window_us(),
        }
    }

    /// Length of the [window](Self::window_us) in whole seconds, rounded up, at least 1; `None` if
    /// requests hold units.
    pub fn window_seconds(&self) -> Option<u64> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => {
                Some(seconds_up(self.window_us()).max(1))
            }
            Self::Concurrency(_) => None,
        }
    }

    /// Level of a full bucket in units, 1 to [`MAX_UNITS`](super::MAX_UNITS).
    pub const fn full(&self) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.full(),
            Self::FixedWindow(window) => window.full(),
            Self::Concurrency(concurrency) => concurrency.full(),
            Self::SlidingWindow(window) => window.full(),
        }
    }

    /// Highest valid level in units: full, but of a fixed window, in which an operator may grant
    /// more.
    pub const fn highest(&self) -> i64 {
        match self {
            Self::FixedWindow(window) => window.highest(),
            Self::TokenBucket(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => self.full(),
        }
    }

    /// Lowest valid level in units, at most zero. Larger debts are cut off here, so that a corrupt
    /// value in the store cannot block a client forever.
    pub const fn lowest(&self) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.lowest(),
            Self::FixedWindow(window) => window.lowest(),
            // Below zero after the limit was lowered.
            Self::Concurrency(_) => -super::MAX_UNITS,
            // A debt is stamps of the time at which it is settled.
            Self::SlidingWindow(_) => 0,
        }
    }

    /// Converts [`parts`](Self::parts) of a token to units. Saturates.
    pub const fn units(&self, parts: u64) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.units(parts),
            Self::FixedWindow(window) => window.units(parts),
            Self::Concurrency(concurrency) => concurrency.units(parts),
            Self::SlidingWindow(window) => window.units(parts),
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

    /// Whether a bucket regains units at a constant rate. Otherwise it is full again at once, when
    /// its period ends, or regains units when its stamps leave the window.
    pub const fn refills(&self) -> bool {
        match self {
            Self::TokenBucket(_) => true,
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => false,
        }
    }

    /// The window, of a kind whose state is a [`StampLog`].
    #[inline]
    pub const fn log(&self) -> Option<SlidingWindow> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => None,
            Self::SlidingWindow(window) => Some(*window),
        }
    }

    /// Whether requests hold the units that they take, until they end. Then a store computes the
    /// level from what is held, and keeps no bucket.
    pub const fn is_held(&self) -> bool {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => false,
            Self::Concurrency(_) => true,
        }
    }

    /// Level at which requests hold `held` units on one gateway, which may grant `share` of the
    /// limit; `None` for kinds whose units requests do not hold.
    pub fn free(&self, held: impl FnOnce() -> i64, share: Share) -> Option<i64> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => None,
            // One of n gateways takes n times the units.
            Self::Concurrency(concurrency) => {
                let held = held().saturating_mul(share.gateways().into());
                Some(concurrency.full().saturating_sub(held))
            }
        }
    }

    /// Units that a bucket below full regains in `us` microseconds, before its period ends.
    /// Saturates.
    pub const fn units_in(&self, us: u64) -> i64 {
        match self {
            Self::TokenBucket(bucket) => bucket.units_in(us),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => 0,
        }
    }

    /// Microseconds until a bucket below full has regained `missing` units, rounded up; 0 if none
    /// are missing, and without a refill.
    pub const fn time_to_add_us(&self, missing: i64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.time_to_add_us(missing),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => 0,
        }
    }

    /// Microseconds in which a bucket regains `units` that a request took, of kinds whose buckets
    /// cheaper requests can keep from becoming full; `None` for others.
    pub fn time_to_earn_us(&self, units: i64) -> Option<u64> {
        match self {
            Self::TokenBucket(bucket) => Some(bucket.time_to_add_us(units)),
            Self::SlidingWindow(window) => Some(window.window_us()),
            // A fixed window is full at the start of each period.
            Self::FixedWindow(_) | Self::Concurrency(_) => None,
        }
    }

    /// Level and times of a bucket that is reserved for a request for another `us` microseconds,
    /// which then takes `units`.
    pub fn reserved(&self, units: i64, us: u64, times: Times) -> (i64, Times) {
        match self {
            Self::SlidingWindow(window) => {
                let left_us = us.saturating_add(window.window_us());
                (0, Times { left_us, wait_us: left_us })
            }
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {
                let left = self.full().saturating_sub(units);
                (left.saturating_sub(self.units_in(us)), times)
            }
        }
    }

    /// Microseconds from `unix_us` (Unix time) until the period ends; 0 for kinds without periods.
    /// The clock is that of the store that decided. Of requests in flight, a guess of when a unit
    /// is free.
    pub fn left_us(&self, unix_us: u64) -> u64 {
        match self {
            Self::TokenBucket(_) | Self::SlidingWindow(_) => 0,
            Self::FixedWindow(window) => window.left_us(unix_us),
            Self::Concurrency(_) => retry_guess_us(unix_us),
        }
    }

    /// [`left_us`](Self::left_us) at `now`.
    #[inline]
    pub fn left_us_at(&self, now: Now) -> u64 {
        match self {
            Self::TokenBucket(_) | Self::SlidingWindow(_) => 0,
            Self::FixedWindow(window) => window.left_us(now.unix_us),
            Self::Concurrency(_) => retry_guess_us(now.us),
        }
    }

    /// The periods in which the limit counts; `None` for kinds without periods.
    pub const fn calendar(&self) -> Option<Calendar> {
        match self {
            Self::TokenBucket(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => None,
            Self::FixedWindow(window) => Some(window.calendar()),
        }
    }

    /// The periods of a quota: a limit whose lost count would be missed, since it counts for an
    /// hour or longer without a refill. `None` for other limits.
    #[inline]
    pub fn quota_calendar(&self) -> Option<Calendar> {
        self.calendar()
            .filter(|calendar| !matches!(calendar.period(), Period::Second | Period::Minute))
    }

    /// The period of a quota at `unix_us` (Unix time), in which usage is counted.
    pub fn usage_period(&self, unix_us: u64) -> Option<Bounds> {
        Some(self.quota_calendar()?.bounds(unix_us))
    }

    /// The period of a quota that a decision at `unix_us` (Unix time) counted in, by the gateway's
    /// clock and the `left_us` microseconds that the deciding store said were left of it. The
    /// clocks may differ by up to half a period.
    #[inline]
    pub fn usage_period_with(&self, left_us: u64, unix_us: u64) -> Option<Bounds> {
        let calendar = self.quota_calendar()?;
        let end_us = unix_us.saturating_add(left_us);
        let bounds = calendar.bounds(unix_us);
        let nearest = [bounds.end_us, bounds.start_us, bounds.next_end_us]
            .into_iter()
            .min_by_key(|end| end.abs_diff(end_us))
            .unwrap_or(bounds.end_us);
        Some(if nearest == bounds.end_us {
            bounds
        } else {
            calendar.containing(nearest.saturating_sub(1))
        })
    }

    /// Time zone of the periods in which usage is counted.
    pub fn usage_zone(&self) -> &'static str {
        self.quota_calendar().map_or("UTC", Calendar::zone)
    }

    /// Whether a lost count would be missed: the limit counts for an hour or longer, and what was
    /// used does not come back before. Quotas and sliding windows.
    pub fn counts_for_hours(&self) -> bool {
        match self {
            Self::SlidingWindow(_) => self.window_us() >= 3_600 * MICROS_PER_SECOND,
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {
                self.quota_calendar().is_some()
            }
        }
    }

    /// Time at which a bucket that is empty at `now` is full, if no tokens are taken. Of a fixed
    /// window in Unix time, as its [`Bucket`]: the end of its period.
    pub fn empty_full_at(&self, now: Now) -> u64 {
        match self {
            Self::TokenBucket(bucket) => now.us.saturating_add(bucket.window_us()),
            Self::FixedWindow(window) => window.bucket(0, now).at,
            Self::Concurrency(_) => now.us,
            Self::SlidingWindow(window) => now.us.saturating_add(window.window_us()),
        }
    }
}

// === Transition ===

impl Limit {
    /// A bucket that has this level at `now`.
    pub fn bucket(&self, level: i64, now: Now) -> Bucket {
        match self {
            Self::TokenBucket(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => {
                Bucket { level, at: now.us }
            }
            Self::FixedWindow(window) => window.bucket(level, now),
        }
    }

    /// A bucket of a kind without refill that has this level at `now`, and is full at `full_at`, in
    /// microseconds. A fixed window is full at the end of the current period, or of the next one.
    pub fn bucket_until(&self, level: i64, full_at: u64, now: Now) -> Bucket {
        match self {
            Self::TokenBucket(_) | Self::Concurrency(_) => self.bucket(level, now),
            Self::FixedWindow(window) => window.bucket_until(level, now.at(full_at).unix_us, now),
            Self::SlidingWindow(window) => {
                Bucket { level, at: full_at.saturating_sub(window.window_us()) }
            }
        }
    }

    /// Returns the bucket as of `now`: see [`Bucket::refilled`].
    #[inline]
    pub fn refilled(&self, bucket: Bucket, now: Now) -> Bucket {
        match self {
            Self::TokenBucket(parameters) => parameters.refilled(bucket, now.us),
            Self::FixedWindow(window) => window.refilled(bucket, now),
            Self::Concurrency(_) => bucket,
            Self::SlidingWindow(window) => window.refilled(bucket, now.us),
        }
    }

    /// Converts a bucket that was counted under `was` to this limit: a token bucket at the same
    /// fraction of full, any window with the same tokens used. Of another kind, it is full.
    pub fn converted(&self, bucket: Bucket, was: &Self) -> Bucket {
        match (self, was) {
            (Self::TokenBucket(parameters), Self::TokenBucket(was)) => {
                parameters.rescaled(bucket, was.full())
            }
            (Self::FixedWindow(window), Self::FixedWindow(was)) => {
                window.with_limit_changed(bucket, was.full())
            }
            (Self::SlidingWindow(window), Self::SlidingWindow(was)) => {
                window.with_limit_changed(bucket, was.full())
            }
            (
                Self::TokenBucket(_)
                | Self::FixedWindow(_)
                | Self::SlidingWindow(_)
                | Self::Concurrency(_),
                _,
            ) => Bucket { level: self.full(), at: 0 },
        }
    }

    /// Converts a number of units that requests took under `was`, rounded up.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "units are at most a few full buckets, where doubles are exact enough"
    )]
    pub fn converted_units(&self, units: i64, was: &Self) -> i64 {
        match (self, was) {
            (Self::FixedWindow(_), Self::FixedWindow(_))
            | (Self::SlidingWindow(_), Self::SlidingWindow(_)) => units,
            _ if self == was => units,
            _ => (units as f64 / was.full() as f64 * self.full() as f64).ceil() as i64,
        }
    }

    /// Time in microseconds at which the bucket is full if no tokens are taken, by the clocks of
    /// `now`.
    pub fn full_at(&self, bucket: Bucket, now: Now) -> u64 {
        match self {
            Self::TokenBucket(parameters) => parameters.full_at(bucket),
            Self::FixedWindow(window) => window.full_at(bucket, now),
            Self::Concurrency(_) => bucket.at,
            Self::SlidingWindow(window) => window.full_at(bucket),
        }
    }
}

// === Standing ===

impl Limit {
    /// Standing of a bucket at `level` for requests of `cost` parts of a token, on a gateway that
    /// grants `share` of it. `times` are those of the bucket at the time of the level.
    pub const fn standing(&self, level: i64, cost: u64, share: Share, times: Times) -> Standing {
        let (needed, remaining) = (share.needed(self, cost), share.tokens(self, level));
        match self {
            Self::TokenBucket(bucket) => bucket.standing(level, needed, remaining),
            Self::FixedWindow(window) => window.standing(level, needed, remaining, times.left_us),
            Self::SlidingWindow(window) => window.standing(level, needed, remaining, times),
            Self::Concurrency(concurrency) => {
                concurrency.standing(level, needed, remaining, times.left_us)
            }
        }
    }

    /// How a refusal by a bucket is explained.
    pub const fn shortage(&self) -> Shortage {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => {
                Shortage { what: "is exhausted", is_guess: false }
            }
            Self::Concurrency(_) => {
                Shortage { what: "is used by requests in flight", is_guess: true }
            }
        }
    }

    /// Whether requests that the bucket does not hold are allowed, and take their tokens.
    pub fn counts_overage(&self) -> bool {
        matches!(self, Self::FixedWindow(window) if window.overage() == Overage::Count)
    }

    /// Whether a client is warned at `level`: it has used the share of its quota that `soft` sets.
    pub fn is_soft_exceeded(&self, level: i64) -> bool {
        matches!(self, Self::FixedWindow(window)
            if window.soft_level().is_some_and(|soft_level| level <= soft_level))
    }

    /// Thousandths of the limit from which on clients are warned.
    pub fn soft_thousandths(&self) -> Option<u16> {
        match self {
            Self::FixedWindow(window) => Some(window.soft()).filter(|soft| *soft > 0),
            Self::TokenBucket(_) | Self::Concurrency(_) | Self::SlidingWindow(_) => None,
        }
    }

    /// Whether clients are warned at some level.
    pub fn has_soft(&self) -> bool {
        matches!(self, Self::FixedWindow(window) if window.soft() > 0)
    }

    /// The same limit without a warning and without overage.
    #[must_use]
    pub const fn without_events(self) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.with(Overage::Refuse, 0)),
            Self::TokenBucket(_) | Self::SlidingWindow(_) | Self::Concurrency(_) => self,
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
    /// doubles. The second is the level of a full bucket. What else the kind needs is appended to
    /// `more`, which follows the parameters of all buckets. `now` is the time of the call,
    /// `statement` returns what the gateway holds of the bucket.
    pub fn encode(
        &self,
        call: &mut Vec<u8>,
        more: &mut Vec<u8>,
        now: Now,
        statement: impl FnOnce() -> Statement,
    ) {
        let (kind, first) = match self {
            Self::TokenBucket(bucket) => (TOKEN_BUCKET, bucket.units_per_us()),
            Self::FixedWindow(window) => {
                let bounds = window.calendar().bounds(now.unix_us);
                more.extend_from_slice(&double(bounds.end_us.cast_signed()));
                more.extend_from_slice(&double(bounds.next_end_us.cast_signed()));
                (FIXED_WINDOW, bounds.start_us.cast_signed())
            }
            Self::Concurrency(_) => {
                let statement = statement();
                more.extend_from_slice(&statement.gateway.to_le_bytes());
                more.extend_from_slice(&double(statement.number.cast_signed()));
                more.extend_from_slice(&double(statement.units.unwrap_or(-1)));
                (CONCURRENCY, LEASE_US.cast_signed())
            }
            Self::SlidingWindow(window) => (SLIDING_WINDOW, window.window_us().cast_signed()),
        };
        call.push(kind);
        call.extend_from_slice(&double(first));
        call.extend_from_slice(&double(self.full()));
    }

    /// Appends what a check takes from the bucket to a call of `take.lua`: the units of `cost`, and
    /// flags, of which [`WITH_TIMES`] asks for the times that [`times_in`](Self::times_in) reads.
    pub fn encode_charge(&self, call: &mut Vec<u8>, cost: u64, mode: Mode) {
        let shadow = if mode == Mode::Shadow { SHADOW } else { 0 };
        let further = match self {
            Self::FixedWindow(_) if self.counts_overage() && mode == Mode::Enforce => WITH_OVERAGE,
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => 0,
            Self::SlidingWindow(_) => WITH_TIMES,
        };
        call.extend_from_slice(&double(self.units(cost)));
        call.push(shadow | further);
    }

    /// Times of a bucket in a reply of `take.lua` at `unix_us` (Unix time). `next` returns the
    /// number that follows in it; `None` if one that the kind needs is missing.
    pub fn times_in(&self, mut next: impl FnMut() -> Option<u64>, unix_us: u64) -> Option<Times> {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => {
                Some(Times::period(self.left_us(unix_us)))
            }
            Self::SlidingWindow(_) => Some(Times { wait_us: next()?, left_us: next()? }),
        }
    }

    /// The `times` in a reply, for the check at `order` of those that are decided together at
    /// `unix_us`.
    pub const fn times_of(&self, times: Times, unix_us: u64, order: u64) -> Times {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => times,
            // Requests that are refused together get different guesses.
            Self::Concurrency(_) => Times::period(retry_guess_us(unix_us.wrapping_add(order))),
        }
    }

    /// Commands of Redis that `take.lua` needs for this kind alone, each with the arguments after
    /// the key that change nothing if there is none.
    pub const fn script_commands(&self) -> &'static [ScriptCommand] {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) | Self::Concurrency(_) => &[],
            Self::SlidingWindow(_) => &[("GETRANGE", &["0", "0"]), ("SETRANGE", &["0", ""])],
        }
    }

    /// Bucket at `now` from its stored value in Redis. An invalid value counts as no value, which
    /// is a full bucket. Only `take.lua` decodes buckets in operation; tests compare it with this.
    pub fn decode(&self, stored: &[u8], now: Now) -> Bucket {
        match self {
            Self::TokenBucket(bucket) => bucket.decode(stored, now.us),
            Self::FixedWindow(window) => {
                window.decode(stored, window.calendar().bounds(now.unix_us), now.unix_us)
            }
            Self::Concurrency(concurrency) => {
                let entries = Entries::read(Some(stored), Statement::NONE, now.unix_us);
                Bucket { level: concurrency.full() - entries.held(), at: now.us }
            }
            Self::SlidingWindow(window) => StampLog::decode(stored).bucket(window, now.us),
        }
    }

    /// Appends the limit to `bytes`, for [`import`](Self::import) in another process.
    pub fn export(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::TokenBucket(bucket) => {
                let (tokens, period_us, burst, parts) = bucket.parameters();
                bytes.push(TOKEN_BUCKET);
                for number in [tokens, period_us, burst, parts.into()] {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
            }
            Self::FixedWindow(window) => {
                let calendar = window.calendar();
                let (period, zone) = (calendar.period(), calendar.zone());
                let period = Period::ALL.iter().position(|other| *other == period);
                // Other versions know windows without further settings.
                if window.overage() == Overage::Refuse && window.soft() == 0 {
                    bytes.push(FIXED_WINDOW);
                } else {
                    bytes.push(FIXED_WINDOW_WITH_OVERAGE);
                    bytes.push(u8::from(window.overage() == Overage::Count));
                    bytes.extend_from_slice(&window.soft().to_le_bytes());
                }
                bytes.extend_from_slice(&window.limit().to_le_bytes());
                bytes.push(u8::try_from(period.unwrap_or_default()).unwrap_or_default());
                bytes.push(calendar.anchor());
                // Names of zones are far shorter than 255 bytes.
                bytes.push(u8::try_from(zone.len()).unwrap_or_default());
                bytes.extend_from_slice(zone.as_bytes());
            }
            Self::Concurrency(concurrency) => {
                bytes.push(CONCURRENCY);
                bytes.extend_from_slice(&concurrency.limit().to_le_bytes());
            }
            Self::SlidingWindow(window) => {
                bytes.push(SLIDING_WINDOW);
                bytes.extend_from_slice(&window.limit().to_le_bytes());
                bytes.extend_from_slice(&window.window_us().to_le_bytes());
            }
        }
    }

    /// Reads the limit of a log as [`import`](Self::import); `None` if it is malformed, or of a
    /// kind without logs.
    pub fn import_window(bytes: &mut &[u8]) -> Option<SlidingWindow> {
        Self::import(bytes)?.log()
    }

    /// Reads a limit of [`export`](Self::export), and advances `bytes` past it; `None` if it is
    /// malformed.
    pub fn import(bytes: &mut &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        *bytes = rest;
        if *kind == FIXED_WINDOW_WITH_OVERAGE {
            let ([overage, soft @ ..], rest) = bytes.split_first_chunk::<3>()?;
            let (overage, soft) = (*overage, u16::from_le_bytes(*soft));
            let mut window = vec![FIXED_WINDOW];
            window.extend_from_slice(rest);
            let mut left = &window[..];
            let Self::FixedWindow(window) = Self::import(&mut left)? else { return None };
            *bytes = rest.get(rest.len().checked_sub(left.len())?..)?;
            let overage = if overage == 0 { Overage::Refuse } else { Overage::Count };
            return Some(Self::FixedWindow(window.with(overage, soft)));
        }
        let mut number = || {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u64::from_le_bytes(*number))
        };
        match *kind {
            TOKEN_BUCKET => {
                let limit = Self::token_bucket(number()?, number()?, number()?).ok()?;
                limit.with_parts(u16::try_from(number()?).ok()?).ok()
            }
            FIXED_WINDOW => {
                let limit = number()?;
                let ([period, anchor, length], rest) = bytes.split_first_chunk()?;
                let (zone, rest) = rest.split_at_checked(usize::from(*length))?;
                *bytes = rest;
                let period = *Period::ALL.get(usize::from(*period))?;
                let calendar =
                    Calendar::new(period, std::str::from_utf8(zone).ok()?, *anchor).ok()?;
                FixedWindow::new(limit, calendar).ok().map(Self::FixedWindow)
            }
            CONCURRENCY => Concurrency::new(number()?).ok().map(Self::Concurrency),
            SLIDING_WINDOW => {
                SlidingWindow::new(number()?, number()?).ok().map(Self::SlidingWindow)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600 * MICROS_PER_SECOND;

    #[test]
    fn counts_of_an_hour_or_longer_would_be_missed() {
        let window = |period| {
            let calendar = Calendar::new(period, "UTC", 1).unwrap();
            Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap())
        };
        let log = |window_us| Limit::SlidingWindow(SlidingWindow::new(9, window_us).unwrap());
        let table = [
            (window(Period::Minute), false),
            (window(Period::Hour), true),
            (window(Period::Year), true),
            (log(HOUR - 1), false),
            (log(HOUR), true),
            (Limit::token_bucket(1, 24 * HOUR, 9).unwrap(), false),
            (Limit::Concurrency(Concurrency::new(9).unwrap()), false),
        ];
        for (limit, expected) in table {
            assert_eq!(limit.counts_for_hours(), expected, "{limit:?}");
        }
    }
}
