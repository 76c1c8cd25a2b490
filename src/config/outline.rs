//! A file as a flat list of what it sets, for saying what one file changes of another. What is
//! secret is kept as a hash: it can be told to have changed, and never be shown.

use std::collections::BTreeMap;
use std::ops::Range;

use sha2::{Digest as _, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::secrets;

/// Every setting of a file by the names that lead to it. A table of the file is there too, so that
/// one without settings is not overlooked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outline {
    pub(super) entries: BTreeMap<Vec<String>, Setting>,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) value: Value,
    /// Bytes of the file.
    span: Range<usize>,
}

/// A value of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// What holds other settings.
    Table,
    /// As TOML, in one line.
    Plain(String),
    /// SHA-256 of the same.
    Secret([u8; 32]),
}

impl Outline {
    /// The outline of a file with this text. Of one that is not TOML, what can be read of it.
    pub fn of(text: &str) -> Self {
        let (table, _) = DeTable::parse_recoverable(text);
        let masked = secrets::mask(text);
        let mut outline = Self::default();
        outline.collect(table.get_ref(), &mut Vec::new(), &|span| {
            text.get(span.clone()) != masked.get(span.clone())
        });
        outline
    }

    /// Where the setting at `path` stands, or the innermost table around it that the file has.
    pub fn place(&self, path: &[&str]) -> Option<Range<usize>> {
        (1..=path.len()).rev().find_map(|length| {
            let path: Vec<String> = path[..length].iter().map(ToString::to_string).collect();
            self.entries.get(&path).map(|entry| entry.span.clone())
        })
    }

    fn collect(
        &mut self,
        table: &DeTable<'_>,
        path: &mut Vec<String>,
        is_masked: &dyn Fn(&Range<usize>) -> bool,
    ) {
        for (name, value) in table {
            path.push(name.get_ref().to_string());
            let entry = if let DeValue::Table(inner) = value.get_ref() {
                self.collect(inner, path, is_masked);
                Setting { value: Value::Table, span: name.span() }
            } else {
                let shown = shown(value);
                // A hash is no secret in a diagnostic about it, but has no place in a log.
                let is_secret = is_masked(&value.span()) || name.get_ref() == "sha256";
                let value = if is_secret {
                    Value::Secret(Sha256::digest(shown).into())
                } else {
                    Value::Plain(shown)
                };
                Setting { value, span: name.span() }
            };
            self.entries.insert(path.clone(), entry);
            path.pop();
        }
    }
}

/// A value as TOML, in one line, however the file spaces it.
fn shown(value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
        // In a list only: nothing of ours looks like that.
        DeValue::Table(table) => {
            let names = table.iter().map(|(name, value)| format!("{name} = {}", shown(value)));
            format!("{{ {} }}", names.collect::<Vec<_>>().join(", "))
        }
    }
}
