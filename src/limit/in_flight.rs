//! How many requests may be in flight at an upstream, and which of them are refused first. Pure.
//!
//! [`threshold`] decides who is admitted at a limit. [`adaptive`] finds the limit itself.
//!
//! # Priorities without a queue
//!
//! Each priority below the highest leaves a reserve of the limit to those above it: it is admitted
//! only while fewer requests than its threshold are in flight. During an overload, the requests in
//! flight stay above the thresholds of low priorities, so each unit that becomes free goes to the
//! highest priority that asks for it. In telephone networks, this is trunk reservation. The reserve
//! is the square root of the limit: the number of requests of a Poisson process in flight varies by
//! that much, so a higher priority seldom finds it used up, and little of the limit is idle if only
//! low priorities send requests.

pub mod adaptive;

#[cfg(test)]
mod simulation;

/// Number of requests in flight below which one of a priority is admitted. `rank` is the number of
/// priorities above its own, of `ranks` that are configured.
///
/// At least half of `limit`, and for the highest priority all of it. If `limit` is at least 2, it
/// is less for every other priority, however many there are: neighbours then share a threshold.
pub fn threshold(limit: u32, rank: u32, ranks: u32) -> u32 {
    if rank == 0 {
        return limit;
    }
    let (rank, lower) = (u64::from(rank), u64::from(ranks.saturating_sub(1).max(1)));
    let most = (u64::from(limit / 2) * rank).div_ceil(lower);
    let reserve = (u64::from(root_up(limit)) * rank).min(most);
    // At most half of `limit`, unless `rank` is out of range.
    limit.saturating_sub(u32::try_from(reserve).unwrap_or(limit))
}

/// The square root, rounded up.
const fn root_up(number: u32) -> u32 {
    let root = number.isqrt();
    if root * root == number { root } else { root + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_priority_below_the_highest_leaves_the_square_root_of_the_limit() {
        let table = [
            (100, 0, 1, 100),
            (100, 0, 3, 100),
            (100, 1, 3, 90),
            (100, 2, 3, 80),
            (200, 1, 2, 185),
            (10, 1, 2, 6),
            (2, 1, 2, 1),
            (20, 10, 11, 10),
            (20, 11, 12, 10),
            (16, 1, 20, 15),
            (16, 19, 20, 8),
            (3, 1, 3, 2),
            (3, 2, 3, 2),
            (1, 1, 2, 1),
        ];
        for (limit, rank, ranks, expected) in table {
            assert_eq!(threshold(limit, rank, ranks), expected, "{limit} {rank} of {ranks}");
        }
    }

    #[test]
    fn highest_priority_has_a_reserve_over_any_number_of_others() {
        for limit in [2, 3, 5, 16, 20, 1_000, 10_000_000] {
            for ranks in [2, 3, 11, 12, 20, 1_000, 65_536] {
                let thresholds = || (0..ranks).map(|rank| threshold(limit, rank, ranks));
                assert!(thresholds().is_sorted_by(|a, b| a >= b), "{limit} {ranks}");
                assert!(thresholds().skip(1).all(|one| one < limit), "{limit} {ranks}");
                let root = limit.isqrt();
                let lowest = threshold(limit, ranks - 1, ranks);
                assert!(limit - lowest >= root.min(limit / 2), "{limit} {ranks}: {lowest}");
            }
        }
    }

    #[test]
    fn lowest_priority_keeps_at_least_half() {
        for limit in [1, 2, 3, 5, 10, 1_000, 10_000_000] {
            for ranks in [1, 2, 3, 10, 1_000] {
                let lowest = threshold(limit, ranks - 1, ranks);
                assert!(lowest >= limit.div_ceil(2), "{limit} {ranks}: {lowest}");
            }
        }
    }
}
