//! The endpoint with the fewest requests in flight for its weight.

use crate::base::hash::mix;

/// The inverse of a weight is a part of this number.
const SCALE: u64 = 1 << 40;

/// The inverse of a weight, which [`Load`] needs.
pub(crate) fn inverse(weight: u32) -> u64 {
    SCALE / u64::from(weight.max(1))
}

/// The load of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) in_flight: u32,
    /// [`inverse`] of its weight.
    pub(crate) inverse: u64,
}

impl Load {
    /// The load for each unit of weight if it gets the request.
    fn measure(self) -> u64 {
        (u64::from(self.in_flight) + 1).saturating_mul(self.inverse)
    }
}

/// The position of the endpoint with the lowest load. `random` selects one of several.
pub(crate) fn least(loads: impl Iterator<Item = Load>, random: u64) -> Option<usize> {
    let key = |(position, load): &(usize, Load)| {
        (load.measure(), mix(random ^ u64::try_from(*position).unwrap_or_default()))
    };
    loads.enumerate().min_by_key(key).map(|(position, _)| position)
}

/// The position of the better one of two endpoints that are drawn by weight. `ends` has the sum of
/// the weights up to each endpoint and with it.
pub(crate) fn better_of_two(
    ends: &[u64],
    load: impl Fn(usize) -> Load,
    random: u64,
) -> Option<usize> {
    let total = *ends.last()?;
    let at = |point: u64| ends.partition_point(|end| *end <= point);
    let first = at(part(mix(random), total));
    let begin = first.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    let weight = ends.get(first)?.saturating_sub(begin);
    let others = total.saturating_sub(weight);
    if others == 0 {
        return Some(first);
    }
    // Drawn among the others: the first is left out.
    let point = part(mix(!random), others);
    let second = at(if point >= begin { point + weight } else { point });
    let is_second_better = load(second).measure() < load(first).measure();
    Some(if is_second_better { second } else { first })
}

/// A number below `total`, or 0, from random bits.
fn part(random: u64, total: u64) -> u64 {
    u64::try_from((u128::from(random) * u128::from(total)) >> 64).unwrap_or(0)
}

/// A number below `count` from 32 random bits; `None` if there is none.
pub(crate) fn below(random: u64, count: usize) -> Option<usize> {
    let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
    usize::try_from((random.wrapping_mul(count)) >> 32).ok()
}
