//! What every importer makes: the tables of a gateway.toml, with the places that they come from.

use toml::{Table, Value};

use super::note::{Notes, Place};

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

/// The tables of one kind.
#[derive(Debug, Default)]
pub(super) struct Entries(Vec<Entry>);

/// The tables of a gateway.toml, and the notes about them.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) server: Settings,
    /// `[server.limits]`.
    pub(super) limits: Settings,
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
        let mut list: Vec<Value> = match self.get(name) {
            Some(Value::Array(list)) => list.clone(),
            _ => Vec::new(),
        };
        for item in items {
            let item = Value::from(item);
            if !list.contains(&item) {
                list.push(item);
            }
        }
        if !list.is_empty() {
            self.set(name, list);
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
        self.0.push(Entry { name: name.clone(), place, settings });
        name
    }

    /// A valid name that no table has.
    fn free(&self, name: &str) -> String {
        let valid = valid(name);
        let taken = |name: &str| self.0.iter().any(|entry| entry.name == name);
        if !taken(&valid) {
            return valid;
        }
        let mut number = 2;
        loop {
            let name = format!("{valid}-{number}");
            if !taken(&name) {
                return name;
            }
            number += 1;
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.name == name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.iter_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.0.retain(keep);
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
