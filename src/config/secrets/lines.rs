//! Finds secrets line by line, in files that are not TOML and therefore have no values.

use std::ops::Range;

use super::{AUTHORIZATION, Unknown};
use crate::config::Config;
use crate::config::row::{Contents, Row, Shown};
use crate::config::tables::Route;

/// Adds the lines of tables with secrets, and those of settings that are secret in any table, from
/// the equals sign on; a line that begins with a quote, as in a list, as a whole.
pub(super) fn doubtful(text: &str, secrets: &mut Vec<Range<usize>>) {
    let tables = Config::rows().iter().filter(|row| has_secrets(row)).collect::<Vec<_>>();
    let mut names = vec![AUTHORIZATION];
    secret_names(Config::rows(), &mut names);
    let mut table = "";
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let begins = |name: &str| trimmed.starts_with(name);
        let is_heading = trimmed.starts_with('[');
        if is_heading {
            table = trimmed.trim_start_matches(['[', ' ', '\t', '"', '\'']);
            // A malformed head may be that of any table, so its settings are treated as keys.
            let is_plain = |byte: u8| {
                byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"_-.'\" \t".contains(&byte)
            };
            if !table.split_once(']').is_some_and(|(name, _)| name.bytes().all(is_plain)) {
                table = Config::keys.name;
            }
        }
        let request_headers = Route::request_headers.name;
        let own = Config::rows().iter().find(|row| table.starts_with(row.name));
        let is_setting =
            |name| own.is_some_and(|own| own.rows().iter().any(|setting| setting.name == name));
        let is_secret = tables.iter().any(|row| {
            (begins(row.name) && !is_setting(row.name))
                || (table.starts_with(row.name) && !is_public(row, table, line))
        });
        let is_secret = is_secret
            || table.contains(request_headers)
            || line.contains(request_headers)
            || names.iter().any(|name| line.contains(name));
        if (is_secret && !is_heading) || line.contains("sha256") {
            let from = line.find('=').or_else(|| line.find("sha256").map(|at| at + 5));
            let from = from.filter(|_| !trimmed.starts_with(['"', '\''])).map_or(0, |at| at + 1);
            secrets.push(start + from..start + line.len());
        }
        start += line.len();
    }
}

/// Whether a line of a table may be a secret that is misspelled.
fn has_secrets(row: &Row) -> bool {
    Unknown::of(row.rows(), Unknown::ByName) != Unknown::ByName
}

/// Collects the names of settings that are secret.
fn secret_names(rows: &[Row], names: &mut Vec<&'static str>) {
    for row in rows {
        if matches!(row.shown, Shown::Masked | Shown::Digest) {
            names.push(row.name);
        }
        secret_names(row.rows(), names);
    }
}

/// Whether a line below the head `table`, which is that of `row` or of a table in it, begins with a
/// setting that may be shown.
fn is_public(row: &Row, table: &str, line: &str) -> bool {
    let is_shown = |setting: &Row| {
        line.trim_start().starts_with(setting.name)
            && match setting.shown {
                Shown::Whole => !matches!(setting.contents, Contents::Table(_)),
                Shown::Url => !line.contains(['@', '?']),
                _ => false,
            }
    };
    let is_in_values =
        row.rows().iter().any(|row| row.shown == Shown::Values && table.contains(row.name));
    let mut all = row.rows().iter().flat_map(|row| std::iter::once(row).chain(row.rows()));
    !is_in_values && all.any(is_shown)
}

/// Adds `user:password` in `scheme://user:password@host`.
pub(super) fn passwords_in_urls(text: &str, secrets: &mut Vec<Range<usize>>) {
    for (at, separator) in text.match_indices("://") {
        let from = at + separator.len();
        let rest = &text[from..];
        let end = rest.find(['"', '\'', '/', '\n', ' ', ',']).unwrap_or(rest.len());
        if let Some(length) = rest[..end].rfind('@') {
            secrets.push(from..from + length);
        }
    }
}
