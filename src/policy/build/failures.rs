//! Lists of failures of servers: `["connect", "timeout", "reset", "5xx"]`.

use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::suggest::closest;
use crate::config::tables::List;
use crate::policy::failures::FailureSet;

/// Names that other gateways have for the items of `on`.
const FOREIGN: [(&str, &[&str]); 4] = [
    ("connect", &["connect-failure", "conn-failure", "refused-stream", "error", "empty-response"]),
    ("reset", &["reset-before-request", "http3-post-connect-failure", "disconnect"]),
    ("timeout", &["response-timeout", "per-try-timeout"]),
    ("5xx", &["gateway-error", "server-error", "500-599", "unavailable"]),
];

/// The failures of a list; those of its default if it is left out. None with an error.
pub(super) fn failures(
    row: &Row,
    list: &List,
    diagnostics: &mut Diagnostics,
) -> Option<FailureSet> {
    let Some(list) = list else { return FailureSet::of_words(row.texts()?.iter().copied()) };
    let mut all = Some(FailureSet::default());
    for item in list.get_ref() {
        let words = FailureSet::of_word(item.get_ref());
        if words.is_none() {
            diagnostics.push(unknown(item));
        }
        all = all.zip(words).map(|(all, words)| all.and(words));
    }
    all
}

fn unknown(item: &Spanned<String>) -> Diagnostic {
    let text = item.get_ref();
    let lower = text.to_ascii_lowercase().replace('_', "-");
    let bare = lower.strip_prefix("http-").unwrap_or(&lower);
    let is_word = |word: &&str| FailureSet::of_word(word).is_some();
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
