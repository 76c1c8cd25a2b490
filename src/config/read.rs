//! From text to a [`Config`], with every error that reading can find. serde stops at the first,
//! so what it blames is taken out and the rest is read again.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, Deserializer, Error};

use super::Config;
use super::diagnostic::{Diagnostic, Diagnostics};
use super::plain;
use super::prune::{self, Wanted};

/// How often the file is read again behind an error. Each round costs the whole file.
const MAX_ROUNDS: usize = 100;

/// Reads a file. What is wrong is left out of the `Config` and said in `diagnostics`.
pub fn read(text: &str, diagnostics: &mut Diagnostics) -> Config {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    if report_syntax(text, &errors, diagnostics) == Damage::Structure {
        diagnostics.distrust(std::iter::once(0..usize::MAX).collect());
        return Config::default();
    }
    prune::take_lists(table.get_mut(), &mut |pruned| {
        diagnostics.push(plain::list_for_table(&pruned));
        diagnostics.leave_hole(pruned.path);
    });
    read_types(table, diagnostics)
}

/// What errors of syntax leave of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Their lines are lost, the others mean what they say.
    Lines,
    /// What follows may belong to another table than was meant.
    Structure,
}

/// Says what is not TOML, once a line: the rest of a line mostly follows from its first error,
/// and so does everything behind an error that breaks the structure.
fn report_syntax(text: &str, errors: &[Error], diagnostics: &mut Diagnostics) -> Damage {
    let mut errors: Vec<(Range<usize>, &Error)> =
        errors.iter().map(|error| (error.span().unwrap_or(0..0), error)).collect();
    // The later of two errors at one place says more: "string values must be quoted".
    errors.sort_by_key(|(span, _)| span.start);
    let mut broken: Vec<Range<usize>> = Vec::new();
    for (span, error) in errors {
        if broken.last().is_none_or(|line| !line.contains(&span.start)) {
            broken.push(line_around(text, span.start));
            diagnostics.push(plain::broken_syntax(error.message(), span, text));
        }
        if breaks_structure(error.message()) {
            return Damage::Structure;
        }
    }
    diagnostics.distrust(broken);
    Damage::Lines
}

/// Whether an error leaves open where the text after it belongs.
fn breaks_structure(message: &str) -> bool {
    ["unclosed", "invalid multi-line", "missing comma between array"]
        .iter()
        .any(|beginning| message.starts_with(beginning))
}

/// The line that byte `at` stands on, with its line break.
fn line_around(text: &str, at: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let at = at.min(bytes.len());
    let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |found| found + 1);
    let end = bytes[at..].iter().position(|byte| *byte == b'\n');
    start..end.map_or(bytes.len(), |found| at + found) + 1
}

/// Reads the types, again and again behind each error.
fn read_types(mut table: Spanned<DeTable<'_>>, diagnostics: &mut Diagnostics) -> Config {
    for _ in 0..MAX_ROUNDS {
        let error = match Config::deserialize(Deserializer::from(table.clone())) {
            Ok(config) => return config,
            Err(error) => error,
        };
        let wanted = Wanted {
            span: error.span(),
            shown_path: shown_path(&error),
            is_name: error.message().starts_with("unknown field"),
        };
        let Some(pruned) = prune::prune(table.get_mut(), &wanted) else {
            diagnostics.push(Diagnostic::new(error.span().unwrap_or(0..0), error.message()));
            break;
        };
        diagnostics.push(plain::wrong_value(error.message(), &pruned));
        diagnostics.leave_hole(pruned.path);
    }
    // Too many to go on: whatever seems to be missing now is not worth a word.
    diagnostics.distrust(std::iter::once(0..usize::MAX).collect());
    Config::default()
}

/// The names that lead to what serde blames. The error shows them, and offers no other way to ask.
fn shown_path(error: &Error) -> String {
    let shown = error.to_string();
    let path = shown.rsplit_once("\nin `").map_or("", |(_, path)| path);
    path.strip_suffix("`\n").unwrap_or(path).to_owned()
}
