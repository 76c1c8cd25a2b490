//! What a route does with requests and responses, as written.

use super::Named;
use super::row::DefaultValue::{InWords, Number, Switch, Text};
use super::row::Form::Duration;
use super::row::Range::Durations;
use super::row::References::All;
use super::row::Unit;
use super::tables::{Field, List};
use super::walk::table;

table! {
    /// `request_headers` and `response_headers` of a route: changes of headers. `remove` applies
    /// first, then `set`, then `add`.
    pub struct HeaderEdits {
        /// Headers that replace all of the same name. A value may contain variables, such as
        /// `{client.id}`, and `${NAME}`, a variable of the environment.
        pub set: Named<String> {
            default: InWords("none"),
            example: Some(r#"{ X-Client = "{client.id}" }"#),
            references: All,
        },
        /// Headers that are added to those of the same name.
        pub add: Named<String> {
            default: InWords("none"),
            example: Some(r#"{ Via = "1.1 gateway" }"#),
            references: All,
        },
        /// Names of headers that are removed.
        pub remove: List { default: InWords("none") },
    }
}

/// A setting that is switched on, or on with settings of its own.
#[derive(Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum SwitchOr<T> {
    /// On or off.
    Switch(bool),
    /// On, with settings.
    Table(T),
}

table! {
    /// `respond` of a route: a fixed answer.
    pub struct Respond {
        /// Status, 200 to 599, except those of redirects.
        pub status: Field<u64> { default: Number(200) },
        /// Body, up to 65536 bytes.
        pub body: Field<String> { default: InWords("none") },
        /// Media type of the body.
        pub content_type: Field<String> { default: Text("text/plain; charset=utf-8") },
        /// Headers. Values may contain variables, such as `{request.id}`.
        pub headers: Named<String> { default: InWords("none"), references: All },
    }
}

table! {
    /// `redirect` of a route: clients are sent to another URL.
    pub struct Redirect {
        /// The URL, with variables: `"https://new.example{path}{query}"`, or a path on the same
        /// host.
        pub to: Field<String> { references: All },
        /// Status: 301, 302, 303, 307 or 308.
        pub status: Field<u64> { default: Number(308) },
    }
}

table! {
    /// `maintenance` of a route or of `[server]`: requests are answered 503.
    pub struct Maintenance {
        /// When clients are to try again.
        pub retry_after: Field<String> {
            default: InWords("`Retry-After` is not sent"),
            form: Duration(Unit::Seconds),
            range: Durations("1s", "30d"),
        },
        /// Addresses and networks of clients that are served all the same.
        pub allow_ips: List { default: InWords("none") },
    }
}

table! {
    /// `[cors]`, or `cors` of a route: pages of other sites that may use the API from browsers.
    pub struct Cors {
        /// Origins of the pages, such as `["https://app.example.com", "https://*.example.com"]`;
        /// `["*"]`: all. Required.
        pub origins: List,
        /// Methods that pages may use.
        pub methods: List { default: InWords("all") },
        /// Headers of requests that pages may set.
        pub headers: List { default: InWords("those that a page asks for") },
        /// Headers of responses that pages can read, beside those that browsers always show.
        pub exposed_headers: List {
            default: InWords("`Retry-After` and the rate limit headers that responses have"),
        },
        /// Whether browsers send cookies, client certificates and logins of HTTP.
        pub credentials: Field<bool> { default: Switch(false) },
        /// How long browsers keep the answer to a preflight request. Chromium keeps it for `2h` at
        /// most, Firefox for `24h`.
        pub max_age: Field<String> {
            default: Text("10m"),
            form: Duration(Unit::Seconds),
            range: Durations("0s", "24h"),
        },
    }
}
