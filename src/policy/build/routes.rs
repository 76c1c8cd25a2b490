//! `[routes]`: which requests are forwarded to which upstream, and what they cost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::compression::compression;
use super::conditions;
use super::environment::Environment;
use super::expression;
use super::forward_auth::Tables;
use super::handling;
use super::hosts;
use super::ip_access::Access;
use super::mirror;
use super::names::{Names, twice};
use super::path;
use super::retries::retries;
use super::split;
use super::upstreams;
use super::values::{duration, number_in, optional};
use super::words::meaning;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::tables::{self, Field, List};
use crate::config::{Config, in_order};
use crate::limit::cost::Cost;
use crate::policy::SMALLEST_FILE;
use crate::policy::compression::Compression;
use crate::policy::cors::Cors;
use crate::policy::handling::Handling;
use crate::policy::matcher::{Conditions, Matcher, PathPattern};
use crate::policy::mirror::RouteMirror;
use crate::policy::params::PathParams;
use crate::policy::retries::Retries;
use crate::policy::router::Router;
use crate::policy::split::Destination;
use crate::policy::time_limits::TimeLimits;
use crate::policy::{Route, Rule};

/// What is known of all routes before the rules are. A part is none if a route has an error in it.
pub(super) struct Parts {
    matchers: Option<Vec<Matcher>>,
    pub(super) settings: Option<Vec<Settings>>,
    destinations: Option<Vec<Destination>>,
    router: Option<Router>,
}

impl Parts {
    pub(super) fn of(
        config: &Config,
        names: &Names,
        environment: Environment<'_>,
        ignore_case: bool,
        cors: Option<&Arc<Cors>>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let all = matchers(config, ignore_case, diagnostics);
        let matchers = all.as_deref();
        let settings =
            settings(config, names, environment, cors, matchers, ignore_case, diagnostics);
        let destinations = destinations(config, names, diagnostics);
        let router = router(config, matchers, ignore_case, diagnostics);
        Self { matchers: all, settings, destinations, router }
    }

    /// The index over all routes; and all routes in the order of the file, each with the enabled
    /// rules that count its requests.
    pub(super) fn with_rules(
        self,
        config: &Config,
        names: &Names,
        access: &Access,
        servers: &Tables,
        rules: &[Rule],
    ) -> Option<(Router, Vec<Route>)> {
        let entries = in_order(&config.routes).into_iter().zip(names.routes.names());
        let access = access.routes.iter().cloned().zip(servers.of_routes.iter().copied());
        let settings = self.settings?.into_iter().zip(access);
        let resolved = self.matchers?.into_iter().zip(self.destinations?).zip(settings).zip(0..);
        let routes = entries.zip(resolved).map(|(((_, table), name), (resolved, index))| {
            let ((matcher, destination), (settings, (ip_access, forward_auth))) = resolved;
            let Settings {
                websocket_idle_timeout,
                max_body_bytes,
                time_limits,
                retries,
                compression,
                mirror,
                handling,
            } = settings;
            let counting =
                rules.iter().zip(0..).filter(|(rule, _)| rule.applies_to_route(index).is_ok());
            Route {
                name: name.clone(),
                matcher,
                destination,
                cost: cost(table.get_ref()),
                websocket_idle_timeout,
                max_body_bytes,
                time_limits,
                retries,
                compression,
                mirror,
                handling,
                ip_access,
                forward_auth,
                rules: counting.map(|(_, rule)| rule).collect(),
            }
        });
        Some((self.router?, routes.collect()))
    }
}

/// Checks that there is a route.
fn check(config: &Config, diagnostics: &mut Diagnostics) {
    if config.routes.is_empty() && !diagnostics.explain_unknown(&["routes"]) {
        let message = "there are no routes: every request would be answered 404";
        diagnostics.push(Diagnostic::new(0..0, message).help(SMALLEST_FILE));
    }
}

/// What each route matches, in the order of the file; none if one of them has an error.
fn matchers(
    config: &Config,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Matcher>> {
    check(config, diagnostics);
    let entries = in_order(&config.routes).into_iter();
    let matchers: Vec<Option<Matcher>> = entries
        .map(|(name, table)| matcher(config, name, table.get_ref(), ignore_case, diagnostics))
        .collect();
    matchers.into_iter().collect()
}

/// Where each route forwards its requests, in the order of the file; none if one of them has an
/// error.
fn destinations(
    config: &Config,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Destination>> {
    let mut splits = 0..;
    let mut destinations = Vec::new();
    for (name, table) in in_order(&config.routes) {
        let table = table.get_ref();
        let is_answered =
            table.respond.is_some() || table.redirect.is_some() || is_answered(name, diagnostics);
        if table.split.is_none() {
            split::check_without(name, table, diagnostics);
        }
        destinations.push(match &table.split {
            _ if is_answered => Some(Destination::Gateway),
            None => upstream(name, table, names, diagnostics).map(Destination::One),
            Some(field) => {
                let number = splits.next().unwrap_or_default();
                split::split(name, table, field, number, names, diagnostics)
            }
        });
    }
    destinations.into_iter().collect()
}

/// Settings of a route.
pub(super) struct Settings {
    websocket_idle_timeout: Duration,
    max_body_bytes: Option<u64>,
    time_limits: Option<Box<TimeLimits>>,
    retries: Option<Box<Retries>>,
    compression: Option<Compression>,
    mirror: Option<Box<RouteMirror>>,
    pub(super) handling: Option<Arc<Handling>>,
}

/// The settings of each route, in the order of the file; none if one of them has an error.
fn settings(
    config: &Config,
    names: &Names,
    environment: Environment<'_>,
    cors: Option<&Arc<Cors>>,
    matchers: Option<&[Matcher]>,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Settings>> {
    let of_server = config.server.as_ref().and_then(|server| server.get_ref().limits.as_ref());
    let of_server = of_server.map_or(&None, |limits| &limits.get_ref().max_body_bytes);
    let of_server = body_limit(of_server, tables::Limits::max_body_bytes.number(), diagnostics);
    let handlings =
        handling::handlings(config, environment, cors, matchers, ignore_case, diagnostics);
    let each = in_order(&config.routes).into_iter().zip(handlings);
    let each: Vec<Option<Settings>> = each
        .map(|((name, table), handling)| {
            let table = table.get_ref();
            let mirror = optional(table.mirror.as_ref(), |own| {
                let upstreams = upstreams_of(table, names);
                mirror::of_route(config, names, name.get_ref(), &upstreams, own, diagnostics)
            });
            let settings = of_route(table, of_server, handling, diagnostics)?;
            Some(Settings { mirror: mirror?.map(Box::new), ..settings })
        })
        .collect();
    of_server?;
    each.into_iter().collect()
}

/// The settings of one route; none if one of them has an error. `of_server`: the maximum size of a
/// body if the route has none.
fn of_route(
    table: &tables::Route,
    of_server: Option<u64>,
    handling: Option<Arc<Handling>>,
    diagnostics: &mut Diagnostics,
) -> Option<Settings> {
    let row = &tables::Route::websocket_idle_timeout;
    let websocket_idle_timeout = duration(row, &table.websocket_idle_timeout, diagnostics);
    let max_body_bytes = body_limit(&table.max_body_bytes, of_server, diagnostics);
    let time_limits = upstreams::time_limits(
        [
            (&tables::Route::first_byte_timeout, &table.first_byte_timeout),
            (&tables::Route::try_timeout, &table.try_timeout),
            (&tables::Route::timeout, &table.timeout),
        ],
        diagnostics,
    );
    let retries = optional(table.retries.as_ref(), |table| retries(table, diagnostics));
    let compression = table.compress.as_ref().map(|own| compression(own, diagnostics));
    Some(Settings {
        websocket_idle_timeout: websocket_idle_timeout?,
        max_body_bytes: Some(max_body_bytes?).filter(|most| *most > 0),
        time_limits: Some(time_limits?).filter(|limits| !limits.is_empty()).map(Box::new),
        retries: retries?.map(Box::new),
        compression,
        mirror: None,
        handling,
    })
}

/// The names of the upstreams of a route, as far as they are known.
fn upstreams_of<'a>(table: &'a tables::Route, names: &'a Names) -> Vec<&'a str> {
    let split = table.split.iter().flat_map(|split| split.get_ref().keys());
    let written = table.upstream.iter().chain(split).map(|name| name.get_ref().as_str());
    let written: Vec<&str> = written.collect();
    match names.upstreams.names() {
        [only] if written.is_empty() => vec![only],
        _ => written,
    }
}

/// `max_body_bytes` of the server or a route; none with an error.
fn body_limit(
    field: &Field<u64>,
    default: Option<u64>,
    diagnostics: &mut Diagnostics,
) -> Option<u64> {
    match field {
        Some(field) => number_in(&tables::Limits::max_body_bytes, field, diagnostics),
        None => default,
    }
}

/// Tokens that a request takes from each bucket.
pub(super) fn cost(table: &tables::Route) -> Cost {
    table.cost.as_ref().map_or(Cost::ONE, |cost| *cost.get_ref())
}

/// The index over all routes; none if two of them match the same requests.
fn router(
    config: &Config,
    matchers: Option<&[Matcher]>,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<Router> {
    let matchers = matchers?;
    let pairs = match Router::new(matchers, ignore_case) {
        Ok(index) => return Some(index),
        Err(pairs) => pairs,
    };
    let entries = in_order(&config.routes);
    let at = |index: u32| Some((entries.get(index as usize)?.0, matchers.get(index as usize)?));
    for (first, second) in pairs {
        if let (Some((first, one)), Some((second, other))) = (at(first), at(second)) {
            if is_incomplete(first, diagnostics) || is_incomplete(second, diagnostics) {
                continue;
            }
            let (message, help) = conflict(first.get_ref(), one, second.get_ref(), other);
            let diagnostic =
                Diagnostic::new(second.span(), message).and(first.span(), "the other one");
            diagnostics.push(diagnostic.help(help));
        }
    }
    None
}

/// The message of two routes of which neither takes precedence, and the help.
fn conflict(first: &str, one: &Matcher, second: &str, other: &Matcher) -> (String, &'static str) {
    let is_plain = |matcher: &Matcher| matcher.conditions.on_values.is_empty();
    if is_plain(one) && is_plain(other) {
        let message = format!("the routes `{first}` and `{second}` match the same requests");
        return (message, "set them apart by path, method or host, or drop one");
    }
    let request = conditions::common_request(one, other);
    let message = format!(
        "the routes `{first}` and `{second}` both match {request}, and neither is more specific"
    );
    (message, "let one have more conditions than the other, or add a route with those of both")
}

/// Whether the route has an answer that was left out because of an error.
fn is_answered(name: &Spanned<String>, diagnostics: &Diagnostics) -> bool {
    let absent = |setting| diagnostics.explain_absence(&["routes", name.get_ref(), setting]);
    absent("respond") || absent("redirect")
}

/// The settings that set a route apart from others.
const MATCHING: [&str; 8] =
    ["path", "path_regex", "host", "methods", "trailing_slash", "headers", "query", "cookies"];

/// Whether a setting that sets the route apart was left out because of an error.
fn is_incomplete(name: &Spanned<String>, diagnostics: &Diagnostics) -> bool {
    let absent = |setting| diagnostics.explain_absence(&["routes", name.get_ref(), setting]);
    MATCHING.into_iter().any(absent)
}

/// The index of the upstream of a route, which may be left out if there is only one.
fn upstream(
    name: &Spanned<String>,
    route: &tables::Route,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<u32> {
    if let Some(upstream) = &route.upstream {
        return names.upstreams.find(upstream, diagnostics);
    }
    if names.upstreams.names().len() == 1 {
        return Some(0);
    }
    let explained = diagnostics.explain_absence(&["routes", name.get_ref(), "upstream"])
        || diagnostics.explain_absence(&["routes", name.get_ref(), "split"])
        || (names.upstreams.names().is_empty() && diagnostics.explain_unknown(&["upstreams"]));
    if !explained {
        let message = format!("the route `{}` has no upstream", cut(name.get_ref(), 64));
        let help = match names.upstreams.names() {
            [] => "add `[upstreams.api]` with `servers = [\"127.0.0.1:3000\"]`".to_owned(),
            [first, ..] => format!("add `upstream = \"{}\"`, or another one", cut(first, 64)),
        };
        diagnostics.push(Diagnostic::new(name.span(), message).help(help));
    }
    None
}

/// What a route matches; none with an error.
fn matcher(
    config: &Config,
    name: &Spanned<String>,
    route: &tables::Route,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<Matcher> {
    let path = path(route, ignore_case, diagnostics);
    let hosts = hosts::hosts(name.get_ref(), route.host.as_ref(), diagnostics);
    let methods = methods(name.get_ref(), &route.methods, diagnostics);
    let on_values = conditions::conditions(config, name, route, diagnostics);
    let trailing_slash = meaning(route.trailing_slash.as_ref());
    let path = path?;
    let params = path.text().map(PathParams::of).unwrap_or_default();
    let conditions = Conditions { methods, on_values: on_values? };
    Some(Matcher { hosts: hosts?, path, params, trailing_slash, conditions })
}

/// The paths of a route; none with an error.
fn path(
    route: &tables::Route,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<PathPattern> {
    let (field, parsed) = match (&route.path, &route.path_regex) {
        (None, None) => return Some(PathPattern::Prefix("/".to_owned())),
        (Some(field), None) => (field, path::parse(field.get_ref())),
        (None, Some(field)) => {
            if let Some(slash) = &route.trailing_slash {
                let message = "`trailing_slash` has no meaning beside `path_regex`";
                let help = "write the slash in the expression: `/?$` for a path with or without it";
                diagnostics.push(Diagnostic::new(slash.span(), message).help(help));
                return None;
            }
            match expression::parse(field.get_ref(), ignore_case) {
                Ok(expression) => return Some(PathPattern::Expression(expression)),
                Err(mistake) => {
                    diagnostics.push(mistake.at(field.span()));
                    return None;
                }
            }
        }
        (Some(path), Some(field)) => {
            let message = "`path` and `path_regex` exclude each other";
            let diagnostic = Diagnostic::new(field.span(), message).and(path.span(), "here");
            diagnostics.push(diagnostic.help("keep one of them"));
            return None;
        }
    };
    match parsed {
        Ok(path) => Some(path),
        Err((message, help)) => {
            let diagnostic = Diagnostic::new(field.span(), message);
            diagnostics.push(match help {
                Some(help) => diagnostic.help(cut(&help, 120)),
                None => diagnostic,
            });
            None
        }
    }
}

/// The methods; empty: all.
fn methods(name: &str, list: &List, diagnostics: &mut Diagnostics) -> Vec<Method> {
    let Some(list) = list else {
        return Vec::new();
    };
    if list.get_ref().is_empty() && !diagnostics.explain_absence(&["routes", name, "methods"]) {
        let help = "leave `methods` out for all of them";
        diagnostics.push(Diagnostic::new(list.span(), "`methods` is empty").help(help));
    }
    each_method(list.get_ref(), diagnostics)
}

/// The methods of a list, without those that have an error.
pub(super) fn each_method(list: &[Spanned<String>], diagnostics: &mut Diagnostics) -> Vec<Method> {
    let mut seen = HashMap::new();
    let mut methods = Vec::new();
    for item in list {
        let text = item.get_ref();
        if let Some(first) = seen.insert(text, item.span()) {
            diagnostics.push(twice(item, first));
        }
        let upper = text.to_ascii_uppercase();
        match Method::from_bytes(text.as_bytes()) {
            Ok(method) if *text == upper && text.len() <= 32 => methods.push(method),
            Ok(_) if text.len() <= 32 => {
                let message = format!("the method `{text}` is not in upper case");
                diagnostics
                    .push(Diagnostic::new(item.span(), message).help(format!("write `{upper}`")));
            }
            _ => {
                let message = format!("`{}` is not a method", cut(text, 40));
                diagnostics
                    .push(Diagnostic::new(item.span(), message).help("such as `GET` or `POST`"));
            }
        }
    }
    methods
}
