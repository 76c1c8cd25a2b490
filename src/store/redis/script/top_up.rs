//! Calls of the script that change the top-ups of a fixed window, or read them.

use super::reply::{BadReply, level, time};
use super::{Operation, encode_buckets};
use crate::limit::charge::Charge;
use crate::limit::concurrency::Statement;
use crate::limit::double;
use crate::limit::top_up::{ChangedTopUps, LeftTopUp, TopUp, TopUpChange, TopUpError};

/// Bytes of a text in one number of a reply.
const TEXT_BYTES: usize = 6;

/// Of a reply: one with this id was added before.
const REPEATED: i64 = 4;

/// `ARGV[2]` of a call at `now` that changes the top-ups of this charge's bucket, or reads them.
pub fn encode_top_up(charge: &Charge, wanted: &TopUpChange, now: u64) -> Vec<u8> {
    const NONE: TopUp = TopUp { id: 0, units: 0, expires_us: 0 };
    let charges = std::slice::from_ref(charge);
    let mut call = encode_buckets(Operation::TopUp, charges, now, |_| Statement::NONE);
    let (action, one, text) = match wanted {
        TopUpChange::List => (0, NONE, ""),
        TopUpChange::Add(one, text) => (1, *one, text.as_str()),
        TopUpChange::Revoke(id) => (2, TopUp { id: *id, ..NONE }, ""),
    };
    call.push(action);
    call.extend_from_slice(&double(one.units));
    for number in [one.expires_us, one.id] {
        call.extend_from_slice(&double(i64::try_from(number).unwrap_or(i64::MAX)));
    }
    call.extend_from_slice(text.as_bytes());
    call
}

/// Reads the reply to a call that changes the top-ups of this charge's bucket, or reads them;
/// `None` if the bucket is unreadable.
///
/// # Errors
/// The reply does not belong to this call.
pub fn read_top_up(
    charge: &Charge,
    reply: &[i64],
) -> Result<Option<Result<ChangedTopUps, TopUpError>>, BadReply> {
    let mut numbers = reply.iter().copied();
    time(numbers.next())?;
    let status = numbers.next();
    let error = match status {
        Some(-1) => return Ok(None),
        Some(0 | REPEATED) => None,
        Some(1) => Some(TopUpError::TooMany),
        Some(2) => Some(TopUpError::TooLarge),
        Some(3) => Some(TopUpError::Unknown),
        _ => return Err(BadReply),
    };
    let mut level = || level(charge, numbers.next())?.ok_or(BadReply);
    let (before, after) = (level()?, level()?);
    let repeated = if status == Some(REPEATED) { Some(read_text(&mut numbers)?) } else { None };
    let mut all = Vec::new();
    while let Some(id) = numbers.next() {
        all.push(left(id, &mut numbers)?);
    }
    Ok(Some(error.map_or(Ok(ChangedTopUps { before, after, all, repeated }), Err)))
}

/// Reads what is left of a top-up.
fn left(id: i64, numbers: &mut impl Iterator<Item = i64>) -> Result<LeftTopUp, BadReply> {
    let mut positive = || numbers.next().and_then(|number| u64::try_from(number).ok());
    let (left, expires_us) = (positive(), positive());
    Ok(LeftTopUp {
        id: u64::try_from(id).map_err(|_| BadReply)?,
        left: left.and_then(|left| i64::try_from(left).ok()).ok_or(BadReply)?,
        expires_us: expires_us.ok_or(BadReply)?,
        text: read_text(numbers)?,
    })
}

/// Reads a text: its length, then its bytes.
fn read_text(numbers: &mut impl Iterator<Item = i64>) -> Result<String, BadReply> {
    let mut positive = || numbers.next().and_then(|number| u64::try_from(number).ok());
    let length = positive().and_then(|length| usize::try_from(length).ok()).ok_or(BadReply)?;
    let mut text = Vec::new();
    while text.len() < length {
        let bytes = positive().ok_or(BadReply)?.to_le_bytes();
        text.extend(bytes.iter().take(TEXT_BYTES.min(length - text.len())));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
