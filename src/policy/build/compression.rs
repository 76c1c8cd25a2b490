//! `compress` of an upstream or a route.

use super::names::twice;
use crate::config::diagnostic::Diagnostics;
use crate::config::spanned::Spanned;
use crate::config::tables::SwitchOrList;
use crate::config::words::{Coding, Word};
use crate::policy::compression::Compression;

/// The setting; errors in it are reported.
pub(super) fn compression(
    setting: &Spanned<SwitchOrList<Coding>>,
    diagnostics: &mut Diagnostics,
) -> Compression {
    match setting.get_ref() {
        SwitchOrList::Switch(false) => Compression::default(),
        SwitchOrList::Switch(true) => Compression::of(Coding::ALL),
        SwitchOrList::List(list) => {
            let mut codings: Vec<(Coding, &Spanned<Coding>)> = Vec::new();
            for item in list {
                let coding = *item.get_ref();
                match codings.iter().find(|(one, _)| *one == coding) {
                    Some((_, first)) => {
                        let name = item.with(coding.name().to_owned());
                        diagnostics.push(twice(&name, first.span()));
                    }
                    None => codings.push((coding, item)),
                }
            }
            let codings: Vec<Coding> = codings.into_iter().map(|(coding, _)| coding).collect();
            Compression::of(&codings)
        }
    }
}
