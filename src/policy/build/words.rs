//! Settings that take a word.

use crate::config::spanned::Spanned;

/// The word of the file; without one, the default.
pub(super) fn meaning<W: Copy + Default>(field: Option<&Spanned<W>>) -> W {
    field.map_or_else(W::default, |word| *word.get_ref())
}
