//! A record as one line of JSON. Every line has the members that the policy lists; a member without
//! a value is `null`. `docs/observability.md` lists them.
//!
//! The JSON is written by hand: serde takes more than twice as many instructions for a line. A
//! property test compares the result with serde's.

use std::borrow::Cow;
use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::{Record, RequestParts, beginning};
use crate::base::text::{hex, put_ip};
use crate::base::time::UtcTime;
use crate::client::Client;
use crate::client::principal::Principal;
use crate::client::settings::KeySource;
use crate::decide::label::source_label;
use crate::decide::reason::Reason;
use crate::observe::address::ShownAddress;
use crate::policy::access_log::fields::{Extra, Field, Fields, Name};
use crate::policy::settings::Upstream;
use crate::policy::{Route, Rule};

/// Maximum length of a logged method, in bytes. The longest registered one has 17.
const MAX_METHOD_BYTES: usize = 64;

/// Maximum length of the logged text of a header, a subject or a server name, in bytes.
const MAX_TEXT_BYTES: usize = 1_024;

/// What the indexes of a record refer to in its policy.
struct Resolved<'a> {
    key: Option<&'a Principal>,
    key_from: Option<&'a KeySource>,
    tenant: Option<&'a str>,
    ip: Option<ShownAddress>,
    plan: Option<&'a str>,
    route: Option<&'a Route>,
    rule: Option<&'a Rule>,
    shadow_rules: Vec<&'a Rule>,
    /// `None` if the request was not forwarded.
    upstream: Option<&'a Upstream>,
}

/// Writes one JSON object. Member names are those of [`Field::member`], which have no character to
/// escape.
struct Object<'a> {
    text: &'a mut Vec<u8>,
    /// Written before the next member: `{` or a comma.
    separator: u8,
}

/// Appends `record` and a line feed to `lines`.
pub(super) fn append(lines: &mut Vec<u8>, record: &Record, request: &RequestParts<'_>) {
    let resolved = Resolved::of(record);
    let mut line = Object::open(lines);
    match &record.policy.access_log.fields {
        Fields::All => put_all(&mut line, record, &resolved),
        Fields::Listed(fields) => {
            for field in fields {
                match field {
                    Field::Name(name) => put_one(*name, &mut line, record, &resolved),
                    Field::Extra(Extra::Costs) => put_costs(&mut line, record, request),
                    Field::Extra(extra) => put_extra(*extra, &mut line, request),
                    Field::Header(header) => {
                        let text = header_text(request.headers, &header.name);
                        line.string(&header.member, text.as_deref());
                    }
                }
            }
        }
    }
    line.close();
    lines.push(b'\n');
}

/// Writes a member that only lines with listed fields have.
fn put_extra(member: Extra, line: &mut Object<'_>, request: &RequestParts<'_>) {
    let (name, tls) = (member.as_str(), request.tls);
    match member {
        Extra::Http => line.string(name, http_version(request.version)),
        Extra::TlsVersion => line.string(name, tls.map(|tls| tls.version)),
        Extra::TlsCipher => line.string(name, tls.map(|tls| tls.cipher)),
        Extra::Sni => {
            let sent = tls.and_then(|tls| tls.server_name.as_deref());
            line.string(name, sent.map(bounded).as_deref());
        }
        Extra::CertSubject => {
            let subject = tls.and_then(|tls| Some(bounded(&tls.client.as_ref()?.subject)));
            line.string(name, subject.as_deref());
        }
        Extra::GrpcStatus => {
            let status = request.grpc_status.and_then(|status| status.to_str().ok());
            line.number(name, status.and_then(|status| status.parse::<u32>().ok()).map(u64::from));
        }
        Extra::Attempts => line.number(name, u64::try_from(request.attempts).ok()),
        Extra::Costs => {}
    }
}

/// Writes an object with the cost for each rule that has read it; `null` without such a rule.
fn put_costs(line: &mut Object<'_>, record: &Record, request: &RequestParts<'_>) {
    let costs = Some(request.costs).filter(|costs| !costs.is_empty());
    line.member(Extra::Costs.as_str(), costs, |text, costs| {
        let mut object = Object::open(text);
        let each = costs.iter();
        let named = each.filter_map(|(rule, cost)| {
            Some((&*record.policy.rules.get(*rule as usize)?.name, *cost))
        });
        for (rule, cost) in named {
            object.member(rule, Some(cost), |text, cost| {
                text.extend_from_slice(cost.to_string().as_bytes());
            });
        }
        object.close();
    });
}

/// Declares how each member is written. `put_all` has no branch per member, because most lines have
/// all.
macro_rules! members {
    (|$name:ident, $line:ident, $record:ident, $resolved:ident|
        $($member:ident => $write:expr,)*) => {
        /// Writes all members, in the order of [`Name::ALL`].
        fn put_all($line: &mut Object<'_>, $record: &Record, $resolved: &Resolved<'_>) {
            $(
                let $name = const { Name::$member.as_str() };
                $write;
            )*
        }

        /// Writes one member.
        fn put_one(
            member: Name,
            $line: &mut Object<'_>,
            $record: &Record,
            $resolved: &Resolved<'_>,
        ) {
            let $name = member.as_str();
            match member {
                $(Name::$member => $write,)*
            }
        }
    };
}

members! { |name, line, record, resolved|
    Time => line.time(name, UtcTime(record.time)),
    Id => line.string(name, Some(&record.request_id)),
    TraceId => line.string(name, record.trace_id.map(|id| id.to_string()).as_deref()),
    Generation => line.number(name, Some(record.generation)),
    Key => line.string(name, resolved.key.map(|key| &*key.id)),
    KeyName => line.string(name, record.key_name.as_deref()),
    KeyFrom => line.string(name, resolved.key_from.map(key_source).as_deref()),
    Tenant => line.string(name, resolved.tenant),
    Ip => line.address(name, resolved.ip),
    Plan => line.string(name, resolved.plan),
    Method => line.string(name, Some(truncated(record.method.as_str()))),
    Path => line.string(name, Some(&record.path)),
    Route => line.string(name, resolved.route.map(|route| &*route.name)),
    Decision => line.string(name, Some(record.decision.label.as_str())),
    Rule => line.string(name, resolved.rule.map(|rule| &*rule.name)),
    ShadowRules => line.names(name, resolved.shadow_rules.iter().map(|rule| &*rule.name)),
    Cost => line.cost(name, record.decision.cost),
    Remaining => line.number(name, record.decision.remaining),
    Source => line.string(name, record.decision.source.map(source_label)),
    Reason => line.string(name, record.reason.map(Reason::label)),
    Status => line.number(name, record.status.map(u64::from)),
    BytesIn => line.number(name, Some(record.bytes_in)),
    BytesOut => line.number(name, Some(record.bytes_out)),
    Upstream => line.string(name, resolved.upstream.map(|upstream| &*upstream.name)),
    Server => line.server(name, record.server),
    Total => line.milliseconds(name, Some(record.timings.total)),
    Check => line.milliseconds(name, record.timings.check),
    Wait => line.milliseconds(name, record.timings.wait),
    UpstreamTime => line.milliseconds(name, record.timings.upstream),
    Connection => line.string(name, record.is_reused.map(connection)),
    Connect => line.milliseconds(name, record.timings.parts.connect),
    RequestBody => line.milliseconds(name, record.timings.parts.request_body),
    FirstByte => line.milliseconds(name, record.timings.parts.first_byte),
    Body => line.milliseconds(name, record.timings.parts.body),
    Send => line.milliseconds(name, record.timings.parts.send),
}

/// The values of a header, separated by commas; `None` without it. What follows a `?` is left out,
/// because the query of a URL may contain a key. Text that is left out is shown as `…`.
fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let first = values.next()?;
    let mut text = String::from_utf8_lossy(first);
    for value in values {
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
        text.to_mut().push_str(", ");
        text.to_mut().push_str(&String::from_utf8_lossy(value));
    }
    let query = text.find('?').map_or(usize::MAX, |mark| mark + 1);
    let kept = beginning(&text, MAX_TEXT_BYTES.min(query));
    if kept.len() == text.len() { Some(text) } else { Some(Cow::Owned(format!("{kept}…"))) }
}

/// The subject of a certificate or the name of a server. Text that is left out is shown as `…`.
fn bounded(text: &str) -> Cow<'_, str> {
    let kept = beginning(text, MAX_TEXT_BYTES);
    if kept.len() == text.len() { text.into() } else { format!("{kept}…").into() }
}

/// A version of HTTP; `None` for one that the gateway does not accept.
fn http_version(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_10 => Some("1.0"),
        Version::HTTP_11 => Some("1.1"),
        Version::HTTP_2 => Some("2"),
        _ => None,
    }
}

/// A source of keys as in the configuration file.
fn key_source(source: &KeySource) -> Cow<'static, str> {
    match source {
        KeySource::Bearer => Cow::Borrowed("bearer"),
        KeySource::Basic => Cow::Borrowed("basic"),
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
        let key = client.and_then(Client::principal);
        let route = record.route.and_then(|route| policy.routes.get(route as usize));
        let rule = |rule: u32| policy.rules.get(rule as usize);
        let upstream = record.upstream.filter(|_| record.server.is_some());
        Self {
            key,
            key_from: record.key_from.and_then(|from| policy.clients.key_sources.get(from)),
            tenant: client.and_then(|client| Some(&*client.tenant.as_ref()?.id)),
            ip: client.and_then(|client| ShownAddress::of(client.ip?, policy)),
            plan: client.map(|client| policy.plan_name(client.plan)),
            route,
            rule: record.decision.rule.and_then(rule),
            shadow_rules: record.shadow_rules.iter().copied().filter_map(rule).collect(),
            upstream: upstream.and_then(|upstream| policy.upstreams.get(upstream as usize)),
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

    fn cost(&mut self, name: &str, value: Option<crate::limit::cost::Cost>) {
        self.member(name, value, |text, cost| match cost.whole() {
            Some(tokens) => put_number(text, tokens),
            None => text.extend_from_slice(cost.to_string().as_bytes()),
        });
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
