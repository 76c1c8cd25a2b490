//! `[clients.introspection]` as written: tokens that their issuer is asked about.

use super::Named;
use super::row::DefaultValue::{InWords, Number, Switch, Text};
use super::row::Form::Duration;
use super::row::Range::{Between, Characters, Durations};
use super::row::References::{All, Variables};
use super::row::{Shown, Unit};
use super::tables::{Field, List, TextOrList};
use super::walk::table;
use super::words::OnStoreFailure;

table! {
    /// `[clients.introspection]`: bearer tokens that their issuer is asked about (RFC 7662), which
    /// identify clients as API keys do.
    pub struct Introspection {
        /// Where the issuer is asked: a URL with `https://`.
        pub url: Field<String> {
            example: Some(r#""https://id.example.com/introspect""#),
            shown: Shown::Url,
            references: Variables,
        },
        /// Name by which the issuer knows the gateway.
        pub client_id: Field<String> { range: Characters(1, 256), references: All },
        /// Secret of the gateway at the issuer; best set as `"${NAME}"` or `"${file:PATH}"`.
        pub client_secret: Field<String> {
            range: Characters(1, 1024),
            shown: Shown::Masked,
            references: All,
        },
        /// Whom tokens have to be for: one of these is in their `aud`.
        pub audience: Field<TextOrList> { default: InWords("anyone"), example: Some(r#""api""#) },
        /// Scopes that a token must have.
        pub scopes: List { default: InWords("none") },
        /// How much the clocks of issuer and gateway may differ.
        pub clock_skew: Field<String> {
            default: Text("30s"),
            form: Duration(Unit::Seconds),
            range: Durations("0s", "10m"),
        },
        /// Member of the answer that is the client's id.
        pub id_claim: Field<String> { default: Text("sub") },
        /// Member that names the client's plan.
        pub plan_claim: Field<String> { default: InWords("none") },
        /// Plans by the value of `plan_claim`.
        pub plans: Named<String> { default: InWords("the values are names of plans") },
        /// Plan of tokens whose `plan_claim` names none.
        pub default_plan: Field<String> { default: InWords("none: they are refused") },
        /// Member that names the client's tenant.
        pub tenant_claim: Field<String> { default: InWords("none") },
        /// Headers that the upstream gets, each with the member that is its value. A client's own
        /// headers of these names are removed.
        pub headers: Named<String> {
            default: InWords("none"),
            example: Some(r#"{ X-User = "sub" }"#),
        },
        /// Whether the token is removed before the request is forwarded.
        pub hide_token: Field<bool> { default: Switch(false) },
        /// Time limit for an answer; a request also waits as long for its turn.
        pub timeout: Field<String> {
            default: Text("2s"),
            form: Duration(Unit::BySize),
            range: Durations("1ms", "1m"),
        },
        /// How many tokens the issuer is asked about at the same time.
        pub max_in_flight: Field<u64> { default: Number(50), range: Between(1, 10_000) },
        /// How long an answer is used, at most until the token expires.
        pub cache: Field<String> {
            default: Text("1m"),
            form: Duration(Unit::Seconds),
            range: Durations("0s", "1h"),
        },
        /// What happens to a request while its token is not known and the issuer does not answer.
        pub on_failure: Field<OnStoreFailure>,
        /// PEM file with the authorities of the issuer's own certificate.
        pub ca: Field<String> { default: InWords("public authorities"), references: Variables },
    }
}
