//! nginx: `http` with its servers, locations, upstreams and zones.
//!
//! Reading order: [`syntax`], `include`, `scope` (inheritance and variables), `known` (directives
//! that need nothing here, or have no equal), `upstreams`, `limits`, `headers`, `targets`,
//! `locations`, `servers`.

mod headers;
mod include;
mod known;
mod limits;
mod locations;
mod scope;
mod servers;
mod syntax;
mod targets;
mod upstreams;

use std::collections::BTreeSet;

use super::note::{Notes, Place};
use super::settings::{Imported, Settings};
use super::{File, Includes, SyntaxError, values};
use scope::Scope;
use syntax::Directive;

/// Default of `client_max_body_size`.
const MAX_BODY_BYTES: i64 = 1 << 20;

/// Whether a text looks like a file of nginx.
pub(super) fn is_likely(text: &str) -> bool {
    let names = ["http", "server", "upstream", "location", "limit_req_zone", "worker_processes"];
    match syntax::parse(text, 0) {
        Ok(directives) => {
            directives.iter().any(|directive| names.contains(&directive.name.as_str()))
        }
        // Its mistake is reported by the parser.
        Err(_) => text.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next().is_some_and(|word| names.contains(&word)) && line.contains('{')
        }),
    }
}

/// The arguments of the `include`s of a text; none if it is not nginx'.
pub(super) fn includes(text: &str) -> BTreeSet<String> {
    syntax::parse(text, 0).map(|directives| include::patterns(&directives)).unwrap_or_default()
}

/// Takes over the files, which belong together: the first may include the others.
///
/// # Errors
/// A file is not nginx'.
pub(super) fn import(
    files: &[File<'_>],
    includes: &Includes,
    imported: &mut Imported,
) -> Result<(), SyntaxError> {
    let top = include::read(files, includes, &mut imported.notes)?;
    let http = http_level(&top, &mut imported.notes);
    let importer = Importer { http: &http };
    importer.settings(imported);
    let zones = limits::zones(&http, &mut imported.notes);
    servers::import(&importer, &zones, imported);
    Ok(())
}

/// What is the same for the whole import.
struct Importer<'a> {
    /// The directives of the level `http`.
    http: &'a [Directive],
}

/// The directives of `http`, and those beside it, as in a file of `conf.d`.
fn http_level(top: &[Directive], notes: &mut Notes) -> Vec<Directive> {
    let mut http = Vec::new();
    for directive in top {
        match directive.name.as_str() {
            "http" => http.extend_from_slice(directive.inner()),
            "stream" | "mail" => {
                notes.omitted(directive.place, &directive.name, "the gateway forwards HTTP only");
            }
            name if known::is_of_process(name) => {}
            _ => http.push(directive.clone()),
        }
    }
    http
}

// === impl Importer ===

impl Importer<'_> {
    /// The settings of the level `http` that are tables of the whole file here.
    fn settings(&self, imported: &mut Imported) {
        let Imported { server, limits, notes, .. } = imported;
        let scope = Scope::of(self.http);
        let max_body_bytes =
            scope.one("client_max_body_size").and_then(|it| values::bytes(it.first()));
        limits.set("max_body_bytes", max_body_bytes.unwrap_or(MAX_BODY_BYTES));
        let time = |name: &str| {
            let ms = values::milliseconds(scope.one(name)?.first(), 1000)?;
            (ms > 0).then(|| values::time(ms.min(600_000)))
        };
        if let Some(time) = time("client_header_timeout") {
            limits.set("head_timeout", time);
        }
        if let Some(number) = scope.one("keepalive_requests").and_then(|it| it.first().parse().ok())
        {
            limits.set("max_requests_per_connection", i64::min(number, 1_000_000_000));
        }
        for (theirs, own) in [
            ("keepalive_timeout", "keepalive_timeout"),
            ("client_body_timeout", "read_timeout"),
            ("send_timeout", "write_timeout"),
        ] {
            // In whole seconds.
            if let Some(time) = time(theirs).filter(|time| !time.ends_with("ms")) {
                server.set(own, time);
            }
        }
        resolvers(&scope, server, notes);
        for directive in self.http {
            known::note(directive, notes);
            if matches!(directive.name.as_str(), "map" | "geo" | "split_clients") {
                variable(directive, notes);
            }
        }
    }

    /// The block of `map` or `geo` that sets a variable.
    fn map(&self, variable: &str) -> Option<&Directive> {
        let is_map = |it: &&Directive| matches!(it.name.as_str(), "map" | "geo");
        self.http
            .iter()
            .filter(is_map)
            .find(|it| it.arguments.last().is_some_and(|own| own == variable))
    }
}

fn resolvers(scope: &Scope<'_>, server: &mut Settings, notes: &mut Notes) {
    let Some(directive) = scope.one("resolver") else { return };
    let addresses = directive.arguments.iter().filter(|it| !it.contains('='));
    for address in addresses {
        let is_address = values::with_port(address, 53)
            .is_some_and(|text| text.parse::<std::net::SocketAddr>().is_ok());
        if is_address {
            server.extend("resolvers", [address.clone()]);
        } else {
            notes.omitted(directive.place, address, "name servers of the gateway are addresses");
        }
    }
}

/// Notes a variable that nothing replaces.
fn variable(directive: &Directive, notes: &mut Notes) {
    // That of the examples for WebSocket, which need nothing here.
    if directive.first() == "$http_upgrade" {
        return;
    }
    notes.omitted(
        directive.place,
        directive.shown(),
        "there are no variables: clients without a limit are `exempt` of a rule, classes of clients are plans, and conditions are \
         `headers`, `query` and `cookies` of routes",
    );
}

/// The place of the whole file that a directive is in.
fn file_of(place: Place) -> Place {
    Place { file: place.file, ..Place::default() }
}
