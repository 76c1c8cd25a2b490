//! Requests in flight: `limit`, a number.

use super::super::mistake::Mistake;
use super::{LimitAlone, ReadLimit, Written, help_for, is_explained};
use crate::base::text::cut;
use crate::config::diagnostic::Diagnostics;
use crate::limit::Limit;
use crate::limit::concurrency::Concurrency;
use crate::policy::WrittenLimit;

const WORDS: LimitAlone = LimitAlone {
    kind: "a limit on requests in flight",
    example: "20",
    no_burst: "",
    bucket: "a token bucket",
};

/// Reads the grant in the table at `path`; none without a limit, or with an error.
pub(super) fn read(
    written: Written<'_>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<ReadLimit> {
    let field = WORDS.field(written, diagnostics)?;
    if is_explained(path, "burst", diagnostics) {
        return None;
    }
    let limit = parse(field.get_ref())
        .and_then(|limit| {
            Concurrency::new(limit)
                .map_err(|error| Mistake::new(error.to_string(), help_for(limit)))
        })
        .map(|limit| (Limit::Concurrency(limit), WrittenLimit::InFlight(limit)))
        .map_err(|mistake| mistake.at(field.span()));
    ReadLimit::without_burst(limit, field.span(), diagnostics)
}

/// Parses a number.
///
/// # Errors
/// See [`Mistake`].
fn parse(text: &str) -> Result<u64, Mistake> {
    let help = "write a number of requests, such as `limit = 20`";
    if let Some((_, period)) = text.split_once('/') {
        let period = cut(period, 24);
        let message = format!("requests in flight have no period, and the limit has `/{period}`");
        return Err(Mistake::new(message, help));
    }
    let wrong = |_| Mistake::new(format!("`{}` is not a number of requests", cut(text, 40)), help);
    text.parse().map_err(wrong)
}
