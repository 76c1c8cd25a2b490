//! Diagnostics: an error or a warning in gateway.toml, its place, and what to write instead. All
//! diagnostics of a file are collected before any is shown.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use super::secrets;

/// How many diagnostics of each severity are kept. Further ones are only counted.
const MAX_KEPT: usize = 1000;

/// Whether a file with the diagnostic is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file is rejected.
    Error,
    /// The file is accepted, but probably does not do what its author expects.
    Warning,
}

/// An error or a warning in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the file is rejected.
    pub severity: Severity,
    /// What is wrong, in one line without a final period.
    pub message: String,
    /// Places in the file: the first is that of the error, the others explain it.
    pub labels: Vec<Label>,
    /// What to write instead.
    pub help: Option<String>,
}

/// A place in the file with a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Bytes of the file.
    pub span: Range<usize>,
    /// The note, of a few words; may be empty.
    pub text: String,
}

/// Diagnostics of one severity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The first ones. In a report, in the order of the file.
    pub list: Vec<Diagnostic>,
    /// How many further ones there are.
    pub not_kept: usize,
}

/// Collects diagnostics, and records what was left out because of them.
#[derive(Debug, Default)]
pub struct Diagnostics {
    errors: Kept,
    warnings: Kept,
    /// Paths of values that were left out.
    holes: BTreeSet<Vec<String>>,
    has_unknown_table: bool,
    /// Lines that are not TOML, in order, as spans.
    broken: Vec<Range<usize>>,
}

/// All diagnostics of one file, ready to be shown, without secrets: see [`secrets`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Name of the file, as the user gave it.
    pub name: String,
    /// Text of the file, with secrets masked.
    pub(super) source: String,
    /// Why the file is rejected; empty if it is accepted.
    pub errors: Kept,
    /// What is probably a mistake.
    pub warnings: Kept,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self::of(Severity::Error, span, message.into())
    }

    /// A warning at `span`.
    pub fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Self::of(Severity::Warning, span, message.into())
    }

    fn of(severity: Severity, span: Range<usize>, message: String) -> Self {
        let label = Label { span, text: String::new() };
        Self { severity, message, labels: vec![label], help: None }
    }

    /// Adds a note at the first place.
    pub fn here(mut self, text: impl Into<String>) -> Self {
        if let Some(label) = self.labels.first_mut() {
            label.text = text.into();
        }
        self
    }

    /// Adds another place, with a note.
    pub fn and(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Adds what to write instead.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Byte of the file at which the place begins.
    fn start(&self) -> usize {
        self.labels.first().map_or(0, |label| label.span.start)
    }
}

impl Kept {
    /// The number of diagnostics.
    pub fn count(&self) -> usize {
        self.list.len() + self.not_kept
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn push(&mut self, diagnostic: Diagnostic) {
        if self.list.len() < MAX_KEPT {
            self.list.push(diagnostic);
        } else {
            self.not_kept += 1;
        }
    }

    /// The same in the order of the file.
    fn sorted(mut self) -> Self {
        self.list.sort_by_key(Diagnostic::start);
        self
    }
}

impl Diagnostics {
    /// Adds a diagnostic, unless it is on a line that is not TOML.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let start = diagnostic.start();
        let before = self.broken.partition_point(|lines| lines.start <= start);
        if self.broken[..before].last().is_some_and(|lines| lines.contains(&start)) {
            return;
        }
        match diagnostic.severity {
            Severity::Error => self.errors.push(diagnostic),
            Severity::Warning => self.warnings.push(diagnostic),
        }
    }

    /// The value, or `None` after the error is added.
    pub fn keep_ok<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// The first error and its help, in one line; empty without one.
    pub fn first_error(&self) -> String {
        let Some(Diagnostic { message, help, .. }) = self.errors.list.first() else {
            return String::new();
        };
        help.as_ref().map_or_else(|| message.clone(), |help| format!("{message}; {help}"))
    }

    /// Whether there is an error, so that the file is rejected.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Whether further errors are only counted, so that they need no help.
    pub fn is_full(&self) -> bool {
        self.errors.list.len() >= MAX_KEPT
    }

    /// Records that the value at `path` is left out because of an error, or is there by another
    /// name.
    pub fn mark_missing<'a>(&mut self, path: impl Iterator<Item = &'a str>) {
        if !self.is_full() {
            self.holes.insert(path.map(str::to_owned).collect());
        }
    }

    /// Records that the file has a table of an unknown name, which may hold any names.
    pub(super) fn distrust_names(&mut self) {
        self.has_unknown_table = true;
    }

    /// Records that these lines, in order, are not TOML. Other diagnostics of them are dropped, and
    /// anything that seems to be missing may be in them.
    pub(super) fn suppress_in(&mut self, lines: Vec<Range<usize>>) {
        self.broken = lines;
    }

    /// Records that nothing after this point of the file can be relied on: further diagnostics are
    /// dropped.
    pub(super) fn distrust_all(&mut self) {
        self.suppress_in(std::iter::once(0..usize::MAX).collect());
    }

    /// Whether an earlier error explains why there is nothing at `path`: it, or something around or
    /// in it, was left out.
    pub fn explain_absence(&self, path: &[&str]) -> bool {
        if self.is_full() || !self.broken.is_empty() {
            return true;
        }
        if self.holes.is_empty() {
            return false;
        }
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        let is_around = (1..path.len()).any(|length| self.holes.contains(&path[..length]));
        let at_or_in = self.holes.range(path.clone()..).next();
        is_around || at_or_in.is_some_and(|hole| hole.starts_with(&path))
    }

    /// Whether the setting at `path` has a value that does not fit, which is reported.
    pub fn is_rejected(&self, path: &[&str]) -> bool {
        if self.holes.is_empty() {
            return false;
        }
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        self.holes.contains(&path)
    }

    /// As [`explain_absence`](Self::explain_absence), for a name that the file refers to: an
    /// unknown table explains it, too.
    pub fn explain_unknown(&self, path: &[&str]) -> bool {
        self.has_unknown_table || self.explain_absence(path)
    }

    /// The report on the file `name` with this `text`, with the diagnostics in the order of the
    /// file.
    pub fn into_report(self, name: &str, text: &str) -> Report {
        let (errors, warnings) = (self.errors.sorted(), self.warnings.sorted());
        Report { name: name.to_owned(), source: secrets::mask(text), errors, warnings }
    }
}

impl Report {
    /// Adds a diagnostic to a file that has been read.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let kept = match diagnostic.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        kept.push(diagnostic);
        *kept = std::mem::take(kept).sorted();
    }

    /// The same report with every warning as an error.
    pub fn with_warnings_as_errors(mut self) -> Self {
        let Kept { list, not_kept } = std::mem::take(&mut self.warnings);
        let errors = list.into_iter().map(|one| Diagnostic { severity: Severity::Error, ..one });
        errors.for_each(|error| self.errors.push(error));
        self.errors.not_kept += not_kept;
        self.errors = std::mem::take(&mut self.errors).sorted();
        self
    }

    /// The line and the column, in characters, at which a diagnostic of this report begins; both
    /// from 1.
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
    fn hole_explains_only_what_is_missing_at_around_or_in_it() {
        let mut diagnostics = Diagnostics::default();
        diagnostics.mark_missing(["rules", "a", "rate"].into_iter());
        assert!(diagnostics.explain_absence(&["rules", "a", "rate"]));
        assert!(diagnostics.explain_absence(&["rules", "a"]));
        assert!(diagnostics.explain_absence(&["rules", "a", "rate", "b"]));
        assert!(!diagnostics.explain_absence(&["rules", "a", "per"]));
        assert!(!diagnostics.explain_absence(&["rules", "b", "rate"]));
        assert!(!diagnostics.explain_absence(&["plans", "free"]));

        assert!(!diagnostics.explain_unknown(&["plans", "free"]));
        diagnostics.distrust_names();
        assert!(diagnostics.explain_unknown(&["plans", "free"]));
        assert!(!diagnostics.explain_absence(&["plans", "free"]));
    }
}
