//! Warns of a `max_connections_per_ip` that is not in force, because one address gets at most half
//! of `max_connections`.

use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::policy::settings::ServerLimits;

/// Adds the warning, at the setting that the file has.
pub(super) fn add(config: &Config, limits: &ServerLimits, diagnostics: &mut Diagnostics) {
    let (max, per_ip) = (limits.max_connections(), limits.max_connections_per_ip);
    if per_ip < max || max == 1 {
        return;
    }
    let server = config.server.as_ref().map(Spanned::get_ref);
    let Some(table) = server.and_then(|server| server.limits.as_ref()).map(Spanned::get_ref) else {
        return;
    };
    let setting = table.max_connections_per_ip.as_ref().or(table.max_connections.as_ref());
    let half = max / 2;
    let message = format!(
        "`max_connections_per_ip` is {per_ip}, but one address gets at most {half} connections, half of `max_connections`"
    );
    let help = format!(
        "write `max_connections_per_ip = {half}` or less; the addresses of `trusted_proxies` have no such limit"
    );
    diagnostics.push(Diagnostic::warning(setting.map_or(0..0, Spanned::span), message).help(help));
}
