//! Warns of a rule per client certificate in a file whose listeners ask for none: the rule applies
//! to no client.
//!
//! The condition: an enabled rule has `"cert"` in `per`, and no listener has `client_ca`.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order};
use crate::policy::listener::Listener;
use crate::policy::{Dimension, Rule};

/// Adds the warning, at the `"cert"` of each rule.
pub(super) fn add(
    config: &Config,
    listeners: &[Listener],
    rules: &[Rule],
    diagnostics: &mut Diagnostics,
) {
    let asks =
        |listener: &Listener| listener.tls.as_ref().is_some_and(|tls| tls.client_auth.is_some());
    if listeners.iter().any(asks) {
        return;
    }
    for (rule, (_, table)) in rules.iter().zip(in_order(&config.rules)) {
        if !rule.enabled || !rule.per.contains(&Dimension::Certificate) {
            continue;
        }
        let items = table.get_ref().per.as_ref().map_or(&[][..], |list| list.get_ref());
        let place = items.iter().find(|item| item.get_ref() == "cert").map(Spanned::span);
        let message =
            format!("no listener asks for the client certificates that `{}` counts", rule.name);
        let help = "write `client_ca = \"ca.pem\"` in a listener with `certificates`: the rule does not apply \
                    to clients without a certificate";
        diagnostics.push(Diagnostic::warning(place.unwrap_or(0..0), message).help(help));
    }
}
