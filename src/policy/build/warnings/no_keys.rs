//! Warns of a file that requires an API key of every request, and has none that could be right.

use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::words::{OnMissingKey, OnUnknownKey};

/// Adds the warning, at `on_missing_key`.
pub(super) fn add(config: &Config, diagnostics: &mut Diagnostics) {
    let Some(clients) = config.clients.as_ref().map(Spanned::get_ref) else { return };
    let Some(setting) = &clients.on_missing_key else { return };
    let accepts =
        clients.on_unknown_key.as_ref().is_some_and(|word| *word.get_ref() == OnUnknownKey::Accept);
    let has_keys = !config.keys.is_empty()
        || config.key_store.is_some()
        || clients.jwt.is_some()
        || clients.basic.is_some()
        || clients.introspection.is_some()
        || diagnostics.explain_absence(&["keys"]);
    if *setting.get_ref() != OnMissingKey::Deny || accepts || has_keys {
        return;
    }
    let message = "every request gets 401: it needs an API key, and the file has none";
    let help = "`tollgate hash-key` makes a key and its lines for the file";
    diagnostics.push(Diagnostic::warning(setting.span(), message).help(help));
}
