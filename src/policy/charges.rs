//! Which rules apply to a request, and the charge of each: a bucket and a cost.

mod client_hash;

use std::borrow::Cow;

use http::{HeaderMap, Method};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::{Colocated, Dimension, Grant, MAX_RULES_PER_ROUTE, OnMissing, Policy, Route, Rule};
use crate::client::identifier::Identifier;
use crate::client::principal::{Claim, Principal};
use crate::client::settings::{Clients, OnUnknownKey};
use crate::client::{Client, ClientKey};
use crate::limit::charge::{BucketId, Charge, Charges, Mode};
use crate::limit::cost::Cost;
use client_hash::ClientHash;

/// Maximum length in bytes of a text that is hashed to a bucket's id without an allocation.
const INLINE_BYTES: usize = 128;

/// [`hash`] of an empty text: the part of a rule without `per` whose limit is the same for all.
const HASH_OF_NOTHING: u128 = 0xe3b0_c442_98fc_1c14_9afb_f4c8_996f_b924;

/// The properties of a request that rules use, besides its client.
#[derive(Debug, Clone, Copy)]
pub struct RequestAttributes<'a> {
    /// Index of the route.
    pub route: u32,
    /// Method, for rules that count by `method`.
    pub method: &'a Method,
    /// Host in lower case, without port.
    pub host: &'a str,
    /// Path as received, without the query, for rules that count by `param:<name>`.
    pub path: &'a str,
    /// Headers, for rules that count by `header:<name>`.
    pub headers: &'a HeaderMap,
}

/// Refusal by a rule with `on_missing = "deny"` of a client without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRequired {
    /// Index of the rule.
    pub rule: u32,
}

/// Which rules apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All rules of the route.
    All,
    /// All rules of the route. One with `on_missing = "deny"` counts by address: for CORS preflight
    /// requests without a key, if `clients.on_preflight = "anonymous"`.
    Preflight,
    /// Only those that count by address, and without the key: for requests that are refused with
    /// 401.
    Address,
}

/// Why a rule does not apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNot {
    /// The rule has `enabled = false`.
    Disabled,
    /// The rule does not list the request's route.
    OtherRoutes,
    /// The client's address is in this exempt network.
    ExemptAddress(IpNet),
    /// The client's key is exempt.
    ExemptKey,
    /// The client has no certificate, and the rule counts by it.
    NoCertificate,
    /// The client has no tenant, and the rule counts by it.
    NoTenant,
    /// The client has no key, and `on_missing = "skip"`.
    NoKeySkipped,
    /// The client has no key, and `on_missing = "deny"`. An enforced rule refuses the request.
    NoKeyDenied,
    /// The rule has no rate for the client's plan.
    NoRate,
    /// The request is refused for its key ([`Scope::Address`]), and the rule does not count by
    /// address.
    NotByAddress,
}

/// The grant of a client under a rule.
struct Granted {
    grant: Grant,
    variant: Variant,
}

/// Whose grant of a rule a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantOf {
    /// Its own.
    Key,
    /// That of its tenant.
    Tenant,
    /// That of the plan with this index.
    Plan(u32),
}

/// What separates buckets of one rule beyond its `per`, so that clients with different limits never
/// share a bucket.
enum Variant {
    /// Nothing more: only `per` separates buckets.
    Shared,
    /// The plan with this index.
    Plan(u32),
    /// The client's tenant.
    Tenant,
    /// The client's key.
    Key,
}

impl Policy {
    /// The charges of a request, in the order of the file.
    ///
    /// # Errors
    /// An enforced rule has `on_missing = "deny"`, the client has no key, and the scope is
    /// [`Scope::All`].
    pub fn charges(
        &self,
        client: &Client,
        attributes: &RequestAttributes,
        scope: Scope,
    ) -> Result<Charges, KeyRequired> {
        let Some(route) = self.routes.get(attributes.route as usize) else {
            return Ok(Charges::new());
        };
        let mut charges = Charges::with_capacity(route.rules.len());
        let client = self.counted(client, scope);
        for &index in &route.rules {
            let Some(rule) = self.rules.get(index as usize) else { continue };
            match self.charge_of(index, rule, route, &client, attributes, scope) {
                Ok(charge) => charges.push(charge),
                // A shadow rule does not refuse; `shadow_key_denials` returns it.
                Err(WhyNot::NoKeyDenied) if self.mode_for(rule, &client) == Mode::Enforce => {
                    return Err(KeyRequired { rule: index });
                }
                Err(_) => {}
            }
        }
        Ok(charges)
    }

    /// The charge of one rule, by its index: the same as in [`charges`](Self::charges).
    ///
    /// # Errors
    /// Why the rule does not apply.
    pub fn charge(
        &self,
        index: u32,
        client: &Client,
        attributes: &RequestAttributes,
        scope: Scope,
    ) -> Result<Charge, WhyNot> {
        let rule = self.rules.get(index as usize).ok_or(WhyNot::Disabled)?;
        let route = self.routes.get(attributes.route as usize).ok_or(WhyNot::OtherRoutes)?;
        rule.applies_to_route(attributes.route)?;
        self.charge_of(index, rule, route, &self.counted(client, scope), attributes, scope)
    }

    /// The charges of a request that will be refused with 401: only of rules that count by address.
    /// Guessing keys therefore costs as much as any other request, and an unknown key gets no
    /// bucket.
    pub fn address_charges(&self, client: &Client, attributes: &RequestAttributes) -> Charges {
        self.charges(client, attributes, Scope::Address).unwrap_or_default()
    }

    /// The charges of a request without a route that may be a guess at a key: one token each, as
    /// [`address_charges`](Self::address_charges) on the first route of each rule. Limited to the
    /// first [`MAX_RULES_PER_ROUTE`] rules of the file that apply.
    pub fn address_charges_anywhere(
        &self,
        client: &Client,
        method: &Method,
        host: &str,
        path: &str,
        headers: &HeaderMap,
    ) -> Charges {
        let charge = |index| {
            let route = self.routes_of(index).next()?;
            let attributes = RequestAttributes { route, method, host, path, headers };
            let charge = self.charge(index, client, &attributes, Scope::Address).ok()?;
            Some(Charge { cost: charge.limit.parts(), ..charge })
        };
        (0..).take(self.rules.len()).filter_map(charge).take(MAX_RULES_PER_ROUTE).collect()
    }

    /// Indexes of the routes that a rule applies to, by the rule's index; empty if the rule is
    /// disabled.
    pub fn routes_of(&self, rule: u32) -> impl Iterator<Item = u32> {
        let rule = self.rules.get(rule as usize);
        let routes = (0..).zip(&self.routes).map(|(index, _)| index);
        routes.filter(move |route| rule.is_some_and(|rule| rule.applies_to_route(*route).is_ok()))
    }

    /// Indexes of the shadow rules that would refuse the client for its missing key if they were
    /// enforced.
    pub fn shadow_key_denials(
        &self,
        client: &Client,
        route: u32,
        scope: Scope,
    ) -> impl Iterator<Item = u32> {
        let rules = self.routes.get(route as usize).map_or(&[][..], |route| &route.rules);
        let requires_key = move |rule: &Rule| {
            self.mode_for(rule, client) == Mode::Shadow
                && rule.applies_to(client, scope) == Err(WhyNot::NoKeyDenied)
        };
        rules
            .iter()
            .copied()
            .filter(move |index| self.rules.get(*index as usize).is_some_and(requires_key))
    }

    /// Of the charges of a request with an unknown key, those that it has whatever its client is.
    pub fn charges_of_any_client(&self, mut charges: Charges) -> Charges {
        charges.retain(|charge| {
            let rule = self.rules.get(charge.rule as usize);
            rule.is_some_and(Rule::counts_all_clients_alike)
        });
        charges
    }

    /// Whether any rule counts by address, and all clients of an address together.
    pub fn limits_addresses(&self) -> bool {
        self.rules.iter().any(Rule::counts_all_clients_alike)
    }

    /// The client as rules count it: with [`Scope::Address`], one without a key.
    pub fn counted<'a>(&self, client: &'a Client, scope: Scope) -> Cow<'a, Client> {
        match scope {
            Scope::All | Scope::Preflight => Cow::Borrowed(client),
            Scope::Address => {
                let Client { ip, certificate, .. } = *client;
                Cow::Owned(Client {
                    ip,
                    certificate,
                    ..Client::new(&self.clients, ClientKey::Missing)
                })
            }
        }
    }

    /// Whether a rule refuses requests of a client, or only counts them.
    pub fn mode_for(&self, rule: &Rule, client: &Client) -> Mode {
        if rule.mode == Mode::Shadow || rule.enforced_thousandths >= Rule::ALL_CLIENTS {
            return rule.mode;
        }
        let hash = client.known_or_address(self.clients.ipv6_prefix).hash();
        let thousandth = (u128::from(hash) * u128::from(Rule::ALL_CLIENTS)) >> 64;
        let is_enforced = thousandth < u128::from(rule.enforced_thousandths);
        if is_enforced { Mode::Enforce } else { Mode::Shadow }
    }

    /// The charge of a rule that applies to the request's route.
    fn charge_of(
        &self,
        index: u32,
        rule: &Rule,
        route: &Route,
        client: &Client,
        attributes: &RequestAttributes,
        scope: Scope,
    ) -> Result<Charge, WhyNot> {
        rule.applies_to(client, scope)?;
        let granted = rule.grant(client).ok_or(WhyNot::NoRate)?;
        let replaced = rule.candidate_of.and_then(|of| self.rules.get(of as usize));
        if replaced.is_some_and(|replaced| !replaced.has_own_limit(client)) {
            return Err(WhyNot::NoRate);
        }
        Ok(Charge {
            bucket: self.bucket(rule, &granted, client, attributes),
            rule: index,
            limit_index: granted.grant.index,
            limit: granted.grant.limit,
            cost: rule.cost_on(route).in_parts(granted.grant.limit.parts()),
            mode: self.mode_for(rule, client),
        })
    }

    /// The bucket's id: a hash over the values of the rule's `per`, combined with the rule's salt.
    /// Each value is preceded by a tag and its length, so that different values never hash the same
    /// text. The highest 32 bits of a colocated rule's are those of the client alone.
    fn bucket(
        &self,
        rule: &Rule,
        granted: &Granted,
        client: &Client,
        attributes: &RequestAttributes,
    ) -> BucketId {
        let mut text = SmallVec::<[u8; INLINE_BYTES]>::new();
        let mut tagged = |tag: u8, value: &[u8]| {
            text.push(tag);
            text.extend_from_slice(&(value.len() as u64).to_be_bytes());
            text.extend_from_slice(value);
        };
        for dimension in &rule.per {
            match dimension {
                Dimension::Ip => client.address(self.clients.ipv6_prefix).tagged(&mut tagged),
                Dimension::Key => self.tag_key(rule, client, &mut tagged),
                Dimension::Plan => tagged(b'p', self.plan_name(client.plan).as_bytes()),
                Dimension::Route => {
                    let route = self.routes.get(attributes.route as usize);
                    tagged(b'r', route.map_or("", |route| &route.name).as_bytes());
                }
                Dimension::Method => tagged(b'm', attributes.method.as_str().as_bytes()),
                Dimension::Host => tagged(b'h', attributes.host.as_bytes()),
                Dimension::Header(header) => match attributes.headers.get(header) {
                    Some(value) => tagged(b'v', value.as_bytes()),
                    None => tagged(b'a', b""),
                },
                Dimension::Param(name) => match self.param(name, attributes) {
                    Some(value) => tagged(b'w', &value),
                    None => tagged(b'b', b""),
                },
                Dimension::Tenant => {
                    client.tenant().into_iter().for_each(|tenant| tenant.tagged(&mut tagged));
                }
                Dimension::Claim(name) => {
                    match client.principal().and_then(|known| known.claim(name)) {
                        Some(Claim { issuer, value }) => {
                            tagged(b'i', issuer.as_bytes());
                            tagged(b'x', value.as_bytes());
                        }
                        None => tagged(b'y', b""),
                    }
                }
                Dimension::Certificate => {
                    tagged(b'c', client.certificate.as_ref().map_or(&[], |digest| &digest[..]));
                }
            }
        }
        // Clients with different limits must not share a bucket.
        match granted.variant {
            Variant::Shared => {}
            Variant::Plan(plan) => tagged(b'P', self.plan_name(plan).as_bytes()),
            Variant::Tenant => {
                tagged(b'T', client.tenant.as_ref().map_or("", |tenant| &tenant.id).as_bytes());
            }
            Variant::Key => {
                tagged(b'K', client.principal().map_or("", |known| &known.id).as_bytes());
            }
        }
        let mut part = if text.is_empty() { HASH_OF_NOTHING } else { hash(&text) };
        if let Some(colocated) = rule.colocated {
            let mut hash = ClientHash::default();
            let add = |tag: u8, value: &[u8]| hash.add(tag, value);
            match client.tenant().filter(|_| colocated == Colocated::Tenant) {
                Some(tenant) => tenant.tagged(add),
                None => self.tag_key(rule, client, add),
            }
            part = hash.at_the_top_of(part);
        }
        BucketId(part ^ rule.salt)
    }

    /// The value of a parameter in the path of the route, decoded, so that all its spellings are
    /// one; in lower case if the case of paths does not matter. The router refuses paths whose
    /// readings have different values.
    fn param(&self, name: &str, attributes: &RequestAttributes) -> Option<Vec<u8>> {
        let route = self.routes.get(attributes.route as usize)?;
        let params = route.matcher.params(attributes.path);
        let (_, value) = params.iter().find(|(own, _)| *own == name)?;
        let mut decoded: Vec<u8> = percent_decode_str(value).collect();
        if self.server.ignore_path_case {
            decoded.make_ascii_lowercase();
        }
        Some(decoded)
    }

    /// The client's key, or what a rule counts by in place of one.
    fn tag_key(&self, rule: &Rule, client: &Client, tagged: impl FnOnce(u8, &[u8])) {
        if client.key == ClientKey::Missing && rule.on_missing == OnMissing::Shared {
            tagged(b's', b"");
        } else {
            client.identifier(self.clients.ipv6_prefix).tagged(tagged);
        }
    }
}

/// The first half of the SHA-256 of a text.
fn hash(text: &[u8]) -> u128 {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let mut first_half = [0; 16];
    first_half.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(first_half)
}

impl Rule {
    fn counts_keys(&self) -> bool {
        self.per.contains(&Dimension::Key)
    }

    /// Whether it counts the clients of a tenant together.
    pub fn counts_tenants(&self) -> bool {
        self.per.contains(&Dimension::Tenant) && !self.counts_keys()
    }

    /// Whether it is a rule per address whose bucket and limit are the same for each client that
    /// the file describes: it refuses a request whatever key that has. Clients of the key store may
    /// have a limit of their own.
    fn counts_all_clients_alike(&self) -> bool {
        let depends_on_key = |dimension: &Dimension| match dimension {
            Dimension::Key | Dimension::Plan | Dimension::Tenant | Dimension::Claim(_) => true,
            Dimension::Ip
            | Dimension::Route
            | Dimension::Method
            | Dimension::Host
            | Dimension::Header(_)
            | Dimension::Param(_)
            | Dimension::Certificate => false,
        };
        let is_for_all = |grant: &Option<Grant>| grant.is_some();
        self.enabled
            && self.per.contains(&Dimension::Ip)
            && !self.per.iter().any(depends_on_key)
            && self.mode == Mode::Enforce
            && self.enforced_thousandths >= Self::ALL_CLIENTS
            && self.candidate_of.is_none()
            && self.exempt.keys.is_empty()
            && self.grant_by_key.is_empty()
            && self.grant_by_tenant.is_empty()
            && !self.has_plan_tables()
            && self.grant_by_plan.iter().all(is_for_all)
    }

    /// The client as the rule counts it, for lists of clients: by tenant or by address if the rule
    /// is per `tenant` or `ip` and not per `key`; else by key, or by address if the client has no
    /// key. `None` if it has no address either.
    pub fn client_of<'a>(&self, clients: &Clients, client: &'a Client) -> Option<Identifier<'a>> {
        let prefix = clients.ipv6_prefix;
        if self.counts_tenants() {
            return client.tenant();
        }
        let identifier = if self.per.contains(&Dimension::Ip) && !self.counts_keys() {
            client.address(prefix)
        } else if clients.on_unknown_key == Some(OnUnknownKey::Accept) {
            client.identifier(prefix)
        } else {
            // An unknown key is refused or treated as no key.
            client.known_or_address(prefix)
        };
        (identifier != Identifier::Local).then_some(identifier)
    }

    /// Checks that the rule applies to the route with that index.
    pub(in crate::policy) fn applies_to_route(&self, route: u32) -> Result<(), WhyNot> {
        if !self.enabled {
            return Err(WhyNot::Disabled);
        }
        let applies = self.routes.as_ref().is_none_or(|routes| routes.contains(&route));
        if applies { Ok(()) } else { Err(WhyNot::OtherRoutes) }
    }

    /// Tokens that a request of the route takes from a bucket of the rule.
    pub fn cost_on(&self, route: &Route) -> Cost {
        self.cost.unwrap_or(route.cost)
    }

    /// Checks that the rule applies to the client.
    fn applies_to(&self, client: &Client, scope: Scope) -> Result<(), WhyNot> {
        let exempt = |ip| self.exempt.ips.iter().find(|net| net.contains(&ip));
        if let Some(net) = client.ip.and_then(exempt) {
            return Err(WhyNot::ExemptAddress(*net));
        }
        let key = client.principal().and_then(Principal::key_id);
        if key.is_some_and(|id| self.exempt.keys.contains(id)) {
            return Err(WhyNot::ExemptKey);
        }
        if client.certificate.is_none() && self.per.contains(&Dimension::Certificate) {
            return Err(WhyNot::NoCertificate);
        }
        let by_key = self.counts_keys();
        let by_address = self.per.contains(&Dimension::Ip)
            || (by_key && client.key == ClientKey::Missing && self.on_missing == OnMissing::Ip);
        if scope == Scope::Address {
            // A rule per key and address would combine the address with a key that does not exist.
            let applies = by_address && (!by_key || self.on_missing == OnMissing::Ip);
            let applies = applies && !self.per.contains(&Dimension::Tenant);
            return if applies { Ok(()) } else { Err(WhyNot::NotByAddress) };
        }
        match (by_key && client.key == ClientKey::Missing, self.on_missing) {
            (true, OnMissing::Skip) => Err(WhyNot::NoKeySkipped),
            (true, OnMissing::Deny) if scope == Scope::All => Err(WhyNot::NoKeyDenied),
            _ if client.tenant.is_none() && self.per.contains(&Dimension::Tenant) => {
                Err(WhyNot::NoTenant)
            }
            _ => Ok(()),
        }
    }

    /// The limit of the rule for a client; `None` if it has none for the client's plan.
    pub fn limit_of(&self, client: &Client) -> Option<Grant> {
        self.grant(client).map(|granted| granted.grant)
    }

    /// Whether a client has the rule's own limit, not one of its plan, its key or its tenant.
    fn has_own_limit(&self, client: &Client) -> bool {
        match self.grant_of(client) {
            GrantOf::Plan(plan) => !self.has_plan_table(plan),
            GrantOf::Key | GrantOf::Tenant => false,
        }
    }

    /// Whose grant a client has: that of its key, else of its tenant, else of a plan.
    pub fn grant_of(&self, client: &Client) -> GrantOf {
        if self.key_grant(client).is_some() {
            GrantOf::Key
        } else if self.tenant_grant(client).is_some() {
            GrantOf::Tenant
        } else {
            GrantOf::Plan(self.plan_of(client))
        }
    }

    fn key_grant<'a>(&'a self, client: &'a Client) -> Option<&'a Grant> {
        let principal = client.principal()?;
        // A client with grants of its own is none of the file.
        if !principal.own_grants.is_empty() {
            return principal.own_grant(self.salt);
        }
        if self.grant_by_key.is_empty() {
            return None;
        }
        self.grant_by_key.get(principal.key_id()?)
    }

    /// Whether the client has a grant of its own, so that it shares the bucket with no other.
    pub fn has_key_grant(&self, client: &Client) -> bool {
        self.key_grant(client).is_some()
    }

    fn tenant_grant(&self, client: &Client) -> Option<&Grant> {
        if self.grant_by_tenant.is_empty() {
            return None;
        }
        self.grant_by_tenant.get(&client.tenant.as_ref()?.id)
    }

    fn grant(&self, client: &Client) -> Option<Granted> {
        let by_key = self.counts_keys();
        if let Some(grant) = self.key_grant(client) {
            let variant = if by_key { Variant::Shared } else { Variant::Key };
            return Some(Granted { grant: *grant, variant });
        }
        if let Some(grant) = self.tenant_grant(client) {
            let is_separate = !by_key && !self.per.contains(&Dimension::Tenant);
            let variant = if is_separate { Variant::Tenant } else { Variant::Shared };
            return Some(Granted { grant: *grant, variant });
        }
        let plan = self.plan_of(client);
        let grant = self.grant_by_plan.get(plan as usize).copied().flatten()?;
        let is_separate =
            self.has_plan_table(plan) && !by_key && !self.per.contains(&Dimension::Plan);
        let variant = if is_separate { Variant::Plan(plan) } else { Variant::Shared };
        Some(Granted { grant, variant })
    }

    /// The plan whose grant a client has: that of its tenant if the rule counts its clients
    /// together, so that they have one limit; else its own.
    fn plan_of(&self, client: &Client) -> u32 {
        let tenant = client.tenant.as_deref().filter(|_| self.counts_tenants());
        tenant.and_then(|tenant| tenant.plan).unwrap_or(client.plan)
    }
}

#[cfg(test)]
mod tests;
