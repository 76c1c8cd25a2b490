//! gateway.toml exactly as it is written: which tables and names there are and of what type, and
//! nothing else. What they mean, and whether they fit together, is for `policy::build` to say.
//!
//! Reading order: [`Config`] here, [`spanned`], [`tables`], [`rules`] and [`words`] (what may be
//! written), `schema` (the same for editors); [`diagnostic`], [`suggest`], [`secrets`] and `render` (how
//! errors are shown); [`read`], with `walk` and `types` (from values to a `Config`) and `syntax` (text
//! that is not TOML); [`outline`] and [`changes`] (what one file changes of another).
//!
//! Every setting is optional here: `policy::build` reports what is missing.

pub mod changes;
pub mod diagnostic;
pub mod outline;
pub mod read;
mod render;
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

use rules::Rule;
use spanned::Spanned;
use tables::{
    AccessLog, Admin, Audit, Clients, Headers, Key, Memory, Plan, Redis, Route, Server, Tracing,
    Upstream,
};
use walk::table;

/// Tables by their names. Sorted by name; [`in_order`] gives the order of the file.
pub type Named<T> = BTreeMap<Spanned<String>, Spanned<T>>;

table! {
    /// A whole gateway.toml.
    pub struct Config {
        /// Listeners and the guards around requests.
        pub server: Option<Spanned<Server>>,
        /// Who may use the operator's port.
        pub admin: Option<Spanned<Admin>>,
        /// The shared store.
        pub redis: Option<Spanned<Redis>>,
        /// How clients are told apart.
        pub clients: Option<Spanned<Clients>>,
        /// What answers say about limits.
        pub headers: Option<Spanned<Headers>>,
        /// How many buckets this process keeps.
        pub memory: Option<Spanned<Memory>>,
        /// One line for every request.
        pub access_log: Option<Spanned<AccessLog>>,
        /// Where traces of requests go.
        pub tracing: Option<Spanned<Tracing>>,
        /// Where refusals are kept beside this process.
        pub audit: Option<Spanned<Audit>>,
        /// Plans.
        pub plans: Named<Plan>,
        /// Known clients.
        pub keys: Named<Key>,
        /// What requests are sent on to.
        pub upstreams: Named<Upstream>,
        /// Where requests may go.
        pub routes: Named<Route>,
        /// Limits.
        pub rules: Named<Rule>,
    }
}

/// The entries of `named` in the order of the file.
pub fn in_order<T>(named: &Named<T>) -> Vec<(&Spanned<String>, &Spanned<T>)> {
    let mut entries: Vec<_> = named.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}
