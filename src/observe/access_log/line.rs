//! What a line tells: one JSON object, with the same members in every line. What a request does
//! not have is `null`.

use serde::{Serialize, Serializer};

use super::Entry;
use crate::observe::address::Shown;
use crate::observe::time::Moment;
use crate::observe::traces::context::TraceId;
use crate::policy::client::ClientKey;

/// One line, in its order. `docs/observability.md` says what each member is.
#[derive(Serialize)]
struct Line<'a> {
    time: Moment,
    id: &'a str,
    trace_id: Option<TraceId>,
    key: Option<&'a str>,
    ip: Option<Shown>,
    plan: Option<&'a str>,
    method: &'a str,
    path: &'a str,
    route: Option<&'a str>,
    decision: &'static str,
    rule: Option<&'a str>,
    remaining: Option<u64>,
    source: Option<&'static str>,
    status: Option<u16>,
    bytes_in: u64,
    bytes_out: u64,
    upstream: Option<&'a str>,
    server: Option<std::net::SocketAddr>,
    total_ms: Milliseconds,
    check_ms: Option<Milliseconds>,
    upstream_ms: Option<Milliseconds>,
}

/// Ticks, shown as milliseconds with three decimals at most.
struct Milliseconds(u64);

impl Serialize for Milliseconds {
    #[allow(clippy::cast_precision_loss, reason = "a duration in ticks is far below 2^53")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1_000.0)
    }
}

/// Adds the line of `entry`, or nothing.
pub(super) fn append(lines: &mut Vec<u8>, entry: &Entry) -> serde_json::Result<()> {
    let before = lines.len();
    serde_json::to_writer(&mut *lines, &line(entry)).inspect_err(|_| lines.truncate(before))?;
    lines.push(b'\n');
    Ok(())
}

fn line(entry: &Entry) -> Line<'_> {
    let policy = &*entry.policy;
    let client = entry.client.as_ref();
    let key = client.and_then(|client| match client.key {
        ClientKey::Known(key) => policy.keys.get(key as usize),
        ClientKey::Missing | ClientKey::Unknown(_) => None,
    });
    let route = entry.route.and_then(|route| policy.routes.get(route as usize));
    let rule = entry.decided.rule.and_then(|rule| policy.rules.get(rule as usize));
    let upstream = route.and_then(|route| policy.upstreams.get(route.upstream as usize));
    let milliseconds = |ticks: Option<u64>| ticks.map(Milliseconds);
    Line {
        time: Moment(entry.time),
        id: &entry.request_id,
        trace_id: entry.trace_id,
        key: key.map(|key| &*key.id),
        ip: client.and_then(|client| Shown::of(client.ip?, policy)),
        plan: client.map(|client| policy.plan_name(client.plan)),
        method: entry.method.as_str(),
        path: &entry.path,
        route: route.map(|route| &*route.name),
        decision: entry.decided.decision,
        rule: rule.map(|rule| &*rule.name),
        remaining: entry.decided.remaining,
        source: entry.decided.source,
        status: entry.status,
        bytes_in: entry.bytes_in,
        bytes_out: entry.bytes_out,
        upstream: upstream.filter(|_| entry.server.is_some()).map(|upstream| &*upstream.name),
        server: entry.server,
        total_ms: Milliseconds(entry.timings.total),
        check_ms: milliseconds(entry.timings.check),
        upstream_ms: milliseconds(entry.timings.upstream),
    }
}
