//! Warns of a burst that doubles what a rate allows in a day.
//!
//! A bucket is full when a client first comes, and refills all day, so the first day lets the burst
//! pass and what the rate yields in a day. A user who writes `1000/d` expects 1000 requests a day
//! and gets 2000: the default burst is the number of the rate. The condition: `burst >= what the
//! rate yields in a day`, or in its own period if that is longer, as in `1000/30d`. All other files
//! pass: `100/h` with its default burst of 100 lets 2500 requests pass in the first day instead of
//! 2400. So does a burst of 1, with which requests are evenly spaced.

use std::fmt;

use super::super::grant::PlacedGrant;
use super::super::rules::Rules;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::policy::{Rate, Rule, WrittenLimit};

/// Microseconds in a day.
const DAY_US: u64 = 86_400_000_000;

/// A limit, and the window in which its burst counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Doubled {
    rate: Rate,
    burst: u64,
    /// A day, or the rate's period if that is longer.
    window_us: u64,
    /// What the rate yields in the window, in whole tokens.
    yielded: u64,
}

/// Adds one warning for each such limit of an enabled rule.
pub(super) fn add(rules: &Rules, diagnostics: &mut Diagnostics) {
    let enabled = rules.with_grants().filter(|(rule, _)| rule.enabled);
    for (rule, placed) in
        enabled.flat_map(|(rule, grants)| grants.iter().map(move |one| (rule, one)))
    {
        // The burst of a limit by window is a part of the limit.
        let WrittenLimit::Rate(rate) = placed.grant.written else { continue };
        if let Some(doubled) = doubled(rate, placed.grant.limit.capacity()) {
            diagnostics.push(warning(rule, placed, doubled));
        }
    }
}

fn doubled(rate: Rate, burst: u64) -> Option<Doubled> {
    let window_us = rate.period_us.max(DAY_US);
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let is_doubled = burst > 1 && product(burst, rate.period_us) >= product(rate.tokens, window_us);
    let yielded = product(rate.tokens, window_us).checked_div(u128::from(rate.period_us))?;
    let yielded = u64::try_from(yielded).ok()?;
    is_doubled.then_some(Doubled { rate, burst, window_us, yielded })
}

fn warning(rule: &Rule, placed: &PlacedGrant, doubled: Doubled) -> Diagnostic {
    let Doubled { rate, burst, yielded, .. } = doubled;
    let message = format!(
        "the rule `{}` lets {} requests pass in {doubled}{}",
        rule.name,
        u128::from(burst) + u128::from(yielded),
        placed.owner.replacen(" the", " for the", 1),
    );
    let label = if placed.is_default_burst {
        format!("{burst} at once, because the default burst is {burst}, and {yielded} by the rate")
    } else {
        format!("{burst} at once, and {yielded} by the rate `{rate}`")
    };
    Diagnostic::warning(placed.span.clone(), message).here(label).help(help(doubled))
}

/// A rate and a burst that let no more pass than the rate alone is meant to, and a small burst.
fn help(doubled: Doubled) -> String {
    let Doubled { rate, yielded, window_us, .. } = doubled;
    let small = (yielded / 24).max(1);
    let alone = format!("with `burst = {small}`, it lets {} pass", yielded.saturating_add(small));
    let tokens = rate.tokens - rate.tokens / 4;
    let lower = Rate { tokens, ..rate };
    let of_lower = u128::from(tokens) * u128::from(window_us) / u128::from(rate.period_us.max(1));
    let rest = u128::from(yielded).checked_sub(of_lower).filter(|rest| *rest > 0);
    match rest {
        Some(rest) if rest < of_lower => format!(
            "for at most {yielded}, write `rate = \"{lower}\"` and `burst = {rest}`; {alone}"
        ),
        _ => alone,
    }
}

impl fmt::Display for Doubled {
    /// `the first day`, `the first 30 days`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.window_us / DAY_US;
        match (self.window_us % DAY_US, days) {
            (0, 1) => formatter.write_str("the first day"),
            (0, _) => write!(formatter, "the first {days} days"),
            _ => write!(formatter, "the first {} hours", self.window_us.div_ceil(DAY_US / 24)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::mistake::Mistake;
    use super::super::super::rate::{self, Setting};
    use super::*;

    fn parse(text: &str) -> Result<Rate, Mistake> {
        rate::parse(Setting::Rate, text)
    }

    #[test]
    fn burst_is_reported_from_twice_the_daily_limit_on() {
        // (rate, burst, requests in the first window)
        let table = [
            ("1000/d", 1000, Some((2000, "the first day"))),
            ("1000/d", 999, None),
            ("1000/30d", 1000, Some((2000, "the first 30 days"))),
            ("1000/30d", 999, None),
            ("100/36h", 100, Some((200, "the first 36 hours"))),
            ("500/12h", 500, None),
            ("500/12h", 1000, Some((2000, "the first day"))),
            ("100/h", 100, None),
            ("100/h", 2399, None),
            ("100/h", 2400, Some((4800, "the first day"))),
            ("1/s", 86_399, None),
            ("1/s", 86_400, Some((172_800, "the first day"))),
            ("10/s", 50, None),
            ("1/d", 1, None),
            ("1/d", 2, Some((3, "the first day"))),
            // 24 / 7 h is not a whole number of periods: 3.43 tokens a day.
            ("1/7h", 3, None),
            ("1/7h", 4, Some((7, "the first day"))),
        ];
        for (rate, burst, expected) in table {
            let found = doubled(parse(rate).unwrap(), burst);
            let found = found.map(|one| (one.burst + one.yielded, one.to_string()));
            let expected = expected.map(|(requests, window)| (requests, window.to_owned()));
            assert_eq!(found, expected, "{rate} {burst}");
        }
    }

    #[test]
    fn suggested_limits_let_no_more_pass_and_are_not_reported() {
        for rate in ["4/d", "7/d", "1000/d", "1001/d", "1000000/d", "1000/30d", "60/h", "5/s"] {
            let rate = parse(rate).unwrap();
            let yielded = rate.tokens * rate.period_us.max(DAY_US) / rate.period_us;
            let help = help(doubled(rate, yielded).unwrap());
            let within = |from: &str| {
                help.split_once(from).and_then(|(_, rest)| rest.split_once(['"', '`'])).unwrap().0
            };
            let lower = parse(within("rate = \"")).unwrap();
            let burst: u64 = within("burst = ").parse().unwrap();
            let window = rate.period_us.max(DAY_US);
            assert_eq!(lower.tokens * window / lower.period_us + burst, yielded, "{help}");
            assert_eq!(doubled(lower, burst), None, "{help}");
        }
        assert_eq!(
            help(doubled(parse("1/d").unwrap(), 5).unwrap()),
            "with `burst = 1`, it lets 2 pass"
        );
    }
}
