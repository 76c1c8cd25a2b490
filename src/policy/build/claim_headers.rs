//! Checks the headers that rules, routes and upstreams read: none is one that tokens
//! (`clients.jwt.headers`) or servers that are asked (`forward_auth.response_headers`) set. The
//! gateway reads the headers of the client, and sets those when it forwards the request.

use http::HeaderName;

use crate::base::text::cut;
use crate::client::settings::Clients;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::forward_auth::ForwardAuth as Table;
use crate::config::handling::SwitchOr;
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};
use crate::policy::forward_auth::ForwardAuth;
use crate::policy::introspection::Introspection;

/// Reports each header that a client could set to another value than that of its token, or of the
/// server that is asked about its requests.
pub(super) fn check(
    config: &Config,
    clients: Option<&Clients>,
    servers: Option<&[ForwardAuth]>,
    introspection: Option<&Introspection>,
    diagnostics: &mut Diagnostics,
) {
    let of_tokens = clients.into_iter().flat_map(|clients| &clients.issuers);
    let of_answers = introspection.map(|own| &own.claims);
    let of_tokens: Vec<(&HeaderName, Option<&str>)> = of_tokens
        .chain(of_answers)
        .flat_map(|issuer| &issuer.headers)
        .map(|(name, claim)| (name, Some(&**claim)))
        .collect();
    let of_servers = servers.into_iter().flatten().flat_map(ForwardAuth::headers_of_answers);
    let set: Vec<(&HeaderName, Option<&str>)> =
        of_tokens.into_iter().chain(of_servers.map(|name| (name, None))).collect();
    if set.is_empty() {
        return;
    }
    let mut check = |item: &Spanned<String>, name: &str, help: &dyn Fn(Option<&str>) -> String| {
        let same = set.iter().find(|(own, _)| dashed(own.as_str()) == dashed(name));
        if let Some((header, claim)) = same {
            let is_of_answers =
                |own: &Introspection| own.claims.headers.iter().any(|(it, _)| it == *header);
            let setting = match claim {
                None => "forward_auth.response_headers",
                Some(_) if introspection.is_some_and(is_of_answers) => {
                    "clients.introspection.headers"
                }
                Some(_) => "clients.jwt.headers",
            };
            let message = format!(
                "`{}` has the value that the client sends here, not that of `{setting}`",
                cut(name, 64)
            );
            diagnostics.push(Diagnostic::new(item.span(), message).help(help(*claim)));
        }
    };
    for (_, rule) in in_order(&config.rules) {
        for item in rule.get_ref().per.iter().flat_map(Spanned::get_ref) {
            if let Some(name) = item.get_ref().strip_prefix("header:") {
                check(item, name, &|claim| match claim {
                    Some(claim) => format!("write `claim:{}`", cut(claim, 64)),
                    None => "write `key`, and `id_header` in `[forward_auth]`".to_owned(),
                });
            }
        }
    }
    for (_, route) in in_order(&config.routes) {
        for (name, _) in in_order(&route.get_ref().headers) {
            let help = "any client could select the route; tokens and servers that are asked have no influence on it";
            check(name, name.get_ref(), &|_| help.to_owned());
        }
    }
    for table in questions(config) {
        let is_of_tokens = |item: &&Spanned<String>| {
            let mut of_tokens = set.iter().filter(|(_, claim)| claim.is_some());
            of_tokens.any(|(own, _)| dashed(own.as_str()) == dashed(item.get_ref()))
        };
        for item in table.request_headers.iter().flat_map(Spanned::get_ref).filter(is_of_tokens) {
            let help = "the server that is asked gets headers of the client; take it out";
            check(item, item.get_ref(), &|_| help.to_owned());
        }
    }
    for (_, upstream) in in_order(&config.upstreams) {
        let Some(field) = &upstream.get_ref().balance else { continue };
        if let Some(name) = field.get_ref().strip_prefix("hash:header:") {
            let help = "write `balance = \"hash:key\"`, which is by the client";
            check(field, name.trim(), &|_| help.to_owned());
        }
    }
}

/// All tables by which servers are asked.
fn questions(config: &Config) -> impl Iterator<Item = &Table> {
    let of_routes = in_order(&config.routes).into_iter().filter_map(|(_, route)| {
        match route.get_ref().forward_auth.as_ref()?.get_ref() {
            SwitchOr::Table(table) => Some(table),
            SwitchOr::Switch(_) => None,
        }
    });
    config.forward_auth.iter().map(Spanned::get_ref).chain(of_routes)
}

/// A name as servers read it that treat `_` as `-`.
fn dashed(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}
