//! Clients that replace their own keys: [`OwnRotations`] bounds how often the store is asked for
//! it, [`replaced`] is the change of the record (both pure), and [`KeyStore::rotate_own`] makes it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::edit::following;
use super::kept::{Replaced, Replacement};
use super::record::{HexDigest, Record, RecordError, Secret};
use super::secret::NewKey;
use super::store::KeyStore;
use crate::base::clock;
use crate::base::hash::Digest;
use crate::base::time::UtcTime;
use crate::decide::own_key::RotationRefusal;

/// Shortest time between two new keys of one client, in microseconds.
pub const INTERVAL_US: u64 = 60_000_000;

/// Maximum number of keys of a client that replaces them itself. The others that a record can have
/// are left to operators.
pub const MAX_OWN_SECRETS: usize = 8;

/// How long a client waits after an attempt that has changed nothing, in microseconds.
const RETRY_US: u64 = 1_000_000;

/// Maximum number of clients whose last attempts are known. Further ones wait.
const MAX_KNOWN: usize = 10_000;

/// How often a change is tried again that another one has overtaken.
const TRIES: usize = 3;

/// When clients may ask the store for a new key again, in microseconds of the monotonic clock.
#[derive(Debug, Default)]
pub struct OwnRotations(Mutex<HashMap<Arc<str>, u64>>);

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Name of the new key.
    pub name: Option<String>,
    /// How long the present key is still valid, in microseconds.
    pub overlap_us: u64,
}

/// A key that a client has replaced.
#[derive(Debug)]
pub struct OwnRotation {
    /// The new key, as the client sends it.
    pub key: String,
    /// When the new key ceases to be valid.
    pub expires: Option<UtcTime>,
    /// Name of the key that is replaced.
    pub previous: Option<String>,
    /// When that ceases to be valid.
    pub previous_expires: UtcTime,
}

impl OwnRotations {
    /// Begins an attempt of a client at `now`, unless it has made one too short a time ago.
    fn begin(&self, client: &Arc<str>, now: u64) -> Result<(), RotationRefusal> {
        let mut known = self.0.lock();
        let until = known.get(client).copied().unwrap_or_default();
        if now < until {
            return Err(too_soon(until - now));
        }
        if known.len() >= MAX_KNOWN {
            known.retain(|_, until| now < *until);
        }
        if known.len() >= MAX_KNOWN {
            return Err(RotationRefusal::Unavailable);
        }
        known.insert(Arc::clone(client), now.saturating_add(INTERVAL_US));
        Ok(())
    }

    /// Notes when the client may try again: its attempt at `now` has changed nothing.
    fn end(&self, client: &Arc<str>, why: RotationRefusal, now: u64) {
        let wait_us = match why {
            RotationRefusal::TooSoon { retry_after_s } => retry_after_s.saturating_mul(1_000_000),
            _ => RETRY_US,
        };
        self.0.lock().insert(Arc::clone(client), now.saturating_add(wait_us));
    }
}

fn too_soon(wait_us: u64) -> RotationRefusal {
    RotationRefusal::TooSoon { retry_after_s: wait_us.div_ceil(1_000_000) }
}

/// The record with a new key in place of that with the digest `used`, which is valid for the
/// overlap at most. The new one is valid no longer than that one was. What has expired is removed;
/// the client's other keys stay.
///
/// # Errors
/// See [`RotationRefusal`].
pub fn replaced(
    record: &Record,
    used: &Digest,
    new: HexDigest,
    wish: &Wish,
    now_us: u64,
) -> Result<Record, RotationRefusal> {
    let used = record.secret(used).filter(|used| used.validity().refusal(now_us).is_none());
    let used = used.filter(|_| record.enabled).ok_or(RotationRefusal::NotStored)?;
    // Clocks of gateways differ: a time in the future is one a short time ago.
    let before_us = record.self_rotated.map(|last| last.0.abs_diff(now_us));
    if let Some(before_us) = before_us.filter(|before_us| *before_us < INTERVAL_US) {
        return Err(too_soon(INTERVAL_US - before_us));
    }
    let ends = ends(used, wish, now_us);
    let mut next = following(record, now_us);
    for secret in next.secrets.iter_mut().filter(|secret| secret.sha256 == used.sha256) {
        secret.expires = Some(ends);
    }
    next.secrets.retain(|secret| secret.expires.is_none_or(|expires| expires.0 > now_us));
    next.secrets.push(Secret {
        name: wish.name.clone(),
        sha256: new,
        not_before: None,
        expires: used.expires,
    });
    if next.secrets.len() > MAX_OWN_SECRETS {
        let why = "The client has as many API keys as it may; retry when one has expired.";
        return Err(RotationRefusal::Conflict(why));
    }
    next.self_rotated = Some(UtcTime(now_us));
    next.check().map_err(|error| match error {
        RecordError::SecretNamedTwice => {
            RotationRefusal::Conflict("Another API key of the client has this name.")
        }
        RecordError::Name(_) => RotationRefusal::Invalid(
            "The name of a key has 1 to 64 letters, digits, \"_\", \"-\" and \".\".",
        ),
        _ => RotationRefusal::Conflict("The client cannot have another API key."),
    })?;
    Ok(next)
}

/// When the key that is replaced ceases to be valid.
fn ends(used: &Secret, wish: &Wish, now_us: u64) -> UtcTime {
    let last = UtcTime(now_us.saturating_add(wish.overlap_us));
    used.expires.map_or(last, |expires| expires.min(last))
}

impl KeyStore {
    /// Replaces the key with the digest `used` of this client by a new one. `now` is in
    /// microseconds of the monotonic clock.
    ///
    /// # Errors
    /// See [`RotationRefusal`].
    pub async fn rotate_own(
        &self,
        client: &Arc<str>,
        used: &Digest,
        wish: &Wish,
        now: u64,
    ) -> Result<OwnRotation, RotationRefusal> {
        self.own_rotations.begin(client, now)?;
        let rotated = self.replace_own(client, used, wish).await;
        if let Err(why) = &rotated {
            self.own_rotations.end(client, *why, clock::now());
        }
        rotated
    }

    async fn replace_own(
        &self,
        client: &Arc<str>,
        used: &Digest,
        wish: &Wish,
    ) -> Result<OwnRotation, RotationRefusal> {
        let new = NewKey::random().map_err(|_| RotationRefusal::Unavailable)?;
        for _ in 0..TRIES {
            let stored =
                self.kept.get(&[client]).await.map_err(|_| RotationRefusal::Unavailable)?;
            let stored = stored.into_iter().next().flatten().ok_or(RotationRefusal::NotStored)?;
            let record = stored.record.clone().map_err(|_| RotationRefusal::NotStored)?;
            let now_us = clock::unix_us();
            let after = replaced(&record, used, new.digest, wish, now_us)?;
            let previous = record.secret(used).ok_or(RotationRefusal::NotStored)?;
            let rotation = OwnRotation {
                key: new.text.clone(),
                expires: previous.expires,
                previous: previous.name.clone(),
                previous_expires: ends(previous, wish, now_us),
            };
            let id = client.to_string();
            let one = Replacement { id, before: Some(stored), after: Some(after) };
            let done = self.kept.replace(&[one]).await;
            self.note_change();
            match done.ok().and_then(|mut all| all.pop()) {
                Some(Replaced::Done) => return Ok(rotation),
                Some(Replaced::Changed) => {}
                Some(Replaced::KeyOfAnother) => return Err(RotationRefusal::Unavailable),
                None => return Err(RotationRefusal::NotConfirmed),
            }
        }
        Err(RotationRefusal::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::record::tests::{record, secret};

    const NOW_US: u64 = 1_000_000_000;
    const NEW: HexDigest = HexDigest([99; 32]);

    fn wish(overlap_us: u64) -> Wish {
        Wish { name: None, overlap_us }
    }

    /// First byte and remaining time of each key.
    fn keys(record: &Record) -> Vec<(u8, Option<u64>)> {
        let of = |secret: &Secret| (secret.sha256.0[0], secret.expires.map(|at| at.0 - NOW_US));
        record.secrets.iter().map(of).collect()
    }

    #[test]
    fn only_the_key_that_is_used_is_replaced_and_the_new_one_lives_no_longer() {
        let ending = Secret { expires: Some(UtcTime(NOW_US + 50)), ..secret(2) };
        let expired = Secret { expires: Some(UtcTime(NOW_US)), ..secret(3) };
        let before = Record { secrets: vec![secret(1), ending, expired], ..record("acme", 0) };
        let replace = |byte, overlap| replaced(&before, &[byte; 32], NEW, &wish(overlap), NOW_US);
        let table = [
            (1, 0, vec![(2, Some(50)), (99, None)]),
            (1, 9, vec![(1, Some(9)), (2, Some(50)), (99, None)]),
            (2, 9, vec![(1, None), (2, Some(9)), (99, Some(50))]),
            (2, 90, vec![(1, None), (2, Some(50)), (99, Some(50))]),
        ];
        for (byte, overlap, expected) in table {
            let after = replace(byte, overlap).unwrap();
            assert_eq!(keys(&after), expected, "{byte} {overlap}");
            assert_eq!((after.version, after.self_rotated), (2, Some(UtcTime(NOW_US))));
        }
        for byte in [3, 4] {
            assert_eq!(replace(byte, 9), Err(RotationRefusal::NotStored), "{byte}");
        }
        let disabled = Record { enabled: false, ..before.clone() };
        let found = replaced(&disabled, &[1; 32], NEW, &wish(0), NOW_US);
        assert_eq!(found, Err(RotationRefusal::NotStored));
    }

    #[test]
    fn client_gets_one_key_a_minute_whatever_the_clocks_of_gateways_say() {
        for (last, expected) in [
            (NOW_US, Some(60)),
            (NOW_US - INTERVAL_US + 1, Some(1)),
            (NOW_US + 5_000_000, Some(55)),
            (NOW_US - INTERVAL_US, None),
            // A clock that was far ahead locks no client out.
            (NOW_US + 9 * INTERVAL_US, None),
        ] {
            let before = Record { self_rotated: Some(UtcTime(last)), ..record("acme", 1) };
            let found = replaced(&before, &[1; 32], NEW, &wish(0), NOW_US).err();
            let expected = expected.map(|retry_after_s| RotationRefusal::TooSoon { retry_after_s });
            assert_eq!(found, expected, "{last}");
        }
    }

    /// Whatever a client does, operators can still add keys.
    #[test]
    fn client_cannot_fill_its_record() {
        let mut record = record("acme", 1);
        let mut now_us = NOW_US;
        let mut used = [1; 32];
        for byte in 2..=u8::try_from(MAX_OWN_SECRETS).unwrap() {
            let new = HexDigest([byte; 32]);
            record = replaced(&record, &used, new, &wish(u64::MAX), now_us).unwrap();
            (used, now_us) = (new.0, now_us + INTERVAL_US);
        }
        assert_eq!(record.secrets.len(), MAX_OWN_SECRETS);
        let found = replaced(&record, &used, NEW, &wish(u64::MAX), now_us);
        assert!(matches!(found, Err(RotationRefusal::Conflict(_))), "{found:?}");
        assert!(replaced(&record, &used, NEW, &wish(0), now_us).is_ok());
    }

    #[test]
    fn name_is_one_that_the_client_does_not_have() {
        let named = Secret { name: Some("a".to_owned()), ..secret(2) };
        let before = Record { secrets: vec![secret(1), named], ..record("acme", 0) };
        let replace = |name: &str| {
            let wish = Wish { name: Some(name.to_owned()), overlap_us: 0 };
            replaced(&before, &[1; 32], NEW, &wish, NOW_US)
        };
        assert!(matches!(replace("a"), Err(RotationRefusal::Conflict(_))));
        for name in ["", "a b", "ä", &"x".repeat(65)] {
            assert!(matches!(replace(name), Err(RotationRefusal::Invalid(_))), "{name}");
        }
        assert_eq!(replace("b").unwrap().secrets[1].name.as_deref(), Some("b"));
    }

    #[test]
    fn attempts_are_bounded_per_client_and_in_all() {
        let rotations = OwnRotations::default();
        let client = Arc::from("acme");
        assert_eq!(rotations.begin(&client, 5), Ok(()));
        let soon = RotationRefusal::TooSoon { retry_after_s: 60 };
        assert_eq!(rotations.begin(&client, 5), Err(soon));
        rotations.end(&client, RotationRefusal::Unavailable, 5);
        assert!(rotations.begin(&client, 4 + RETRY_US).is_err());
        assert_eq!(rotations.begin(&client, 5 + RETRY_US), Ok(()));
        for at in 1..MAX_KNOWN {
            assert_eq!(rotations.begin(&Arc::from(at.to_string()), 9), Ok(()));
        }
        let other = Arc::from("other");
        assert_eq!(rotations.begin(&other, 9), Err(RotationRefusal::Unavailable));
        assert_eq!(rotations.begin(&other, 9 + 2 * INTERVAL_US), Ok(()));
        assert_eq!(rotations.0.lock().len(), 1);
    }
}
