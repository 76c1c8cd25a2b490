//! Reads the members of a JSON body.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::config::suggest;
use crate::explain::json;

/// Why the body of a request is invalid, with an example of a valid one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}; example of a body: {example}")]
pub(super) struct BadBody {
    message: String,
    example: &'static str,
}

impl BadBody {
    pub(super) fn new(message: impl Into<String>, example: &'static str) -> Self {
        Self { message: message.into(), example }
    }
}

/// Reads an object whose members have only the given names. An empty body has no members; a member
/// that is `null` counts as missing.
pub(super) fn read(
    body: &[u8],
    names: &[&str],
    example: &'static str,
) -> Result<Map<String, Value>, BadBody> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    let value = json::parse(body).map_err(|message| BadBody::new(message, example))?;
    let Value::Object(mut members) = value else {
        return Err(BadBody::new("the body is not an object", example));
    };
    if let Some(unknown) = members.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(BadBody::new(suggest::unknown("the body", unknown, names), example));
    }
    members.retain(|_, value| !value.is_null());
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_empty_or_an_object_with_known_names() {
        let read = |body: &str| read(body.as_bytes(), &["rule", "tokens"], "{}");
        assert_eq!(read(" \n").unwrap().len(), 0);
        assert_eq!(read("{\"rule\": \"a\", \"tokens\": null}").unwrap().len(), 1);
        let wrong = |body| read(body).unwrap_err().message;
        assert_eq!(wrong("[]"), "the body is not an object");
        assert_eq!(
            wrong("{\"rul\": null}"),
            "the body has an unknown name `rul`: did you mean `rule`?"
        );
        assert_eq!(wrong("{"), "the body is not JSON: error at line 1, column 1");
        assert!(wrong(&"[".repeat(10_000)).starts_with("the body is not JSON"));
    }
}
