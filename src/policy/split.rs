//! A route's upstreams with weights, and which of them gets a request. Pure: no clock, and no
//! random numbers.
//!
//! By request, a request's turn selects the upstream: multiples of the golden ratio are spread
//! evenly at every length, so that each upstream gets its share of any few requests, not only of
//! many. By client, each upstream draws a number from the client and its own name, and the lowest
//! for its weight wins (weighted rendezvous hashing): raising a weight moves clients only to that
//! upstream, and no others.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::base::hash::{GOLDEN, mix};
use crate::client::Client;
use crate::client::identifier::Identifier;
pub use crate::config::words::SplitBy;

/// Fractional bits of a logarithm.
const FRACTION_BITS: u32 = 32;

/// Where a route forwards its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere: the gateway answers itself, as [`Route::handling`](super::Route::handling) says.
    Gateway,
    /// To the upstream with this index.
    One(u32),
    /// To several upstreams, by weight.
    Split(Arc<Split>),
}

/// The upstreams of a route, by weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Position among all splits of the policy.
    pub number: u32,
    /// What selects the upstream.
    pub by: SplitBy,
    /// The upstreams in the order of the file, also those of weight 0.
    shares: Vec<Share>,
    /// Sum of the weights.
    total: u64,
}

/// An upstream of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Index of the upstream.
    pub upstream: u32,
    /// Its part of the sum of the weights.
    pub weight: u32,
    /// Hash of its name.
    salt: u64,
}

impl Share {
    /// The upstream with that index and name.
    pub fn new(upstream: u32, name: &str, weight: u32) -> Self {
        Self { upstream, weight, salt: hash(name.as_bytes()) }
    }
}

impl Destination {
    /// The split, if there are several upstreams.
    pub fn split(&self) -> Option<&Split> {
        match self {
            Self::Gateway | Self::One(_) => None,
            Self::Split(split) => Some(split),
        }
    }
}

impl Split {
    /// A split; `None` if no weight is above 0.
    pub fn new(number: u32, by: SplitBy, shares: Vec<Share>) -> Option<Self> {
        let total = shares.iter().map(|share| u64::from(share.weight)).sum();
        (total > 0).then_some(Self { number, by, shares, total })
    }

    /// The upstreams in the order of the file.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Sum of the weights, above 0.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The upstream of the request that has this turn.
    pub fn of_turn(&self, turn: u64) -> u32 {
        let place = u128::from(turn.wrapping_mul(GOLDEN)) * u128::from(self.total);
        let mut left = u64::try_from(place >> 64).unwrap_or(0);
        for share in &self.shares {
            match left.checked_sub(u64::from(share.weight)) {
                Some(rest) => left = rest,
                None => return share.upstream,
            }
        }
        0
    }

    /// The upstream of the client with this hash.
    pub fn of_hash(&self, client: u64) -> u32 {
        let drawn = self.shares.iter().filter(|share| share.weight > 0).map(|share| {
            let distance = distance(mix(client ^ share.salt));
            (u128::from(distance), u128::from(share.weight), share.upstream)
        });
        // The lowest distance divided by weight, without a division.
        let lowest =
            drawn.reduce(|best, next| if next.0 * best.1 < best.0 * next.1 { next } else { best });
        lowest.map_or(0, |(_, _, upstream)| upstream)
    }

    /// The upstream of a client, whose IPv6 address is truncated to `ipv6_prefix` bits; `None` if
    /// the upstream depends on the request's turn.
    pub fn of_client(&self, client: &Client, ipv6_prefix: u8) -> Option<u32> {
        match self.by {
            SplitBy::Request => None,
            SplitBy::Client => Some(self.of_hash(client_hash(client.identifier(ipv6_prefix)))),
        }
    }
}

/// Hash of a client, the same in every gateway.
fn client_hash(client: Identifier<'_>) -> u64 {
    client.tagged(|tag, value| {
        first_bytes(&Sha256::new().chain_update([tag]).chain_update(value).finalize())
    })
}

fn hash(bytes: &[u8]) -> u64 {
    first_bytes(&Sha256::digest(bytes))
}

fn first_bytes(digest: &[u8]) -> u64 {
    digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

/// `-log2(number / 2^64)` in units of 2^-32: distributed exponentially if the number is uniform. In
/// integers, so that all gateways compute the same.
fn distance(number: u64) -> u64 {
    let number = number.max(1);
    let shift = number.leading_zeros();
    // From 1 up to 2, with 63 fractional bits.
    let mut mantissa = number << shift;
    let mut logarithm = u64::from(63 - shift);
    for _ in 0..FRACTION_BITS {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let is_two = square >> 64 != 0;
        mantissa = u64::try_from(if is_two { square >> 1 } else { square }).unwrap_or(u64::MAX);
        logarithm = (logarithm << 1) | u64::from(is_two);
    }
    (64 << FRACTION_BITS) - logarithm
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client::ClientKey;
    use crate::load::from_text;

    fn split(by: SplitBy, weights: &[u32]) -> Split {
        let shares = (0..)
            .zip(weights)
            .map(|(index, weight)| Share::new(index, &format!("upstream-{index}"), *weight));
        Split::new(0, by, shares.collect()).unwrap()
    }

    fn counts(upstreams: usize, chosen: impl Iterator<Item = u32>) -> Vec<u64> {
        let mut counts = vec![0; upstreams];
        chosen.for_each(|upstream| counts[upstream as usize] += 1);
        counts
    }

    #[test]
    #[allow(clippy::cast_precision_loss, reason = "the bound of the error is above it")]
    fn distance_is_the_negative_logarithm() {
        for (number, expected) in [(1 << 63, 1.0), (1 << 60, 4.0), (1, 64.0), (u64::MAX, 0.0)] {
            let distance = distance(number) as f64 / 2_f64.powi(32);
            assert!((distance - expected).abs() < 1e-9, "{number}: {distance}");
        }
        for number in (1..1000_u64).map(|number| number.wrapping_mul(GOLDEN)) {
            let expected = 64.0 - (number as f64).log2();
            let distance = distance(number) as f64 / 2_f64.powi(32);
            assert!((distance - expected).abs() < 1e-8, "{number}: {distance}");
        }
    }

    #[test]
    fn weight_of_0_gets_nothing() {
        let split = split(SplitBy::Request, &[0, 7, 0]);
        assert!((0..1000).all(|turn| split.of_turn(turn) == 1));
        assert!((0..1000).all(|client| split.of_hash(mix(client)) == 1));
        assert!(Split::new(0, SplitBy::Request, vec![Share::new(0, "a", 0)]).is_none());
    }

    /// The promise is 2 % of all requests; the spread is far closer.
    #[test]
    fn ten_thousand_turns_are_spread_by_weight() {
        for weights in [&[95, 5][..], &[1, 1], &[999, 1], &[1, 1000], &[50, 30, 20], &[1; 8]] {
            let split = split(SplitBy::Request, weights);
            for begin in [0, 12_345, u64::MAX - 5_000] {
                let turns = (0..10_000).map(|turn| split.of_turn(begin.wrapping_add(turn)));
                let counts = counts(weights.len(), turns);
                for (count, weight) in counts.iter().zip(weights) {
                    let expected = 10_000 * u64::from(*weight) / split.total();
                    assert!(count.abs_diff(expected) <= 10, "{weights:?} from {begin}: {counts:?}");
                }
            }
        }
    }

    #[test]
    fn few_turns_are_spread_too() {
        let split = split(SplitBy::Request, &[90, 10]);
        for begin in 0..1000 {
            let canary = (begin..begin + 50).filter(|turn| split.of_turn(*turn) == 1).count();
            assert!((3..=7).contains(&canary), "{canary} of 50 from {begin}");
        }
    }

    /// A client stays at its upstream when gateways are replaced by those of another version.
    #[test]
    fn hash_and_share_of_each_kind_of_client_are_fixed() {
        let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let policy = from_text(
            "gateway.toml",
            &format!(
                "[upstreams.api]\nservers = ['demo']\n[routes.all]\n[keys.acme]\nsha256 = '{digest}'\n"
            ),
        )
        .unwrap();
        let client = |key: &ClientKey, ip: Option<&str>| {
            let ip = ip.map(|ip| ip.parse().unwrap());
            Client { ip, ..Client::new(&policy.clients, key.clone()) }
        };
        let split = split(SplitBy::Client, &[50, 30, 20]);
        let known = ClientKey::Known(Arc::clone(policy.keys.named("acme").unwrap()));
        let (unknown, missing) = (ClientKey::Unknown([1; 32]), ClientKey::Missing);
        for (client, hash, upstream) in [
            (client(&known, Some("192.0.2.1")), 0x0670_c062_8289_6daa, 2),
            (client(&known, None), 0x0670_c062_8289_6daa, 2),
            (client(&unknown, Some("192.0.2.1")), 0x9037_d905_0b4d_a0bd, 0),
            (client(&missing, Some("192.0.2.1")), 0xa9ce_92a6_19b4_b088, 1),
            (client(&missing, Some("2001:db8::7")), 0xc576_302a_e9c8_c27c, 0),
            (client(&missing, None), 0xacac_86c0_e609_ca90, 0),
        ] {
            let found = (client_hash(client.identifier(64)), split.of_client(&client, 64));
            assert_eq!(found, (hash, Some(upstream)), "{client:?}");
        }
    }

    #[test]
    fn clients_are_spread_by_weight() {
        for weights in [&[95, 5][..], &[1, 1], &[50, 30, 20]] {
            let split = split(SplitBy::Client, weights);
            let clients = (0..100_000_u64).map(|client| split.of_hash(hash(&client.to_be_bytes())));
            for (count, weight) in counts(weights.len(), clients).iter().zip(weights) {
                let expected = 100_000 * u64::from(*weight) / split.total();
                assert!(count.abs_diff(expected) < 600, "{weights:?}: {count} of {expected}");
            }
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn raising_a_weight_moves_clients_only_to_that_upstream(
            weights in prop::collection::vec(0..=1000_u32, 1..6),
            raised in any::<prop::sample::Index>(),
            by in 1..500_u32,
            clients in prop::collection::vec(any::<u64>(), 200),
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let raised = raised.index(weights.len());
            let mut after = weights.clone();
            after[raised] += by;
            let (before, after) = (split(SplitBy::Client, &weights), split(SplitBy::Client, &after));
            for client in clients {
                let (from, to) = (before.of_hash(client), after.of_hash(client));
                prop_assert!(from == to || to as usize == raised, "{from} to {to}");
            }
        }

        #[test]
        fn every_upstream_that_is_chosen_has_a_weight(
            weights in prop::collection::vec(0..=3_u32, 1..6),
            number in any::<u64>(),
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let split = split(SplitBy::Client, &weights);
            prop_assert!(weights[split.of_turn(number) as usize] > 0);
            prop_assert!(weights[split.of_hash(number) as usize] > 0);
        }
    }
}
