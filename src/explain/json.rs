//! A request by hand as the admin port gets it. Read value by value, since what a library says of
//! a wrong value shows it, and it may be a key.

use serde_json::Value;
use thiserror::Error;

use super::request::RequestSpec;
use crate::config::suggest::{self, cut};

/// A body that is none of these.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}; a body looks like {EXAMPLE}")]
pub struct BodyError(String);

/// What may stand in a body.
const NAMES: [&str; 6] = ["method", "path", "host", "headers", "key", "ip"];

/// What a body looks like.
const EXAMPLE: &str = r#"{"method": "GET", "path": "/api/search", "host": "api.example.com", "headers": {"x-tenant": "a"}, "key": "…", "ip": "203.0.113.7"}; every member may be left out"#;

/// Reads a body. What is left out is as [`RequestSpec::default`] says.
///
/// # Errors
/// What is wrong with it, without any value.
pub fn read(body: &[u8]) -> Result<RequestSpec, BodyError> {
    let value = parse(body).map_err(BodyError)?;
    let Value::Object(members) = value else {
        return Err(BodyError(format!("the body is {}, not an object", kind(&value))));
    };
    let mut asked = RequestSpec::default();
    for (name, value) in &members {
        match name.as_str() {
            known if value.is_null() && NAMES.contains(&known) => {}
            "method" => asked.method = text(name, value)?,
            "path" => asked.path = text(name, value)?,
            "host" => asked.host = Some(text(name, value)?),
            "key" => asked.key = Some(text(name, value)?),
            "headers" => asked.headers = headers(value)?,
            "ip" => {
                let ip = text(name, value)?.parse();
                let error = "`ip` is not an address such as `203.0.113.7` or `2001:db8::1`";
                asked.ip = Some(ip.map_err(|_| BodyError(error.to_owned()))?);
            }
            _ => return Err(BodyError(suggest::unknown("the body", name, &NAMES))),
        }
    }
    Ok(asked)
}

/// A body as JSON, or what is wrong with it, without any value.
pub(crate) fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("the body is not JSON: it goes wrong at line {line}, column {column}")
    })
}

/// Headers by their names: a value, or a list of values where one comes several times.
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
    fn a_body_is_read_member_by_member() {
        let body = br#"{"path": "/x?y=1", "headers": {"a": ["1", "2"], "b": "3"}, "key": "secret",
            "ip": "::1", "host": null}"#;
        let asked = read(body).unwrap();
        assert_eq!((&*asked.method, &*asked.path, asked.host), ("GET", "/x?y=1", None));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(asked.headers, [pair("a", "1"), pair("a", "2"), pair("b", "3")]);
        assert_eq!((asked.key.as_deref(), asked.ip), (Some("secret"), "::1".parse().ok()));
        assert!(read(b"{}").is_ok_and(|asked| asked == RequestSpec::default()));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_value() {
        let table: [(&str, &str); 9] = [
            ("", "the body is not JSON: it goes wrong at line 1, column 0"),
            ("{\n\"key\": secret}", "the body is not JSON: it goes wrong at line 2, column 8"),
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
