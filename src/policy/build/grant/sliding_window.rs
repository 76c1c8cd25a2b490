//! Sliding windows: `limit`.

use std::ops::Range;

use super::super::rate::{self, Setting, default_burst};
use super::{ReadLimit, Written, is_explained};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::limit::Limit;
use crate::limit::sliding_window::{SlidingWindow, SlidingWindowError};
use crate::policy::{Rate, WrittenLimit};

/// Reads the grant in the table at `path`; none without a limit, or with an error.
pub(super) fn read(
    written: Written<'_>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<ReadLimit> {
    if let Some(rate) = written.rate {
        let message = "a sliding window has a `limit`, and no `rate`";
        let help = "write `limit = \"100/m\"` in its place, or take `kind` out for a token bucket";
        diagnostics.push(Diagnostic::new(rate.span(), message).help(help));
        return None;
    }
    if let Some(burst) = written.burst {
        let message = "a sliding window has no `burst`: the whole limit may be used at once";
        let help = "take `burst` out, or take `kind` out for a token bucket with this limit";
        diagnostics.push(Diagnostic::new(burst.span(), message).help(help));
        return None;
    }
    let field = written.limit.as_ref()?;
    let limit = match rate::parse(Setting::Limit, field.get_ref()) {
        Ok(limit) => limit,
        Err(error) => {
            diagnostics.push(Diagnostic::new(field.span(), error.message).help(error.help));
            return None;
        }
    };
    if is_explained(path, "burst", diagnostics) {
        return None;
    }
    match SlidingWindow::new(limit.tokens, limit.period_us) {
        Ok(window) => Some(ReadLimit {
            limit: Limit::SlidingWindow(window),
            written: WrittenLimit::Sliding(limit),
            span: field.span(),
            is_default_burst: false,
        }),
        Err(error) => {
            diagnostics.push(impossible(error, limit, field.span()));
            None
        }
    }
}

/// The diagnostic of a limit that cannot be counted.
fn impossible(error: SlidingWindowError, limit: Rate, span: Range<usize>) -> Diagnostic {
    let diagnostic = Diagnostic::new(span, error.to_string());
    match error {
        SlidingWindowError::ZeroLimit => {
            diagnostic.help("to refuse requests, leave the route out instead")
        }
        SlidingWindowError::LimitTooLarge => diagnostic.help(format!(
            "write `kind = \"token_bucket\"`, `limit = \"{limit}\"` and `burst = {}`: never more in any window \
             either, in 24 bytes",
            default_burst(limit.tokens)
        )),
        SlidingWindowError::ZeroWindow | SlidingWindowError::WindowTooLong => diagnostic,
    }
}
