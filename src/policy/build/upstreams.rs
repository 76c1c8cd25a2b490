//! `[upstreams]`: servers that requests are forwarded to.

use std::collections::HashMap;
use std::sync::Arc;

use super::names::twice;
use super::origin::origin;
use super::values::duration;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::cut;
use crate::config::{Config, in_order, tables};
use crate::policy::settings::{Target, Upstream};

/// The name of the built-in responder.
const DEMO: &str = "demo";

/// All upstreams without an error. With an error there is no policy, so the indexes do not matter.
pub(super) fn upstreams(config: &Config, diagnostics: &mut Diagnostics) -> Vec<Upstream> {
    let entries = in_order(&config.upstreams);
    entries.into_iter().filter_map(|(name, table)| upstream(name, table, diagnostics)).collect()
}

fn upstream(
    name: &Spanned<String>,
    table: &Spanned<tables::Upstream>,
    diagnostics: &mut Diagnostics,
) -> Option<Upstream> {
    let upstream = table.get_ref();
    let target = target(name, upstream, diagnostics);
    let mut time = |name, field, default_ms| duration(name, field, default_ms, diagnostics);
    let connect_timeout = time("connect_timeout", upstream.connect_timeout.as_ref(), 1_000);
    let read_timeout = time("read_timeout", upstream.read_timeout.as_ref(), 30_000);
    let write_timeout = time("write_timeout", upstream.write_timeout.as_ref(), 30_000);
    let idle_timeout = time("idle_timeout", upstream.idle_timeout.as_ref(), 60_000);
    Some(Upstream {
        name: Arc::from(name.get_ref().as_str()),
        target: target?,
        connect_timeout: connect_timeout?,
        read_timeout: read_timeout?,
        write_timeout: write_timeout?,
        idle_timeout: idle_timeout?,
    })
}

/// The servers, or the built-in responder.
fn target(
    name: &Spanned<String>,
    upstream: &tables::Upstream,
    diagnostics: &mut Diagnostics,
) -> Option<Target> {
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
        return Some(Target::Demo);
    }
    let mut seen = HashMap::new();
    let mut origins = Vec::new();
    for server in servers.iter().filter(|server| server.get_ref() != DEMO) {
        let Some(origin) = origin(server, diagnostics) else { continue };
        if let Some(first) = seen.insert(origin.clone(), server.span()) {
            diagnostics.push(twice(server, first));
        }
        origins.push(origin);
    }
    Some(Target::Servers(origins))
}
