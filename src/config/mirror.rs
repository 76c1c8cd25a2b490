//! Requests that are sent to a second upstream, as written.

use super::row::DefaultValue::{Number, Text};
use super::row::Form::{Bytes, Duration, Matches};
use super::row::Range::{Between, Durations, Shares};
use super::row::Unit;
use super::tables::Field;
use super::walk::table;

table! {
    /// `mirror` of `[upstreams.<name>]` and `[routes.<name>]`: requests that another upstream gets
    /// as well. Its responses are not used.
    pub struct Mirror {
        /// The upstream that gets the copies. Required.
        pub to: Field<String>,
        /// Share of the requests, such as `"5%"` or `"0.5%"`.
        pub share: Field<String> {
            default: Text("100%"),
            form: Matches("^[0-9]{1,3}(\\.[0-9])?%$"),
            range: Shares(1, 1_000),
        },
        /// Maximum size of a request's body, in bytes. A request with a larger one has no copy.
        pub max_body_bytes: Field<u64> {
            default: Number(65_536),
            form: Bytes,
            range: Between(0, 65_536),
        },
        /// Maximum number of copies in flight. Beyond it, requests have no copy.
        pub max_in_flight: Field<u64> { default: Number(100), range: Between(1, 100_000) },
        /// Time limit of a copy, to the end of its response.
        pub timeout: Field<String> {
            default: Text("10s"),
            form: Duration(Unit::Seconds),
            range: Durations("1ms", "10m"),
        },
    }
}
