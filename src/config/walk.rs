//! Reads a parsed file in one walk from the root to each value. A value that does not fit its
//! setting is reported and left out, and does not hide other errors.
//!
//! [`table`] declares a table once: the struct, its names, and how each setting is read. `schema`
//! is generated from the same struct. [`words`] does the same for settings whose value is one of a
//! few words.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::foreign::{self, Advice, Unknown};
use super::handling::SwitchOr;
use super::jwt::OneOrSeveral;
use super::row::{Contents, DefaultValue, Row};
use super::rules::{Burst, Lease, LimitText};
use super::spanned::Spanned;
use super::suggest;
use super::tables::{MaxInFlight, SwitchOrList, TextOr, TextOrList, TextOrSwitch, TimeText};
use super::types::{self, Expected, Mismatch};
use super::words::Word;
use crate::limit::cost::Cost;

/// A value of the parsed file, with its place.
pub(super) type Value<'a> = toml::Spanned<DeValue<'a>>;

/// A type that values of the file are read into.
pub(super) trait FromToml: Sized {
    /// The default of a setting of this type that states no other.
    const DEFAULT: DefaultValue = DefaultValue::Unstated;

    /// What a setting of this type is made of.
    const CONTENTS: Contents = Contents::Value;

    /// Reads `value`. If it does not fit, it is reported and the result is none.
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self>;
}

/// A table with a fixed set of names; see [`table`].
pub(super) trait Table: Default {
    /// Its settings.
    const ROWS: &'static [Row];

    /// The names of its settings.
    const NAMES: &'static [&'static str];

    /// Reads one setting. Returns whether there is one of this name.
    fn set(&mut self, name: &str, value: &Value<'_>, walk: &mut Walk<'_>) -> bool;
}

/// The state of a walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    diagnostics: &'a mut Diagnostics,
    /// The names that lead to the current value; an item of a list has the list's names.
    path: Vec<String>,
    /// The setting that the current value is of, or an entry of.
    row: Option<&'static Row>,
    in_list: bool,
    /// The names of the upstreams of the file, for suggestions.
    upstreams: Vec<String>,
}

/// Declares a table of the file: a struct whose fields are its settings, all of them optional. What
/// is known of a setting follows its type, in braces, as fields of [`Row`]; it is in the constant
/// of the setting's name.
macro_rules! table {
    (
        $(#[$about:meta])*
        pub struct $table:ident {
            $(
                $(#[$about_setting:meta])*
                pub $name:ident: $kind:ty $({ $($fact:ident: $value:expr),* $(,)? })?,
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        #[cfg_attr(test, derive(schemars::JsonSchema), schemars(default, deny_unknown_fields))]
        pub struct $table {
            $($(#[$about_setting])* pub $name: $kind,)*
        }

        #[allow(non_upper_case_globals, reason = "a row has the name of its setting")]
        impl $table {
            $(
                $(#[$about_setting])*
                pub const $name: $crate::config::row::Row = $crate::config::row::Row {
                    $($($fact: $value,)*)?
                    ..$crate::config::row::Row::new::<$kind>(stringify!($name))
                };
            )*
        }

        impl $crate::config::walk::Table for $table {
            const ROWS: &'static [$crate::config::row::Row] = &[$(Self::$name),*];

            const NAMES: &'static [&'static str] = &[$(Self::$name.name),*];

            fn set(
                &mut self,
                name: &str,
                value: &$crate::config::walk::Value<'_>,
                walk: &mut $crate::config::walk::Walk<'_>,
            ) -> bool {
                $(if name == Self::$name.name {
                    let read = $crate::config::walk::FromToml::from_toml(value, walk);
                    self.$name = read.unwrap_or_default();
                    return true;
                })*
                false
            }
        }

        impl $crate::config::walk::FromToml for $table {
            const CONTENTS: $crate::config::row::Contents =
                $crate::config::row::Contents::Table(<Self as $crate::config::walk::Table>::ROWS);

            fn from_toml(
                value: &$crate::config::walk::Value<'_>,
                walk: &mut $crate::config::walk::Walk<'_>,
            ) -> Option<Self> {
                walk.table(value)
            }
        }
    };
}
pub(super) use table;

/// Declares settings that take one of a few words: enums, each variant with its word. The default
/// follows the name of the enum.
macro_rules! words {
    ($(
        $(#[$about:meta])*
        pub enum $setting:ident $(= $default:ident)? {
            $($(#[$about_word:meta])* $variant:ident = $word:literal,)*
        }
    )*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum $setting {
            $($(#[$about_word])* #[serde(rename = $word)] $variant,)*
        }

        impl $setting {
            /// The word of the file.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        $(
            impl Default for $setting {
                fn default() -> Self {
                    Self::$default
                }
            }
        )?

        $crate::config::walk::read_words!($setting $(= $default)? { $($variant,)* });
    )*};
}
pub(super) use words;

/// The same for an enum of a module above, whose `name` returns its words.
macro_rules! words_of {
    ($(
        $setting:ident $(= $default:ident)? {
            $($(#[doc = $about:literal])* $variant:ident,)*
        }
    )*) => {$(
        #[cfg(test)]
        impl schemars::JsonSchema for $setting {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($setting).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"oneOf": [$({
                    "type": "string",
                    "const": Self::$variant.name(),
                    "description": ([$($about.trim()),*].join(" ")),
                }),*]})
            }
        }

        $crate::config::walk::read_words!($setting $(= $default)? { $($variant,)* });
    )*};
}
pub(super) use words_of;

/// Reads the words of an enum, each by its `name`.
macro_rules! read_words {
    ($setting:ident $(= $default:ident)? { $($variant:ident,)* }) => {
        impl $crate::config::words::Word for $setting {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            const WORDS: &'static [&'static str] = &[$(Self::$variant.name()),*];

            fn of_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == word)
            }
        }

        impl $crate::config::walk::FromToml for $setting {
            const DEFAULT: $crate::config::row::DefaultValue =
                $crate::config::row::DefaultValue::word(&[$(Self::$default.name())?]);

            fn from_toml(
                value: &$crate::config::walk::Value<'_>,
                walk: &mut $crate::config::walk::Walk<'_>,
            ) -> Option<Self> {
                walk.word(value)
            }
        }
    };
}
pub(super) use read_words;

// === impl Walk ===

impl<'a> Walk<'a> {
    /// Reads a whole file. What does not fit is left out and reported to `diagnostics`.
    pub(super) fn root<T: Table>(file: &DeTable<'_>, diagnostics: &'a mut Diagnostics) -> T {
        let upstreams = file.get("upstreams").and_then(|value| value.get_ref().as_table());
        let upstreams = upstreams
            .map(|named| named.keys().map(|name| name.get_ref().to_string()).collect())
            .unwrap_or_default();
        let mut walk = Self { diagnostics, path: Vec::new(), row: None, in_list: false, upstreams };
        walk.settings(file)
    }

    /// Reads a table with a fixed set of names.
    pub(super) fn table<T: Table>(&mut self, value: &Value<'_>) -> Option<T> {
        match value.get_ref() {
            DeValue::Table(table) => Some(self.settings(table)),
            DeValue::Array(_) => self.reject(Expected::OneTable, value),
            _ => self.reject(Expected::Table, value),
        }
    }

    fn settings<T: Table>(&mut self, table: &DeTable<'_>) -> T {
        let mut read = T::default();
        let in_list = std::mem::take(&mut self.in_list);
        let mut unknown = Vec::new();
        let of = self.row;
        for (name, value) in table {
            self.path.push(name.get_ref().to_string());
            self.row = T::ROWS.iter().find(|row| row.name == name.get_ref());
            let is_known = read.set(name.get_ref(), value, self);
            self.path.pop();
            if !is_known {
                unknown.push((name, value));
            }
        }
        if !unknown.is_empty() {
            unknown.sort_by_key(|(name, _)| name.span().start);
            self.unknown_names(table, &unknown, T::NAMES);
        }
        self.in_list = in_list;
        self.row = of;
        read
    }

    /// Reports names that the table does not have: those that mean one thing together at once.
    fn unknown_names(
        &mut self,
        table: &DeTable<'_>,
        unknown: &[(&toml::Spanned<impl AsRef<str>>, &Value<'_>)],
        possible: &[&str],
    ) {
        let listed: Vec<Unknown<'_>> =
            unknown.iter().map(|(name, value)| (name.get_ref().as_ref(), *value)).collect();
        let constructs = foreign::constructs(&self.path, table, &listed, &self.upstreams);
        let mut is_reported = vec![false; unknown.len()];
        for construct in constructs {
            let mut names: Vec<usize> =
                construct.names.into_iter().filter(|at| !is_reported[*at]).collect();
            names.sort_unstable();
            let [first, others @ ..] = names.as_slice() else { continue };
            let (name, _) = unknown[*first];
            let mut diagnostic =
                types::unknown_name(name.span(), name.get_ref().as_ref(), &self.path);
            for other in others {
                diagnostic = diagnostic.and(unknown[*other].0.span(), "and this");
            }
            self.diagnostics.push(diagnostic.help(construct.help));
            for at in names {
                is_reported[at] = true;
            }
            for meant in construct.meant {
                self.mark_missing(Some(meant));
            }
        }
        for ((name, value), _) in unknown.iter().zip(is_reported).filter(|(_, done)| !done) {
            self.unknown_name(name, value, possible);
        }
    }

    /// Reads one of the words of `T`.
    pub(super) fn word<T: Word>(&mut self, value: &Value<'_>) -> Option<T> {
        self.word_or(Expected::Word(T::WORDS), value)
    }

    /// As [`word`](Self::word), for a setting that may be a number as well.
    fn word_beside_number<T: Word>(&mut self, value: &Value<'_>) -> Option<T> {
        self.word_or(Expected::NumberOrWord(T::WORDS), value)
    }

    fn word_or<T: Word>(&mut self, expected: Expected, value: &Value<'_>) -> Option<T> {
        let word = value.get_ref().as_str().and_then(T::of_word);
        word.or_else(|| self.reject(expected, value))
    }

    /// Reports a name that is none of `possible`. If it is a misspelling of one of them,
    /// that one counts as present. The root has only tables, so a name of another value is none of
    /// them.
    fn unknown_name(
        &mut self,
        name: &toml::Spanned<impl AsRef<str>>,
        value: &Value<'_>,
        possible: &[&str],
    ) {
        if self.diagnostics.is_full() {
            self.diagnostics.push(Diagnostic::new(name.span(), ""));
            return;
        }
        let written = name.get_ref().as_ref();
        let advice = foreign::advice(&self.path, written, value.get_ref());
        let (meant, help) = match (advice, suggest::closest(written, possible)) {
            (Some(Advice { meant, help }), _) => (meant, help),
            (None, Some(closest)) => (Some(closest), suggest::help(written, possible)),
            (None, None) => match foreign::advice_elsewhere(&self.path, written, value.get_ref()) {
                Some(help) => (None, help),
                None => (None, suggest::help_lines(written, possible)),
            },
        };
        let diagnostic = types::unknown_name(name.span(), written, &self.path);
        self.diagnostics.push(diagnostic.help(help));
        if self.path.is_empty() && !matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_))
        {
            return;
        }
        match meant {
            Some(meant) => self.mark_missing(Some(meant)),
            None if self.path.is_empty() => self.diagnostics.distrust_names(),
            None => {}
        }
    }

    /// Reports a value that does not fit.
    fn reject<T>(&mut self, expected: Expected, value: &Value<'_>) -> Option<T> {
        if self.diagnostics.is_full() {
            self.diagnostics.push(Diagnostic::new(value.span(), ""));
            return None;
        }
        let (path, row, in_list) = (&self.path, self.row, self.in_list);
        let mismatch = Mismatch { expected, path, row, in_list, value };
        self.diagnostics.push(types::mismatch(&mismatch));
        self.mark_missing(None);
        None
    }

    fn mark_missing(&mut self, name: Option<&str>) {
        self.diagnostics.mark_missing(self.path.iter().map(String::as_str).chain(name));
    }
}

// === impl FromToml ===

impl FromToml for String {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => walk.reject(Expected::Text, value),
        }
    }
}

impl FromToml for TimeText {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Self(text.to_string())),
            DeValue::Datetime(time) => Some(Self(time.to_string())),
            _ => walk.reject(Expected::Time, value),
        }
    }
}

impl<T: Table> FromToml for TextOr<T> {
    const CONTENTS: Contents = Contents::Table(T::ROWS);

    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Self::Text(text.to_string())),
            DeValue::Table(table) => Some(Self::Table(walk.settings(table))),
            _ => walk.reject(Expected::TextOrTable, value),
        }
    }
}

/// A table, or a list of them.
impl<T: Table + FromToml> FromToml for OneOrSeveral<T> {
    const CONTENTS: Contents = Contents::Table(T::ROWS);

    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Self::One(walk.settings(table))),
            DeValue::Array(_) => Vec::from_toml(value, walk).map(Self::Several),
            _ => walk.reject(Expected::Table, value),
        }
    }
}

impl FromToml for TextOrList {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Self::Text(text.to_string())),
            DeValue::Array(_) => Vec::from_toml(value, walk).map(Self::List),
            _ => walk.reject(Expected::TextOrList, value),
        }
    }
}

impl FromToml for TextOrSwitch {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Self::Text(text.to_string())),
            DeValue::Boolean(is_there) => Some(Self::Switch(*is_there)),
            _ => walk.reject(Expected::TextOrSwitch, value),
        }
    }
}

impl<T: Table> FromToml for SwitchOr<T> {
    const CONTENTS: Contents = Contents::Table(T::ROWS);

    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Boolean(is_on) => Some(Self::Switch(*is_on)),
            DeValue::Table(table) => Some(Self::Table(walk.settings(table))),
            _ => walk.reject(Expected::SwitchOrTable, value),
        }
    }
}

impl<T: FromToml> FromToml for SwitchOrList<T> {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Boolean(is_on) => Some(Self::Switch(*is_on)),
            DeValue::Array(_) => Vec::from_toml(value, walk).map(Self::List),
            _ => walk.reject(Expected::SwitchOrList, value),
        }
    }
}

impl FromToml for bool {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        value.get_ref().as_bool().or_else(|| walk.reject(Expected::Boolean, value))
    }
}

impl FromToml for u64 {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        let number = value.get_ref().as_integer();
        number
            .and_then(|number| i128::from_str_radix(number.as_str(), number.radix()).ok())
            .and_then(|number| Self::try_from(number).ok())
            .or_else(|| walk.reject(Expected::Number, value))
    }
}

impl FromToml for Burst {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Self::Duration(text.to_string())),
            DeValue::Integer(_) => u64::from_toml(value, walk).map(Self::Tokens),
            _ => walk.reject(Expected::NumberOrDuration, value),
        }
    }
}

impl FromToml for Lease {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Integer(_) => u64::from_toml(value, walk).map(Self::Tokens),
            _ => walk.word_beside_number(value).map(Self::Word),
        }
    }
}

impl FromToml for MaxInFlight {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Integer(_) => u64::from_toml(value, walk).map(Self::Requests),
            _ => walk.word_beside_number(value).map(Self::Word),
        }
    }
}

impl FromToml for i64 {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        let number = value.get_ref().as_integer();
        number
            .and_then(|number| i128::from_str_radix(number.as_str(), number.radix()).ok())
            .and_then(|number| Self::try_from(number).ok())
            .or_else(|| walk.reject(Expected::Integer, value))
    }
}

impl FromToml for LimitText {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        let is_number = matches!(value.get_ref(), DeValue::Integer(_));
        let text = if is_number {
            u64::from_toml(value, walk)?.to_string()
        } else {
            String::from_toml(value, walk)?
        };
        Some(Self { text, is_number })
    }
}

impl FromToml for Cost {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        let cost = match value.get_ref() {
            DeValue::Float(number) => Self::parse(number.as_str()),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .ok()
                .and_then(|number| Self::parse(&number.to_string())),
            _ => None,
        };
        cost.or_else(|| walk.reject(Expected::Cost, value))
    }
}

impl FromToml for f64 {
    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .ok()
                .and_then(|number| number.to_string().parse().ok()),
            _ => None,
        };
        number.or_else(|| walk.reject(Expected::Fraction, value))
    }
}

/// A setting that may be left out.
impl<T: FromToml> FromToml for Option<Spanned<T>> {
    const DEFAULT: DefaultValue = T::DEFAULT;
    const CONTENTS: Contents = T::CONTENTS;

    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        T::from_toml(value, walk).map(|read| Some(Spanned::new(read, value.span())))
    }
}

/// A list, without the items that do not fit.
impl<T: FromToml> FromToml for Vec<Spanned<T>> {
    const CONTENTS: Contents = T::CONTENTS;

    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        let DeValue::Array(items) = value.get_ref() else {
            return walk.reject(Expected::List, value);
        };
        let in_list = std::mem::replace(&mut walk.in_list, true);
        let read = items.iter().filter_map(|item| {
            T::from_toml(item, walk).map(|read| Spanned::new(read, item.span()))
        });
        let read = read.collect();
        walk.in_list = in_list;
        Some(read)
    }
}

/// A table whose names the user chooses, without the values that do not fit.
impl<T: FromToml> FromToml for BTreeMap<Spanned<String>, Spanned<T>> {
    const CONTENTS: Contents = match T::CONTENTS {
        Contents::Table(rows) => Contents::Named(rows),
        Contents::Value | Contents::Named(_) => Contents::Named(&[]),
    };

    fn from_toml(value: &Value<'_>, walk: &mut Walk<'_>) -> Option<Self> {
        let DeValue::Table(entries) = value.get_ref() else {
            return walk.reject(Expected::NamedTables, value);
        };
        let mut read = Self::new();
        for (name, value) in entries {
            walk.path.push(name.get_ref().to_string());
            if let Some(entry) = T::from_toml(value, walk) {
                let name = Spanned::new(name.get_ref().to_string(), name.span());
                read.insert(name, Spanned::new(entry, value.span()));
            }
            walk.path.pop();
        }
        Some(read)
    }
}
