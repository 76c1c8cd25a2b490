//! Warns of `[acme]` that cannot obtain a certificate, or that nothing uses.
//!
//! The conditions: no listener has `"acme"`; or the authority connects to a port that no listener
//! has, 80 for `http-01` and 443 for `tls-alpn-01`. Something in front of the gateway may forward
//! that port, so it is not an error.

use std::net::SocketAddr;

use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::policy::acme::{Acme, Challenge};
use crate::policy::listener::Listener;

/// Adds the warning, at `[acme]` or its challenge.
pub(super) fn add(
    config: &Config,
    acme: Option<&Acme>,
    listeners: &[Listener],
    diagnostics: &mut Diagnostics,
) {
    let (Some(table), Some(acme)) = (&config.acme, acme) else { return };
    let uses_acme = |listener: &&Listener| listener.tls.as_ref().is_some_and(|tls| tls.acme);
    if !listeners.iter().any(|listener| uses_acme(&listener)) {
        let help = "write `certificates = [\"acme\"]` in a listener, or leave `[acme]` out";
        let message = "no listener uses the certificates of `[acme]`";
        diagnostics.push(Diagnostic::warning(table.span(), message).help(help));
        return;
    }
    let is_served = |port: u16, serves: &dyn Fn(&&Listener) -> bool| {
        let addresses = listeners.iter().filter(serves).filter_map(|one| one.address.tcp());
        addresses.map(|address: SocketAddr| address.port()).any(|own| own == port || own == 0)
    };
    let (is_reached, message, help) = match acme.challenge {
        Challenge::Http01 => (
            is_served(80, &|listener| listener.tls.is_none()),
            "the authority connects to port 80, where no listener without TLS is",
            "add a listener with `address = \"0.0.0.0:80\"` and `redirect = \"https\"`; or let what has that \
             port forward `/.well-known/acme-challenge/` to the gateway",
        ),
        Challenge::TlsAlpn01 => (
            is_served(443, &uses_acme),
            "the authority connects to port 443, where no listener with `\"acme\"` is",
            "add a listener with `address = \"0.0.0.0:443\"`; or let what has that port forward \
             connections to the gateway without ending TLS",
        ),
    };
    if !is_reached {
        let challenge = table.get_ref().challenge.as_ref().map(Spanned::span);
        let place = challenge.unwrap_or_else(|| table.span());
        diagnostics.push(Diagnostic::warning(place, message).help(help));
    }
}
