//! What a route does with requests and responses, as written.

use super::Named;
use super::tables::{Field, List};
use super::walk::table;

table! {
    /// `request_headers` and `response_headers` of a route: changes of headers. `remove` applies
    /// first, then `set`, then `add`.
    pub struct HeaderEdits {
        /// Headers that replace all of the same name. A value may contain variables, such as
        /// `{client.id}`, and `${NAME}`, a variable of the environment. Default: none.
        pub set: Named<String>,
        /// Headers that are added to those of the same name. Default: none.
        pub add: Named<String>,
        /// Names of headers that are removed. Default: none.
        pub remove: List,
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
        /// Status, 200 to 599, except those of redirects. Default: 200.
        pub status: Field<u64>,
        /// Body, up to 65536 bytes. Default: none.
        pub body: Field<String>,
        /// Media type of the body. Default: `"text/plain; charset=utf-8"`.
        pub content_type: Field<String>,
        /// Headers. Values may contain variables, such as `{request.id}`. Default: none.
        pub headers: Named<String>,
    }
}

table! {
    /// `redirect` of a route: clients are sent to another URL.
    pub struct Redirect {
        /// The URL, with variables: `"https://new.example{path}{query}"`, or a path on the same
        /// host.
        pub to: Field<String>,
        /// Status: 301, 302, 303, 307 or 308. Default: 308.
        pub status: Field<u64>,
    }
}

table! {
    /// `maintenance` of a route or of `[server]`: requests are answered 503.
    pub struct Maintenance {
        /// When clients are to try again, `1s` to `30d`. Default: `Retry-After` is not sent.
        pub retry_after: Field<String>,
        /// Addresses and networks of clients that are served all the same. Default: none.
        pub allow_ips: List,
    }
}
