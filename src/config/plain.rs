//! What the parser and serde say, in plain words. Their messages are written for programmers;
//! ours name the setting, and show what to write instead.

use std::ops::Range;

use super::diagnostic::Diagnostic;
use super::prune::{Found, Pruned};
use super::secrets::is_key_place;
use super::suggest::{self, cut};

/// Times that people write as seconds or as milliseconds; which, their size tells.
const BREAKER_TIMES: [&str; 4] = ["window", "open", "open_max", "ramp_step"];

/// How much of a value a message shows.
const SHOWN: usize = 40;

/// Tables in which each entry has a name of the user's.
const NAMED: [&str; 5] = ["plans", "keys", "upstreams", "routes", "rules"];

/// A value of the wrong type, a word or a name that does not exist.
pub(super) fn wrong_value(message: &str, pruned: &Pruned) -> Diagnostic {
    let name = pruned.path.last().map_or("", String::as_str);
    if let Some((_, possible)) = message.rsplit_once(", expected ")
        && message.starts_with("unknown field")
    {
        return unknown_name(name, pruned, &words_in(possible));
    }
    if message.starts_with("unknown field") {
        return unknown_name(name, pruned, &[]);
    }
    if let (Found::Text(word), Some((_, possible)), true) =
        (&pruned.value, message.rsplit_once(", expected "), message.starts_with("unknown variant"))
    {
        let possible = words_in(possible);
        let list = suggest::list(&possible, "or");
        let message = format!("`{name}` is {list}, not `{}`", cut(word, SHOWN));
        let diagnostic = Diagnostic::new(pruned.span.clone(), message);
        return match suggest::closest(word, &possible) {
            Some(meant) => diagnostic.help(format!("did you mean `{name} = \"{meant}\"`?")),
            None => diagnostic,
        };
    }
    wrong_type(message, name, pruned)
}

/// A name that is none of the `possible` ones.
fn unknown_name(name: &str, pruned: &Pruned, possible: &[&str]) -> Diagnostic {
    let parents = &pruned.path[..pruned.path.len().saturating_sub(1)];
    let shown = cut(name, SHOWN);
    let message = if parents.is_empty() {
        format!("unknown name `{shown}`")
    } else {
        format!("unknown name `{shown}` in `{}`", cut(&parents.join("."), 2 * SHOWN))
    };
    Diagnostic::new(pruned.span.clone(), message).help(suggest::help(name, possible))
}

/// A value of another type than the setting's.
fn wrong_type(message: &str, name: &str, pruned: &Pruned) -> Diagnostic {
    let expected = match message.rsplit_once("expected ").map_or(message, |(_, expected)| expected)
    {
        "u64" => Expected::Number,
        "f64" => Expected::Fraction,
        "a boolean" => Expected::Boolean,
        "a sequence" => Expected::List,
        "a map" => Expected::Table,
        other if other.starts_with("struct ") => Expected::Table,
        other if other.contains("overflowed") => Expected::Number,
        _ => Expected::Text,
    };
    let shown = cut(name, SHOWN);
    let subject =
        if pruned.is_item { format!("an item of `{shown}`") } else { format!("`{shown}`") };
    let message = match (&expected, &pruned.value) {
        (Expected::Number, Found::Integer(number)) if number.starts_with('-') => {
            format!("{subject} cannot be negative")
        }
        (Expected::Number, Found::Integer(_)) => format!("{subject} is too large"),
        (_, value) => format!("{subject} is {}, not {}", expected.name(), value.name()),
    };
    let diagnostic = Diagnostic::new(pruned.span.clone(), message);
    match instead(&expected, name, pruned) {
        Some(head) if matches!(expected, Expected::Table) => {
            diagnostic.help(format!("write `{head}`, and its settings below"))
        }
        Some(line) => diagnostic.help(format!("write `{line}`")),
        None => diagnostic,
    }
}

/// The line as it should be, where that can be guessed.
fn instead(expected: &Expected, name: &str, pruned: &Pruned) -> Option<String> {
    if pruned.path.first().is_some_and(|first| first == "keys") && name == "sha256" {
        return None;
    }
    let value = match (expected, &pruned.value) {
        (Expected::Text, Found::Integer(number)) if pruned.is_item => {
            return Some(format!("\"{number}\""));
        }
        _ if pruned.is_item => return None,
        (Expected::Table, found) => return table_instead(pruned, found),
        (Expected::Number, Found::Text(text)) => text.trim().parse::<u64>().ok()?.to_string(),
        (Expected::Number, Found::Float(text)) => {
            let whole = text.strip_suffix(".0").unwrap_or(text);
            whole.parse::<u64>().ok().or_else(|| written_out(text))?.to_string()
        }
        (Expected::Boolean, Found::Text(text)) => text.trim().parse::<bool>().ok()?.to_string(),
        (Expected::Text, Found::Integer(number)) if name == "rate" => format!("\"{number}/s\""),
        (Expected::Text, Found::Integer(number))
            if name == "timeout" && pruned.path.first().is_some_and(|table| table == "tracing") =>
        {
            format!("\"{number}s\"")
        }
        (Expected::Text, Found::Integer(number)) if name == "timeout" => {
            format!("\"{number}ms\"")
        }
        (Expected::Text, Found::Integer(number)) if name.ends_with("_timeout") => {
            format!("\"{number}s\"")
        }
        (Expected::List, Found::Text(text)) if name == "api_key" && !is_key_place(text) => {
            return None;
        }
        (Expected::Text, Found::Integer(number))
            if BREAKER_TIMES.contains(&name) && !number.starts_with('-') =>
        {
            let unit = if number.len() > 2 { "ms" } else { "s" };
            format!("\"{number}{unit}\"")
        }
        (Expected::List, Found::Integer(number)) if name == "ramp" && number == "100" => {
            "[100]".to_owned()
        }
        (Expected::List, Found::Text(text)) if text.chars().count() <= SHOWN => {
            format!("[\"{}\"]", cut(text, SHOWN))
        }
        _ => return None,
    };
    (value.len() < 2 * SHOWN).then(|| format!("{name} = {value}"))
}

/// The head of a table that was written as another value.
fn table_instead(pruned: &Pruned, found: &Found) -> Option<String> {
    let path = cut(&pruned.path.join("."), 2 * SHOWN);
    match (pruned.path.as_slice(), found) {
        ([named], Found::List) if NAMED.contains(&named.as_str()) => {
            Some(format!("[{path}.<name>]"))
        }
        ([_], _) => Some(format!("[{path}]")),
        _ => None,
    }
}

/// The whole number that is meant by `1e3`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number that doubles have exactly"
)]
fn written_out(text: &str) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number: f64 = text.parse().ok()?;
    (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
}

/// What a setting takes.
#[derive(Debug)]
enum Expected {
    Number,
    Fraction,
    Boolean,
    Text,
    List,
    Table,
}

impl Expected {
    fn name(&self) -> &'static str {
        match self {
            Self::Number => "a whole number",
            Self::Fraction => "a number",
            Self::Boolean => "`true` or `false`",
            Self::Text => "a string",
            Self::List => "a list",
            Self::Table => "a table",
        }
    }
}

impl Found {
    fn name(&self) -> String {
        match self {
            Self::Text(_) => "a string".to_owned(),
            Self::Integer(_) => "a number".to_owned(),
            Self::Float(text) if text.contains(['n', 'e', 'E']) => {
                format!("`{}`", cut(text, SHOWN))
            }
            Self::Float(_) => "a fraction".to_owned(),
            Self::Boolean => "a boolean".to_owned(),
            Self::Date => "a date".to_owned(),
            Self::List => "a list".to_owned(),
            Self::Table => "a table".to_owned(),
        }
    }
}

/// A list where a table belongs, most often `[[server]]` for `[server]`.
pub(super) fn list_for_table(pruned: &Pruned) -> Diagnostic {
    let path = cut(&pruned.path.join("."), 2 * SHOWN);
    let diagnostic =
        Diagnostic::new(pruned.span.clone(), format!("`{path}` is a table, not a list"));
    diagnostic.help(format!("write `[{path}]`, once and in single brackets"))
}

/// A text that is not TOML.
pub(super) fn broken_syntax(message: &str, span: Range<usize>, text: &str) -> Diagnostic {
    let found = text.get(span.clone()).unwrap_or("");
    let (message, help) = if message.starts_with("duplicate key") {
        (format!("`{}` is written twice", cut(found, SHOWN)), Some("keep one of them"))
    } else if message.starts_with("string values must be quoted") && found.is_empty() {
        ("a value is missing after `=`".to_owned(), None)
    } else if message.starts_with("string values must be quoted") {
        ("a string needs quotes".to_owned(), Some("write it as `\"…\"`"))
    } else if message.starts_with("invalid boolean") {
        let help = "a string is written as `\"…\"`";
        ("this is neither a number, nor `true` or `false`".to_owned(), Some(help))
    } else if message.starts_with("invalid basic string")
        || message.starts_with("invalid literal string")
    {
        ("a string is not closed".to_owned(), Some("end it with the quote that begins it"))
    } else if message.starts_with("key with no value") {
        ("a name without a value".to_owned(), Some("write it as `name = value`"))
    } else if message.starts_with("unclosed table") {
        ("a table's name is not closed".to_owned(), Some("end it with `]`"))
    } else if message.starts_with("unclosed array") {
        ("a list is not closed".to_owned(), Some("end it with `]`"))
    } else if message.starts_with("missing comma between array") {
        let end = text.get(..span.start).map_or(span.start, |before| before.trim_end().len());
        let diagnostic = Diagnostic::new(end..end, "a list is not closed, or lacks a comma");
        return diagnostic.help("end it with `]`, or put `,` between its items");
    } else if message.starts_with("invalid unquoted key") {
        let help = "write it in letters A-Z and a-z, digits, `_` and `-`";
        ("a name holds a character that it cannot hold".to_owned(), Some(help))
    } else if message.starts_with("unclosed inline table") {
        ("a table in braces is not closed".to_owned(), Some("end it with `}`"))
    } else {
        (message.replace("array", "list"), None)
    };
    let diagnostic = Diagnostic::new(span, message);
    match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

/// The names in backticks of serde's "one of `a`, `b`".
fn words_in(list: &str) -> Vec<&str> {
    list.split('`').skip(1).step_by(2).collect()
}
