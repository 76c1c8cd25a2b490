//! Arguments and replies of `lua/take.lua`, the only script that reads or writes buckets.
//!
//! Checks with the same charges are one group: the script decides on any number of them at once,
//! so a hot key costs Redis as much as a single request. Every order of the checks in a batch is
//! one that could have been, since all of them wait at the same instant.

mod ids;
mod reply;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use crate::limit::adjust::Adjustment;
use crate::limit::charge::{BucketId, Charge, Charges, Mode};
use crate::limit::{Limit, double};
use crate::policy::{MAX_RULES_PER_ROUTE, OnFailure, Rule};
use ids::IdState;
pub use reply::{BadReply, Reply, read_adjust, read_peek};

/// The script.
pub const SOURCE: &str = include_str!("../../../lua/take.lua");

/// The name that Redis knows the script by.
pub static SHA: LazyLock<String> =
    LazyLock::new(|| redis::Script::new(SOURCE).get_hash().to_string());

/// The most checks in one call. Beyond that a call takes Redis longer than it saves.
pub const MAX_CHECKS: usize = 128;

/// The most buckets in one call: as many as a 16-bit number can name would be too many for Redis
/// to work through within anybody's budget.
const MAX_BUCKETS: usize = 1024;

/// The most charges of one check: a call has 8 bits for their number.
const MAX_CHARGES: usize = u8::MAX as usize;

const _: () = assert!(MAX_RULES_PER_ROUTE <= MAX_CHARGES);
const _: () = assert!(MAX_CHARGES <= MAX_BUCKETS);
const _: () = assert!(MAX_BUCKETS < u16::MAX as usize);
const _: () = assert!(MAX_CHECKS <= u16::MAX as usize);

/// What a call does with its buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Takes tokens for requests.
    Take = 1,
    /// Adds units, for an operator.
    Adjust = 2,
    /// Reads levels, and writes nothing.
    Peek = 3,
}

/// What a shared store must know of a rule: its name, the salt that its bucket ids carry, and what to
/// do without the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleName {
    /// The rule's name.
    pub name: Arc<str>,
    /// The rule's salt.
    pub salt: u128,
    /// What becomes of its requests while the store cannot be asked.
    pub on_failure: OnFailure,
}

impl RuleName {
    /// What the store must know of this rule.
    pub fn of(rule: &Rule) -> Self {
        Self { name: Arc::clone(&rule.name), salt: rule.salt, on_failure: rule.on_failure }
    }
}

/// Checks that go in one call.
#[derive(Debug, Default)]
pub struct Batch {
    buckets: Vec<(BucketId, Limit, String)>,
    bucket_index: HashMap<BucketId, u16, IdState>,
    groups: Vec<Group>,
    group_index: HashMap<u128, Vec<usize>, IdState>,
    checks: usize,
    /// Indexes of buckets, and units that were granted locally.
    debts: Vec<(u16, i64)>,
}

/// Equal requests.
#[derive(Debug)]
struct Group {
    charges: Charges,
    /// How many charges there are.
    charge_count: u8,
    /// Indexes of the buckets, one for each charge.
    buckets: Vec<u16>,
    /// The checks' numbers, in the order in which they came.
    members: Vec<usize>,
    /// How many there are.
    member_count: u16,
}

/// Whether a check fits into a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is in.
    In,
    /// It must go in another call. An empty batch is never full.
    Full,
    /// It has more charges than any call can hold: it must be decided without Redis.
    TooLarge,
}

/// A bucket's key: no text from a client, one hash tag for all buckets of one client part.
pub fn key(prefix: &str, bucket: BucketId, rule: &RuleName) -> String {
    let part = bucket.0 ^ rule.salt;
    let mut key = String::with_capacity(prefix.len() + 35 + rule.name.len());
    let _ = write!(key, "{prefix}{{{part:032x}}}:{}", rule.name);
    key
}

impl Batch {
    /// Checks in the batch.
    pub fn len(&self) -> usize {
        self.checks
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.checks == 0
    }

    /// Adds a check, whose number is how many were added before. `rules` are those of the policy
    /// that the charges come from.
    pub fn add(&mut self, charges: &[Charge], rules: &[RuleName], prefix: &str) -> Added {
        let Ok(charge_count) = u8::try_from(charges.len()) else { return Added::TooLarge };
        if self.checks >= MAX_CHECKS {
            return Added::Full;
        }
        let sum = charges.iter().fold(0, |sum: u128, charge| sum.rotate_left(1) ^ charge.bucket.0);
        let alike = self.group_index.get(&sum).into_iter().flatten().copied();
        if let Some(group) = alike.clone().find(|group| self.groups[*group].charges == *charges) {
            self.groups[group].members.push(self.checks);
            self.groups[group].member_count += 1;
            self.checks += 1;
            return Added::In;
        }
        if !self.has_room_for(charges) {
            return Added::Full;
        }
        let buckets = charges.iter().map(|charge| self.bucket(charge, rules, prefix)).collect();
        let Some(buckets) = buckets else { return Added::TooLarge };
        let (charges, members) = (charges.to_vec(), vec![self.checks]);
        let group = Group { charges, charge_count, buckets, members, member_count: 1 };
        self.group_index.entry(sum).or_default().push(self.groups.len());
        self.groups.push(group);
        self.checks += 1;
        Added::In
    }

    /// Adds a bucket that no check is about, to have `units` taken off it. The script then only
    /// reads it.
    pub fn settle(
        &mut self,
        (bucket, limit): (BucketId, Limit),
        rule: &RuleName,
        units: i64,
        prefix: &str,
    ) -> Added {
        let mode = Mode::Enforce;
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let Some(index) = self.bucket(&charge, std::slice::from_ref(rule), prefix) else {
            return Added::Full;
        };
        let (charges, buckets, members) = (vec![charge], vec![index], Vec::new());
        self.groups.push(Group { charges, charge_count: 1, buckets, members, member_count: 0 });
        self.debts.push((index, units));
        Added::In
    }

    /// A bucket stands in a call once, under one limit: around a reload, two requests may see two.
    fn has_room_for(&self, charges: &[Charge]) -> bool {
        let fits = |charge: &Charge| match self.bucket_index.get(&charge.bucket) {
            Some(index) => self.buckets[usize::from(*index)].1 == charge.limit,
            None => true,
        };
        self.buckets.len() + charges.len() <= MAX_BUCKETS && charges.iter().all(fits)
    }

    /// The bucket's index, added where it is new; none beyond what 16 bits can number.
    fn bucket(&mut self, charge: &Charge, rules: &[RuleName], prefix: &str) -> Option<u16> {
        if let Some(index) = self.bucket_index.get(&charge.bucket) {
            return Some(*index);
        }
        let index = u16::try_from(self.buckets.len()).ok()?;
        let key = rules
            .get(charge.rule as usize)
            .map_or_else(String::new, |rule| key(prefix, charge.bucket, rule));
        self.buckets.push((charge.bucket, charge.limit, key));
        self.bucket_index.insert(charge.bucket, index);
        Some(index)
    }

    /// The keys of the buckets, each once.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.buckets.iter().map(|(_, _, key)| key.as_str())
    }

    /// The buckets, each once, with their limits and the names of their rules.
    pub fn buckets(&self) -> impl Iterator<Item = (BucketId, Limit, &str)> {
        let rule = |key: &str| key.rfind("}:").map_or(0, |at| at + 2);
        self.buckets.iter().map(move |(bucket, limit, key)| (*bucket, *limit, &key[rule(key)..]))
    }

    /// Has `units` taken off the bucket before anything else; it is one of the batch's.
    pub fn owe(&mut self, bucket: BucketId, units: i64) {
        if let Some(index) = self.bucket_index.get(&bucket) {
            self.debts.push((*index, units));
        }
    }

    /// `ARGV[2]` of a call that takes the tokens of these checks.
    pub fn encode(&self) -> Vec<u8> {
        let size = 1 + self.buckets.len() * 17 + self.groups.len() * 14;
        let mut call = Vec::with_capacity(size);
        call.push(Operation::Take as u8);
        for (_, limit, _) in &self.buckets {
            limit.encode(&mut call);
        }
        for group in &self.groups {
            call.extend_from_slice(&group.member_count.to_le_bytes());
            call.push(group.charge_count);
            for (charge, bucket) in group.charges.iter().zip(&group.buckets) {
                call.extend_from_slice(&(bucket + 1).to_le_bytes());
                call.extend_from_slice(&double(charge.limit.units(charge.cost)));
                call.push(u8::from(charge.mode == Mode::Shadow));
            }
        }
        call
    }

    /// `ARGV[3]`; empty if there are no debts.
    pub fn encode_debts(&self) -> Vec<u8> {
        encode_debts(self.debts.iter().copied())
    }
}

/// `ARGV[2]` of a call that adjusts the buckets of these charges.
pub fn encode_adjust(charges: &[Charge], adjustment: Adjustment) -> Vec<u8> {
    let mut call = encode_buckets(Operation::Adjust, charges);
    for charge in charges {
        call.extend_from_slice(&double(adjustment.units(&charge.limit)));
    }
    call
}

/// `ARGV[2]` of a call that reads the buckets of these charges.
pub fn encode_peek(charges: &[Charge]) -> Vec<u8> {
    encode_buckets(Operation::Peek, charges)
}

fn encode_buckets(operation: Operation, charges: &[Charge]) -> Vec<u8> {
    let mut call = vec![operation as u8];
    for charge in charges {
        charge.limit.encode(&mut call);
    }
    call
}

/// `ARGV[3]`: indexes of buckets, and units to take off first; empty if there are none.
pub fn encode_debts(debts: impl Iterator<Item = (u16, i64)>) -> Vec<u8> {
    let mut packed = Vec::new();
    for (bucket, units) in debts {
        packed.extend_from_slice(&(bucket + 1).to_le_bytes());
        packed.extend_from_slice(&double(units));
    }
    packed
}
