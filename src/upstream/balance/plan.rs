//! The endpoints that requests are sent to at a moment, and their weights at that moment.

/// Parts of a weight: an endpoint with the weight 1 that has been healthy for long has this many.
pub(crate) const FULL: u64 = 1_000;

/// The least share of its weight that an endpoint has while it starts slowly, in parts of [`FULL`].
const LEAST: u64 = FULL / 10;

/// Number of steps in which the weight of an endpoint that starts slowly rises.
const STEPS: u64 = 64;

/// Minimum length of such a step, in microseconds.
const MIN_STEP_US: u64 = 10_000;

/// Whether requests are sent to an endpoint. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// They are, since this time; 0: since it is known.
    Up { since: u64 },
    /// They are not, until this time; `u64::MAX`: until something changes that.
    Down { until: u64 },
    /// They are not, even if there is no other endpoint: an operator has drained or disabled it.
    Off,
}

/// An endpoint of an upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Its weight, 1 to 1,000.
    pub(crate) weight: u16,
    /// Its priority: the lowest with a healthy endpoint is used.
    pub(crate) priority: u8,
    pub(crate) availability: Availability,
}

/// Why the endpoints of a plan were chosen. The least of all endpoints is that of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// They are the healthy ones of this priority.
    Healthy(u8),
    /// None is healthy, so all are tried.
    All,
    /// Operators have drained or disabled all.
    Off,
}

/// The endpoints that requests are sent to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) level: Level,
    /// Each by its index, in their order, with its weight in parts of [`FULL`].
    pub(crate) chosen: Vec<(usize, u32)>,
    /// When the plan must be made again, in microseconds.
    pub(crate) until: u64,
}

/// Chooses endpoints at `now` (microseconds). `slow_start_us`: how long the weight of an endpoint
/// rises from 10 % after it has become healthy; 0: not at all.
pub(crate) fn plan(candidates: &[Candidate], slow_start_us: u64, now: u64) -> Plan {
    let level = candidates.iter().map(level).min().unwrap_or(Level::Off);
    let mut until = u64::MAX;
    let mut chosen = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        if let Availability::Down { until: end } = candidate.availability {
            until = until.min(end);
        }
        if self::level(candidate) != level || level == Level::Off {
            continue;
        }
        let mut parts = FULL;
        if let Availability::Up { since } = candidate.availability
            && let Some(share) = rising(since, slow_start_us, now)
        {
            parts = share;
            until = until.min(now.saturating_add((slow_start_us / STEPS).max(MIN_STEP_US)));
        }
        let weight = u64::from(candidate.weight).saturating_mul(parts);
        chosen.push((index, u32::try_from(weight).unwrap_or(u32::MAX)));
    }
    Plan { level, chosen, until }
}

/// The best endpoint but those of `not`, for a request that must not go there again: a healthy one
/// of the lowest priority, else one that is not healthy. Of several, the `turn`-th.
pub(crate) fn other(
    candidates: &[Candidate],
    not: impl Fn(usize) -> bool,
    turn: usize,
) -> Option<usize> {
    let others = || candidates.iter().enumerate().filter(|(index, _)| !not(*index));
    let best = others().map(|(_, candidate)| level(candidate)).min()?;
    if best == Level::Off {
        return None;
    }
    let best: Vec<usize> = others()
        .filter(|(_, candidate)| level(candidate) == best)
        .map(|(index, _)| index)
        .collect();
    best.get(turn.checked_rem(best.len())?).copied()
}

/// The level of a plan that chooses this endpoint.
fn level(candidate: &Candidate) -> Level {
    match candidate.availability {
        Availability::Up { .. } => Level::Healthy(candidate.priority),
        Availability::Down { .. } => Level::All,
        Availability::Off => Level::Off,
    }
}

/// The share of its weight that an endpoint has while it starts slowly, in parts of [`FULL`].
fn rising(since: u64, slow_start_us: u64, now: u64) -> Option<u64> {
    let elapsed = now.saturating_sub(since);
    if since == 0 || elapsed >= slow_start_us {
        return None;
    }
    let share = u128::from(elapsed) * u128::from(FULL) / u128::from(slow_start_us);
    Some(u64::try_from(share).unwrap_or(FULL).max(LEAST))
}
