//! Leaky buckets: `rate` and `max_delay`.

use std::ops::Range;

use super::super::rate::{self, Setting};
use super::super::values::duration;
use super::{ReadLimit, Written, is_explained};
use crate::base::duration::micros;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules::Rule;
use crate::config::spanned::Spanned;
use crate::limit::Limit;
use crate::limit::leaky_bucket::capacity;
use crate::limit::token_bucket::{TokenBucket, TokenBucketError};
use crate::policy::{Rate, WrittenLimit};

/// Reads the grant in the table at `path`; none without a rate, or with an error.
pub(super) fn read(
    written: Written<'_>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<ReadLimit> {
    if let Some(limit) = written.limit {
        let help = "write `rate = \"100/s\"` in its place";
        let message = "a leaky bucket has a `rate`, and no `limit`";
        diagnostics.push(Diagnostic::new(limit.span(), message).help(help));
        return None;
    }
    if let Some(burst) = written.burst {
        let message = "a leaky bucket has no `burst`: requests pass one after the other";
        let help = "write `max_delay`, the longest time that a request waits, in its place";
        diagnostics.push(Diagnostic::new(burst.span(), message).help(help));
        return None;
    }
    let field = written.rate.as_ref()?;
    let rate =
        rate::parse(Setting::Rate, field.get_ref()).map_err(|mistake| mistake.at(field.span()));
    let rate = diagnostics.keep_ok(rate)?;
    if is_explained(path, "max_delay", diagnostics) || is_explained(path, "burst", diagnostics) {
        return None;
    }
    let delay = written.max_delay.as_ref();
    let max_delay = duration(&Rule::max_delay, written.max_delay, diagnostics)?;
    let max_delay_us = micros(max_delay);
    let span = delay.map_or_else(|| field.span(), Spanned::span);
    let bucket = bucket(rate, max_delay_us, written.parts, &field.span())
        .map(|bucket| (Limit::TokenBucket(bucket), WrittenLimit::Leaky { rate, max_delay_us }));
    ReadLimit::without_burst(bucket, span, diagnostics)
}

/// The bucket that requests wait in. `span` is that of the rate.
fn bucket(
    rate: Rate,
    max_delay_us: u64,
    parts: u16,
    span: &Range<usize>,
) -> Result<TokenBucket, Diagnostic> {
    let wrong = |message: &str| Diagnostic::new(span.clone(), message);
    let capacity = capacity(rate.tokens, rate.period_us, max_delay_us);
    TokenBucket::new(rate.tokens, rate.period_us, capacity)
        .and_then(|bucket| bucket.with_parts(parts))
        .map_err(|error| match error {
            TokenBucketError::BurstTooLarge { .. } => {
                wrong("the rate cannot be counted exactly with this delay")
                    .help("take a shorter `max_delay`, or a rate with a shorter period")
            }
            other => wrong(&other.to_string()),
        })
}
