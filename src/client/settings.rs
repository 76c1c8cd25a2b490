//! `[clients]`: where clients have their API keys, and how those without a known one are treated.

use std::fmt;

use http::HeaderName;

use super::jwt::settings::Issuer;

pub use crate::config::words::{OnConflictingKeys, OnMissingKey, OnPreflight, OnUnknownKey};

/// `[clients]`: how clients are identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// Where to look for an API key, in this order.
    pub key_sources: Vec<KeySource>,
    /// Index of the plan of clients without a known key.
    pub anonymous_plan: u32,
    /// Treatment of a request without a key.
    pub on_missing_key: OnMissingKey,
    /// Treatment of a CORS preflight request without a key, if a key is required.
    pub on_preflight: OnPreflight,
    /// Treatment of a request with a key that is not in the file; `None`: nothing is taken for a
    /// key, because the file has none and does not say what an unknown one means.
    pub on_unknown_key: Option<OnUnknownKey>,
    /// Treatment of a request with two different keys.
    pub on_conflicting_keys: OnConflictingKeys,
    /// Whether the key is removed before the request is forwarded.
    pub hide_key: bool,
    /// Number of leading bits of an IPv6 address that identify a client.
    pub ipv6_prefix: u8,
    /// Path at which clients read their own limits, in visible ASCII; `None`: off.
    pub limits_path: Option<Box<str>>,
    /// Issuers of tokens; empty: a token is an API key as any other text.
    pub issuers: Vec<Issuer>,
    /// Whether the issuer of bearer tokens is asked about them.
    pub introspects: bool,
    /// Claims that rules count by, each once.
    pub counted_claims: Vec<Box<str>>,
    /// Headers that upstreams get from tokens of all issuers, and from servers that are asked about
    /// requests, each once. Those of clients are removed.
    pub claim_headers: Vec<HeaderName>,
}

impl Clients {
    /// The word of [`on_unknown_key`](Self::on_unknown_key), in responses of the admin API.
    pub fn on_unknown_key_name(&self) -> &'static str {
        self.on_unknown_key.map_or("not_read", OnUnknownKey::name)
    }

    /// Whether `path`, not decoded and without its query, is [`limits_path`](Self::limits_path).
    pub fn is_limits_path(&self, path: &str, ignore_case: bool) -> bool {
        match &self.limits_path {
            None => false,
            Some(own) if ignore_case => own.eq_ignore_ascii_case(path),
            Some(own) => **own == *path,
        }
    }
}

/// Part of a request that may contain an API key. Displayed as in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The whole value of this header.
    Header(HeaderName),
    /// The token in `Authorization: Bearer …`.
    Bearer,
    /// The query parameter of this name.
    Query(String),
    /// The user and the password in `Authorization: Basic …`.
    Basic,
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Bearer => f.write_str("bearer"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Basic => f.write_str("basic"),
        }
    }
}
