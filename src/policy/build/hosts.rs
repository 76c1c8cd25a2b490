//! `host` of a route: a host, or a list of hosts, each of which may be `*.example.com`.

use std::collections::HashMap;

use super::mistake::Mistake;
use super::names::twice;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::tables::TextOrList;
use crate::net::address::is_host;
use crate::policy::hosts::{HostPattern, Hosts};
use crate::policy::matcher::ipv6_host;

/// The hosts of the route `route`; none with an error.
pub(super) fn hosts(
    route: &str,
    field: Option<&Spanned<TextOrList>>,
    diagnostics: &mut Diagnostics,
) -> Option<Hosts> {
    let Some(field) = field else { return Some(Hosts::default()) };
    let items = match field.get_ref() {
        TextOrList::Text(text) => &[Spanned::new(text.clone(), field.span())][..],
        TextOrList::List(items) => items,
    };
    if items.is_empty() {
        if !diagnostics.explain_absence(&["routes", route, "host"]) {
            let help = "leave `host` out for all hosts";
            diagnostics.push(Diagnostic::new(field.span(), "`host` is empty").help(help));
        }
        return None;
    }
    let mut seen = HashMap::new();
    let mut patterns = Vec::with_capacity(items.len());
    let mut has_errors = false;
    for item in items {
        match pattern(item.get_ref()) {
            Ok(pattern) => {
                // With the same host twice, the route would be in conflict with itself.
                if let Some(first) = seen.insert(pattern.clone(), item.span()) {
                    diagnostics.push(twice(item, first));
                } else {
                    patterns.push(pattern);
                }
            }
            Err(mistake) => {
                has_errors = true;
                diagnostics.push(mistake.at(item.span()));
            }
        }
    }
    (!has_errors).then(|| Hosts::new(patterns))
}

/// Parses one host.
///
/// # Errors
/// See [`Mistake`].
fn pattern(text: &str) -> Result<HostPattern, Mistake> {
    if let Some(address) = ipv6_host(text) {
        return Ok(HostPattern::Exact(address));
    }
    // Requests have the final dot of a host removed.
    let normal = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if is_host(text) {
        return Ok(HostPattern::Exact(normal(text)));
    }
    let is_name = |name: &str| {
        let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
        is_host(name) && !last.bytes().all(|byte| byte.is_ascii_digit())
    };
    match text.strip_prefix("*.") {
        Some(name) if is_name(name) => Ok(HostPattern::Below(format!(".{}", normal(name)))),
        _ => Err(mistake(text, is_name)),
    }
}

/// What is wrong with a host, and what to write instead.
fn mistake(text: &str, is_name: impl Fn(&str) -> bool) -> Mistake {
    let shown = cut(text, 64);
    if let Some(name) = text.strip_prefix('.').filter(|name| is_name(name)) {
        let help = format!("write `host = [\"{name}\", \"*.{name}\"]`");
        return Mistake::new(format!("`{shown}` begins with a dot"), cut(&help, 120));
    }
    let (message, help) = if text == "*" {
        ("`*` alone is not a host".to_owned(), "leave `host` out for all hosts")
    } else if text.starts_with(['~', '^']) || text.contains(['(', '[', '{', '+', '$', '\\']) {
        let help = "write the hosts as a list; `*.example.com` is all hosts below `example.com`";
        ("a host is not a regular expression".to_owned(), help)
    } else if text.contains('/') {
        ("`host` is only a name".to_owned(), "write it without scheme and path")
    } else if text.contains(':') {
        ("`host` has no port".to_owned(), "write only the name: it matches on every port")
    } else if text.contains('*') {
        let help = "such as `*.example.com`, which is all hosts below `example.com`";
        (
            "`*` is allowed only at the beginning of a host, before the dot of a name".to_owned(),
            help,
        )
    } else {
        let help = if text.is_ascii() {
            "such as `api.example.com`"
        } else {
            "write it as clients send it, in ASCII: such as `xn--bcher-kva.example`"
        };
        (format!("`{shown}` is not the name of a host"), help)
    };
    Mistake::new(message, help)
}
