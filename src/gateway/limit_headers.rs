//! Rate limit headers of responses: `X-RateLimit-*`, which are in common use, and `RateLimit` with
//! `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11.

use http::HeaderMap;
use pingora::prelude::{ResponseHeader, Result};

use super::exchange::Exchange;
use super::header_text::HeaderText;
use super::respond;
use crate::base::clock;
use crate::base::duration::seconds_up;
use crate::decide::decision::{Decision, LimitCheck};
use crate::limit::charge::Mode;
use crate::policy::Policy;
use crate::policy::settings::{HeaderPolicies, HeaderStyle, Headers, ResetForm};
use crate::store::limiter::Source;

/// Rate limit headers that an upstream may send and the gateway does not. They would contradict the
/// gateway's; the last three are those of drafts up to 06.
const OTHERS: [&str; 5] = [
    "x-ratelimit-used",
    "x-ratelimit-warning",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
];

/// Parameter of a quota of requests in flight, which has no window.
const IN_FLIGHT_UNIT: &str = ";qu=\"concurrent-requests\"";

/// Prefixes of the names of all these headers.
const FAMILIES: [&str; 2] = ["x-ratelimit", "ratelimit"];

/// Inserts the headers of the exchange's decision into a response, of the gateway or of the
/// upstream. If no limit was checked, the response does not change. An interim response (100, 103)
/// has no rate limit headers, not even the upstream's own: the final response has them.
///
/// # Errors
/// If the name of a rule is not valid in a header, which `config` rejects.
pub fn insert(response: &mut ResponseHeader, exchange: &Exchange) -> Result<()> {
    let policy = &exchange.snapshot.policy;
    let Some(decision) = exchange.decision() else { return Ok(()) };
    let Some(check) = decision.check() else { return Ok(()) };
    let has_own = has_limit_headers(&response.headers);
    let is_final = respond::is_final(response.status);
    if has_own {
        response.remove_header(Headers::MODE);
    }
    if is_final
        && policy.headers.mode
        && policy.redis.is_some()
        && check.taken.source == Source::Local
    {
        response.insert_header(Headers::MODE, "local")?;
    }
    let Some(index) = check.reported else { return Ok(()) };
    let style = policy.headers.style;
    if style == HeaderStyle::None {
        return Ok(());
    }
    if has_own {
        remove_others(response);
    }
    if !is_final {
        return Ok(());
    }
    if matches!(style, HeaderStyle::Both | HeaderStyle::X) {
        insert_x(response, policy, check, index)?;
        if matches!(decision, Decision::Limited { .. }) {
            response.insert_header(Headers::REASON, check.rule_name(policy, index))?;
        }
    }
    if matches!(style, HeaderStyle::Both | HeaderStyle::Draft) {
        insert_draft(response, policy, check, index)?;
    }
    if policy.has_soft() && check.taken.answer.allowed() {
        insert_warning(response, policy, check)?;
    }
    Ok(())
}

/// Inserts the quotas of which the client has used the share at which it is warned.
fn insert_warning(
    response: &mut ResponseHeader,
    policy: &Policy,
    check: &LimitCheck,
) -> Result<()> {
    let mut warning = HeaderText::new();
    let each = check.taken.charges.iter().zip(&check.taken.answer.outcomes).enumerate();
    for (index, (charge, outcome)) in each {
        if charge.mode == Mode::Enforce && charge.limit.is_soft_exceeded(outcome.level) {
            let used = charge.limit.full().saturating_sub(outcome.level).max(0).unsigned_abs();
            let parameters =
                [(";u=", used / charge.limit.parts()), (";q=", charge.limit.capacity())];
            warning.item(check.rule_name(policy, index), parameters);
        }
    }
    if warning.is_empty() {
        return Ok(());
    }
    response.insert_header(Headers::WARNING, warning)
}

/// Whether the response of the upstream has rate limit headers. One pass over all names costs less
/// than eleven look-ups of names that are rarely present.
fn has_limit_headers(headers: &HeaderMap) -> bool {
    let is_of = |name: &str| FAMILIES.iter().any(|family| name.starts_with(family));
    headers.keys().any(|name| is_of(name.as_str()))
}

fn remove_others(response: &mut ResponseHeader) {
    for name in Headers::ALL_X.into_iter().chain(Headers::ALL_DRAFT).chain(OTHERS) {
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
    response.insert_header(Headers::LIMIT, standing.limit)?;
    response.insert_header(Headers::REMAINING, standing.remaining)?;
    response.insert_header(Headers::RESET, reset)
}

/// Value of `X-RateLimit-Reset` for a bucket that is full in `reset_us` microseconds. The sum is
/// rounded up, not its parts, so that the value is never early.
fn reset(form: ResetForm, reset_us: u64, unix_us: u64) -> u64 {
    match form {
        ResetForm::Epoch => seconds_up(unix_us.saturating_add(reset_us)),
        ResetForm::Delta => seconds_up(reset_us),
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
    let reported = check
        .taken
        .charges
        .iter()
        .enumerate()
        .filter(|(index, charge)| charge.mode == Mode::Enforce && (*index == binding || all));
    for (index, charge) in reported {
        let (Some(standing), Some(outcome)) =
            (check.standing(index), check.taken.answer.outcomes.get(index))
        else {
            continue;
        };
        // Until the retry if the rule denied the request, otherwise until the bucket is full.
        let wait = if outcome.enough { standing.reset_us } else { standing.retry_after_us };
        let wait = seconds_up(wait).max(u64::from(!outcome.enough));
        let name = check.rule_name(policy, index);
        if let Some(window) = charge.limit.window_seconds() {
            policies.item(name, [(";q=", standing.limit), (";w=", window)]);
        } else {
            policies.item(name, [(";q=", standing.limit)]);
            policies.parameter(IN_FLIGHT_UNIT);
        }
        limits.item(name, [(";r=", standing.remaining), (";t=", wait)]);
    }
    response.insert_header(Headers::DRAFT_POLICY, policies)?;
    response.insert_header(Headers::DRAFT, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_is_the_second_in_which_the_bucket_is_full() {
        // (microseconds until full, Unix time in microseconds) -> seconds
        let table = [
            ((0, 7_000_000), 7),
            ((0, 7_000_001), 8),
            ((300_000, 7_000_000), 8),
            ((300_000, 7_900_000), 9),
            ((1_000_000, 7_000_000), 8),
        ];
        for ((reset_us, now), expected) in table {
            assert_eq!(reset(ResetForm::Epoch, reset_us, now), expected, "{reset_us} at {now}");
        }
        assert_eq!(reset(ResetForm::Delta, 1, 7_900_000), 1);
    }
}
