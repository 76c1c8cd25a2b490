//! From text to a [`Config`], in one pass, with every error that reading can find.

use toml::de::DeTable;

use super::Config;
use super::diagnostic::Diagnostics;
use super::syntax::{self, Damage};
use super::walk::Walk;

/// Reads a file. Invalid parts are left out of the `Config` and reported in `diagnostics`.
pub fn read(text: &str, diagnostics: &mut Diagnostics) -> Config {
    let (file, errors) = DeTable::parse_recoverable(text);
    match syntax::report(text, &errors, diagnostics) {
        Damage::Structure => Config::default(),
        Damage::Lines => Walk::root(file.get_ref(), diagnostics),
    }
}
