//! Diagnostics of names that do not exist and of values that do not fit. They name the setting, and
//! show what to write instead.

use std::ops::Range;

use toml::de::DeValue;

use super::diagnostic::Diagnostic;
use super::entries;
use super::foreign;
use super::listener;
use super::row::{DefaultValue, Form, Row, Shown, Unit};
use super::secrets::is_key_place;
use super::suggest;
use super::walk::Value;
use crate::base::text::cut;
use crate::limit::cost::Cost;

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
    /// A date and a time.
    Time,
    TextOrTable,
    TextOrList,
    TextOrSwitch,
    SwitchOrTable,
    SwitchOrList,
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
    /// The setting, or the one that the value is an entry of.
    pub(super) row: Option<&'static Row>,
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
            (Expected::OneTable, _) if !self.in_list => {
                format!("`{}` is a table, not a list", self.shown_path())
            }
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
            (Expected::Table | Expected::OneTable | Expected::NamedTables, value)
                if self.path.len() > 1 && entries::single(self.path, value).is_some() =>
            {
                entries::single(self.path, value)
            }
            (Expected::Table | Expected::NamedTables, _) if self.table_line().is_some() => {
                self.table_line().map(|line| format!("write `{line}`"))
            }
            (Expected::List | Expected::Table | Expected::OneTable, _)
                if let Some(kind) = entries::kind_of_listed(self.path) =>
            {
                Some(entries::double_brackets(&suggest::head(self.path), kind))
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

    /// The line as it should be, where that can be guessed; of an item of a list, the item.
    fn instead(&self) -> Option<String> {
        let value = self.meant()?;
        if self.in_list {
            return Some(value);
        }
        (value.len() < 2 * SHOWN).then(|| format!("{} = {value}", self.name()))
    }

    /// The value that is meant, as TOML. What may be a secret is not repeated.
    fn meant(&self) -> Option<String> {
        let row = self.row?;
        match (self.expected, self.value.get_ref()) {
            (Expected::Text, DeValue::Integer(number)) if row.form == Form::Address => {
                self.address(&number.to_string())
            }
            (Expected::TextOrSwitch, DeValue::Integer(number)) => Some(format!("\"{number}\"")),
            (Expected::Text, DeValue::Integer(number)) if self.in_list => {
                Some(format!("\"{number}\""))
            }
            _ if self.in_list => None,
            (Expected::Text, DeValue::Integer(number)) => {
                let number = number.to_string();
                Some(format!("\"{number}{}\"", unit(row.form, &number)?))
            }
            // Not of an entry of the setting: that of `request_headers.set` may be a credential.
            (Expected::Text, DeValue::Array(items))
                if row.shown == Shown::Whole && self.name() == row.name =>
            {
                let mut items = items.iter();
                let only = items.next().filter(|_| items.next().is_none())?;
                quoted(only.get_ref().as_str()?)
            }
            (Expected::Number, DeValue::String(text)) => {
                Some(number(row.form, text.trim())?.to_string())
            }
            (Expected::Cost, DeValue::String(text)) => Some(Cost::parse(text.trim())?.to_string()),
            (
                Expected::Number | Expected::NumberOrDuration | Expected::Cost,
                DeValue::Float(number),
            ) => Some(whole(number.as_str())?.to_string()),
            (Expected::Boolean, DeValue::String(text)) => Some(switch(text.trim())?.to_string()),
            (
                Expected::List
                | Expected::SwitchOrTable
                | Expected::SwitchOrList
                | Expected::TextOrTable,
                _,
            ) if row.example.is_some() => row.example.map(str::to_owned),
            (Expected::List, DeValue::String(text)) => {
                let item = match (row.form, row.shown) {
                    (Form::Address, _) => self.address(text)?,
                    (_, Shown::Whole) => quoted(text)?,
                    (_, Shown::KeyPlaces) if is_key_place(text) => quoted(text)?,
                    _ => return None,
                };
                Some(format!("[{item}]"))
            }
            (Expected::List, DeValue::Integer(number)) => match row.default {
                _ if row.form == Form::Address => {
                    Some(format!("[{}]", self.address(&number.to_string())?))
                }
                // The last item of such a list is the same in all files.
                DefaultValue::Numbers([.., last]) if number.as_str() == last.to_string() => {
                    Some(format!("[{last}]"))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The address and port that are meant, in quotes.
    fn address(&self, text: &str) -> Option<String> {
        listener::meant(self.name(), text).map(|address| format!("\"{address}\""))
    }

    /// The line of a table that was written as another value.
    fn table_line(&self) -> Option<String> {
        let example = self.row?.example?;
        Some(format!("{} = {example}", self.name()))
    }

    /// The head of a table that was written as another value.
    fn table_instead(&self) -> Option<String> {
        match self.path {
            [name] => Some(format!("[{}]", suggest::key(name))),
            _ => None,
        }
    }
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
            Self::Time => "a date and a time",
            Self::NumberOrWord(_) => "a number or a word",
            Self::TextOrTable => "a string or a table",
            Self::TextOrList => "a string or a list of them",
            Self::TextOrSwitch => "a string, `true` or `false`",
            Self::SwitchOrTable => "`true`, `false` or a table",
            Self::SwitchOrList => "a list, `true` or `false`",
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

/// A text in quotes, if it is short and needs no escapes.
fn quoted(text: &str) -> Option<String> {
    let is_plain = !text.contains(['"', '\\']) && text.chars().count() <= SHOWN;
    is_plain.then(|| format!("\"{}\"", cut(text, SHOWN)))
}

/// The number that a text is, or means in this form.
fn number(form: Form, text: &str) -> Option<u64> {
    match form {
        Form::Bytes => text.parse().ok().or_else(|| bytes(text)),
        Form::Percentages => text.strip_suffix('%').unwrap_or(text).trim().parse().ok(),
        _ => text.parse().ok(),
    }
}

/// The unit that a number without one most likely has.
fn unit(form: Form, number: &str) -> Option<&'static str> {
    // No rate, and no time but a delay, can be 0; the help is the line to write.
    if number.len() > 9 || !number.parse::<u32>().is_ok_and(|number| number > 0) {
        return None;
    }
    match form {
        Form::Rate => Some("/s"),
        Form::Duration(Unit::Milliseconds) => Some("ms"),
        Form::Duration(Unit::BySize) if number.len() > 2 => Some("ms"),
        Form::Duration(Unit::Seconds | Unit::BySize) => Some("s"),
        _ => None,
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
