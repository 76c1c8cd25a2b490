//! Warns of a redirect that has no URL for some requests, which get 400.
//!
//! The condition: its `to` has `{client.id}`, and requests without a known key are served; or
//! `{client.ip}`, and there is a listener on a Unix socket without the PROXY protocol. Requests
//! without a host are rare, so `{host}` is not reported.

use crate::client::settings::{Clients, OnMissingKey, OnUnknownKey};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::{Config, in_order};
use crate::policy::build::routes::Settings;
use crate::policy::handling::RouteAnswer;
use crate::policy::listener::{ListenAddress, Listener};
use crate::policy::template::Variable;

/// Adds a warning for each redirect, at its `to`.
pub(super) fn add(
    config: &Config,
    clients: &Clients,
    listeners: &[Listener],
    routes: &[Settings],
    diagnostics: &mut Diagnostics,
) {
    let needs_key = clients.on_missing_key == OnMissingKey::Deny
        && matches!(clients.on_unknown_key, None | Some(OnUnknownKey::Deny));
    let has_unix = listeners.iter().any(|listener| {
        matches!(listener.address, ListenAddress::Unix { .. }) && !listener.proxy_protocol
    });
    for ((_, table), Settings { handling, .. }) in in_order(&config.routes).into_iter().zip(routes)
    {
        let answer = handling.as_ref().and_then(|handling| handling.answer.as_ref());
        let Some(RouteAnswer::Redirect(redirect)) = answer else { continue };
        let Some(field) =
            table.get_ref().redirect.as_ref().and_then(|redirect| redirect.get_ref().to.as_ref())
        else {
            continue;
        };
        let (message, help) = if redirect.to.has(Variable::ClientId) && !needs_key {
            (
                "a request without a known API key gets 400: `{client.id}` has no value",
                "under `[clients]`, write `on_missing_key = \"deny\"`, or leave `{client.id}` out",
            )
        } else if redirect.to.has(Variable::ClientIp) && has_unix {
            (
                "a request on a Unix socket gets 400: `{client.ip}` has no value there",
                "leave `{client.ip}` out, or write `proxy_protocol = true` in the listener, if its clients send it",
            )
        } else {
            continue;
        };
        diagnostics.push(Diagnostic::warning(field.span(), message).help(help));
    }
}
