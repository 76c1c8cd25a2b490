//! Replaces `${NAME}` and `${file:PATH}` in settings by their values, so that a file contains no
//! secret.

use sha2::{Digest as _, Sha256};

use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::reference::{Broken, Piece, Reference, files, pieces};
use crate::config::row::{References, Row};
use crate::config::spanned::Spanned;

/// Looks up what a `${…}` names. A parameter, so that building a policy does not depend on the
/// process.
pub type Environment<'a> = &'a dyn Fn(Reference<'_>) -> Lookup;

/// The result of looking up a `${…}`.
#[derive(Debug)]
pub enum Lookup {
    Value(String),
    /// It has no value here, and any value that fits is assumed.
    Assumed,
    /// It has no value.
    Missing(Missing),
}

/// The beginning of every placeholder: that of a path, because only a path has to begin with a
/// certain character.
pub const PLACEHOLDER: &str = "/assumed-";

/// Why a `${…}` has no value. Does not contain any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is wrong, in one line without a final period.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// A setting whose references are replaced.
#[derive(Debug)]
pub(super) struct Expanded {
    pub(super) text: String,
    /// Whether a part of it is a placeholder, so that only its other parts can be checked.
    pub(super) is_assumed: bool,
}

/// Replaces every reference in a setting by its value. Errors and logs show a setting that takes
/// variables only, the path of a file: so it cannot be the content of another file.
pub(super) fn expand(
    row: &Row,
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    if row.references == References::Variables && !files(field.get_ref()).is_empty() {
        let message = "this setting is a path, and the content of a file is not one";
        let help = "write the path itself, without `${file:…}`";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    let expanded = expand_part(field.get_ref(), field, environment, &|value| value, diagnostics);
    expanded.map(|expanded| expanded.text)
}

/// As [`expand`], for a part of a setting; `quote` encodes each value.
pub(super) fn expand_part(
    part: &str,
    field: &Spanned<String>,
    environment: Environment<'_>,
    quote: &dyn Fn(String) -> String,
    diagnostics: &mut Diagnostics,
) -> Option<Expanded> {
    let pieces = match pieces(part) {
        Ok(pieces) => pieces,
        Err(broken) => {
            diagnostics.push(diagnostic(&broken, field));
            return None;
        }
    };
    let mut text = Some(String::with_capacity(part.len()));
    let mut is_assumed = false;
    for piece in pieces {
        let value = match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Reference(reference) => match environment(reference) {
                Lookup::Value(value) => quote(value),
                Lookup::Assumed => {
                    is_assumed = true;
                    quote(placeholder(reference))
                }
                Lookup::Missing(Missing { message, help }) => {
                    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
                    text = None;
                    continue;
                }
            },
        };
        if let Some(text) = &mut text {
            text.push_str(&value);
        }
    }
    text.map(|text| Expanded { text, is_assumed })
}

/// The lookup of a variable with this value.
pub fn variable(name: &str, value: Option<String>) -> Lookup {
    let Some(value) = value else {
        let message = format!("the environment variable `{}` is not set", cut(name, 64));
        let help = "set it where the gateway is started; `$${` is a plain `${`".to_owned();
        return Lookup::Missing(Missing { message, help });
    };
    Lookup::Value(value)
}

/// A text that fits a token, a salt, a password, a header, a name and a path alike. It differs
/// between references, so that a comparison of two files notices that one names another variable.
fn placeholder(reference: Reference<'_>) -> String {
    let digest = Sha256::digest(reference.to_string());
    let number = u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
    format!("{PLACEHOLDER}{number:032x}")
}

fn diagnostic(broken: &Broken<'_>, field: &Spanned<String>) -> Diagnostic {
    let help = "a variable looks like `${REDIS_PASSWORD}`, and a file like \
                `${file:/run/secrets/redis}`; `$${` is a plain `${`";
    let message = match broken {
        Broken::Open => "`${` has no `}`".to_owned(),
        Broken::Name("") => "`${}` names no variable".to_owned(),
        Broken::Name(name) => format!("`{}` is not the name of a variable", cut(name, 64)),
        Broken::Path("") => "`${file:}` names no file".to_owned(),
        Broken::Path(_) => "the path of a file cannot be read from a file".to_owned(),
    };
    Diagnostic::new(field.span(), message).help(help)
}
