//! Units of one bucket that all gateways hold, as they are stored in Redis. `take.lua` does the
//! same; only tests use this, to compare the two.

use super::{LEASE_US, Statement};

/// Start of a stored value. No other kind of limit stores a value with it.
pub const HEAD: &[u8] = b"cc1";

/// Bytes of an entry.
const ENTRY: usize = 24;

/// Microseconds by which the end of a lease can be later than one of now, since clocks are
/// corrected.
const SLACK_MS: u64 = 1_000;

/// What one gateway holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    gateway: u64,
    units: u32,
    /// End of its lease, in milliseconds.
    ends_ms: u64,
    /// Number of its last statement.
    number: u64,
}

/// What all gateways hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    own: i64,
    number: u64,
    others: Vec<Entry>,
    /// Whether the statement that they were read with has been made, or a later one.
    is_late: bool,
}

impl Entries {
    /// Reads a stored value at `now` (microseconds) for the gateway of `statement`, and applies
    /// that. An invalid value counts as no value. A lease that ends too late, since the clock went
    /// back, ends one lease from now.
    pub fn read(stored: Option<&[u8]>, statement: Statement, now: u64) -> Self {
        let mut entries = Self { number: statement.number, ..Self::default() };
        let last_ms = (now + LEASE_US).div_ceil(1_000);
        for mut entry in stored.and_then(decode).unwrap_or_default() {
            if entry.ends_ms * 1_000 <= now {
                continue;
            }
            if entry.ends_ms > last_ms + SLACK_MS {
                entry.ends_ms = last_ms;
            }
            if entry.gateway != statement.gateway {
                entries.others.push(entry);
                continue;
            }
            entries.own = entry.units.into();
            if statement.units.is_some() && statement.number <= entry.number {
                entries.is_late = true;
            }
            entries.number = entries.number.max(entry.number);
        }
        if let (Some(units), false) = (statement.units, entries.is_late) {
            entries.own = units;
        }
        entries
    }

    /// Whether a value of another kind, or a corrupt one, is stored: only a take replaces it.
    pub fn is_foreign(stored: Option<&[u8]>) -> bool {
        stored.is_some_and(|stored| decode(stored).is_none())
    }

    /// Whether a later statement of the gateway has been made: then nothing is written.
    pub const fn is_late(&self) -> bool {
        self.is_late
    }

    /// Units that all gateways hold.
    pub fn held(&self) -> i64 {
        self.own + self.others.iter().map(|entry| i64::from(entry.units)).sum::<i64>()
    }

    /// Adds units to those of the gateway that made the statement. Below zero: frees units, its own
    /// first.
    pub fn add(&mut self, units: i64) {
        self.own += units;
        let mut left = -self.own.min(0);
        self.own = self.own.max(0);
        for entry in &mut self.others {
            let freed = i64::from(entry.units).min(left);
            entry.units -= u32::try_from(freed).unwrap_or_default();
            left -= freed;
        }
    }

    /// The value to store at `now`, for a gateway of this id.
    pub fn write(&self, gateway: u64, now: u64) -> Vec<u8> {
        let own = Entry {
            gateway,
            units: u32::try_from(self.own).unwrap_or(u32::MAX),
            ends_ms: (now + LEASE_US).div_ceil(1_000),
            number: self.number,
        };
        let mut stored = HEAD.to_vec();
        for entry in std::iter::once(&own).chain(&self.others) {
            stored.extend_from_slice(&entry.gateway.to_le_bytes());
            stored.extend_from_slice(&entry.units.to_le_bytes());
            stored.extend_from_slice(&entry.ends_ms.to_le_bytes()[..6]);
            stored.extend_from_slice(&entry.number.to_le_bytes()[..6]);
        }
        stored
    }
}

/// The entries of a stored value; `None` if it is not one of this kind.
fn decode(stored: &[u8]) -> Option<Vec<Entry>> {
    let (entries, []) = stored.strip_prefix(HEAD)?.as_chunks::<ENTRY>() else { return None };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let entry = |bytes: &[u8; ENTRY]| Entry {
        gateway: number(&bytes[..8]),
        units: u32::try_from(number(&bytes[8..12])).unwrap_or_default(),
        ends_ms: number(&bytes[12..18]),
        number: number(&bytes[18..]),
    };
    Some(entries.iter().map(entry).collect())
}
