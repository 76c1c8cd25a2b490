//! [`Record`]: what is stored of a client. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::base::hash::Digest;
use crate::base::time::UtcTime;
use crate::client::principal::Validity;
use crate::limit::fixed_window::Overage;
use crate::policy::build::{self, GrantText};

/// Maximum number of API keys of one client.
pub const MAX_SECRETS: usize = 16;

/// Maximum number of overrides of one client.
pub const MAX_OVERRIDES: usize = 64;

/// Maximum number of entries in `metadata`.
pub const MAX_METADATA: usize = 32;

/// Maximum length of a record as it is stored, in bytes. 64 of them are in one reply of Redis,
/// which may have 1 MiB.
pub const MAX_RECORD_BYTES: usize = 12 * 1024;

/// Maximum length of `metadata`, names and texts, in bytes.
pub const MAX_METADATA_BYTES: usize = 4096;

/// Maximum length of an id, and of the names of plans, tenants and keys, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A client with its API keys, as Redis and the file have it in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    /// Number of changes so far, the creation included.
    pub version: u64,
    /// Name of the plan.
    pub plan: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether its requests are served.
    pub enabled: bool,
    /// Whether only operators who are not limited to a tenant may enable it: one has disabled it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub locked: bool,
    pub secrets: Vec<Secret>,
    /// Free texts, which the gateway does not use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Its limits under single rules, by their names, in place of those of its plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, Override>,
    pub created: UtcTime,
    pub updated: UtcTime,
    /// When the client last replaced one of its keys itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_rotated: Option<UtcTime>,
    /// What a newer version of tollgate has stored: kept by changes of this one.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// An API key of a client. Of the key itself, only the hash is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "StoredSecret"))]
pub struct Secret {
    /// Name of the key, which the access log and the audit show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// SHA-256 of the key, in hexadecimal digits.
    #[cfg_attr(test, schemars(with = "String"))]
    pub sha256: HexDigest,
    /// When the key begins to be valid; without it, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub not_before: Option<UtcTime>,
    /// When the key ceases to be valid; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub expires: Option<UtcTime>,
}

/// A limit of one client under one rule, as `[keys.<id>.overrides]` of the file has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Override {
    /// Refill rate, such as `10/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// In place of `rate`: `1000/h`, or a number of requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<TextOrNumber>,
    /// Capacity of a bucket: a number of tokens, or a duration such as `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<TextOrNumber>,
    /// Of a leaky bucket: longest time that a request waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<String>,
    /// Of a quota: share of the limit from which on the client is warned, such as `80%`; else that
    /// of its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<String>,
    /// Of a quota: whether requests beyond it are refused or counted; else as for its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overage: Option<Overage>,
}

/// A value in one of two forms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum TextOrNumber {
    Number(u64),
    Text(String),
}

/// A SHA-256 that is written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexDigest(pub Digest);

/// Why a record is not one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("an id has 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`")]
    Id,
    #[error("`{0}` has 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`")]
    Name(&'static str),
    #[error("a client has at most {MAX_SECRETS} keys")]
    TooManySecrets,
    #[error("two keys of the client have one name")]
    SecretNamedTwice,
    #[error("two keys of the client have one `sha256`: they are the same key")]
    SecretTwice,
    #[error("`expires` of a key is not after its `not_before`: the key is never valid")]
    NeverValid,
    #[error("the client is larger than {MAX_RECORD_BYTES} bytes as JSON")]
    TooLarge,
    #[error("a client has at most {MAX_OVERRIDES} overrides")]
    TooManyOverrides,
    #[error("`metadata` has at most {MAX_METADATA} texts, of {MAX_METADATA_BYTES} bytes together")]
    Metadata,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Record {
    /// Checks what serde does not.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn check(&self) -> Result<(), RecordError> {
        if !is_id(&self.id) {
            return Err(RecordError::Id);
        }
        if !is_id(&self.plan) {
            return Err(RecordError::Name("plan"));
        }
        if self.tenant.as_deref().is_some_and(|tenant| !is_id(tenant)) {
            return Err(RecordError::Name("tenant"));
        }
        if self.secrets.len() > MAX_SECRETS {
            return Err(RecordError::TooManySecrets);
        }
        let length: usize = self.metadata.iter().map(|(name, text)| name.len() + text.len()).sum();
        if self.metadata.len() > MAX_METADATA || length > MAX_METADATA_BYTES {
            return Err(RecordError::Metadata);
        }
        if self.overrides.len() > MAX_OVERRIDES {
            return Err(RecordError::TooManyOverrides);
        }
        // A character may take several bytes in JSON.
        if self.encode().len() > MAX_RECORD_BYTES {
            return Err(RecordError::TooLarge);
        }
        for (at, secret) in self.secrets.iter().enumerate() {
            secret.check()?;
            for before in self.secrets.iter().take(at) {
                if before.sha256 == secret.sha256 {
                    return Err(RecordError::SecretTwice);
                }
                if before.name.is_some() && before.name == secret.name {
                    return Err(RecordError::SecretNamedTwice);
                }
            }
        }
        Ok(())
    }

    /// The digests of its keys.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.secrets.iter().map(|secret| secret.sha256.0)
    }

    /// The key with this digest.
    pub fn secret(&self, digest: &Digest) -> Option<&Secret> {
        self.secrets.iter().find(|secret| secret.sha256.0 == *digest)
    }

    /// Whether both say the same of a client, whatever their versions and times.
    pub fn is_same_client(&self, other: &Self) -> bool {
        let without = |record: &Self| Self {
            version: 0,
            created: UtcTime::default(),
            updated: UtcTime::default(),
            self_rotated: None,
            locked: false,
            ..record.clone()
        };
        without(self) == without(other)
    }

    /// Reads a stored record.
    ///
    /// # Errors
    /// It is not one of this version of tollgate.
    pub fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The record as it is stored.
    pub fn encode(&self) -> Vec<u8> {
        // Texts, numbers and lists: this does not fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Override {
    /// What it has, for the policy.
    pub fn text(&self) -> GrantText<'_> {
        GrantText {
            rate: self.rate.as_deref(),
            limit: self.limit.as_ref().map(TextOrNumber::borrowed),
            burst: self.burst.as_ref().map(TextOrNumber::borrowed),
            max_delay: self.max_delay.as_deref(),
            soft: self.soft.as_deref(),
            overage: self.overage,
        }
    }
}

impl TextOrNumber {
    fn borrowed(&self) -> build::TextOrNumber<'_> {
        match self {
            Self::Text(text) => build::TextOrNumber::Text(text),
            Self::Number(number) => build::TextOrNumber::Number(*number),
        }
    }
}

impl Secret {
    /// When the key can be used.
    pub fn validity(&self) -> Validity {
        Validity {
            not_before_us: self.not_before.map_or(Validity::ALWAYS.not_before_us, |time| time.0),
            expires_us: self.expires.map_or(Validity::ALWAYS.expires_us, |time| time.0),
        }
    }

    fn check(&self) -> Result<(), RecordError> {
        if self.name.as_deref().is_some_and(|name| !is_id(name)) {
            return Err(RecordError::Name("name"));
        }
        let Validity { not_before_us, expires_us } = self.validity();
        if not_before_us >= expires_us { Err(RecordError::NeverValid) } else { Ok(()) }
    }
}

/// Whether a text can be the id of a client: what the configuration file accepts for `[keys.<id>]`.
fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

impl HexDigest {
    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut digest = [0; 32];
        for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(digest))
    }
}

impl fmt::Display for HexDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for HexDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for HexDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HexDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The text may be the key itself, so the message does not repeat it.
        Self::parse(&text).ok_or_else(|| D::Error::custom("`sha256` has 64 hexadecimal digits"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A client with one key, whose digest consists of this byte.
    pub(crate) fn record(id: &str, byte: u8) -> Record {
        Record {
            id: id.to_owned(),
            version: 1,
            plan: "free".to_owned(),
            tenant: None,
            enabled: true,
            locked: false,
            secrets: vec![secret(byte)],
            metadata: BTreeMap::new(),
            overrides: BTreeMap::new(),
            created: UtcTime(1_000_000),
            updated: UtcTime(1_000_000),
            self_rotated: None,
            others: BTreeMap::new(),
        }
    }

    pub(crate) fn secret(byte: u8) -> Secret {
        Secret { name: None, sha256: HexDigest([byte; 32]), not_before: None, expires: None }
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let plain = record("acme", 7);
        let full = Record {
            tenant: Some("t".to_owned()),
            metadata: [("owner".to_owned(), "a@b.test".to_owned())].into(),
            overrides: [(
                "per-key".to_owned(),
                Override {
                    rate: Some("5/s".to_owned()),
                    burst: Some(TextOrNumber::Number(9)),
                    ..Override::default()
                },
            )]
            .into(),
            locked: true,
            self_rotated: Some(UtcTime(7)),
            others: [("later".to_owned(), serde_json::json!([1]))].into(),
            secrets: vec![Secret {
                name: Some("2027".to_owned()),
                not_before: Some(UtcTime(5)),
                expires: Some(UtcTime(6)),
                ..secret(8)
            }],
            ..plain.clone()
        };
        for record in [plain, full] {
            assert_eq!(Record::decode(&record.encode()).unwrap(), record);
            assert_eq!(record.check(), Ok(()));
        }
    }

    #[test]
    fn record_that_is_none_is_refused() {
        let valid = record("acme", 7);
        let with = |change: &dyn Fn(&mut Record)| {
            let mut record = valid.clone();
            change(&mut record);
            record.check()
        };
        let named = |byte| Secret { name: Some("a".to_owned()), ..secret(byte) };
        let never = Secret { not_before: Some(UtcTime(6)), expires: Some(UtcTime(6)), ..secret(1) };
        assert_eq!(with(&|it| it.id = "a b".to_owned()), Err(RecordError::Id));
        assert_eq!(with(&|it| it.id = String::new()), Err(RecordError::Id));
        assert_eq!(with(&|it| it.plan = "\n".to_owned()), Err(RecordError::Name("plan")));
        assert_eq!(with(&|it| it.tenant = Some(String::new())), Err(RecordError::Name("tenant")));
        assert_eq!(
            with(&|it| it.secrets = vec![secret(1), secret(1)]),
            Err(RecordError::SecretTwice)
        );
        assert_eq!(
            with(&|it| it.secrets = vec![named(1), named(2)]),
            Err(RecordError::SecretNamedTwice)
        );
        assert_eq!(with(&|it| it.secrets = vec![never.clone()]), Err(RecordError::NeverValid));
        assert_eq!(
            with(&|it| it.secrets = (0..17).map(secret).collect()),
            Err(RecordError::TooManySecrets)
        );
        let long = "x".repeat(MAX_METADATA_BYTES + 1);
        assert_eq!(
            with(&|it| it.metadata = [("a".to_owned(), long.clone())].into()),
            Err(RecordError::Metadata)
        );
    }

    #[test]
    fn message_about_a_digest_does_not_repeat_it() {
        let json = String::from_utf8(record("acme", 7).encode()).unwrap();
        let json = json.replace(&HexDigest([7; 32]).to_string(), "my-secret");
        let error = Record::decode(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("64 hexadecimal digits") && !error.contains("my-secret"), "{error}");
    }
}
