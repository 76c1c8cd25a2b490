//! `${NAME}` in settings: a value from the environment, so that a file holds no secret.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::cut;

/// Looks up a variable; none when it is not set. Asked for by whoever reads the file, so that a
/// policy depends on nothing but what it is given.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A piece of a setting.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    /// Stands for itself.
    Text(&'a str),
    /// Stands for a variable's value.
    Variable(&'a str),
}

/// What is wrong with a `${…}`.
#[derive(Debug, PartialEq, Eq)]
enum Broken<'a> {
    /// No `}` follows.
    Open,
    /// This is not a variable's name.
    Name(&'a str),
}

/// The setting's text with every variable replaced by its value.
pub(super) fn expand(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    expand_part(field.get_ref(), field, environment, &|value| value, diagnostics)
}

/// The same for `part` of a setting, with every value passed through `quote` first.
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

/// A text in pieces.
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

/// A name as shells take it.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_variables_and_the_rest() {
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
