//! `[audit]`.

use super::values::number;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::{Config, tables};
use crate::policy::settings::Audit;

/// The audit; no stream without the table.
pub(super) fn audit(config: &Config, diagnostics: &mut Diagnostics) -> Option<Audit> {
    let Some(table) = &config.audit else { return Some(Audit::default()) };
    let tables::Audit { stream, max_records } = table.get_ref();
    let most = number(&tables::Audit::max_records, max_records, diagnostics);
    let Some(stream) = stream.as_ref().filter(|stream| *stream.get_ref()) else {
        return most.map(|_| Audit::default());
    };
    if config.redis.is_none() {
        if !diagnostics.explain_absence(&["redis"]) {
            let message = "`stream` needs Redis, and the file has no [redis]";
            let help = "write `url = \"redis://127.0.0.1:6379\"` under `[redis]`, or take `stream` \
                        out: the admin port and the log have refusals in any case";
            diagnostics.push(Diagnostic::new(stream.span(), message).help(help));
        }
        return None;
    }
    Some(Audit { stream: Some(most? as u64) })
}
