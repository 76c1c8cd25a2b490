//! Keys of buckets, and the hash slots that they are in.

use std::fmt::Write as _;

use super::cluster::slots::{SLOTS, slot_of_tag};
use super::script::StoredRule;
use crate::limit::charge::BucketId;

/// Maximum number of lanes.
pub const MAX_LANES: u16 = 1_024;

/// Names the keys of buckets.
#[derive(Debug, Clone)]
pub struct KeySpace {
    prefix: String,
    lanes: Option<Lanes>,
}

/// Names keys, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    prefix: &'a str,
    lanes: Option<&'a Lanes>,
}

/// Hash tags that many clients share, so that the checks of these clients can be sent in one call to a Redis
/// Cluster. The slots of the tags are spread evenly over all slots.
#[derive(Debug, Clone)]
struct Lanes {
    /// Tag and slot of each lane; never empty.
    lanes: Vec<(String, u16)>,
}

impl KeySpace {
    /// Keys that start with `prefix`. With `lanes`, as many hash tags are used; otherwise those of the clients.
    pub fn new(prefix: &str, lanes: Option<u16>) -> Self {
        Self { prefix: prefix.to_owned(), lanes: lanes.filter(|lanes| *lanes > 0).map(Lanes::new) }
    }

    /// Borrows it.
    pub fn keys(&self) -> Keys<'_> {
        Keys { prefix: &self.prefix, lanes: self.lanes.as_ref() }
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
        Self { prefix, lanes: None }
    }
}

impl<'a> From<&'a String> for Keys<'a> {
    fn from(prefix: &'a String) -> Self {
        Self { prefix, lanes: None }
    }
}

impl Keys<'_> {
    /// Key of a bucket. Contains no text from a client. Buckets with the same client part share a hash tag.
    pub fn bucket(self, bucket: BucketId, rule: &StoredRule) -> String {
        let part = bucket.0 ^ rule.salt;
        let mut key = String::with_capacity(self.prefix.len() + 48 + rule.name.len());
        let Self { prefix, lanes } = self;
        let _ = match lanes {
            None => write!(key, "{prefix}{{{part:032x}}}:{}", rule.name),
            Some(lanes) => {
                write!(key, "{prefix}{part:032x}{{{}}}:{}", lanes.of(part).0, rule.name)
            }
        };
        key
    }

    /// Slot of a bucket's key.
    pub fn slot(self, bucket: BucketId, rule: &StoredRule) -> u16 {
        let part = bucket.0 ^ rule.salt;
        match self.lanes {
            None => slot_of_tag(&hex(part)),
            Some(lanes) => lanes.of(part).1,
        }
    }
}

impl Lanes {
    fn new(number: u16) -> Self {
        let number = u32::from(number.clamp(1, MAX_LANES));
        let lane = |lane: u32| {
            let edge = |lane: u32| lane * u32::from(SLOTS) / number;
            let wanted = edge(lane)..edge(lane + 1);
            let tags = (0_u32..).map(|try_| format!("{lane:x}.{try_:x}"));
            let mut tags = tags.map(|tag| (slot_of_tag(tag.as_bytes()), tag));
            // Of as many tags as there are lanes, one is expected in the range, so this ends soon.
            let found = tags.find(|(slot, _)| wanted.contains(&u32::from(*slot)));
            found.map_or_else(|| (format!("{lane:x}"), 0), |(slot, tag)| (tag, slot))
        };
        Self { lanes: (0..number).map(lane).collect() }
    }

    #[allow(clippy::cast_possible_truncation, reason = "less than the number of lanes")]
    fn of(&self, part: u128) -> &(String, u16) {
        &self.lanes[(part % self.lanes.len() as u128) as usize]
    }
}

/// The 32 hexadecimal digits of a client part.
fn hex(part: u128) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(part.to_be_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::OnFailure;
    use crate::store::redis::cluster::slots::slot_of_key;

    #[test]
    fn slot_of_a_bucket_is_that_of_its_key() {
        let rule = StoredRule {
            name: Arc::from("r"),
            salt: 5,
            on_failure: OnFailure::Local,
            lease: crate::policy::Lease::Off,
        };
        for lanes in [None, Some(1), Some(3), Some(64), Some(1_024)] {
            let space = KeySpace::new("t:", lanes);
            for id in 0..500_u128 {
                let bucket = BucketId(id.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
                let key = space.keys().bucket(bucket, &rule);
                assert_eq!(space.keys().slot(bucket, &rule), slot_of_key(key.as_bytes()), "{key}");
            }
        }
    }

    #[test]
    fn lanes_are_spread_evenly_over_the_slots() {
        for number in [1, 2, 3, 7, 64, 1_024] {
            let lanes = Lanes::new(number).lanes;
            assert_eq!(lanes.len(), usize::from(number));
            for (lane, (tag, slot)) in (0_u32..).zip(lanes) {
                assert_eq!(slot, slot_of_tag(tag.as_bytes()));
                let first = lane * 16_384 / u32::from(number);
                let end = (lane + 1) * 16_384 / u32::from(number);
                assert!((first..end).contains(&u32::from(slot)), "{number} {lane} {tag} {slot}");
            }
        }
    }
}
