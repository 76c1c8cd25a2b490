//! Changes of headers, of requests or of responses: `{ set, add, remove }`.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::environment::Environment;
use super::template::{Expanded, template};
use crate::base::text::cut;
use crate::config::Named;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::handling;
use crate::config::in_order;
use crate::config::spanned::Spanned;
use crate::policy::handling::{HeaderEdit, HeaderEdits, HeaderText};

/// Maximum number of changes in one table.
const MAX_EDITS: usize = 64;

/// Maximum length of a value, in bytes.
const MAX_VALUE_BYTES: usize = 4096;

/// Which messages are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Headers of a connection, and of where a message ends (RFC 9110, section 7.6.1; RFC 9113, section
/// 8.2.2).
const OF_THE_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
];

/// Headers that the gateway itself sends to upstreams.
const OF_REQUESTS: [&str; 6] = [
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
    "traceparent",
    "tracestate",
];

/// Headers of the last response to clients that the gateway itself sends.
const OF_RESPONSES: [&str; 8] = [
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-mode",
    "x-ratelimit-reason",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// The changes of a table, without those that have an error.
pub(super) fn edits(
    field: Option<&Spanned<handling::HeaderEdits>>,
    direction: Direction,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> HeaderEdits {
    let Some(field) = field else { return HeaderEdits::default() };
    let table = field.get_ref();
    let count = table.set.len()
        + table.add.len()
        + table.remove.as_ref().map_or(0, |list| list.get_ref().len());
    if count > MAX_EDITS {
        let message = format!("there are {count} changes of headers; {MAX_EDITS} are allowed");
        diagnostics.push(Diagnostic::new(field.span(), message));
    }
    let mut seen = HashMap::new();
    let remove = table.remove.iter().flat_map(Spanned::get_ref);
    let remove = remove.filter_map(|item| {
        let name = name(item.get_ref(), item.span(), direction, diagnostics)?;
        once(&mut seen, &name, item.span(), diagnostics)?;
        Some(name)
    });
    let remove = remove.collect();
    let set = headers(&table.set, direction, environment, &mut seen, diagnostics);
    // A header can be set and added: the first is its first line.
    let mut seen = HashMap::new();
    let add = headers(&table.add, direction, environment, &mut seen, diagnostics);
    HeaderEdits { remove, set, add }
}

/// The headers of a table, without those that have an error or are in `seen`.
pub(super) fn headers(
    table: &Named<String>,
    direction: Direction,
    environment: Environment<'_>,
    seen: &mut HashMap<HeaderName, Range<usize>>,
    diagnostics: &mut Diagnostics,
) -> Vec<HeaderEdit> {
    let each = in_order(table).into_iter().filter_map(|(written, field)| {
        let name = name(written.get_ref(), written.span(), direction, diagnostics);
        let value = value(field, environment, diagnostics);
        let name = name?;
        once(seen, &name, written.span(), diagnostics)?;
        Some(HeaderEdit { name, written: Bytes::from(written.get_ref().clone()), value: value? })
    });
    each.collect()
}

/// Reports a header that is written twice, in two spellings or in two lists.
fn once(
    seen: &mut HashMap<HeaderName, Range<usize>>,
    name: &HeaderName,
    span: Range<usize>,
    diagnostics: &mut Diagnostics,
) -> Option<()> {
    let Some(first) = seen.insert(name.clone(), span.clone()) else { return Some(()) };
    let message = format!("the header `{}` is written twice", cut(name.as_str(), 64));
    let help = "names of headers are case-insensitive, and `set` removes what was there; keep one";
    diagnostics.push(Diagnostic::new(span, message).and(first, "first here").help(help));
    None
}

/// The name of a header that may be changed.
pub(super) fn name(
    text: &str,
    span: Range<usize>,
    direction: Direction,
    diagnostics: &mut Diagnostics,
) -> Option<HeaderName> {
    let shown = cut(text, 64);
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        let message = format!("`{shown}` is not the name of a header");
        let help = "a name has letters, digits, `-` and `_`";
        diagnostics.push(Diagnostic::new(span, message).help(help));
        return None;
    };
    let Some((what, help)) = reserved(&name, direction) else { return Some(name) };
    let message = format!("the header `{shown}` {what}");
    diagnostics.push(Diagnostic::new(span, message).help(help));
    None
}

/// Why a header cannot be changed, and what to do instead.
fn reserved(name: &HeaderName, direction: Direction) -> Option<(&'static str, &'static str)> {
    // Servers may read `_` as `-`.
    let name = name.as_str().replace('_', "-");
    let name = name.as_str();
    if OF_THE_CONNECTION.contains(&name) {
        Some((
            "belongs to the connection, or says where a message ends",
            "the gateway writes it for each connection; leave it out",
        ))
    } else if direction == Direction::Request && name == "host" {
        Some(("is not changed here", "write `upstream_host = \"…\"` in the route"))
    } else if direction == Direction::Request && OF_REQUESTS.contains(&name) {
        Some((
            "is set by the gateway itself",
            "leave it out, or take another name: upstreams trust this one",
        ))
    } else if direction == Direction::Response && OF_RESPONSES.contains(&name) {
        Some((
            "is set by the gateway itself",
            "which rate limit headers responses have is a setting of `[headers]`",
        ))
    } else {
        None
    }
}

fn value(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<HeaderText> {
    let Expanded { template, .. } = template(field, environment, diagnostics)?;
    let is_valid = |text: &str| {
        text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
            && text.len() <= MAX_VALUE_BYTES
    };
    if !template.texts().all(is_valid) {
        let message = "the value has a character that a header cannot have, or is too long";
        let help =
            "it can have visible ASCII characters and spaces, up to 4096; is there a line break?";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    let Some(text) = template.constant() else { return Some(HeaderText::Template(template)) };
    if text.trim_ascii() != text {
        let message = "the value begins or ends with a space, which a header cannot have";
        diagnostics.push(Diagnostic::new(field.span(), message).help("remove the space"));
        return None;
    }
    // Its characters have been checked.
    HeaderValue::from_str(text).ok().map(HeaderText::Constant)
}
