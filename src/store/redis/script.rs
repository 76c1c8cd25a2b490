//! Arguments and replies of `lua/take.lua`, the only script that reads or writes buckets.
//!
//! Checks with the same charges form a group. The script decides on all of them at once, so a hot
//! key costs Redis as much as a single request. Any order of the checks in a batch is valid, since
//! all of them wait at the same time.

mod ids;
mod lapsed;
mod lease;
mod reply;
mod top_up;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::keys::Keys;
use crate::base::unix_time;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::{self, BucketId, Charge, Charges, Mode, held_units};
use crate::limit::concurrency::Statement;
use crate::limit::returned::Returned;
use crate::limit::{Limit, double};
use crate::policy::MAX_RULES_PER_ROUTE;
use crate::store::rule::StoredRule;
use ids::IdState;
pub use lapsed::{encode_lapsed, read_lapsed};
pub use lease::{encode_lease, read_lease};
pub use reply::{BadReply, Given, Reply, read_adjust, read_peek};
pub use top_up::{encode_top_up, read_top_up};

pub const SOURCE: &str = include_str!("../../../lua/take.lua");

/// SHA-1 of the script, by which Redis runs it.
pub static SHA: LazyLock<String> =
    LazyLock::new(|| redis::Script::new(SOURCE).get_hash().to_string());

/// Maximum number of checks in one call. More would take Redis longer than they save.
pub const MAX_CHECKS: usize = 128;

/// Maximum number of buckets in one call. As many as fit in 16 bits would take Redis longer than
/// any budget.
const MAX_BUCKETS: usize = 1024;

/// Maximum number of charges of one check: their number is encoded in 8 bits.
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
    /// Lends units to this gateway, and takes them back.
    Lease = 5,
    /// Changes the top-ups of a fixed window, for an operator, or reads them.
    TopUp = 6,
    /// Takes from top-ups what was granted locally in a period that has ended.
    Lapsed = 7,
}

/// Checks that are sent in one call.
#[derive(Debug, Default)]
pub struct Batch {
    buckets: Vec<(BucketId, Limit, String)>,
    bucket_index: HashMap<BucketId, u16, IdState>,
    groups: Vec<Group>,
    group_index: HashMap<u128, Vec<usize>, IdState>,
    checks: usize,
    /// Indexes of buckets, and units that were granted locally.
    debts: Vec<(u16, i64)>,
    /// Indexes of buckets whose units are held, ascending.
    held: Vec<u16>,
    /// The same indexes, and what this gateway holds.
    statements: Vec<(u16, Statement)>,
    /// Indexes of buckets, and what is given back to them.
    returned: Vec<(u16, Returned)>,
    /// Indexes of buckets, and the highest levels that they can have.
    claims: Vec<(u16, Claim)>,
}

/// Checks with the same charges, which the script decides together.
#[derive(Debug)]
struct Group {
    charges: Charges,
    /// Number of charges of each check.
    charge_count: u8,
    /// Indexes of the buckets, one for each charge.
    buckets: Vec<u16>,
    /// Numbers of the checks, in the order of arrival.
    members: Vec<usize>,
    /// Number of checks in the group; 0 for a debt.
    member_count: u16,
}

/// Whether a check fits into a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The check was added.
    In,
    /// It has to be sent in another call. An empty batch is never full.
    Full,
    /// It has more charges than any call can hold: it has to be decided locally.
    TooLarge,
}

/// The highest level that a bucket can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Level in the limit's units.
    pub level: i64,
    /// End of the period that it holds for, in microseconds of Unix time; 0 unless the limit is a
    /// fixed window.
    pub period_end: u64,
    /// Unix time in microseconds at which the level was seen, by the clock of Redis.
    pub seen_at: u64,
}

/// Key of a bucket. Contains no text from a client. Buckets with the same client part share a hash
/// tag.
pub fn key<'a>(keys: impl Into<Keys<'a>>, bucket: BucketId, rule: &StoredRule) -> String {
    keys.into().bucket(bucket, rule)
}

impl Group {
    /// A group that has only the bucket of `charge`, the one with this index.
    fn without_checks(charge: Charge, index: u16) -> Self {
        let (charges, buckets, members) = (vec![charge], vec![index], Vec::new());
        Self { charges, charge_count: 1, buckets, members, member_count: 0 }
    }
}

impl Batch {
    /// Number of checks in the batch.
    pub fn len(&self) -> usize {
        self.checks
    }

    /// Whether there are no checks.
    pub fn is_empty(&self) -> bool {
        self.checks == 0
    }

    /// Adds a check; its number is the number of checks before it. `rules` are those of the policy
    /// that the charges come from.
    pub fn add<'a>(
        &mut self,
        charges: &[Charge],
        rules: &[StoredRule],
        keys: impl Into<Keys<'a>>,
    ) -> Added {
        let keys = keys.into();
        let Ok(charge_count) = u8::try_from(charges.len()) else { return Added::TooLarge };
        if self.checks >= MAX_CHECKS {
            return Added::Full;
        }
        let sum = charges.iter().fold(0, |sum: u128, charge| sum.rotate_left(1) ^ charge.bucket.0);
        let equal = self.group_index.get(&sum).into_iter().flatten().copied();
        if let Some(group) = equal.clone().find(|group| self.groups[*group].charges == *charges) {
            self.groups[group].members.push(self.checks);
            self.groups[group].member_count += 1;
            self.checks += 1;
            return Added::In;
        }
        if !self.has_room_for(charges) {
            return Added::Full;
        }
        let buckets = charges.iter().map(|charge| self.bucket(charge, rules, keys)).collect();
        let Some(buckets) = buckets else { return Added::TooLarge };
        let (charges, members) = (charges.to_vec(), vec![self.checks]);
        let group = Group { charges, charge_count, buckets, members, member_count: 1 };
        self.group_index.entry(sum).or_default().push(self.groups.len());
        self.groups.push(group);
        self.checks += 1;
        Added::In
    }

    /// Adds a bucket without a check, to settle a debt of `units`.
    pub fn settle<'a>(
        &mut self,
        bucket: BucketId,
        limit: Limit,
        rule: &StoredRule,
        units: i64,
        keys: impl Into<Keys<'a>>,
    ) -> Added {
        let charge = alone(bucket, limit);
        let Some(index) = self.bucket(&charge, std::slice::from_ref(rule), keys.into()) else {
            return Added::Full;
        };
        self.groups.push(Group::without_checks(charge, index));
        self.debts.push((index, units));
        Added::In
    }

    /// Adds a bucket without a check, for a statement of what this gateway holds of it.
    pub fn add_held<'a>(
        &mut self,
        bucket: BucketId,
        limit: Limit,
        rule: &StoredRule,
        keys: impl Into<Keys<'a>>,
    ) -> Added {
        let charge = alone(bucket, limit);
        let is_full = self.buckets.len() >= MAX_BUCKETS;
        match self.bucket(&charge, std::slice::from_ref(rule), keys.into()) {
            Some(_) if !is_full => Added::In,
            Some(_) | None => Added::Full,
        }
    }

    /// Adds a bucket without a check, if it has room for it, for its debt. The reply says whether
    /// it could be read.
    pub fn add_debtor<'a>(
        &mut self,
        bucket: BucketId,
        limit: Limit,
        rule: &StoredRule,
        keys: impl Into<Keys<'a>>,
    ) -> Added {
        let added = self.add_bucket(bucket, limit, rule, keys);
        if let (Added::In, Some(index)) = (added, self.bucket_index.get(&bucket)) {
            self.groups.push(Group::without_checks(alone(bucket, limit), *index));
        }
        added
    }

    /// Adds a bucket without a check, if it has room for it.
    fn add_bucket<'a>(
        &mut self,
        bucket: BucketId,
        limit: Limit,
        rule: &StoredRule,
        keys: impl Into<Keys<'a>>,
    ) -> Added {
        let charge = alone(bucket, limit);
        if !self.has_room_for(&[charge]) {
            return Added::Full;
        }
        match self.bucket(&charge, std::slice::from_ref(rule), keys.into()) {
            Some(_) => Added::In,
            None => Added::Full,
        }
    }

    /// Adds a bucket, if it has room for it, to give back what a request took.
    pub fn give_back<'a>(
        &mut self,
        bucket: BucketId,
        limit: Limit,
        rule: &StoredRule,
        returned: Returned,
        keys: impl Into<Keys<'a>>,
    ) -> Added {
        let added = self.add_bucket(bucket, limit, rule, keys);
        if let (Added::In, Some(index)) = (added, self.bucket_index.get(&bucket)) {
            self.returned.push((*index, returned));
        }
        added
    }

    /// Sets the highest level that each bucket can have, if it is known.
    pub fn claim(&mut self, claim: impl Fn(BucketId, &Limit) -> Option<Claim>) {
        self.claims = self.claimed(claim);
    }

    fn claimed(&self, claim: impl Fn(BucketId, &Limit) -> Option<Claim>) -> Vec<(u16, Claim)> {
        let each = (0..).zip(&self.buckets);
        let claims = each.filter_map(|(at, (bucket, limit, _))| Some((at, claim(*bucket, limit)?)));
        claims.collect()
    }

    /// Whether there is a bucket in it.
    pub fn has_buckets(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Whether the charges fit. A bucket is in a call once, under one limit: around a reload, two
    /// requests may have different limits for it.
    fn has_room_for(&self, charges: &[Charge]) -> bool {
        let fits = |charge: &Charge| match self.bucket_index.get(&charge.bucket) {
            Some(index) => self.buckets[usize::from(*index)].1 == charge.limit,
            None => true,
        };
        self.buckets.len() + charges.len() <= MAX_BUCKETS && charges.iter().all(fits)
    }

    /// Index of the charge's bucket, which is added if it is new; `None` if the index exceeds 16
    /// bits.
    fn bucket(&mut self, charge: &Charge, rules: &[StoredRule], keys: Keys<'_>) -> Option<u16> {
        if let Some(index) = self.bucket_index.get(&charge.bucket) {
            return Some(*index);
        }
        let index = u16::try_from(self.buckets.len()).ok()?;
        let key = rules
            .get(charge.rule as usize)
            .map_or_else(String::new, |rule| keys.bucket(charge.bucket, rule));
        self.held.extend(charge::held(std::slice::from_ref(charge)).map(|_| index));
        self.buckets.push((charge.bucket, charge.limit, key));
        self.bucket_index.insert(charge.bucket, index);
        Some(index)
    }

    /// Keys of the buckets, each once.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.buckets.iter().map(|(_, _, key)| key.as_str())
    }

    /// Buckets, each once, with their limits and the names of their rules.
    pub fn buckets(&self) -> impl Iterator<Item = (BucketId, Limit, &str)> {
        let rule = |key: &str| key.rfind("}:").map_or(0, |at| at + 2);
        self.buckets.iter().map(move |(bucket, limit, key)| (*bucket, *limit, &key[rule(key)..]))
    }

    /// Whether the script needs [further commands](Limit::script_commands) for it.
    pub fn needs_commands(&self) -> bool {
        self.buckets.iter().any(|(_, limit, _)| !limit.script_commands().is_empty())
    }

    /// Settles a debt of `units` to a bucket of the batch, before its checks.
    pub fn add_debt(&mut self, bucket: BucketId, units: i64) {
        if let Some(index) = self.bucket_index.get(&bucket) {
            self.debts.push((*index, units));
        }
    }

    /// Buckets whose units are held, each once.
    pub fn held(&self) -> impl Iterator<Item = BucketId> {
        self.held.iter().map(|index| self.buckets[usize::from(*index)].0)
    }

    /// Sets what this gateway holds of each bucket.
    pub fn state(&mut self, statement: impl Fn(BucketId) -> Statement) {
        let statements = self.held.iter().copied().zip(self.held());
        self.statements = statements.map(|(index, bucket)| (index, statement(bucket))).collect();
    }

    fn statement(&self, index: usize) -> Statement {
        let found = self.statements.binary_search_by_key(&index, |(at, _)| usize::from(*at));
        found.map_or(Statement::NONE, |at| self.statements[at].1)
    }

    /// Units of this gateway that Redis has of each bucket whose units are held, by a reply to this
    /// batch: those that were stated, and those that allowed checks have taken. `None` if the
    /// bucket is unreadable.
    pub fn units_after(&self, reply: &Reply) -> Vec<(BucketId, Option<i64>)> {
        let stated = |index: &u16, statement: &Statement| {
            let bucket = self.buckets[usize::from(*index)].0;
            let is_readable = !reply.unreadable.contains(&bucket);
            (bucket, statement.units.filter(|_| is_readable))
        };
        let mut units: Vec<(BucketId, Option<i64>)> =
            self.statements.iter().map(|(index, statement)| stated(index, statement)).collect();
        if units.is_empty() {
            return units;
        }
        for group in &self.groups {
            let members = group.members.iter();
            for answer in members.filter_map(|member| reply.answers.get(*member)?.as_ref()) {
                for (charge, taken) in held_units(&group.charges, answer) {
                    let sum = units.iter_mut().find(|(bucket, _)| *bucket == charge.bucket);
                    if let Some((_, Some(sum))) = sum {
                        *sum += taken;
                    }
                }
            }
        }
        units
    }

    /// `ARGV[2]` of a call at `now` that takes the tokens of these checks.
    pub fn encode(&self, now: u64) -> Vec<u8> {
        let size = 1 + self.buckets.len() * 17 + self.groups.len() * 14;
        let mut call = Vec::with_capacity(size);
        call.push(Operation::Take as u8);
        let limits = self.buckets.iter().enumerate();
        let limits = limits.map(|(index, (_, limit, _))| (limit, move || self.statement(index)));
        encode_limits(limits, &mut call, now);
        for group in &self.groups {
            call.extend_from_slice(&group.member_count.to_le_bytes());
            call.push(group.charge_count);
            for (charge, bucket) in group.charges.iter().zip(&group.buckets) {
                call.extend_from_slice(&(bucket + 1).to_le_bytes());
                charge.limit.encode_charge(&mut call, charge.cost, charge.mode);
            }
        }
        call
    }

    /// `ARGV[3]`; empty if there are no debts.
    pub fn encode_debts(&self) -> Vec<u8> {
        encode_debts(self.debts.iter().copied())
    }

    /// `ARGV[5]`; empty if no level is claimed.
    pub fn encode_claims(&self) -> Vec<u8> {
        encode_claims(&self.claims)
    }

    /// `ARGV[5]` with these claims instead of those of the batch.
    pub fn encode_claims_by(&self, claim: impl Fn(BucketId, &Limit) -> Option<Claim>) -> Vec<u8> {
        encode_claims(&self.claimed(claim))
    }

    /// `ARGV[4]`; empty if nothing is given back.
    pub fn encode_returned(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        for (bucket, returned) in &self.returned {
            let Returned { units, taken_at, period_end, is_leaky } = *returned;
            packed.extend_from_slice(&(bucket + 1).to_le_bytes());
            packed.extend_from_slice(&double(units));
            for time in [taken_at, period_end] {
                packed.extend_from_slice(&double(i64::try_from(time).unwrap_or(i64::MAX)));
            }
            packed.push(u8::from(is_leaky));
        }
        packed
    }
}

fn encode_claims(claims: &[(u16, Claim)]) -> Vec<u8> {
    let mut packed = Vec::new();
    for (bucket, claim) in claims {
        packed.extend_from_slice(&(bucket + 1).to_le_bytes());
        packed.extend_from_slice(&double(claim.level));
        for time in [claim.period_end, claim.seen_at] {
            packed.extend_from_slice(&double(i64::try_from(time).unwrap_or(i64::MAX)));
        }
    }
    packed
}

/// Charge of a bucket that is in a call without a check; its rule is the only one.
const fn alone(bucket: BucketId, limit: Limit) -> Charge {
    Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
}

/// `ARGV[2]` of a call at `now` that adjusts the buckets of these charges. `statement` is what this
/// gateway holds of a bucket. With `is_kept`, the time of the change is kept, so that no repair
/// undoes it, and nothing is given back that was taken before.
pub fn encode_adjust(
    charges: &[Charge],
    adjustment: Adjustment,
    now: u64,
    statement: impl Fn(BucketId) -> Statement,
    is_kept: bool,
) -> Vec<u8> {
    let mut call = encode_buckets(Operation::Adjust, charges, now, statement);
    for charge in charges {
        call.extend_from_slice(&double(adjustment.units(&charge.limit)));
    }
    let is_above = matches!(adjustment, Adjustment::GrantAbove(_));
    let forgets = adjustment.forgets_expired();
    call.push(u8::from(is_kept) + 2 * u8::from(is_above) + 4 * u8::from(forgets));
    call
}

/// `ARGV[2]` of a call at `now` that reads the buckets of these charges.
pub fn encode_peek(charges: &[Charge], now: u64) -> Vec<u8> {
    let mut call = encode_buckets(Operation::Peek, charges, now, |_| Statement::NONE);
    for charge in charges {
        call.extend_from_slice(&double(charge.limit.units(charge.cost)));
    }
    call
}

fn encode_buckets(
    operation: Operation,
    charges: &[Charge],
    now: u64,
    statement: impl Fn(BucketId) -> Statement,
) -> Vec<u8> {
    let mut call = vec![operation as u8];
    let statement = &statement;
    let limits = charges.iter().map(|charge| (&charge.limit, move || statement(charge.bucket)));
    encode_limits(limits, &mut call, now);
    call
}

/// Appends the parameters of buckets to a call at `now`.
fn encode_limits<'a>(
    limits: impl Iterator<Item = (&'a Limit, impl FnOnce() -> Statement)>,
    call: &mut Vec<u8>,
    now: u64,
) {
    let (now, mut more) = (unix_time::at(now), Vec::new());
    for (limit, statement) in limits {
        limit.encode(call, &mut more, now, statement);
    }
    call.extend_from_slice(&more);
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
