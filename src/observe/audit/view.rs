//! A refusal run as the log, the stream in Redis and the admin API show it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Kind;
use crate::base::time::UtcTime;
use crate::limit::cost::Cost;

/// A refusal run. It contains no secret: keys are shown by their id, and addresses as
/// `access_log.client_ip` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RefusalRun"))]
pub struct RefusalRunView {
    /// Time of the first refusal, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub first: UtcTime,
    /// Time of the last refusal, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub last: UtcTime,
    /// Number of refusals in the run.
    pub count: u64,
    /// What happened to the requests.
    #[serde(default)]
    pub kind: Kind,
    /// Status of the responses; null for the kind `shadow`, whose requests were allowed.
    pub status: Option<u16>,
    /// Why the requests were refused, as in the access log; null for the kind `shadow`.
    pub reason: Option<Cow<'static, str>>,
    /// The id of the client's key; null for a client without a known key.
    pub key: Option<String>,
    /// `known`, `missing`, `unknown`, `refused` (such as a wrong password or an expired token) or
    /// `unverified` (it was not found out whose it is): the key of the requests; null if the file
    /// has no keys.
    pub key_state: Option<Cow<'static, str>>,
    /// Where the key was that no client is known by, such as `header:x-api-key`; else null.
    pub key_from: Option<String>,
    /// Name of the client's key, which `secrets` of the client gives it; null without one.
    pub key_name: Option<String>,
    /// Id of the client's tenant; null without one.
    pub tenant: Option<String>,
    /// The client's address at the first refusal.
    pub ip: Option<String>,
    /// Name of the rule; null if no rule refused the requests.
    pub rule: Option<String>,
    /// Name of the client's plan; null for the kind `unauthorized`.
    pub plan: Option<String>,
    /// Rate or limit of the rule for this client, such as `100/s`; null if no rule limits it.
    pub rate: Option<String>,
    /// The setting that `rate` shows: `rate` or `limit`; null if no rule limits the client.
    pub rate_is: Option<String>,
    /// Burst of the rule for this client, in tokens; null if no rule limits it.
    pub burst: Option<u64>,
    /// Name of the route of the last refusal; null if it matched none.
    pub route: Option<String>,
    /// Whether other refusals of the run were on other routes.
    #[serde(default)]
    pub other_routes: bool,
    /// Tokens that the last refused request would have taken; null for the kind `unauthorized`.
    pub cost: Option<Cost>,
    /// Whole tokens left under the rule at the last refusal; null if no bucket was read.
    pub tokens: Option<u64>,
    /// Generation of the configuration that refused the requests.
    #[serde(default)]
    pub generation: u64,
    /// Whether the run continues.
    #[serde(rename = "open", default)]
    pub is_open: bool,
    /// Name of the process that refused the requests; null without Redis.
    pub gateway: Option<String>,
}

impl RefusalRunView {
    /// Names and values for the stream in Redis; fields without a value are left out.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let fields = [
            ("first", Some(self.first.to_string())),
            ("last", Some(self.last.to_string())),
            ("count", number(Some(self.count))),
            ("kind", Some(self.kind.name().to_owned())),
            ("status", number(self.status.map(u64::from))),
            ("reason", self.reason.as_deref().map(str::to_owned)),
            ("key", self.key.clone()),
            ("key_state", self.key_state.as_deref().map(str::to_owned)),
            ("key_from", self.key_from.clone()),
            ("key_name", self.key_name.clone()),
            ("tenant", self.tenant.clone()),
            ("ip", self.ip.clone()),
            ("rule", self.rule.clone()),
            ("plan", self.plan.clone()),
            ("rate", self.rate.clone()),
            ("rate_is", self.rate_is.clone().filter(|setting| setting != "rate")),
            ("burst", number(self.burst)),
            ("route", self.route.clone()),
            ("other_routes", self.other_routes.then(|| "true".to_owned())),
            ("cost", self.cost.map(|cost| cost.to_string())),
            ("tokens", number(self.tokens)),
            ("generation", number(Some(self.generation))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
