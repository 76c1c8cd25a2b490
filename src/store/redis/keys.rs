//! Keys of buckets, and the hash slots that they are in.

use std::fmt::Write as _;

use super::cluster::slots::{SLOTS, slot_of_tag};
use crate::limit::charge::BucketId;
use crate::policy::redis::{Colocate, DEFAULT_PREFIX, Redis};
use crate::store::rule::StoredRule;

/// Steps in which the number of a bucket of probes is found in all likelihood.
const MAX_PROBE_STEPS: u64 = 200_000;

/// Number of hexadecimal digits of a client part.
const DIGITS: usize = 32;

/// Number of its first digits that are those of the client alone, if its rule is colocated.
const CLIENT_DIGITS: usize = 8;

/// Number of bits of these digits.
const CLIENT_BITS: u32 = 32;

/// Names the keys of buckets.
#[derive(Debug, Clone)]
pub struct KeySpace {
    prefix: String,
    tags: Tags,
}

/// Names keys, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    prefix: &'a str,
    tags: &'a Tags,
}

/// Hash tags of keys, which choose the slot in a Redis Cluster.
#[derive(Debug, Clone)]
enum Tags {
    /// The client part of the bucket's ID.
    Whole,
    /// The highest 32 bits of it: those of the client or tenant, if its rule is colocated.
    Client,
    /// One of a few, which many clients share.
    Lanes(Lanes, LaneBits),
}

/// Bits of the client part that choose a lane.
#[derive(Debug, Clone, Copy)]
enum LaneBits {
    /// All.
    Whole,
    /// The highest 32: those of the client, if its rule is colocated.
    Client,
}

/// Hash tags that many clients share, so that the checks of these clients can be sent in one call
/// to a Redis Cluster. The slots of the tags are spread evenly over all slots.
#[derive(Debug, Clone)]
struct Lanes {
    /// Never empty.
    lanes: Vec<Lane>,
}

#[derive(Debug, Clone)]
struct Lane {
    tag: String,
    /// Slot of the tag.
    slot: u16,
}

impl KeySpace {
    /// Keys that start with `prefix`. With `lanes`, as many hash tags are used; otherwise those of
    /// the clients. `colocate` says what of a client they are, or what chooses one of them.
    pub fn new(prefix: &str, lanes: Option<u16>, colocate: Colocate) -> Self {
        let lanes = lanes.filter(|lanes| *lanes > 0).map(Lanes::new);
        let tags = match (lanes, colocate) {
            (None, Colocate::Off) => Tags::Whole,
            (None, Colocate::Key | Colocate::Tenant) => Tags::Client,
            (Some(lanes), colocate) => Tags::Lanes(lanes, LaneBits::of(colocate)),
        };
        Self { prefix: prefix.to_owned(), tags }
    }

    /// Borrows it.
    pub fn keys(&self) -> Keys<'_> {
        Keys { prefix: &self.prefix, tags: &self.tags }
    }

    /// Key of something other than a bucket.
    pub fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Prefix of every key.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl<'a> From<&'a str> for Keys<'a> {
    /// Keys with a prefix, and with the hash tags of the clients.
    fn from(prefix: &'a str) -> Self {
        Self { prefix, tags: &Tags::Whole }
    }
}

impl<'a> From<&'a String> for Keys<'a> {
    fn from(prefix: &'a String) -> Self {
        Self { prefix, tags: &Tags::Whole }
    }
}

impl Keys<'_> {
    /// Key of a bucket. Contains no text from a client. Buckets with the same client part share a
    /// hash tag.
    pub fn bucket(self, bucket: BucketId, rule: &StoredRule) -> String {
        let part = bucket.0 ^ rule.salt;
        match self.tags {
            Tags::Whole => written(self.prefix, part, Tag::Digits(DIGITS), rule),
            Tags::Client => written(self.prefix, part, Tag::Digits(CLIENT_DIGITS), rule),
            Tags::Lanes(lanes, bits) => {
                written(self.prefix, part, Tag::Lane(&lanes.at(bits.of_part(part)).tag), rule)
            }
        }
    }

    /// Slot of a bucket's key.
    pub fn slot(self, bucket: BucketId, rule: &StoredRule) -> u16 {
        let part = bucket.0 ^ rule.salt;
        match self.tags {
            Tags::Whole => slot_of_tag(&hex(part)),
            Tags::Client => slot_of_tag(&hex(part)[..CLIENT_DIGITS]),
            Tags::Lanes(lanes, bits) => lanes.at(bits.of_part(part)).slot,
        }
    }
}

/// Key of a bucket with these settings, as [`KeySpace`] names it, without a list of all lanes.
/// Without settings, the default ones.
pub fn key_with(redis: Option<&Redis>, bucket: BucketId, rule: &StoredRule) -> String {
    let Some(Redis { prefix, lanes, colocate, .. }) = redis else {
        return Keys::from(DEFAULT_PREFIX).bucket(bucket, rule);
    };
    let Some(number) = lanes.filter(|number| *number > 0) else {
        return KeySpace::new(prefix, None, *colocate).keys().bucket(bucket, rule);
    };
    let part = bucket.0 ^ rule.salt;
    let at = index(LaneBits::of(*colocate).of_part(part), usize::from(number));
    let Lane { tag, .. } = lane(u32::try_from(at).unwrap_or(0), u32::from(number));
    written(prefix, part, Tag::Lane(&tag), rule)
}

/// A hash tag in a key.
#[derive(Clone, Copy)]
enum Tag<'a> {
    /// The first digits of the client part, as many as this number.
    Digits(usize),
    /// A tag beside them.
    Lane(&'a str),
}

fn written(prefix: &str, part: u128, tag: Tag<'_>, rule: &StoredRule) -> String {
    let mut key = String::with_capacity(prefix.len() + 48 + rule.name.len());
    let digits = hex(part);
    let (first, rest) = digits.split_at(match tag {
        Tag::Digits(number) => number,
        Tag::Lane(_) => DIGITS,
    });
    let text = |digits| std::str::from_utf8(digits).unwrap_or_default();
    let (first, rest, name) = (text(first), text(rest), &rule.name);
    let _ = match tag {
        Tag::Digits(_) => write!(key, "{prefix}{{{first}}}{rest}:{name}"),
        Tag::Lane(tag) => write!(key, "{prefix}{first}{{{tag}}}:{name}"),
    };
    key
}

impl LaneBits {
    fn of(colocate: Colocate) -> Self {
        match colocate {
            Colocate::Off => Self::Whole,
            Colocate::Key | Colocate::Tenant => Self::Client,
        }
    }

    fn of_part(self, part: u128) -> u128 {
        match self {
            Self::Whole => part,
            Self::Client => part >> (u128::BITS - CLIENT_BITS),
        }
    }
}

impl Lanes {
    fn new(number: u16) -> Self {
        let number = u32::from(number.max(1));
        Self { lanes: (0..number).map(|at| lane(at, number)).collect() }
    }

    fn at(&self, bits: u128) -> &Lane {
        &self.lanes[index(bits, self.lanes.len())]
    }
}

/// Index of the lane that these bits of a client part choose.
#[allow(clippy::cast_possible_truncation, reason = "less than the number of lanes")]
fn index(bits: u128, lanes: usize) -> usize {
    (bits % lanes as u128) as usize
}

/// One of `number` lanes, by its index.
fn lane(at: u32, number: u32) -> Lane {
    let edge = |at: u32| at * u32::from(SLOTS) / number;
    let wanted = edge(at)..edge(at + 1);
    let tags = (0_u32..).map(|try_| format!("{at:x}.{try_:x}"));
    let mut lanes = tags.map(|tag| Lane { slot: slot_of_tag(tag.as_bytes()), tag });
    // Of as many tags as there are lanes, one is expected in the range, so this ends soon.
    let found = lanes.find(|lane| wanted.contains(&u32::from(lane.slot)));
    found.unwrap_or_else(|| Lane { tag: format!("{at:x}"), slot: 0 })
}

/// A number from `first` on whose bucket of probes is in a slot that `has` accepts; `None` if it
/// accepts none. If it accepts one, the number is found after 16,384 steps on average.
pub fn probe_number(first: u64, has: impl Fn(u16) -> bool) -> Option<u64> {
    // Many steps would find nothing, in a task that others wait for.
    if !(0..SLOTS).any(&has) {
        return None;
    }
    let mut numbers = (0..MAX_PROBE_STEPS).map(|step| first.wrapping_add(step));
    numbers.find(|number| has(slot_of_tag(&hex(u128::from(*number)))))
}

/// The 32 hexadecimal digits of a client part.
fn hex(part: u128) -> [u8; DIGITS] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; DIGITS];
    for (pair, byte) in text.chunks_exact_mut(2).zip(part.to_be_bytes()) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::limit::breaker;
    use crate::policy::OnFailure;
    use crate::policy::redis::{Address, Login, Ready, StartWithout};
    use crate::store::redis::cluster::slots::slot_of_key;

    fn rule(salt: u128) -> StoredRule {
        let (name, on_failure) = (Arc::from("r"), OnFailure::Local);
        StoredRule {
            name,
            salt,
            on_failure,
            lease: crate::policy::Lease::Off,
            is_leaky: false,
            ban: None,
        }
    }

    /// A bucket of a rule, by a number from which its client part is mixed.
    fn bucket(number: u128, rule: &StoredRule) -> BucketId {
        let part = number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        BucketId(part ^ rule.salt)
    }

    fn redis(lanes: Option<u16>, colocate: Colocate) -> Redis {
        Redis {
            address: Address::Cluster(Vec::new()),
            tls: None,
            login: Login::default(),
            database: 0,
            timeout: Duration::from_millis(10),
            on_failure: OnFailure::Local,
            prefix: "t:".to_owned(),
            lanes,
            colocate,
            repair: true,
            ready: Ready::default(),
            start_without: StartWithout::default(),
            breaker: breaker::Settings::default(),
        }
    }

    const LANES: [Option<u16>; 5] = [None, Some(1), Some(3), Some(64), Some(1_024)];

    #[test]
    fn slot_of_a_bucket_is_that_of_its_key() {
        let rule = rule(5 << 100 | 5);
        for (lanes, colocate) in LANES
            .into_iter()
            .flat_map(|lanes| [Colocate::Off, Colocate::Key].map(|colocate| (lanes, colocate)))
        {
            let space = KeySpace::new("t:", lanes, colocate);
            let redis = redis(lanes, colocate);
            for number in 0..500 {
                let bucket = bucket(number, &rule);
                let key = space.keys().bucket(bucket, &rule);
                assert_eq!(space.keys().slot(bucket, &rule), slot_of_key(key.as_bytes()), "{key}");
                if number < 5 {
                    assert_eq!(key_with(Some(&redis), bucket, &rule), key);
                }
            }
        }
    }

    #[test]
    fn keys_show_the_client_part_and_its_hash_tag() {
        let (rule, bucket) = (rule(1), BucketId(0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF1 ^ 1));
        let key =
            |lanes, colocate| KeySpace::new("t:", lanes, colocate).keys().bucket(bucket, &rule);
        assert_eq!(key(None, Colocate::Off), "t:{123456789abcdef0123456789abcdef1}:r");
        assert_eq!(key(None, Colocate::Key), "t:{12345678}9abcdef0123456789abcdef1:r");
        assert_eq!(key(Some(1), Colocate::Off), "t:123456789abcdef0123456789abcdef1{0.0}:r");
        assert_eq!(key_with(None, bucket, &rule), "tollgate:{123456789abcdef0123456789abcdef1}:r");
    }

    #[test]
    fn colocated_buckets_of_a_client_are_in_one_slot() {
        for lanes in LANES {
            let space = KeySpace::new("t:", lanes, Colocate::Key);
            let mut slots = std::collections::HashSet::new();
            for client in 0..2_000_u128 {
                let client = client.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF;
                let slot_in = |number: u128| {
                    let rule = rule(number.wrapping_mul(0xD6E8_FEB8_6659_FD93_A5A5 << 40));
                    let low = bucket(number, &rule).0 ^ rule.salt;
                    let part = low & (u128::MAX >> 32) | client << 96;
                    space.keys().slot(BucketId(part ^ rule.salt), &rule)
                };
                assert!((1..20).all(|number| slot_in(number) == slot_in(0)), "{client}");
                slots.insert(slot_in(0));
            }
            let most = lanes.map_or(16_384, usize::from);
            assert!(slots.len() >= most.min(1_500) * 8 / 10, "{} of {most} slots", slots.len());
        }
    }

    #[test]
    fn bucket_of_probes_is_in_a_slot_of_its_master() {
        let number = probe_number(7, |slot| slot == 5_463).unwrap();
        let key = KeySpace::new("t:", None, Colocate::Off)
            .keys()
            .bucket(BucketId(u128::from(number)), &rule(0));
        assert_eq!(slot_of_key(key.as_bytes()), 5_463, "{key}");
        assert_eq!(probe_number(7, |_| false), None);
    }

    #[test]
    fn lanes_are_spread_evenly_over_the_slots() {
        for number in [1, 2, 3, 7, 64, 1_024] {
            let lanes = Lanes::new(number).lanes;
            assert_eq!(lanes.len(), usize::from(number));
            for (lane, Lane { tag, slot }) in (0_u32..).zip(lanes) {
                assert_eq!(slot, slot_of_tag(tag.as_bytes()));
                let first = lane * 16_384 / u32::from(number);
                let end = (lane + 1) * 16_384 / u32::from(number);
                assert!((first..end).contains(&u32::from(slot)), "{number} {lane} {tag} {slot}");
            }
        }
    }
}
