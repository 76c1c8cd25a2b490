//! A value of the file and its place. A type of our own around TOML's, so that no other module
//! knows TOML, and so that the schema of the file can look through it.

use std::borrow::Borrow;
use std::ops::Range;

use serde::Deserialize;

/// A value and the bytes of the file where it stands. Compares by the value alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Spanned<T>(toml::Spanned<T>);

impl<T> Spanned<T> {
    /// The value.
    pub fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// Its place, in bytes of the file.
    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

impl Borrow<str> for Spanned<String> {
    fn borrow(&self) -> &str {
        self.get_ref()
    }
}

/// A place is no part of what may be written.
#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Spanned<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}
