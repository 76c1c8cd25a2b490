//! Settings of other gateways that are written together, such as `average` and `period`: one
//! diagnostic for all of them, whose line has the values of the file.

use toml::de::{DeTable, DeValue};

use super::{Place, SHOWN, is_same, number, place, prefix_path, repeated, text};
use crate::base::text::cut;
use crate::config::walk::Value;

/// Unknown names of one table that mean one thing.
#[derive(Debug)]
pub(in crate::config) struct Construct {
    /// Which of the unknown names belong to it; not empty.
    pub(in crate::config) names: Vec<usize>,
    /// Settings of the same table that count as present.
    pub(in crate::config) meant: &'static [&'static str],
    /// What to write instead.
    pub(in crate::config) help: String,
}

/// An unknown name of a table, and its value.
pub(in crate::config) type Unknown<'a> = (&'a str, &'a Value<'a>);

/// Names of a number of requests per period.
const AMOUNTS: &[&str] = &[
    "average",
    "requests",
    "max_requests",
    "requests_per_unit",
    "tokens_per_fill",
    "max_events",
    "events",
    "requests_per_second",
    "rps",
    "rpm",
    "quota",
];

/// Names of the period that a number of requests is of.
const PERIODS: &[&str] =
    &["period", "fill_interval", "unit", "interval", "window", "window_size", "time_window"];

/// Kong's names of a number of requests in a calendar period, and the unit here.
const CALENDAR: [(&str, &str); 7] = [
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "week"),
    ("month", "month"),
    ("year", "year"),
];

const CERTIFICATES: &[&str] = &[
    "cert",
    "cert_file",
    "certificate",
    "certificate_file",
    "certificate_chain",
    "ssl_certificate",
    "tls_certificate",
    "crt",
];

const PRIVATE_KEYS: &[&str] = &[
    "key",
    "key_file",
    "private_key",
    "private_key_file",
    "ssl_certificate_key",
    "ssl_key",
    "tls_key",
    "tls_private_key",
];

/// The constructs among the unknown names of the table at `parents`. `upstreams` are the names of
/// the upstreams of the file.
pub(in crate::config) fn constructs(
    parents: &[String],
    table: &DeTable<'_>,
    unknown: &[Unknown<'_>],
    upstreams: &[String],
) -> Vec<Construct> {
    let names = Names { unknown };
    let found = match place(parents) {
        Some(Place::Rule | Place::Grant) => vec![names.calendar(), names.rate(), names.in_flight()],
        Some(Place::Listener | Place::Server) => vec![names.certificate(parents)],
        Some(Place::Certificate) => vec![names.certificate_files()],
        Some(Place::Route) => {
            vec![names.traefik_rule(), names.prefix(table), names.target(upstreams)]
        }
        Some(Place::Upstream) => vec![names.urls()],
        _ => Vec::new(),
    };
    found.into_iter().flatten().collect()
}

/// The unknown names of one table.
#[derive(Debug, Clone, Copy)]
struct Names<'a> {
    unknown: &'a [Unknown<'a>],
}

impl<'a> Names<'a> {
    /// The first of `names` that is written, with its index.
    fn any(self, names: &[&str]) -> Option<(usize, &'a str, &'a Value<'a>)> {
        let is_one = |name: &str| names.iter().any(|other| is_same(other, name));
        let at = self.unknown.iter().position(|(name, _)| is_one(name))?;
        self.unknown.get(at).map(|(name, value)| (at, *name, *value))
    }

    /// `minute = 100`, `hour = 1000`: calendar periods of Kong, each of which is a rule here.
    fn calendar(self) -> Option<Construct> {
        let mut names = Vec::new();
        let mut limits = Vec::new();
        for (name, unit) in CALENDAR {
            if let Some((at, _, value)) = self.any(&[name])
                && let Some(count) = number(value.get_ref())
            {
                names.push(at);
                limits.push(format!("`limit = \"{count}/{unit}\"`"));
            }
        }
        let help = match limits.as_slice() {
            [] => return None,
            [only] => {
                format!(
                    "write `kind = \"fixed_window\"` and {only}; or a `rate`, which has no step at the end of a period"
                )
            }
            [first, others @ ..] => format!(
                "a rule has one limit: write `kind = \"fixed_window\"` and {first}, and another rule with {}",
                others.join(", and one with ")
            ),
        };
        Some(Construct { names, meant: &["limit", "rate", "kind"], help })
    }

    /// `average = 100` and `period = "1m"`.
    fn rate(self) -> Option<Construct> {
        let (at, name, value) = self.any(AMOUNTS)?;
        let count = number(value.get_ref())?;
        let mut names = vec![at];
        let period = match self.any(PERIODS) {
            Some((at, _, value)) => {
                names.push(at);
                period(value.get_ref())?
            }
            None if is_same(name, "rpm") => "m".to_owned(),
            None => "s".to_owned(),
        };
        let help = if matches!(period.as_str(), "week" | "month" | "year") {
            format!("write `kind = \"fixed_window\"` and `limit = \"{count}/{period}\"`")
        } else {
            format!("write `rate = \"{count}/{period}\"`")
        };
        Some(Construct { names, meant: &["rate", "limit", "kind"], help })
    }

    /// `amount = 10` of Traefik's `inFlightReq`, `limit_conn = "addr 10"` of nginx.
    fn in_flight(self) -> Option<Construct> {
        let (at, _, value) = self.any(&[
            "amount",
            "limit_conn",
            "in_flight_req",
            "max_in_flight",
            "max_concurrent",
            "max_concurrent_requests",
            "concurrent_requests",
            "maxconn",
        ])?;
        let count = match value.get_ref() {
            DeValue::Table(table) => number(table.get("amount")?.get_ref()),
            DeValue::String(text) => text.rsplit(' ').next()?.parse().ok(),
            other => number(other),
        }?;
        let help = format!("write `kind = \"concurrency\"` and `limit = {count}`");
        Some(Construct { names: vec![at], meant: &["limit", "rate", "kind"], help })
    }

    /// The certificate and its private key, as two settings.
    fn certificate(self, parents: &[String]) -> Option<Construct> {
        let certificate = self.any(CERTIFICATES);
        let private_key = self.any(PRIVATE_KEYS);
        let path = |found: Option<(usize, &str, &Value<'_>)>, otherwise: &str| match found {
            Some((_, _, value)) => repeated(value),
            None => Some(format!("\"{otherwise}\"")),
        };
        let entry = format!(
            "certificates = [{{ cert = {}, key = {} }}]",
            path(certificate, "api.pem")?,
            path(private_key, "api.key")?
        );
        let names: Vec<usize> =
            [certificate, private_key].into_iter().flatten().map(|(at, ..)| at).collect();
        if names.is_empty() {
            return None;
        }
        let help = if parents.first().is_some_and(|table| table == "listeners") {
            format!("write `{entry}`")
        } else {
            format!(
                "HTTPS is served by a listener: `[[listeners]]` with `address = \"0.0.0.0:443\"` and `{entry}`"
            )
        };
        Some(Construct { names, meant: &["certificates"], help })
    }

    /// `certFile` and `keyFile` in an item of `certificates`.
    fn certificate_files(self) -> Option<Construct> {
        let mut names = Vec::new();
        let mut lines = Vec::new();
        for (setting, others) in [("cert", CERTIFICATES), ("key", PRIVATE_KEYS)] {
            if let Some((at, _, value)) = self.any(others) {
                names.push(at);
                lines.push(format!("`{setting} = {}`", repeated(value)?));
            }
        }
        let meant: &[&str] = match lines.as_slice() {
            [] => return None,
            [only] if only.starts_with("`cert") => &["cert"],
            [_] => &["key"],
            _ => &["cert", "key"],
        };
        Some(Construct { names, meant, help: format!("write {}", lines.join(" and ")) })
    }

    /// `rule = "Host(…) && PathPrefix(…)"` of a router of Traefik.
    fn traefik_rule(self) -> Option<Construct> {
        let (at, _, value) = self.any(&["rule"])?;
        let rule = value.get_ref().as_str()?;
        let mut lines = Vec::new();
        let mut others = Vec::new();
        for matcher in rule.split("&&").map(str::trim) {
            let argument = |name: &str| {
                let inside = matcher.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
                let plain = inside.trim_matches(['`', '"', '\'']);
                let is_plain = |c: char| c.is_ascii_graphic() && !"`\"'\\(),|".contains(c);
                (!plain.is_empty() && plain.chars().all(is_plain)).then_some(plain)
            };
            if let Some(host) = argument("Host") {
                lines.push(format!("`host = \"{host}\"`"));
            } else if let Some(prefix) = argument("PathPrefix") {
                lines.push(format!("`path = \"{}\"`", prefix_path(prefix)));
            } else if let Some(path) = argument("Path") {
                lines.push(format!("`path = \"{path}\"`"));
            } else if let Some(method) = argument("Method") {
                lines.push(format!("`methods = [\"{method}\"]`"));
            } else {
                others.push(matcher);
            }
        }
        let help = match (lines.is_empty(), others.is_empty()) {
            (false, true) => format!("write {}", lines.join(" and ")),
            (false, false) => format!(
                "write {}; a route matches by `host`, `path` and `methods` only",
                lines.join(" and ")
            ),
            (true, _) => "a route matches by `host = \"api.example.com\"`, `path = \"/api/*\"` and `methods = [\"GET\"]`".to_owned(),
        };
        Some(Construct { names: vec![at], meant: &["path", "host"], help })
    }

    /// `paths = ["/api"]` and `strip_path = true` of Kong, `location` of nginx, `stripPrefix` of
    /// Traefik.
    fn prefix(self, table: &DeTable<'_>) -> Option<Construct> {
        let paths =
            self.any(&["paths", "location", "prefix", "path_prefix", "uri", "url", "match"]);
        let strip =
            self.any(&["strip_path", "stripprefix", "handle_path", "uri_strip_prefix", "prefixes"]);
        let mut names = Vec::new();
        let mut lines = Vec::new();
        let mut own = None;
        if let Some((at, name, value)) = paths {
            let path = one(value.get_ref()).filter(|path| path.starts_with('/'))?;
            let path = if is_same(name, "uri") || is_same(name, "url") {
                path.to_owned()
            } else {
                prefix_path(path)
            };
            names.push(at);
            lines.push(format!("`path = \"{path}\"`"));
            own = Some(path);
        }
        let written = table.get("path").and_then(|path| text(path.get_ref())).map(str::to_owned);
        if let Some((at, _, value)) = strip {
            let prefix = match value.get_ref() {
                DeValue::Boolean(false) => None,
                DeValue::Boolean(true) => own.or(written),
                value => Some(one(value)?.to_owned()),
            };
            names.push(at);
            if let Some(prefix) = prefix {
                let prefix = prefix.trim_end_matches('*').trim_end_matches('/');
                lines.push(format!("`strip_prefix = \"{prefix}\"`"));
            } else if lines.is_empty() {
                lines.push("nothing: the upstream gets the path as it is".to_owned());
            }
        }
        (!lines.is_empty()).then(|| Construct {
            names,
            meant: &["path"],
            help: format!("write {}", lines.join(" and ")),
        })
    }

    /// `proxy_pass = "http://127.0.0.1:3000"`, `service = "api"`: where requests go.
    fn target(self, upstreams: &[String]) -> Option<Construct> {
        let (at, _, value) = self.any(&[
            "proxy_pass",
            "grpc_pass",
            "backend",
            "service",
            "target",
            "server",
            "servers",
            "cluster",
            "to",
            "reverse_proxy",
            "use_backend",
            "default_backend",
            "upstream_name",
        ])?;
        let target = one(value.get_ref());
        let host = target.map(|target| target.rsplit("://").next().unwrap_or(target));
        let named = upstreams.iter().find(|name| Some(name.as_str()) == host);
        let help = match (named, upstreams, target) {
            (Some(name), ..) => format!("write `upstream = \"{}\"`", cut(name, SHOWN)),
            (None, [only], _) => {
                format!("write `upstream = \"{}\"`, the upstream of this file", cut(only, SHOWN))
            }
            (None, _, Some(target)) if target.contains([':', '.']) => format!(
                "write `upstream = \"api\"`, and the server in `[upstreams.api]`: `servers = [\"{}\"]`",
                origin(target)
            ),
            _ => "write `upstream`, with the name of an upstream".to_owned(),
        };
        Some(Construct { names: vec![at], meant: &["upstream"], help })
    }

    /// `url = "http://127.0.0.1:3000/"`, `targets = [{ target = "…" }]`.
    fn urls(self) -> Option<Construct> {
        let (at, _, value) = self.any(&[
            "url",
            "urls",
            "uri",
            "target",
            "targets",
            "address",
            "addresses",
            "server",
            "backend",
            "backends",
            "endpoint",
            "endpoints",
            "nodes",
            "hosts",
        ])?;
        let servers: Option<Vec<String>> = match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .map(|item| text(item.get_ref()).map(|text| format!("\"{}\"", origin(text))))
                .collect(),
            value => text(value).map(|text| vec![format!("\"{}\"", origin(text))]),
        };
        let servers = servers.filter(|servers| (1..=4).contains(&servers.len()))?;
        let help = format!("write `servers = [{}]`", servers.join(", "));
        Some(Construct { names: vec![at], meant: &["servers"], help })
    }
}

/// A URL without its path.
fn origin(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            format!("{scheme}://{}", rest.split('/').next().unwrap_or_default())
        }
        None => url.split('/').next().unwrap_or_default().to_owned(),
    }
}

/// A text, alone or as the only item of a list.
fn one<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    match value {
        DeValue::Array(items) => match items.iter().collect::<Vec<_>>().as_slice() {
            [only] => text(only.get_ref()),
            _ => None,
        },
        value => text(value),
    }
}

/// The part of a rate after the slash, for a period as text or as a number of seconds.
fn period(value: &DeValue<'_>) -> Option<String> {
    let value = match value {
        DeValue::Array(items) => items.iter().next()?.get_ref(),
        value => value,
    };
    if let Some(seconds) = number(value) {
        return Some(of_seconds(seconds));
    }
    let text = text(value)?.to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "ms" => "ms",
        "" | "s" | "sec" | "second" | "seconds" => "s",
        "m" | "min" | "minute" | "minutes" => "m",
        "h" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" => "week",
        "month" => "month",
        "year" => "year",
        _ => return None,
    };
    match count.parse::<u64>() {
        Ok(count) if unit == "s" => Some(of_seconds(count)),
        Ok(1) | Err(_) => Some(unit.to_owned()),
        Ok(count) => Some(format!("{count}{unit}")),
    }
}

fn of_seconds(seconds: u64) -> String {
    match seconds {
        1 => "s".to_owned(),
        60 => "m".to_owned(),
        3_600 => "h".to_owned(),
        86_400 => "d".to_owned(),
        other => format!("{other}s"),
    }
}
