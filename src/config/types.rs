//! Diagnostics of names that do not exist and of values that do not fit. They name the setting, and
//! show what to write instead.

use std::ops::Range;

use toml::de::DeValue;

use super::diagnostic::Diagnostic;
use super::entries;
use super::foreign;
use super::listener;
use super::secrets::is_key_place;
use super::suggest;
use super::walk::Value;
use crate::base::text::cut;
use crate::limit::cost::Cost;

/// Durations that are written in seconds or in milliseconds, depending on their size.
const BREAKER_TIMES: [&str; 4] = ["window", "open", "open_max", "ramp_step"];

/// How much of a value a message shows, in characters.
const SHOWN: usize = 40;

/// Type of value that a setting accepts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    Number,
    /// A whole number that may be negative.
    Integer,
    Fraction,
    NumberOrDuration,
    Cost,
    Boolean,
    Text,
    TextOrTable,
    TextOrList,
    SwitchOrTable,
    /// A string that is one of these words.
    Word(&'static [&'static str]),
    /// A number, or one of these words.
    NumberOrWord(&'static [&'static str]),
    List,
    Table,
    /// A table, written as a list, most often `[[server]]` for `[server]`.
    OneTable,
    /// A table whose entries the user names, such as `[plans.<name>]`.
    NamedTables,
}

/// A value that does not fit its setting.
#[derive(Debug)]
pub(super) struct Mismatch<'a> {
    pub(super) expected: Expected,
    /// The names that lead to the setting.
    pub(super) path: &'a [String],
    /// Whether the value is an item of the setting's list.
    pub(super) in_list: bool,
    pub(super) value: &'a Value<'a>,
}

/// `name` at `span` is not one that the table at `parents` has.
pub(super) fn unknown_name(span: Range<usize>, name: &str, parents: &[String]) -> Diagnostic {
    let shown = cut(name, SHOWN);
    let message = if parents.is_empty() {
        format!("unknown name `{shown}`")
    } else {
        format!("unknown name `{shown}` in `{}`", cut(&parents.join("."), 2 * SHOWN))
    };
    Diagnostic::new(span, message)
}

/// A value that does not fit its setting.
pub(super) fn mismatch(mismatch: &Mismatch<'_>) -> Diagnostic {
    if let (Expected::NamedTables, [table]) = (mismatch.expected, mismatch.path)
        && let Some(diagnostic) = entries::listed(table, mismatch.value)
    {
        return diagnostic;
    }
    let diagnostic = Diagnostic::new(mismatch.value.span(), mismatch.message());
    match mismatch.help() {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

impl Mismatch<'_> {
    fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// The dotted path, cut.
    fn shown_path(&self) -> String {
        cut(&self.path.join("."), 2 * SHOWN)
    }

    fn message(&self) -> String {
        let shown = cut(self.name(), SHOWN);
        let subject =
            if self.in_list { format!("an item of `{shown}`") } else { format!("`{shown}`") };
        match (self.expected, self.value.get_ref()) {
            (Expected::Number | Expected::Cost, DeValue::Integer(number))
                if number.as_str().starts_with('-') =>
            {
                format!("{subject} cannot be negative")
            }
            (Expected::Cost, value) if is_zero(value) => format!("{subject} is above 0"),
            (Expected::Cost, DeValue::Float(number)) if number.as_str().starts_with('-') => {
                format!("{subject} cannot be negative")
            }
            (Expected::Cost, DeValue::Float(number)) => {
                let name = self.expected.name();
                format!("{subject} is {name}, not `{}`", cut(number.as_str(), SHOWN))
            }
            (Expected::Integer, DeValue::Integer(number)) if number.as_str().starts_with('-') => {
                format!("{subject} is too small")
            }
            (
                Expected::Number | Expected::Integer | Expected::Fraction | Expected::Cost,
                DeValue::Integer(_),
            ) => {
                format!("{subject} is too large")
            }
            (Expected::Word(words), DeValue::String(word)) => {
                let list = suggest::list(words, "or");
                format!("{subject} is {list}, not `{}`", cut(word, SHOWN))
            }
            (Expected::NumberOrWord(words), value) => {
                let list = beside_number(&suggest::list(words, "or"), words, "or");
                let found = match value {
                    DeValue::String(word) => format!("`{}`", cut(word, SHOWN)),
                    value => kind(value),
                };
                format!("{subject} is {list}, not {found}")
            }
            (Expected::OneTable, _) => format!("`{}` is a table, not a list", self.shown_path()),
            (expected, value) => format!("{subject} is {}, not {}", expected.name(), kind(value)),
        }
    }

    fn help(&self) -> Option<String> {
        match (self.expected, self.value.get_ref()) {
            (Expected::NumberOrWord(_), DeValue::String(text))
                if text.trim().parse::<u64>().is_ok() =>
            {
                Some(format!("write `{} = {}`", self.name(), text.trim()))
            }
            (Expected::Word(words) | Expected::NumberOrWord(words), DeValue::String(word)) => {
                if let Some(advice) = foreign::advice_on_word(self.name(), word) {
                    return Some(advice.to_owned());
                }
                let meant = suggest::closest(word, words).or_else(|| contained(word, words))?;
                if self.in_list {
                    return Some(format!("did you mean `\"{meant}\"`?"));
                }
                Some(format!("did you mean `{} = \"{meant}\"`?", self.name()))
            }
            (Expected::Word(words), DeValue::Float(number)) if words.contains(&number.as_str()) => {
                Some(format!("write `{} = \"{}\"`", self.name(), number.as_str()))
            }
            (Expected::Word([only]), _) => Some(format!("write `{} = \"{only}\"`", self.name())),
            (Expected::NumberOrWord(words), _) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
                let list = suggest::list(&quoted, "and");
                Some(format!("possible here: {}", beside_number(&list, words, "and")))
            }
            (Expected::Word(words), _) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
                Some(format!("possible here: {}", suggest::list(&quoted, "and")))
            }
            (Expected::Cost, value) if is_zero(value) => {
                Some("to let requests pass uncounted, leave the route out of the rules".to_owned())
            }
            (Expected::Table | Expected::OneTable, value)
                if self.path.len() > 1 && entries::single(self.path, value).is_some() =>
            {
                entries::single(self.path, value)
            }
            (Expected::Table | Expected::NamedTables, _) if table_line(self.name()).is_some() => {
                table_line(self.name()).map(|line| format!("write `{line}`"))
            }
            (Expected::List, DeValue::Table(_)) if *self.path == ["listeners"] => {
                Some("write `[[listeners]]`, in double brackets, for each listener".to_owned())
            }
            (Expected::OneTable, _) => {
                let head = suggest::head(self.path);
                Some(format!("write `[{head}]`, once and in single brackets"))
            }
            (Expected::Table | Expected::NamedTables, _) => {
                let head = self.table_instead()?;
                Some(format!("write `{head}`, and its settings below"))
            }
            _ => Some(format!("write `{}`", self.instead()?)),
        }
    }

    /// The line as it should be, where that can be guessed.
    fn instead(&self) -> Option<String> {
        let name = self.name();
        let is_in = |table: &str| self.path.first().is_some_and(|first| first == table);
        if is_in("keys") && name == "sha256" {
            return None;
        }
        let value = match (self.expected, self.value.get_ref()) {
            (Expected::Text, DeValue::Integer(number)) if is_in("server") && name == "listen" => {
                return listener::meant(name, &number.to_string())
                    .map(|found| format!("\"{found}\""));
            }
            (Expected::Text, DeValue::Integer(number)) if is_in("server") && name == "admin" => {
                format!("\"{}\"", listener::meant(name, &number.to_string())?)
            }
            (Expected::Text, DeValue::Integer(number)) if self.in_list => {
                return Some(format!("\"{number}\""));
            }
            _ if self.in_list => return None,
            (Expected::Cost, DeValue::String(text)) => Cost::parse(text.trim())?.to_string(),
            (Expected::Number, DeValue::String(text)) => {
                let text = text.trim();
                let number = text.parse().ok();
                let number = number.or_else(|| bytes(text).filter(|_| name.ends_with("_bytes")));
                let percent = || text.strip_suffix('%')?.trim().parse().ok();
                number.or_else(|| percent().filter(|_| self.is_share()))?.to_string()
            }
            (Expected::Text, DeValue::Array(items)) if is_in("routes") || is_in("rules") => {
                match items.iter().collect::<Vec<_>>().as_slice() {
                    [only] => {
                        let text = only.get_ref().as_str()?;
                        let is_plain = !text.contains(['"', '\\']) && text.chars().count() <= SHOWN;
                        is_plain.then(|| format!("\"{}\"", cut(text, SHOWN)))?
                    }
                    _ => return None,
                }
            }
            (
                Expected::Number | Expected::NumberOrDuration | Expected::Cost,
                DeValue::Float(number),
            ) => whole(number.as_str())?.to_string(),
            (Expected::Boolean, DeValue::String(text)) => switch(text.trim())?.to_string(),
            (Expected::Text, DeValue::Integer(number)) => {
                format!("\"{number}{}\"", unit(name, &number.to_string(), is_in("tracing"))?)
            }
            (Expected::SwitchOrTable, _) => "{ retry_after = \"10m\" }".to_owned(),
            (Expected::TextOrTable, _) if name == "hsts" => "\"365d\"".to_owned(),
            (Expected::List, _) if is_in("listeners") && name == "certificates" => {
                "[{ cert = \"api.pem\", key = \"api.key\" }]".to_owned()
            }
            (Expected::List, DeValue::String(text)) if name == "api_key" && !is_key_place(text) => {
                return None;
            }
            (Expected::List, DeValue::Integer(number))
                if name == "ramp" && number.as_str() == "100" =>
            {
                "[100]".to_owned()
            }
            (Expected::List, DeValue::String(text)) if is_in("server") && name == "listen" => {
                format!("[\"{}\"]", listener::meant(name, text)?)
            }
            (Expected::List, DeValue::Integer(number)) if is_in("server") && name == "listen" => {
                format!("[\"{}\"]", listener::meant(name, &number.to_string())?)
            }
            (Expected::List, DeValue::String(text))
                if text.chars().count() <= SHOWN && !text.contains(['"', '\\']) =>
            {
                format!("[\"{}\"]", cut(text, SHOWN))
            }
            _ => return None,
        };
        (value.len() < 2 * SHOWN).then(|| format!("{name} = {value}"))
    }

    /// Whether the setting is a weight of `split`.
    fn is_share(&self) -> bool {
        matches!(self.path, [routes, _, split, _] if routes == "routes" && split == "split")
    }

    /// The head of a table that was written as another value.
    fn table_instead(&self) -> Option<String> {
        match self.path {
            [name] => Some(format!("[{}]", suggest::key(name))),
            _ => None,
        }
    }
}

/// The line of a table of a route that was written as another value.
fn table_line(name: &str) -> Option<&'static str> {
    Some(match name {
        "request_headers" => "request_headers = { set = { X-Client = \"{client.id}\" } }",
        "response_headers" => "response_headers = { set = { X-Frame-Options = \"DENY\" } }",
        "respond" => "respond = { status = 503, body = \"closed\" }",
        "redirect" => "redirect = { to = \"https://new.example{path}{query}\" }",
        "set" => "set = { X-Client = \"{client.id}\" }",
        "split" => "split = { api = 95, canary = 5 }",
        "add" => "add = { Via = \"1.1 gateway\" }",
        _ => return None,
    })
}

impl Expected {
    fn name(self) -> &'static str {
        match self {
            Self::Number | Self::Integer => "a whole number",
            Self::Fraction => "a number",
            Self::Cost => "a number with at most three decimals",
            Self::NumberOrDuration => "a whole number or a duration",
            Self::Boolean => "`true` or `false`",
            Self::Text | Self::Word(_) => "a string",
            Self::NumberOrWord(_) => "a number or a word",
            Self::TextOrTable => "a string or a table",
            Self::TextOrList => "a string or a list of them",
            Self::SwitchOrTable => "`true`, `false` or a table",
            Self::List => "a list",
            Self::Table | Self::OneTable | Self::NamedTables => "a table",
        }
    }
}

/// A number, and a list of these words after it.
fn beside_number(list: &str, words: &[&str], conjunction: &str) -> String {
    if words.len() == 1 {
        format!("a number {conjunction} {list}")
    } else {
        format!("a number, {list}")
    }
}

/// Type of a value, as messages name it.
fn kind(value: &DeValue<'_>) -> String {
    let kind = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(number) if number.as_str().contains(['n', 'e', 'E']) => {
            return format!("`{}`", cut(number.as_str(), SHOWN));
        }
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    kind.to_owned()
}

/// Whether a value is the number 0.
fn is_zero(value: &DeValue<'_>) -> bool {
    let number = match value {
        DeValue::Integer(number) => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        _ => return false,
    };
    number.parse() == Ok(0.0)
}

/// The number of bytes of a size such as `10m`, `64k`, `1MB` or `10 MiB`, in powers of 1024 as
/// nginx has them.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The meaning of a word for `true` or `false`, such as `on`.
fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" => Some(true),
        "false" | "off" | "no" => Some(false),
        _ => None,
    }
}

/// The longest of `words` that is a part of `text`: `1.2` for `TLSv1.2`.
fn contained<'a>(text: &str, words: &[&'a str]) -> Option<&'a str> {
    let parts = words.iter().filter(|word| word.len() > 2 && text.contains(**word));
    parts.max_by_key(|word| word.len()).copied()
}

/// The unit that a number without one most likely has: `/s` for a rate, a unit of time otherwise.
fn unit(name: &str, number: &str, is_tracing: bool) -> Option<&'static str> {
    // No rate, and no time but a delay, can be 0; the help is the line to write.
    if number.len() > 9 || !number.parse::<u32>().is_ok_and(|number| number > 0) {
        return None;
    }
    match name {
        "rate" | "limit" => Some("/s"),
        "timeout" if !is_tracing => Some("ms"),
        "timeout" => Some("s"),
        _ if name.ends_with("_timeout") => Some("s"),
        _ if !BREAKER_TIMES.contains(&name) => None,
        _ if number.len() > 2 => Some("ms"),
        _ => Some("s"),
    }
}

/// The whole number that is written as `5.0` or `1e3`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number that doubles represent exactly"
)]
fn whole(text: &str) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(number) = text.strip_suffix(".0").and_then(|whole| whole.parse().ok()) {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
}
