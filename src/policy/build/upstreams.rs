//! `[upstreams]`: servers that requests are forwarded to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use super::balance;
use super::compression::compression;
use super::environment::Environment;
use super::health;
use super::mirror;
use super::names::{Names, twice};
use super::origin::{Scheme, origin, service};
use super::resolvers;
use super::retries::retries;
use super::upstream_tls;
use super::values::{
    duration, number, number_in, optional, optional_duration, out_of_range, switch,
};
use super::words::meaning;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::tables::{Field, TextOr, UpstreamServer};
use crate::config::words::{Auto, Resolve};
use crate::config::{Config, in_order, tables};
use crate::policy::retries::Retries;
use crate::policy::servers::Server;
use crate::policy::settings::{MaxConnections, MaxInFlight, Target, Upstream};
use crate::policy::time_limits::TimeLimits;

/// The name of the built-in responder.
const DEMO: &str = "demo";

/// All upstreams without an error. With an error there is no policy, so the indexes do not matter.
pub(super) fn upstreams(
    config: &Config,
    names: &Names,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Upstream> {
    let servers = config.server.as_ref().map(|server| &server.get_ref().resolvers);
    let resolvers = resolvers::resolvers(servers.and_then(Option::as_ref), diagnostics);
    let entries = in_order(&config.upstreams).into_iter();
    let upstreams = entries.filter_map(|(name, table)| {
        let mirror = optional(table.get_ref().mirror.as_ref(), |own| {
            mirror::of_upstream(config, names, name.get_ref(), own, diagnostics).map(Box::new)
        });
        let upstream = upstream(name, table, &resolvers, environment, diagnostics);
        Some(Upstream { mirror: mirror?, ..upstream? })
    });
    upstreams.collect()
}

/// Whether an upstream is the built-in responder.
pub(super) fn is_demo(upstream: &tables::Upstream) -> bool {
    let is_demo = |server: &Spanned<TextOr<UpstreamServer>>| match server.get_ref() {
        TextOr::Text(text) => text == DEMO,
        TextOr::Table(_) => false,
    };
    upstream.servers.as_ref().is_some_and(|servers| servers.get_ref().iter().any(is_demo))
}

fn upstream(
    name: &Spanned<String>,
    table: &Spanned<tables::Upstream>,
    resolvers: &Arc<[SocketAddr]>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Upstream> {
    let upstream = table.get_ref();
    let target = target(name, upstream, diagnostics);
    let scheme = target.as_ref().and_then(|(_, scheme)| *scheme);
    let tls =
        upstream_tls::tls(name.get_ref(), scheme, upstream.tls.as_ref(), environment, diagnostics);
    if target.is_some() {
        upstream_tls::check_protocol(scheme, upstream.protocol.as_ref(), diagnostics);
    }
    let max_in_flight = max_in_flight(upstream.max_in_flight.as_ref(), diagnostics);
    let max_connections = max_connections(upstream, diagnostics);
    let mut time = |row, field| duration(row, field, diagnostics);
    let connect_timeout = time(&tables::Upstream::connect_timeout, &upstream.connect_timeout);
    let read_timeout = time(&tables::Upstream::read_timeout, &upstream.read_timeout);
    let write_timeout = time(&tables::Upstream::write_timeout, &upstream.write_timeout);
    let idle_timeout = time(&tables::Upstream::idle_timeout, &upstream.idle_timeout);
    let time_limits = time_limits(
        [
            (&tables::Upstream::first_byte_timeout, &upstream.first_byte_timeout),
            (&tables::Upstream::try_timeout, &upstream.try_timeout),
            (&tables::Upstream::timeout, &upstream.timeout),
        ],
        diagnostics,
    );
    let balance = balance::balance(upstream.balance.as_ref(), diagnostics);
    let sticky = optional(upstream.sticky.as_ref(), |table| {
        balance::sticky(table, environment, diagnostics)
    });
    let health = optional(upstream.health.as_ref(), |table| {
        health::health(table.get_ref(), diagnostics).map(Arc::new)
    });
    let eject = optional(upstream.eject.as_ref(), |table| health::eject(table, diagnostics));
    let slow_start_us = balance::slow_start_us(&upstream.slow_start, diagnostics);
    let retries = match &upstream.retries {
        None => Some(Retries::default()),
        Some(table) => retries(table, diagnostics),
    };
    let compression = upstream.compress.as_ref().map(|own| compression(own, diagnostics));
    Some(Upstream {
        name: Arc::from(name.get_ref().as_str()),
        target: target?.0,
        resolvers: Arc::clone(resolvers),
        balance: balance?,
        sticky: sticky?,
        health: health?,
        eject: eject?,
        slow_start_us: slow_start_us?,
        connect_timeout: connect_timeout?,
        read_timeout: read_timeout?,
        write_timeout: write_timeout?,
        time_limits: time_limits?,
        idle_timeout: idle_timeout?,
        tls,
        protocol: meaning(upstream.protocol.as_ref()),
        proxy_protocol: upstream.proxy_protocol.as_ref().map(|version| *version.get_ref()),
        max_in_flight,
        max_connections,
        retries: retries?,
        compression: compression.unwrap_or_default(),
        mirror: None,
    })
}

/// The time limits of an upstream or a route that are optional: those to the head of a response, of
/// an attempt, and of a request.
pub(super) fn time_limits(
    settings: [(&Row, &Field<String>); 3],
    diagnostics: &mut Diagnostics,
) -> Option<TimeLimits> {
    let [first_byte, attempt, request] =
        settings.map(|(row, field)| optional_duration(row, field, diagnostics));
    Some(TimeLimits { first_byte: first_byte?, attempt: attempt?, request: request? })
}

/// The maximum number of requests in flight; none if it is left out, or with an error.
fn max_in_flight(
    setting: Option<&Spanned<tables::MaxInFlight>>,
    diagnostics: &mut Diagnostics,
) -> Option<MaxInFlight> {
    let row = &tables::Upstream::max_in_flight;
    let setting = setting?;
    let requests = match setting.get_ref() {
        tables::MaxInFlight::Word(Auto::Auto) => return Some(MaxInFlight::Auto),
        tables::MaxInFlight::Requests(requests) => *requests,
    };
    if row.range().has(requests) {
        return u32::try_from(requests).ok().map(MaxInFlight::Requests);
    }
    let help = "for as many as the upstream serves well, write `max_in_flight = \"auto\"`";
    diagnostics.push(out_of_range(row, setting.span()).help(help));
    None
}

/// Number of requests that wait for a connection at most, if the file does not say so. That of
/// Envoy.
const DEFAULT_PENDING: u32 = 1024;

/// The maximum number of open connections; none if it is left out, or with an error.
fn max_connections(
    upstream: &tables::Upstream,
    diagnostics: &mut Diagnostics,
) -> Option<MaxConnections> {
    let pending = upstream.max_pending.as_ref();
    let waiting =
        pending.map(|field| (field, number_in(&tables::Upstream::max_pending, field, diagnostics)));
    let Some(field) = &upstream.max_connections else {
        if let Some((field, _)) = waiting {
            let message = "`max_pending` is for requests that wait because of `max_connections`";
            let help = "write `max_connections = 200`, too, or take `max_pending` out";
            diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        }
        return None;
    };
    let open = number_in(&tables::Upstream::max_connections, field, diagnostics)?;
    let waiting = match waiting {
        None => DEFAULT_PENDING,
        Some((_, waiting)) => u32::try_from(waiting?).ok()?,
    };
    Some(MaxConnections { open: u32::try_from(open).ok()?, waiting })
}

/// The servers with their scheme, or the built-in responder, which has none.
fn target(
    name: &Spanned<String>,
    upstream: &tables::Upstream,
    diagnostics: &mut Diagnostics,
) -> Option<(Target, Option<Scheme>)> {
    let servers = upstream.servers.as_ref().filter(|servers| !servers.get_ref().is_empty());
    let Some(servers) = servers else {
        if !diagnostics.explain_absence(&["upstreams", name.get_ref(), "servers"]) {
            let span = upstream.servers.as_ref().map_or_else(|| name.span(), Spanned::span);
            let message = format!("the upstream `{}` has no servers", cut(name.get_ref(), 64));
            let help = "write `servers = [\"127.0.0.1:3000\"]`, or `[\"demo\"]` to try things out";
            diagnostics.push(Diagnostic::new(span, message).help(help));
        }
        return None;
    };
    let servers: Vec<Entry<'_>> =
        servers.get_ref().iter().filter_map(|item| entry(name, item, diagnostics)).collect();
    let resolve = meaning(upstream.resolve.as_ref());
    let is_demo = |entry: &&Entry<'_>| entry.address.get_ref() == DEMO;
    if let Some(demo) = servers.iter().find(is_demo)
        && servers.len() > 1
    {
        let message = "`demo` is the built-in responder, not one of several servers";
        let help = "take it out, or take the other servers out";
        diagnostics.push(Diagnostic::new(demo.address.span(), message).help(help));
    }
    if servers.iter().all(|entry| is_demo(&entry)) {
        if let Some(field) = upstream.resolve.as_ref().filter(|_| resolve == Resolve::Srv) {
            let message = "the built-in responder `demo` is no name of SRV records";
            diagnostics.push(Diagnostic::new(field.span(), message).help("take `resolve` out"));
        }
        return Some((Target::Demo, None));
    }
    let mut seen = HashMap::new();
    let mut built = Vec::new();
    let mut first: Option<(Scheme, Range<usize>)> = None;
    for entry in servers.iter().filter(|entry| !is_demo(entry)) {
        let weight_and_priority = weight_and_priority(entry.settings, diagnostics);
        let address = &entry.address;
        let origin = match resolve {
            Resolve::A => origin(address, diagnostics),
            Resolve::Srv => {
                check_weight(entry.settings, diagnostics);
                service(address, diagnostics)
            }
        };
        let Some((scheme, origin)) = origin else { continue };
        match &first {
            Some((other, span)) if *other != scheme => {
                diagnostics.push(mixed_schemes(address, scheme, span.clone()));
            }
            Some(_) => {}
            None => first = Some((scheme, address.span())),
        }
        if let Some(first) = seen.insert(origin.clone(), address.span()) {
            diagnostics.push(twice(address, first));
        }
        if let Some((weight, priority)) = weight_and_priority {
            built.push(Server { origin, weight, priority });
        }
    }
    Some((Target::Servers(built), first.map(|(scheme, _)| scheme)))
}

/// An item of `servers`.
struct Entry<'a> {
    address: Spanned<String>,
    /// The settings beside the address, if it is a table.
    settings: Option<&'a tables::UpstreamServer>,
}

/// Reads an item of `servers`, or reports that it has no address.
fn entry<'a>(
    name: &Spanned<String>,
    item: &'a Spanned<TextOr<tables::UpstreamServer>>,
    diagnostics: &mut Diagnostics,
) -> Option<Entry<'a>> {
    match item.get_ref() {
        TextOr::Text(text) => Some(Entry { address: item.with(text.clone()), settings: None }),
        TextOr::Table(table) => {
            if let Some(address) = &table.address {
                return Some(Entry { address: address.clone(), settings: Some(table) });
            }
            if diagnostics.explain_absence(&["upstreams", name.get_ref(), "servers", "address"]) {
                return None;
            }
            let help = "write `{ address = \"127.0.0.1:3000\", weight = 2 }`";
            let message = "this server has no `address`";
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            None
        }
    }
}

/// The weight and the priority of a server; none with an error.
fn weight_and_priority(
    settings: Option<&tables::UpstreamServer>,
    diagnostics: &mut Diagnostics,
) -> Option<(u16, u8)> {
    let default = UpstreamServer::default();
    let settings = settings.unwrap_or(&default);
    let weight = number(&UpstreamServer::weight, &settings.weight, diagnostics);
    let is_backup = switch(&UpstreamServer::backup, &settings.backup);
    let priority = match &settings.priority {
        None => Some(u64::from(is_backup)),
        Some(field) => number_in(&UpstreamServer::priority, field, diagnostics),
    };
    if let (true, Some(field)) = (is_backup, &settings.priority) {
        let message = "`backup = true` is the priority 1, so `priority` cannot be set, too";
        diagnostics.push(Diagnostic::new(field.span(), message).help("take one of them out"));
    }
    Some((u16::try_from(weight?).ok()?, u8::try_from(priority?).ok()?))
}

/// Reports the weight of a server whose SRV records have weights.
fn check_weight(settings: Option<&tables::UpstreamServer>, diagnostics: &mut Diagnostics) {
    if let Some(field) = settings.and_then(|settings| settings.weight.as_ref()) {
        let message =
            "with `resolve = \"srv\"`, a server has no `weight`: its SRV records have weights";
        diagnostics.push(Diagnostic::new(field.span(), message).help("take it out"));
    }
}

/// Servers with TLS and without in one upstream.
fn mixed_schemes(server: &Spanned<String>, scheme: Scheme, first: Range<usize>) -> Diagnostic {
    let (message, other) = match scheme {
        Scheme::Https => ("this server has TLS, and the first one has none", "without TLS"),
        Scheme::Http => ("this server has no TLS, and the first one has", "with TLS"),
    };
    Diagnostic::new(server.span(), message)
        .and(first, other)
        .help("write `https://` before all servers of an upstream, or before none")
}
