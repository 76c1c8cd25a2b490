//! How a rule meets a request: whether it counts it, why not, and what it grants.

use ipnet::IpNet;

use crate::policy::client::{Client, ClientKey};
use crate::policy::{Dimension, Grant, OnMissing, Rule};

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
pub(super) struct Granted {
    pub(super) grant: Grant,
    pub(super) variant: Variant,
}

/// What sets a bucket apart beside the rule's own dimensions.
pub(super) enum Variant {
    Shared,
    Plan(u32),
    Key(u32),
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
    pub(super) fn meets(&self, client: &Client, scope: Scope) -> Result<(), WhyNot> {
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

    pub(super) fn grant(&self, client: &Client) -> Option<Granted> {
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
