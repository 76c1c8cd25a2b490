//! Calls of the script that take lapsed debts from top-ups.

use super::reply::{BadReply, time};
use super::{Operation, alone, encode_buckets};
use crate::limit::charge::Charge;
use crate::limit::concurrency::Statement;
use crate::limit::double;
use crate::store::lapsed::QueuedDebt;

/// `ARGV[2]` of a call at `now` with these debts, each to another bucket.
pub fn encode_lapsed(debts: &[QueuedDebt], now: u64) -> Vec<u8> {
    let charge = |one: &QueuedDebt| alone(one.debt.bucket, one.debt.limit);
    let charges: Vec<Charge> = debts.iter().map(charge).collect();
    let mut call = encode_buckets(Operation::Lapsed, &charges, now, |_| Statement::NONE);
    for one in debts {
        call.extend_from_slice(&double(one.debt.units));
        for number in [one.debt.ended_us, one.number] {
            call.extend_from_slice(&double(i64::try_from(number).unwrap_or(i64::MAX)));
        }
    }
    call
}

/// Reads the reply to a call with this many debts: the units that each has taken from top-ups.
///
/// # Errors
/// The reply does not belong to this call.
pub fn read_lapsed(debts: usize, reply: &[i64]) -> Result<Vec<i64>, BadReply> {
    let mut numbers = reply.iter().copied();
    time(numbers.next())?;
    let taken: Vec<i64> = numbers.collect();
    if taken.len() == debts && taken.iter().all(|units| *units >= 0) {
        Ok(taken)
    } else {
        Err(BadReply)
    }
}
