//! `location` blocks: each that forwards or answers is a route.

use regex_automata::util::syntax as expression;
use toml::Value;

use super::limits::{self, Zones};
use super::scope::Scope;
use super::servers::Server;
use super::{Directive, Importer, Place, headers, known, targets};
use crate::import::common::{escaped, is_literal_path, prefix_path};
use crate::import::finish::set_hosts;
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;

/// What a location matches.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) place: Place,
    pub(super) shown: String,
    /// The path, of `location = /x`.
    pub(super) exact: Option<String>,
    /// The prefix, of `location /x`.
    pub(super) prefix: Option<String>,
    expression: Option<String>,
}

// === impl Path ===

impl Path {
    /// All paths: the directives of a server itself.
    pub(super) fn all(place: Place) -> Self {
        let shown = "server".to_owned();
        Self { place, shown, exact: None, prefix: Some("/".to_owned()), expression: None }
    }

    /// None if it matches nothing that a client can ask for, or if it cannot be taken over, which
    /// is noted.
    fn of(location: &Directive, notes: &mut Notes) -> Option<Self> {
        let (place, shown) = (location.place, location.shown());
        let none =
            || Self { place, shown: shown.clone(), exact: None, prefix: None, expression: None };
        let (modifier, path) = match location.arguments.as_slice() {
            [path] => match path.strip_prefix('=') {
                Some(path) if path.starts_with('/') => ("=", path),
                _ => ("", path.as_str()),
            },
            [modifier, path] => (modifier.as_str(), path.as_str()),
            _ => return None,
        };
        if path.starts_with('@') {
            notes.omitted(
                place,
                shown,
                "there are no internal redirects: write its upstream where it is used",
            );
            return None;
        }
        let expression = |text: String| match expression::parse(&text) {
            Ok(_) => Some(Self { expression: Some(text), ..none() }),
            Err(_) => None,
        };
        match modifier {
            "=" if !is_literal_path(path) => expression(format!("^{}$", escaped(path))),
            "" | "^~" if !is_literal_path(path) => expression(format!("^{}", escaped(path))),
            "=" => Some(Self { exact: Some(path.to_owned()), ..none() }),
            "" | "^~" => Some(Self { prefix: Some(path.to_owned()), ..none() }),
            "~" | "~*" => {
                let flag = if modifier == "~*" { "(?i)" } else { "" };
                let found = expression(format!("{flag}{path}"));
                if found.is_none() {
                    let why = "the expression is none of RE2: it has no look-around and no back references";
                    notes.omitted(place, shown, why);
                }
                found
            }
            _ => None,
        }
    }

    /// The settings of a route for it.
    fn settings(&self, notes: &mut Notes) -> Settings {
        let mut settings = Settings::default();
        if let Some(expression) = &self.expression {
            settings.set("path_regex", expression.as_str());
        } else if let Some(exact) = &self.exact {
            settings.set("path", exact.as_str());
            settings.set("trailing_slash", "distinct");
        } else if let Some(prefix) = &self.prefix {
            settings.set("path", prefix_path(prefix, self.place, &self.shown, notes));
        }
        settings
    }

    /// Restricts an expression to the paths of the location that it is in.
    fn restrict(&mut self, outer: &str, notes: &mut Notes) {
        let Some(expression) = self.expression.as_mut().filter(|_| outer.len() > 1) else { return };
        let begins = expression.strip_prefix("(?i)").unwrap_or(expression).strip_prefix('^');
        match begins {
            Some(rest) if rest.starts_with(outer) => {}
            Some(_) => {
                let why = format!(
                    "it is in the location {outer}, but may match other paths: begin it with this one"
                );
                notes.approximate(self.place, &self.shown, why);
            }
            None => *expression = format!("^{}.*(?:{expression})", escaped(outer)),
        }
    }

    fn name(&self) -> &str {
        let path = self.exact.as_deref().or(self.prefix.as_deref()).or(self.expression.as_deref());
        path.unwrap_or_default()
    }
}

/// What is the same for the locations of a server.
pub(super) struct Locations<'a> {
    pub(super) importer: &'a Importer<'a>,
    pub(super) zones: &'a Zones,
    pub(super) server: &'a Server,
}

// === impl Locations ===

impl Locations<'_> {
    /// Adds the routes of all locations in the innermost level of a scope, which is that of a
    /// location for the prefix `outer`, or of the server.
    pub(super) fn add(&self, scope: &Scope<'_>, outer: &str, imported: &mut Imported) {
        for location in scope.own().iter().filter(|it| it.name == "location") {
            for directive in location.inner() {
                known::note(directive, &mut imported.notes);
                note_condition(directive, &mut imported.notes);
            }
            let inner = scope.within(location.inner());
            let prefix = match location.arguments.as_slice() {
                [path] if path.starts_with('/') => path,
                [modifier, path] if modifier == "^~" => path,
                _ => outer,
            };
            self.add(&inner, prefix, imported);
            // Answered by the gateway itself.
            if location.arguments.iter().any(|it| it.contains("/.well-known/acme-challenge")) {
                continue;
            }
            let Some(mut path) = Path::of(location, &mut imported.notes) else { continue };
            path.restrict(outer, &mut imported.notes);
            let has_locations = location.inner().iter().any(|it| it.name == "location");
            self.route(&inner, &path, !has_locations, imported);
        }
    }

    /// Adds the route of one location.
    pub(super) fn route(
        &self,
        scope: &Scope<'_>,
        path: &Path,
        is_last: bool,
        imported: &mut Imported,
    ) {
        let Self { importer, server, .. } = *self;
        let Some(target) = targets::target(importer, scope, path, server, is_last, imported) else {
            return;
        };
        let mut route = Settings::default();
        set_hosts(&mut route, &server.hosts);
        for (name, value) in path.settings(&mut imported.notes).iter().chain(target.iter()) {
            route.set(name, value.clone());
        }
        let is_forwarded = route.get("upstream").is_some();
        headers::add(scope, server, &mut route, &mut imported.notes);
        if is_forwarded {
            forwarding(scope, &mut route, &mut imported.notes);
        }
        methods(scope, &mut route, &mut imported.notes);
        if path.expression.is_some() && server.has_prefixes {
            imported.notes.approximate(
                path.place,
                &path.shown,
                "expressions come after all other paths but `/*`; in nginx, they come before prefixes",
            );
        }
        let host = server.hosts.first().map_or("", String::as_str);
        let name = match (server.is_only, path.name().trim_matches('/')) {
            (true, path) => path.to_owned(),
            (false, path) => format!("{host}-{path}"),
        };
        let name = imported.routes.add(&name, path.place, route);
        limits::add(importer, self.zones, scope, server, &name, imported);
    }
}

/// Conditions of `if`, which are not taken over.
fn note_condition(directive: &Directive, notes: &mut Notes) {
    if directive.name != "if" {
        return;
    }
    notes.omitted(
        directive.place,
        directive.shown(),
        "there are no conditions within a route: write a route with `methods`, `headers`, `query` or `cookies`; preflight requests \
         are answered by `cors`",
    );
}

/// Settings of a route that forwards.
fn forwarding(scope: &Scope<'_>, route: &mut Settings, notes: &mut Notes) {
    if let Some(bytes) =
        scope.one_below_http("client_max_body_size").and_then(|it| values::bytes(it.first()))
    {
        route.set("max_body_bytes", bytes);
    }
    let codings: Vec<Value> = [("brotli", "br"), ("gzip", "gzip")]
        .into_iter()
        .filter(|(name, _)| scope.is_on(name))
        .map(|(_, coding)| coding.into())
        .collect();
    if !codings.is_empty() {
        route.set("compress", codings);
    }
    if let Some(directive) = scope.one("proxy_next_upstream") {
        retries(directive, scope, route, notes);
    }
    if let Some(directive) = scope.one("auth_basic").filter(|it| it.first() != "off") {
        notes.omitted(
            directive.place,
            directive.shown(),
            "passwords are verified for all routes: `[clients.basic]` with `users = \"file:users.htpasswd\"`, and \
             `on_missing_key = \"deny\"` in `[clients]`",
        );
    }
}

/// `proxy_next_upstream`.
fn retries(directive: &Directive, scope: &Scope<'_>, route: &mut Settings, notes: &mut Notes) {
    let mut on: Vec<Value> = Vec::new();
    let mut is_off = false;
    let mut table = toml::Table::new();
    for condition in &directive.arguments {
        match condition.as_str() {
            "error" => on.extend(["connect", "reset"].map(Value::from)),
            "timeout" => on.push("timeout".into()),
            "off" => is_off = true,
            "non_idempotent" => {
                table.insert("non_idempotent".into(), true.into());
            }
            "http_500" | "http_502" | "http_503" | "http_504" | "http_429" => {
                on.push(condition.trim_start_matches("http_").into());
            }
            _ => notes.omitted(
                directive.place,
                condition,
                "this is no reason to send a request again",
            ),
        }
    }
    let tries =
        scope.one("proxy_next_upstream_tries").and_then(|it| it.first().parse::<i64>().ok());
    let count = if is_off { 0 } else { tries.filter(|tries| *tries > 0).unwrap_or(2) - 1 };
    table.insert("count".into(), count.clamp(0, 10).into());
    if !on.is_empty() && !is_off {
        table.insert("on".into(), on.into());
    }
    route.set("retries", table);
    if tries.is_none() && !is_off {
        let why =
            "nginx tries every server; here it is `count` of `retries`, and a budget bounds them";
        notes.approximate(directive.place, directive.shown(), why);
    }
}

/// `limit_except GET { deny all; }`.
fn methods(scope: &Scope<'_>, route: &mut Settings, notes: &mut Notes) {
    let Some(directive) = scope.own_one("limit_except") else { return };
    let denies_all = directive.inner().iter().any(|it| it.name == "deny" && it.first() == "all");
    let has_exceptions = directive.inner().iter().any(|it| it.name == "allow");
    if denies_all && !has_exceptions {
        route.extend("methods", directive.arguments.iter().cloned());
        notes.approximate(
            directive.place,
            directive.shown(),
            "other methods get the next route that matches, or 404, not 403",
        );
    } else {
        notes.omitted(
            directive.place,
            directive.shown(),
            "write a route with these `methods`, and one with others",
        );
    }
}
