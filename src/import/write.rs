//! Writes the tables of an import as the text of a gateway.toml.

use std::fmt::Write as _;

use toml::Value;

use super::note::Place;
use super::settings::{Entries, Imported, Settings};

/// Number of files that the first line names.
const MAX_NAMES: usize = 3;

/// Longest list that is written in one line, in characters.
const LINE: usize = 100;

/// The text of the file. `names` are those of the files that it is made from.
pub(super) fn write(imported: &Imported, names: &[&str]) -> String {
    let shown = names.get(..MAX_NAMES).unwrap_or(names).join(" ");
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(", with {more} more files"),
    };
    let mut text = format!(
        "# Made by `tollgate import {shown}`{more}. Its list says what is missing or different.\n\
         # `tollgate check` reports mistakes; docs/configuration.md describes every setting.\n"
    );
    let mut server = imported.server.clone();
    if server.get("admin").is_none() {
        server.set("admin", "127.0.0.1:9090");
    }
    table(&mut text, "[server]", None, &server);
    table(&mut text, "[server.limits]", None, &imported.limits);
    table(&mut text, "[server.http2]", None, &imported.http2);
    let at = |place: Place| {
        let name = names.get(place.file).copied().unwrap_or_default();
        (place.line > 0).then(|| place.shown(name))
    };
    for (place, listener) in &imported.listeners {
        table(&mut text, "[[listeners]]", at(*place), listener);
    }
    table(&mut text, "[acme]", None, &imported.acme);
    table(&mut text, "[clients]", None, &imported.clients);
    table(&mut text, "[clients.basic]", None, &imported.basic);
    table(&mut text, "[redis]", None, &imported.redis);
    let groups: [(&str, &Entries); 4] = [
        ("keys", &imported.keys),
        ("upstreams", &imported.upstreams),
        ("routes", &imported.routes),
        ("rules", &imported.rules),
    ];
    for (group, entries) in groups {
        for entry in entries.iter() {
            let head = format!("[{group}.{}]", entry.name);
            let _ = write!(text, "\n{}", comment(at(entry.place)));
            let _ = writeln!(text, "{head}");
            settings(&mut text, &entry.settings);
        }
    }
    text
}

/// A table, unless it is empty.
fn table(text: &mut String, head: &str, at: Option<String>, values: &Settings) {
    if values.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}{head}", comment(at));
    settings(text, values);
}

fn comment(at: Option<String>) -> String {
    at.map(|at| format!("# {}\n", at.replace(char::is_control, " "))).unwrap_or_default()
}

fn settings(text: &mut String, settings: &Settings) {
    for (name, value) in settings.iter() {
        let line = format!("{name} = {value}");
        match value {
            Value::Array(items) if line.len() > LINE && !items.is_empty() => {
                let _ = writeln!(text, "{name} = [");
                for item in items {
                    let _ = writeln!(text, "    {item},");
                }
                text.push_str("]\n");
            }
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
}
