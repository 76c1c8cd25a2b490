//! Parses the request to explain from the JSON body of `POST /api/explain`. Parsed value by value,
//! because serde's error messages contain the invalid value, which may be a key.

use serde_json::Value;
use thiserror::Error;

use super::request::RequestSpec;
use crate::base::text::cut;
use crate::config::suggest;

/// An invalid body. The message contains no value of it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}; a body looks like {EXAMPLE}")]
pub struct BodyError(String);

/// Members of a body.
const NAMES: [&str; 8] = ["method", "path", "host", "headers", "key", "key_id", "ip", "cert"];

const EXAMPLE: &str = r#"{"method": "GET", "path": "/api/search", "host": "api.example.com", "headers": {"x-tenant": "a"}, "key_id": "acme", "ip": "203.0.113.7"}; all members are optional, and `key` is the key itself"#;

/// Parses a body. Missing members have the values of [`RequestSpec::default`].
///
/// # Errors
/// If the body is invalid.
pub fn read(body: &[u8]) -> Result<RequestSpec, BodyError> {
    let value = parse(body).map_err(BodyError)?;
    let Value::Object(members) = value else {
        return Err(BodyError(format!("the body is {}, not an object", kind(&value))));
    };
    let mut spec = RequestSpec::default();
    for (name, value) in &members {
        match name.as_str() {
            known if value.is_null() && NAMES.contains(&known) => {}
            "method" => spec.method = text(name, value)?,
            "path" => spec.path = text(name, value)?,
            "host" => spec.host = Some(text(name, value)?),
            "key" => spec.key = Some(text(name, value)?),
            "key_id" => spec.key_id = Some(text(name, value)?),
            "cert" => spec.cert = Some(text(name, value)?),
            "headers" => spec.headers = headers(value)?,
            "ip" => {
                let ip = text(name, value)?.parse();
                let error = "`ip` is not an address such as `203.0.113.7` or `2001:db8::1`";
                spec.ip = Some(ip.map_err(|_| BodyError(error.to_owned()))?);
            }
            _ => return Err(BodyError(suggest::unknown("the body", name, &NAMES))),
        }
    }
    Ok(spec)
}

/// Parses a body as JSON. The error contains no value of it.
pub(crate) fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("the body is not JSON: error at line {line}, column {column}")
    })
}

/// Parses headers by name: a value, or a list of values for a header with several lines.
fn headers(value: &Value) -> Result<Vec<(String, String)>, BodyError> {
    let Value::Object(members) = value else {
        let message = format!("`headers` is an object of names and values, not {}", kind(value));
        return Err(BodyError(message));
    };
    let mut headers = Vec::new();
    for (name, value) in members {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            headers.push((name.clone(), text(name, value)?));
        }
    }
    Ok(headers)
}

fn text(name: &str, value: &Value) -> Result<String, BodyError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        _ => Err(BodyError(format!("`{}` is {}, not a string", cut(name, 64), kind(value)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_parsed_member_by_member() {
        let body = br#"{"path": "/x?y=1", "headers": {"a": ["1", "2"], "b": "3"}, "key": "secret",
            "ip": "::1", "host": null}"#;
        let spec = read(body).unwrap();
        assert_eq!((&*spec.method, &*spec.path, spec.host), ("GET", "/x?y=1", None));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(spec.headers, [pair("a", "1"), pair("a", "2"), pair("b", "3")]);
        assert_eq!((spec.key.as_deref(), spec.ip), (Some("secret"), "::1".parse().ok()));
        assert!(read(b"{}").is_ok_and(|spec| spec == RequestSpec::default()));
    }

    #[test]
    fn error_does_not_contain_the_value() {
        let table: [(&str, &str); 9] = [
            ("", "the body is not JSON: error at line 1, column 0"),
            ("{\n\"key\": secret}", "the body is not JSON: error at line 2, column 8"),
            ("[]", "the body is a list, not an object"),
            ("{\"key\": 5318008}", "`key` is a number, not a string"),
            ("{\"pth\": null}", "the body has an unknown name `pth`: did you mean `path`?"),
            ("{\"pth\": \"/\"}", "the body has an unknown name `pth`: did you mean `path`?"),
            (
                "{\"ip\": \"secret\"}",
                "`ip` is not an address such as `203.0.113.7` or `2001:db8::1`",
            ),
            ("{\"headers\": [\"a: b\"]}", "`headers` is an object of names and values, not a list"),
            ("{\"headers\": {\"a\": 1}}", "`a` is a number, not a string"),
        ];
        for (body, expected) in table {
            let Err(BodyError(message)) = read(body.as_bytes()) else { panic!("{body}") };
            assert_eq!(message, expected, "{body}");
            assert!(!message.contains("secret") && !message.contains("5318008"), "{message}");
        }
    }
}
