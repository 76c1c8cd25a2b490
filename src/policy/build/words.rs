//! Settings that take a word.

use crate::client::settings::OnUnknownKey;
use crate::config::spanned::Spanned;
use crate::config::words;
use crate::limit::charge::Mode;

/// The meaning of a word of the file; without one, the default.
pub(super) fn meaning<W: Copy, M: From<W> + Default>(field: Option<&Spanned<W>>) -> M {
    field.map_or_else(M::default, |word| M::from(*word.get_ref()))
}

impl From<words::Mode> for Mode {
    fn from(word: words::Mode) -> Self {
        match word {
            words::Mode::Enforce => Self::Enforce,
            words::Mode::Shadow => Self::Shadow,
        }
    }
}

impl From<words::OnUnknownKey> for OnUnknownKey {
    fn from(word: words::OnUnknownKey) -> Self {
        match word {
            words::OnUnknownKey::Deny => Self::Deny,
            words::OnUnknownKey::Anonymous => Self::Anonymous,
            words::OnUnknownKey::Accept => Self::Accept,
        }
    }
}
