//! The goals, and whether they are met.

use crate::cost::{Cell, Keys};
use crate::exactness::Exactness;
use crate::ways::Way;

/// A goal and the measured value.
pub(crate) struct Goal {
    pub(crate) promise: &'static str,
    pub(crate) measured: String,
    pub(crate) met: bool,
}

/// All goals, for tollgate with its default settings.
pub(crate) fn all(costs: &[Cell], exactness: &[Exactness]) -> Vec<Goal> {
    let cell = |way, keys| {
        let mut cells = costs.iter();
        cells.find(|c| c.way == way && c.keys == keys && c.clients == 64).unwrap()
    };
    let hot = cell(Way::OursCached, Keys::Hot);
    let distinct = cell(Way::OursCached, Keys::Distinct);
    let script = cell(Way::Script, Keys::Hot);
    let ours = exactness.iter().find(|exactness| exactness.way == Way::OursCached).unwrap();
    let faster = script.median(|s| s.nanoseconds) / hot.median(|s| s.nanoseconds);
    let redis_us = |cell: &Cell| cell.median(|s| s.redis_us);
    let lighter = redis_us(script) / redis_us(hot);
    let per_second = 1e6 / redis_us(distinct);
    let over = ours.grants.iter().map(|(passed, may)| passed.saturating_sub(*may)).max().unwrap();
    let calls = |cell: &Cell| cell.median(|s| s.calls);
    vec![
        Goal {
            promise: "nothing passes beyond burst and rate",
            measured: format!("{over} too many"),
            met: over == 0,
        },
        Goal {
            promise: "hot key, 64 clients: at most 0.05 calls a request",
            measured: format!("{:.3}", calls(hot)),
            met: calls(hot) <= 0.05,
        },
        Goal {
            promise: "hot key, 64 clients: at least ten times the throughput of (a)",
            measured: format!("{faster:.1} times"),
            met: faster >= 10.0,
        },
        Goal {
            promise: "the same by Redis' CPU time, which is what all gateways share",
            measured: format!("{lighter:.1} times"),
            met: lighter >= 10.0,
        },
        Goal {
            promise: "hot key, 64 clients: at most 3 µs of Redis' CPU a request",
            measured: format!("{:.1} µs", redis_us(hot)),
            met: redis_us(hot) <= 3.0,
        },
        Goal {
            promise: "distinct keys, 64 clients: at most 8 µs of Redis' CPU a request",
            measured: format!("{:.1} µs", redis_us(distinct)),
            met: redis_us(distinct) <= 8.0,
        },
        Goal {
            promise: "distinct keys, 64 clients: at most 0.1 calls a request",
            measured: format!("{:.3}", calls(distinct)),
            met: calls(distinct) <= 0.1,
        },
        Goal {
            promise: "distinct keys, 64 clients: at least 150,000 checks a second of Redis' CPU time",
            measured: format!("{per_second:.0}"),
            met: per_second >= 150_000.0,
        },
        Goal {
            promise: "100,000 refused requests: fewer than 100 calls",
            measured: format!("{} calls", ours.attack_calls),
            met: ours.attack_calls < 100,
        },
    ]
}
