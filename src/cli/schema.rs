//! `tollgate schema`: the JSON Schema of `gateway.toml`, for editors.

use std::process::ExitCode;

use super::print;

/// Generated from the types of `config`; a test there checks that it is up to date.
const SCHEMA: &str = include_str!("../../docs/gateway.schema.json");

pub(super) fn schema() -> ExitCode {
    print(SCHEMA)
}
