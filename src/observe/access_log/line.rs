//! What a line tells: one JSON object, with the same members in every line. What a request does
//! not have is `null`. `docs/observability.md` says what each member is.

use super::Entry;
use super::json::Object;
use crate::observe::address::Shown;
use crate::observe::time::Moment;
use crate::policy::client::ClientKey;
use crate::policy::settings::Upstream;
use crate::policy::{Key, Route, Rule};

/// The most bytes of a method that are written. The longest that is registered has 17.
const MAX_METHOD_BYTES: usize = 64;

/// What an entry's policy has of it.
struct Known<'a> {
    key: Option<&'a Key>,
    ip: Option<Shown>,
    plan: Option<&'a str>,
    route: Option<&'a Route>,
    rule: Option<&'a Rule>,
    /// Where it was sent on.
    upstream: Option<&'a Upstream>,
}

/// Adds the line of `entry`.
pub(super) fn append(lines: &mut Vec<u8>, entry: &Entry) {
    let known = Known::of(entry);
    let mut line = Object::open(lines);
    line.moment("time", Moment(entry.time));
    line.string("id", Some(&entry.request_id));
    line.string("trace_id", entry.trace_id.map(|id| id.to_string()).as_deref());
    line.string("key", known.key.map(|key| &*key.id));
    line.shown("ip", known.ip);
    line.string("plan", known.plan);
    line.string("method", Some(shortened(entry.method.as_str())));
    line.string("path", Some(&entry.path));
    line.string("route", known.route.map(|route| &*route.name));
    line.string("decision", Some(entry.decided.decision));
    line.string("rule", known.rule.map(|rule| &*rule.name));
    line.number("remaining", entry.decided.remaining);
    line.string("source", entry.decided.source);
    line.number("status", entry.status.map(u64::from));
    line.number("bytes_in", Some(entry.bytes_in));
    line.number("bytes_out", Some(entry.bytes_out));
    line.string("upstream", known.upstream.map(|upstream| &*upstream.name));
    line.server("server", entry.server);
    line.milliseconds("total_ms", Some(entry.timings.total));
    line.milliseconds("check_ms", entry.timings.check);
    line.milliseconds("upstream_ms", entry.timings.upstream);
    line.close();
    lines.push(b'\n');
}

/// A method is ASCII, and may be as long as a head.
fn shortened(method: &str) -> &str {
    method.get(..MAX_METHOD_BYTES).unwrap_or(method)
}

impl<'a> Known<'a> {
    fn of(entry: &'a Entry) -> Self {
        let policy = &*entry.policy;
        let client = entry.client.as_ref();
        let key = client.and_then(|client| match client.key {
            ClientKey::Known(key) => policy.keys.get(key as usize),
            ClientKey::Missing | ClientKey::Unknown(_) => None,
        });
        let route = entry.route.and_then(|route| policy.routes.get(route as usize));
        let upstream = route.filter(|_| entry.server.is_some());
        Self {
            key,
            ip: client.and_then(|client| Shown::of(client.ip?, policy)),
            plan: client.map(|client| policy.plan_name(client.plan)),
            route,
            rule: entry.decided.rule.and_then(|rule| policy.rules.get(rule as usize)),
            upstream: upstream.and_then(|route| policy.upstreams.get(route.upstream as usize)),
        }
    }
}

#[cfg(test)]
mod tests;
