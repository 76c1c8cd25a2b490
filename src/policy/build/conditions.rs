//! `headers`, `query` and `cookies` of routes: conditions on the values of a request.

use std::collections::HashMap;

use http::HeaderName;

use super::mistake::Mistake;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::tables::{self, TextOrSwitch};
use crate::config::{Config, Named, in_order};
use crate::net::percent;
use crate::policy::condition::{self, Condition, MAX_NAME_BYTES, Source, Test};
use crate::policy::matcher::{Matcher, PathPattern};
use crate::policy::params::{param_name, segments};

/// Maximum number of conditions of one route.
const MAX_CONDITIONS: usize = 16;

/// Maximum length of a value, in bytes.
const MAX_VALUE_BYTES: usize = 256;

/// Headers with a setting of their own, and what to write instead.
const OTHERWISE: [(&str, &str); 2] = [
    ("host", "write `host = \"api.example.com\"` in the route"),
    ("cookie", "write `cookies = { name = \"value\" }`: the order and number of cookies vary"),
];

/// Headers that say how a message is sent.
const OF_THE_CONNECTION: [&str; 6] =
    ["connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding"];

/// The conditions of a route, in the order of their sources; none if one has an error.
pub(super) fn conditions(
    config: &Config,
    name: &Spanned<String>,
    route: &tables::Route,
    diagnostics: &mut Diagnostics,
) -> Option<Box<[Condition]>> {
    let headers = each(config, &route.headers, header, diagnostics);
    let query = each(config, &route.query, parameter, diagnostics);
    let cookies = each(config, &route.cookies, cookie, diagnostics);
    let mut conditions: Vec<Condition> =
        headers?.into_iter().chain(query?).chain(cookies?).collect();
    if conditions.len() > MAX_CONDITIONS {
        let message = format!(
            "the route `{}` has {} conditions; {MAX_CONDITIONS} are allowed",
            cut(name.get_ref(), 64),
            conditions.len()
        );
        diagnostics.push(Diagnostic::new(name.span(), message));
        return None;
    }
    conditions.sort_by(|one, other| one.source.cmp(&other.source));
    Some(conditions.into())
}

/// The conditions of one table; none if one has an error.
fn each(
    config: &Config,
    table: &Named<TextOrSwitch>,
    source: fn(&str) -> Result<Source, Mistake>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Condition>> {
    let mut seen = HashMap::new();
    let conditions = in_order(table).into_iter().map(|(name, value)| {
        let source = source(name.get_ref()).map_err(|mistake| mistake.at(name.span()));
        let condition = source.and_then(|source| {
            let is_secret = is_secret(config, &source);
            let test = test(&source, value.get_ref(), is_secret);
            let test = test.map_err(|mistake| mistake.at(value.span()))?;
            if let Some(first) = seen.insert(source.clone(), name.span()) {
                let diagnostic = Diagnostic::new(name.span(), format!("{source} is written twice"));
                let help = "names of headers are case-insensitive; keep one";
                return Err(diagnostic.and(first, "first here").help(help));
            }
            Ok(Condition { source, test, is_secret })
        });
        condition.map_err(|diagnostic| diagnostics.push(diagnostic)).ok()
    });
    // All errors are reported.
    let conditions: Vec<Option<Condition>> = conditions.collect();
    conditions.into_iter().collect()
}

fn header(name: &str) -> Result<Source, Mistake> {
    let shown = cut(name, 64);
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let Some(parsed) = parsed.ok().filter(|name| name.as_str().len() <= MAX_NAME_BYTES) else {
        let message = format!("`{shown}` is not the name of a header");
        return Err(Mistake::new(message, "a name has up to 64 letters, digits, `-` and `_`"));
    };
    if let Some((_, help)) = OTHERWISE.iter().find(|(name, _)| parsed == *name) {
        return Err(Mistake::new(format!("`headers` has no condition on `{shown}`"), *help));
    }
    if OF_THE_CONNECTION.contains(&parsed.as_str()) {
        let message = format!("`{shown}` says how a request is sent, and selects no route");
        return Err(Mistake::new(message, "proxies and versions of HTTP change it; drop it"));
    }
    Ok(Source::Header(parsed.as_str().into()))
}

fn parameter(name: &str) -> Result<Source, Mistake> {
    let is_wrong = |c: char| c.is_control() || " &=;%+#".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(is_wrong) {
        let message = format!("`{}` is not the name of a query parameter", cut(name, 64));
        let help =
            "write it decoded: up to 64 bytes without spaces, `&`, `=`, `;`, `%`, `+` and `#`";
        return Err(Mistake::new(message, help));
    }
    Ok(Source::Query(name.into()))
}

fn cookie(name: &str) -> Result<Source, Mistake> {
    let is_right = |byte: u8| byte.is_ascii_graphic() && !b"=;,\"%+".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_right) {
        let message = format!("`{}` is not the name of a cookie", cut(name, 64));
        let help = "a name has up to 64 letters, digits, `-`, `_` and `.`";
        return Err(Mistake::new(message, help));
    }
    Ok(Source::Cookie(name.into()))
}

/// What the values of a source are compared with.
fn test(source: &Source, value: &TextOrSwitch, is_secret: bool) -> Result<Test, Mistake> {
    let text = match value {
        TextOrSwitch::Switch(true) => return Ok(Test::Present),
        TextOrSwitch::Switch(false) => return Ok(Test::Absent),
        TextOrSwitch::Text(text) => text,
    };
    let (fixed, is_prefix) = match text.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (text.as_str(), false),
    };
    if is_secret && !is_scheme(fixed, is_prefix) {
        let message = format!("{source} is a credential, which must not be in this file");
        let help = "write `true` for requests that have one, or its scheme, such as `\"Bearer*\"`";
        return Err(Mistake::new(message, help));
    }
    check_value(fixed)?;
    match source {
        Source::Header(_) if text.trim() != text => {
            let message = "the value begins or ends with a space";
            return Err(Mistake::new(message, "headers arrive without spaces around their values"));
        }
        Source::Query(_) if has_escape(fixed) => {
            let help = "write it decoded: `a b` for `a%20b` and `a+b`";
            return Err(Mistake::new("the value is percent-encoded", help));
        }
        Source::Cookie(_) if fixed.contains([';', '"']) || text.trim() != text => {
            let help = "write it without quotes, without `;`, and without spaces around it";
            return Err(Mistake::new("the value is not that of a cookie", help));
        }
        Source::Header(_) | Source::Query(_) | Source::Cookie(_) => {}
    }
    Ok(if is_prefix { Test::Begins(fixed.into()) } else { Test::Is(fixed.into()) })
}

/// Checks a value without its final `*`.
fn check_value(fixed: &str) -> Result<(), Mistake> {
    const HELP: &str = "write `true` for any value, and `false` for requests without one";
    if fixed.is_empty() {
        return Err(Mistake::new("the value is empty", HELP));
    }
    if fixed.contains('*') {
        let message = "`*` is allowed only at the end of the value";
        return Err(Mistake::new(message, "such as `\"2*\"`: what begins with `2`"));
    }
    if fixed.chars().any(char::is_control) {
        return Err(Mistake::new("the value has a control character", HELP));
    }
    if fixed.len() > MAX_VALUE_BYTES {
        let message = format!("the value is longer than {MAX_VALUE_BYTES} bytes");
        return Err(Mistake::new(message, "write its beginning, with a `*` at the end"));
    }
    Ok(())
}

/// Whether a value is only the name of an authentication scheme.
fn is_scheme(fixed: &str, is_prefix: bool) -> bool {
    is_prefix && fixed.trim_end().bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn has_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    (0..bytes.len()).any(|at| bytes.get(at..).and_then(percent::escape).is_some())
}

/// Whether the values of a source are credentials.
fn is_secret(config: &Config, source: &Source) -> bool {
    let is_key_place = |place: String| match &config.clients {
        Some(clients) if clients.get_ref().api_key.is_some() => {
            let places = clients.get_ref().api_key.iter().flat_map(Spanned::get_ref);
            places.into_iter().any(|one| one.get_ref().eq_ignore_ascii_case(&place))
        }
        _ => ["header:x-api-key", "query:api_key"].contains(&place.as_str()),
    };
    match source {
        Source::Header(name) if matches!(&**name, "authorization" | "proxy-authorization") => true,
        Source::Header(name) => is_key_place(format!("header:{name}")),
        Source::Query(name) => is_key_place(format!("query:{name}")),
        Source::Cookie(_) => false,
    }
}

/// A request that two routes with conditions match, neither of which takes precedence.
pub(super) fn common_request(first: &Matcher, second: &Matcher) -> String {
    let methods = &first.conditions.methods;
    let method = methods.iter().find(|method| second.conditions.methods.contains(method));
    let method = method.map_or("GET", http::Method::as_str);
    let host = first.hosts.common(&second.hosts).unwrap_or_default();
    let conditions = condition::both(&first.conditions.on_values, &second.conditions.on_values);
    let (mut query, mut others) = (String::new(), String::new());
    let mut add = |text: String| others.push_str(&text);
    for Condition { source, test, .. } in &conditions {
        let value = match test {
            Test::Is(text) | Test::Begins(text) => text,
            Test::Present => "1",
            Test::Absent => continue,
        };
        match source {
            Source::Query(name) => {
                query.push(if query.is_empty() { '?' } else { '&' });
                query += &percent::encode_component(name);
                query.push('=');
                query += &percent::encode_component(value);
            }
            Source::Header(name) => add(format!(" with `{name}: {value}`")),
            Source::Cookie(name) => add(format!(" with the cookie `{name}={value}`")),
        }
    }
    let path = match &first.path {
        PathPattern::Expression(expression) => {
            let text = cut(expression.text(), 64);
            let query = if query.is_empty() { query } else { format!(" with `{query}`") };
            return format!("`{method}` of a path that matches `{text}`{query}{others}");
        }
        PathPattern::Exact(path) => sample_path(path),
        PathPattern::Prefix(prefix) => format!("{}x", sample_path(prefix)),
    };
    format!("`{method} {host}{path}{query}`{others}")
}

/// A path that a pattern without `*` matches.
fn sample_path(pattern: &str) -> String {
    let each = segments(pattern).map(|own| if param_name(own).is_some() { "x" } else { own });
    each.fold(String::new(), |path, segment| path + "/" + segment)
}
