//! Finds secrets line by line, in files that are not TOML and therefore have no values.

use std::ops::Range;

use super::{PUBLIC, REQUEST_HEADERS, public};
use crate::config::acme::{Acme, Eab};
use crate::config::tables::{AccessLog, Breaker, Clients, Redis, Tracing};

/// Adds the lines of `[keys]`, `[redis]`, `[clients]`, `[access_log]`, `[tracing]`, `[acme]`,
/// `[admin]` and `request_headers`, and those of settings that are secret in any table, from the
/// equals sign on; a line that begins with a quote, as in a list, as a whole.
pub(super) fn doubtful(text: &str, secrets: &mut Vec<Range<usize>>) {
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
                table = "keys";
            }
        }
        let is_secret_here = if table.starts_with("keys") {
            !PUBLIC.into_iter().any(begins)
        } else if table.starts_with("redis") {
            let is_public = public::<Redis>().chain(public::<Breaker>()).any(begins);
            !is_public || (trimmed.starts_with("url") && line.contains('@'))
        } else if table.starts_with("access_log") {
            !public::<AccessLog>().any(begins)
        } else if table.starts_with("tracing") {
            table.contains("headers")
                || !public::<Tracing>().any(begins)
                || (trimmed.starts_with("endpoint") && line.contains(['@', '?']))
        } else if table.starts_with("acme") {
            let is_public = public::<Acme>().chain(public::<Eab>()).any(begins);
            !is_public
                || trimmed.starts_with("storage_key")
                || (trimmed.starts_with("directory") && line.contains(['@', '?']))
        } else if table.contains(REQUEST_HEADERS)
            || line.contains(REQUEST_HEADERS)
            || table.starts_with("admin")
            || (table.is_empty() && begins("admin"))
        {
            true
        } else {
            table.starts_with("clients") && !public::<Clients>().any(begins)
        };
        let is_secret = is_secret_here
            || ["redis", "clients", "keys", "access_log", "tracing", "acme", "salt"]
                .into_iter()
                .any(begins)
            || ["password", "token", "authorization", "sha256", "storage_key", "hmac_key"]
                .iter()
                .any(|name| line.contains(name));
        if (is_secret && !is_heading) || line.contains("sha256") {
            let from = line.find('=').or_else(|| line.find("sha256").map(|at| at + 5));
            let from = from.filter(|_| !trimmed.starts_with(['"', '\''])).map_or(0, |at| at + 1);
            secrets.push(start + from..start + line.len());
        }
        start += line.len();
    }
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
