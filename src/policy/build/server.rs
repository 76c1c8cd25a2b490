//! `[server]`, `[headers]` and `[memory]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

use super::values::{duration, number, number_in, optional_duration, out_of_range, switch};
use super::words::meaning;
use super::{address, names};
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::listener;
use crate::config::outline::Outline;
use crate::config::spanned::Spanned;
use crate::config::tables::{self, Field, List};
use crate::config::words::PathCase;
use crate::policy::settings::{Headers, Http2, MaxBytes, Memory, Server, ServerLimits};

/// Default of `server.listen`: port 8080 on all IPv4 addresses.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);

/// Builds the settings of `[server]`; none if one of them has an error.
pub(super) fn server(config: &Config, diagnostics: &mut Diagnostics) -> Option<Server> {
    let default = tables::Server::default();
    let server = config.server.as_ref().map_or(&default, |server| server.get_ref());
    let listen = listen(config, &server.listen, diagnostics);
    let admin = admin(server.admin.as_ref(), diagnostics);
    if let (Some(listen), Some(admin)) = (&listen, &admin) {
        check_admin_is_apart(listen, admin, diagnostics);
    }
    let mut optional = |row, field: &Field<u64>| {
        field.as_ref().and_then(|field| number_in(row, field, diagnostics))
    };
    let threads = optional(&tables::Server::threads, &server.threads);
    let instances = optional(&tables::Server::instances, &server.instances);
    let mut time = |row, field| duration(row, field, diagnostics);
    let keepalive_timeout = time(&tables::Server::keepalive_timeout, &server.keepalive_timeout);
    let read_timeout = time(&tables::Server::read_timeout, &server.read_timeout);
    let write_timeout = time(&tables::Server::write_timeout, &server.write_timeout);
    let drain_timeout = time(&tables::Server::drain_timeout, &server.drain_timeout);
    let upgrade_timeout = time(&tables::Server::upgrade_timeout, &server.upgrade_timeout);
    let drain_delay =
        optional_duration(&tables::Server::drain_delay, &server.drain_delay, diagnostics);
    let mut size = |row, field| number(row, field, diagnostics);
    let max_header_bytes = size(&tables::Server::max_header_bytes, &server.max_header_bytes);
    let max_uri_bytes = size(&tables::Server::max_uri_bytes, &server.max_uri_bytes);
    let limits = limits(server.limits.as_ref(), diagnostics);
    let http2 = http2(server.http2.as_ref(), keepalive_timeout, diagnostics);
    let path_case = server.path_case.as_ref().map(|word| *word.get_ref());
    Some(Server {
        listen: listen?.into_iter().map(|(address, _)| address).collect(),
        admin: admin?.0,
        threads: threads.and_then(|threads| usize::try_from(threads).ok()),
        trusted_proxies: address::networks(&server.trusted_proxies, diagnostics),
        keepalive_timeout: keepalive_timeout?,
        read_timeout: read_timeout?,
        write_timeout: write_timeout?,
        drain_delay: drain_delay?,
        drain_timeout: drain_timeout?,
        upgrade_timeout: upgrade_timeout?,
        max_header_bytes: max_header_bytes?,
        max_uri_bytes: max_uri_bytes?,
        ignore_path_case: path_case == Some(PathCase::Insensitive),
        instances: instances.and_then(|instances| u32::try_from(instances).ok()),
        limits: limits?,
        http2: http2?,
    })
}

/// Builds the settings of `[server.limits]`; none if one of them has an error.
fn limits(
    table: Option<&Spanned<tables::Limits>>,
    diagnostics: &mut Diagnostics,
) -> Option<ServerLimits> {
    let default = tables::Limits::default();
    let limits = table.map_or(&default, Spanned::get_ref);
    let mut time = |row, field| duration(row, field, diagnostics);
    let handshake_timeout = time(&tables::Limits::handshake_timeout, &limits.handshake_timeout);
    let head_timeout = time(&tables::Limits::head_timeout, &limits.head_timeout);
    let mut count = |row, field| number(row, field, diagnostics);
    let max_requests =
        count(&tables::Limits::max_requests_per_connection, &limits.max_requests_per_connection);
    let body_min_rate = count(&tables::Limits::body_min_rate, &limits.body_min_rate);
    let send_min_rate = count(&tables::Limits::send_min_rate, &limits.send_min_rate);
    let max_headers = count(&tables::Limits::max_headers, &limits.max_headers);
    let max_connections = match &limits.max_connections {
        None => Some(None),
        set => count(&tables::Limits::max_connections, set).map(Some),
    };
    let max_connections_per_ip =
        count(&tables::Limits::max_connections_per_ip, &limits.max_connections_per_ip);
    let max_waiting = count(&tables::Limits::max_waiting_requests, &limits.max_waiting_requests);
    Some(ServerLimits {
        handshake_timeout: handshake_timeout?,
        head_timeout: head_timeout?,
        body_min_rate: positive(body_min_rate?).and_then(NonZeroU64::new),
        send_min_rate: positive(send_min_rate?).and_then(NonZeroU64::new),
        max_requests_per_connection: positive(max_requests?),
        max_headers: max_headers?,
        max_connections: max_connections?,
        max_connections_per_ip: max_connections_per_ip?,
        max_waiting_requests: max_waiting?,
        unready_on_overload: switch(
            &tables::Limits::unready_on_overload,
            &limits.unready_on_overload,
        ),
    })
}

/// A limit whose 0 means none.
fn positive(limit: usize) -> Option<u64> {
    u64::try_from(limit).ok().filter(|limit| *limit > 0)
}

/// Builds the settings of `[server.http2]`; none if one of them has an error.
fn http2(
    table: Option<&Spanned<tables::Http2>>,
    keepalive_timeout: Option<Duration>,
    diagnostics: &mut Diagnostics,
) -> Option<Http2> {
    let default = tables::Http2::default();
    let http2 = table.map_or(&default, Spanned::get_ref);
    let mut limit = |row, field| number(row, field, diagnostics);
    let streams = limit(&tables::Http2::max_concurrent_streams, &http2.max_concurrent_streams);
    let header_list = limit(&tables::Http2::max_header_list_bytes, &http2.max_header_list_bytes);
    let max_pending_resets = limit(&tables::Http2::max_pending_resets, &http2.max_pending_resets);
    let mut time = |row, field| optional_duration(row, field, diagnostics);
    let idle_timeout = time(&tables::Http2::idle_timeout, &http2.idle_timeout);
    let max_connection_age = time(&tables::Http2::max_connection_age, &http2.max_connection_age);
    Some(Http2 {
        max_concurrent_streams: u32::try_from(streams?).ok()?,
        max_header_list_bytes: u32::try_from(header_list?).ok()?,
        max_pending_resets: max_pending_resets?,
        idle_timeout: idle_timeout?.or(keepalive_timeout)?,
        max_connection_age: max_connection_age?,
    })
}

/// An address, and its span if the file has it.
type Placed = (SocketAddr, Option<Range<usize>>);

/// The addresses on which clients connect by plain HTTP/1.1, each once; may be empty beside
/// `[[listeners]]`.
fn listen(config: &Config, list: &List, diagnostics: &mut Diagnostics) -> Option<Vec<Placed>> {
    let has_listeners =
        config.listeners.as_ref().is_some_and(|listeners| !listeners.get_ref().is_empty());
    let Some(list) = list else {
        // A misspelt `[[listeners]]` is reported already.
        return Some(if has_listeners { Vec::new() } else { vec![(LISTEN, None)] });
    };
    if list.get_ref().is_empty() && !has_listeners {
        if !diagnostics.explain_absence(&["server", "listen"]) {
            let help = "write `listen = [\"0.0.0.0:8080\"]`, or leave it out";
            diagnostics.push(Diagnostic::new(list.span(), "`listen` has no address").help(help));
        }
        return None;
    }
    let mut addresses: Vec<Placed> = Vec::new();
    for item in list.get_ref() {
        let Some(address) = address::socket("listen", item, diagnostics) else { continue };
        let first = addresses.iter().find(|(other, _)| listener::overlap(*other, address));
        if let Some((other, Some(span))) = first {
            diagnostics.push(if *other == address {
                names::twice(item, span.clone())
            } else {
                let message = format!("`{address}` and `{other}` have the same port");
                Diagnostic::new(item.span(), message)
                    .and(span.clone(), "this is the other one")
                    .help("leave out the one that the other includes, or give it another port")
            });
        }
        addresses.push((address, Some(item.span())));
    }
    Some(addresses)
}

/// The address of the admin port of a file whose other settings may have errors, even of syntax;
/// `outline` is that of the same file. None if the errors may hide it.
pub fn admin_address(
    config: &Config,
    outline: &Outline,
    diagnostics: &mut Diagnostics,
) -> Option<SocketAddr> {
    const PATH: [&str; 2] = ["server", "admin"];

    let server = config.server.as_ref().map(Spanned::get_ref);
    if let Some(field) = server.and_then(|server| server.admin.as_ref()) {
        return address::socket("admin", field, diagnostics);
    }
    let recovered = outline.text(&PATH).and_then(|text| text.parse().ok());
    recovered.or_else(|| default_admin().filter(|_| !diagnostics.explain_absence(&PATH)))
}

fn default_admin() -> Option<SocketAddr> {
    tables::Server::admin.text()?.parse().ok()
}

/// The address of the admin port.
fn admin(field: Option<&Spanned<String>>, diagnostics: &mut Diagnostics) -> Option<Placed> {
    match field {
        Some(field) => Some((address::socket("admin", field, diagnostics)?, Some(field.span()))),
        None => Some((default_admin()?, None)),
    }
}

/// Reports a listener that has the address of the admin port.
fn check_admin_is_apart(listen: &[Placed], admin: &Placed, diagnostics: &mut Diagnostics) {
    let same = listen.iter().find(|(listen, _)| listener::overlap(*listen, admin.0));
    let Some((address, listen_span)) = same else { return };
    let message = if *address == admin.0 {
        format!("`listen` and `admin` are both {address}")
    } else {
        format!("`listen` and `admin` have the same port: {address} and {}", admin.0)
    };
    let diagnostic = match (&admin.1, listen_span) {
        (Some(admin), Some(listen)) => Diagnostic::new(admin.clone(), message)
            .and(listen.clone(), "clients connect here")
            .help("give `admin` another port"),
        (Some(span), None) | (None, Some(span)) => {
            let help = "one of them is the default; give `admin` another port";
            Diagnostic::new(span.clone(), message).help(help)
        }
        (None, None) => return,
    };
    diagnostics.push(diagnostic);
}

/// Builds the settings of `[headers]`; those left out have their defaults.
pub(super) fn headers(config: &Config) -> Headers {
    let Some(headers) = &config.headers else {
        return Headers::default();
    };
    let tables::Headers { style, policies, reset, mode } = headers.get_ref();
    Headers {
        style: meaning(style.as_ref()),
        policies: meaning(policies.as_ref()),
        reset: meaning(reset.as_ref()),
        mode: switch(&tables::Headers::mode, mode),
    }
}

/// Builds the settings of `[memory]`; none if one of them has an error.
pub(super) fn memory(config: &Config, diagnostics: &mut Diagnostics) -> Option<Memory> {
    let default = tables::Memory::default();
    let memory = config.memory.as_ref().map_or(&default, |memory| memory.get_ref());
    let max_buckets = number(&tables::Memory::max_buckets, &memory.max_buckets, diagnostics);
    let max_bytes = match memory.max_bytes.as_ref() {
        None => Some(MaxBytes::Cgroup),
        Some(field) if *field.get_ref() == 0 => Some(MaxBytes::Off),
        Some(field) if tables::Memory::max_bytes.range().has(*field.get_ref()) => {
            Some(MaxBytes::Bytes(*field.get_ref()))
        }
        Some(field) => {
            let help = "it is a number of bytes; 0 removes the limit";
            let diagnostic = out_of_range(&tables::Memory::max_bytes, field.span());
            diagnostics.push(diagnostic.help(help));
            None
        }
    };
    Some(Memory { max_buckets: max_buckets?, max_bytes: max_bytes? })
}
