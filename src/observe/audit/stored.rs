//! Refusal runs and changes as they are read from a stream in Redis. Any program with access to
//! Redis may have written them, also an older gateway: text is cut and has no control characters.

use std::borrow::Cow;
use std::collections::HashMap;

use super::changes::CLIENTS_AT_ONCE;
use super::{ChangeView, Kind, Query, RefusalRunView};
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::limit::cost::Cost;

/// Maximum length of a text in characters. Names in the file are shorter.
const MAX_CHARACTERS: usize = 128;

/// Maximum length of what was changed, in characters.
const MAX_WHAT: usize = 1_000;

/// The text of a field.
fn text(fields: &HashMap<Vec<u8>, Vec<u8>>, name: &str, max: usize) -> Option<String> {
    let value = fields.get(name.as_bytes())?;
    Some(cut(&String::from_utf8_lossy(value), max))
}

impl ChangeView {
    /// The change that a record of the stream of changes describes; `None` if it describes none.
    pub fn stored(fields: &HashMap<Vec<u8>, Vec<u8>>) -> Option<Self> {
        let text = |name: &str| text(fields, name, MAX_CHARACTERS);
        let ids = |name: &str| -> Vec<String> {
            let ids = fields.get(name.as_bytes()).map(|ids| String::from_utf8_lossy(ids));
            let ids = ids.as_deref().map(|ids| ids.split(',')).into_iter().flatten();
            ids.take(CLIENTS_AT_ONCE).map(|id| cut(id, MAX_CHARACTERS)).collect()
        };
        Some(Self {
            at: UtcTime::parse(&text("at")?)?,
            by: text("by")?,
            peer: text("peer"),
            call: text("call")?,
            status: text("status")?.parse().ok()?,
            what: self::text(fields, "what", MAX_WHAT)?,
            clients: ids("clients"),
            tenants: ids("tenants"),
            gateway: text("gateway"),
        })
    }
}

impl RefusalRunView {
    /// The run that a record of the stream of `kind` describes; `None` if it describes none.
    pub fn stored(kind: Kind, fields: &HashMap<Vec<u8>, Vec<u8>>) -> Option<Self> {
        let text = |name: &str| text(fields, name, MAX_CHARACTERS);
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        let time = |name: &str| UtcTime::parse(&text(name)?);
        Some(Self {
            first: time("first")?,
            last: time("last")?,
            count: number("count")?,
            kind,
            status: kind.status(),
            reason: text("reason").map(Cow::Owned),
            key: text("key"),
            key_state: text("key_state").map(Cow::Owned),
            key_from: text("key_from"),
            key_name: text("key_name"),
            tenant: text("tenant"),
            ip: text("ip"),
            rule: text("rule"),
            plan: text("plan"),
            rate: text("rate"),
            rate_is: text("rate_is").or_else(|| text("rate").map(|_| "rate".to_owned())),
            burst: number("burst"),
            route: text("route"),
            other_routes: fields.contains_key(&b"other_routes"[..]),
            cost: text("cost").and_then(|cost| Cost::parse(&cost)),
            tokens: number("tokens"),
            generation: number("generation").unwrap_or_default(),
            is_open: false,
            gateway: text("gateway"),
        })
    }

    /// Whether the run matches a query, as a run in memory does.
    pub fn matches(&self, query: &Query) -> bool {
        let is = |own: &Option<String>, wanted: &Option<String>| {
            wanted.is_none() || own.as_ref() == wanted.as_ref()
        };
        query.kinds.as_ref().is_none_or(|kinds| kinds.contains(&self.kind))
            && is(&self.key, &query.key)
            && is(&self.tenant, &query.tenant)
            && is(&self.ip, &query.ip.map(|ip| ip.to_string()))
            && is(&self.rule, &query.rule)
            && query.since.is_none_or(|since| self.last.0 >= since)
            && query.until.is_none_or(|until| self.first.0 <= until)
    }

    /// Whether both describe one run: the one in memory, and its record in the stream.
    pub fn is_same_run(&self, other: &Self) -> bool {
        let id = |run: &Self| {
            (
                run.first.0,
                run.kind,
                run.generation,
                run.key.clone(),
                run.key_name.clone(),
                run.tenant.clone(),
                run.ip.clone(),
                run.rule.clone(),
            )
        };
        id(self) == id(other) && self.reason == other.reason && self.key_from == other.key_from
    }
}
