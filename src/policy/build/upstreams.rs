//! `[upstreams]`: servers that requests are forwarded to.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::environment::Environment;
use super::names::twice;
use super::origin::{Scheme, origin};
use super::upstream_tls;
use super::values::duration;
use super::words::meaning;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::cut;
use crate::config::{Config, in_order, tables};
use crate::policy::settings::{Target, Upstream};

/// The name of the built-in responder.
const DEMO: &str = "demo";

/// All upstreams without an error. With an error there is no policy, so the indexes do not matter.
pub(super) fn upstreams(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Upstream> {
    let entries = in_order(&config.upstreams).into_iter();
    entries.filter_map(|(name, table)| upstream(name, table, environment, diagnostics)).collect()
}

fn upstream(
    name: &Spanned<String>,
    table: &Spanned<tables::Upstream>,
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
    let mut time = |name, field, default_ms| duration(name, field, default_ms, diagnostics);
    let connect_timeout = time("connect_timeout", upstream.connect_timeout.as_ref(), 1_000);
    let read_timeout = time("read_timeout", upstream.read_timeout.as_ref(), 30_000);
    let write_timeout = time("write_timeout", upstream.write_timeout.as_ref(), 30_000);
    let idle_timeout = time("idle_timeout", upstream.idle_timeout.as_ref(), 60_000);
    Some(Upstream {
        name: Arc::from(name.get_ref().as_str()),
        target: target?.0,
        connect_timeout: connect_timeout?,
        read_timeout: read_timeout?,
        write_timeout: write_timeout?,
        idle_timeout: idle_timeout?,
        tls,
        protocol: meaning(upstream.protocol.as_ref()),
        proxy_protocol: upstream.proxy_protocol.as_ref().map(|word| (*word.get_ref()).into()),
    })
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
    let servers = servers.get_ref();
    if let Some(demo) = servers.iter().find(|server| server.get_ref() == DEMO)
        && servers.len() > 1
    {
        let message = "`demo` is the built-in responder, not one of several servers";
        let help = "take it out, or take the other servers out";
        diagnostics.push(Diagnostic::new(demo.span(), message).help(help));
    }
    if servers.iter().all(|server| server.get_ref() == DEMO) {
        return Some((Target::Demo, None));
    }
    let mut seen = HashMap::new();
    let mut origins = Vec::new();
    let mut first: Option<(Scheme, Range<usize>)> = None;
    for server in servers.iter().filter(|server| server.get_ref() != DEMO) {
        let Some((scheme, origin)) = origin(server, diagnostics) else { continue };
        match &first {
            Some((other, span)) if *other != scheme => {
                diagnostics.push(mixed_schemes(server, scheme, span.clone()));
            }
            Some(_) => {}
            None => first = Some((scheme, server.span())),
        }
        if let Some(first) = seen.insert(origin.clone(), server.span()) {
            diagnostics.push(twice(server, first));
        }
        origins.push(origin);
    }
    Some((Target::Servers(origins), first.map(|(scheme, _)| scheme)))
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
