//! `tollgate schema`: what editors check and complete `gateway.toml` by.

use std::process::ExitCode;

use super::print;

/// Made from the types of `config`; a test there holds the two equal.
const SCHEMA: &str = include_str!("../../docs/gateway.schema.json");

/// Prints the schema.
pub(super) fn schema() -> ExitCode {
    print(SCHEMA)
}
