//! `refund_on` of a rule: after which failures a request gets its tokens back.

use std::ops::Range;

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
    if reasons != RefundOn::NEVER {
        let wrong = of_requests_in_flight(table, "refund_on", setting.span());
        if let Some(wrong) = wrong {
            diagnostics.push(wrong);
        }
    }
    reasons
}

/// The error of a setting for tokens in a rule that counts requests in flight; `None` in another
/// rule.
pub(super) fn of_requests_in_flight(
    table: &written::Rule,
    setting: &str,
    span: Range<usize>,
) -> Option<Diagnostic> {
    let kind: Kind = meaning(table.kind.as_ref());
    if kind != Kind::Concurrency {
        return None;
    }
    let message = format!("`{setting}` is for tokens, and this rule counts requests in flight");
    let mut diagnostic = Diagnostic::new(span, message);
    if let Some(kind) = &table.kind {
        let label = "what a request of this kind holds is free once it ends";
        diagnostic = diagnostic.and(kind.span(), label.to_owned());
    }
    Some(diagnostic.help(format!("take `{setting}` out")))
}
