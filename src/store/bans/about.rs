//! [`About`]: who is banned, for operators.

use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::policy::{Policy, Rule};

/// Who is banned, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Name of the rule.
    pub rule: String,
    /// What identifies the client: `key`, `token`, `tenant`, `ip` or `unknown_key`.
    pub kind: String,
    /// Its name.
    pub id: String,
    /// Its tenant, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The operator who has banned it; `None`: its refusals have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, as that operator says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl About {
    /// The tenant that it is or belongs to.
    pub fn tenant_id(&self) -> Option<&str> {
        self.tenant.as_deref().or_else(|| (self.kind == "tenant").then_some(&self.id))
    }

    /// A client as a rule counts it.
    pub fn of(policy: &Policy, rule: &Rule, client: &Client) -> Self {
        let prefix = policy.clients.ipv6_prefix;
        let shown = rule.client_of(&policy.clients, client).map(|client| client.shown(prefix));
        let (kind, id) = shown.unwrap_or_default();
        // Of an address, others may share the ban.
        let tenant = client.tenant.as_ref().filter(|_| matches!(kind, "key" | "token"));
        Self {
            rule: rule.name.to_string(),
            kind: kind.to_owned(),
            id,
            tenant: tenant.map(|tenant| tenant.id.to_string()),
            by: None,
            reason: None,
        }
    }
}
