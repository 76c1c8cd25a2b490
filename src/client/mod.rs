//! The client of a request: what it presents, whose key that is, and who the client then is. Pure.
//!
//! Reading order: the types here, `principal` (the known clients, and the look-up of one), `jwt`
//! (tokens of identity providers), `password` (users with passwords), `auth_answer` (of a
//! server that is asked about a request), `settings` (`[clients]`),
//! `address` (the address that identifies a client), `credential` (the API key or the token of a
//! request), `identity` (all of this for one request), `identifier` (what makes two requests those
//! of the same client).

pub mod address;
pub mod auth_answer;
pub mod credential;
pub mod identifier;
pub mod identity;
pub mod jwt;
pub mod password;
pub mod principal;
pub mod settings;

use std::net::IpAddr;
use std::sync::Arc;

use crate::base::hash::Digest;
use principal::{Principal, Tenant};
use settings::Clients;

/// The client of one request, as rules count it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Address, found through trusted proxies, in canonical form; `None` on a Unix socket.
    pub ip: Option<IpAddr>,
    /// API key that the request has, and whose it is.
    pub key: ClientKey,
    /// Index of the plan.
    pub plan: u32,
    /// The tenant that the client belongs to, if any.
    pub tenant: Option<Arc<Tenant>>,
    /// SHA-256 of the subject of the client's certificate, as text of RFC 4514; `None` without a
    /// certificate, or if no rule counts by it.
    pub certificate: Option<Digest>,
}

/// API key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientKey {
    /// The request has no key.
    Missing,
    /// A known key, by the client that has it.
    Known(Arc<Principal>),
    /// A key that is not known, by its digest.
    Unknown(Digest),
}

impl Client {
    /// A client of which only the key is known, or that it has none.
    pub fn new(clients: &Clients, key: ClientKey) -> Self {
        let (plan, tenant) = match &key {
            ClientKey::Known(principal) => (principal.plan, principal.tenant.clone()),
            ClientKey::Missing | ClientKey::Unknown(_) => (clients.anonymous_plan, None),
        };
        Self { ip: None, key, plan, tenant, certificate: None }
    }

    /// A client of a tenant of which nothing else is known, with the tenant's plan.
    pub fn of_tenant(clients: &Clients, tenant: Arc<Tenant>) -> Self {
        let plan = tenant.plan.unwrap_or(clients.anonymous_plan);
        Self { ip: None, key: ClientKey::Missing, plan, tenant: Some(tenant), certificate: None }
    }

    /// The known client that this is.
    pub fn principal(&self) -> Option<&Principal> {
        match &self.key {
            ClientKey::Known(principal) => Some(principal),
            ClientKey::Missing | ClientKey::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
