//! `refund_on` of a rule: after which failures a request gets its tokens back.

use super::words::meaning;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules as written;
use crate::policy::Kind;
use crate::policy::refund::RefundOn;

/// The reasons of a rule; the default if they are left out, or with an error.
pub(super) fn refund_on(table: &written::Rule, diagnostics: &mut Diagnostics) -> RefundOn {
    let Some(setting) = &table.refund_on else { return RefundOn::default() };
    let reasons = setting.get_ref().iter().map(|reason| *reason.get_ref());
    let reasons: RefundOn = reasons.collect();
    let kind: Kind = meaning(table.kind.as_ref());
    if kind == Kind::Concurrency && reasons != RefundOn::NEVER {
        let message = "`refund_on` is for tokens, and this rule counts requests in flight";
        let mut diagnostic = Diagnostic::new(setting.span(), message);
        if let Some(kind) = &table.kind {
            let label = "what a request of this kind holds is free once it ends";
            diagnostic = diagnostic.and(kind.span(), label.to_owned());
        }
        diagnostics.push(diagnostic.help("take `refund_on` out"));
    }
    reasons
}
