//! The clients that are known by a credential, their keys, and the look-up of one.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};

use super::ClientKey;
use super::auth_answer::AuthAnswer;
use super::credential::{Credential, CredentialKind};
use super::jwt::TokenRefusal;
use super::jwt::verify::Verified;
use crate::base::hash::{Digest, hash};
use crate::limit::grant::{Grant, OwnGrant};

/// A client that is known by its API keys, or by a token.
#[derive(Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its name, which logs show, upstreams get, and no other client has: of a client with API
    /// keys, that in the file or the key store, which has no space; of one with a token, what the
    /// token says, a space, and the issuer, which has none. What applies to a client of the file
    /// uses [`key_id`](Self::key_id).
    pub id: Arc<str>,
    /// Index of its plan.
    pub plan: u32,
    /// The tenant that it belongs to, if any.
    pub tenant: Option<Arc<Tenant>>,
    /// Hash of what identifies it, the same on all gateways and after a reload.
    pub hash: u64,
    /// Whether its requests are served.
    pub is_enabled: bool,
    /// What its token says; `None` for a client with API keys.
    pub token: Option<Box<TokenIdentity>>,
    /// Its grants of single rules that the file does not have.
    pub own_grants: Box<[OwnGrant]>,
}

/// What a verified token says about its client, besides id and plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIdentity {
    /// Who says so. Ids of different issuers are different clients.
    pub issuer: Arc<str>,
    /// SHA-256 of issuer and id. No client of the file, and no client of another issuer, has its
    /// buckets.
    pub digest: Digest,
    /// Names and values of the claims that rules count by.
    pub claims: Vec<(Box<str>, Box<str>)>,
    /// Headers that the upstream gets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the upstream does not get the token.
    pub is_hidden: bool,
}

/// The value of a claim. Those of different issuers are different, even with the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    pub issuer: &'a str,
    pub value: &'a str,
}

/// Several clients that share limits: those of one customer.
#[derive(Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name, which logs and the admin API show.
    pub id: Arc<str>,
    /// Index of its plan, for rules per tenant; `None`: those of its clients.
    pub plan: Option<u32>,
    /// Hash of the id, the same on all gateways and after a reload.
    pub hash: u64,
}

/// An API key of a known client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// The client that has it.
    pub principal: Arc<Principal>,
    /// Its name in the file; `None` without one.
    pub name: Option<Arc<str>>,
    /// When it can be used.
    pub validity: Validity,
}

/// The time from `not_before_us` until before `expires_us`, both in microseconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub not_before_us: u64,
    pub expires_us: u64,
}

/// Why a known key or a token cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyRefusal {
    /// Its `not_before` is in the future.
    NotYetValid,
    /// Its `expires` has passed.
    Expired,
    /// The client is disabled.
    Disabled,
    /// The key store cannot be asked whose it is.
    Unverified,
    /// It is a token of an identity provider, which is refused.
    Token(TokenRefusal),
    /// There is no such user, or the password is another one.
    Password,
    /// It could not be checked in time.
    Unchecked,
    /// The server that is asked about the request refuses it, with this status.
    Denied(StatusCode),
    /// The server that is asked about the request has not answered.
    NoAnswer,
}

/// What is known about the credential of a request without a known client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CredentialState {
    /// It is of no client.
    Unknown,
    /// It cannot be used, such as a wrong password or an expired token.
    Refused,
    /// Whose it is was not found out.
    Unverified,
}

/// Whose key a request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub key: ClientKey,
    /// Where the key was, as an index into the sources of keys; `None` without a key.
    pub source: Option<usize>,
    /// Name of a known key, if it has one.
    pub name: Option<Arc<str>>,
    /// Why a known key or a token cannot be used; `None` if it can.
    pub refusal: Option<KeyRefusal>,
    /// What the server said that was asked about the request, if one was.
    pub auth: Option<Arc<AuthAnswer>>,
}

/// The tenants that the file describes. Clients may have others.
#[derive(Debug, Default)]
pub struct Tenants {
    by_id: HashMap<Arc<str>, Arc<Tenant>>,
}

/// All known clients, in the order of the file.
#[derive(Debug, Default)]
pub struct Keys {
    all: Vec<Arc<Principal>>,
    by_id: HashMap<Arc<str>, Arc<Principal>>,
    by_digest: HashMap<Digest, KnownKey>,
}

impl KeyRefusal {
    /// Whether the key may be right, and cannot be checked.
    pub const fn is_unverified(self) -> bool {
        matches!(self, Self::Unverified | Self::Unchecked | Self::NoAnswer)
    }
}

impl CredentialState {
    /// That of a credential which cannot be used for this reason, if for any.
    pub const fn of(refusal: Option<KeyRefusal>) -> Self {
        match refusal {
            None => Self::Unknown,
            Some(why) if why.is_unverified() => Self::Unverified,
            Some(_) => Self::Refused,
        }
    }

    /// Its name in the audit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::Unverified => "unverified",
        }
    }
}

impl Principal {
    /// The client with this id, which no other has.
    pub fn new(id: Arc<str>, plan: u32, is_enabled: bool) -> Self {
        let hash = hash(id.as_bytes());
        let own_grants = Box::default();
        Self { id, plan, tenant: None, hash, is_enabled, token: None, own_grants }
    }

    /// The client that a token identifies. `subject` is its id among the clients of the issuer.
    pub fn of_token(
        subject: &str,
        plan: u32,
        tenant: Option<Arc<Tenant>>,
        token: TokenIdentity,
    ) -> Self {
        let id = format!("{subject} {}", token.issuer).into();
        let beginning = token.digest.first_chunk().copied().unwrap_or_default();
        let hash = u64::from_be_bytes(beginning);
        let (token, own_grants) = (Some(Box::new(token)), Box::default());
        Self { id, plan, tenant, hash, is_enabled: true, token, own_grants }
    }

    /// Its name in the file, which rules refer to; `None` for a client with a token, whatever its
    /// id.
    pub fn key_id(&self) -> Option<&Arc<str>> {
        self.token.is_none().then_some(&self.id)
    }

    /// Its grant of the rule with this salt, if it has one that the file does not have.
    pub fn own_grant(&self, rule: u128) -> Option<&Grant> {
        self.own_grants.iter().find(|own| own.rule == rule).map(|own| &own.grant)
    }

    /// The value of a claim of its token that rules count by, and the issuer; `None` if it has
    /// none.
    pub fn claim(&self, name: &str) -> Option<Claim<'_>> {
        let token = self.token.as_ref()?;
        let (_, value) = token.claims.iter().find(|(own, _)| **own == *name)?;
        Some(Claim { issuer: &token.issuer, value })
    }
}

impl TokenIdentity {
    /// The identity of a client that `issuer` names so, without anything else.
    pub fn new(issuer: &Arc<str>, id: &str) -> Self {
        // Two ids are the same client only if issuer and id are the same.
        let mut hash = Sha256::new();
        hash.update((issuer.len() as u64).to_be_bytes());
        hash.update(&**issuer);
        hash.update(id);
        Self {
            issuer: Arc::clone(issuer),
            digest: hash.finalize().into(),
            claims: Vec::new(),
            headers: Vec::new(),
            is_hidden: false,
        }
    }
}

impl TokenIdentity {
    /// How many bytes it takes, about.
    pub fn bytes(&self) -> usize {
        let claims = self.claims.iter().map(|(name, value)| name.len() + value.len());
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        size_of::<Self>() + claims.chain(headers).sum::<usize>()
    }
}

impl Tenant {
    /// The tenant with this id, which no other has.
    pub fn new(id: Arc<str>, plan: Option<u32>) -> Self {
        let hash = hash(id.as_bytes());
        Self { id, plan, hash }
    }
}

impl Tenants {
    /// Adds a tenant.
    pub fn add(&mut self, tenant: Tenant) {
        self.by_id.insert(Arc::clone(&tenant.id), Arc::new(tenant));
    }

    /// The tenant with this id, as the file describes it; else one without a plan of its own.
    pub fn named(&self, id: &str) -> Arc<Tenant> {
        let described = self.by_id.get(id).map(Arc::clone);
        described.unwrap_or_else(|| Arc::new(Tenant::new(Arc::from(id), None)))
    }

    /// The tenants that the file describes, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.by_id.values()
    }
}

impl Validity {
    /// Of a key that can always be used.
    pub const ALWAYS: Self = Self { not_before_us: 0, expires_us: u64::MAX };

    /// Why the key cannot be used at `unix_us`; `None` if it can.
    pub fn refusal(self, unix_us: u64) -> Option<KeyRefusal> {
        if unix_us < self.not_before_us {
            Some(KeyRefusal::NotYetValid)
        } else if unix_us >= self.expires_us {
            Some(KeyRefusal::Expired)
        } else {
            None
        }
    }
}

impl KnownKey {
    /// Why it cannot be used; `None` if it can. `unix_us` returns the Unix time in microseconds,
    /// and is only called for a key with times.
    pub fn refusal(&self, unix_us: impl FnOnce() -> u64) -> Option<KeyRefusal> {
        if !self.principal.is_enabled {
            return Some(KeyRefusal::Disabled);
        }
        if self.validity == Validity::ALWAYS { None } else { self.validity.refusal(unix_us()) }
    }
}

impl Found {
    /// The result for a request without a key.
    pub const NO_KEY: Self =
        Self { key: ClientKey::Missing, source: None, name: None, refusal: None, auth: None };

    /// The result for a request with a known key, from the source with this index. `unix_us` is as
    /// for [`KnownKey::refusal`].
    pub fn known(known: &KnownKey, source: usize, unix_us: impl FnOnce() -> u64) -> Self {
        Self {
            key: ClientKey::Known(Arc::clone(&known.principal)),
            source: Some(source),
            name: known.name.clone(),
            refusal: known.refusal(unix_us),
            auth: None,
        }
    }

    /// Its unknown key, and where that was; `None` for a token that is refused.
    pub fn unknown_key(&self) -> Option<(Digest, usize)> {
        match (&self.key, self.source) {
            (ClientKey::Unknown(digest), Some(source)) if self.refusal.is_none() => {
                Some((*digest, source))
            }
            _ => None,
        }
    }

    /// The result for a request with an unknown key, from the source with this index.
    pub fn unknown(digest: Digest, source: usize) -> Self {
        Self { key: ClientKey::Unknown(digest), source: Some(source), ..Self::NO_KEY }
    }

    /// The result for a request whose key, from the source with this index, cannot be looked up:
    /// it counts as a request without a key, and is refused unless `is_anonymous`.
    pub fn unverified(source: usize, is_anonymous: bool) -> Self {
        let refusal = (!is_anonymous).then_some(KeyRefusal::Unverified);
        Self { source: Some(source), refusal, ..Self::NO_KEY }
    }

    /// The result for a request with a verified token from the source with this index.
    pub fn verified(token: &Verified, source: usize) -> Self {
        let key = ClientKey::Known(Arc::clone(&token.principal));
        Self { key, source: Some(source), ..Self::NO_KEY }
    }

    /// The result for a request with a token that is refused.
    pub fn refused(digest: Digest, source: usize, why: TokenRefusal) -> Self {
        let refusal = Some(KeyRefusal::Token(why));
        Self { key: ClientKey::Unknown(digest), source: Some(source), refusal, ..Self::NO_KEY }
    }

    /// The result for a request with a credential, from the source with this index, that cannot be
    /// used.
    pub fn unusable(source: usize, why: KeyRefusal) -> Self {
        Self { source: Some(source), refusal: Some(why), ..Self::NO_KEY }
    }

    /// The result for a request about which the server that is asked has not answered.
    pub fn without_answer() -> Self {
        Self { refusal: Some(KeyRefusal::NoAnswer), ..Self::NO_KEY }
    }

    /// The result for a request that the server which is asked refuses with this status.
    pub fn refused_by_server(status: StatusCode, answer: &Arc<AuthAnswer>) -> Self {
        let auth = Some(Arc::clone(answer));
        Self { refusal: Some(KeyRefusal::Denied(status)), auth, ..Self::NO_KEY }
    }

    /// The result for a request whose client the server which is asked has named.
    pub fn named_by_server(principal: &Arc<Principal>) -> Self {
        Self { key: ClientKey::Known(Arc::clone(principal)), ..Self::NO_KEY }
    }

    /// The result for a request with a credential of this client, from the source with this index.
    pub fn of(principal: &Arc<Principal>, source: usize) -> Self {
        let refusal = (!principal.is_enabled).then_some(KeyRefusal::Disabled);
        let key = ClientKey::Known(Arc::clone(principal));
        Self { key, source: Some(source), refusal, ..Self::NO_KEY }
    }
}

impl Keys {
    /// Adds a client, and returns it for [`add_key`](Self::add_key).
    pub fn add(&mut self, principal: Principal) -> Arc<Principal> {
        let principal = Arc::new(principal);
        self.all.push(Arc::clone(&principal));
        self.by_id.insert(Arc::clone(&principal.id), Arc::clone(&principal));
        principal
    }

    /// Adds a key of a client. No other key has this digest.
    pub fn add_key(&mut self, digest: Digest, key: KnownKey) {
        self.by_digest.insert(digest, key);
    }

    /// Finds whose API key a request has. A password cannot be looked up. `unix_us` returns the
    /// Unix time in microseconds, and is only called for a key with times.
    pub fn look_up(
        &self,
        credential: Option<&Credential<'_>>,
        unix_us: impl FnOnce() -> u64,
    ) -> Found {
        let Some(&Credential { digest, source, ref kind }) = credential else {
            return Found::NO_KEY;
        };
        if matches!(kind, CredentialKind::Password(_)) {
            return Found::unusable(source, KeyRefusal::Unchecked);
        }
        match self.with_digest(&digest) {
            None => Found::unknown(digest, source),
            Some(known) => Found::known(known, source, unix_us),
        }
    }

    /// The key with this digest.
    pub fn with_digest(&self, digest: &Digest) -> Option<&KnownKey> {
        self.by_digest.get(digest)
    }

    /// The client with this id.
    pub fn named(&self, id: &str) -> Option<&Arc<Principal>> {
        self.by_id.get(id)
    }

    /// All clients, in the order of the file.
    pub fn all(&self) -> &[Arc<Principal>] {
        &self.all
    }

    /// Each key with its digest, in no order.
    pub fn digests(&self) -> impl Iterator<Item = (&Digest, &KnownKey)> {
        self.by_digest.iter()
    }
}
