//! A value of the file and its place. It wraps the type of `toml`, so that no other module depends
//! on that crate, and so that the schema of the file is that of the value.

use std::borrow::Borrow;
use std::ops::Range;

/// A value and its span in the file. Comparisons ignore the span.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spanned<T>(toml::Spanned<T>);

impl<T> Spanned<T> {
    /// Wraps a value with its span in the file, in bytes.
    pub(crate) fn new(value: T, span: Range<usize>) -> Self {
        Self(toml::Spanned::new(span, value))
    }

    /// Returns the value without its span.
    pub fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// Wraps another value with the same place.
    pub fn with<U>(&self, value: U) -> Spanned<U> {
        Spanned::new(value, self.span())
    }

    /// Its place in the file, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

impl Borrow<str> for Spanned<String> {
    fn borrow(&self) -> &str {
        self.get_ref()
    }
}

/// The schema is that of the value.
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
