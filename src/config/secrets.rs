//! Keeps secrets out of diagnostics, which end up in logs: the file may contain a password, or an
//! API key where its hash belongs. A copy of the file is masked byte for byte, so that spans stay
//! valid.

mod lines;

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use super::reference;
use super::row::{Contents, Row, Shown};

/// A member of headers that is secret in any table. It is no setting.
const AUTHORIZATION: &str = "authorization";

/// Maximum length of the name of a header or a parameter that is shown.
const MAX_PLACE_BYTES: usize = 64;

/// How the values of names that a table does not have are shown: such a name may be that of a
/// secret, misspelled or in the wrong table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// As that of the setting of this name of any other table.
    ByName,
    /// Masked, unless they only name a variable or a file.
    Masked,
    /// Masked, unless they are a SHA-256.
    UnlessDigest,
}

impl Unknown {
    /// That of a table with these settings, within a table with `around`.
    fn of(rows: &[Row], around: Self) -> Self {
        let has = |shown: &[Shown]| rows.iter().any(|row| shown.contains(&row.shown));
        if has(&[Shown::Digest]) {
            Self::UnlessDigest
        } else if around == Self::Masked || has(&[Shown::Masked, Shown::Url, Shown::KeyPlaces]) {
            Self::Masked
        } else {
            Self::ByName
        }
    }
}

/// A copy of the file without secrets, with the same length and the same lines.
pub(super) fn mask(text: &str) -> String {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut secrets = Secrets { text, spans: Vec::new() };
    secrets.settings(table.get_ref(), Config::rows(), Unknown::ByName);
    let mut secrets = secrets.spans;
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

/// How the setting `name` of any table is shown, if it is a secret there.
fn secret_by_name(name: &str) -> Option<Shown> {
    fn find(rows: &[Row], name: &str) -> Option<Shown> {
        rows.iter().find_map(|row| {
            let is_secret = row.name == name && matches!(row.shown, Shown::Masked | Shown::Digest);
            if is_secret { Some(row.shown) } else { find(row.rows(), name) }
        })
    }
    if name == AUTHORIZATION { Some(Shown::Masked) } else { find(Config::rows(), name) }
}

/// The spans of the values of a file that may be secrets.
struct Secrets<'a> {
    text: &'a str,
    spans: Vec<Range<usize>>,
}

impl Secrets<'_> {
    /// Adds those of a table with these settings.
    fn settings(&mut self, table: &DeTable<'_>, rows: &[Row], unknown: Unknown) {
        for (name, value) in table {
            let name = name.get_ref().as_ref();
            // A public setting of a table within may be one level too high.
            let is_public = |row: &Row| row.name == name && row.shown == Shown::Whole;
            match rows.iter().find(|row| row.name == name) {
                Some(row) => self.setting(row, value, unknown),
                None if rows.iter().flat_map(Row::rows).any(is_public) => self.by_name(value),
                None => self.unknown(name, value, unknown),
            }
        }
    }

    /// Adds those of a setting, in a table whose names that it does not have are shown as `around`.
    fn setting(&mut self, row: &Row, value: &Spanned<DeValue<'_>>, around: Unknown) {
        match (row.shown, row.contents) {
            (Shown::Masked, _) => self.hide_unless_reference(value),
            (Shown::Digest, _) => self.hide_unless_digest(value),
            (Shown::Url, _) => self.hide_in_url(value.span()),
            (Shown::KeyPlaces, _) => self.hide_unless_places(value),
            (Shown::Values, Contents::Table(edits)) => self.hide_values_of(value, edits),
            (Shown::Values, _) => self.hide_values(value),
            (Shown::Whole, Contents::Value) => self.by_name(value),
            (Shown::Whole, Contents::Table(rows)) => {
                self.table(value, rows, Unknown::of(rows, around));
            }
            (Shown::Whole, Contents::Named(rows)) => {
                let unknown = Unknown::of(rows, around);
                match value.get_ref() {
                    DeValue::Table(entries) => {
                        entries.values().for_each(|entry| self.table(entry, rows, unknown));
                    }
                    _ => self.table(value, rows, unknown),
                }
            }
        }
    }

    /// Adds those of a table with these settings, or of a list of such tables. A value of another
    /// type is one of an unknown name.
    fn table(&mut self, value: &Spanned<DeValue<'_>>, rows: &[Row], unknown: Unknown) {
        match value.get_ref() {
            DeValue::Table(table) => self.settings(table, rows, unknown),
            DeValue::Array(items) => items.iter().for_each(|item| self.table(item, rows, unknown)),
            _ => self.unknown("", value, unknown),
        }
    }

    /// Adds those of a name that a table does not have.
    fn unknown(&mut self, name: &str, value: &Spanned<DeValue<'_>>, unknown: Unknown) {
        match (unknown, secret_by_name(name)) {
            (Unknown::UnlessDigest, _) | (Unknown::ByName, Some(Shown::Digest)) => {
                self.hide_unless_digest(value);
            }
            (Unknown::Masked, _) | (Unknown::ByName, Some(_)) => self.hide_unless_reference(value),
            (Unknown::ByName, None) => self.by_name(value),
        }
    }

    /// Adds those in a value whose names are those of secrets.
    fn by_name(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.settings(table, &[], Unknown::ByName),
            DeValue::Array(items) => items.iter().for_each(|item| self.by_name(item)),
            _ => {}
        }
    }

    /// Adds the values of the named entries of a table with these settings.
    fn hide_values_of(&mut self, value: &Spanned<DeValue<'_>>, rows: &[Row]) {
        let DeValue::Table(table) = value.get_ref() else { return self.hide_values(value) };
        for (name, value) in table {
            let row = rows.iter().find(|row| row.name == name.get_ref());
            if row.is_none_or(|row| matches!(row.contents, Contents::Named(_))) {
                self.hide_values(value);
            }
        }
    }

    /// Adds the values of a table, each unless it is a reference.
    fn hide_values(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => {
                table.values().for_each(|value| self.hide_unless_reference(value));
            }
            _ => self.hide_unless_reference(value),
        }
    }

    /// Adds the items of a list that are no places of keys.
    fn hide_unless_places(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Array(items) => items.iter().for_each(|item| self.hide_unless_places(item)),
            DeValue::String(text) if is_key_place(text) => {}
            _ => self.hide(value),
        }
    }

    /// Adds a value, unless it only names a variable of the environment or a file.
    fn hide_unless_reference(&mut self, value: &Spanned<DeValue<'_>>) {
        if !value.get_ref().as_str().is_some_and(is_reference) {
            self.hide(value);
        }
    }

    /// Adds a value, unless it is a digest; of a table, each value.
    fn hide_unless_digest(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => {
                table.values().for_each(|value| self.hide_unless_digest(value));
            }
            DeValue::String(text) if is_digest(text) => {}
            _ => self.hide(value),
        }
    }

    /// Adds a value and everything in it, but not the names of tables.
    fn hide(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(inner) => inner.values().for_each(|value| self.hide(value)),
            DeValue::Array(items) => items.iter().for_each(|item| self.hide(item)),
            _ => self.spans.push(value.span()),
        }
    }

    /// Adds the parts of a url that may be secret: all before the last `@`, because a password may
    /// contain an unescaped `/`, and what follows a `?`, where other programs accept a password.
    fn hide_in_url(&mut self, place: Range<usize>) {
        let Some(url) = self.text.get(place.clone()) else { return };
        let start = url.find("://").map_or(1, |at| at + 3);
        let login = url.rfind('@').unwrap_or(0);
        self.spans.push(place.start + start..place.start + login);
        if let Some(query) = url[login..].find(['?', '#']) {
            self.spans.push(place.start + login + query + 1..place.end.saturating_sub(1));
        }
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
