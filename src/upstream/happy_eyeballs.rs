//! Which addresses of a server are connected to, and when, if it has IPv4 and IPv6 addresses:
//! Happy Eyeballs (RFC 8305). A network that drops the packets of one family then delays a
//! connection by the attempt delay, not by its time limit. Pure: times are microseconds of the
//! monotonic clock.

use std::net::SocketAddr;

use smallvec::SmallVec;

use crate::net::lookup::Family;

/// Time from the beginning of an attempt to that of the next one (RFC 8305, section 5).
pub(super) const ATTEMPT_DELAY_US: u64 = 250_000;

/// Maximum number of attempts for one connection.
const MAX_ATTEMPTS: usize = 4;

/// Addresses in the order of the attempts.
pub(super) type Addresses = SmallVec<[SocketAddr; MAX_ATTEMPTS]>;

/// The attempts for one connection.
#[derive(Debug)]
pub(super) struct Race {
    addresses: Addresses,
    /// Number of attempts that have begun.
    begun: usize,
    /// Number of those that have failed.
    failed: usize,
    /// When the next one begins.
    next_at: u64,
}

/// The addresses for a connection to `first`: that one, then one of the other family, and so on by
/// turns (RFC 8305, section 4), each once. Only `first` if there is no other family among `others`.
pub(super) fn order(first: SocketAddr, others: &[SocketAddr]) -> Addresses {
    let of = |is_same: bool| {
        let is_wanted = move |other: &SocketAddr| {
            *other != first && (Family::of(*other) == Family::of(first)) == is_same
        };
        others.iter().copied().filter(is_wanted)
    };
    let (mut same, mut different) = (of(true), of(false));
    let mut addresses = Addresses::from_slice(&[first]);
    while addresses.len() < MAX_ATTEMPTS {
        let next = match addresses.len() {
            1 => different.next(),
            2 => same.next().or_else(|| different.next()),
            _ => different.next().or_else(|| same.next()),
        };
        let Some(next) = next else { break };
        addresses.push(next);
    }
    addresses
}

impl Race {
    /// Attempts at these addresses, from `now` on.
    pub(super) fn new(addresses: Addresses, now: u64) -> Self {
        Self { addresses, begun: 0, failed: 0, next_at: now }
    }

    /// Begins the next attempt, if that is due at `now`.
    pub(super) fn begin(&mut self, now: u64) -> Option<SocketAddr> {
        let next = *self.addresses.get(self.begun).filter(|_| self.next_at <= now)?;
        self.begun += 1;
        self.next_at = now.saturating_add(ATTEMPT_DELAY_US);
        Some(next)
    }

    /// When the next attempt begins; `None`: there is no further one.
    pub(super) fn next_at(&self) -> Option<u64> {
        (self.begun < self.addresses.len()).then_some(self.next_at)
    }

    /// An attempt failed at `now`: the next one begins at once. Returns whether all have failed.
    pub(super) fn failed(&mut self, now: u64) -> bool {
        self.failed += 1;
        self.next_at = now;
        self.failed >= self.addresses.len()
    }

    /// The addresses whose attempts began before that of `winner`, which connected first.
    pub(super) fn lost_to(&self, winner: SocketAddr) -> &[SocketAddr] {
        let place = self.addresses.iter().position(|address| *address == winner);
        self.addresses.get(..place.unwrap_or(0)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| address(text)).collect()
    }

    #[test]
    fn families_take_turns() {
        let table: [(&str, &[&str], &[&str]); 5] = [
            (
                "[::1]:1",
                &["1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "[::3]:1"],
                &["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1"],
            ),
            ("1.0.0.1:1", &["1.0.0.1:1", "[::1]:1"], &["1.0.0.1:1", "[::1]:1"]),
            ("1.0.0.1:1", &["[::1]:1", "[::2]:1"], &["1.0.0.1:1", "[::1]:1", "[::2]:1"]),
            // Without another family, the request is sent again as the upstream says.
            ("1.0.0.1:1", &["1.0.0.2:1"], &["1.0.0.1:1"]),
            ("1.0.0.1:1", &[], &["1.0.0.1:1"]),
        ];
        for (first, others, expected) in table {
            let found = order(address(first), &addresses(others));
            assert_eq!(found.to_vec(), addresses(expected), "{first} {others:?}");
        }
    }

    #[test]
    fn next_attempt_begins_after_the_delay_or_a_failure() {
        let all = addresses(&["[::1]:1", "1.0.0.1:1", "[::2]:1"]);
        let mut race = Race::new(Addresses::from_slice(&all), 7);
        assert_eq!((race.begin(7), race.begin(7)), (Some(all[0]), None));
        let second = 7 + ATTEMPT_DELAY_US;
        assert_eq!((race.next_at(), race.begin(second - 1)), (Some(second), None));
        assert_eq!(race.begin(second), Some(all[1]));
        assert!(!race.failed(second + 1));
        assert_eq!((race.begin(second + 1), race.next_at()), (Some(all[2]), None));
        assert_eq!(race.lost_to(all[1]), &all[..1]);
        assert_eq!(race.lost_to(all[0]), &[]);
        assert!(!race.failed(second + 2) && race.failed(second + 3));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn each_address_is_tried_once_and_families_alternate_while_both_are_left(
            first: (bool, u8), others in prop::collection::vec(any::<(bool, u8)>(), 0..8),
        ) {
            let of = |(is_v4, last): (bool, u8)| if is_v4 {
                SocketAddr::from(([10, 0, 0, last], 1))
            } else {
                SocketAddr::from(([0, 0, 0, 0, 0, 0, 1, u16::from(last)], 1))
            };
            let first = of(first);
            let mut others: Vec<SocketAddr> = others.into_iter().map(of).collect();
            others.sort();
            others.dedup();
            let found = order(first, &others);
            prop_assert_eq!(found[0], first);
            let mut unique = found.to_vec();
            unique.sort();
            unique.dedup();
            prop_assert_eq!(unique.len(), found.len());
            let is_other = |one: &SocketAddr| Family::of(*one) != Family::of(first);
            if others.iter().any(is_other) {
                prop_assert!(is_other(&found[1]));
            } else {
                prop_assert_eq!(found.len(), 1);
            }
        }
    }
}
