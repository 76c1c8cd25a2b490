//! The endpoint with the fewest requests in flight for its weight.

use super::key::mix;

/// The inverse of a weight is a part of this number.
const SCALE: u64 = 1 << 40;

/// The inverse of a weight, which [`Load`] needs.
pub(crate) fn inverse(weight: u32) -> u64 {
    SCALE / u64::from(weight.max(1))
}

/// The load of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests in flight.
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

/// The position of the better one of two random endpoints of `count`.
pub(crate) fn better_of_two(
    count: usize,
    load: impl Fn(usize) -> Load,
    random: u64,
) -> Option<usize> {
    let first = below(random >> 32, count)?;
    let Some(second) = below(random & u64::from(u32::MAX), count - 1) else { return Some(first) };
    let second = if second >= first { second + 1 } else { second };
    let is_second_better = load(second).measure() < load(first).measure();
    Some(if is_second_better { second } else { first })
}

/// A number below `count` from 32 random bits; `None` if there is none.
pub(crate) fn below(random: u64, count: usize) -> Option<usize> {
    let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
    usize::try_from((random.wrapping_mul(count)) >> 32).ok()
}
