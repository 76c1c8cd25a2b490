//! Traefik: routers, services and middlewares of `http`, entry points and certificates.
//!
//! Reading order: [`rule`], `services`, `middlewares`, `routers`, `entry_points`.

mod entry_points;
mod middlewares;
mod routers;
mod rule;
mod services;

use super::settings::Imported;
use super::yaml::{Node, Pair};

/// Tables of the top level that other files of this module read, or that need nothing here.
const KNOWN: [&str; 9] = [
    "http",
    "tls",
    "entryPoints",
    "entrypoints",
    "certificatesResolvers",
    "global",
    "api",
    "ping",
    "core",
];

/// Takes over the documents, which belong together.
pub(super) fn import(documents: &[Node], imported: &mut Imported) {
    let files = Files { documents };
    for pair in documents.iter().flat_map(Node::pairs) {
        note(pair, imported);
    }
    let entry_points = entry_points::entry_points(&files, imported);
    let uses = routers::import(&files, &entry_points, imported);
    entry_points::write(&files, entry_points, &uses, imported);
}

/// Notes a table of the top level that has no equal here.
fn note(pair: &Pair, imported: &mut Imported) {
    let why = match pair.key.as_str() {
        "tcp" | "udp" => "the gateway forwards HTTP only",
        "providers" => {
            "routes are in the file: those of Docker, Kubernetes and others are not read. Name the file of the file provider as \
             another argument"
        }
        "accessLog" => "the access log is JSON on standard output: `[access_log]`",
        "log" => "write `[log]` with `level`",
        "metrics" => "Prometheus reads http://127.0.0.1:9090/metrics, without a setting",
        "tracing" => "write `[tracing]` with the `endpoint` of a collector",
        "serversTransport" => "write `tls` of each upstream",
        "experimental" | "hub" | "pilot" | "plugins" => "the gateway has no plug-ins",
        "ocsp" | "spiffe" | "hostResolver" => "the gateway has no such setting",
        key if KNOWN.contains(&key) || key.starts_with("x-") => return,
        _ => "it is no table of Traefik that is known here",
    };
    imported.notes.omitted(pair.place, &pair.key, why);
}

/// All documents together.
struct Files<'a> {
    documents: &'a [Node],
}

// === impl Files ===

impl<'a> Files<'a> {
    /// The pairs of a table in all documents.
    fn pairs(&self, path: &[&str]) -> impl Iterator<Item = &'a Pair> {
        let tables: Vec<&'a Node> =
            self.documents.iter().filter_map(|document| document.at(path)).collect();
        tables.into_iter().flat_map(Node::pairs)
    }

    /// The entry of a table with a name, which may have the name of its provider (`@file`).
    fn entry(&self, path: &[&str], name: &str) -> Option<&'a Pair> {
        let name = name.strip_suffix("@file").unwrap_or(name);
        self.pairs(path).find(|pair| pair.key == name)
    }
}
