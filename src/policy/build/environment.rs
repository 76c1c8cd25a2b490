//! Expands `${NAME}` in settings to an environment variable, so that a file contains no secret.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::cut;

/// Looks up an environment variable; none if it is not set. A parameter, so that building a policy does
/// not depend on the process.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A part of a setting.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    /// Text outside of `${…}`.
    Text(&'a str),
    /// The name of a variable.
    Variable(&'a str),
}

/// Why a `${…}` is invalid.
#[derive(Debug, PartialEq, Eq)]
enum Broken<'a> {
    /// It has no `}`.
    Open,
    /// It does not contain the name of a variable.
    Name(&'a str),
}

/// Replaces every variable in a setting by its value.
pub(super) fn expand(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    expand_part(field.get_ref(), field, environment, &|value| value, diagnostics)
}

/// As [`expand`], for a part of a setting; `quote` encodes each value.
pub(super) fn expand_part(
    part: &str,
    field: &Spanned<String>,
    environment: Environment<'_>,
    quote: &dyn Fn(String) -> String,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let pieces = match pieces(part) {
        Ok(pieces) => pieces,
        Err(broken) => {
            diagnostics.push(broken.diagnostic(field));
            return None;
        }
    };
    let mut text = Some(String::with_capacity(part.len()));
    for piece in pieces {
        let value = match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Variable(name) => {
                let Some(value) = environment(name) else {
                    let shown = cut(name, 64);
                    let message = format!("the environment variable `{shown}` is not set");
                    let help = "set it where the gateway is started; `$${` is a plain `${`";
                    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
                    text = None;
                    continue;
                };
                quote(value)
            }
        };
        if let Some(text) = &mut text {
            text.push_str(&value);
        }
    }
    text
}

impl Broken<'_> {
    fn diagnostic(&self, field: &Spanned<String>) -> Diagnostic {
        let help = "a variable looks like `${REDIS_PASSWORD}`; `$${` is a plain `${`";
        let message = match self {
            Self::Open => "`${` has no `}`".to_owned(),
            Self::Name("") => "`${}` names no variable".to_owned(),
            Self::Name(name) => format!("`{}` is not the name of a variable", cut(name, 64)),
        };
        Diagnostic::new(field.span(), message).help(help)
    }
}

/// Splits a text into literal text and variables.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Broken<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let before = &rest[..at];
        if let Some(literal) = before.strip_suffix('$') {
            pieces.push(Piece::Text(literal));
            pieces.push(Piece::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        let (name, after) = rest[at + 2..].split_once('}').ok_or(Broken::Open)?;
        if !is_name(name) {
            return Err(Broken::Name(name));
        }
        pieces.push(Piece::Text(before));
        pieces.push(Piece::Variable(name));
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    pieces.retain(|piece| *piece != Piece::Text(""));
    Ok(pieces)
}

/// Whether this is the name of a variable, as in shells.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_at_variables() {
        use Piece::{Text, Variable};
        let table = [
            ("", Ok(vec![])),
            ("a$b{c}", Ok(vec![Text("a$b{c}")])),
            ("${A}", Ok(vec![Variable("A")])),
            ("x${A_1}${_b}y", Ok(vec![Text("x"), Variable("A_1"), Variable("_b"), Text("y")])),
            ("$${A}", Ok(vec![Text("${"), Text("A}")])),
            ("$$${A}", Ok(vec![Text("$"), Text("${"), Text("A}")])),
            ("${A", Err(Broken::Open)),
            ("${}", Err(Broken::Name(""))),
            ("${1}", Err(Broken::Name("1"))),
            ("${A B}", Err(Broken::Name("A B"))),
            ("${A:-x}", Err(Broken::Name("A:-x"))),
        ];
        for (text, expected) in table {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }
}
