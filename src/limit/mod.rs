//! The arithmetic of limits. Pure: no I/O, no clock, no async. Functions take the time in
//! microseconds by the process' clock, or as [`Now`](crate::base::now::Now) where calendar periods
//! need Unix time. All state is in integers.
//!
//! Reading order:
//! - [`kind`]: [`Limit`], the parameters of a limit of any kind;
//! - [`token_bucket`], [`leaky_bucket`], [`fixed_window`], [`sliding_window`], [`concurrency`]: the
//!   kinds; [`calendar`]: the periods of fixed windows; [`stamp_log`]: the log of a sliding window;
//! - [`bucket`]: state of one bucket; [`reading`]: that state as others see it; [`reported`]: what
//!   a shared store said about it, and until when that counts;
//! - [`stored`]: what a store in this process keeps of it, and hands over to another one;
//! - [`cost`]: tokens that a request takes;
//! - [`charge`]: one request checked against several buckets, all or nothing;
//! - [`verdict`]: the decision, and the [`Standing`](verdict::Standing) that a client gets:
//!   remaining, retry after, reset;
//! - [`grant`]: the limit that a client has under a rule, and how it is written;
//! - [`adjust`]: reset and grant by an operator; [`top_up`]: what an operator adds to a quota until
//!   a time; [`returned`]: tokens that a request took and does not use;
//! - [`adapt`]: rates that fall while an upstream is unhealthy; [`ban`]: when clients that go on
//!   after refusals are refused for longer;
//! - [`lease`]: tokens that a gateway borrows from the shared store, and spends without a call;
//! - [`breaker`], [`membership`], [`share`], [`debt`]: outages of the shared store: when to call
//!   it, how many gateways share it, how much one of them may grant locally, and its debt for that;
//!   [`agreement`]: whether these gateways have the same limits;
//! - [`in_flight`]: requests in flight at an upstream: how many, and which are refused first;
//! - [`top_k`]: the clients with the most requests.
//!
//! # How to add a kind of limit
//!
//! 1. A file here with the parameters of the kind, as `token_bucket.rs`. It defines the transition
//!    (`refilled`, `rescaled`, `full_at`), the standing (`standing`), and `decode`, the reference
//!    for the value that is stored in Redis.
//! 2. A variant of [`Limit`]. The compiler then lists each `match` that needs an arm:
//!    - in [`kind`], the parameters, the transition, the standing, and the codec: what a call of
//!      `lua/take.lua` and its reply have of the kind, and which commands the script needs for it
//!      ([`Limit::import`] reads a number, so that the compiler does not ask for its arm);
//!    - in [`stored`], what a store in this process keeps of a bucket beside its level and time,
//!      the start value of an unknown bucket, and what is handed over to the next process;
//!    - in [`reported`], how long a refusal is cached, and what is repaired after a failover;
//!    - in [`returned`], what a failed request gets back.
//! 3. In `lua/take.lua`, a function that creates the ones that read a stored bucket and write it,
//!    the number of the kind where they are called, and what it gives back, in `give_back`. A
//!    stored value must be invalid for all other kinds, by its length or by the sign of its last
//!    number. `store/redis/parity.rs` compares the script with this module.
//! 4. A way to configure it: a word of `config::words::Kind`. The compiler then lists each `match`
//!    in `policy/kind.rs` and the one in `policy/build/grant.rs`, whose arm calls a file in
//!    `policy/build/grant/` that reads the kind's settings of a grant. `WrittenLimit` in
//!    [`grant`] has the text that is shown. A cost that is not that of the route is computed
//!    in `policy/charges.rs`.
//!
//! Stores compare and subtract units, and pass what else they keep of a bucket to the functions of
//! [`stored`]; headers, metrics, own limits, `explain` and the admin API read the
//! [`Standing`](verdict::Standing). A kind whose standing depends on more than the available units
//! adds that number to [`Times`](reading::Times), as the end of a fixed window's period, and to the
//! reply of `lua/take.lua` if it does not follow from the time of the reply. A kind whose state is
//! more than a level and a time keeps the rest in a [`StampLog`](stamp_log::StampLog), or another
//! type that `store/memory/logs.rs` has beside the table. A kind whose units requests hold until
//! they end is [held](charge::held): `store::held` keeps them instead, and states them to Redis.
//!
//! Outside, files select the charges that are held, ask a limit whether its counts are kept over a
//! restart, as those of quotas and long sliding windows ([`Limit::quota_calendar`],
//! [`Limit::counts_for_hours`]), and show the calendar of a fixed window. `scripts/structure`
//! counts these places.

#![warn(missing_docs)]

pub mod adapt;
pub mod adjust;
pub mod agreement;
pub mod ban;
pub mod breaker;
pub mod bucket;
pub mod calendar;
pub mod charge;
pub mod concurrency;
pub mod cost;
pub mod debt;
pub mod fixed_window;
pub mod grant;
pub mod in_flight;
pub mod kind;
pub mod leaky_bucket;
pub mod lease;
pub mod membership;
pub mod reading;
pub mod reported;
pub mod returned;
pub mod share;
pub mod sliding_window;
pub mod stamp_log;
pub mod stored;
pub mod token_bucket;
pub mod top_k;
pub mod top_up;
pub mod verdict;

#[cfg(test)]
mod property_tests;

pub use kind::Limit;

/// Largest integer that every store represents exactly: a Lua number is an IEEE 754 double, exact
/// up to 2^53.
pub const MAX_UNITS: i64 = 1 << 53;

/// Largest debt of a bucket, as a multiple of its full level. Debts above it require more gateways
/// than this, and a limit that is so small that each of them grants a single request.
pub const MAX_DEBT_BURSTS: i64 = 1_000;

/// Encodes a number of units for Lua: as a little-endian double.
#[allow(clippy::cast_precision_loss, reason = "units are at most 2^53, or a power of two")]
pub fn double(units: i64) -> [u8; 8] {
    (units as f64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_encoded_as_lua_reads_them() {
        assert_eq!(double(0), [0; 8]);
        assert_eq!(double(1), [0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(double(-3), [0, 0, 0, 0, 0, 0, 0x08, 0xc0]);
        assert_eq!(double(MAX_UNITS), [0, 0, 0, 0, 0, 0, 0x40, 0x43]);
    }
}
