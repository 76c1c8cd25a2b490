//! `ban` of a rule, as written.

use super::row::DefaultValue::{Number, Text};
use super::row::Form::Duration;
use super::row::Range::{Between, Durations};
use super::row::Unit;
use super::tables::Field;
use super::walk::table;

table! {
    /// `ban = { after, within, for, grow, max }`: clients that go on after refusals are refused for
    /// longer.
    pub struct Ban {
        /// Number of refusals after which a client is banned.
        pub after: Field<u64> { default: Number(20), range: Between(1, 100_000) },
        /// Time in which these refusals are counted.
        pub within: Field<String> {
            default: Text("1m"),
            form: Duration(Unit::Seconds),
            range: Durations("1s", "1d"),
        },
        /// Length of a ban.
        pub r#for: Field<String> {
            default: Text("10m"),
            form: Duration(Unit::Seconds),
            range: Durations("1s", "30d"),
        },
        /// Factor by which each further ban is longer than the one before.
        pub grow: Field<u64> { default: Number(1), range: Between(1, 100) },
        /// Length of the longest ban. After as much time without a ban, the next one has the length
        /// `for` again.
        pub max: Field<String> {
            default: Text("24h"),
            form: Duration(Unit::Seconds),
            range: Durations("1s", "30d"),
        },
    }
}
