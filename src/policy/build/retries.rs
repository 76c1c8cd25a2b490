//! `retries` of an upstream or a route.

use super::failures::failures;
use super::values::{number, switch};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::tables::{self, Field};
use crate::policy::retries::{Retries, percent};

/// The setting of an upstream or a route; none if it has an error. The default is that of an
/// upstream without the setting.
pub(super) fn retries(
    table: &Spanned<tables::Retries>,
    diagnostics: &mut Diagnostics,
) -> Option<Retries> {
    let tables::Retries { count, on, non_idempotent, budget } = table.get_ref();
    let count = number(&tables::Retries::count, count, diagnostics);
    let on = failures(&tables::Retries::on, on, diagnostics);
    let budget_percent = budget_percent(budget, diagnostics);
    Some(Retries {
        count: u8::try_from(count?).ok()?,
        on: on?,
        non_idempotent: switch(&tables::Retries::non_idempotent, non_idempotent),
        budget_percent: budget_percent?,
    })
}

fn budget_percent(field: &Field<String>, diagnostics: &mut Diagnostics) -> Option<u16> {
    let Some(field) = field else { return Some(Retries::default().budget_percent) };
    let text = field.get_ref();
    let percent = percent(text).filter(|percent| (1..=1000).contains(percent));
    if percent.is_none() {
        let message = "`budget` is a whole number of percent, at least `1%` and at most `1000%`";
        let help = "retries within 20 % of the requests are `budget = \"20%\"`";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    }
    percent
}
