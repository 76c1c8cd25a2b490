//! Warns of settings by which clients choose what they are counted by: `trusted_proxies` with all
//! addresses, and a rule that counts by a header with the address of the client.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};
use crate::policy::{Dimension, Rule};

/// Headers in which proxies list the addresses of clients, after what the client has written.
const ADDRESSES: [&str; 2] = ["x-forwarded-for", "forwarded"];

/// Adds a warning for each.
pub(super) fn add(config: &Config, rules: &[Rule], diagnostics: &mut Diagnostics) {
    let server = config.server.as_ref().map(Spanned::get_ref);
    let trusted = server.and_then(|server| server.trusted_proxies.as_ref());
    for item in trusted.into_iter().flat_map(Spanned::get_ref) {
        if item.get_ref().ends_with("/0") {
            let message = format!(
                "`{}` trusts every client: each can choose its address by X-Forwarded-For",
                item.get_ref()
            );
            let help = "list the addresses of the proxies, such as `\"10.0.0.0/8\"`";
            diagnostics.push(Diagnostic::warning(item.span(), message).help(help));
        }
    }
    for (rule, (_, table)) in rules.iter().zip(in_order(&config.rules)) {
        let is_address = |one: &Dimension| matches!(one, Dimension::Header(name) if ADDRESSES.contains(&name.as_str()));
        if !rule.enabled || !rule.per.iter().any(is_address) {
            continue;
        }
        let items = table.get_ref().per.as_ref().map_or(&[][..], |list| list.get_ref());
        let written = |name: &&str| {
            let header = name.strip_prefix("header:").unwrap_or_default().to_ascii_lowercase();
            ADDRESSES.contains(&header.as_str())
        };
        let item = items.iter().find(|item| written(&item.get_ref().as_str()));
        let message = format!(
            "`{}` counts by a header that clients can write: each value has the whole limit",
            rule.name
        );
        let help = "for the address of the client, write `\"ip\"`, and list the proxies in front of the gateway in \
                    `trusted_proxies`";
        let place = item.map(Spanned::span).unwrap_or(0..0);
        diagnostics.push(Diagnostic::warning(place, message).help(help));
    }
}
