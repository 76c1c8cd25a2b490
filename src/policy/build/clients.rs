//! `[clients]`: where to look for keys, and how clients without a known key are treated.

use std::collections::HashMap;

use http::HeaderName;

use super::environment::Environment;
use super::jwt;
use super::names::{Names, twice};
use super::path;
use super::rules;
use super::values::{number, switch};
use super::words::meaning;
use crate::base::text::cut;
use crate::client::settings::{Clients, KeySource, OnUnknownKey};
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::secrets::is_key_place;
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::config::tables::{self, List};
use crate::policy::Rule;
use crate::policy::forward_auth::ForwardAuth;
use crate::policy::introspection::Introspection;
use crate::policy::matcher::PathPattern;

/// Default plan of anonymous clients, if the file has it.
const FREE: &str = "free";

/// Maximum length of the name of a query parameter.
const MAX_PARAMETER_BYTES: usize = 64;

/// The message for an item of `api_key` that is not a place.
const NO_PLACE: &str = "an item of `api_key` is not a place for a key";

impl Clients {
    /// The same, where rules may count by claims, and upstreams also get headers of servers that
    /// are asked about requests, and of tokens that their issuer is asked about.
    pub(super) fn completed(
        mut self,
        servers: &[ForwardAuth],
        introspection: Option<&Introspection>,
        rules: &[Rule],
    ) -> Self {
        self.counted_claims = rules::counted_claims(rules);
        let of_servers = servers.iter().flat_map(ForwardAuth::headers_of_answers);
        let of_tokens = introspection.into_iter().flat_map(|own| &own.claims.headers);
        for name in of_servers.chain(of_tokens.map(|(name, _)| name)) {
            if !self.claim_headers.contains(name) {
                self.claim_headers.push(name.clone());
            }
        }
        self
    }
}

/// Builds the settings of `[clients]`; none if one of them has an error.
pub(super) fn clients(
    config: &Config,
    names: &Names,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Clients> {
    let default = tables::Clients::default();
    let clients = config.clients.as_ref().map_or(&default, |clients| clients.get_ref());
    // Without API keys, other places than those of tokens and passwords are left to upstreams.
    let has_keys = !config.keys.is_empty() || config.key_store.is_some();
    let has_tokens = clients.jwt.is_some() || clients.introspection.is_some();
    let has_others = has_tokens || clients.basic.is_some();
    let mut key_sources = match &clients.api_key {
        None if has_others && !has_keys => {
            has_tokens.then_some(KeySource::Bearer).into_iter().collect()
        }
        list => key_sources(list, diagnostics),
    };
    check_bearer(clients, &key_sources, diagnostics);
    key_sources.extend(clients.basic.iter().map(|_| KeySource::Basic));
    let issuers = jwt::issuers(config, names, environment, diagnostics);
    let anonymous_plan =
        anonymous_plan(config, clients.anonymous_plan.as_ref(), names, diagnostics);
    let ipv6_prefix = number(&tables::Clients::ipv6_prefix, &clients.ipv6_prefix, diagnostics);
    let limits_path = clients.limits_path.as_ref().map(|field| limits_path(field, diagnostics));
    let issuers = issuers?;
    let mut claim_headers: Vec<HeaderName> = Vec::new();
    for (name, _) in issuers.iter().flat_map(|issuer| &issuer.headers) {
        if !claim_headers.contains(name) {
            claim_headers.push(name.clone());
        }
    }
    Some(Clients {
        key_sources,
        anonymous_plan: anonymous_plan?,
        on_missing_key: meaning(clients.on_missing_key.as_ref()),
        on_preflight: meaning(clients.on_preflight.as_ref()),
        on_unknown_key: match &clients.on_unknown_key {
            None if !has_keys && !has_others => None,
            None => Some(OnUnknownKey::Deny),
            Some(word) => Some(*word.get_ref()),
        },
        on_conflicting_keys: meaning(clients.on_conflicting_keys.as_ref()),
        hide_key: switch(&tables::Clients::hide_key, &clients.hide_key),
        ipv6_prefix: u8::try_from(ipv6_prefix?).ok()?,
        limits_path: match limits_path {
            Some(path) => Some(path?),
            None => None,
        },
        issuers,
        introspects: clients.introspection.is_some(),
        // From rules, which are built later: see `completed`.
        counted_claims: Vec::new(),
        claim_headers,
    })
}

/// The path where clients read their own limits: an exact path, as clients send it.
fn limits_path(field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Box<str>> {
    const HELP: &str = "such as `/.well-known/ratelimit`";
    let text = field.get_ref();
    let (message, help) = match path::parse(text) {
        Ok(PathPattern::Exact(path)) if path.contains('{') => {
            ("`limits_path` is one path, without parameters", None)
        }
        Ok(PathPattern::Exact(path)) if path.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Some(path.into());
        }
        Ok(PathPattern::Exact(_)) => ("`limits_path` has a character that is not ASCII", None),
        Ok(PathPattern::Prefix(_) | PathPattern::Expression(_)) => {
            ("`limits_path` is one path, without `*`", None)
        }
        Err((message, help)) => (message, help),
    };
    let help = help.map_or_else(|| HELP.to_owned(), |help| cut(&help, 120));
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

/// The plan of clients without a key: `anonymous_plan`, else `free`, else the implicit plan of a
/// file without plans.
fn anonymous_plan(
    config: &Config,
    field: Option<&Spanned<String>>,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<u32> {
    if let Some(plan) = field {
        return names.plans.find(plan, diagnostics);
    }
    if !names.has_plans {
        return Some(0);
    }
    if let Some(free) = names.plans.index_of(FREE) {
        return Some(free);
    }
    let explained = diagnostics.explain_unknown(&["plans", FREE])
        || diagnostics.explain_unknown(&["clients", "anonymous_plan"]);
    if !explained {
        let clients = config.clients.as_ref().map(Spanned::span);
        let span = clients.or_else(|| names.plans.first_span()).unwrap_or(0..0);
        let plans: Vec<&str> = names.plans.names().iter().map(|name| &**name).collect();
        let message = "no plan is set for clients without a key";
        let help = format!(
            "under `[clients]`, write `anonymous_plan = \"{}\"`; the plans are {}",
            cut(plans.first().map_or("", |plan| plan), 64),
            suggest::list(&plans, "and"),
        );
        diagnostics.push(Diagnostic::new(span, message).help(help));
    }
    None
}

/// Reports tokens whose place is not read.
fn check_bearer(clients: &tables::Clients, sources: &[KeySource], diagnostics: &mut Diagnostics) {
    let Some((_, list)) = clients.introspection.as_ref().zip(clients.api_key.as_ref()) else {
        return;
    };
    if !sources.contains(&KeySource::Bearer) && !diagnostics.has_errors() {
        let message =
            "`[clients.introspection]` reads bearer tokens, which `api_key` does not name";
        let help = "add `\"bearer\"`";
        diagnostics.push(Diagnostic::new(list.span(), message).help(help));
    }
}

/// The places of keys, in the order in which they are tried.
fn key_sources(list: &List, diagnostics: &mut Diagnostics) -> Vec<KeySource> {
    let Some(list) = list else {
        return vec![
            KeySource::Header(HeaderName::from_static("x-api-key")),
            KeySource::Bearer,
            KeySource::Query("api_key".to_owned()),
        ];
    };
    let mut sources = Vec::new();
    let mut seen = HashMap::new();
    for item in list.get_ref() {
        let Some(source) = key_source(item, diagnostics) else { continue };
        // Names of headers are case-insensitive, so two texts may be the same source.
        if let Some(first) = seen.insert(format!("{source:?}"), item.span()) {
            diagnostics.push(twice(item, first));
        }
        sources.push(source);
    }
    if list.get_ref().is_empty() && !diagnostics.explain_absence(&["clients", "api_key"]) {
        let help = "leave `api_key` out for the usual places, or name one, such as `bearer`";
        diagnostics.push(Diagnostic::new(list.span(), "`api_key` names no place").help(help));
    }
    sources
}

/// Parses `header:<name>`, `bearer` or `query:<name>`.
fn key_source(item: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<KeySource> {
    let text = item.get_ref();
    // The text may be a key, so no message repeats it.
    let (message, help) = match text.split_once(':') {
        None if text == "bearer" => return Some(KeySource::Bearer),
        Some(("header", name)) => match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => return Some(KeySource::Header(name)),
            Err(_) => (
                "what follows `header:` is not the name of a header",
                "it looks like `header:x-api-key`",
            ),
        },
        Some(("query", name)) if is_parameter(name) => {
            return Some(KeySource::Query(name.to_owned()));
        }
        Some(("query", _)) => {
            let help = "it has letters, digits, `_`, `-` and `.`, at most 64";
            ("what follows `query:` is not the name of a query parameter", help)
        }
        _ if text.eq_ignore_ascii_case("x-api-key") => {
            (NO_PLACE, "did you mean `header:x-api-key`?")
        }
        _ if text.eq_ignore_ascii_case("bearer") => (NO_PLACE, "did you mean `bearer`?"),
        _ => (NO_PLACE, "write `header:<name>`, `bearer` or `query:<name>`"),
    };
    let diagnostic = Diagnostic::new(item.span(), message).help(help);
    let is_shown = is_key_place(text);
    diagnostics.push(if is_shown { diagnostic } else { diagnostic.here("not shown") });
    None
}

/// Whether a text is the name of a query parameter that needs no encoding.
fn is_parameter(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty() && name.len() <= MAX_PARAMETER_BYTES && name.bytes().all(is_plain)
}
