//! `${NAME}` and `${file:PATH}` in a setting: the value of an environment variable and the content
//! of a file, so that gateway.toml contains no secret. `policy::build` replaces them.

use std::fmt;

/// What a `${…}` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'a> {
    /// An environment variable.
    Variable(&'a str),
    /// A file, by its path as written, which may contain variables.
    File(FileContent, &'a str),
}

/// What a file has that a setting names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileContent {
    /// A secret: not empty, and without the line break at its end. It is named by `${file:…}`.
    Secret,
    /// Networks, one a line. Lists of networks name it by `file:…`.
    Networks,
    /// The body of an error: not empty. `[errors]` names it by `file:…`.
    ErrorBody,
    /// Users and the hashes of their passwords, one a line. `[clients.basic]` names it by `file:…`.
    Users,
}

/// A part of a setting.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text outside of `${…}`.
    Text(&'a str),
    /// A `${…}`.
    Reference(Reference<'a>),
}

/// Why a `${…}` is invalid.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken<'a> {
    /// It has no `}`.
    Open,
    /// It is not the name of a variable.
    Name(&'a str),
    /// It names a file, by a path that is empty or names another file.
    Path(&'a str),
}

/// What precedes the path of a file.
const FILE: &str = "file:";

impl fmt::Display for Reference<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(formatter, "${{{name}}}"),
            Self::File(FileContent::Secret, path) => write!(formatter, "${{{FILE}{path}}}"),
            Self::File(
                FileContent::Networks | FileContent::ErrorBody | FileContent::Users,
                path,
            ) => {
                write!(formatter, "{FILE}{path}")
            }
        }
    }
}

/// Splits a setting into literal text and references. `$${` is a literal `${`.
///
/// # Errors
/// The first `${…}` that is invalid.
pub fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Broken<'_>> {
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
        let inner = &rest[at + 2..];
        let end = end(inner).ok_or(Broken::Open)?;
        pieces.push(Piece::Text(before));
        pieces.push(Piece::Reference(reference(&inner[..end])?));
        rest = &inner[end + 1..];
    }
    pieces.push(Piece::Text(rest));
    pieces.retain(|piece| *piece != Piece::Text(""));
    Ok(pieces)
}

/// Whether a setting is one reference and nothing else.
pub fn is_reference(text: &str) -> bool {
    matches!(pieces(text).as_deref(), Ok([Piece::Reference(_)]))
}

/// The path of the file that a text names without `${…}`: an item of a list of networks, or the
/// body of an error.
pub fn plain_file(text: &str) -> Option<&str> {
    text.strip_prefix(FILE)
}

/// The paths of the files that a setting names, as written.
pub fn files(text: &str) -> Vec<&str> {
    let file = |piece| match piece {
        Piece::Reference(Reference::File(_, path)) => Some(path),
        _ => None,
    };
    pieces(text).unwrap_or_default().into_iter().filter_map(file).collect()
}

/// The text with every reference covered by letters, at the same length, for searches that must not
/// find anything in a reference.
pub fn covered(text: &str) -> String {
    let Ok(pieces) = pieces(text) else { return text.to_owned() };
    let mut covered = String::with_capacity(text.len());
    for piece in pieces {
        match piece {
            // `$${` was cut to `${`.
            Piece::Text("${") => covered.push_str("x${"),
            Piece::Text(text) => covered.push_str(text),
            Piece::Reference(reference) => {
                covered.extend(std::iter::repeat_n('x', reference.to_string().len()));
            }
        }
    }
    covered
}

/// The offset of the `}` that ends a reference. The path of a file may contain variables.
fn end(inner: &str) -> Option<usize> {
    if !inner.starts_with(FILE) {
        return inner.find('}');
    }
    let mut open = 0_usize;
    for (at, c) in inner.char_indices() {
        match c {
            '{' if inner[..at].ends_with('$') => open += 1,
            '}' if open == 0 => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

fn reference(inner: &str) -> Result<Reference<'_>, Broken<'_>> {
    let Some(path) = inner.strip_prefix(FILE) else {
        return if is_name(inner) {
            Ok(Reference::Variable(inner))
        } else {
            Err(Broken::Name(inner))
        };
    };
    let is_file = |piece: &Piece<'_>| matches!(piece, Piece::Reference(Reference::File(..)));
    let pieces = pieces(path)?;
    if pieces.is_empty() || pieces.iter().any(is_file) {
        return Err(Broken::Path(path));
    }
    Ok(Reference::File(FileContent::Secret, path))
}

/// Whether this is the name of a variable, as in shells.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Piece<'_> {
        Piece::Reference(Reference::Variable(name))
    }

    fn file(path: &str) -> Piece<'_> {
        Piece::Reference(Reference::File(FileContent::Secret, path))
    }

    #[test]
    fn text_is_split_at_references() {
        use Piece::Text;
        let table = [
            ("", Ok(vec![])),
            ("a$b{c}", Ok(vec![Text("a$b{c}")])),
            ("${A}", Ok(vec![variable("A")])),
            ("x${A_1}${_b}y", Ok(vec![Text("x"), variable("A_1"), variable("_b"), Text("y")])),
            ("$${A}", Ok(vec![Text("${"), Text("A}")])),
            ("$$${A}", Ok(vec![Text("$"), Text("${"), Text("A}")])),
            ("${file:/run/a b}", Ok(vec![file("/run/a b")])),
            ("x${file:a}y${B}", Ok(vec![Text("x"), file("a"), Text("y"), variable("B")])),
            ("${file:${DIR}/a}}", Ok(vec![file("${DIR}/a"), Text("}")])),
            ("${A", Err(Broken::Open)),
            ("${}", Err(Broken::Name(""))),
            ("${1}", Err(Broken::Name("1"))),
            ("${A B}", Err(Broken::Name("A B"))),
            ("${A:-x}", Err(Broken::Name("A:-x"))),
            ("${FILE:a}", Err(Broken::Name("FILE:a"))),
            ("${file:}", Err(Broken::Path(""))),
            ("${file:a", Err(Broken::Open)),
            ("${file:${A}", Err(Broken::Open)),
            ("${file:${1}}", Err(Broken::Name("1"))),
            ("${file:${file:a}}", Err(Broken::Path("${file:a}"))),
        ];
        for (text, expected) in table {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }

    #[test]
    fn covered_text_has_the_same_length_and_no_reference() {
        let table = [
            ("redis://u:${file:/a/b@c}@h", "redis://u:xxxxxxxxxxxxxx@h"),
            ("$${A}/${B}", "x${A}/xxxx"),
            ("${", "${"),
            ("plain", "plain"),
        ];
        for (text, expected) in table {
            assert_eq!(covered(text), expected);
            assert_eq!(covered(text).len(), text.len());
        }
        assert_eq!(files("${A}${file:a}-${file:${B}/c}"), ["a", "${B}/c"]);
        assert!(is_reference("${A}") && is_reference("${file:${A}/b}"));
        assert!(!is_reference("${A}x") && !is_reference("") && !is_reference("$${A}"));
    }
}
