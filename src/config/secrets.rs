//! Keeps secrets out of diagnostics: people paste an API key where its hash belongs, and what is
//! shown of a file ends up in logs. A copy of the file is masked byte for byte, so that places in
//! it stay right.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What may stand in `[keys.<id>]` and is no secret.
const PUBLIC: [&str; 5] = ["plan", "description", "rules", "rate", "burst"];

/// A copy of the file that may be shown: same length, same lines.
pub(super) fn mask(text: &str) -> String {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut secrets = Vec::new();
    collect(table.get_ref(), 0, false, &mut secrets);
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

/// The place of a value, unless it is a digest.
fn hidden(value: &Spanned<DeValue<'_>>) -> Option<Range<usize>> {
    let shown = value.get_ref().as_str().is_some_and(is_digest);
    (!shown).then(|| value.span())
}

/// Lines of `[keys]` tables and of `sha256`, from the equals sign on.
fn doubtful_lines(text: &str, secrets: &mut Vec<Range<usize>>) {
    let mut in_keys = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with('[') {
            in_keys = trimmed.trim_start_matches(['[', ' ', '\t', '"', '\'']).starts_with("keys");
        }
        let is_public = PUBLIC.iter().any(|name| trimmed.starts_with(name));
        let is_key = in_keys && !is_public && !trimmed.starts_with('[');
        if is_key || line.contains("sha256") || trimmed.starts_with("keys") {
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
        assert_eq!(mask("url = \"http://h/a@b\""), "url = \"http://h/a@b\"");
    }
}
