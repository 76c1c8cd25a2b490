//! What a call of `lua/bans.lua` and its reply have.

use std::sync::Arc;

use redis::{FromRedisValue, Value};

use super::Unsent;
use super::about::About;
use crate::limit::ban::BanRule;
use crate::limit::charge::BucketId;
use crate::limit::double;

/// Source of `lua/bans.lua`.
pub const SOURCE: &str = include_str!("../../../lua/bans.lua");

/// Names of keys in Redis, after the prefix. The part in braces is their hash tag in a cluster.
pub const RECORDS: &str = "{bans}:records";
pub const CHANGES: &str = "{bans}:changes";
pub const ENDS: &str = "{bans}:ends";

/// The same of the refusals of a client, before the id of its bucket.
pub const REFUSALS: &str = "{bans}:refusals:";

/// Members of a change in a reply.
const MEMBERS: usize = 5;

/// Members before the changes.
const HEAD: usize = 5;

/// A change to send.
#[derive(Debug, Clone)]
pub struct Update {
    pub bucket: BucketId,
    pub about: Arc<About>,
    pub what: What,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Refusals by a rule with this setting.
    Refusals {
        /// How many.
        number: u32,
        rule: BanRule,
    },
    /// A ban that began while Redis could not be called, or that Redis may have lost.
    Restore {
        left_us: u64,
        /// Its number in a row.
        number: u32,
        max_us: u64,
    },
    /// A ban by an operator.
    Set { left_us: u64, max_us: u64 },
    /// The end of a ban by an operator.
    Lift,
}

/// A change that a reply has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub bucket: BucketId,
    /// Microseconds that are left of the ban; 0 or less: it has ended.
    pub left_us: i64,
    /// Its number in a row of bans.
    pub number: u32,
    /// Microseconds until it is forgotten.
    pub forgotten_in_us: u64,
    pub about: About,
}

/// What a caller knows of the changes in Redis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Epoch of the records; another one after they were lost.
    pub epoch: u64,
    /// Number of the last change.
    pub number: u64,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Position after these changes.
    pub position: Position,
    pub has_more: bool,
    /// Whether the records are not those that the caller's position is about.
    pub is_other: bool,
    pub changes: Vec<Changed>,
}

impl Update {
    /// The change, if it is to be sent again when it may not have arrived.
    pub(super) const fn unsent(&self) -> Option<Unsent> {
        match self.what {
            What::Refusals { .. } => None,
            What::Restore { .. } => Some(Unsent::Began),
            What::Set { .. } => Some(Unsent::Set),
            What::Lift => Some(Unsent::Lifted),
        }
    }

    /// Key of the refusals of its client, after the prefix.
    pub fn key(&self) -> String {
        format!("{REFUSALS}{}", id(self.bucket))
    }

    fn encode(&self, packed: &mut Vec<u8>) {
        let (operation, numbers) = match self.what {
            What::Refusals { number, rule } => {
                let BanRule { after, for_us, grow, max_us, .. } = rule;
                let numbers =
                    [number.into(), after.into(), rule.tenth_us(), for_us, grow.into(), max_us];
                (1, numbers)
            }
            What::Restore { left_us, number, max_us } => {
                (2, [left_us, number.into(), 0, 0, 0, max_us])
            }
            What::Set { left_us, max_us } => (3, [left_us, 0, 0, 0, 0, max_us]),
            What::Lift => (4, [0; 6]),
        };
        packed.push(operation);
        packed.extend_from_slice(id(self.bucket).as_bytes());
        for number in numbers {
            packed.extend_from_slice(&double(i64::try_from(number).unwrap_or(i64::MAX)));
        }
        let about = serde_json::to_vec(&*self.about).unwrap_or_default();
        packed.extend_from_slice(&u32::try_from(about.len()).unwrap_or_default().to_le_bytes());
        packed.extend_from_slice(&about);
    }
}

/// `ARGV[6]`.
pub fn encode(updates: &[Update]) -> Vec<u8> {
    let mut packed = Vec::new();
    for update in updates {
        update.encode(&mut packed);
    }
    packed
}

/// The id of a bucket in Redis and in the admin API: 32 hexadecimal digits.
pub fn id(bucket: BucketId) -> String {
    format!("{:032x}", bucket.0)
}

/// The bucket of an id; `None` if it is malformed.
pub fn bucket(id: &str) -> Option<BucketId> {
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| u128::from_str_radix(id, 16).ok().map(BucketId))?
}

impl Reply {
    /// Reads a reply; `None` if it is malformed. Records that this version cannot read are left
    /// out.
    pub fn read(reply: Value) -> Option<Self> {
        let values = Vec::<Value>::from_redis_value(reply).ok()?;
        let (head, changes) = values.split_at_checked(HEAD)?;
        if changes.len() % MEMBERS != 0 {
            return None;
        }
        let number = |at: usize| u64::from_redis_value(head.get(at)?.clone()).ok();
        Some(Self {
            position: Position { epoch: number(1)?, number: number(2)? },
            has_more: number(3)? == 1,
            is_other: number(4)? == 1,
            changes: changes.chunks_exact(MEMBERS).filter_map(change).collect(),
        })
    }
}

fn change(members: &[Value]) -> Option<Changed> {
    let [bucket, left_us, number, forgotten_in_us, about] = members else { return None };
    let read = |value: &Value| u64::from_redis_value(value.clone()).ok();
    let about = Vec::<u8>::from_redis_value(about.clone()).ok()?;
    Some(Changed {
        bucket: self::bucket(&String::from_redis_value(bucket.clone()).ok()?)?,
        left_us: i64::from_redis_value(left_us.clone()).ok()?,
        number: u32::try_from(read(number)?).ok()?,
        forgotten_in_us: read(forgotten_in_us)?,
        about: serde_json::from_slice(&about).ok()?,
    })
}
