//! `retries` of an upstream or a route.

use super::values::{number, switch};
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::closest;
use crate::config::tables::{self, Field, List};
use crate::policy::retries::{Retries, RetryOn, percent};

/// Names that other gateways have for the items of `on`.
const FOREIGN: [(&str, &[&str]); 4] = [
    ("connect", &["connect-failure", "conn-failure", "refused-stream", "error", "empty-response"]),
    ("reset", &["reset-before-request", "http3-post-connect-failure", "disconnect"]),
    ("timeout", &["response-timeout", "per-try-timeout"]),
    ("5xx", &["gateway-error", "server-error", "500-599", "unavailable"]),
];

/// The setting of an upstream or a route; none if it has an error. The default is that of an upstream
/// without the setting.
pub(super) fn retries(
    table: &Spanned<tables::Retries>,
    diagnostics: &mut Diagnostics,
) -> Option<Retries> {
    let tables::Retries { count, on, non_idempotent, budget } = table.get_ref();
    let count = number(&tables::Retries::count, count, diagnostics);
    let on = causes(on, diagnostics);
    let budget_percent = budget_percent(budget, diagnostics);
    Some(Retries {
        count: u8::try_from(count?).ok()?,
        on: on?,
        non_idempotent: switch(&tables::Retries::non_idempotent, non_idempotent),
        budget_percent: budget_percent?,
    })
}

fn causes(list: &List, diagnostics: &mut Diagnostics) -> Option<RetryOn> {
    let Some(list) = list else { return Some(Retries::default().on) };
    let mut on = Some(RetryOn::default());
    for item in list.get_ref() {
        let words = RetryOn::of_word(item.get_ref());
        if words.is_none() {
            diagnostics.push(unknown(item));
        }
        on = on.zip(words).map(|(on, words)| on.and(words));
    }
    on
}

fn unknown(item: &Spanned<String>) -> Diagnostic {
    let text = item.get_ref();
    let lower = text.to_ascii_lowercase().replace('_', "-");
    let bare = lower.strip_prefix("http-").unwrap_or(&lower);
    let is_word = |word: &&str| RetryOn::of_word(word).is_some();
    let foreign = FOREIGN.iter().find(|(_, names)| names.contains(&bare));
    let meant = Some(bare).filter(is_word).or_else(|| foreign.map(|(word, _)| *word));
    let meant = meant.or_else(|| closest(bare, &["connect", "reset", "timeout", "5xx"]));
    let help = meant.map_or_else(
        || {
            "possible here: `connect`, `reset`, `timeout`, `5xx`, and the statuses 408, 425, 429 \
             and 500 to 599"
                .to_owned()
        },
        |meant| format!("write `\"{meant}\"`"),
    );
    let message = format!("`on` has no value `{}`", cut(text, 64));
    Diagnostic::new(item.span(), message).help(help)
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
