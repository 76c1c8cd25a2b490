//! Suggests how to write a table that was written as another value: `[rules.per-ip]` for
//! `[[rules]]`, and `free = { rate = "2/s" }` for `free = "2/s"`.

use toml::de::DeValue;

use super::diagnostic::Diagnostic;
use super::secrets::is_digest;
use super::suggest::{head, key};
use super::walk::Value;
use crate::base::text::cut;

/// How much of a value a help repeats, in characters.
const SHOWN: usize = 64;

/// Units of a rate's period, in microseconds.
const UNITS_US: [(&str, u64); 5] = [
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// The most that a full bucket may hold, in units, of which a token has as many as the period has
/// microseconds, divided by what it has in common with the number of tokens.
const MAX_UNITS: u64 = 1 << 53;

/// How many entries of a list a help names.
const MAX_NAMED: usize = 8;

/// What each table of named entries is called in a name that is made up.
const KINDS: [(&str, &str); 6] = [
    ("plans", "plan"),
    ("keys", "key"),
    ("tenants", "tenant"),
    ("upstreams", "upstream"),
    ("routes", "route"),
    ("rules", "rule"),
];

/// The diagnostic of a table of named entries that is written as a list, such as `[[rules]]`.
pub(super) fn listed(table: &str, value: &Value<'_>) -> Option<Diagnostic> {
    let DeValue::Array(items) = value.get_ref() else { return None };
    let kind = kind_of(table)?;
    let mut heads = Vec::new();
    for (number, item) in (1..=MAX_NAMED).zip(items.iter()) {
        // A text in `[keys]` may be a key.
        let name = name_of(item).filter(|_| table != "keys");
        let name = name.unwrap_or_else(|| format!("{kind}-{number}"));
        let head = format!("`[{table}.{name}]`");
        if !heads.contains(&head) {
            heads.push(head);
        }
    }
    let more = if items.len() > MAX_NAMED { " and so on" } else { "" };
    let is_heads = items.iter().any(|item| item.get_ref().is_table());
    let message = format!("`{table}` is a table with names, not a list");
    let first =
        items.iter().next().filter(|_| is_heads).map_or_else(|| value.span(), toml::Spanned::span);
    let mut diagnostic = Diagnostic::new(first, message);
    if is_heads {
        for item in items.iter().skip(1).take(MAX_NAMED - 1) {
            diagnostic = diagnostic.and(item.span(), "");
        }
    }
    Some(diagnostic.help(match heads.as_slice() {
        [] => format!("write `[{table}.{kind}-1]` for each {kind}, with its settings below"),
        [one] => format!("write {one}, with its settings below"),
        several => format!("write {}{more}, each with its settings below", several.join(", ")),
    }))
}

/// What an entry of the table of named entries `table` is called.
pub(super) fn kind_of(table: &str) -> Option<&'static str> {
    KINDS.iter().find(|(name, _)| *name == table).map(|(_, kind)| *kind)
}

/// What an item of the list of tables at `path` is called; `None` if it is no such list.
pub(super) fn kind_of_listed(path: &[impl AsRef<str>]) -> Option<&'static str> {
    match (path.first()?.as_ref(), path.last()?.as_ref(), path.len()) {
        ("listeners", _, 1) => Some("listener"),
        ("keys", "secrets", 3..) => Some("key"),
        ("admin", "tokens", 2) => Some("token"),
        _ => None,
    }
}

/// How the tables of a list are written, each of which is a `kind`.
pub(super) fn double_brackets(head: &str, kind: &str) -> String {
    format!("write `[[{}]]`, in double brackets, for each {kind}", cut(head, 2 * SHOWN))
}

/// What a list has as the name of an entry: its `name` or `id`, or the item itself.
fn name_of(item: &Value<'_>) -> Option<String> {
    let name = match item.get_ref() {
        DeValue::Table(entry) => {
            ["name", "id"].iter().find_map(|name| entry.get(*name)?.get_ref().as_str())?
        }
        DeValue::String(name) => name,
        _ => return None,
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_name = (1..=SHOWN).contains(&name.len()) && name.bytes().all(is_plain);
    is_name.then(|| name.to_owned())
}

/// The help for an entry that is a single value, by the path of its name.
pub(super) fn single(path: &[String], value: &DeValue<'_>) -> Option<String> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let text = text_of(value);
    let text = text.as_deref().filter(|text| is_plain(text));
    let rate = match (text, value) {
        (Some(text), _) if is_rate(text) => text.to_owned(),
        (_, DeValue::Integer(number)) if count(&number.to_string()).is_some() => {
            format!("{number}/s")
        }
        _ => "10/s".to_owned(),
    };
    let grant =
        |table: &str, name: &str| format!("{table}.{} = {{ rate = \"{rate}\" }}", key(name));
    let (table, line) = match path.as_slice() {
        ["rules", rule, "plans", plan] => (head(&["rules", rule]), grant("plans", plan)),
        [table @ ("keys" | "tenants"), id, "rules", rule] => {
            (head(&[*table, *id]), grant("rules", rule))
        }
        ["tenants", tenant] => {
            let plan = text.unwrap_or("pro");
            ("tenants".to_owned(), format!("{} = {{ plan = \"{plan}\" }}", key(tenant)))
        }
        ["plans", plan] => {
            return Some(format!(
                "a plan is only a name: write `[plans.{}]`, and in a rule `{}`",
                key(plan),
                grant("plans", plan)
            ));
        }
        ["rules", rule] => {
            let per = "per = [\"ip\"]";
            ("rules".to_owned(), format!("{} = {{ {per}, rate = \"{rate}\" }}", key(rule)))
        }
        ["upstreams", upstream] => {
            let servers = text.map_or_else(|| servers(value), |text| Some(format!("\"{text}\"")));
            let servers = servers.unwrap_or_else(|| "\"127.0.0.1:3000\"".to_owned());
            ("upstreams".to_owned(), format!("{} = {{ servers = [{servers}] }}", key(upstream)))
        }
        ["routes", route] => {
            let path = text.filter(|text| text.starts_with('/')).unwrap_or("/*");
            ("routes".to_owned(), format!("{} = {{ path = \"{path}\" }}", key(route)))
        }
        ["errors", name] if name.len() != 3 => {
            return Some("a body is below a status or a class, as in `[errors.5xx]`".to_owned());
        }
        ["errors", status] => {
            let text = match text {
                Some(text) if text.starts_with("file:") => text.to_owned(),
                Some(text) if text.contains('.') => format!("file:{text}"),
                _ => format!("file:{status}.html"),
            };
            ("errors".to_owned(), format!("{} = {{ \"text/html\" = \"{text}\" }}", key(status)))
        }
        ["keys", id] => {
            // Anything but a hash may be the key itself.
            let Some(hash) = text.filter(|text| is_digest(text)) else {
                return Some("run `tollgate hash-key`: it prints the table of a key".to_owned());
            };
            ("keys".to_owned(), format!("{} = {{ sha256 = \"{hash}\" }}", key(id)))
        }
        _ => return None,
    };
    Some(format!("in `[{}]`, write `{}`", cut(&table, 2 * SHOWN), cut(&line, 4 * SHOWN)))
}

fn text_of(value: &DeValue<'_>) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Whether a text can be repeated in a help as it is.
fn is_plain(text: &str) -> bool {
    text.len() <= SHOWN && !text.contains(['"', '\\', '`']) && !text.chars().any(char::is_control)
}

/// The servers of an upstream that is written as a list.
fn servers(value: &DeValue<'_>) -> Option<String> {
    let items = value.as_array()?;
    let texts: Option<Vec<String>> = items
        .iter()
        .map(|item| item.get_ref().as_str().filter(|text| is_plain(text)))
        .map(|text| text.map(|text| format!("\"{text}\"")))
        .collect();
    texts.filter(|texts| (1..=MAX_NAMED).contains(&texts.len())).map(|texts| texts.join(", "))
}

/// Whether a text is a rate that can be counted.
fn is_rate(text: &str) -> bool {
    let Some((tokens, period)) = text.split_once('/') else { return false };
    let (length, unit) = period.split_at(period.bytes().take_while(u8::is_ascii_digit).count());
    let unit_us = UNITS_US.iter().find(|(name, _)| *name == unit).map(|(_, length)| *length);
    let length = if length.is_empty() { Some(1) } else { count(length) };
    let (Some(tokens), Some(length), Some(unit_us)) = (count(tokens), length, unit_us) else {
        return false;
    };
    let period_us = length.saturating_mul(unit_us);
    let (mut divisor, mut rest) = (tokens, period_us);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    tokens.saturating_mul(period_us / divisor.max(1)) <= MAX_UNITS
}

/// A positive number of at most nine digits.
fn count(text: &str) -> Option<u64> {
    let is_short = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_short && *number > 0)
}
