//! Configurations of nginx, Traefik, Kong and Envoy as a gateway.toml, with a list of what could
//! not be taken over. Pure.
//!
//! Reading order: `note`, [`settings`](self::settings) (what every format becomes), `values`,
//! `common`, `yaml`, then a folder for each format, then `order`, `finish` and `write`, which are
//! the same for all.

#![allow(clippy::similar_names, reason = "an importer, and what is imported")]
#![allow(clippy::single_match_else, reason = "what is taken over, beside what is noted")]

mod common;
mod envoy;
mod finish;
mod kong;
mod nginx;
mod note;
mod order;
mod settings;
#[cfg(test)]
mod tests;
mod traefik;
mod values;
mod write;
mod yaml;

use std::collections::{BTreeSet, HashMap};

use thiserror::Error;

pub use note::{Effect, Note, Place};
use settings::Imported;
use yaml::Node;

/// What a configuration is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `nginx.conf`, or a part of it.
    Nginx,
    /// Traefik's static configuration, its dynamic configuration, or both, as YAML.
    Traefik,
    /// Kong's declarative configuration, as YAML or JSON.
    Kong,
    /// Envoy's bootstrap configuration, as YAML or JSON.
    Envoy,
}

/// A file to import.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// Name that comments of the result show.
    pub name: &'a str,
    /// Content.
    pub text: &'a str,
}

/// The files that `include` of nginx is for, by its argument. Empty if they were not looked for.
pub type Includes = HashMap<String, Included>;

/// The files that one argument of `include` is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Included {
    /// Indexes of the files, in the order in which they are included.
    pub files: Vec<usize>,
    /// Why others cannot be included.
    pub failed: Vec<String>,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// A gateway.toml.
    pub toml: String,
    /// What was not taken over as it is, in the order of the files.
    pub notes: Vec<Note>,
}

/// A file is not what its format says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// Where.
    pub place: Place,
    message: String,
}

// === impl SyntaxError ===

impl SyntaxError {
    fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

// === impl Format ===

impl Format {
    /// The format of a file, by its content and the end of its name; none if it is none of these.
    pub fn of(file: File<'_>) -> Option<Self> {
        let name = file.name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let is_yaml = [".yml", ".yaml", ".json"].iter().any(|end| name.ends_with(end));
        let parsed = yaml::parse(file.text, 0);
        // A mistake in the file is reported by the parser of its format.
        let is_wrong = parsed.is_err();
        let documents = parsed.unwrap_or_default();
        if is_wrong && is_yaml {
            return Self::of_wrong(file.text);
        }
        let has = |key: &str| documents.iter().any(|document| document.has(key));
        if has("static_resources") || has("dynamic_resources") {
            return Some(Self::Envoy);
        }
        if has("_format_version") || has("services") && has("routes") {
            return Some(Self::Kong);
        }
        let traefik =
            ["http", "entryPoints", "entrypoints", "tcp", "certificatesResolvers", "providers"];
        if traefik.into_iter().any(has) {
            return Some(Self::Traefik);
        }
        let named =
            ["nginx", "traefik", "kong", "envoy"].into_iter().find(|word| name.contains(word));
        match named {
            Some("nginx") => Some(Self::Nginx),
            Some("traefik") if is_yaml => Some(Self::Traefik),
            Some("kong") if is_yaml => Some(Self::Kong),
            Some("envoy") if is_yaml => Some(Self::Envoy),
            _ if is_yaml => None,
            _ => nginx::is_likely(file.text).then_some(Self::Nginx),
        }
    }

    /// The format of a text that is no YAML although its name says so, by the keys in it.
    fn of_wrong(text: &str) -> Option<Self> {
        let has = |key: &str| {
            text.lines().any(|line| line.trim_start_matches(['{', ' ', '"']).starts_with(key))
        };
        if has("static_resources") || has("dynamic_resources") {
            Some(Self::Envoy)
        } else if has("_format_version") {
            Some(Self::Kong)
        } else if has("http") || has("entryPoints") || has("tls") {
            Some(Self::Traefik)
        } else {
            has("services").then_some(Self::Kong)
        }
    }
}

/// The arguments of `include` in a file of nginx, which may be patterns; none if it cannot be
/// parsed.
pub fn nginx_includes(text: &str) -> BTreeSet<String> {
    nginx::includes(text)
}

/// Makes a gateway.toml of the files, which belong together.
///
/// # Errors
/// A file cannot be parsed.
pub fn import(
    format: Format,
    files: &[File<'_>],
    includes: &Includes,
) -> Result<Import, SyntaxError> {
    let mut imported = Imported::default();
    match format {
        Format::Nginx => nginx::import(files, includes, &mut imported)?,
        Format::Traefik => traefik::import(&documents(files)?, &mut imported),
        Format::Kong => kong::import(&documents(files)?, &mut imported),
        Format::Envoy => envoy::import(&documents(files)?, &mut imported),
    }
    finish::finish(&mut imported);
    let names: Vec<&str> = files.iter().map(|file| file.name).collect();
    let toml = write::write(&imported, &names);
    Ok(Import { toml, notes: imported.notes.into_sorted() })
}

/// The YAML documents of all files.
fn documents(files: &[File<'_>]) -> Result<Vec<Node>, SyntaxError> {
    let mut documents = Vec::new();
    for (number, file) in files.iter().enumerate() {
        documents.extend(yaml::parse(file.text, number)?);
    }
    Ok(documents)
}
