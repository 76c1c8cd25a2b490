//! What a request owes: the rules that apply to it, and the bucket of each.

use http::{HeaderMap, Method};
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::client::{Client, ClientKey, counted_address};
use super::{Dimension, Grant, MAX_RULES_PER_ROUTE, OnMissing, Policy, Route, Rule};
use crate::limit::charge::{BucketId, Charge, Charges, Mode};

/// What is hashed to a bucket's name, in bytes, up to which nothing is allocated for it.
const INLINE_BYTES: usize = 128;

/// What rules may look at in a request, beside its client.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Index of its route.
    pub route: u32,
    /// Its method.
    pub method: &'a Method,
    /// Its host, in lower case, without port.
    pub host: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

/// A rule that demands a key of a client that sent none (`on_missing = "deny"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRequired {
    /// Index of the rule.
    pub rule: u32,
}

/// Which rules count a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All that apply.
    All,
    /// Those that count the client by its address, as one without a key.
    Address,
}

/// Why a rule does not count a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNot {
    /// `enabled = false`.
    Disabled,
    /// The rule lists routes, and the request's is not among them.
    OtherRoutes,
    /// The client's address is exempt, as part of this network.
    ExemptAddress(IpNet),
    /// The client's key is exempt.
    ExemptKey,
    /// The client has no key, and `on_missing = "skip"`.
    NoKeySkipped,
    /// The client has no key, and `on_missing = "deny"`: a rule that is enforced refuses it.
    NoKeyDenied,
    /// The rule has no rate for the client's plan.
    NoRate,
    /// The request is refused for its key, and the rule does not count by address.
    NotByAddress,
}

/// What a rule grants a client, and who shares it beyond what the rule says.
struct Granted {
    grant: Grant,
    variant: Variant,
}

/// What sets a bucket apart beside the rule's own dimensions.
enum Variant {
    Shared,
    Plan(u32),
    Key(u32),
}

impl Policy {
    /// The charges of a request, in the order of the file.
    ///
    /// # Errors
    /// A rule demands a key and the client has none.
    pub fn charges(&self, client: &Client, facts: &Facts) -> Result<Charges, KeyRequired> {
        self.collect(client, facts, Scope::All)
    }

    /// What one rule charges, by its index, as [`charges`](Self::charges) and
    /// [`address_charges`](Self::address_charges) find it.
    ///
    /// # Errors
    /// Why it charges nothing.
    pub fn charge(
        &self,
        index: u32,
        client: &Client,
        facts: &Facts,
        scope: Scope,
    ) -> Result<Charge, WhyNot> {
        let rule = self.rules.get(index as usize).ok_or(WhyNot::Disabled)?;
        let route = self.routes.get(facts.route as usize).ok_or(WhyNot::OtherRoutes)?;
        rule.counts(facts.route)?;
        self.charge_of((index, rule), route, &self.counted(client, scope), facts, scope)
    }

    /// The charges of a request that is about to be answered 401: those rules count it that count
    /// by address, so that guessing keys costs what any other request costs, and an unknown key
    /// gets no bucket of its own.
    pub fn address_charges(&self, client: &Client, facts: &Facts) -> Charges {
        self.collect(client, facts, Scope::Address).unwrap_or_default()
    }

    /// The charges of a request that goes to no route and may be a guess at a key, of one token
    /// each: as [`address_charges`](Self::address_charges), by each rule as on the first route that
    /// it counts. No more rules charge it than a route may have: the first ones in the file.
    pub fn address_charges_anywhere(
        &self,
        client: &Client,
        method: &Method,
        host: &str,
        headers: &HeaderMap,
    ) -> Charges {
        let charge = |index| {
            let facts = Facts { route: self.routes_of(index).next()?, method, host, headers };
            let charge = self.charge(index, client, &facts, Scope::Address).ok()?;
            Some(Charge { cost: 1, ..charge })
        };
        (0..).take(self.rules.len()).filter_map(charge).take(MAX_RULES_PER_ROUTE).collect()
    }

    /// The routes that the rule of that index counts, as indexes; none of a rule that is not
    /// enabled.
    pub fn routes_of(&self, rule: u32) -> impl Iterator<Item = u32> {
        let rule = self.rules.get(rule as usize);
        let routes = (0..).zip(&self.routes).map(|(index, _)| index);
        routes.filter(move |route| rule.is_some_and(|rule| rule.counts(*route).is_ok()))
    }

    /// The shadow rules that would demand a key of the client, were they enforced; as indexes.
    pub fn shadow_demands(&self, client: &Client, route: u32) -> impl Iterator<Item = u32> {
        let rules = self.routes.get(route as usize).map_or(&[][..], |route| &route.rules);
        let demands = |rule: &Rule| {
            rule.mode == Mode::Shadow
                && rule.applies_to(client, Scope::All) == Err(WhyNot::NoKeyDenied)
        };
        rules
            .iter()
            .copied()
            .filter(move |index| self.rules.get(*index as usize).is_some_and(demands))
    }

    fn collect(
        &self,
        client: &Client,
        facts: &Facts,
        scope: Scope,
    ) -> Result<Charges, KeyRequired> {
        let Some(route) = self.routes.get(facts.route as usize) else { return Ok(Charges::new()) };
        let mut charges = Charges::with_capacity(route.rules.len());
        let client = self.counted(client, scope);
        for &index in &route.rules {
            let Some(rule) = self.rules.get(index as usize) else { continue };
            match self.charge_of((index, rule), route, &client, facts, scope) {
                Ok(charge) => charges.push(charge),
                // A shadow rule refuses nobody; its demand is told by `shadow_demands`.
                Err(WhyNot::NoKeyDenied) if rule.mode == Mode::Enforce => {
                    return Err(KeyRequired { rule: index });
                }
                Err(_) => {}
            }
        }
        Ok(charges)
    }

    /// The client as rules see it: one that is refused for its key counts as one without.
    pub fn counted(&self, client: &Client, scope: Scope) -> Client {
        match scope {
            Scope::All => *client,
            Scope::Address => {
                Client { key: ClientKey::Missing, plan: self.clients.anonymous_plan, ..*client }
            }
        }
    }

    /// What a rule charges that counts the request's route.
    fn charge_of(
        &self,
        (index, rule): (u32, &Rule),
        route: &Route,
        client: &Client,
        facts: &Facts,
        scope: Scope,
    ) -> Result<Charge, WhyNot> {
        rule.applies_to(client, scope)?;
        let granted = rule.grant(client).ok_or(WhyNot::NoRate)?;
        Ok(Charge {
            bucket: self.bucket(rule, &granted, client, facts),
            rule: index,
            limit_index: granted.grant.index,
            limit: granted.grant.limit,
            cost: route.cost,
            mode: rule.mode,
        })
    }

    /// The name of the bucket: a hash over what the rule counts per, each value behind a tag and
    /// its length so that no two combinations of values read alike, set apart by the rule's salt.
    fn bucket(&self, rule: &Rule, granted: &Granted, client: &Client, facts: &Facts) -> BucketId {
        let mut text = SmallVec::<[u8; INLINE_BYTES]>::new();
        let mut tagged = |tag: u8, value: &[u8]| {
            text.push(tag);
            text.extend_from_slice(&(value.len() as u64).to_be_bytes());
            text.extend_from_slice(value);
        };
        for dimension in &rule.per {
            match dimension {
                Dimension::Ip => self.tag_address(client, &mut tagged),
                Dimension::Key => match client.key {
                    ClientKey::Known(key) => tagged(b'k', self.key_id(key).as_bytes()),
                    ClientKey::Unknown(digest) => tagged(b'u', &digest),
                    ClientKey::Missing if rule.on_missing == OnMissing::Shared => tagged(b's', b""),
                    ClientKey::Missing => self.tag_address(client, &mut tagged),
                },
                Dimension::Plan => tagged(b'p', self.plan_name(client.plan).as_bytes()),
                Dimension::Route => {
                    let route = self.routes.get(facts.route as usize);
                    tagged(b'r', route.map_or("", |route| &route.name).as_bytes());
                }
                Dimension::Method => tagged(b'm', facts.method.as_str().as_bytes()),
                Dimension::Host => tagged(b'h', facts.host.as_bytes()),
                Dimension::Header(header) => match facts.headers.get(header) {
                    Some(value) => tagged(b'v', value.as_bytes()),
                    None => tagged(b'a', b""),
                },
            }
        }
        // Clients with different limits must not share a bucket.
        match granted.variant {
            Variant::Shared => {}
            Variant::Plan(plan) => tagged(b'P', self.plan_name(plan).as_bytes()),
            Variant::Key(key) => tagged(b'K', self.key_id(key).as_bytes()),
        }
        let digest: [u8; 32] = Sha256::digest(&text).into();
        let mut first_half = [0; 16];
        first_half.copy_from_slice(&digest[..16]);
        BucketId(u128::from_be_bytes(first_half) ^ rule.salt)
    }

    fn tag_address(&self, client: &Client, tagged: &mut impl FnMut(u8, &[u8])) {
        match client.ip.map(|ip| counted_address(ip, self.clients.ipv6_prefix)) {
            Some(std::net::IpAddr::V4(ip)) => tagged(b'4', &ip.octets()),
            Some(std::net::IpAddr::V6(ip)) => tagged(b'6', &ip.octets()),
            None => tagged(b'l', b""),
        }
    }

    fn key_id(&self, key: u32) -> &str {
        self.keys.get(key as usize).map_or("", |key| &key.id)
    }
}

impl Rule {
    fn counts_keys(&self) -> bool {
        self.per.contains(&Dimension::Key)
    }

    /// Whether it counts requests to that route.
    pub(in crate::policy) fn counts(&self, route: u32) -> Result<(), WhyNot> {
        if !self.enabled {
            return Err(WhyNot::Disabled);
        }
        let counted = self.routes.as_ref().is_none_or(|routes| routes.contains(&route));
        if counted { Ok(()) } else { Err(WhyNot::OtherRoutes) }
    }

    /// Whether it counts that client.
    fn applies_to(&self, client: &Client, scope: Scope) -> Result<(), WhyNot> {
        let exempt = |ip| self.exempt.ips.iter().find(|net| net.contains(&ip));
        if let Some(net) = client.ip.and_then(exempt) {
            return Err(WhyNot::ExemptAddress(*net));
        }
        if matches!(client.key, ClientKey::Known(key) if self.exempt.keys.contains(&key)) {
            return Err(WhyNot::ExemptKey);
        }
        let by_key = self.counts_keys();
        let by_address = self.per.contains(&Dimension::Ip)
            || (by_key && client.key == ClientKey::Missing && self.on_missing == OnMissing::Ip);
        if scope == Scope::Address {
            // A rule per key and address would pair the address with a key that does not exist.
            let counts = by_address && (!by_key || self.on_missing == OnMissing::Ip);
            return if counts { Ok(()) } else { Err(WhyNot::NotByAddress) };
        }
        match (by_key && client.key == ClientKey::Missing, self.on_missing) {
            (true, OnMissing::Skip) => Err(WhyNot::NoKeySkipped),
            (true, OnMissing::Deny) => Err(WhyNot::NoKeyDenied),
            _ => Ok(()),
        }
    }

    fn grant(&self, client: &Client) -> Option<Granted> {
        if let ClientKey::Known(key) = client.key
            && let Some(grant) = self.quota_by_key.get(&key)
        {
            let variant = if self.counts_keys() { Variant::Shared } else { Variant::Key(key) };
            return Some(Granted { grant: *grant, variant });
        }
        let grant = self.quota_by_plan.get(client.plan as usize).copied().flatten()?;
        let apart = self.has_own_quota(client.plan)
            && !self.counts_keys()
            && !self.per.contains(&Dimension::Plan);
        let variant = if apart { Variant::Plan(client.plan) } else { Variant::Shared };
        Some(Granted { grant, variant })
    }
}

#[cfg(test)]
mod tests;
