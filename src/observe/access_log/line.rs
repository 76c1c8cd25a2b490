//! What a line tells: one JSON object, with the same members in every line. What a request does
//! not have is `null`. `docs/observability.md` says what each member is.

use super::Record;
use super::json::Object;
use crate::observe::address::ShownAddress;
use crate::observe::time::Moment;
use crate::policy::client::ClientKey;
use crate::policy::settings::Upstream;
use crate::policy::{Key, Route, Rule};

/// The most bytes of a method that are written. The longest that is registered has 17.
const MAX_METHOD_BYTES: usize = 64;

/// What an record's policy has of it.
struct Known<'a> {
    key: Option<&'a Key>,
    ip: Option<ShownAddress>,
    plan: Option<&'a str>,
    route: Option<&'a Route>,
    rule: Option<&'a Rule>,
    /// Where it was sent on.
    upstream: Option<&'a Upstream>,
}

/// Adds the line of `record`.
pub(super) fn append(lines: &mut Vec<u8>, record: &Record) {
    let known = Known::of(record);
    let mut line = Object::open(lines);
    line.moment("time", Moment(record.time));
    line.string("id", Some(&record.request_id));
    line.string("trace_id", record.trace_id.map(|id| id.to_string()).as_deref());
    line.string("key", known.key.map(|key| &*key.id));
    line.shown("ip", known.ip);
    line.string("plan", known.plan);
    line.string("method", Some(shortened(record.method.as_str())));
    line.string("path", Some(&record.path));
    line.string("route", known.route.map(|route| &*route.name));
    line.string("decision", Some(record.decided.decision));
    line.string("rule", known.rule.map(|rule| &*rule.name));
    line.number("remaining", record.decided.remaining);
    line.string("source", record.decided.source);
    line.number("status", record.status.map(u64::from));
    line.number("bytes_in", Some(record.bytes_in));
    line.number("bytes_out", Some(record.bytes_out));
    line.string("upstream", known.upstream.map(|upstream| &*upstream.name));
    line.server("server", record.server);
    line.milliseconds("total_ms", Some(record.timings.total));
    line.milliseconds("check_ms", record.timings.check);
    line.milliseconds("upstream_ms", record.timings.upstream);
    line.close();
    lines.push(b'\n');
}

/// A method is ASCII, and may be as long as a head.
fn shortened(method: &str) -> &str {
    method.get(..MAX_METHOD_BYTES).unwrap_or(method)
}

impl<'a> Known<'a> {
    fn of(record: &'a Record) -> Self {
        let policy = &*record.policy;
        let client = record.client.as_ref();
        let key = client.and_then(|client| match client.key {
            ClientKey::Known(key) => policy.keys.get(key as usize),
            ClientKey::Missing | ClientKey::Unknown(_) => None,
        });
        let route = record.route.and_then(|route| policy.routes.get(route as usize));
        let upstream = route.filter(|_| record.server.is_some());
        Self {
            key,
            ip: client.and_then(|client| ShownAddress::of(client.ip?, policy)),
            plan: client.map(|client| policy.plan_name(client.plan)),
            route,
            rule: record.decided.rule.and_then(|rule| policy.rules.get(rule as usize)),
            upstream: upstream.and_then(|route| policy.upstreams.get(route.upstream as usize)),
        }
    }
}

#[cfg(test)]
mod tests;
