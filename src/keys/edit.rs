//! Changes of records by operators. Pure.

use std::collections::BTreeMap;

use super::record::{HexDigest, Override, Record, Secret};
use crate::base::time::UtcTime;

/// What a new record has.
#[derive(Debug, Clone, Default)]
pub struct NewRecord {
    pub id: String,
    pub plan: String,
    pub tenant: Option<String>,
    pub is_disabled: bool,
    pub metadata: BTreeMap<String, String>,
    pub overrides: BTreeMap<String, Override>,
    pub secrets: Vec<Secret>,
}

/// A change of a record: what is `None` stays.
#[derive(Debug, Clone, Default)]
#[allow(clippy::option_option, reason = "no change and no tenant are different things")]
pub struct Change {
    pub plan: Option<String>,
    pub tenant: Option<Option<String>>,
    pub enabled: Option<bool>,
    /// Texts to set; `None` removes one.
    pub metadata: BTreeMap<String, Option<String>>,
    /// Overrides to set, by the names of rules; `None` removes one.
    pub overrides: BTreeMap<String, Option<Override>>,
    pub secrets: Option<Vec<Secret>>,
}

/// A new key of a client that has others.
#[derive(Debug, Clone)]
pub struct NewSecret {
    pub digest: HexDigest,
    pub name: Option<String>,
    pub expires: Option<UtcTime>,
    /// How long the other keys are still valid, in microseconds.
    pub overlap_us: u64,
}

/// The record of a new client. `now_us` is Unix time in microseconds.
pub fn created(new: NewRecord, now_us: u64) -> Record {
    let NewRecord { id, plan, tenant, is_disabled, metadata, overrides, secrets } = new;
    let now = UtcTime(now_us);
    let (enabled, others) = (!is_disabled, BTreeMap::new());
    Record {
        id,
        version: 1,
        plan,
        tenant,
        enabled,
        locked: false,
        secrets,
        metadata,
        overrides,
        created: now,
        updated: now,
        self_rotated: None,
        others,
    }
}

/// The record after a change.
pub fn changed(record: &Record, change: Change, now_us: u64) -> Record {
    let Change { plan, tenant, enabled, metadata, overrides, secrets } = change;
    let mut next = following(record, now_us);
    next.plan = plan.unwrap_or(next.plan);
    next.tenant = tenant.unwrap_or(next.tenant);
    next.enabled = enabled.unwrap_or(next.enabled);
    next.secrets = secrets.unwrap_or(next.secrets);
    merge(&mut next.metadata, metadata);
    merge(&mut next.overrides, overrides);
    next
}

/// The record with a new key. The others are valid for the overlap at most; what has expired is
/// removed.
pub fn rotated(record: &Record, new: NewSecret, now_us: u64) -> Record {
    let NewSecret { digest, name, expires, overlap_us } = new;
    let mut next = following(record, now_us);
    let last = UtcTime(now_us.saturating_add(overlap_us));
    next.secrets.retain_mut(|secret| {
        secret.expires = Some(secret.expires.map_or(last, |expires| expires.min(last)));
        // A key that is not valid yet never will be.
        secret.expires > Some(UtcTime(now_us)) && secret.not_before < secret.expires
    });
    next.secrets.push(Secret { name, sha256: digest, not_before: None, expires });
    next
}

/// Sets what the change has, and removes what is `None` there.
fn merge<T>(all: &mut BTreeMap<String, T>, change: BTreeMap<String, Option<T>>) {
    for (name, value) in change {
        match value {
            Some(value) => drop(all.insert(name, value)),
            None => drop(all.remove(&name)),
        }
    }
}

/// The record with the next version.
pub(super) fn following(record: &Record, now_us: u64) -> Record {
    let updated = UtcTime(now_us).max(record.updated);
    Record { version: record.version.saturating_add(1), updated, ..record.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::record::tests::{record, secret};

    const NOW_US: u64 = 10_000_000;

    #[test]
    fn rotation_ends_the_other_keys_after_the_overlap() {
        let long = Secret { expires: Some(UtcTime(NOW_US * 9)), ..secret(1) };
        let short = Secret { expires: Some(UtcTime(NOW_US + 1)), ..secret(2) };
        let expired = Secret { expires: Some(UtcTime(NOW_US)), ..secret(3) };
        let later = Secret { not_before: Some(UtcTime(NOW_US + 5)), ..secret(4) };
        let secrets = vec![secret(0), long, short, expired, later];
        let before = Record { secrets, ..record("acme", 0) };
        let rotate = |overlap_us| {
            let digest = HexDigest([9; 32]);
            let new = NewSecret { digest, name: None, expires: None, overlap_us };
            let next = rotated(&before, new, NOW_US);
            let of =
                |secret: &Secret| (secret.sha256.0[0], secret.expires.map(|time| time.0 - NOW_US));
            (next.version, next.secrets.iter().map(of).collect::<Vec<_>>())
        };
        assert_eq!(rotate(0), (2, vec![(9, None)]));
        let (two, ten) = (Some(2), Some(10));
        assert_eq!(rotate(2), (2, vec![(0, two), (1, two), (2, Some(1)), (9, None)]));
        let all = vec![(0, ten), (1, ten), (2, Some(1)), (4, ten), (9, None)];
        assert_eq!(rotate(10), (2, all));
    }

    #[test]
    fn change_leaves_what_it_does_not_name() {
        let before = Record {
            tenant: Some("t".to_owned()),
            metadata: [("a".to_owned(), "1".to_owned())].into(),
            ..record("acme", 7)
        };
        let nothing = changed(&before, Change::default(), NOW_US);
        assert!(nothing.is_same_client(&before) && nothing.version == 2);
        let metadata = [("a".to_owned(), None), ("b".to_owned(), Some("2".to_owned()))].into();
        let change = Change {
            tenant: Some(None),
            enabled: Some(false),
            plan: Some("pro".to_owned()),
            metadata,
            ..Change::default()
        };
        let after = changed(&before, change, NOW_US);
        assert_eq!((after.tenant, after.enabled, &*after.plan), (None, false, "pro"));
        assert_eq!(after.metadata, [("b".to_owned(), "2".to_owned())].into());
        assert_eq!(after.updated, UtcTime(NOW_US));
    }

    #[test]
    fn time_of_the_last_change_does_not_go_back() {
        let before = Record { updated: UtcTime(NOW_US), ..record("acme", 7) };
        assert_eq!(changed(&before, Change::default(), 5).updated, UtcTime(NOW_US));
    }
}
