//! [`Changes`]: what callers of the admin API have changed, and who. Pure, and bounded.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::base::time::UtcTime;

/// Name of the stream in Redis, after the prefix.
pub const STREAM: &str = "audit:changes";

/// Who makes a change: a client that replaces its own key.
pub const CLIENT: &str = "client";

/// Maximum number of changes that are kept.
const MAX_CHANGES: usize = 10_000;

/// Maximum number of clients that the changes kept name together: 64 bytes each at most.
const MAX_CLIENTS: usize = 100_000;

/// Maximum number of clients that one change names: an import is several.
pub(super) const CLIENTS_AT_ONCE: usize = 500;

/// A change that a caller of the admin API has made. It contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdminChange"))]
pub struct ChangeView {
    /// When, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub at: UtcTime,
    /// Who: the name of the token; `token` for `admin.token`, `loopback` without tokens; for a
    /// client that rotates its own key, `client`.
    pub by: String,
    /// Address and port of the caller; null if it has none.
    pub peer: Option<String>,
    /// Method and path of the call, such as `POST /api/keys/{id}/rotate`.
    pub call: String,
    /// Status of the response.
    pub status: u16,
    /// What was changed.
    pub what: String,
    /// Ids of the clients of the key store, or of the file, that the change is about.
    #[serde(default)]
    pub clients: Vec<String>,
    /// Ids of the tenants of these clients, before the change and after it, each once.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// Name of the process that was called; null without Redis.
    pub gateway: Option<String>,
}

/// Which changes to return. A field that is `None` does not restrict them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeQuery<'a> {
    /// Only those about this client.
    pub client: Option<&'a str>,
    /// Only those about this tenant or its clients.
    pub tenant: Option<&'a str>,
    /// Only those about clients of one tenant, if that is known, and of no other.
    pub is_of_one_tenant: bool,
    /// Only those since then, in microseconds since 1970.
    pub since: Option<u64>,
    /// Only those until then.
    pub until: Option<u64>,
    /// Only those by this caller.
    pub by: Option<&'a str>,
    /// Only those of stored clients and their API keys.
    pub of_keys: bool,
}

/// The latest changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// In the order in which they were made.
    list: VecDeque<ChangeView>,
    /// Number of clients and tenants that they name.
    clients: usize,
    /// When the last one was made that is not kept any more, in microseconds since 1970; 0: none.
    dropped_until_us: u64,
}

impl ChangeView {
    /// Whether it is one of those that the query asks for.
    pub fn matches(&self, query: &ChangeQuery<'_>) -> bool {
        query.client.is_none_or(|client| self.clients.iter().any(|own| own == client))
            && query.tenant.is_none_or(|tenant| self.tenants.iter().any(|own| own == tenant))
            && (!query.is_of_one_tenant || self.tenants.len() == 1)
            && query.since.is_none_or(|since| self.at.0 >= since)
            && query.until.is_none_or(|until| self.at.0 <= until)
            && query.by.is_none_or(|by| self.by == by)
            && (!query.of_keys || self.is_of_keys())
    }

    /// Whether it is about a stored client, by an operator or by the client itself.
    fn is_of_keys(&self) -> bool {
        self.by == CLIENT || self.call.contains(" /api/keys")
    }

    /// Number of clients and tenants that it names.
    fn named(&self) -> usize {
        self.clients.len() + self.tenants.len()
    }

    /// Names and values for the stream in Redis.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let joined = |ids: &[String]| (!ids.is_empty()).then(|| ids.join(","));
        let fields = [
            ("at", Some(self.at.to_string())),
            ("by", Some(self.by.clone())),
            ("peer", self.peer.clone()),
            ("call", Some(self.call.clone())),
            ("status", Some(self.status.to_string())),
            ("what", Some(self.what.clone())),
            ("clients", joined(&self.clients)),
            ("tenants", joined(&self.tenants)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl Changes {
    /// Keeps a change, and drops the oldest ones beyond the bounds.
    pub(super) fn add(&mut self, change: ChangeView) {
        self.clients += change.named();
        self.list.push_back(change);
        while self.list.len() > MAX_CHANGES || self.clients > MAX_CLIENTS {
            let Some(dropped) = self.list.pop_front() else { return };
            self.clients = self.clients.saturating_sub(dropped.named());
            self.dropped_until_us = dropped.at.0;
        }
    }

    /// The changes that match, the latest first, and the number of those beyond `limit`.
    pub(super) fn find(&self, query: &ChangeQuery<'_>, limit: usize) -> (Vec<ChangeView>, usize) {
        let mut matching = self.list.iter().rev().filter(|change| change.matches(query));
        let found = matching.by_ref().take(limit).cloned().collect();
        (found, matching.count())
    }

    /// Time since which all changes are kept, in microseconds since 1970; 0: none was dropped.
    pub(super) const fn kept_since_us(&self) -> u64 {
        self.dropped_until_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: u64, clients: &[&str]) -> ChangeView {
        let clients = clients.iter().map(|&id| id.to_owned()).collect();
        ChangeView { at: UtcTime(at), clients, ..ChangeView::default() }
    }

    #[test]
    fn changes_are_found_by_client_and_time_the_latest_first() {
        let mut changes = Changes::default();
        for at in 1..=5 {
            changes.add(change(at, if at % 2 == 0 { &["a", "b"] } else { &["b"] }));
        }
        let found = |client, since, until, limit| {
            let (found, more) = changes
                .find(&ChangeQuery { client, since, until, ..ChangeQuery::default() }, limit);
            (found.iter().map(|change| change.at.0).collect::<Vec<_>>(), more)
        };
        assert_eq!(found(None, None, None, 9), (vec![5, 4, 3, 2, 1], 0));
        assert_eq!(found(Some("a"), None, None, 9), (vec![4, 2], 0));
        assert_eq!(found(Some("b"), Some(2), Some(4), 2), (vec![4, 3], 1));
        assert_eq!(found(Some("c"), None, None, 9), (vec![], 0));
    }

    #[test]
    fn changes_are_found_by_tenant() {
        let of = |at: u64, tenants: &[&str]| ChangeView {
            tenants: tenants.iter().map(|&id| id.to_owned()).collect(),
            ..change(at, &["a"])
        };
        let mut changes = Changes::default();
        for (at, tenants) in
            [(1, &["acme"][..]), (2, &["acme", "globex"]), (3, &["globex"]), (4, &[])]
        {
            changes.add(of(at, tenants));
        }
        let found = |is_of_one_tenant| {
            let query =
                ChangeQuery { tenant: Some("acme"), is_of_one_tenant, ..ChangeQuery::default() };
            let (found, _) = changes.find(&query, 9);
            found.iter().map(|change| change.at.0).collect::<Vec<_>>()
        };
        assert_eq!((found(false), found(true)), (vec![2, 1], vec![1]));
    }

    #[test]
    fn changes_are_found_by_caller_and_by_what_they_are_about() {
        let made = |by: &str, call: &str| ChangeView {
            by: by.to_owned(),
            call: call.to_owned(),
            ..ChangeView::default()
        };
        let mut changes = Changes::default();
        changes.add(made("billing", "POST /api/keys/{id}/rotate"));
        changes.add(made("on-call", "POST /api/breaker"));
        changes.add(made(CLIENT, "POST /limits"));
        let found = |by, of_keys| {
            let (found, _) = changes.find(&ChangeQuery { by, of_keys, ..Default::default() }, 9);
            found.into_iter().map(|change| change.by).collect::<Vec<_>>()
        };
        assert_eq!(found(None, false), ["client", "on-call", "billing"]);
        assert_eq!(found(None, true), ["client", "billing"]);
        assert_eq!(found(Some("on-call"), false), ["on-call"]);
        assert_eq!(found(Some("on-call"), true), [""; 0]);
    }

    #[test]
    fn number_of_changes_and_of_their_clients_is_bounded() {
        let mut changes = Changes::default();
        for at in 0..MAX_CHANGES as u64 + 10 {
            changes.add(change(at, &[]));
        }
        assert_eq!((changes.list.len(), changes.kept_since_us()), (MAX_CHANGES, 9));
        let many = vec!["x"; CLIENTS_AT_ONCE];
        for at in 0..1_000 {
            changes.add(change(at, &many));
        }
        assert_eq!(changes.clients, MAX_CLIENTS);
        assert_eq!(changes.list.len(), MAX_CLIENTS / CLIENTS_AT_ONCE);
    }
}
