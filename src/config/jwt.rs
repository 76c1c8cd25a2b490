//! `[clients.jwt]` as written: tokens of identity providers.

use super::Named;
use super::row::DefaultValue::{InWords, Switch, Text, Texts};
use super::row::Form::Duration;
use super::row::Range::{Characters, Durations};
use super::row::References::{All, Variables};
use super::row::{Shown, Unit};
use super::spanned::Spanned;
use super::tables::{Field, List, TextOrList};
use super::walk::table;
use super::words::JwtAlgorithm;

/// One table, or several as a list of tables.
#[derive(Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum OneOrSeveral<T> {
    /// One.
    One(T),
    /// Several.
    Several(Vec<Spanned<T>>),
}

table! {
    /// `[clients.jwt]`: tokens of an identity provider (JSON Web Tokens), which identify clients as
    /// API keys do. `[[clients.jwt]]` for several providers.
    pub struct Jwt {
        /// Who issues the tokens: the value of their claim `iss`. Without `jwks`, `public_key` and
        /// `secret`, also where the keys are found (OpenID Connect Discovery).
        pub issuer: Field<String> { range: Characters(1, 1024), references: All },
        /// Whom the tokens are for: one of these is in their claim `aud`. `[]`: anyone, which
        /// accepts tokens that the provider issued for other services.
        pub audience: Field<TextOrList> { example: Some(r#""api""#) },
        /// The provider's public keys: the URL of a JWK Set with `https://`, or `"file:jwks.json"`.
        pub jwks: Field<String> { default: InWords("discovered"), references: All },
        /// The provider's public key in PEM, as `"file:provider.pem"`.
        pub public_key: Field<String> { default: InWords("none"), references: All },
        /// Secret that the provider shares with the gateway, for `HS256`, `HS384` and `HS512`; best
        /// set as `"${NAME}"` or `"${file:PATH}"`.
        // RFC 7518, section 3.2: as long as the hash.
        pub secret: Field<String> {
            default: InWords("none"),
            range: Characters(32, 1024),
            shown: Shown::Masked,
            references: All,
        },
        /// Algorithms of signatures that are accepted.
        pub algorithms: Option<Spanned<Vec<Spanned<JwtAlgorithm>>>> {
            default: InWords("all that fit the keys"),
            example: Some(r#"["RS256"]"#),
        },
        /// How much the clocks of provider and gateway may differ.
        pub clock_skew: Field<String> {
            default: Text("30s"),
            form: Duration(Unit::Seconds),
            range: Durations("0s", "10m"),
        },
        /// Claims that a token must have, beside `exp`; an empty list: none, not even `exp`.
        pub required_claims: List { default: Texts(&["exp"]) },
        /// Types that a token may state in its header, such as `"at+jwt"`.
        pub typ: Field<TextOrList> {
            default: InWords(r#"`"JWT"`, `"at+jwt"`, or none stated"#),
            example: Some(r#""at+jwt""#),
        },
        /// Claim that is the client's id.
        pub id_claim: Field<String> { default: Text("sub") },
        /// Claim that names the client's plan.
        pub plan_claim: Field<String> { default: InWords("none") },
        /// Plans by the value of `plan_claim`.
        pub plans: Named<String> { default: InWords("the values are names of plans") },
        /// Plan of tokens whose `plan_claim` names none.
        pub default_plan: Field<String> { default: InWords("none: they are refused") },
        /// Claim that names the client's tenant.
        pub tenant_claim: Field<String> { default: InWords("none") },
        /// Headers that the upstream gets, each with the claim that is its value. A client's own
        /// headers of these names are removed.
        pub headers: Named<String> {
            default: InWords("none"),
            example: Some(r#"{ X-User = "sub" }"#),
        },
        /// Whether the token is removed before the request is forwarded.
        pub hide_token: Field<bool> { default: Switch(false) },
        /// How often the keys of a URL are fetched.
        pub refresh: Field<String> {
            default: Text("10m"),
            form: Duration(Unit::Seconds),
            range: Durations("10s", "1d"),
        },
        /// PEM file with the authorities of the provider's own certificate.
        pub ca: Field<String> { default: InWords("public authorities"), references: Variables },
    }
}
