//! Texts of error bodies, with values of the request and of the error, such as `{status}`. Other
//! braces are text, so that style sheets and JSON are written as they are.

use std::borrow::Cow;

use thiserror::Error;

use super::html::Place;
use crate::policy::template::{self, Values, Variable};

/// Maximum length of a text, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// Maximum number of variables in a text.
pub const MAX_VARIABLES: usize = 64;

/// Maximum length of a value, in characters. With all of the bounds, a body has less than 512 KiB.
pub const MAX_VALUE_CHARS: usize = 1024;

/// A text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorTemplate {
    parts: Vec<Part>,
    escape: Escape,
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// HTML and XML: `<`, `>`, `&` and quotes as references.
    Markup,
    /// As a part of a string in JSON. A number without a value is `null`.
    Json,
    /// Plain text, without control characters.
    Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Error(ErrorVariable),
    Request(Variable),
}

/// A value of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorVariable {
    Status,
    Title,
    Type,
    Detail,
    RetryAfter,
    RetryAfterMs,
}

const OF_ERROR: [(&str, ErrorVariable); 6] = [
    ("status", ErrorVariable::Status),
    ("title", ErrorVariable::Title),
    ("type", ErrorVariable::Type),
    ("detail", ErrorVariable::Detail),
    ("retry_after", ErrorVariable::RetryAfter),
    ("retry_after_ms", ErrorVariable::RetryAfterMs),
];

/// Variables of the request. Not the query, nor headers: they may contain an API key, and a page
/// with an error is copied, and sent to others.
const OF_REQUEST: [&str; 8] =
    ["request.id", "client.id", "client.plan", "client.ip", "route", "host", "method", "path"];

/// Beginnings of variables that headers can have.
const OF_HEADERS: [&str; 3] = ["header:", "query:", "param:"];

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ErrorTemplateError {
    /// There is no variable of this name.
    #[error("unknown variable `{{{0}}}`")]
    Unknown(String),
    /// A variable is where HTML has no escapes.
    #[error("`{{{0}}}` is in a script or a style sheet, where its value cannot be escaped")]
    InScript(String),
    /// A variable is in a tag and not in quotes.
    #[error("`{{{0}}}` is in a tag without quotes, which its value could end")]
    InTag(String),
    /// It has more variables than the maximum.
    #[error("the text has more than {MAX_VARIABLES} variables")]
    TooManyVariables,
}

/// The values of one error.
#[derive(Debug, Clone, Copy)]
pub struct ErrorValues<'a> {
    pub status: u16,
    pub title: &'a str,
    /// URI of the type of the problem.
    pub kind: &'a str,
    pub detail: &'a str,
    /// Value of `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    pub retry_after_ms: Option<u64>,
    pub request: Values<'a>,
}

impl ErrorTemplate {
    /// Parses a text. A variable is a name of lower-case letters, digits, `_` and `.` in braces.
    ///
    /// # Errors
    /// See [`ErrorTemplateError`]; with the offset of the variable.
    pub fn parse(text: &str, escape: Escape) -> Result<Self, (usize, ErrorTemplateError)> {
        let mut parts = Vec::new();
        let (mut rest, mut literal, mut variables) = (text, 0, 0);
        while let Some(open) = rest[literal..].find('{').map(|at| literal + at) {
            let Some((name, after)) = name(&rest[open + 1..]) else {
                literal = open + 1;
                continue;
            };
            let offset = text.len() - rest.len() + open;
            let error = |error| (offset, error);
            let part = variable(name)
                .ok_or_else(|| error(ErrorTemplateError::Unknown(name.to_owned())))?;
            if escape == Escape::Markup {
                match Place::after(&text[..offset]) {
                    Place::Value => {}
                    Place::Tag => return Err(error(ErrorTemplateError::InTag(name.to_owned()))),
                    Place::Script => {
                        return Err(error(ErrorTemplateError::InScript(name.to_owned())));
                    }
                }
            }
            variables += 1;
            if variables > MAX_VARIABLES {
                return Err(error(ErrorTemplateError::TooManyVariables));
            }
            push_text(&mut parts, &rest[..open]);
            parts.push(part);
            (rest, literal) = (after, 0);
        }
        push_text(&mut parts, rest);
        Ok(Self { parts, escape })
    }

    /// How its values are written.
    pub fn escape(&self) -> Escape {
        self.escape
    }

    /// The text with the values of an error. A variable without a value is empty, or `null` if it
    /// is a number in JSON.
    pub fn render(&self, values: &ErrorValues<'_>) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Error(variable) => self.put(&mut text, &values.value(*variable, self.escape)),
                Part::Request(variable) => {
                    let mut value = Vec::new();
                    if let Some(own) = values.request.value(*variable) {
                        own.put(&mut value);
                    }
                    self.put(&mut text, &String::from_utf8_lossy(&value));
                }
            }
        }
        text
    }

    fn put(&self, text: &mut String, value: &str) {
        for c in value.chars().take(MAX_VALUE_CHARS) {
            match (self.escape, c) {
                (_, c) if c.is_control() => text.push(' '),
                (Escape::Markup, '<') => text.push_str("&lt;"),
                (Escape::Markup, '>') => text.push_str("&gt;"),
                (Escape::Markup, '&') => text.push_str("&amp;"),
                (Escape::Markup, '"') => text.push_str("&quot;"),
                (Escape::Markup, '\'') => text.push_str("&#39;"),
                (Escape::Json, '"' | '\\') => text.extend(['\\', c]),
                // The JSON may become a part of a page.
                (Escape::Json, '<') => text.push_str("\\u003c"),
                (_, c) => text.push(c),
            }
        }
    }
}

impl ErrorValues<'_> {
    fn value(&self, variable: ErrorVariable, escape: Escape) -> Cow<'_, str> {
        let number = |number: Option<u64>| match number {
            Some(number) => Cow::Owned(number.to_string()),
            None if escape == Escape::Json => Cow::Borrowed("null"),
            None => Cow::Borrowed(""),
        };
        match variable {
            ErrorVariable::Status => Cow::Owned(self.status.to_string()),
            ErrorVariable::Title => Cow::Borrowed(self.title),
            ErrorVariable::Type => Cow::Borrowed(self.kind),
            ErrorVariable::Detail => Cow::Borrowed(self.detail),
            ErrorVariable::RetryAfter => number(self.retry_after),
            ErrorVariable::RetryAfterMs => number(self.retry_after_ms),
        }
    }
}

/// Names of all variables.
pub fn names() -> Vec<&'static str> {
    OF_ERROR.iter().map(|(name, _)| *name).chain(OF_REQUEST).collect()
}

/// The name of a variable that a text after `{` begins with, and what follows the `}`. Those that
/// only headers can have, such as `header:x-a`, are names too, so that they are not taken for text.
fn name(text: &str) -> Option<(&str, &str)> {
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let prefix = OF_HEADERS.iter().find(|prefix| text.starts_with(**prefix));
    let from = prefix.map_or(0, |prefix| prefix.len());
    let length = text[from..].find(|c| !is_in_name(c)).map(|length| from + length)?;
    let (name, after) = text.split_at(length);
    let is_plain = prefix.is_some() || !name.contains(|c: char| c.is_ascii_uppercase());
    Some((name, after.strip_prefix('}').filter(|_| is_plain && !name.is_empty())?))
}

fn variable(name: &str) -> Option<Part> {
    if let Some((_, variable)) = OF_ERROR.iter().find(|(known, _)| *known == name) {
        return Some(Part::Error(*variable));
    }
    let known = OF_REQUEST.contains(&name).then(|| template::variable(name));
    known?.ok().map(Part::Request)
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Text(text.into()));
    }
}
