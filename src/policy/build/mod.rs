//! Builds a policy from a file: resolves all names, checks all values, and reports all errors.
//!
//! Reading order: `names`, `rate`, `grant`, `values` and `environment` (the parts), then one file
//! for each table of gateway.toml, then `costs` and `rules_per_route`, which need routes and rules,
//! and `warnings`.
//!
//! Lists are in the order of the file. An entry with an error keeps its index, so that references
//! to it are not errors too.

#![allow(clippy::ref_option, reason = "a setting is read by its row and its field")]

mod access_log;
mod acme;
mod adapt;
mod address;
mod admin;
mod answers;
mod audit;
mod balance;
mod ban;
mod basic;
mod breaker;
mod claim_headers;
mod clients;
mod compression;
mod conditions;
mod cors;
mod costs;
mod count;
mod counted_params;
mod environment;
mod errors;
mod expression;
mod failures;
mod forward_auth;
mod grant;
mod handling;
mod header_edits;
mod health;
mod hosts;
mod introspection;
mod ip_access;
mod jwt;
mod key_store;
mod keys;
mod lease;
mod listener_tls;
mod listeners;
mod log;
mod mirror;
mod mistake;
mod names;
mod origin;
mod path;
mod percentage;
mod plans;
mod rate;
mod redis;
mod redis_url;
mod refund;
mod resolvers;
mod retries;
mod rewrite;
mod rollout;
mod routes;
mod rules;
mod rules_per_route;
mod server;
mod split;
mod stored_grant;
mod template;
mod tracing;
mod upstream_tls;
mod upstreams;
mod usage;
mod values;
mod warnings;
mod webhooks;
mod words;

#[cfg(test)]
mod tests;

use super::Policy;
use crate::client::settings::Clients;
use crate::config::Config;
use crate::config::diagnostic::Diagnostics;
use crate::config::findings::Findings;
pub use environment::{Environment, Lookup, Missing, PLACEHOLDER, variable};
use grant::Limits;
use names::Names;
pub use server::admin_address;
pub use stored_grant::{GrantText, TextOrNumber, stored_grant};

/// Builds the policy of `config`, without its warnings, which are only in `diagnostics`. The result
/// is none if there is any error, including those of reading, which are all in `diagnostics`.
/// `${…}` in the file is looked up in `environment`.
pub fn build(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Policy> {
    let names = Names::of(config, diagnostics);

    // The process, and how it is reached.
    let server = server::server(config, diagnostics);
    let listeners = listeners::listeners(config, server.as_ref(), environment, diagnostics);
    let acme = acme::acme(config, environment, diagnostics);
    let admin = admin::admin(config, &names, server.as_ref(), environment, diagnostics);
    let tracing = tracing::tracing(config, environment, diagnostics);
    let audit = audit::audit(config, diagnostics);

    // Where buckets and counts are.
    let memory = server::memory(config, diagnostics);
    let redis = redis::redis(config, environment, diagnostics);
    let usage = usage::usage(config, environment, diagnostics);

    // Clients.
    let clients = clients::clients(config, &names, environment, diagnostics);
    let access_log = access_log::access_log(config, environment, clients.as_ref(), diagnostics);
    let known = keys::all(config, &names, environment, clients.as_ref(), diagnostics);
    let priorities = plans::priorities(config, diagnostics);
    let ip_access = ip_access::access(config, environment, diagnostics);

    // Routes, and where they lead.
    let upstreams = upstreams::upstreams(config, &names, environment, diagnostics);
    let ignore_case = server.as_ref().is_some_and(|server| server.ignore_path_case);
    let cors = cors::of_all(config, diagnostics);
    let errors = errors::errors(config, environment, diagnostics);
    let parts =
        routes::Parts::of(config, &names, environment, ignore_case, cors.as_ref(), diagnostics);

    // Rules.
    let mut limits = Limits::default();
    let rules = rules::rules(config, &names, &mut limits, diagnostics);
    check_rules(config, clients.as_ref(), &known, &rules, diagnostics);

    warnings::add(config, server.as_ref(), &known.keys, &rules, diagnostics);
    let settings = parts.settings.as_deref();
    warnings::add_of_routes(config, clients.as_ref(), &listeners, settings, diagnostics);
    warnings::add_of_listeners(config, acme.as_ref(), &listeners, &rules, diagnostics);

    if diagnostics.has_errors() {
        return None;
    }
    let (servers, introspection) = (known.forward_auth?, known.introspection?);
    let (router, all) = parts.with_rules(config, &names, &ip_access, &servers, &rules.list)?;
    Some(Policy {
        server: server?,
        listeners,
        acme,
        admin: admin?,
        tracing,
        audit: audit?,
        log: log::log(config),
        headers: server::headers(config),
        memory: memory?,
        redis,
        usage: usage?,
        clients: clients?.completed(&servers.all, introspection.as_deref(), &rules.list),
        access_log: access_log?,
        keys: known.keys,
        passwords: known.passwords,
        introspection,
        tenants: known.tenants,
        quotas: limits.quotas(&rules.list, known.key_store.is_some()),
        key_store: known.key_store,
        plans: names.plans.names().to_vec(),
        priorities: priorities?,
        ip_access: ip_access.server,
        has_cors: cors.is_some() || all.iter().any(|route| route.cors().is_some()),
        cors,
        errors,
        upstreams,
        forward_auth: servers.all,
        routes: all,
        router,
        counted_headers: rules::counted_headers(&rules.list),
        counts_certificates: rules::counts_certificates(&rules.list),
        settled_rules: rules::settled(&rules.list),
        rules: rules.list,
        limits: limits.into_list(),
        warnings: Findings::default(),
    })
}

/// Checks rules against routes, and against what is known of clients.
fn check_rules(
    config: &Config,
    clients: Option<&Clients>,
    known: &keys::Known,
    rules: &rules::Rules,
    diagnostics: &mut Diagnostics,
) {
    let servers = known.forward_auth.as_ref().map(|tables| &tables.all[..]);
    let asked = known.introspection.as_ref().and_then(Option::as_deref);
    claim_headers::check(config, clients, servers, asked, diagnostics);
    costs::check(config, rules, diagnostics);
    rules_per_route::check(config, &rules.list, diagnostics);
    counted_params::check(config, &rules.list, diagnostics);
}
