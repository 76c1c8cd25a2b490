//! `[clients.jwt]`, resolved.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::key_set::KeySet;
use crate::config::words::JwtAlgorithm;
use crate::net::url::HttpUrl;

/// An issuer of tokens, and what its tokens mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The value of `iss`; no other issuer has it. No white space.
    pub issuer: Arc<str>,
    /// One of these is in `aud`; empty: any.
    pub audience: Vec<Box<str>>,
    pub keys: KeySource,
    /// Algorithms that are accepted.
    pub algorithms: Vec<JwtAlgorithm>,
    pub clock_skew_us: u64,
    /// Claims that a token must have.
    pub required: Vec<Box<str>>,
    /// Types that a token may have; `None`: `JWT`, `at+jwt`, or none.
    pub types: Option<Vec<Box<str>>>,
    /// Claim that is the client's id.
    pub id_claim: Box<str>,
    pub plan: PlanOf,
    /// Claim that names the tenant.
    pub tenant_claim: Option<Box<str>>,
    /// Headers that the upstream gets, and the claims that are their values.
    pub headers: Vec<(HeaderName, Box<str>)>,
    /// Whether the upstream does not get the token.
    pub hide_token: bool,
}

/// Where an issuer's keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// They are part of the configuration.
    Fixed(Arc<KeySet>),
    /// They are fetched.
    Fetched(Fetched),
}

/// Keys that are fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub from: FetchFrom,
    /// How often.
    pub refresh: Duration,
    /// Certificate authorities of the server; `None`: the public ones.
    pub ca: Option<PathBuf>,
}

/// What is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchFrom {
    /// A JSON Web Key Set.
    Jwks(HttpUrl),
    /// The provider's metadata, which have the URL of its keys (OpenID Connect Discovery 1.0).
    Discovery(HttpUrl),
}

/// The plan of a client with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanOf {
    /// Claim that names it.
    pub claim: Option<Box<str>>,
    /// Indexes of plans by the value of the claim.
    pub by_value: HashMap<Box<str>, u32>,
    /// Index of the plan if the claim names none; `None`: the token is refused.
    pub default: Option<u32>,
}
