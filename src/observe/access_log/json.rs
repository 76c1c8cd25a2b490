//! A record as one line of JSON. Every line has the same members; a member without a value is
//! `null`. `docs/observability.md` lists them.
//!
//! The JSON is written by hand: serde takes more than twice as many instructions for a line. A
//! property test compares the result with serde's.

use std::borrow::Cow;
use std::net::SocketAddr;

use super::{Record, UpstreamTimes};
use crate::decide::label::source_label;
use crate::decide::reason::Reason;
use crate::observe::address::ShownAddress;
use crate::observe::time::UtcTime;
use crate::policy::client::ClientKey;
use crate::policy::settings::{KeySource, Upstream};
use crate::policy::{Key, Route, Rule};
use crate::text::{hex, put_ip};

/// Maximum length of a logged method, in bytes. The longest registered one has 17.
const MAX_METHOD_BYTES: usize = 64;

/// What the indexes of a record refer to in its policy.
struct Resolved<'a> {
    key: Option<&'a Key>,
    key_from: Option<&'a KeySource>,
    ip: Option<ShownAddress>,
    plan: Option<&'a str>,
    route: Option<&'a Route>,
    rule: Option<&'a Rule>,
    shadow_rules: Vec<&'a Rule>,
    /// `None` if the request was not forwarded.
    upstream: Option<&'a Upstream>,
}

/// Writes one JSON object. Member names are literals of this file, so they are not escaped.
struct Object<'a> {
    text: &'a mut Vec<u8>,
    /// Written before the next member: `{` or a comma.
    separator: u8,
}

/// Appends `record` and a line feed to `lines`.
pub(super) fn append(lines: &mut Vec<u8>, record: &Record) {
    let resolved = Resolved::of(record);
    let mut line = Object::open(lines);
    line.time("time", UtcTime(record.time));
    line.string("id", Some(&record.request_id));
    line.string("trace_id", record.trace_id.map(|id| id.to_string()).as_deref());
    line.number("generation", Some(record.generation));
    line.string("key", resolved.key.map(|key| &*key.id));
    line.string("key_from", resolved.key_from.map(key_source).as_deref());
    line.address("ip", resolved.ip);
    line.string("plan", resolved.plan);
    line.string("method", Some(truncated(record.method.as_str())));
    line.string("path", Some(&record.path));
    line.string("route", resolved.route.map(|route| &*route.name));
    line.string("decision", Some(record.decision.label.as_str()));
    line.string("rule", resolved.rule.map(|rule| &*rule.name));
    line.names("shadow_rules", resolved.shadow_rules.iter().map(|rule| &*rule.name));
    line.number("cost", record.decision.cost);
    line.number("remaining", record.decision.remaining);
    line.string("source", record.decision.source.map(source_label));
    line.string("reason", record.reason.map(Reason::label));
    line.number("status", record.status.map(u64::from));
    line.number("bytes_in", Some(record.bytes_in));
    line.number("bytes_out", Some(record.bytes_out));
    line.string("upstream", resolved.upstream.map(|upstream| &*upstream.name));
    line.server("server", record.server);
    line.milliseconds("total_ms", Some(record.timings.total));
    line.milliseconds("check_ms", record.timings.check);
    line.milliseconds("upstream_ms", record.timings.upstream);
    let UpstreamTimes { connect, request_body, first_byte, body, send } = record.timings.parts;
    line.string("connection", record.is_reused.map(connection));
    line.milliseconds("connect_ms", connect);
    line.milliseconds("request_body_ms", request_body);
    line.milliseconds("first_byte_ms", first_byte);
    line.milliseconds("body_ms", body);
    line.milliseconds("send_ms", send);
    line.close();
    lines.push(b'\n');
}

/// A source of keys as in the configuration file.
fn key_source(source: &KeySource) -> Cow<'static, str> {
    match source {
        KeySource::Bearer => Cow::Borrowed("bearer"),
        source => Cow::Owned(source.to_string()),
    }
}

const fn connection(is_reused: bool) -> &'static str {
    if is_reused { "reused" } else { "new" }
}

/// The first [`MAX_METHOD_BYTES`] of a method. Methods are ASCII.
fn truncated(method: &str) -> &str {
    method.get(..MAX_METHOD_BYTES).unwrap_or(method)
}

impl<'a> Resolved<'a> {
    fn of(record: &'a Record) -> Self {
        let policy = &*record.policy;
        let client = record.client.as_ref();
        let key = client.and_then(|client| match client.key {
            ClientKey::Known(key) => policy.keys.get(key as usize),
            ClientKey::Missing | ClientKey::Unknown(_) => None,
        });
        let route = record.route.and_then(|route| policy.routes.get(route as usize));
        let rule = |rule: u32| policy.rules.get(rule as usize);
        let upstream = route.filter(|_| record.server.is_some());
        Self {
            key,
            key_from: record.key_from.and_then(|from| policy.clients.key_sources.get(from)),
            ip: client.and_then(|client| ShownAddress::of(client.ip?, policy)),
            plan: client.map(|client| policy.plan_name(client.plan)),
            route,
            rule: record.decision.rule.and_then(rule),
            shadow_rules: record.shadow_rules.iter().copied().filter_map(rule).collect(),
            upstream: upstream.and_then(|route| policy.upstreams.get(route.upstream as usize)),
        }
    }
}

impl<'a> Object<'a> {
    fn open(text: &'a mut Vec<u8>) -> Self {
        Self { text, separator: b'{' }
    }

    fn close(self) {
        self.text.push(b'}');
    }

    /// Writes a member: the value as `put` formats it, or `null`.
    fn member<T>(&mut self, name: &str, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
        self.text.push(self.separator);
        self.separator = b',';
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
        match value {
            Some(value) => put(self.text, value),
            None => self.text.extend_from_slice(b"null"),
        }
    }

    /// Writes a string, escaped if necessary.
    fn string(&mut self, name: &str, value: Option<&str>) {
        self.member(name, value, |text, value| {
            if value.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                quote(text, |text| text.extend_from_slice(value.as_bytes()));
            } else {
                // Writing to a `Vec` cannot fail.
                let _ = serde_json::to_writer(text, value);
            }
        });
    }

    /// Writes an array of names from the configuration file, which contain no character to escape.
    fn names<'n>(&mut self, name: &str, values: impl Iterator<Item = &'n str>) {
        self.member(name, Some(values), |text, values| {
            text.push(b'[');
            for (index, value) in values.enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                quote(text, |text| text.extend_from_slice(value.as_bytes()));
            }
            text.push(b']');
        });
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        self.member(name, value, put_number);
    }

    /// Writes microseconds as milliseconds with one to three decimals.
    fn milliseconds(&mut self, name: &str, us: Option<u64>) {
        self.member(name, us, |text, us| {
            put_number(text, us / 1_000);
            let rest = us % 1_000;
            let digit = |place: u64| b"0123456789".get((place % 10) as usize).copied();
            let [tenth, hundredth, thousandth] =
                [rest / 100, rest / 10, rest].map(|place| digit(place).unwrap_or_default());
            text.extend([b'.', tenth]);
            if rest % 100 > 0 {
                text.push(hundredth);
            }
            if rest % 10 > 0 {
                text.push(thousandth);
            }
        });
    }

    fn time(&mut self, name: &str, time: UtcTime) {
        self.member(name, Some(time), |text, time| quote(text, |text| time.append_to(text)));
    }

    fn address(&mut self, name: &str, address: Option<ShownAddress>) {
        self.member(name, address, |text, address| {
            quote(text, |text| match address {
                ShownAddress::Plain(ip) => put_ip(text, ip),
                ShownAddress::Hashed(hash) => {
                    text.extend_from_slice(b"h:");
                    text.extend_from_slice(&hex(u64::from_be_bytes(hash)));
                }
            });
        });
    }

    fn server(&mut self, name: &str, server: Option<SocketAddr>) {
        self.member(name, server, |text, server| {
            quote(text, |text| {
                let SocketAddr::V4(server) = server else {
                    text.extend_from_slice(server.to_string().as_bytes());
                    return;
                };
                put_ip(text, (*server.ip()).into());
                text.push(b':');
                put_number(text, server.port().into());
            });
        });
    }
}

fn quote(text: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    text.push(b'"');
    put(text);
    text.push(b'"');
}

fn put_number(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests;
