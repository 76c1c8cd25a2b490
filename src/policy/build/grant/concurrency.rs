//! Requests in flight: `limit`, a number.

use super::{ReadLimit, Written, is_explained};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::suggest::cut;
use crate::limit::Limit;
use crate::limit::concurrency::Concurrency;
use crate::policy::WrittenLimit;

/// Reads the grant in the table at `path`; none without a limit, or with an error.
pub(super) fn read(
    written: Written<'_>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<ReadLimit> {
    if let Some(rate) = written.rate {
        let message = "a limit on requests in flight has a `limit`, and no `rate`";
        let help = "write `limit = 20` in its place, or take `kind` out for a token bucket";
        diagnostics.push(Diagnostic::new(rate.span(), message).help(help));
        return None;
    }
    if let Some(burst) = written.burst {
        let message = "a limit on requests in flight has no `burst`";
        let help = "take `burst` out, or take `kind` out for a token bucket";
        diagnostics.push(Diagnostic::new(burst.span(), message).help(help));
        return None;
    }
    let field = written.limit.as_ref()?;
    if is_explained(path, "burst", diagnostics) {
        return None;
    }
    let limit = parse(field.get_ref()).and_then(|limit| {
        Concurrency::new(limit).map_err(|error| {
            let help = if limit == 0 {
                "to refuse requests, leave the route out instead"
            } else {
                "take a smaller one"
            };
            (error.to_string(), help)
        })
    });
    match limit {
        Ok(limit) => Some(ReadLimit {
            limit: Limit::Concurrency(limit),
            written: WrittenLimit::InFlight(limit),
            span: field.span(),
            is_default_burst: false,
        }),
        Err((message, help)) => {
            diagnostics.push(Diagnostic::new(field.span(), message).help(help));
            None
        }
    }
}

/// Parses a number.
///
/// # Errors
/// What is wrong, and what to write instead.
fn parse(text: &str) -> Result<u64, (String, &'static str)> {
    let help = "write a number of requests, such as `limit = 20`";
    if let Some((_, period)) = text.split_once('/') {
        let period = cut(period, 24);
        let message = format!("requests in flight have no period, and the limit has `/{period}`");
        return Err((message, help));
    }
    let wrong = |_| (format!("`{}` is not a number of requests", cut(text, 40)), help);
    text.parse().map_err(wrong)
}
