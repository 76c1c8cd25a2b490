//! `allow_ips` and `deny_ips` of `[server]` and of routes, and the files of networks that they
//! name.

use std::collections::HashMap;
use std::sync::Arc;

use super::address::{network, parse_network};
use super::environment::{Environment, Lookup, Missing};
use super::mistake::Mistake;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::reference::{FileContent, Reference, plain_file};
use crate::config::spanned::Spanned;
use crate::config::tables::List;
use crate::config::{Config, in_order};
use crate::policy::ip_access::{IpAccess, IpList, Place, PlacedList};
use crate::policy::ip_set::IpSet;

/// Maximum number of networks in a file.
const MAX_NETWORKS: usize = 1_000_000;

/// How many wrong lines of a file are reported.
const MAX_REPORTED: usize = 5;

/// Which clients may send requests.
#[derive(Default)]
pub(super) struct Access {
    /// For requests without a route; `None`: all clients.
    pub(super) server: Option<Arc<IpAccess>>,
    /// For each route in the order of the file; `None`: all clients.
    pub(super) routes: Vec<Option<Arc<IpAccess>>>,
}

/// The lists of `[server]` and of all routes.
pub(super) fn access(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Access {
    let mut reader = Reader { environment, files: HashMap::new(), diagnostics };
    let server = config.server.as_ref().map(Spanned::get_ref);
    let mut of_server = |name, list: Option<&List>| {
        reader.list(&["server", name], list?).map(|list| PlacedList { place: Place::Server, list })
    };
    let deny = of_server("deny_ips", server.map(|server| &server.deny_ips));
    let allow = of_server("allow_ips", server.map(|server| &server.allow_ips));
    let routes = in_order(&config.routes).into_iter().map(|(name, table)| {
        let table = table.get_ref();
        let mut of_route = |setting, list| {
            let list = reader.list(&["routes", name.get_ref(), setting], list)?;
            Some(PlacedList { place: Place::Route, list })
        };
        let own_deny = of_route("deny_ips", &table.deny_ips);
        let own_allow = of_route("allow_ips", &table.allow_ips);
        shared(IpAccess {
            deny: deny.iter().cloned().chain(own_deny).collect(),
            allow: own_allow.or_else(|| allow.clone()),
        })
    });
    let routes = routes.collect();
    Access { server: shared(IpAccess { deny: deny.into_iter().collect(), allow }), routes }
}

/// The lists; none if they refuse no client.
fn shared(access: IpAccess) -> Option<Arc<IpAccess>> {
    (!access.deny.is_empty() || access.allow.is_some()).then(|| Arc::new(access))
}

/// Reads lists. A file is read and checked once, also if several lists name it.
struct Reader<'a> {
    environment: Environment<'a>,
    /// By the path as written; none with an error, or if the file is not at hand.
    files: HashMap<String, Option<Arc<IpSet>>>,
    diagnostics: &'a mut Diagnostics,
}

impl Reader<'_> {
    /// The list of the setting at `path`; none if it is not written.
    fn list(&mut self, path: &[&str], list: &List) -> Option<IpList> {
        let list = list.as_ref()?;
        let is_allowing = path.ends_with(&["allow_ips"]);
        if is_allowing && list.get_ref().is_empty() && !self.diagnostics.explain_absence(path) {
            let message = "`allow_ips` is empty: every client would be refused";
            let help = "leave it out for all clients, or write the networks that are allowed";
            self.diagnostics.push(Diagnostic::new(list.span(), message).help(help));
        }
        let mut sets = Vec::new();
        let mut networks = Vec::new();
        for item in list.get_ref() {
            let Some(file) = plain_file(item.get_ref()) else {
                networks.extend(network(item, self.diagnostics));
                continue;
            };
            match self.file(file, item, is_allowing) {
                Some(set) => sets.push(set),
                // The file may allow any client.
                None if is_allowing => return None,
                None => {}
            }
        }
        if !networks.is_empty() {
            sets.insert(0, Arc::new(networks.into_iter().collect()));
        }
        Some(IpList { sets })
    }

    /// The networks of a file; none with an error, or if the file is not at hand.
    fn file(
        &mut self,
        path: &str,
        item: &Spanned<String>,
        is_allowing: bool,
    ) -> Option<Arc<IpSet>> {
        let set = if let Some(read) = self.files.get(path) {
            read.clone()
        } else {
            let read = self.read(path, item).map(Arc::new);
            self.files.insert(path.to_owned(), read.clone());
            read
        }?;
        if is_allowing && set.networks() == 0 {
            let shown = cut(path, 64);
            let message = format!("{shown} has no networks: `allow_ips` would refuse every client");
            let help = "write one network a line; was the file written to the end?";
            self.diagnostics.push(Diagnostic::new(item.span(), message).help(help));
        }
        Some(set)
    }

    fn read(&mut self, path: &str, item: &Spanned<String>) -> Option<IpSet> {
        let shown = cut(path, 64);
        if path.is_empty() {
            let help = "write `file:blocked.txt`; a relative path begins at the folder of the configuration file";
            let message = "`file:` names no file";
            self.diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            return None;
        }
        let text = match (self.environment)(Reference::File(FileContent::Networks, path)) {
            Lookup::Value(text) => text,
            Lookup::Assumed => return None,
            Lookup::Missing(Missing { message, help }) => {
                self.diagnostics.push(Diagnostic::new(item.span(), message).help(help));
                return None;
            }
        };
        let mut networks = Vec::new();
        let mut wrong = 0;
        for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
            let entry = line.split(['#', ';']).next().unwrap_or_default().trim();
            if entry.is_empty() {
                continue;
            }
            match parse_network(entry) {
                Ok(network) => networks.push(network),
                Err(Mistake { message, help }) => {
                    wrong += 1;
                    if wrong <= MAX_REPORTED {
                        let message = format!("{shown}:{number}: {message}");
                        self.diagnostics.push(Diagnostic::new(item.span(), message).help(help));
                    }
                }
            }
        }
        if wrong > MAX_REPORTED {
            let message = format!("{shown} has {} more wrong lines", wrong - MAX_REPORTED);
            self.diagnostics.push(Diagnostic::new(item.span(), message));
        }
        if networks.len() > MAX_NETWORKS {
            let count = networks.len();
            let message = format!("{shown} has {count} networks; {MAX_NETWORKS} are allowed");
            let help = "join neighbouring networks, such as two /25 to one /24";
            self.diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            return None;
        }
        (wrong == 0).then(|| networks.into_iter().collect())
    }
}
