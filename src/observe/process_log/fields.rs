//! The fields of an event, as text (`name=value`) or as members of a JSON object.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};

use crate::policy::settings::LogFormat;

/// The field that is the event itself.
const EVENT: &str = "message";

/// An event and its fields, formatted.
#[derive(Debug)]
pub(super) struct Fields {
    format: LogFormat,
    /// What happened. In JSON with quotes.
    pub(super) event: String,
    /// The fields: each with a space before it, or separated by commas.
    pub(super) list: String,
}

impl Fields {
    pub(super) fn new(format: LogFormat) -> Self {
        let event = match format {
            LogFormat::Text => String::new(),
            LogFormat::Json => "\"\"".to_owned(),
        };
        Self { format, event, list: String::new() }
    }

    fn text(&mut self, field: &Field, value: &str) {
        match (self.format, field.name()) {
            (LogFormat::Text, EVENT) => self.event = escaped(value),
            (LogFormat::Json, EVENT) => self.event = json(value),
            (LogFormat::Text, _) => self.put(field, format_args!("{value:?}")),
            (LogFormat::Json, _) => self.put(field, format_args!("{}", json(value))),
        }
    }

    /// Appends a field whose value is formatted already.
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let name = field.name();
        // Writing to a `String` does not fail.
        let _ = match self.format {
            LogFormat::Text => write!(self.list, " {name}={value}"),
            LogFormat::Json => {
                let separator = if self.list.is_empty() { "" } else { "," };
                write!(self.list, "{separator}\"{name}\":{value}")
            }
        };
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match self.format {
            LogFormat::Text if field.name() != EVENT => {
                self.put(field, format_args!("{}", escaped(&value)));
            }
            LogFormat::Text | LogFormat::Json => self.text(field, &value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity.
        if value.is_finite() {
            self.put(field, format_args!("{value}"));
        } else {
            self.text(field, &value.to_string());
        }
    }
}

/// The text with escapes in place of characters that end a line or control a terminal.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unsafe(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// The text as a string of JSON, which also escapes what serde leaves and terminals read.
fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let mut escaped = String::with_capacity(quoted.len());
    for character in quoted.chars() {
        if is_unsafe(character) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Control characters, and the two separators that some readers of lines accept.
fn is_unsafe(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}
