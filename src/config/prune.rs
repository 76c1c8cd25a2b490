//! Takes one wrong value out of a parsed file, so that reading can go on behind it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// What was taken out.
#[derive(Debug)]
pub(super) struct Pruned {
    /// The names that lead to it; an item of a list has the list's names.
    pub(super) path: Vec<String>,
    /// Where it stood: the value, or the name where that is what is wrong.
    pub(super) span: Range<usize>,
    /// What it was.
    pub(super) value: Found,
    /// Whether it was one item of a list.
    pub(super) is_item: bool,
}

/// A value of the file by its type; numbers as they are written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A string.
    Text(String),
    /// A whole number of any size.
    Integer(String),
    /// Any other number, `nan` and `inf` among them.
    Float(String),
    /// `true` or `false`.
    Boolean,
    /// A date or a time.
    Date,
    /// `[…]`.
    List,
    /// A table.
    Table,
}

/// What to look for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The place that serde blames.
    pub(super) span: Option<Range<usize>>,
    /// The names that lead to it, joined by dots as serde shows them.
    pub(super) shown_path: String,
    /// Whether it is the name that is wrong, not the value.
    pub(super) is_name: bool,
}

/// Finds what serde blames and takes it out; none when it is not there.
///
/// The place decides. Where it lies within a value (serde may blame the inside of a table that
/// should be a word), everything at the path goes.
pub(super) fn prune(table: &mut DeTable<'_>, wanted: &Wanted) -> Option<Pruned> {
    let mut path = Vec::new();
    take_from_table(table, wanted, true, &mut path)
        .or_else(|| take_from_table(table, wanted, false, &mut path))
}

/// Depth first: the place (`exact`) or the path decides.
fn take_from_table(
    table: &mut DeTable<'_>,
    wanted: &Wanted,
    exact: bool,
    path: &mut Vec<String>,
) -> Option<Pruned> {
    let mut found: Option<String> = None;
    for (name, value) in table.iter_mut() {
        path.push(name.get_ref().to_string());
        let shown = path.join(".");
        let parent = path[..path.len() - 1].join(".");
        let span = if wanted.is_name { name.span() } else { value.span() };
        let at_path = wanted.shown_path == if wanted.is_name { &*parent } else { &*shown };
        let at_span = wanted.span.as_ref() == Some(&span);
        if at_path && (at_span || !(exact || wanted.is_name)) {
            found = Some(name.get_ref().to_string());
            path.pop();
            break;
        }
        let inner = match value.get_mut() {
            DeValue::Table(inner) => take_from_table(inner, wanted, exact, path),
            DeValue::Array(items) => take_from_array(items, wanted, exact, path),
            _ => None,
        };
        path.pop();
        if inner.is_some() {
            return inner;
        }
    }
    let name = found?;
    let (key, value) = table.remove_entry(name.as_str())?;
    let span = if wanted.is_name { key.span() } else { value.span() };
    path.push(name);
    let pruned =
        Pruned { path: path.clone(), span, value: value.into_inner().into(), is_item: false };
    path.pop();
    Some(pruned)
}

/// The same within a list.
fn take_from_array(
    items: &mut DeArray<'_>,
    wanted: &Wanted,
    exact: bool,
    path: &mut Vec<String>,
) -> Option<Pruned> {
    let is_here = |item: &Spanned<DeValue<'_>>| {
        exact && !wanted.is_name && wanted.span.as_ref() == Some(&item.span())
    };
    if let Some(index) = items.iter().position(is_here) {
        let all = std::mem::replace(items, std::iter::empty().collect());
        let mut pruned = None;
        *items = all
            .into_iter()
            .enumerate()
            .filter_map(|(at, item)| {
                if at != index {
                    return Some(item);
                }
                let span = item.span();
                let value = item.into_inner().into();
                pruned = Some(Pruned { path: path.clone(), span, value, is_item: true });
                None
            })
            .collect();
        return pruned;
    }
    items.iter_mut().find_map(|item| match item.get_mut() {
        DeValue::Table(inner) => take_from_table(inner, wanted, exact, path),
        DeValue::Array(inner) => take_from_array(inner, wanted, exact, path),
        _ => None,
    })
}

/// The places of tables; `*` stands for any name.
const TABLES: [&[&str]; 17] = [
    &["server"],
    &["admin"],
    &["redis"],
    &["redis", "breaker"],
    &["clients"],
    &["headers"],
    &["memory"],
    &["access_log"],
    &["audit"],
    &["plans", "*"],
    &["keys", "*"],
    &["keys", "*", "rules", "*"],
    &["upstreams", "*"],
    &["routes", "*"],
    &["rules", "*"],
    &["rules", "*", "plans", "*"],
    &["rules", "*", "exempt"],
];

/// Takes out every list that stands where a table belongs: serde would take its items for the
/// table's values in the order of our source.
pub(super) fn take_lists(table: &mut DeTable<'_>, taken: &mut impl FnMut(Pruned)) {
    for place in TABLES {
        take_lists_at(table, place, &mut Vec::new(), taken);
    }
}

fn take_lists_at(
    table: &mut DeTable<'_>,
    place: &[&str],
    path: &mut Vec<String>,
    taken: &mut impl FnMut(Pruned),
) {
    let [name, inner @ ..] = place else { return };
    let fits = |key: &str| *name == "*" || *name == key;
    let mut lists = Vec::new();
    for (key, value) in table.iter_mut().filter(|(key, _)| fits(key.get_ref())) {
        path.push(key.get_ref().to_string());
        match value.get_mut() {
            DeValue::Array(_) if inner.is_empty() => lists.push(key.get_ref().to_string()),
            DeValue::Table(below) => take_lists_at(below, inner, path, taken),
            _ => {}
        }
        path.pop();
    }
    for name in lists {
        let Some(value) = table.remove(name.as_str()) else { continue };
        let path = path.iter().cloned().chain([name]).collect();
        taken(Pruned { path, span: value.span(), value: Found::List, is_item: false });
    }
}

impl From<DeValue<'_>> for Found {
    fn from(value: DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.into_owned()),
            DeValue::Integer(number) => Self::Integer(number.to_string()),
            DeValue::Float(number) => Self::Float(number.as_str().to_owned()),
            DeValue::Boolean(_) => Self::Boolean,
            DeValue::Datetime(_) => Self::Date,
            DeValue::Array(_) => Self::List,
            DeValue::Table(_) => Self::Table,
        }
    }
}
