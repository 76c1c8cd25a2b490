//! gateway.toml as it is written: its tables and settings, and their types. `policy::build`
//! resolves names, checks values and reports what does not fit together.
//!
//! Reading order: [`Config`] here, [`spanned`], [`row`] (what is known of a setting), [`tables`],
//! [`handling`], [`listeners`], [`acme`], [`jwt`], [`introspection`], [`basic`],
//! [`forward_auth`],
//! [`rules`] and [`words`] (what may be
//! written), `schema` (the same for editors); [`reference`] (`${…}`); [`diagnostic`], [`suggest`],
//! `foreign`, `entries` and [`listener`] (what to write instead), [`secrets`], `render` and
//! [`findings`] (how errors and warnings are shown); [`read`], with `walk` and `types` (from values
//! to a `Config`), `syntax` (text that is not TOML), `duplicate` (names that are written twice) and
//! `lenient` (single settings of a text that is not TOML); [`outline`] and [`changes`] (what one
//! file changes of another).
//!
//! Every setting is optional here: `policy::build` reports what is missing.

pub mod acme;
pub mod adapt;
pub mod bans;
pub mod basic;
pub mod changes;
pub mod diagnostic;
mod duplicate;
mod entries;
pub mod findings;
pub(crate) mod foreign;
pub mod forward_auth;
pub mod handling;
pub mod health;
pub mod introspection;
pub mod jwt;
mod lenient;
pub mod listener;
pub mod listeners;
pub mod mirror;
pub mod outline;
pub mod read;
pub mod reference;
mod render;
pub mod row;
pub mod rules;
#[cfg(test)]
pub(crate) mod schema;
pub mod secrets;
pub mod spanned;
pub mod suggest;
mod syntax;
pub mod tables;
mod types;
mod walk;
pub mod words;

use std::collections::BTreeMap;

use acme::Acme;
use forward_auth::ForwardAuth;
use handling::Cors;
use listeners::Listener;
use row::Row;
use rules::Rule;
use spanned::Spanned;
use tables::{
    AccessLog, Admin, Audit, Clients, Headers, Key, KeyStore, Log, Memory, Plan, Redis, Route,
    Server, Tenant, Tracing, Upstream, Usage, Webhook,
};
use walk::{Table, table};

/// Tables by name, sorted by name; [`in_order`] gives the order of the file.
pub type Named<T> = BTreeMap<Spanned<String>, Spanned<T>>;

table! {
    /// The settings of gateway.toml, table by table.
    pub struct Config {
        /// Listeners, and limits on connections and requests.
        pub server: Option<Spanned<Server>>,
        /// Where clients connect, beside `server.listen`: with TLS, HTTP/2, a Unix socket.
        pub listeners: Option<Spanned<Vec<Spanned<Listener>>>>,
        /// Automatic certificates.
        pub acme: Option<Spanned<Acme>>,
        /// Access to the admin port.
        pub admin: Option<Spanned<Admin>>,
        /// Buckets that gateways share. Without this table, buckets are in this process.
        pub redis: Option<Spanned<Redis>>,
        /// How clients are identified.
        pub clients: Option<Spanned<Clients>>,
        /// Pages of other sites that may use the API from browsers: of all routes but those with a
        /// `cors` of their own, of `clients.limits_path`, and of requests without a route.
        pub cors: Option<Spanned<Cors>>,
        /// A server that decides whether requests go on: of all routes but those with a
        /// `forward_auth` of their own.
        pub forward_auth: Option<Spanned<ForwardAuth>>,
        /// Clients with API keys beside those of the file, which the admin API changes.
        pub key_store: Option<Spanned<KeyStore>>,
        /// Rate limit headers of responses.
        pub headers: Option<Spanned<Headers>>,
        /// Bodies of the gateway's own errors instead of problem documents, by status (`429`) or
        /// class (`4xx`, `5xx`): texts by media type, such as `"text/html"`, up to 64 KiB. They may
        /// contain variables, such as `{detail}`. `"file:429.html"` is the content of a file.
        pub errors: Named<Named<String>>,
        /// The buckets in this process.
        pub memory: Option<Spanned<Memory>>,
        /// What clients used of their quotas, kept beyond the life of the process.
        pub usage: Option<Spanned<Usage>>,
        /// Servers that are sent events, such as that a client has used 80 % of its quota.
        pub webhooks: Named<Webhook>,
        /// One line of JSON for every request.
        pub access_log: Option<Spanned<AccessLog>>,
        /// The log of the process, on standard error.
        pub log: Option<Spanned<Log>>,
        /// Traces of requests, for an OpenTelemetry collector.
        pub tracing: Option<Spanned<Tracing>>,
        /// A stream in Redis with the refusals of all gateways.
        pub audit: Option<Spanned<Audit>>,
        /// Plans, which rules and keys refer to.
        pub plans: Named<Plan>,
        /// Clients with an API key, by id.
        pub keys: Named<Key>,
        /// Tenants, by id: several clients each, which share limits.
        pub tenants: Named<Tenant>,
        /// Servers that requests are forwarded to.
        pub upstreams: Named<Upstream>,
        /// Which requests are forwarded to which upstream.
        pub routes: Named<Route>,
        /// Rate limits, and the requests that each applies to.
        pub rules: Named<Rule>,
    }
}

impl Config {
    /// What is known of each table, and of the settings in it.
    pub const fn rows() -> &'static [Row] {
        <Self as Table>::ROWS
    }
}

/// The entries of `named` in the order of the file.
pub fn in_order<T>(named: &Named<T>) -> Vec<(&Spanned<String>, &Spanned<T>)> {
    let mut entries: Vec<_> = named.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}
