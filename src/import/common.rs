//! Parts of routes, upstreams and listeners that several formats have.

use toml::{Table, Value};

use super::note::{Notes, Place};
use super::settings::{Imported, Settings};
use super::values;

/// A URL of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerUrl {
    /// `host:port`, with `https://` before it for TLS.
    pub(super) address: String,
    /// The value of `protocol` of the upstream, if it needs one.
    pub(super) protocol: Option<&'static str>,
    /// What follows the address; empty, or begins with `/`.
    pub(super) path: String,
}

impl ServerUrl {
    /// Parses `http://host:port/path`; also `https`, `h2c`, `grpc` and `grpcs`.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (port, prefix, protocol) = match scheme {
            "http" | "ws" => (80, "", None),
            "https" | "wss" => (443, "https://", None),
            "h2c" | "grpc" => (80, "", Some("h2c")),
            "grpcs" => (443, "https://", Some("h2")),
            _ => return None,
        };
        let address = format!("{prefix}{}", values::with_port(authority, port)?);
        Some(Self { address, protocol, path: path.trim_end_matches('/').to_owned() })
    }
}

/// A server of an upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server<'a> {
    /// With `https://` before it for TLS.
    pub(super) address: &'a str,
    /// None for the default.
    pub(super) weight: Option<u64>,
    /// 0 for the servers that get requests first.
    pub(super) priority: u64,
}

impl<'a> Server<'a> {
    /// A server with the priority 0.
    pub(super) fn new(address: &'a str, weight: Option<u64>) -> Self {
        Self { address, weight, priority: 0 }
    }
}

/// Adds a server to those of an upstream. All of them have TLS, or none.
pub(super) fn add_server(
    upstream: &mut Settings,
    server: Server<'_>,
    place: Place,
    notes: &mut Notes,
) {
    let Server { address, weight, priority } = server;
    let mut servers = match upstream.get("servers") {
        Some(Value::Array(servers)) => servers.clone(),
        _ => Vec::new(),
    };
    let address_of = |server: &Value| match server {
        Value::Table(table) => {
            table.get("address").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        server => server.as_str().unwrap_or_default().to_owned(),
    };
    let has_tls = |address: &str| address.starts_with("https://");
    if servers.first().is_some_and(|first| has_tls(&address_of(first)) != has_tls(address)) {
        notes.omitted(place, address, "the servers of an upstream all have TLS, or none has");
        return;
    }
    if servers.iter().any(|known| address_of(known) == address) {
        return;
    }
    if weight == Some(0) {
        notes.omitted(place, address, "it has the weight 0: a server without requests is left out");
        return;
    }
    let mut server = Table::new();
    server.insert("address".into(), address.into());
    if let Some(weight) = weight.filter(|weight| *weight != 1) {
        server.insert("weight".into(), i64::try_from(weight).unwrap_or(i64::MAX).into());
    }
    if priority > 0 {
        server.insert("priority".into(), i64::try_from(priority).unwrap_or(i64::MAX).into());
    }
    servers.push(if server.len() == 1 { address.into() } else { server.into() });
    upstream.set("servers", servers);
}

/// A route that redirects to HTTPS.
pub(super) fn redirect(to: &str, status: i64) -> Value {
    let mut redirect = Table::new();
    redirect.insert("to".into(), to.into());
    redirect.insert("status".into(), status.into());
    redirect.into()
}

/// The path of a route for a prefix that is compared as a text, with a note if that differs.
pub(super) fn prefix_path(prefix: &str, place: Place, what: &str, notes: &mut Notes) -> String {
    if !prefix.ends_with('/') && !prefix.is_empty() {
        notes.approximate(
            place,
            what,
            format!("`{prefix}/*` matches whole segments: `{prefix}` and what is below it, not `{prefix}x`"),
        );
    }
    format!("{}/*", prefix.trim_end_matches('/'))
}

/// A condition for exactly this value. None for one that ends like a prefix, which is no value.
pub(super) fn exact_value(text: &str) -> Option<Value> {
    (!text.ends_with('*')).then(|| text.into())
}

/// Sets the path of a route for a prefix that is compared as a text: `/api/` is not a prefix of
/// `/api`.
pub(super) fn set_prefix(
    route: &mut Settings,
    prefix: &str,
    place: Place,
    what: &str,
    notes: &mut Notes,
) {
    route.set("path", prefix_path(prefix, place, what, notes));
    if prefix.len() > 1 && prefix.ends_with('/') {
        route.set("trailing_slash", "distinct");
    }
}

/// Whether a path is written as text here, too: `*` and braces have a meaning.
pub(super) fn is_literal_path(path: &str) -> bool {
    !path.contains(['*', '{', '}'])
}

/// An expression that matches only this text.
pub(super) fn escaped(text: &str) -> String {
    let mut expression = String::new();
    for c in text.chars() {
        // `\<` and `\>` are boundaries of words.
        if c.is_ascii_punctuation() && !matches!(c, '/' | '-' | '_' | '<' | '>') {
            expression.push('\\');
        }
        expression.push(c);
    }
    expression
}

/// The prefix of an expression such as `^/api/(.*)$`, without its last slash.
pub(super) fn prefix_of(pattern: &str) -> Option<String> {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let pattern = pattern.strip_suffix('$').unwrap_or(pattern);
    let endings = ["/?(.*)", "/(.*)", "(/.*)", "(.*)", "/(.+)"];
    let prefix = endings.iter().find_map(|ending| pattern.strip_suffix(ending))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    prefix.chars().all(is_plain).then(|| prefix.to_owned())
}

/// Replaces a prefix of the path.
pub(super) fn replace(prefix: &str, by: &str, route: &mut Settings) {
    let (prefix, by) = (prefix.trim_end_matches('/'), by.trim_end_matches('/'));
    match (prefix, by) {
        _ if prefix == by => {}
        ("", _) => route.set("add_prefix", by),
        (_, "") => route.set("strip_prefix", prefix),
        _ => {
            let mut change = Table::new();
            change.insert(prefix.to_owned(), by.into());
            route.set("replace_prefix", change);
        }
    }
}

/// Whether the path of a route begins with a prefix that is taken away from it.
pub(super) fn is_below(route: &Settings, prefix: &str) -> bool {
    let path = route.get("path").and_then(Value::as_str).unwrap_or("/*");
    let path = path.trim_end_matches("/*");
    let prefix = prefix.trim_end_matches('/');
    path == prefix || path.starts_with(&format!("{prefix}/"))
}

/// Lets only these networks use a route: those that are also allowed already, if some are. One that
/// is not understood is noted. If none is left, the route refuses all.
pub(super) fn allow(
    texts: &[&str],
    place: Place,
    what: &str,
    route: &mut Settings,
    notes: &mut Notes,
) {
    let mut networks = networks(texts, place, what, notes);
    if let Some(Value::Array(known)) = route.remove("allow_ips") {
        let known: Vec<&str> = known.iter().filter_map(Value::as_str).collect();
        networks = networks
            .iter()
            .flat_map(|own| known.iter().filter_map(|known| values::overlap(own, known)))
            .collect();
    }
    if networks.is_empty() {
        notes.approximate(place, what, "no network is left that is allowed: the route refuses all");
        refuse(route);
    } else {
        route.extend("allow_ips", networks);
    }
}

/// Refuses these networks. If none is understood, the route refuses all.
pub(super) fn deny(
    texts: &[&str],
    place: Place,
    what: &str,
    route: &mut Settings,
    notes: &mut Notes,
) {
    let networks = networks(texts, place, what, notes);
    if networks.is_empty() {
        notes.approximate(place, what, "no network of it is understood: the route refuses all");
        refuse(route);
    } else {
        route.extend("deny_ips", networks);
    }
}

/// Makes a route refuse all addresses.
pub(super) fn refuse(route: &mut Settings) {
    route.remove("allow_ips");
    route.set("deny_ips", list(["0.0.0.0/0", "::/0"]));
}

fn networks(texts: &[&str], place: Place, what: &str, notes: &mut Notes) -> Vec<String> {
    let mut networks = Vec::new();
    for text in texts {
        match values::network(text) {
            Some(network) => networks.push(network),
            None => {
                let why = "it is no address and no network: write it in `allow_ips` or `deny_ips`";
                notes.omitted(place, format!("{what}: {text}"), why);
            }
        }
    }
    networks
}

/// Weights in the same proportions, none above 1000.
pub(super) fn weights(weights: &[u64]) -> Vec<u64> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let reduced: Vec<u64> = weights.iter().map(|weight| weight / divisor).collect();
    let highest = reduced.iter().copied().max().unwrap_or(0);
    if highest <= 1000 {
        return reduced;
    }
    let scaled = |weight: u64| {
        let part = u128::from(weight) * 1000 / u128::from(highest);
        u64::try_from(part).unwrap_or(1000).max(u64::from(weight > 0))
    };
    reduced.into_iter().map(scaled).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A text in which braces are no variables.
pub(super) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// Adds an address that clients connect to without TLS.
pub(super) fn listen(imported: &mut Imported, address: String) {
    imported.server.extend("listen", [address]);
}

/// A table that is the value of a setting.
pub(super) fn table(settings: &Settings) -> Table {
    settings.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// A list of texts.
pub(super) fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    texts.into_iter().map(Value::from).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_of_a_text_has_a_meaning_in_its_expression() {
        assert_eq!(escaped("/a{b}/<c>*.-_"), r"/a\{b\}/<c>\*\.-_");
    }

    #[test]
    fn expressions_for_a_prefix_are_known() {
        assert_eq!(prefix_of("^/api/(.*)$").as_deref(), Some("/api"));
        assert_eq!(prefix_of("^/api(/.*)$").as_deref(), Some("/api"));
        assert_eq!(prefix_of("/api/v1/?(.*)").as_deref(), Some("/api/v1"));
        assert_eq!(prefix_of("^(.*)$").as_deref(), Some(""));
        assert_eq!(prefix_of("^/a(b|c)/(.*)$"), None);
        assert_eq!(prefix_of("^/a$"), None);
    }

    #[test]
    fn urls_of_servers_are_read() {
        let url = ServerUrl::parse("https://a.internal/base/").unwrap();
        assert_eq!((url.address.as_str(), url.path.as_str()), ("https://a.internal:443", "/base"));
        assert_eq!(ServerUrl::parse("h2c://a:1").unwrap().protocol, Some("h2c"));
        assert_eq!(ServerUrl::parse("a:1").unwrap().address, "a:1");
        assert_eq!(ServerUrl::parse("unix:///run/x"), None);
    }
}
