//! Replies of the script.

use super::{Batch, Group};
use crate::limit::MAX_UNITS;
use crate::limit::charge::{Answer, BucketId, Charge, Mode, Outcome, Outcomes};
use crate::limit::reading::{LeftOfTopUps, Reading, Times};
use crate::limit::share::Share;

/// Reply to a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Answer of each check, by its number; `None` if one of its buckets is unreadable, so that the
    /// check is undecided.
    pub answers: Vec<Option<Answer>>,
    /// Unreadable buckets: neither tokens nor debts were taken from them.
    pub unreadable: Vec<BucketId>,
    /// Whether sliding windows are among them since the gateway's user may not read them.
    pub lacks_right: bool,
    /// What was given back, in the order of [`Batch::give_back`].
    pub given: Vec<Given>,
    /// Unix time of the decisions in microseconds, by the clock of Redis.
    pub decided_at: u64,
}

/// What a bucket was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Units; 0 if the limit would not be exact with any.
    pub units: i64,
    /// Level of the bucket with them.
    pub level: i64,
}

/// Level of an unreadable bucket.
const UNREADABLE: i64 = -2 * MAX_UNITS;

/// Last number of a reply if the gateway's user may not read sliding windows.
const LACKS_RIGHT: i64 = -1;

/// Error: `take.lua` does not return this reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reply is not one of the script's")]
pub struct BadReply;

/// Reads the reply to a call that reads the buckets of `charges`. Returns the state of each; `None`
/// for an unreadable bucket.
///
/// # Errors
/// The reply does not belong to this call.
pub fn read_peek(charges: &[Charge], reply: &[i64]) -> Result<Vec<Option<Reading>>, BadReply> {
    let mut numbers = reply.iter().copied();
    let time = time(numbers.next())?;
    let mut readings = Vec::with_capacity(charges.len());
    for charge in charges {
        readings.push(match level(charge, numbers.next())? {
            Some(level) => Some(reading(charge, level, &mut numbers, time)?),
            None => None,
        });
    }
    if numbers.next().is_some() { Err(BadReply) } else { Ok(readings) }
}

/// Reads the reply to a call that adjusts the buckets of `charges`. Returns the level of each
/// before and after; `None` for an unreadable bucket. Then no bucket has changed.
///
/// # Errors
/// The reply does not belong to this call.
pub fn read_adjust(charges: &[Charge], reply: &[i64]) -> Result<Vec<Option<(i64, i64)>>, BadReply> {
    let mut numbers = reply.iter().copied().skip(1);
    let mut moved = Vec::with_capacity(charges.len());
    for charge in charges {
        let (before, after) = (level(charge, numbers.next())?, level(charge, numbers.next())?);
        moved.push(before.zip(after));
    }
    if numbers.next().is_some() { Err(BadReply) } else { Ok(moved) }
}

/// Reads the Unix time of the decision, by the clock of Redis.
pub(super) fn time(number: Option<i64>) -> Result<u64, BadReply> {
    number.and_then(|time| u64::try_from(time).ok()).ok_or(BadReply)
}

/// Reads the times of a charge's bucket: see [`Limit::times_in`](crate::limit::Limit::times_in).
fn times(
    charge: &Charge,
    numbers: &mut impl Iterator<Item = i64>,
    time: u64,
) -> Result<Times, BadReply> {
    let next = || numbers.next().and_then(|us| u64::try_from(us).ok());
    charge.limit.times_in(next, time).ok_or(BadReply)
}

/// Reads what follows the level of a charge's bucket that was read without taking.
fn reading(
    charge: &Charge,
    level: i64,
    numbers: &mut impl Iterator<Item = i64>,
    time: u64,
) -> Result<Reading, BadReply> {
    let top_ups = if charge.limit.calendar().is_some() {
        let (units, expires) = (numbers.next(), numbers.next());
        let expires_us = expires.and_then(|us| u64::try_from(us).ok()).ok_or(BadReply)?;
        let units = units.filter(|units| *units >= 0).ok_or(BadReply)?;
        LeftOfTopUps { units, expires_us }
    } else {
        LeftOfTopUps::default()
    };
    Ok(Reading { level, times: times(charge, numbers, time)?, top_ups })
}

/// Reads the level of a charge's bucket; `None` if the bucket is unreadable.
pub(super) fn level(charge: &Charge, number: Option<i64>) -> Result<Option<i64>, BadReply> {
    match number.ok_or(BadReply)? {
        UNREADABLE => Ok(None),
        level if (charge.limit.lowest()..=charge.limit.highest()).contains(&level) => {
            Ok(Some(level))
        }
        _ => Err(BadReply),
    }
}

impl Batch {
    /// Reads the reply to this batch.
    ///
    /// # Errors
    /// The reply does not belong to this batch.
    pub fn read(&self, reply: &[i64]) -> Result<Reply, BadReply> {
        let mut numbers = reply.iter().copied();
        let time = time(numbers.next())?;
        let mut answers = vec![None; self.checks];
        let mut unreadable = Vec::new();
        for group in &self.groups {
            let passed = numbers.next().ok_or(BadReply)?;
            let mut levels = Vec::with_capacity(group.charges.len());
            let mut undecided = false;
            for charge in &group.charges {
                let level = level(charge, numbers.next())?;
                if level.is_none() {
                    undecided |= charge.mode == Mode::Enforce;
                    if !unreadable.contains(&charge.bucket) {
                        unreadable.push(charge.bucket);
                    }
                }
                let took = match charge.mode {
                    Mode::Enforce => passed,
                    Mode::Shadow => numbers.next().ok_or(BadReply)?,
                };
                let times = match level {
                    Some(_) => times(charge, &mut numbers, time)?,
                    None => Times::NONE,
                };
                levels.push(GroupLevel { level, took, times });
            }
            if undecided && passed == -1 {
                continue;
            }
            let passed = usize::try_from(passed).map_err(|_| BadReply)?;
            if undecided || passed > group.members.len() {
                return Err(BadReply);
            }
            for (order, member) in group.members.iter().enumerate() {
                let slot = answers.get_mut(*member).ok_or(BadReply)?;
                *slot = Some(group.answer(order, passed, &levels, time)?);
            }
        }
        let mut given = Vec::with_capacity(self.returned.len());
        for (_, returned) in &self.returned {
            let units = numbers.next().filter(|units| (0..=returned.units).contains(units));
            let (units, level) = units.zip(numbers.next()).ok_or(BadReply)?;
            given.push(Given { units, level });
        }
        let lacks_right = match (numbers.next(), numbers.next()) {
            (None, _) => false,
            (Some(LACKS_RIGHT), None) => true,
            _ => return Err(BadReply),
        };
        Ok(Reply { answers, unreadable, lacks_right, given, decided_at: time })
    }
}

/// What the reply has of a charge of a group.
struct GroupLevel {
    /// Level of its bucket after the last check; `None` if it is unreadable.
    level: Option<i64>,
    /// Number of checks that took from it.
    took: i64,
    /// Times of the bucket then.
    times: Times,
}

impl Group {
    /// Answer of the check at `order` in the group. `passed` checks are allowed. `levels` are those
    /// of the charges. `time` is the Unix time of the decision. If the last level is the lowest
    /// that there is, the one of an earlier check may be higher here than it was.
    fn answer(
        &self,
        order: usize,
        passed: usize,
        levels: &[GroupLevel],
        time: u64,
    ) -> Result<Answer, BadReply> {
        let allowed = order < passed;
        let mut outcomes = Outcomes::new();
        for (charge, &GroupLevel { level: last, took, mut times }) in
            self.charges.iter().zip(levels)
        {
            let units = charge.limit.units(charge.cost);
            let Some(last) = last else {
                // A shadow rule whose bucket is unreadable has no effect.
                outcomes.push(Outcome::full(charge));
                continue;
            };
            // Requests after this one also took units: add them for the level after this one.
            let turn = i64::try_from(order).map_err(|_| BadReply)? + 1;
            let later = if allowed { took.saturating_sub(turn).max(0) } else { 0 };
            let level = last.saturating_add(later.saturating_mul(units));
            let enough = if allowed { turn <= took } else { charge.is_granted_at(level, units) };
            times = charge.limit.times_of(times, time, order as u64);
            if level >= units {
                // Only after the last one it does not.
                times.wait_us = 0;
            }
            outcomes.push(Outcome { level, enough, share: Share::WHOLE, times });
        }
        let answer = Answer::of(&self.charges, outcomes);
        // The script does not return levels that contradict the number of allowed requests.
        if answer.allowed() == allowed { Ok(answer) } else { Err(BadReply) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::store::rule::rule;

    /// `take.lua` denies only if tokens are missing, so any other denial is a malformed reply.
    #[test]
    fn reply_that_denies_with_full_buckets_is_malformed() {
        let limit = Limit::token_bucket(1, 100, 5).unwrap();
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let mut batch = Batch::default();
        batch.add(&[charge], &[rule()], "t:");
        // (now, how many passed, level) -> whether the request is allowed
        let table = [
            ([0, 1, 400], Ok(true)),
            ([0, 0, 99], Ok(false)),
            ([0, 0, 100], Err(BadReply)),
            ([0, 0, 500], Err(BadReply)),
        ];
        for (reply, expected) in table {
            let allowed =
                batch.read(&reply).map(|read| read.answers[0].as_ref().unwrap().allowed());
            assert_eq!(allowed, expected, "{reply:?}");
        }
    }
}
