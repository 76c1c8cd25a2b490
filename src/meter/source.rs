//! [`Source`]: where the cost of a request is read, as `count` of a rule says.

use std::fmt;

use http::HeaderName;

/// Longest path in a JSON text, in names.
pub(super) const MAX_NAMES: usize = 8;

/// Longest name in a path, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;

/// Maximum number of paths of one source.
const MAX_PATHS: usize = 8;

/// Where the cost of a request is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A number in this header of the response, or in its trailers.
    Header(HeaderName),
    /// Numbers in the JSON of the response.
    Json(Sum),
    /// Bytes of the body of the request.
    RequestBytes,
    /// Bytes of the body of the response.
    ResponseBytes,
    /// Milliseconds from the request's head to the end of the response.
    DurationMs,
}

/// A sum of numbers in a JSON text, such as `usage.input_tokens + usage.output_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Each term, at least one: the first of its paths at which the text has a number.
    pub(super) terms: Vec<Vec<Path>>,
}

/// Names of members, from the outermost one, 1 to [`MAX_NAMES`]. The items of arrays are named by
/// their numbers, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) names: Vec<Box<str>>,
}

/// Why a text is no source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is none of the forms.
    Form,
    /// The name of a header is not valid.
    Header,
    /// A path is empty, has an empty name, or is too long.
    Path,
    /// It has too many paths.
    TooManyPaths,
}

impl Source {
    /// Reads `header:<name>`, `json:<path>`, `request_bytes`, `response_bytes` or `duration_ms`.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        match text.split_once(':') {
            Some(("header", name)) => {
                let name = HeaderName::from_bytes(name.as_bytes());
                name.map(Self::Header).map_err(|_| Unreadable::Header)
            }
            Some(("json", sum)) => Sum::parse(sum).map(Self::Json),
            _ => match text {
                "request_bytes" => Ok(Self::RequestBytes),
                "response_bytes" => Ok(Self::ResponseBytes),
                "duration_ms" => Ok(Self::DurationMs),
                _ => Err(Unreadable::Form),
            },
        }
    }

    /// Whether it reads the body of the response.
    pub const fn reads_body(&self) -> bool {
        matches!(self, Self::Json(_))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(sum) => write!(f, "json:{sum}"),
            Self::RequestBytes => f.write_str("request_bytes"),
            Self::ResponseBytes => f.write_str("response_bytes"),
            Self::DurationMs => f.write_str("duration_ms"),
        }
    }
}

impl Sum {
    fn parse(text: &str) -> Result<Self, Unreadable> {
        let term = |text: &str| text.split('|').map(Path::parse).collect::<Result<Vec<_>, _>>();
        let terms = text.split('+').map(term).collect::<Result<Vec<_>, _>>()?;
        if terms.iter().map(Vec::len).sum::<usize>() > MAX_PATHS {
            return Err(Unreadable::TooManyPaths);
        }
        Ok(Self { terms })
    }

    /// All paths, in their order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.terms.iter().flatten()
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, term) in self.terms.iter().enumerate() {
            f.write_str(if number > 0 { " + " } else { "" })?;
            for (number, path) in term.iter().enumerate() {
                f.write_str(if number > 0 { " | " } else { "" })?;
                f.write_str(&path.names.join("."))?;
            }
        }
        Ok(())
    }
}

impl Path {
    fn parse(text: &str) -> Result<Self, Unreadable> {
        let names: Vec<Box<str>> = text.trim().split('.').map(Box::from).collect();
        let is_name = |name: &str| {
            let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && c != '"' && c != '\\';
            (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_plain)
        };
        // As in JSONPath, whose other forms are no paths here.
        let is_root = names.first().is_some_and(|name| &**name == "$");
        if is_root || names.len() > MAX_NAMES || !names.iter().all(|name| is_name(name)) {
            return Err(Unreadable::Path);
        }
        Ok(Self { names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_shown_as_they_are_written() {
        for text in [
            "header:x-cost",
            "json:usage.total_tokens",
            "json:usage.input_tokens | message.usage.input_tokens + usage.output_tokens",
            "json:0.items.12.cost",
            "request_bytes",
            "response_bytes",
            "duration_ms",
        ] {
            assert_eq!(Source::parse(text).unwrap().to_string(), text);
        }
        let spaces = Source::parse("json: a.b+c|d ").unwrap();
        assert_eq!(spaces.to_string(), "json:a.b + c | d");
    }

    #[test]
    fn other_texts_are_no_sources() {
        let long_name = format!("json:{}", "x".repeat(65));
        for (text, why) in [
            ("bytes", Unreadable::Form),
            ("", Unreadable::Form),
            ("cookie:a", Unreadable::Form),
            ("header:", Unreadable::Header),
            ("header:a b", Unreadable::Header),
            ("json:", Unreadable::Path),
            ("json:a..b", Unreadable::Path),
            ("json:a+", Unreadable::Path),
            ("json:a b", Unreadable::Path),
            ("json:$.usage", Unreadable::Path),
            ("json:$[\"a\"]", Unreadable::Path),
            (&long_name, Unreadable::Path),
            ("json:1.2.3.4.5.6.7.8.9", Unreadable::Path),
            ("json:a|b|c|d|e|f|g|h|i", Unreadable::TooManyPaths),
        ] {
            assert_eq!(Source::parse(text), Err(why), "{text}");
        }
    }
}
