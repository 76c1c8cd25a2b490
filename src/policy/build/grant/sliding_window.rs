//! Sliding windows: `limit`.

use std::ops::Range;

use super::super::rate::{self, Setting, default_burst};
use super::{LEAVE_OUT, LimitAlone, ReadLimit, Written, is_explained};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::limit::Limit;
use crate::limit::sliding_window::{SlidingWindow, SlidingWindowError};
use crate::policy::{Rate, WrittenLimit};

const WORDS: LimitAlone = LimitAlone {
    kind: "a sliding window",
    example: "\"100/m\"",
    no_burst: ": the whole limit may be used at once",
    bucket: "a token bucket with this limit",
};

/// Reads the grant in the table at `path`; none without a limit, or with an error.
pub(super) fn read(
    written: Written<'_>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<ReadLimit> {
    let field = WORDS.field(written, diagnostics)?;
    let limit =
        rate::parse(Setting::Limit, field.get_ref()).map_err(|mistake| mistake.at(field.span()));
    let limit = diagnostics.keep_ok(limit)?;
    if is_explained(path, "burst", diagnostics) {
        return None;
    }
    let window = SlidingWindow::new(limit.tokens, limit.period_us)
        .map(|window| (Limit::SlidingWindow(window), WrittenLimit::Sliding(limit)))
        .map_err(|error| impossible(error, limit, field.span()));
    ReadLimit::without_burst(window, field.span(), diagnostics)
}

/// The diagnostic of a limit that cannot be counted.
fn impossible(error: SlidingWindowError, limit: Rate, span: Range<usize>) -> Diagnostic {
    let diagnostic = Diagnostic::new(span, error.to_string());
    match error {
        SlidingWindowError::ZeroLimit => diagnostic.help(LEAVE_OUT),
        SlidingWindowError::LimitTooLarge => diagnostic.help(format!(
            "write `kind = \"token_bucket\"`, `limit = \"{limit}\"` and `burst = {}`: never more in any window \
             either, in 24 bytes",
            default_burst(limit.tokens)
        )),
        SlidingWindowError::ZeroWindow | SlidingWindowError::WindowTooLong => diagnostic,
    }
}
