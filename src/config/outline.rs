//! A file as a flat list of its settings, for the differences between two files. A secret is kept
//! as a hash: a change of it is noticed, and its value is never shown.

use std::collections::BTreeMap;
use std::ops::Range;

use sha2::{Digest as _, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reference::FileContent;
use super::{reference, secrets};

/// The list of tables that is not within another table.
const LISTENERS: &str = "listeners";

/// Every setting of a file by its path. Tables are included, so that one without settings counts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outline {
    pub(super) entries: BTreeMap<Vec<String>, Setting>,
}

/// A setting or a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) value: Value,
    /// The bytes of its name in the file.
    span: Range<usize>,
    /// The bytes of each item of a list.
    items: Vec<Range<usize>>,
    /// What the files have that it names.
    pub(super) content: FileContent,
    /// Paths of these files.
    files: Vec<String>,
    /// SHA-256 of the values of these files; `None` without such files.
    pub(super) revision: Option<[u8; 32]>,
}

/// A value, in a form that can be compared and shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A table, which holds other settings.
    Table,
    /// Any other value, as TOML in one line.
    Plain(String),
    /// SHA-256 of a secret value as TOML.
    Secret([u8; 32]),
}

impl Setting {
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.value, Value::Secret(_))
    }

    fn new(value: Value, span: Range<usize>) -> Self {
        let (items, content, files) = (Vec::new(), FileContent::Secret, Vec::new());
        Self { value, span, items, content, files, revision: None }
    }
}

impl Outline {
    /// The outline of a file with this text. Lines that are not TOML are left out.
    pub fn of(text: &str) -> Self {
        let (table, _) = DeTable::parse_recoverable(text);
        let masked = secrets::mask(text);
        let mut outline = Self::default();
        outline.collect(table.get_ref(), &mut Vec::new(), &|span| {
            text.get(span.clone()) != masked.get(span.clone())
        });
        outline
    }

    /// The same, with the values of the files that settings name: the path as written, and SHA-256
    /// of the value.
    pub fn with_files<'a>(
        mut self,
        files: impl IntoIterator<Item = (&'a str, &'a [u8; 32])>,
    ) -> Self {
        let files: BTreeMap<&str, &[u8; 32]> = files.into_iter().collect();
        for setting in self.entries.values_mut().filter(|setting| !setting.files.is_empty()) {
            let mut revision = Sha256::new();
            let known = setting.files.iter().filter_map(|path| files.get(path.as_str()));
            known.for_each(|digest| revision.update(digest));
            setting.revision = Some(revision.finalize().into());
        }
        self
    }

    /// The span of the setting at `path`, or of the innermost table around it that the file has.
    pub fn place(&self, path: &[&str]) -> Option<Range<usize>> {
        (1..=path.len()).rev().find_map(|length| {
            let path: Vec<String> = path[..length].iter().map(ToString::to_string).collect();
            self.entries.get(&path).map(|entry| entry.span.clone())
        })
    }

    /// The text at `path`, if it is one and no secret.
    pub fn text(&self, path: &[&str]) -> Option<&str> {
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        let Value::Plain(toml) = &self.entries.get(&path)?.value else { return None };
        toml.strip_prefix('"')?.strip_suffix('"')
    }

    /// The span of an item of the list at `path`, such as one of an upstream's servers. If there is
    /// no such item, the same as [`place`](Self::place).
    pub fn item_place(&self, path: &[&str], index: usize) -> Option<Range<usize>> {
        let whole: Vec<String> = path.iter().map(ToString::to_string).collect();
        let item = self.entries.get(&whole).and_then(|entry| entry.items.get(index).cloned());
        item.or_else(|| self.place(path))
    }

    /// Collects a list of tables as tables that are named by their setting `named_by`: their order
    /// does not matter.
    fn collect_list(
        &mut self,
        tables: &[(&DeTable<'_>, Range<usize>)],
        named_by: &str,
        path: &mut Vec<String>,
        is_masked: &dyn Fn(&Range<usize>) -> bool,
    ) {
        for (index, (table, span)) in tables.iter().enumerate() {
            let own = table.get(named_by).and_then(|name| name.get_ref().as_str());
            let own = own.unwrap_or_default();
            path.push(own.to_owned());
            // Port 0 may occur more than once, and a table need not have a name.
            if (own.is_empty() || self.entries.contains_key(path))
                && let Some(name) = path.last_mut()
            {
                *name = format!("{own}#{}", index + 1);
            }
            self.collect(table, path, is_masked);
            self.entries.insert(path.clone(), Setting::new(Value::Table, span.clone()));
            path.pop();
        }
    }

    fn collect(
        &mut self,
        table: &DeTable<'_>,
        path: &mut Vec<String>,
        is_masked: &dyn Fn(&Range<usize>) -> bool,
    ) {
        for (name, written) in table {
            path.push(name.get_ref().to_string());
            if let Some(named_by) = list_named_by(path)
                && let Some(tables) = tables(written)
            {
                self.entries.insert(path.clone(), Setting::new(Value::Table, name.span()));
                self.collect_list(&tables, named_by, path, is_masked);
                path.pop();
                continue;
            }
            let entry = if let DeValue::Table(inner) = written.get_ref() {
                self.collect(inner, path, is_masked);
                Setting::new(Value::Table, name.span())
            } else {
                let shown = shown(written);
                // The hash of a key may appear in a diagnostic about it, but not in logs.
                let is_secret = is_masked(&written.span()) || name.get_ref() == "sha256";
                let value = if is_secret {
                    Value::Secret(Sha256::digest(shown).into())
                } else {
                    Value::Plain(shown)
                };
                let (content, files) = files(path, written);
                let files = files.into_iter().map(str::to_owned).collect();
                Setting {
                    items: items(written),
                    content,
                    files,
                    ..Setting::new(value, name.span())
                }
            };
            self.entries.insert(path.clone(), entry);
            path.pop();
        }
    }
}

/// The setting that names the tables of the list at `path`, if it is one whose tables are compared
/// one by one.
fn list_named_by(path: &[String]) -> Option<&'static str> {
    match path {
        [list] if list == LISTENERS => Some("address"),
        [table, _, list] if table == "keys" && list == "secrets" => Some("name"),
        [table, list] if table == "admin" && list == "tokens" => Some("name"),
        _ => None,
    }
}

/// The tables of a list of tables, each with its span; `None` for another value.
fn tables<'a, 'b>(value: &'a Spanned<DeValue<'b>>) -> Option<Vec<(&'a DeTable<'b>, Range<usize>)>> {
    let items = value.get_ref().as_array()?.iter();
    items.map(|item| Some((item.get_ref().as_table()?, item.span()))).collect()
}

/// The paths of the files that the setting at `path` names.
fn files<'a>(path: &[String], value: &'a Spanned<DeValue<'_>>) -> (FileContent, Vec<&'a str>) {
    let plain = |text: &'a Spanned<DeValue<'_>>| reference::plain_file(text.get_ref().as_str()?);
    let name = path.last().map(String::as_str);
    match value.get_ref() {
        DeValue::Array(items) if matches!(name, Some("allow_ips" | "deny_ips")) => {
            (FileContent::Networks, items.iter().filter_map(plain).collect())
        }
        DeValue::String(_) if path.first().is_some_and(|table| table == "errors") => {
            (FileContent::ErrorBody, plain(value).into_iter().collect())
        }
        DeValue::String(_) if path.iter().eq(["clients", "basic", "users"]) => {
            (FileContent::Users, plain(value).into_iter().collect())
        }
        DeValue::String(text) => (FileContent::Secret, reference::files(text)),
        _ => (FileContent::Secret, Vec::new()),
    }
}

/// The spans of a list's items.
fn items(value: &Spanned<DeValue<'_>>) -> Vec<Range<usize>> {
    value.get_ref().as_array().into_iter().flatten().map(Spanned::span).collect()
}

/// A value as TOML in one line, with uniform spacing.
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
        // Only within a list that is not compared table by table.
        DeValue::Table(table) => {
            let names = table.iter().map(|(name, value)| format!("{name} = {}", shown(value)));
            format!("{{ {} }}", names.collect::<Vec<_>>().join(", "))
        }
    }
}
