//! Builds limits from rates and bursts.

use std::collections::HashMap;
use std::ops::Range;

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::tables::Field;
use crate::limit::Limit;
use crate::limit::token_bucket::TokenBucketError;
use crate::policy::{Grant, Rate};

use super::rate;

/// All distinct limits of the file.
#[derive(Debug, Default)]
pub(super) struct Limits {
    list: Vec<Limit>,
    index: HashMap<Limit, u32>,
}

/// A grant, the plan or key that has it, and the place that sets its burst.
#[derive(Debug, Clone)]
pub(super) struct PlacedGrant {
    pub(super) grant: Grant,
    /// Words that follow "the rule allows" in messages: empty, ` the plan …` or ` the key …`.
    pub(super) owner: String,
    /// The burst, or the rate if the burst is left out.
    pub(super) span: Range<usize>,
    /// Whether the burst is left out.
    pub(super) is_default_burst: bool,
}

/// A grant as written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) rate: &'a Field<String>,
    pub(super) burst: &'a Field<u64>,
}

impl Limits {
    /// The limits, at the indexes that grants refer to.
    pub(super) fn into_list(self) -> Vec<Limit> {
        self.list
    }

    fn index_of(&mut self, limit: Limit) -> u32 {
        *self.index.entry(limit).or_insert_with(|| {
            self.list.push(limit);
            u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// The grant of the table at `path` and `span`, which must have a rate.
pub(super) fn required(
    written: Written<'_>,
    path: &[&str],
    span: Range<usize>,
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) -> Option<PlacedGrant> {
    if written.rate.is_none() {
        let rate_path: Vec<&str> = path.iter().copied().chain(["rate"]).collect();
        if !diagnostics.explain_absence(&rate_path) {
            let message = format!("`{}` has no rate", path.join("."));
            let help = "write `{ rate = \"10/s\", burst = 20 }`";
            diagnostics.push(Diagnostic::new(span, message).help(help));
        }
        return None;
    }
    optional(written, path, limits, diagnostics)
}

/// The grant of a rate and a burst in the table at `path`; none without a rate or with an error.
pub(super) fn optional(
    written: Written<'_>,
    path: &[&str],
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) -> Option<PlacedGrant> {
    let written_rate = written.rate.as_ref()?;
    let rate = match rate::parse(written_rate.get_ref()) {
        Ok(rate) => rate,
        Err(error) => {
            diagnostics.push(Diagnostic::new(written_rate.span(), error.message).help(error.help));
            return None;
        }
    };
    if written.burst.is_none() {
        let burst_path: Vec<&str> = path.iter().copied().chain(["burst"]).collect();
        if diagnostics.explain_absence(&burst_path) {
            return None;
        }
    }
    let burst = written.burst.as_ref().map_or(rate.tokens, |burst| *burst.get_ref());
    let span = written.burst.as_ref().map_or_else(|| written_rate.span(), Spanned::span);
    match Limit::token_bucket(rate.tokens, rate.period_us, burst) {
        Ok(limit) => {
            let grant = Grant { index: limits.index_of(limit), limit, rate };
            let is_default_burst = written.burst.is_none();
            Some(PlacedGrant { grant, owner: String::new(), span, is_default_burst })
        }
        Err(error) => {
            diagnostics.push(impossible(error, rate, written_rate.span(), span));
            None
        }
    }
}

/// The diagnostic of a limit that cannot be counted.
fn impossible(
    error: TokenBucketError,
    rate: Rate,
    rate_span: Range<usize>,
    burst_span: Range<usize>,
) -> Diagnostic {
    match error {
        TokenBucketError::BurstTooLarge { max_burst }
            if max_burst < rate.tokens && max_burst < 2 =>
        {
            let message = "the period of the rate is too long to be counted exactly";
            Diagnostic::new(rate_span, message).help("take a shorter one, such as `1/30d`")
        }
        TokenBucketError::ZeroBurst | TokenBucketError::BurstTooLarge { .. } => {
            Diagnostic::new(burst_span, error.to_string())
        }
        TokenBucketError::ZeroRate
        | TokenBucketError::ZeroPeriod
        | TokenBucketError::RateTooLarge => Diagnostic::new(rate_span, error.to_string()),
    }
}
