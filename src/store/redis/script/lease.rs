//! Calls of the script that borrow units of a bucket: see [`Lease`](crate::limit::lease::Lease).

use super::reply::{BadReply, level, time};
use super::{Operation, encode_limits};
use crate::limit::charge::Charge;
use crate::limit::concurrency::Statement;
use crate::limit::double;
use crate::limit::lease::{EPOCH_US, Loan, Request};

/// `ARGV[2]` of a call at `now` that borrows from the bucket of this charge. It lends at most the
/// `divisor`-th part of the bucket's level.
pub fn encode_lease(charge: &Charge, request: &Request, divisor: i64, now: u64) -> Vec<u8> {
    let mut call = vec![Operation::Lease as u8];
    encode_limits(std::iter::once((&charge.limit, || Statement::NONE)), &mut call, now);
    for number in [request.wanted, divisor, request.least] {
        call.extend_from_slice(&double(number));
    }
    for account in request.accounts {
        let epoch = i64::try_from(account.epoch).unwrap_or(0);
        for number in [epoch, account.spent, account.returned] {
            call.extend_from_slice(&double(number));
        }
    }
    call
}

/// Reads the reply to a call that borrows from the bucket of this charge; `None` if the bucket is
/// unreadable.
///
/// # Errors
/// The reply does not belong to this call.
pub fn read_lease(
    charge: &Charge,
    request: &Request,
    reply: &[i64],
) -> Result<Option<Loan>, BadReply> {
    let [now, after, units, epoch, valid_us] = *reply else { return Err(BadReply) };
    time(Some(now))?;
    let Some(level) = level(charge, Some(after))? else { return Ok(None) };
    let number = |number: i64| u64::try_from(number).map_err(|_| BadReply);
    let (epoch, valid_us) = (number(epoch)?, number(valid_us)?);
    if !(0..=request.wanted.max(0)).contains(&units) || valid_us > 2 * EPOCH_US {
        return Err(BadReply);
    }
    Ok(Some(Loan { level, units, epoch, valid_us }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::charge::{BucketId, Mode};

    #[test]
    fn reply_that_lends_more_or_longer_than_the_script_does_is_malformed() {
        let limit = Limit::token_bucket(1, 100, 5).unwrap();
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let request = Request { wanted: 100, ..Request::default() };
        let loan = Loan { level: 400, units: 100, epoch: 7, valid_us: 4_000_000 };
        let table: [(&[i64], _); 8] = [
            (&[9, 400, 100, 7, 4_000_000], Ok(Some(loan))),
            (&[9, -2 * crate::limit::MAX_UNITS, 0, 7, 1], Ok(None)),
            (&[9, 400, 101, 7, 4_000_000], Err(BadReply)),
            (&[9, 400, -1, 7, 4_000_000], Err(BadReply)),
            (&[9, 501, 100, 7, 4_000_000], Err(BadReply)),
            (&[9, 400, 100, 7, 4_000_001], Err(BadReply)),
            (&[9, 400, 100, 7, -1], Err(BadReply)),
            (&[9, 400, 100, 7], Err(BadReply)),
        ];
        for (reply, expected) in table {
            assert_eq!(read_lease(&charge, &request, reply), expected, "{reply:?}");
        }
    }
}
