//! Formats of numbers and times.

use std::fmt::Display;

use crate::api::audit::RefusalRunView;
use crate::api::status::{RuleStatus, Status};
use crate::api::upstreams::{EndpointHealth, Health, NameLookup};
use crate::base::text;

/// Formats a whole number: `1,234,567`.
pub(in crate::top) fn count(number: impl Display + Copy) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && place % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate: with one decimal below 100.
pub(in crate::top) fn rate(per_second: f64) -> String {
    if per_second < 99.95 {
        return format!("{per_second:.1}");
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "far below 2^64")]
    count(per_second.round() as u64)
}

/// The state of an endpoint: `ok`, `ejected: error rate, retried in 20 s`.
pub(crate) fn endpoint(one: &EndpointHealth) -> String {
    if one.health == Health::Ok {
        return one.health.name().to_owned();
    }
    let mut words = match (&*one.state, &*one.reason) {
        // A gateway of an earlier version.
        ("", _) => "ejected".to_owned(),
        (state, "") => state.to_owned(),
        (state, reason) => format!("{state}: {}", cut(reason, 60)),
    };
    if one.retry_after_ms > 0 {
        words.push_str(", retried in ");
        words.push_str(&span(one.retry_after_ms));
    }
    words
}

/// The look-ups of a name that fail: `look-up of api.internal:80 failed: no name server answered`;
/// `None`: they do not.
pub(crate) fn lookup(one: &NameLookup) -> Option<String> {
    let (server, reason) = (cut(&one.server, 60), cut(&one.reason, 60));
    (!reason.is_empty()).then(|| format!("look-up of {server} {}: {reason}", one.state))
}

/// Formats a duration: `350 ms`, `12 s`, `3 min`, `2 h`, `5 d`.
pub(in crate::top) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1_000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats milliseconds: `0.41`, `12.4`, `1,204`; `-` without a value.
pub(in crate::top) fn latency(milliseconds: Option<f64>) -> String {
    match milliseconds {
        None => "-".to_owned(),
        Some(small) if small < 9.995 => format!("{small:.2}"),
        Some(large) => rate(large),
    }
}

/// How many gateways have other limits: `1 with other limits than 9f3c0a51e27b8846`; `None` if none
/// has.
pub(in crate::top) fn other_limits(status: &Status) -> Option<String> {
    let limits = &status.limits;
    let others = limits.gateways_with_others;
    (others > 0).then(|| format!("{others} with other limits than {}", cut(&limits.hash, 16)))
}

/// What rules do besides counting: a name, the words for all such rules, and whether that is a
/// reason to look. Nothing of a kind that no rule has.
pub(in crate::top) fn rules(status: &Status) -> Vec<(&'static str, String, bool)> {
    let each = |text: &dyn Fn(&RuleStatus) -> Option<String>| {
        let texts: Vec<String> = status.rules.iter().filter_map(text).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    };
    let rule = |one: &RuleStatus| cut(&one.rule, 24);
    let bans = each(&|one| Some(format!("{} {}", rule(one), count(one.bans?))));
    let rates = each(&|one| {
        let percent = one.rate_percent?;
        Some(format!("{} {percent:.0} % of its rate", rule(one)))
    });
    let quotas = each(&|one| {
        let warned = (one.warned > 0).then(|| format!("{} warned", count(one.warned)));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for display")]
        let tokens = one.overage_tokens.ceil() as u64;
        let over = (tokens > 0).then(|| format!("{} tokens over", count(tokens)));
        let parts: Vec<String> = warned.into_iter().chain(over).collect();
        (!parts.is_empty()).then(|| format!("{} {}", rule(one), parts.join(", ")))
    });
    let is_banning = status.rules.iter().any(|one| one.bans.is_some_and(|bans| bans > 0));
    let is_slowed = status.rules.iter().any(|one| one.rate_percent.is_some_and(|it| it < 100.0));
    [("bans", bans, is_banning), ("adaptive", rates, is_slowed), ("quotas", quotas, false)]
        .into_iter()
        .filter_map(|(name, text, is_notable)| Some((name, text?, is_notable)))
        .collect()
}

/// Formats the time from the first to the last refusal of a run; `...` follows if it continues, and
/// `-` is a single refusal.
pub(in crate::top) fn run_span(run: &RefusalRunView) -> String {
    let [first_ms, last_ms] = [run.first, run.last].map(|time| time.0 / 1_000);
    let length = span(last_ms.saturating_sub(first_ms));
    match (run.count, run.is_open) {
        (0 | 1, _) => "-".to_owned(),
        (_, true) => format!("{length}..."),
        (_, false) => length,
    }
}

/// Shortens text of the gateway to `most` characters, without control characters.
pub(in crate::top) fn cut(text: &str, most: usize) -> String {
    text::cut(text, most)
}

/// Shortens a name; that of requests without a plan or route is empty.
pub(in crate::top) fn name(text: &str, most: usize) -> String {
    if text.is_empty() { "(none)".to_owned() } else { cut(text, most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_short() {
        let counts = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (number, expected) in counts {
            assert_eq!(count(number), expected);
        }
        let rates =
            [(0.0, "0.0"), (1.25, "1.2"), (99.94, "99.9"), (99.95, "100"), (12_345.6, "12,346")];
        for (number, expected) in rates {
            assert_eq!(rate(number), expected);
        }
        let spans = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
            (200_000_000, "2 d"),
        ];
        for (milliseconds, expected) in spans {
            assert_eq!(span(milliseconds), expected);
        }
        let latencies =
            [(None, "-"), (Some(0.4123), "0.41"), (Some(12.44), "12.4"), (Some(1_204.0), "1,204")];
        for (milliseconds, expected) in latencies {
            assert_eq!(latency(milliseconds), expected);
        }
    }
}
