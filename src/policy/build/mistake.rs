//! What is wrong with a text of the file, for parsers that do not know its place.

use std::ops::Range;

use crate::config::diagnostic::Diagnostic;

/// What is wrong with a text, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) message: String,
    pub(super) help: String,
}

impl Mistake {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }

    /// The diagnostic of a text at `span`.
    pub(super) fn at(self, span: Range<usize>) -> Diagnostic {
        Diagnostic::new(span, self.message).help(self.help)
    }
}
