//! What every importer makes: the tables of a gateway.toml, with the places that they come from.

use std::collections::HashMap;

use toml::{Table, Value};

use super::note::{Notes, Place};
use super::order::Order;

/// Settings of a table, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Settings(Vec<(&'static str, Value)>);

/// A table with a name, such as `[routes.search]`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) settings: Settings,
}

/// A table whose name stays.
#[derive(Debug)]
pub(super) struct EntryMut<'a> {
    pub(super) name: &'a str,
    pub(super) place: Place,
    pub(super) settings: &'a mut Settings,
}

/// The tables of one kind, each with a name of its own.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: Vec<Entry>,
    /// Index of each name.
    by_name: HashMap<String, usize>,
    /// The last number that was added to a name which was taken.
    last: HashMap<String, usize>,
}

/// The tables of a gateway.toml, and the notes about them.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) server: Settings,
    /// `[server.limits]`.
    pub(super) limits: Settings,
    /// `[server.http2]`.
    pub(super) http2: Settings,
    /// `[[listeners]]`.
    pub(super) listeners: Vec<(Place, Settings)>,
    pub(super) acme: Settings,
    pub(super) clients: Settings,
    /// `[clients.basic]`.
    pub(super) basic: Settings,
    pub(super) redis: Settings,
    pub(super) keys: Entries,
    pub(super) upstreams: Entries,
    pub(super) routes: Entries,
    pub(super) rules: Entries,
    pub(super) notes: Notes,
    /// Names of routes with the addresses that they are for, as far as the format says.
    pub(super) served: Vec<(String, Vec<String>)>,
    /// Which of the routes come first in the file, as far as the format says.
    pub(super) order: Vec<Order>,
}

// === impl Imported ===

impl Imported {
    /// Remembers that all routes from this number on are for these addresses.
    pub(super) fn serve(&mut self, first: usize, addresses: &[String]) {
        let routes = self.routes.iter().skip(first);
        self.served.extend(routes.map(|route| (route.name.clone(), addresses.to_vec())));
    }
}

// === impl Settings ===

impl Settings {
    /// Sets a value, in place of an earlier one.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// The same, for use while a table is made.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Changes the table that is the value of `name`, which is empty if there is none.
    pub(super) fn change(&mut self, name: &'static str, change: impl FnOnce(&mut Table)) {
        let mut table = match self.get(name) {
            Some(Value::Table(table)) => table.clone(),
            _ => Table::new(),
        };
        change(&mut table);
        self.set(name, table);
    }

    /// Adds items to the list that is the value of `name`, without repetitions.
    pub(super) fn extend(&mut self, name: &'static str, items: impl IntoIterator<Item = String>) {
        for item in items.into_iter().map(Value::from) {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, Value::Array(list))) if list.contains(&item) => {}
                Some((_, Value::Array(list))) => list.push(item),
                _ => self.set(name, vec![item]),
            }
        }
    }

    /// A change of headers: `kind` is `request_headers` or `response_headers`, `change` is `set` or
    /// `add`.
    pub(super) fn header(&mut self, kind: &'static str, change: &str, name: &str, value: &str) {
        self.change(kind, |headers| {
            let changes = headers.entry(change).or_insert_with(|| Table::new().into());
            if let Value::Table(changes) = changes {
                changes.insert(name.to_owned(), value.into());
            }
        });
    }

    /// Removes a header: `kind` is `request_headers` or `response_headers`.
    pub(super) fn remove_header(&mut self, kind: &'static str, name: &str) {
        self.change(kind, |headers| {
            let removed = headers.entry("remove").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(removed) = removed {
                removed.push(name.into());
            }
        });
    }
}

// === impl Entries ===

impl Entries {
    /// Adds a table. A name that is taken or not valid is changed; returns the name.
    pub(super) fn add(&mut self, name: &str, place: Place, settings: Settings) -> String {
        let name = self.free(name);
        self.by_name.insert(name.clone(), self.all.len());
        self.all.push(Entry { name: name.clone(), place, settings });
        name
    }

    /// A valid name that no table has.
    fn free(&mut self, name: &str) -> String {
        let valid = valid(name);
        if !self.by_name.contains_key(&valid) {
            return valid;
        }
        let last = self.last.entry(valid.clone()).or_insert(1);
        loop {
            *last += 1;
            let name = format!("{valid}-{last}");
            if !self.by_name.contains_key(&name) {
                return name;
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.all.get(*self.by_name.get(name)?)
    }

    /// How many tables come before it.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = EntryMut<'_>> {
        let each = self.all.iter_mut();
        each.map(|Entry { name, place, settings }| EntryMut { name, place: *place, settings })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.all.retain(keep);
        let each = self.all.iter().enumerate();
        self.by_name = each.map(|(index, entry)| (entry.name.clone(), index)).collect();
    }
}

/// The text as a name of a table: letters, digits, `_` and `-`, at most 60.
fn valid(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let mut name = String::new();
    for c in text.chars().map(allowed).take(200) {
        if c != '-' || !(name.is_empty() || name.ends_with('-')) {
            name.push(c);
        }
    }
    let name: String = name.trim_matches('-').chars().take(56).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "all".to_owned() } else { name.to_owned() }
}
