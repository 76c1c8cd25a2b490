//! What is known of a setting beside its type and its description: one [`Row`] for each, which
//! [`table`](super::walk::table) declares with the setting. The schema, the check of a value
//! against its range, the masking of secrets, the settings that need a restart, and what errors
//! propose, are read from it.

use std::fmt;

use super::walk::FromToml;

/// A setting.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name in its table.
    pub name: &'static str,
    /// What a file without the setting has.
    pub default: DefaultValue,
    /// What its text, its number, or the items of its list look like.
    pub form: Form,
    /// What [`Row::range`] returns; durations that state none have the usual one.
    pub(super) range: Range,
    /// A value, to show where the file has one of another type.
    pub example: Option<&'static str>,
    /// How its value is shown.
    pub shown: Shown,
    /// Which `${…}` are replaced in it.
    pub references: References,
    /// Whether a changed value takes effect only after a restart.
    pub needs_restart: bool,
    /// The settings in it, if it is a table.
    pub contents: Contents,
}

/// The value of a setting that the file does not have. Displayed as in the file, in backticks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DefaultValue {
    /// None: the setting is required, a table, or its description says when it can be left out.
    Unstated,
    /// A whole number.
    Number(u64),
    /// A number.
    Fraction(f64),
    /// `true` or `false`.
    Switch(bool),
    /// A text or a word.
    Text(&'static str),
    /// A list of texts.
    Texts(&'static [&'static str]),
    /// A list of numbers.
    Numbers(&'static [u64]),
    /// What holds instead of a value, such as that of another setting.
    InWords(&'static str),
}

/// The values that a setting takes; of a list or a table of values, each of them. The bounds belong
/// to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// All of the type.
    Any,
    /// Whole numbers between these two.
    Between(i64, i64),
    /// 0, and whole numbers between these two.
    ZeroOr(i64, i64),
    /// Numbers between these two, with fractions.
    Fractions(f64, f64),
    /// Durations between these two, as the file has them.
    Durations(&'static str, &'static str),
    /// Percentages between these two, in thousandths of the whole.
    Shares(u16, u16),
    /// Texts with a number of characters between these two; `usize::MAX`: with any number from the
    /// first on.
    Characters(usize, usize),
}

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Any value of the type.
    Any,
    /// A duration, such as `10s`.
    Duration(Unit),
    /// A rate, such as `10/s`.
    Rate,
    /// A number of bytes.
    Bytes,
    /// An address with port.
    Address,
    /// Numbers that other programs write as percentages.
    Percentages,
    /// A date and a time with an offset, as RFC 3339 has them.
    Time,
    /// What this regular expression matches.
    Matches(&'static str),
}

/// The unit that a number without one most likely has as a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Milliseconds if it has three digits or more, else seconds.
    BySize,
    /// Not clear: the setting is too long for seconds.
    Unclear,
}

/// How a value is shown in errors, in logs and in the differences of two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As written.
    Whole,
    /// Not at all, unless it only names a variable or a file.
    Masked,
    /// Not at all, unless it is a SHA-256.
    Digest,
    /// A URL without its login and its query.
    Url,
    /// A list whose items are places of API keys; others may be keys, and are masked.
    KeyPlaces,
    /// A table whose values are masked, unless they only name a variable or a file.
    Values,
}

/// Which `${…}` are replaced in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum References {
    /// None.
    Literal,
    /// `${NAME}` and `${file:PATH}`.
    All,
    /// `${NAME}`: the setting is a path, and the content of a file is not one.
    Variables,
}

/// What a setting is made of.
#[derive(Debug, Clone, Copy)]
pub enum Contents {
    /// A value, or a list of values.
    Value,
    /// A table with these settings, or a list of such tables.
    Table(&'static [Row]),
    /// A table whose entries the user names, each with these settings; none if they are values.
    Named(&'static [Row]),
}

impl Row {
    /// A setting of type `T` about which nothing else is stated.
    pub(super) const fn new<T: FromToml>(name: &'static str) -> Self {
        // A setting may have the name of a keyword: `r#for`.
        let name = match name.as_bytes() {
            [b'r', b'#', ..] => name.split_at(2).1,
            _ => name,
        };
        Self {
            name,
            default: T::DEFAULT,
            form: Form::Any,
            range: Range::Any,
            example: None,
            shown: Shown::Whole,
            references: References::Literal,
            needs_restart: false,
            contents: T::CONTENTS,
        }
    }

    /// The values that it takes.
    pub const fn range(&self) -> Range {
        match (self.range, self.form) {
            (Range::Any, Form::Duration(_)) => Range::Durations("1ms", "1d"),
            (range, _) => range,
        }
    }

    /// The number of a file without the setting.
    pub const fn number(&self) -> Option<u64> {
        match self.default {
            DefaultValue::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The number of a file without the setting, which may have a fraction.
    pub const fn fraction(&self) -> Option<f64> {
        match self.default {
            DefaultValue::Fraction(number) => Some(number),
            _ => None,
        }
    }

    /// The text of a file without the setting.
    pub const fn text(&self) -> Option<&'static str> {
        match self.default {
            DefaultValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of a file without the setting.
    pub const fn texts(&self) -> Option<&'static [&'static str]> {
        match self.default {
            DefaultValue::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    /// Whether the setting is on in a file without it.
    pub const fn is_on(&self) -> bool {
        matches!(self.default, DefaultValue::Switch(true))
    }

    /// The settings in it.
    pub fn rows(&self) -> &'static [Self] {
        match self.contents {
            Contents::Value => &[],
            Contents::Table(rows) | Contents::Named(rows) => rows,
        }
    }
}

impl DefaultValue {
    /// The default of a setting that takes words: the first of these.
    pub(super) const fn word(words: &[&'static str]) -> Self {
        match words {
            [] => Self::Unstated,
            [word, ..] => Self::Text(word),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::Between(least, most) => write!(f, "{least} to {most}"),
            Self::ZeroOr(least, most) => write!(f, "0, or {least} to {most}"),
            Self::Fractions(least, most) => write!(f, "{least} to {most}"),
            Self::Durations(least, most) => write!(f, "`{least}` to `{most}`"),
            Self::Shares(least, most) => {
                write!(f, "`{}` to `{}`", percentage(*least), percentage(*most))
            }
            Self::Characters(least, usize::MAX) => write!(f, "{least} characters or more"),
            Self::Characters(least, most) => write!(f, "{least} to {most} characters"),
        }
    }
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unstated => Ok(()),
            Self::Number(number) => write!(f, "{number}"),
            Self::Fraction(number) => write!(f, "{number}"),
            Self::Switch(is_on) => write!(f, "`{is_on}`"),
            Self::Text(text) => write!(f, "`{text:?}`"),
            Self::Texts(texts) => write!(f, "`{texts:?}`"),
            Self::Numbers(numbers) => write!(f, "`{numbers:?}`"),
            Self::InWords(words) => f.write_str(words),
        }
    }
}

impl Range {
    /// Whether a whole number is in the range.
    pub fn has(self, number: impl Into<i128>) -> bool {
        let number = number.into();
        let is_between = |least: i64, most: i64| (least.into()..=most.into()).contains(&number);
        match self {
            Self::Between(least, most) => is_between(least, most),
            Self::ZeroOr(least, most) => number == 0 || is_between(least, most),
            Self::Shares(least, most) => (least.into()..=most.into()).contains(&number),
            Self::Any | Self::Fractions(..) | Self::Durations(..) | Self::Characters(..) => true,
        }
    }

    /// Whether a number is in the range.
    pub fn has_fraction(self, number: f64) -> bool {
        match self {
            Self::Fractions(least, most) => (least..=most).contains(&number),
            _ => true,
        }
    }

    /// The smallest and the largest number of characters.
    pub const fn characters(self) -> (usize, usize) {
        match self {
            Self::Characters(least, most) => (least, most),
            _ => (0, usize::MAX),
        }
    }

    /// The bounds of numbers in a message: `at least 1 and at most 100`.
    pub fn in_words(self) -> String {
        match self {
            Self::Any | Self::Durations(..) | Self::Characters(..) => self.to_string(),
            Self::Between(least, most) | Self::ZeroOr(least, most) => {
                format!("at least {least} and at most {most}")
            }
            Self::Fractions(least, most) => format!("at least {least} and at most {most}"),
            Self::Shares(least, most) => {
                format!("at least {} and at most {}", percentage(least), percentage(most))
            }
        }
    }
}

/// Thousandths as a percentage: `0.5%`.
pub fn percentage(thousandths: u16) -> String {
    let (whole, tenth) = (thousandths / 10, thousandths % 10);
    if tenth == 0 { format!("{whole}%") } else { format!("{whole}.{tenth}%") }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const DOCS: &str = include_str!("../../docs/configuration.md");

    /// The rows of the table that a heading of the documentation names: `[server.limits]`.
    fn table(heading: &str) -> Option<&'static [Row]> {
        let path = heading.trim_start_matches('#').trim().strip_prefix('[')?;
        let mut rows = Config::rows();
        for name in path.trim_matches(['[', ']']).split('.').filter(|name| !name.starts_with('\\'))
        {
            rows = rows.iter().find(|row| row.name == name)?.rows();
        }
        Some(rows)
    }

    /// The settings of a line of a table, its default and what it says.
    fn setting(line: &str) -> Option<(Vec<&str>, &str, &str)> {
        let mut cells = line.strip_prefix("| `")?.splitn(3, " | ");
        let names = cells.next()?.split(", ").map(|name| name.trim_matches('`')).collect();
        Some((names, cells.next()?.trim(), cells.next()?))
    }

    /// Whether a default of the documentation, such as `"deny"` (401), is this one. What is said in
    /// words differs: the documentation has links.
    fn agrees(documented: &str, default: DefaultValue) -> bool {
        let value = documented.split(" (").next().unwrap_or_default();
        let is_value = value.starts_with('`')
            && value.matches('`').count() == 2
            && value.ends_with('`')
            && !value.contains("server.")
            || value.parse::<f64>().is_ok();
        let default = match default {
            DefaultValue::Unstated | DefaultValue::InWords(_) => None,
            plain => Some(plain.to_string().trim_matches('`').to_owned()),
        };
        match default {
            Some(default) => is_value && value.trim_matches('`') == default,
            None => !is_value || documented != value,
        }
    }

    /// What the documentation says of a range: both bounds; of a maximum only that, and nothing of
    /// the range that most durations have.
    fn bounds(range: Range) -> Vec<String> {
        match range {
            Range::Any | Range::Durations("1ms", "1d") => Vec::new(),
            Range::Characters(least, usize::MAX) => vec![format!("{least} ")],
            Range::Characters(least, most) => vec![format!("{least} to {most}")],
            Range::Between(0, most) => vec![most.to_string()],
            Range::Between(least, most) => vec![format!("{least} to {most}")],
            Range::ZeroOr(least, most) => vec![format!("{least} to {most}"), "0: ".to_owned()],
            Range::Fractions(least, most) => vec![format!("{least} to {most}")],
            Range::Durations("0s", most) => vec![format!("`{most}`")],
            Range::Durations(least, most) => vec![format!("`{least}` to `{most}`")],
            Range::Shares(least, most) => {
                vec![format!("{} to {}", percentage(least), percentage(most))]
            }
        }
    }

    #[test]
    fn documentation_has_the_facts_of_each_row() {
        let (mut rows, mut documented, mut wrong) = (None, Vec::new(), Vec::new());
        let mut text = String::new();
        let mut sections: Vec<(&str, &'static [Row], String)> = Vec::new();
        let mut heading = "";
        let mut tables_of_times = Vec::new();
        for line in DOCS.lines() {
            if line.starts_with("## ") || line.starts_with("### [") {
                heading = line;
            } else if let Some(range) = line.strip_prefix("Times here are ") {
                tables_of_times.push((heading, range.trim_end_matches('.').to_owned()));
            }
        }
        for line in DOCS.lines().chain(["## "]) {
            if line.starts_with("## ") || line.starts_with("### [") {
                if let Some(rows) = rows {
                    sections.push((heading, rows, std::mem::take(&mut text)));
                }
                (rows, heading) = (table(line), line);
            }
            text.push_str(line);
            let (Some(rows), Some((names, default, about))) = (rows, setting(line)) else {
                continue;
            };
            for (at, name) in names.iter().enumerate() {
                let Some(row) = rows.iter().find(|row| row.name == name.split('.').next().unwrap())
                else {
                    // `[redis]` has a table of URLs.
                    continue;
                };
                documented.push((heading, row.name));
                let default = match default.split(", ").nth(at) {
                    Some(own) if names.len() > 1 && default.split(", ").count() > 1 => own,
                    _ => default,
                };
                if !agrees(default, row.default) {
                    wrong.push(format!("{heading} {name}: {default}, not {}", row.default));
                }
                let numbers =
                    about.replace("2^50", &(1_u64 << 50).to_string()).replace([',', '"'], "");
                for bound in bounds(row.range()) {
                    let is_of_table = tables_of_times.contains(&(heading, bound.clone()));
                    if !numbers.contains(&bound) && !is_of_table {
                        wrong.push(format!("{heading} {name}: range {bound}"));
                    }
                }
                if about.contains("*Restart.*") != row.needs_restart {
                    wrong.push(format!("{heading} {name}: needs_restart: {}", row.needs_restart));
                }
            }
        }
        for (heading, rows, text) in &sections {
            for row in *rows {
                let is_listed = documented.contains(&(heading, row.name));
                let is_in_text = text.contains(&format!("`{}`", row.name));
                if !is_listed && !is_in_text && row.rows().is_empty() {
                    wrong.push(format!("{heading}: {} is not documented", row.name));
                }
            }
        }
        assert!(sections.len() > 18 && documented.len() > 150, "{}", documented.len());
        assert!(wrong.is_empty(), "docs/configuration.md:\n{}", wrong.join("\n"));
    }
}
