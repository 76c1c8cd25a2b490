//! Warnings: what a valid file probably does not mean. Each has its condition at the top of its
//! file.

mod certificates;
mod client_certificates;
mod connections;
mod daily_bursts;
mod leases;
mod lost_quotas;
mod no_keys;
mod preflight;
mod public_keys;
mod redirects;
mod spoofed_addresses;
mod trailing_slashes;
mod unlimited_plans;

use super::counted_params;
use super::routes;
use super::rules::Rules;
use crate::client::principal::Keys;
use crate::client::settings::Clients;
use crate::config::Config;
use crate::config::diagnostic::Diagnostics;
use crate::policy::acme::Acme;
use crate::policy::listener::Listener;
use crate::policy::settings::Server;

/// Adds the warnings of a file. `keys` and `rules` are in the order of the file; `server` is none
/// with an error.
pub(super) fn add(
    config: &Config,
    server: Option<&Server>,
    keys: &Keys,
    rules: &Rules,
    diagnostics: &mut Diagnostics,
) {
    if let Some(server) = server {
        connections::add(config, &server.limits, diagnostics);
    }
    daily_bursts::add(rules, diagnostics);
    leases::add(config, &rules.list, diagnostics);
    lost_quotas::add(config, rules, diagnostics);
    no_keys::add(config, &rules.list, diagnostics);
    spoofed_addresses::add(config, &rules.list, diagnostics);
    preflight::add(config, &rules.list, diagnostics);
    public_keys::add(config, diagnostics);
    // With an error, a limit may be missing because it could not be read.
    if !diagnostics.has_errors() {
        unlimited_plans::add(config, keys, &rules.list, diagnostics);
        counted_params::warn(config, &rules.list, diagnostics);
        // A path that is none has its own error.
        trailing_slashes::add(config, diagnostics);
    }
}

/// Adds the warnings about routes. `clients` and `routes` are none with an error.
pub(super) fn add_of_routes(
    config: &Config,
    clients: Option<&Clients>,
    listeners: &[Listener],
    routes: Option<&[routes::Settings]>,
    diagnostics: &mut Diagnostics,
) {
    // With an error, what keys and listeners there are may not be known.
    if let (Some(clients), Some(routes), false) = (clients, routes, diagnostics.has_errors()) {
        redirects::add(config, clients, listeners, routes, diagnostics);
    }
}

/// Adds the warnings about listeners and their certificates.
pub(super) fn add_of_listeners(
    config: &Config,
    acme: Option<&Acme>,
    listeners: &[Listener],
    rules: &Rules,
    diagnostics: &mut Diagnostics,
) {
    // With an error, the right listener may be missing because it could not be read.
    if !diagnostics.has_errors() {
        certificates::add(config, acme, listeners, diagnostics);
        client_certificates::add(config, listeners, &rules.list, diagnostics);
    }
}
