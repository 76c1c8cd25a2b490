//! An error in gateway.toml: what is wrong, where, and what to write instead. All errors of a
//! file are collected before any is shown.

use std::fmt;
use std::ops::Range;

use super::secrets;

/// More errors than anybody reads are counted but not kept.
const MAX_KEPT: usize = 1000;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, in one line without a full stop.
    pub message: String,
    /// Where: the first place is the error, the others explain it.
    pub labels: Vec<Label>,
    /// What to write instead.
    pub help: Option<String>,
}

/// A place in the file and what to say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Bytes of the source.
    pub span: Range<usize>,
    /// A few words, or none.
    pub text: String,
}

/// Errors as they are found, and the holes that earlier ones left.
#[derive(Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    not_kept: usize,
    holes: Vec<Vec<String>>,
    /// Lines that are not TOML, in order.
    broken: Vec<Range<usize>>,
}

/// All errors of one file, ready to be shown. Holds no secrets: see [`secrets`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The file's name as the user gave it.
    pub name: String,
    /// The file, with secrets masked.
    pub(super) source: String,
    /// In the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more there are.
    pub(super) not_kept: usize,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        let label = Label { span, text: String::new() };
        Self { message: message.into(), labels: vec![label], help: None }
    }

    /// Says a few words at the first place.
    pub fn here(mut self, text: impl Into<String>) -> Self {
        if let Some(label) = self.labels.first_mut() {
            label.text = text.into();
        }
        self
    }

    /// Points at another place too.
    pub fn and(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Says what to write instead.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Where the error is.
    fn start(&self) -> usize {
        self.labels.first().map_or(0, |label| label.span.start)
    }
}

impl Diagnostics {
    /// Adds one, unless it stands on a line that is broken anyway.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let start = diagnostic.start();
        let before = self.broken.partition_point(|lines| lines.start <= start);
        if self.broken[..before].last().is_some_and(|lines| lines.contains(&start)) {
            return;
        }
        if self.list.len() < MAX_KEPT {
            self.list.push(diagnostic);
        } else {
            self.not_kept += 1;
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether further errors are only counted, so that explaining them is wasted work.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT
    }

    /// Remembers that the value at `path` was left out because something is wrong with it.
    pub fn leave_hole(&mut self, path: Vec<String>) {
        if self.holes.len() < MAX_KEPT {
            self.holes.push(path);
        }
    }

    /// Remembers that these lines, in order, are not TOML: nothing more is said of them, and anything may
    /// seem to be missing that stands there.
    pub(super) fn distrust(&mut self, lines: Vec<Range<usize>>) {
        self.broken = lines;
    }

    /// Whether an earlier error explains why nothing stands at `path`: it, or something around,
    /// in or beside it was left out. Beside, since that may be the same name misspelt.
    pub fn explain_absence(&self, path: &[&str]) -> bool {
        self.is_full()
            || !self.broken.is_empty()
            || self.holes.iter().any(|hole| explains(hole, path))
    }

    /// The same for a name that is referred to: a misspelt table explains it, too.
    pub fn explain_unknown(&self, path: &[&str]) -> bool {
        self.explain_absence(path)
            || self.holes.iter().any(|hole| {
                let parent = hole.len().saturating_sub(1);
                hole.len() < path.len() && hole.iter().zip(path).take(parent).all(|(a, b)| a == b)
            })
    }

    /// Everything that is wrong with the file `name` of this `text`.
    pub fn into_report(self, name: &str, text: &str) -> Report {
        let mut diagnostics = self.list;
        diagnostics.sort_by_key(Diagnostic::start);
        let source = secrets::mask(text);
        Report { name: name.to_owned(), source, diagnostics, not_kept: self.not_kept }
    }
}

/// Whether a hole is at, above, below or beside `path`.
fn explains(hole: &[String], path: &[&str]) -> bool {
    let common = hole.iter().zip(path).take_while(|(a, b)| a == *b).count();
    let beside = hole.len() == path.len() && common + 1 == path.len();
    common == hole.len() || common == path.len() || beside
}

impl Report {
    /// How many errors there are.
    pub fn count(&self) -> usize {
        self.diagnostics.len() + self.not_kept
    }

    /// The line and the column, in characters, at which an error of this report begins; both from 1.
    pub fn position(&self, diagnostic: &Diagnostic) -> (usize, usize) {
        let at = diagnostic.start().min(self.source.len());
        let before = self.source.get(..at).unwrap_or(&self.source);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_explain_what_is_missing_around_them_only() {
        let mut diagnostics = Diagnostics::default();
        diagnostics.leave_hole(vec!["rules".into(), "a".into(), "rtae".into()]);
        assert!(diagnostics.explain_absence(&["rules", "a", "rate"]));
        assert!(diagnostics.explain_absence(&["rules", "a"]));
        assert!(!diagnostics.explain_absence(&["rules", "b", "rate"]));
        assert!(!diagnostics.explain_absence(&["plans", "free"]));

        diagnostics.leave_hole(vec!["planz".into()]);
        assert!(diagnostics.explain_unknown(&["plans", "free"]));
        assert!(!diagnostics.explain_absence(&["plans", "free"]));
    }
}
