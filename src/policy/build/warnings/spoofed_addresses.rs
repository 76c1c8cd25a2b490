//! Warns of settings with which clients can spoof the address that they are counted by:
//! `trusted_proxies` with all addresses, and a rule that counts by the header with the address.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};
use crate::policy::Rule;

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
        let items = table.get_ref().per.iter().flat_map(Spanned::get_ref);
        let Some(item) = items.filter(|_| rule.enabled).find(|item| is_address(item.get_ref()))
        else {
            continue;
        };
        let message = format!(
            "`{}` counts by a header that clients can write: each value has the whole limit",
            rule.name
        );
        let help = "for the address of the client, write `\"ip\"`, and list the proxies in front of the gateway in \
                    `trusted_proxies`";
        diagnostics.push(Diagnostic::warning(item.span(), message).help(help));
    }
}

/// Whether an item of `per` is a header with the address of the client.
fn is_address(item: &str) -> bool {
    let header = item.strip_prefix("header:").unwrap_or_default();
    ADDRESSES.iter().any(|address| header.eq_ignore_ascii_case(address))
}
