//! Keeps secrets out of diagnostics: people paste an API key where its hash belongs, Redis has a
//! password, and what is shown of a file ends up in logs. A copy of the file is masked byte for byte, so that places in
//! it stay right.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What may stand in `[keys.<id>]` and is no secret.
const PUBLIC: [&str; 5] = ["plan", "description", "rules", "rate", "burst"];

/// What may stand in `[redis]` and is no secret; of `url`, all but the login.
const PUBLIC_IN_REDIS: [&str; 10] = [
    "url",
    "timeout",
    "on_failure",
    "prefix",
    "username",
    "database",
    "sentinel_username",
    "ca",
    "client_cert",
    "client_key",
];

/// A copy of the file that may be shown: same length, same lines.
pub(super) fn mask(text: &str) -> String {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut secrets = Vec::new();
    collect(table.get_ref(), 0, false, &mut secrets);
    collect_of_redis(text, table.get_ref(), &mut secrets);
    if !errors.is_empty() {
        // What the parser made of a broken file may lack the very value that matters.
        doubtful_lines(text, &mut secrets);
    }
    passwords_in_urls(text, &mut secrets);
    cover(text, secrets)
}

/// Whether a value is what `sha256` asks for, and so may be shown.
pub fn is_digest(value: &str) -> bool {
    value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The places of values that may be secrets. `in_keys`: the table is part of `[keys]`.
fn collect(table: &DeTable<'_>, depth: usize, in_keys: bool, secrets: &mut Vec<Range<usize>>) {
    for (name, value) in table {
        let in_keys = in_keys || (depth == 0 && name.get_ref() == "keys");
        let is_public = in_keys && depth >= 2 && PUBLIC.contains(&name.get_ref().as_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, depth + 1, in_keys && !is_public, secrets),
            _ if is_public => {}
            _ if in_keys || name.get_ref() == "sha256" => secrets.extend(hidden(value)),
            _ => {}
        }
    }
}

/// The same for `[redis]`.
fn collect_of_redis(text: &str, table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    let Some(redis) = table.get("redis") else { return };
    match redis.get_ref() {
        DeValue::Table(settings) => collect_of_settings(text, settings, secrets),
        // `[[redis]]`: the place of the list is that of the name alone, which may be shown.
        DeValue::Array(tables) if tables.iter().all(|one| one.get_ref().is_table()) => {
            for settings in tables.iter().filter_map(|one| one.get_ref().as_table()) {
                collect_of_settings(text, settings, secrets);
            }
        }
        _ => secrets.push(redis.span()),
    }
}

fn collect_of_settings(text: &str, settings: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    for (name, value) in settings {
        if name.get_ref() == "url" {
            url_of_redis(text, value.span(), secrets);
        } else if !PUBLIC_IN_REDIS.contains(&name.get_ref().as_ref())
            && !value.get_ref().as_str().is_some_and(is_reference)
        {
            hide_whole(value, secrets);
        }
    }
}

/// A value with all that it holds: the place of a table may be its name alone.
fn hide_whole(value: &Spanned<DeValue<'_>>, secrets: &mut Vec<Range<usize>>) {
    secrets.push(value.span());
    if let DeValue::Table(inner) = value.get_ref() {
        inner.values().for_each(|value| hide_whole(value, secrets));
    }
}

/// Whether a value only names a variable of the environment.
fn is_reference(value: &str) -> bool {
    let name = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| !name.contains(['$', '{', '}']))
}

/// What may be secret of a url in this place: all before the last `@`, since a password may have
/// been written with a `/`, and what follows a `?`, where other programs take one.
fn url_of_redis(text: &str, place: Range<usize>, secrets: &mut Vec<Range<usize>>) {
    let Some(url) = text.get(place.clone()) else { return };
    let start = url.find("://").map_or(1, |at| at + 3);
    let login = url.rfind('@').unwrap_or(0);
    secrets.push(place.start + start..place.start + login);
    if let Some(query) = url[login..].find(['?', '#']) {
        secrets.push(place.start + login + query + 1..place.end.saturating_sub(1));
    }
}

/// The place of a value, unless it is a digest.
fn hidden(value: &Spanned<DeValue<'_>>) -> Option<Range<usize>> {
    let shown = value.get_ref().as_str().is_some_and(is_digest);
    (!shown).then(|| value.span())
}

/// Lines of `[keys]` and `[redis]`, of `sha256` and of passwords, from the equals sign on.
fn doubtful_lines(text: &str, secrets: &mut Vec<Range<usize>>) {
    let (mut in_keys, mut in_redis) = (false, false);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with('[') {
            let name = trimmed.trim_start_matches(['[', ' ', '\t', '"', '\'']);
            (in_keys, in_redis) = (name.starts_with("keys"), name.starts_with("redis"));
        }
        let is_public = PUBLIC.iter().any(|name| trimmed.starts_with(name));
        let is_key = in_keys && !is_public && !trimmed.starts_with('[');
        let is_login = (in_redis && !PUBLIC_IN_REDIS.iter().any(|name| trimmed.starts_with(name)))
            || (in_redis && trimmed.starts_with("url") && line.contains('@'))
            || trimmed.starts_with("redis")
            || line.contains("password");
        let is_login = is_login && !trimmed.starts_with('[');
        if is_key || is_login || line.contains("sha256") || trimmed.starts_with("keys") {
            let from = line.find('=').or_else(|| line.find("sha256").map(|at| at + 5));
            let from = from.map_or(0, |at| at + 1);
            secrets.push(start + from..start + line.len());
        }
        start += line.len();
    }
}

/// `user:password` in `scheme://user:password@host`.
fn passwords_in_urls(text: &str, secrets: &mut Vec<Range<usize>>) {
    for (at, separator) in text.match_indices("://") {
        let from = at + separator.len();
        let rest = &text[from..];
        let end = rest.find(['"', '\'', '/', '\n', ' ', ',']).unwrap_or(rest.len());
        if let Some(length) = rest[..end].rfind('@') {
            secrets.push(from..from + length);
        }
    }
}

/// The text with an asterisk for every byte of every range; line breaks stay.
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
            // Part of a line break, or an error: neither needs to be seen as `␍`.
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
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_key_is_never_shown() {
        let table = [
            "[keys.a]\nsha256 = \"hunter2\"",
            "[keys.a]\nsha256 = hunter2",
            "[keys.a]\nsha256 = \"hunter2",
            "[keys.a]\nsha256 hunter2",
            "[keys.a]\nsha265 = \"hunter2\"",
            "[keys.a]\nsha256 = [\"hunter2\"]",
            "[keys.a]\nsecret.is = \"hunter2\"",
            "[keys.a]\nsha256 = \"\"\"\nhunter2\n\"\"\"",
            "keys.a.sha256 = 'hunter2'",
            "keys = { a = { sha256 = 'hunter2', plan = 'free' } }",
            "keys = { a = { sha256 = 'hunter2' plan = 'free' ",
            "keys.a = 'hunter2'",
            "[keys]\na = { key = 'hunter2' }",
            "[key.a]\nsha256 = 'hunter2'",
            "[redis]\nurl = \"redis://u:hunter2@h:1\"",
            "[redis]\nurl = \"redis://u:a/hunter2@h:1\"",
            "[redis]\nurl = \"redis+sentinel://u:hunter2@h,i/x\"",
            "[redis]\nurl = \"redis://h?password=hunter2\"",
            "[redis]\nurl = 'redis://:hunter2@h",
            "[redis]\nurl = redis://:hunter2,x@h",
            "[redis]\nurl = \"tcp://u:hunter2@h:1\"",
            "[redis]\nurl = \"u:hunter2@h:1\"",
            "[redis]\npassword = \"hunter2\"",
            "[redis]\nsentinel_password = '''hunter2'''",
            "[redis]\npasword = 'hunter2'",
            "[redis]\npassword = hunter2",
            "[redis]\npassword = 'hunter2",
            "[redis]\npasswort 'hunter2'",
            "[redis]\npassword = ['hunter2']",
            "[redis]\npassword = '${A}hunter2'",
            "[redis]\nauth.password = 'hunter2'",
            "redis = { url = 'redis://h', password = 'hunter2' }",
            "redis = { url = 'redis://h' password = 'hunter2' ",
            "redis.password = 'hunter2'",
            "redis = 'redis://:hunter2@h'",
            "redis = ['hunter2']",
            "[redis\npassword = 'hunter2'",
        ];
        for text in table {
            let shown = mask(text);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(shown.len(), text.len());
            assert_eq!(shown.lines().count(), text.lines().count());
        }
    }

    #[test]
    fn everything_else_is_shown() {
        let digest = "9F".repeat(32);
        let text =
            format!("[keys.a]\nsha256 = \"{digest}\"\nplan = \"prö\"\n[rules.x]\nrate='1/s'");
        assert_eq!(mask(&text), text);
        for text in [
            "url = \"http://h/a@b\"",
            "[redis]\nurl = 'redis://h:6379/2'\nusername = 'u'\npassword = '${REDIS_PASSWORD}'",
        ] {
            assert_eq!(mask(text), text);
        }
    }
}
