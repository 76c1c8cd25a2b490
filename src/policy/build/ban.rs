//! `ban` of a rule.

use super::values::{duration, number};
use super::words::meaning;
use crate::base::duration::micros;
use crate::config::bans as written;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules::Rule;
use crate::limit::ban::BanRule;
use crate::limit::charge::Mode;
use crate::policy::Dimension;

/// When clients are banned by the rule; `None`: never, or there is an error.
pub(super) fn ban(
    name: &str,
    table: &Rule,
    per: &[Dimension],
    diagnostics: &mut Diagnostics,
) -> Option<BanRule> {
    let field = table.ban.as_ref()?;
    let ban = field.get_ref();
    let mut count = |row, field| u32::try_from(number(row, field, diagnostics)?).ok();
    let after = count(&written::Ban::after, &ban.after);
    let grow = count(&written::Ban::grow, &ban.grow);
    let mut time = |row, field| duration(row, field, diagnostics).map(micros);
    let within_us = time(&written::Ban::within, &ban.within);
    let for_us = time(&written::Ban::r#for, &ban.r#for);
    let max_us = time(&written::Ban::max, &ban.max);
    if let Mode::Shadow = meaning(table.mode.as_ref()) {
        let message = "`ban` is for rules that are enforced";
        let mut diagnostic = Diagnostic::new(field.span(), message);
        if let Some(mode) = &table.mode {
            diagnostic = diagnostic.and(mode.span(), "this rule refuses nothing".to_owned());
        }
        diagnostics.push(diagnostic.help("take `mode` or `ban` out"));
        return None;
    }
    let has_client = per.iter().any(Dimension::is_of_client);
    if !has_client && !diagnostics.is_rejected(&["rules", name, "per"]) && table.per.is_some() {
        let message =
            "`ban` is for rules that count clients apart, and all clients have one bucket here";
        let mut diagnostic = Diagnostic::new(field.span(), message);
        if let Some(per) = &table.per {
            diagnostic = diagnostic.and(per.span(), "what a bucket is counted by".to_owned());
        }
        diagnostics.push(diagnostic.help("add `\"ip\"` or `\"key\"` to `per`"));
        return None;
    }
    let (for_us, max_us) = (for_us?, max_us?);
    if let Some(longest) = ban.max.as_ref().filter(|_| for_us > max_us) {
        let message = "the longest ban, `max`, is shorter than `for`";
        let help = "take a longer `max`, or leave it out";
        diagnostics.push(Diagnostic::new(longest.span(), message).help(help));
        return None;
    }
    let max_us = max_us.max(for_us);
    Some(BanRule { after: after?, within_us: within_us?, for_us, grow: grow?, max_us })
}
