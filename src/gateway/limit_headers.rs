//! What answers say about limits: `X-RateLimit-*`, which clients know, and `RateLimit` with
//! `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11.

use http::HeaderMap;
use pingora::prelude::{ResponseHeader, Result};

use super::exchange::Exchange;
use super::header_text::HeaderText;
use super::respond;
use crate::clock;
use crate::decide::decision::{Decision, LimitCheck};
use crate::limit::charge::Mode;
use crate::limit::seconds_up;
use crate::policy::Policy;
use crate::policy::settings::{HeaderPolicies, HeaderStyle, ResetForm};
use crate::store::limiter::Source;

const LIMIT: &str = "X-RateLimit-Limit";
const REMAINING: &str = "X-RateLimit-Remaining";
const RESET: &str = "X-RateLimit-Reset";
const REASON: &str = "X-RateLimit-Reason";
const MODE: &str = "X-RateLimit-Mode";
const DRAFT: &str = "RateLimit";
const DRAFT_POLICY: &str = "RateLimit-Policy";

/// Names under which an API may speak of limits of its own, beside ours. They would contradict
/// them; the last three are those of drafts up to 06.
const OTHERS: [&str; 4] =
    ["x-ratelimit-used", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];

/// What all these names begin with.
const FAMILIES: [&str; 2] = ["x-ratelimit", "ratelimit"];

/// Puts the headers of the exchange's verdict into an answer, whoever wrote it. Without a verdict
/// the answer stays as it is. An interim response (100, 103) carries no limits, not even the API's
/// own: the final response does.
///
/// # Errors
/// A rule whose name is no header text, which the file's check rules out.
pub fn insert(response: &mut ResponseHeader, exchange: &Exchange) -> Result<()> {
    let policy = &exchange.snapshot.policy;
    let Some(decision) = &exchange.decision else { return Ok(()) };
    let Some(check) = decision.check() else { return Ok(()) };
    let speaks = speaks_of_limits(&response.headers);
    let is_final = respond::is_final(response.status);
    if speaks {
        response.remove_header(MODE);
    }
    if is_final
        && policy.headers.mode
        && policy.redis.is_some()
        && check.taken.source == Source::Local
    {
        response.insert_header(MODE, "local")?;
    }
    let Some(index) = check.reported else { return Ok(()) };
    let style = policy.headers.style;
    if style == HeaderStyle::None {
        return Ok(());
    }
    if speaks {
        remove_others(response);
    }
    if !is_final {
        return Ok(());
    }
    if matches!(style, HeaderStyle::Both | HeaderStyle::X) {
        insert_x(response, policy, check, index)?;
        if matches!(decision, Decision::Limited(_)) {
            response.insert_header(REASON, check.rule_name(policy, index))?;
        }
    }
    if matches!(style, HeaderStyle::Both | HeaderStyle::Draft) {
        insert_draft(response, policy, check, index)?;
    }
    Ok(())
}

/// Whether the API says anything of limits. One look at each name costs less than a search for
/// eleven names that are hardly ever there.
fn speaks_of_limits(headers: &HeaderMap) -> bool {
    let is_of = |name: &str| FAMILIES.iter().any(|family| name.starts_with(family));
    headers.keys().any(|name| is_of(name.as_str()))
}

fn remove_others(response: &mut ResponseHeader) {
    for name in [LIMIT, REMAINING, RESET, REASON, DRAFT, DRAFT_POLICY].into_iter().chain(OTHERS) {
        response.remove_header(name);
    }
}

fn insert_x(
    response: &mut ResponseHeader,
    policy: &Policy,
    check: &LimitCheck,
    index: usize,
) -> Result<()> {
    let Some(standing) = check.standing(index) else { return Ok(()) };
    let reset = reset(policy.headers.reset, standing.reset_us, clock::unix_us());
    response.insert_header(LIMIT, standing.limit)?;
    response.insert_header(REMAINING, standing.remaining)?;
    response.insert_header(RESET, reset)
}

/// The second at which a bucket is full that is full in `ticks`. Rounded up once, behind the sum: a
/// second that has begun must not be counted as over.
fn reset(form: ResetForm, ticks: u64, unix_now: u64) -> u64 {
    match form {
        ResetForm::Epoch => seconds_up(unix_now.saturating_add(ticks)),
        ResetForm::Delta => seconds_up(ticks),
    }
}

fn insert_draft(
    response: &mut ResponseHeader,
    policy: &Policy,
    check: &LimitCheck,
    binding: usize,
) -> Result<()> {
    let (mut limits, mut policies) = (HeaderText::new(), HeaderText::new());
    let all = policy.headers.policies == HeaderPolicies::All;
    let named = check
        .taken
        .charges
        .iter()
        .enumerate()
        .filter(|(index, charge)| charge.mode == Mode::Enforce && (*index == binding || all));
    for (index, charge) in named {
        let (Some(standing), Some(outcome)) =
            (check.standing(index), check.taken.answer.outcomes.get(index))
        else {
            continue;
        };
        // Until the next try where the rule refused, until full where it did not.
        let wait = if outcome.enough { standing.reset_us } else { standing.retry_after_us };
        let wait = seconds_up(wait).max(u64::from(!outcome.enough));
        let window = seconds_up(charge.limit.window_us()).max(1);
        let name = check.rule_name(policy, index);
        policies.item(name, [(";q=", standing.limit), (";w=", window)]);
        limits.item(name, [(";r=", standing.remaining), (";t=", wait)]);
    }
    response.insert_header(DRAFT_POLICY, policies)?;
    response.insert_header(DRAFT, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_full_at_reset() {
        // (ticks until full, the time) -> the second
        let table = [
            ((0, 7_000_000), 7),
            ((0, 7_000_001), 8),
            ((300_000, 7_000_000), 8),
            ((300_000, 7_900_000), 9),
            ((1_000_000, 7_000_000), 8),
        ];
        for ((ticks, now), expected) in table {
            assert_eq!(reset(ResetForm::Epoch, ticks, now), expected, "{ticks} at {now}");
        }
        assert_eq!(reset(ResetForm::Delta, 1, 7_900_000), 1);
    }
}
