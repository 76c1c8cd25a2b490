//! `[forward_auth]` as written: a server that is asked about each request.

use super::row::DefaultValue::{InWords, Number, Text, Texts};
use super::row::Form::{Duration, Matches};
use super::row::Range::{Between, Durations};
use super::row::References::Variables;
use super::row::{Shown, Unit};
use super::tables::{Field, List};
use super::walk::table;
use super::words::OnAuthFailure;

table! {
    /// `[forward_auth]`: a server that decides whether a request goes on, as nginx' `auth_request`
    /// and Traefik's `forwardAuth`. For all routes, or those that have a table of their own.
    pub struct ForwardAuth {
        /// Where it is asked: a URL with `http://` or `https://`. A status of 200 to 299 lets the
        /// request go on.
        pub url: Field<String> {
            example: Some(r#""http://127.0.0.1:9000/auth""#),
            shown: Shown::Url,
            references: Variables,
        },
        /// Time limit for its answer; a request also waits as long for its turn.
        pub timeout: Field<String> {
            default: Text("1s"),
            form: Duration(Unit::BySize),
            range: Durations("1ms", "1m"),
        },
        /// How many requests are asked about at the same time.
        pub max_in_flight: Field<u64> { default: Number(100), range: Between(1, 10_000) },
        /// Headers of the client that the server gets, beside those that describe the request.
        pub request_headers: List { default: Texts(&["authorization", "cookie"]) },
        /// Headers of its answer that the upstream gets. A client's own headers of these names are
        /// removed from all requests.
        pub response_headers: List { default: InWords("none") },
        /// Headers of its answer that the client gets if the request is refused.
        pub refusal_headers: List {
            default: Texts(&["content-type", "location", "set-cookie", "www-authenticate"]),
        },
        /// What happens to a request while the server does not answer, or says neither yes nor no.
        pub on_failure: Field<OnAuthFailure>,
        /// How long an answer is used for other requests with the same `cache_by`; `0s`: not.
        pub cache: Field<String> {
            default: Text("0s"),
            form: Duration(Unit::Seconds),
            range: Durations("0s", "1h"),
        },
        /// What requests have in common that share an answer: `header:<name>`, `method`, `host`,
        /// `path` (with the query), `ip`.
        pub cache_by: List {
            default: InWords("`request_headers`, `method`, `host` and `path`"),
            form: Matches("^(method|host|path|ip|header:.+)$"),
        },
        /// Header of its answer with the client's id. With it, the request's own API key is not
        /// looked up.
        pub id_header: Field<String> {
            default: InWords("none: the client is that of the API key"),
            example: Some(r#""X-User""#),
        },
        /// Header of its answer with the client's plan.
        pub plan_header: Field<String> { default: InWords("none") },
        /// Header of its answer with the client's tenant.
        pub tenant_header: Field<String> { default: InWords("none") },
        /// Plan of clients for whom the answer names none.
        pub default_plan: Field<String> { default: InWords("that of clients without a key") },
        /// PEM file with the authorities of the server's own certificate.
        pub ca: Field<String> { default: InWords("public authorities"), references: Variables },
    }
}
