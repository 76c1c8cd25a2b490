//! Names of settings that other gateways have, and what to write here instead.
//!
//! Reading order: this file (look-up of a name), [`entries`] (the names, from `names.txt`),
//! [`constructs`] (settings that are written together, with the values of the file), [`dimensions`]
//! (what requests are counted by), [`directives`] (lines of nginx), `tests`.
//!
//! An entry may go as soon as the gateway has a setting of that name: a name that the table has is
//! never looked up here.

mod constructs;
mod dimensions;
mod directives;
mod entries;
#[cfg(test)]
mod tests;

use toml::de::DeValue;

use super::suggest::{key, list};
use super::walk::{Table as _, Value};
use super::{Config, acme, listeners, rules, tables};
use crate::base::text::cut;
pub(super) use constructs::{Unknown, constructs};
pub(crate) use dimensions::dimension;
pub(super) use directives::directive;
pub(crate) use directives::instead_of_directive;
use entries::ENTRIES;

/// How much of a value of the file a suggested line repeats, in characters.
const SHOWN: usize = 60;

/// The table that a name is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Server,
    /// `[server.limits]`.
    ServerLimits,
    /// An entry of `[[listeners]]`.
    Listener,
    /// An item of `certificates` of a listener.
    Certificate,
    Acme,
    /// `[acme.eab]`.
    Eab,
    Client,
    /// `[clients.jwt]`.
    Jwt,
    /// `[clients.introspection]`.
    Introspection,
    /// `[clients.basic]`.
    Basic,
    /// `[forward_auth]`, or `forward_auth` of a route.
    ForwardAuth,
    Redis,
    /// `[cors]`, or `cors` of a route.
    Cors,
    Headers,
    /// An entry of `[plans]`.
    Plan,
    /// An entry of `[keys]`.
    Key,
    /// An item of `secrets` of a key.
    Secret,
    /// An entry of `[upstreams]`.
    Upstream,
    /// An item of `servers` of an upstream.
    UpstreamServer,
    /// `tls` of an upstream.
    UpstreamTls,
    /// An entry of `[routes]`.
    Route,
    /// An entry of `[rules]`.
    Rule,
    /// `{ rate, burst }` or `{ limit, burst }` of one plan or one key.
    Grant,
    /// Any of them.
    Any,
}

/// What to write instead of some names.
#[derive(Debug)]
struct Entry {
    place: Place,
    /// In lower case; `_` is not compared.
    names: Vec<&'static str>,
    /// The setting that the same table has instead; empty if there is none.
    meant: &'static str,
    /// The line to write in the same table; empty if there is none.
    line: &'static str,
    /// A sentence without a period, after the line; may be empty. `@` is the name of the entry.
    why: &'static str,
}

/// What to write instead of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// The setting that the same table has instead.
    pub(super) meant: Option<&'static str>,
    pub(super) help: String,
}

/// What to write instead of the unknown `name` in the table at `parents`, whose value is `value`.
pub(super) fn advice(parents: &[String], name: &str, value: &DeValue<'_>) -> Option<Advice> {
    let place = place(parents)?;
    let entry = find(name, |entry| entry == place || entry == Place::Any)?;
    let own = parents.get(1).map_or("", String::as_str);
    Some(Advice {
        meant: Some(entry.meant).filter(|meant| !meant.is_empty()),
        help: entry.help(own, value),
    })
}

/// The table in which a setting is that the table at `parents` does not have: a setting of this
/// gateway, or one that replaces that of another gateway.
pub(super) fn advice_elsewhere(
    parents: &[String],
    name: &str,
    value: &DeValue<'_>,
) -> Option<String> {
    // A table has a name of the user's own, such as that of a client.
    if matches!(value, DeValue::Table(_)) && place(parents) == Some(Place::Client) {
        return None;
    }
    let settings: [(&str, &[&str]); 16] = [
        ("[server]", tables::Server::NAMES),
        ("[server.limits]", tables::Limits::NAMES),
        ("[server.http2]", tables::Http2::NAMES),
        ("[[listeners]]", listeners::Listener::NAMES),
        ("[acme]", acme::Acme::NAMES),
        ("[admin]", tables::Admin::NAMES),
        ("[redis]", tables::Redis::NAMES),
        ("[clients]", tables::Clients::NAMES),
        ("[headers]", tables::Headers::NAMES),
        ("[memory]", tables::Memory::NAMES),
        ("[access_log]", tables::AccessLog::NAMES),
        ("[plans.<name>]", tables::Plan::NAMES),
        ("[keys.<id>]", tables::Key::NAMES),
        ("[upstreams.<name>]", tables::Upstream::NAMES),
        ("[routes.<name>]", tables::Route::NAMES),
        ("[rules.<name>]", rules::Rule::NAMES),
    ];
    let folded = name.to_lowercase().replace('-', "_");
    let found: Vec<&str> = settings
        .iter()
        .filter(|(_, names)| names.contains(&folded.as_str()))
        .map(|(head, _)| *head)
        .collect();
    match found.as_slice() {
        [] => {}
        [..] if found.len() > 3 => return None,
        heads => return Some(format!("`{folded}` is a setting of {}", list(heads, "and"))),
    }
    let is_entry_name = matches!(folded.as_str(), "acme" | "audit" | "log" | "usage");
    if !parents.is_empty() && Config::NAMES.contains(&folded.as_str()) && !is_entry_name {
        return Some(format!("`[{folded}]` is a table of the file's top level"));
    }
    let place = place(parents)?;
    let entry = find(name, |other| other != place && other.head().is_some())?;
    let head = entry.place.head()?;
    let why = entry.why.replace("plans.@", "plans.<plan>").replace('@', "<name>");
    Some(match (entry.line, why.is_empty()) {
        ("", _) if why.starts_with("write ") => format!("in `{head}`, {why}"),
        ("", _) => why,
        (line, true) => format!("in `{head}`, write `{line}`"),
        (line, false) => format!("in `{head}`, write `{line}`: {why}"),
    })
}

/// The first entry for `name` in a place that `fits`.
fn find(name: &str, fits: impl Fn(Place) -> bool) -> Option<&'static Entry> {
    let mut entries = ENTRIES.iter().filter(|entry| fits(entry.place));
    entries.find(|entry| entry.names.iter().any(|known| is_same(known, name)))
}

/// The form in which names are compared: `ipStrategy`, `ip-strategy` and `ip_strategy` are one.
fn squeezed(name: &str) -> String {
    compared(name).collect()
}

/// Whether two names are one.
fn is_same(name: &str, other: &str) -> bool {
    compared(name).eq(compared(other))
}

fn compared(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase)
}

/// What to write instead of a word that the setting `name` does not have.
pub(super) fn advice_on_word(name: &str, word: &str) -> Option<&'static str> {
    Some(match (name, squeezed(word).as_str()) {
        ("protocol", "http2" | "http/2" | "grpc" | "grpcs") => {
            "write `h2` for servers with `https://`, and `h2c` for others"
        }
        ("protocol", "http/1.1" | "http" | "https" | "h1") => "write `http1`",
        ("challenge", "dns01" | "dns") => {
            "the gateway does not have dns-01: for a wildcard, use certificate files"
        }
        ("mode", "dryrun" | "logonly" | "log" | "report" | "monitor" | "observe" | "test") => {
            "write `mode = \"shadow\"`: counted and reported, never enforced"
        }
        ("on_failure", "open" | "failopen" | "pass" | "ignore") => {
            "write `on_failure = \"allow\"`; `local`, the default, still limits"
        }
        ("on_failure", "close" | "closed" | "failclosed" | "error" | "block" | "reject") => {
            "write `on_failure = \"deny\"`"
        }
        ("refund_on", "4xx" | "upstreamtimeout" | "upstreambroken" | "internal") => {
            "write `\"5xx\"`: a request gets its tokens back if it reached no server, or if its server failed"
        }
        ("compress", "brotli") => "write `\"br\"`",
        ("compress", "zstandard") => "write `\"zstd\"`",
        ("compress", "gz" | "xgzip" | "zlib") => "write `\"gzip\"`",
        ("compress", "deflate") => {
            "take it out: clients disagree on what `deflate` is, and all of them accept `gzip`"
        }
        ("compress", "identity" | "off" | "none") => {
            "without compression, write `compress = false`"
        }
        ("kind", "gcra" | "bucket" | "ratelimit" | "rate") => "write `kind = \"token_bucket\"`",
        ("kind", "inflight" | "inflightreq" | "limitconn" | "connections" | "concurrent") => {
            "write `kind = \"concurrency\"`"
        }
        ("kind", "fixed" | "calendar" | "quota" | "window") => "write `kind = \"fixed_window\"`",
        ("kind", "sliding" | "rolling" | "slidinglog") => "write `kind = \"sliding_window\"`",
        _ => return None,
    })
}

/// The place of the table at `parents`; none for tables without entries.
fn place(parents: &[String]) -> Option<Place> {
    let path: Vec<&str> = parents.iter().map(String::as_str).collect();
    Some(match path.as_slice() {
        [] => Place::Root,
        ["server"] => Place::Server,
        ["server", "limits"] => Place::ServerLimits,
        ["listeners"] => Place::Listener,
        ["listeners", "certificates"] => Place::Certificate,
        ["acme"] => Place::Acme,
        ["clients"] => Place::Client,
        ["redis"] => Place::Redis,
        ["cors"] | ["routes", _, "cors"] => Place::Cors,
        ["headers"] => Place::Headers,
        ["plans", _] => Place::Plan,
        ["keys", _] => Place::Key,
        ["upstreams", _] => Place::Upstream,
        ["upstreams", _, "servers"] => Place::UpstreamServer,
        ["upstreams", _, "tls"] => Place::UpstreamTls,
        ["acme", "eab"] => Place::Eab,
        ["clients", "jwt"] => Place::Jwt,
        ["clients", "introspection"] => Place::Introspection,
        ["clients", "basic"] => Place::Basic,
        ["forward_auth"] | ["routes", _, "forward_auth"] => Place::ForwardAuth,
        ["keys", _, "secrets"] => Place::Secret,
        ["routes", _] => Place::Route,
        ["rules", _] => Place::Rule,
        ["rules", _, "plans", _] | ["keys", _, "rules", _] => Place::Grant,
        _ => return None,
    })
}

/// The text of a value of the file as TOML writes it, if it is short and plain enough to be
/// repeated in a line.
fn repeated(value: &Value<'_>) -> Option<String> {
    text(value.get_ref()).map(|text| format!("\"{text}\""))
}

/// A string of the file that can be repeated in quotes.
fn text<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    let text = value.as_str()?;
    let is_plain = |c: char| !c.is_control() && !matches!(c, '"' | '\\' | '`' | '$');
    (!text.is_empty() && text.chars().count() <= SHOWN && text.chars().all(is_plain))
        .then_some(text)
        .filter(|text| cut(text, SHOWN) == *text)
}

/// A whole number above 0.
fn number(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| *number > 0)
}

/// The prefix as a path of a route: `/api/*` for `/api`.
fn prefix_path(prefix: &str) -> String {
    format!("{}/*", prefix.trim_end_matches('*').trim_end_matches('/'))
}

// === impl Place ===

impl Place {
    /// The head of its table, for places that a setting can be moved to.
    fn head(self) -> Option<&'static str> {
        Some(match self {
            Self::Server => "[server]",
            Self::ServerLimits => "[server.limits]",
            Self::Listener => "[[listeners]]",
            Self::Client => "[clients]",
            Self::Redis => "[redis]",
            Self::Headers => "[headers]",
            Self::Upstream => "[upstreams.<name>]",
            Self::Route => "[routes.<name>]",
            Self::Rule => "[rules.<name>]",
            Self::Root
            | Self::Cors
            | Self::Certificate
            | Self::Acme
            | Self::Eab
            | Self::Jwt
            | Self::Introspection
            | Self::Basic
            | Self::ForwardAuth
            | Self::Secret
            | Self::Plan
            | Self::Key
            | Self::UpstreamServer
            | Self::UpstreamTls
            | Self::Grant
            | Self::Any => return None,
        })
    }
}

// === impl Entry ===

impl Entry {
    /// The line, with the value of the file where that has the same type, and the reason, for the
    /// entry `own` of a table of named entries.
    fn help(&self, own: &str, value: &DeValue<'_>) -> String {
        // After a dot it is a name of TOML, else a part of a string.
        let why = self.why.replace(".@", &format!(".{}", key(own))).replace('@', &cut(own, 64));
        let line = self.line_with(value).unwrap_or_else(|| self.line.to_owned());
        match (line.as_str(), why.is_empty()) {
            ("", _) => why,
            (line, true) => format!("write `{line}`"),
            (line, false) => format!("write `{line}`: {why}"),
        }
    }

    /// The line with a number of the file, or with a text where each text is valid.
    fn line_with(&self, value: &DeValue<'_>) -> Option<String> {
        let (name, example) = self.line.split_once(" = ")?;
        if name != self.meant {
            return None;
        }
        if example.parse::<u64>().is_ok() {
            return number(value).map(|number| format!("{name} = {number}"));
        }
        let takes_any_text = matches!(
            (self.place, name),
            (Place::Route, "host")
                | (Place::UpstreamServer, "address")
                | (Place::Upstream, "servers")
                | (Place::UpstreamTls | Place::Listener, "ca" | "client_ca" | "server_name")
                | (Place::Acme, "email" | "domains")
        );
        let text = text(value).filter(|_| takes_any_text)?;
        let is_list = example.starts_with('[');
        Some(if is_list {
            format!("{name} = [\"{text}\"]")
        } else {
            format!("{name} = \"{text}\"")
        })
    }
}
