//! `adapt` of a rule, as written.

use super::row::DefaultValue::{InWords, Text};
use super::row::Form::{Duration, Matches};
use super::row::Range::{Durations, Shares};
use super::row::Unit;
use super::tables::Field;
use super::walk::table;

/// What a percentage looks like.
const PERCENTAGE: &str = r"^[0-9]{1,3}(\.[0-9])?%$";

table! {
    /// `adapt = { upstream, p99, errors, floor }`: the rate falls while an upstream is slow or
    /// fails.
    pub struct Adapt {
        /// The upstream whose answers decide.
        pub upstream: Field<String>,
        /// Time in which 99 of 100 answers begin; while fewer do, the rate falls.
        pub p99: Field<String> {
            default: InWords("none"),
            form: Duration(Unit::Milliseconds),
            range: Durations("1ms", "1m"),
        },
        /// Share of failed requests above which the rate falls: those without an answer, and those
        /// with a status of 500 to 599.
        pub errors: Field<String> {
            default: InWords("none"),
            form: Matches(PERCENTAGE),
            range: Shares(1, 1_000),
        },
        /// Lowest share of the rate.
        pub floor: Field<String> {
            default: Text("10%"),
            form: Matches(PERCENTAGE),
            range: Shares(10, 1_000),
        },
    }
}
