//! The goals, and whether they are met.

use crate::cost::{Cell, Keys, Sample};
use crate::exactness::Exactness;
use crate::ways::Way;

/// A goal and the measured value.
pub(crate) struct Goal {
    pub(crate) promise: &'static str,
    pub(crate) measured: String,
    pub(crate) verdict: &'static str,
}

/// The median of the rounds, the least and the greatest value.
#[derive(Clone, Copy)]
struct Spread(f64, f64, f64);

impl Spread {
    /// The ratio of two measurements: of the medians, and of the extremes.
    fn over(self, other: Self) -> Self {
        Self(self.0 / other.0, self.1 / other.2, self.2 / other.1)
    }

    /// A bound holds only if it does for the least and the greatest value.
    fn verdict(self, holds: impl Fn(f64) -> bool) -> &'static str {
        match (holds(self.1), holds(self.2)) {
            (true, true) => "holds",
            (false, false) => "does not hold",
            _ => "within the noise",
        }
    }
}

/// All goals, for tollgate with its default settings.
pub(crate) fn all(costs: &[Cell], exactness: &[Exactness]) -> Vec<Goal> {
    let cell = |way, keys| {
        let mut cells = costs.iter();
        cells.find(|c| c.way == way && c.keys == keys && c.clients == 64).unwrap()
    };
    let of = |cell: &Cell, number: fn(&Sample) -> f64| {
        let (median, low, high) = cell.of(number);
        Spread(median, low, high)
    };
    let calls = |cell| of(cell, |sample| sample.calls);
    let redis_us = |cell| of(cell, |sample| sample.redis_us);
    let nanoseconds = |cell| of(cell, |sample| sample.nanoseconds);
    let hot = cell(Way::OursCached, Keys::Hot);
    let distinct = cell(Way::OursCached, Keys::Distinct);
    let script = cell(Way::Script, Keys::Hot);
    let ours = exactness.iter().find(|exactness| exactness.way == Way::OursCached).unwrap();
    let over = ours.grants.iter().map(|(passed, may)| passed.saturating_sub(*may)).max().unwrap();
    let faster = nanoseconds(script).over(nanoseconds(hot));
    let lighter = redis_us(script).over(redis_us(hot));
    let per_second = Spread(1e6, 1e6, 1e6).over(redis_us(distinct));
    let once = |holds| if holds { "holds" } else { "does not hold" };
    vec![
        Goal {
            promise: "nothing passes beyond burst and rate",
            measured: format!("{over} too many"),
            verdict: once(over == 0),
        },
        Goal {
            promise: "hot key, 64 clients: at most 0.05 calls a request",
            measured: format!("{:.3}", calls(hot).0),
            verdict: calls(hot).verdict(|value| value <= 0.05),
        },
        Goal {
            promise: "hot key, 64 clients: at least ten times the throughput of (a)",
            measured: format!("{:.1} times", faster.0),
            verdict: faster.verdict(|value| value >= 10.0),
        },
        Goal {
            promise: "the same by Redis' CPU time, which is what all gateways share",
            measured: format!("{:.1} times", lighter.0),
            verdict: lighter.verdict(|value| value >= 10.0),
        },
        Goal {
            promise: "hot key, 64 clients: at most 3 µs of Redis' CPU a request",
            measured: format!("{:.1} µs", redis_us(hot).0),
            verdict: redis_us(hot).verdict(|value| value <= 3.0),
        },
        Goal {
            promise: "distinct keys, 64 clients: at most 8 µs of Redis' CPU a request",
            measured: format!("{:.1} µs", redis_us(distinct).0),
            verdict: redis_us(distinct).verdict(|value| value <= 8.0),
        },
        Goal {
            promise: "distinct keys, 64 clients: at most 0.1 calls a request",
            measured: format!("{:.3}", calls(distinct).0),
            verdict: calls(distinct).verdict(|value| value <= 0.1),
        },
        Goal {
            promise: "distinct keys, 64 clients: at least 150,000 checks a second of Redis' CPU time",
            measured: format!("{:.0}", per_second.0),
            verdict: per_second.verdict(|value| value >= 150_000.0),
        },
        Goal {
            promise: "100,000 refused requests: fewer than 100 calls",
            measured: format!("{} calls", ours.attack_calls),
            verdict: once(ours.attack_calls < 100),
        },
    ]
}
