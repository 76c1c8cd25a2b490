//! Token buckets: `rate` and `burst`, or `limit` and `burst`.

use std::ops::Range;

use super::super::rate::{self, Setting, default_burst};
use super::super::values::written_duration;
use super::{LEAVE_OUT, ReadLimit, Written, is_explained};
use crate::base::duration::micros;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules::{Burst, Rule};
use crate::config::spanned::Spanned;
use crate::limit::token_bucket::{TokenBucket, TokenBucketError};
use crate::limit::{Limit, MAX_UNITS};
use crate::policy::{Rate, WrittenLimit};

/// A burst, as far as it can be known without the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capacity {
    /// Left out.
    Default,
    Tokens(u64),
    /// What the rate yields in these microseconds, at least 1 token.
    Time(u64),
}

/// Where the parts of a grant are.
#[derive(Debug, Clone)]
struct Spans {
    /// `rate` or `limit`.
    amount: Range<usize>,
    /// The burst, or the amount if it is left out.
    burst: Range<usize>,
}

/// Reads the grant in the table at `path`; none without a rate and a limit, or with an error.
pub(super) fn read(
    written: Written<'_>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<ReadLimit> {
    if let (Some(rate), Some(limit)) = (written.rate, written.limit) {
        let message = "a token bucket has a `rate` or a `limit`, not both";
        let help = "take out `rate`: it follows from `limit` and `burst`; or take out `limit`";
        let first = Diagnostic::new(limit.span(), message).here("the limit");
        diagnostics.push(first.and(rate.span(), "the rate".to_owned()).help(help));
        return None;
    }
    let (setting, text, span) = match (written.rate, written.limit) {
        (Some(rate), _) => (Setting::Rate, &**rate.get_ref(), rate.span()),
        (None, limit) => {
            let limit = limit.as_ref()?;
            (Setting::Limit, &**limit.get_ref(), limit.span())
        }
    };
    let amount = rate::parse(setting, text).map_err(|mistake| mistake.at(span.clone()));
    let amount = diagnostics.keep_ok(amount)?;
    let capacity = capacity(written.burst.as_ref(), path, diagnostics)?;
    let burst_span = written.burst.as_ref().map_or_else(|| span.clone(), Spanned::span);
    let spans = Spans { amount: span, burst: burst_span };
    let bucket = match setting {
        Setting::Rate => by_rate(amount, capacity, written.parts, &spans),
        Setting::Limit => by_limit(amount, capacity, written.parts, &spans),
    };
    Some(ReadLimit {
        limit: Limit::TokenBucket(diagnostics.keep_ok(bucket)?),
        written: match setting {
            Setting::Rate => WrittenLimit::Rate(amount),
            Setting::Limit => WrittenLimit::Limit(amount),
        },
        span: spans.burst,
        is_default_burst: capacity == Capacity::Default,
    })
}

/// The burst as written; none if it is wrong.
fn capacity(
    burst: Option<&Spanned<Burst>>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<Capacity> {
    let Some(burst) = burst else {
        return (!is_explained(path, "burst", diagnostics)).then_some(Capacity::Default);
    };
    let text = match burst.get_ref() {
        Burst::Tokens(tokens) => return Some(Capacity::Tokens(*tokens)),
        Burst::Duration(text) => text,
    };
    if let Ok(tokens) = text.parse::<u64>() {
        let help =
            format!("for {tokens} tokens, write `burst = {tokens}`; a duration looks like `5m`");
        diagnostics.push(Diagnostic::new(burst.span(), "`burst` has no unit").help(help));
        return None;
    }
    if let Some(excess) = excess_of_nginx(text) {
        let help = format!("nginx adds its burst to one request: write `burst = {}`", excess + 1);
        let message = "`burst` is a number of tokens or a duration";
        diagnostics.push(Diagnostic::new(burst.span(), message).help(help));
        return None;
    }
    let text = burst.with(text.clone());
    let time = written_duration(&Rule::burst, &text, diagnostics)?;
    Some(Capacity::Time(micros(time)))
}

/// The number in `20 nodelay`, a burst of nginx.
fn excess_of_nginx(text: &str) -> Option<u32> {
    let (number, word) = text.trim().split_once(char::is_whitespace)?;
    matches!(word.trim(), "nodelay" | "delay").then(|| number.parse().ok()).flatten()
}

/// The bucket of `rate` and `burst`.
fn by_rate(
    rate: Rate,
    capacity: Capacity,
    parts: u16,
    spans: &Spans,
) -> Result<TokenBucket, Diagnostic> {
    let burst = match capacity {
        Capacity::Default => rate.tokens,
        Capacity::Tokens(tokens) => tokens,
        Capacity::Time(us) => tokens_in(rate.tokens, us, rate.period_us),
    };
    TokenBucket::new(rate.tokens, rate.period_us, burst)
        .and_then(|bucket| bucket.with_parts(parts))
        .map_err(|error| impossible(error, rate, spans))
}

/// The bucket of `limit` and `burst`.
fn by_limit(
    limit: Rate,
    capacity: Capacity,
    parts: u16,
    spans: &Spans,
) -> Result<TokenBucket, Diagnostic> {
    let Rate { tokens, period_us } = limit;
    let wrong = |message: &str| Diagnostic::new(spans.amount.clone(), message);
    if tokens == 0 {
        let message = "a limit of 0 would let nothing pass";
        return Err(wrong(message).help(LEAVE_OUT));
    }
    if period_us == 0 {
        return Err(wrong("a limit needs a period longer than 0"));
    }
    if tokens == 1 {
        let help =
            format!("for one token in that time, write `rate = \"{limit}\"` and `burst = 1`");
        return Err(wrong("a `limit` is at least 2: the burst is a part of it").help(help));
    }
    let burst = match capacity {
        Capacity::Default => default_burst(tokens),
        Capacity::Tokens(burst) => burst,
        // The burst b that the remaining rate yields in the time: b = (tokens - b) / period * time.
        Capacity::Time(us) => tokens_in(tokens, us, period_us.saturating_add(us)),
    };
    let bucket = TokenBucket::by_window(tokens, period_us, burst);
    bucket.and_then(|bucket| bucket.with_parts(parts)).map_err(|error| match error {
        TokenBucketError::BurstNotBelowLimit { .. } => {
            let most = tokens - 1;
            let help = format!(
                "write `burst = {}`, or another one up to {most}: the rest of the limit is the rate",
                default_burst(tokens)
            );
            Diagnostic::new(spans.burst.clone(), error.to_string()).help(help)
        }
        TokenBucketError::BurstTooLarge { .. } => {
            let message = "the burst is too large for this limit to be counted exactly";
            let diagnostic = Diagnostic::new(spans.burst.clone(), message);
            match MAX_UNITS.unsigned_abs() / period_us {
                0 => wrong("the period of the limit is too long to be counted exactly"),
                most => diagnostic.help(format!("write `burst = {most}` or less")),
            }
        }
        TokenBucketError::RateTooLarge => wrong(&format!(
            "the limit is too large: at most {MAX_UNITS} per period can be counted exactly"
        )),
        other => Diagnostic::new(spans.burst.clone(), other.to_string()),
    })
}

/// What `tokens` per `period_us` yield in `us` microseconds, rounded down, at least 1.
fn tokens_in(tokens: u64, us: u64, period_us: u64) -> u64 {
    let yielded = (u128::from(tokens) * u128::from(us)).checked_div(u128::from(period_us));
    u64::try_from(yielded.unwrap_or_default()).unwrap_or(u64::MAX).max(1)
}

/// The diagnostic of a rate and a burst that cannot be counted.
fn impossible(error: TokenBucketError, rate: Rate, spans: &Spans) -> Diagnostic {
    match error {
        TokenBucketError::BurstTooLarge { max_burst }
            if max_burst < rate.tokens && max_burst < 2 =>
        {
            let message = "the period of the rate is too long to be counted exactly";
            Diagnostic::new(spans.amount.clone(), message)
                .help("take a shorter one, such as `1/30d`")
        }
        TokenBucketError::ZeroBurst
        | TokenBucketError::BurstNotBelowLimit { .. }
        | TokenBucketError::BurstTooLarge { .. } => {
            Diagnostic::new(spans.burst.clone(), error.to_string())
        }
        TokenBucketError::ZeroRate
        | TokenBucketError::ZeroPeriod
        | TokenBucketError::RateTooLarge => {
            Diagnostic::new(spans.amount.clone(), error.to_string())
        }
    }
}
