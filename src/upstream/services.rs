//! Priorities and weights of the endpoints of a service, from its SRV records (RFC 2782). Pure.

use std::collections::{BTreeSet, HashMap};

use crate::net::lookup::Found;

/// The greatest weight of an endpoint.
const MAX_WEIGHT: u64 = u16::MAX as u64;

/// How many times the weight of a record with weight 1 is that of one with weight 0, which gets a
/// very small share beside others.
const ZERO: u64 = 100;

/// Priority and weight of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) priority: u8,
    /// Its share of the requests to the endpoints of its priority, at least 1.
    pub(super) weight: u16,
}

/// The shares of all addresses of a service, in their order. The records of the lowest priority
/// have the priority `first`, those of the next one a priority more, and so on. A record's weight
/// is divided among the addresses of its target. If all records of a priority have the weight 0,
/// they have the same share.
pub(super) fn shares(found: &[Found], first: u8) -> Vec<Share> {
    let priorities: BTreeSet<u16> = found.iter().map(|one| one.priority).collect();
    let mut shares = vec![Share { priority: first, weight: 1 }; found.len()];
    for (rank, priority) in priorities.into_iter().enumerate() {
        let rank = u8::try_from(rank).unwrap_or(u8::MAX);
        let same = || found.iter().enumerate().filter(move |(_, one)| one.priority == priority);
        let weights = weights(&same().map(|(_, one)| one).collect::<Vec<_>>());
        for ((index, _), weight) in same().zip(weights) {
            if let Some(share) = shares.get_mut(index) {
                *share = Share { priority: first.saturating_add(rank), weight };
            }
        }
    }
    shares
}

/// The weights of addresses with one priority.
fn weights(found: &[&Found]) -> Vec<u16> {
    let record = |one: &Found| (one.host.clone(), one.address.port(), one.weight);
    let mut counts: HashMap<_, u64> = HashMap::new();
    for one in found {
        *counts.entry(record(one)).or_default() += 1;
    }
    let has = |zero: bool| found.iter().any(|one| (one.weight == 0) == zero);
    let (zero, scale) = match (has(true), has(false)) {
        (true, true) => (1, ZERO),
        (true, false) => (1, 1),
        (false, _) => (0, 1),
    };
    let all = counts.values().copied().fold(1, lcm);
    let exact: Vec<u64> = found
        .iter()
        .map(|one| {
            let weight = if one.weight == 0 { zero } else { u64::from(one.weight) * scale };
            weight.saturating_mul(all) / counts.get(&record(one)).copied().unwrap_or(1).max(1)
        })
        .collect();
    let most = exact.iter().copied().max().unwrap_or(0).max(MAX_WEIGHT);
    let fitted = exact.iter().map(|weight| {
        let weight = u128::from(*weight) * u128::from(MAX_WEIGHT) / u128::from(most);
        u16::try_from(weight).unwrap_or(u16::MAX).max(1)
    });
    fitted.collect()
}

/// The least common multiple of two counts, or 5040 if that is greater.
fn lcm(a: u64, b: u64) -> u64 {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    (a / gcd(a, b)).saturating_mul(b).min(5040)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Target, priority, weight, and number of addresses.
    type Record<'a> = (&'a str, u16, u16, u8);

    /// Records, and the priority and weight of each of their addresses.
    type Case<'a> = (&'a [Record<'a>], &'a [(u8, u16)]);

    fn found(records: &[Record<'_>]) -> Vec<Found> {
        let each = records.iter().flat_map(|(host, priority, weight, addresses)| {
            (1..=*addresses).map(move |last| Found {
                address: ([10, 0, host.len().try_into().unwrap_or(0), last], 80).into(),
                host: (*host).into(),
                priority: *priority,
                weight: *weight,
            })
        });
        each.collect()
    }

    fn shown(records: &[Record<'_>]) -> Vec<(u8, u16)> {
        let shares = shares(&found(records), 0);
        shares.into_iter().map(|share| (share.priority, share.weight)).collect()
    }

    #[test]
    fn shares_follow_priorities_and_weights() {
        let table: [Case<'_>; 8] = [
            (
                &[("a", 10, 60, 1), ("bb", 10, 20, 1), ("ccc", 20, 5, 1)],
                &[(0, 60), (0, 20), (1, 5)],
            ),
            (&[("a", 65_535, 1, 1), ("bb", 0, 1, 1)], &[(1, 1), (0, 1)]),
            // Without a choice to make.
            (&[("a", 1, 0, 1), ("bb", 1, 0, 1)], &[(0, 1), (0, 1)]),
            // 0 beside others.
            (&[("a", 1, 0, 1), ("bb", 1, 3, 1)], &[(0, 1), (0, 300)]),
            (&[("a", 1, 0, 1), ("bb", 1, 65_535, 1)], &[(0, 1), (0, 65_535)]),
            // The addresses of a target share its weight.
            (&[("a", 1, 1, 2), ("bb", 1, 1, 1)], &[(0, 1), (0, 1), (0, 2)]),
            (&[("a", 1, 5, 2), ("bb", 1, 5, 2)], &[(0, 5), (0, 5), (0, 5), (0, 5)]),
            (&[], &[]),
        ];
        for (records, expected) in table {
            assert_eq!(shown(records), expected, "{records:?}");
        }
        let backup = shares(&found(&[("a", 1, 1, 1), ("bb", 2, 1, 1)]), 1);
        assert_eq!(backup.iter().map(|share| share.priority).collect::<Vec<_>>(), [1, 2]);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn share_of_a_target_is_that_of_its_record(
            records in prop::collection::vec((1_u16..1000, 1_u8..5), 1..5),
        ) {
            let names = ["a", "bb", "ccc", "dddd", "eeeee"];
            let records: Vec<_> = records.iter().zip(names).map(|((w, n), name)| (name, 1, *w, *n)).collect();
            let found = found(&records);
            let shares = shares(&found, 0);
            let all: f64 = shares.iter().map(|share| f64::from(share.weight)).sum();
            let wanted: f64 = records.iter().map(|record| f64::from(record.2)).sum();
            for (name, _, weight, _) in &records {
                let own = found.iter().zip(&shares).filter(|(one, _)| *one.host == **name);
                let own: f64 = own.map(|(_, share)| f64::from(share.weight)).sum();
                prop_assert!((own / all - f64::from(*weight) / wanted).abs() < 0.001);
            }
        }
    }
}
