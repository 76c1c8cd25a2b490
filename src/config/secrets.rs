//! Keeps secrets out of diagnostics, which end up in logs: the file may contain a password, or an
//! API key where its hash belongs. A copy of the file is masked byte for byte, so that spans stay
//! valid.

mod lines;

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::acme::{Acme, Eab};
use super::reference;
use super::tables::{AccessLog, Breaker, Clients, Redis, Tracing};
use super::walk::Table;

/// Settings of `[keys.<id>]` that are not secret.
const PUBLIC: [&str; 6] = ["plan", "description", "rules", "rate", "limit", "burst"];

/// Settings that are secret in any table, such as one that they were moved to by mistake.
const SECRET: [&str; 8] = [
    "password",
    "sentinel_password",
    "token",
    "salt",
    "secret",
    "authorization",
    "storage_key",
    "hmac_key",
];

/// Settings that are lists or tables with secrets, or whose own settings are looked at one by one.
const WITH_SECRETS: [&str; 4] = ["api_key", "headers", "breaker", "eab"];

/// Setting of routes whose values may be secret.
const REQUEST_HEADERS: &str = "request_headers";

/// Maximum length of the name of a header or a parameter that is shown.
const MAX_PLACE_BYTES: usize = 64;

/// The settings of a table that may be shown. A name that the table does not have may be a
/// misspelled secret.
fn public<T: Table>() -> impl Iterator<Item = &'static str> {
    let names = T::NAMES.iter().copied();
    names.filter(|name| !SECRET.contains(name) && !WITH_SECRETS.contains(name))
}

/// A copy of the file without secrets, with the same length and the same lines.
pub(super) fn mask(text: &str) -> String {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut secrets = Vec::new();
    collect(table.get_ref(), 0, false, &mut secrets);
    collect_of_redis(text, table.get_ref(), &mut secrets);
    collect_of_admin(table.get_ref(), &mut secrets);
    collect_of_clients(table.get_ref(), &mut secrets);
    collect_of_access_log(table.get_ref(), &mut secrets);
    collect_of_tracing(text, table.get_ref(), &mut secrets);
    collect_of_acme(text, table.get_ref(), &mut secrets);
    if !errors.is_empty() {
        // The values of lines that are not TOML are not in the table.
        lines::doubtful(text, &mut secrets);
    }
    lines::passwords_in_urls(text, &mut secrets);
    cover(text, secrets)
}

/// Whether a value is a SHA-256 in hexadecimal digits, which may be shown.
pub fn is_digest(value: &str) -> bool {
    value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether an item of `api_key` is a place such as `header:x-api-key`, or nearly, and may be shown.
pub fn is_key_place(item: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    match item.split_once(':') {
        Some(("header" | "query", name)) => {
            name.len() <= MAX_PLACE_BYTES && name.bytes().all(is_plain)
        }
        _ => ["bearer", "x-api-key"].iter().any(|place| item.eq_ignore_ascii_case(place)),
    }
}

/// Collects the spans of values that may be secrets. `in_keys`: the table is part of `[keys]`.
fn collect(table: &DeTable<'_>, depth: usize, in_keys: bool, secrets: &mut Vec<Range<usize>>) {
    for (name, value) in table {
        let in_keys = in_keys || (depth == 0 && name.get_ref() == "keys");
        let name = name.get_ref().as_ref();
        let is_public = in_keys && depth >= 2 && PUBLIC.contains(&name);
        match value.get_ref() {
            DeValue::Table(edits) if name == REQUEST_HEADERS => {
                let values = edits.values().filter(|value| value.get_ref().is_table());
                values.for_each(|headers| hide_values(headers, secrets));
            }
            DeValue::Table(inner) => collect(inner, depth + 1, in_keys && !is_public, secrets),
            _ if is_public => {}
            _ if in_keys || name == "sha256" => secrets.extend(hidden(value)),
            _ if SECRET.contains(&name) => hide_unless_reference(value, secrets),
            DeValue::Array(items) => {
                for inner in items.iter().filter_map(|item| item.get_ref().as_table()) {
                    collect(inner, depth + 1, false, secrets);
                }
            }
            _ => {}
        }
    }
}

/// Adds the values of a table of headers, which may be credentials of the gateway at an upstream.
fn hide_values(headers: &Spanned<DeValue<'_>>, secrets: &mut Vec<Range<usize>>) {
    if let DeValue::Table(headers) = headers.get_ref() {
        headers.values().for_each(|value| hide_unless_reference(value, secrets));
    }
}

/// Collects the spans of the secrets in `[redis]`.
fn collect_of_redis(text: &str, table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    let Some(redis) = table.get("redis") else { return };
    match redis.get_ref() {
        DeValue::Table(settings) => collect_of_settings(text, settings, secrets),
        // `[[redis]]`: the span of the list is that of the name, which may be shown.
        DeValue::Array(tables) if tables.iter().all(|one| one.get_ref().is_table()) => {
            for settings in tables.iter().filter_map(|one| one.get_ref().as_table()) {
                collect_of_settings(text, settings, secrets);
            }
        }
        _ => hide_whole(redis, secrets),
    }
}

fn collect_of_settings(text: &str, settings: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    for (name, value) in settings {
        if name.get_ref() == "url" {
            url(text, value.span(), secrets);
        } else if let ("breaker", DeValue::Table(inner)) =
            (name.get_ref().as_ref(), value.get_ref())
        {
            for (name, value) in inner {
                if !public::<Breaker>().any(|public| name.get_ref() == public) {
                    hide_whole(value, secrets);
                }
            }
        } else if !public::<Redis>().any(|public| name.get_ref() == public) {
            hide_unless_reference(value, secrets);
        }
    }
}

/// Collects the spans of the values in `[admin]`, all of which are secret.
fn collect_of_admin(table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    let Some(admin) = table.get("admin") else { return };
    let DeValue::Table(settings) = admin.get_ref() else {
        hide_whole(admin, secrets);
        return;
    };
    settings.values().for_each(|value| hide_unless_reference(value, secrets));
}

/// Collects the spans of the secrets in `[clients]`.
fn collect_of_clients(table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    let Some(clients) = table.get("clients") else { return };
    let DeValue::Table(settings) = clients.get_ref() else {
        hide_whole(clients, secrets);
        return;
    };
    let hide_unless_place = |value: &Spanned<DeValue<'_>>, secrets: &mut Vec<Range<usize>>| {
        if !value.get_ref().as_str().is_some_and(is_key_place) {
            hide_whole(value, secrets);
        }
    };
    for (name, value) in settings {
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("api_key", DeValue::Array(items)) => {
                items.iter().for_each(|item| hide_unless_place(item, secrets));
            }
            ("api_key", _) => hide_unless_place(value, secrets),
            (name, _) if public::<Clients>().any(|public| name == public) => {}
            _ => hide_whole(value, secrets),
        }
    }
}

/// Collects the spans of the secrets in `[access_log]`.
fn collect_of_access_log(table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    let Some(log) = table.get("access_log") else { return };
    let DeValue::Table(settings) = log.get_ref() else {
        hide_whole(log, secrets);
        return;
    };
    for (name, value) in settings {
        if !public::<AccessLog>().any(|public| name.get_ref() == public) {
            hide_unless_reference(value, secrets);
        }
    }
}

/// Collects the spans of the secrets in `[tracing]`.
fn collect_of_tracing(text: &str, table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    let Some(tracing) = table.get("tracing") else { return };
    let DeValue::Table(settings) = tracing.get_ref() else {
        hide_whole(tracing, secrets);
        return;
    };
    for (name, value) in settings {
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("endpoint", _) => url(text, value.span(), secrets),
            ("headers", DeValue::Table(headers)) => {
                headers.values().for_each(|value| hide_unless_reference(value, secrets));
            }
            (name, _) if public::<Tracing>().any(|public| name == public) => {}
            _ => hide_unless_reference(value, secrets),
        }
    }
}

/// Collects the spans of the secrets in `[acme]`.
fn collect_of_acme(text: &str, table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    let Some(acme) = table.get("acme") else { return };
    let DeValue::Table(settings) = acme.get_ref() else {
        hide_whole(acme, secrets);
        return;
    };
    for (name, value) in settings {
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("directory", _) => url(text, value.span(), secrets),
            ("eab", DeValue::Table(account)) => {
                let is_hidden = |name: &str| !public::<Eab>().any(|public| name == public);
                let hidden = account.iter().filter(|(name, _)| is_hidden(name.get_ref()));
                hidden.for_each(|(_, value)| hide_unless_reference(value, secrets));
            }
            (name, _) if public::<Acme>().any(|public| name == public) => {}
            _ => hide_unless_reference(value, secrets),
        }
    }
}

/// Adds a value, unless it only names a variable of the environment or a file.
fn hide_unless_reference(value: &Spanned<DeValue<'_>>, secrets: &mut Vec<Range<usize>>) {
    if !value.get_ref().as_str().is_some_and(is_reference) {
        hide_whole(value, secrets);
    }
}

/// Adds a value and everything in it, but not the names of tables.
fn hide_whole(value: &Spanned<DeValue<'_>>, secrets: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(inner) => inner.values().for_each(|value| hide_whole(value, secrets)),
        DeValue::Array(items) => items.iter().for_each(|item| hide_whole(item, secrets)),
        _ => secrets.push(value.span()),
    }
}

/// Whether a value only names a variable of the environment or a file.
fn is_reference(value: &str) -> bool {
    if reference::is_reference(value) {
        return true;
    }
    let name = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| !name.contains(['$', '{', '}']))
}

/// Adds the parts of a url that may be secret: all before the last `@`, because a password may
/// contain an unescaped `/`, and what follows a `?`, where other programs accept a password.
fn url(text: &str, place: Range<usize>, secrets: &mut Vec<Range<usize>>) {
    let Some(url) = text.get(place.clone()) else { return };
    let start = url.find("://").map_or(1, |at| at + 3);
    let login = url.rfind('@').unwrap_or(0);
    secrets.push(place.start + start..place.start + login);
    if let Some(query) = url[login..].find(['?', '#']) {
        secrets.push(place.start + login + query + 1..place.end.saturating_sub(1));
    }
}

/// The span of a value, unless it is a digest.
fn hidden(value: &Spanned<DeValue<'_>>) -> Option<Range<usize>> {
    let shown = value.get_ref().as_str().is_some_and(is_digest);
    (!shown).then(|| value.span())
}

/// The text with an asterisk for every byte of every range except line breaks.
fn cover(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_by_key(|range| range.start);
    let mut ranges = ranges.into_iter().peekable();
    let mut covered_to = 0;
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        while let Some(range) = ranges.next_if(|range| range.start <= at) {
            covered_to = covered_to.max(range.end);
        }
        if c == '\r' {
            // Part of a line break, or an error. The renderer would show it as `␍`.
            shown.push(' ');
        } else if at < covered_to && c != '\n' {
            (0..c.len_utf8()).for_each(|_| shown.push('*'));
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests;
