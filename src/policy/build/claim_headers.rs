//! Checks the headers that rules, routes and upstreams read: none is one that tokens set
//! (`clients.jwt.headers`). The gateway reads the headers of the client, and sets those of tokens
//! when it forwards the request.

use crate::base::text::cut;
use crate::client::settings::Clients;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};

/// Reports each header that a client could set to another value than that of its token.
pub(super) fn check(config: &Config, clients: Option<&Clients>, diagnostics: &mut Diagnostics) {
    let Some(clients) = clients.filter(|clients| !clients.claim_headers.is_empty()) else { return };
    let mut check = |item: &Spanned<String>, name: &str, help: &dyn Fn(&str) -> String| {
        let headers = clients.issuers.iter().flat_map(|issuer| &issuer.headers);
        let mut set = headers.filter(|(own, _)| dashed(own.as_str()) == dashed(name));
        if let Some((_, claim)) = set.next() {
            let message = format!(
                "`{}` has the value that the client sends here, not that of `clients.jwt.headers`",
                cut(name, 64)
            );
            diagnostics.push(Diagnostic::new(item.span(), message).help(help(claim)));
        }
    };
    for (_, rule) in in_order(&config.rules) {
        for item in rule.get_ref().per.iter().flat_map(Spanned::get_ref) {
            if let Some(name) = item.get_ref().strip_prefix("header:") {
                check(item, name, &|claim| format!("write `claim:{}`", cut(claim, 64)));
            }
        }
    }
    for (_, route) in in_order(&config.routes) {
        for (name, _) in in_order(&route.get_ref().headers) {
            let help = "any client could select the route; its token has no influence on it";
            check(name, name.get_ref(), &|_| help.to_owned());
        }
    }
    for (_, upstream) in in_order(&config.upstreams) {
        let Some(field) = &upstream.get_ref().balance else { continue };
        if let Some(name) = field.get_ref().strip_prefix("hash:header:") {
            let help = "write `balance = \"hash:key\"`, which is by the client of the token";
            check(field, name.trim(), &|_| help.to_owned());
        }
    }
}

/// A name as servers read it that treat `_` as `-`.
fn dashed(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}
