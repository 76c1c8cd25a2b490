//! `health` and `eject` of an upstream, as written: which of its endpoints get requests.

use super::row::DefaultValue::{InWords, Number, Text, Texts};
use super::row::Form::{Duration, Matches};
use super::row::Range::{Between, Durations, Shares};
use super::row::Unit;
use super::spanned::Spanned;
use super::tables::{FAILURE, Field, List};
use super::walk::table;
use super::words::CheckKind;

/// What a percentage looks like.
const PERCENTAGE: &str = r"^[0-9]{1,3}(\.[0-9])?%$";

table! {
    /// `[upstreams.<name>.health]`: health checks, which the gateway sends to each endpoint.
    pub struct Health {
        /// What a check is.
        pub kind: Field<CheckKind>,
        /// Path of a check by HTTP, with a query if it needs one.
        pub path: Field<String> { default: Text("/"), form: Matches("^/") },
        /// Host of a check by HTTP.
        pub host: Field<String> { default: InWords("the host of the server") },
        /// Statuses of a healthy endpoint.
        pub status: Field<Vec<Spanned<u64>>> {
            default: InWords("200 to 399"),
            range: Between(200, 599),
            example: Some("[200, 204]"),
        },
        /// Service that a check by gRPC asks for.
        pub service: Field<String> { default: InWords("the whole server") },
        /// Port of the checks.
        pub port: Field<u64> { default: InWords("the port of the server"), range: Between(1, 65_535) },
        /// Time between the beginnings of two checks of an endpoint. It varies by a tenth, and is
        /// longer for each of more than ten gateways.
        pub interval: Field<String> {
            default: Text("5s"),
            form: Duration(Unit::Seconds),
            range: Durations("100ms", "1h"),
        },
        /// Time limit of a check, with the connection; at most the `interval`.
        pub timeout: Field<String> {
            default: Text("1s"),
            form: Duration(Unit::Seconds),
            range: Durations("1ms", "1m"),
        },
        /// Successful checks in a row after which an endpoint is healthy again.
        pub rise: Field<u64> { default: Number(2), range: Between(1, 100) },
        /// Failed checks in a row after which an endpoint is unhealthy.
        pub fall: Field<u64> { default: Number(3), range: Between(1, 100) },
    }
}

table! {
    /// `[upstreams.<name>.eject]`: endpoints whose requests fail get none for a time.
    pub struct Eject {
        /// Failures in a row after which an endpoint is ejected; 0: any number.
        pub consecutive_failures: Field<u64> { default: Number(5), range: Between(0, 10_000) },
        /// What is a failure: `connect`, `timeout`, `reset`, `5xx`, or a status such as
        /// `503`.
        pub on: List {
            default: Texts(&["connect", "timeout", "reset", "5xx"]),
            form: Matches(FAILURE),
        },
        /// Share of failed requests within the `window`, of at least 20, from which an endpoint is
        /// ejected. It must also be twice that of the other endpoints together.
        pub error_rate: Field<String> {
            default: InWords("none"),
            form: Matches(PERCENTAGE),
            range: Shares(10, 1_000),
        },
        /// Time over which `error_rate` is measured.
        pub window: Field<String> {
            default: Text("10s"),
            form: Duration(Unit::Seconds),
            range: Durations("1s", "10m"),
        },
        /// How long an endpoint is ejected for the first time; for the second time twice as long,
        /// up to ten times.
        pub r#for: Field<String> {
            default: Text("30s"),
            form: Duration(Unit::Seconds),
            range: Durations("1s", "1h"),
        },
        /// Share of the endpoints that may be ejected at a time. The last one never is.
        pub max: Field<String> {
            default: Text("50%"),
            form: Matches(PERCENTAGE),
            range: Shares(10, 1_000),
        },
    }
}
