//! Rewrites the path of a request for the upstream: takes a prefix away and puts another one in
//! front, or replaces the whole path.

use percent_encoding::percent_decode_str;

use super::template::{Template, Values};
use crate::net::percent;

/// A change of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    Prefix(PrefixRewrite),
    /// The whole path is this text. Its variables are
    /// [`NamedVariable`](super::template::NamedVariable)s.
    Path(Template),
}

/// Why a path cannot be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteError {
    /// The path has the prefix only in another spelling, or would begin with two slashes.
    Prefix,
    /// A variable of the new path has no value, or one that would be more than a segment.
    Value,
}

/// A change of the beginning of the path. The rest stays as it is, to the byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixRewrite {
    /// Prefix that is taken away, without a final slash; empty: none. All paths of the route begin
    /// with it.
    pub prefix: Box<str>,
    /// Text that is put in front, without a final slash; may be empty.
    pub replacement: Box<str>,
    /// Whether the upstream gets the prefix in `X-Forwarded-Prefix`.
    pub is_announced: bool,
    /// Whether the case of the prefix does not matter.
    pub ignore_case: bool,
}

impl Rewrite {
    /// The new path of a request.
    ///
    /// # Errors
    /// See [`RewriteError`].
    pub fn path(&self, values: &Values<'_>) -> Result<String, RewriteError> {
        match self {
            Self::Prefix(prefix) => {
                let path = std::str::from_utf8(values.path).ok();
                path.and_then(|path| prefix.path(path)).ok_or(RewriteError::Prefix)
            }
            Self::Path(template) => {
                let path =
                    template.render_url(values).and_then(|path| String::from_utf8(path).ok());
                path.filter(|path| has_safe_segments(path)).ok_or(RewriteError::Value)
            }
        }
    }

    /// What is done, in a few words.
    pub fn words(&self) -> String {
        match self {
            Self::Prefix(prefix) => prefix.words(),
            Self::Path(template) => format!("path: {template}"),
        }
    }
}

/// Whether a server that decodes the path before it splits it reads the same segments, none of
/// which is `.` or `..`, and no host at the beginning.
fn has_safe_segments(path: &str) -> bool {
    if path.as_bytes().split_first().is_some_and(|(_, rest)| begins_with_slash(rest)) {
        return false;
    }
    let is_safe = |segment: &str| {
        let decoded: Vec<u8> = percent_decode_str(segment).collect();
        let is_plain = |byte: &u8| !matches!(byte, b'/' | b'\\') && !byte.is_ascii_control();
        // Some servers take parameters away, `..;a`.
        let bare = decoded.split(|byte| *byte == b';').next().unwrap_or_default();
        decoded.iter().all(is_plain) && !matches!(bare, b"." | b"..")
    };
    path.split('/').all(is_safe)
}

impl PrefixRewrite {
    /// The new path; `None` if the path, as received, does not begin with the prefix and a slash,
    /// or if the new one would begin with two slashes, which servers read as a host.
    fn path(&self, path: &str) -> Option<String> {
        let rest = self.rest(path)?;
        if self.replacement.is_empty() {
            match rest.as_bytes() {
                [] => return Some("/".to_owned()),
                [b'/', after @ ..] if begins_with_slash(after) => return None,
                _ => {}
            }
        }
        Some(format!("{}{rest}", self.replacement))
    }

    fn words(&self) -> String {
        match (&*self.prefix, &*self.replacement) {
            ("", added) => format!("path: add {added}"),
            (prefix, "") => format!("path: strip {prefix}"),
            (prefix, replacement) => format!("path: replace {prefix} by {replacement}"),
        }
    }

    /// The path after the prefix: nothing, or a slash and what follows.
    fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (prefix, rest) = path.split_at_checked(self.prefix.len())?;
        let is_prefix = if self.ignore_case {
            prefix.eq_ignore_ascii_case(&self.prefix)
        } else {
            prefix == &*self.prefix
        };
        let is_whole = rest.starts_with('/') || (rest.is_empty() && !self.prefix.is_empty());
        (is_prefix && is_whole).then_some(rest)
    }
}

/// Whether the text begins with what a server may read as a slash: also a slash after nothing but
/// parameters, `;a/`, which some servers leave out.
fn begins_with_slash(text: &[u8]) -> bool {
    let first = |text: &[u8]| percent::escape(text).or_else(|| text.first().copied());
    let is_slash = |text: &[u8]| matches!(first(text), Some(b'/' | b'\\'));
    let has_slash = || (0..text.len()).filter_map(|at| text.get(at..)).any(is_slash);
    is_slash(text) || (first(text) == Some(b';') && has_slash())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewrite(prefix: &str, replacement: &str) -> PrefixRewrite {
        let (prefix, replacement) = (prefix.into(), replacement.into());
        PrefixRewrite { prefix, replacement, ..PrefixRewrite::default() }
    }

    #[test]
    fn prefix_is_replaced_and_the_rest_stays() {
        let table = [
            ("/v1", "", "/v1/chat", Some("/chat")),
            ("/v1", "", "/v1", Some("/")),
            ("/v1", "", "/v1/", Some("/")),
            ("/v1", "", "/v1/a%2Fb//c;d", Some("/a%2Fb//c;d")),
            ("/v1", "", "/v1/;/evil.example/x", None),
            ("/v1", "", "/v1/%3Ba=b%2Fevil.example/x", None),
            ("/v1", "", "/v1/;a", Some("/;a")),
            ("/v1", "/api", "/v1/chat", Some("/api/chat")),
            ("/v1", "/api", "/v1", Some("/api")),
            ("/v1", "/api", "/v1//x", Some("/api//x")),
            ("", "/x", "/a", Some("/x/a")),
            ("", "/x", "/", Some("/x/")),
            ("", "/x", "//a", Some("/x//a")),
        ];
        for (prefix, replacement, path, expected) in table {
            assert_eq!(rewrite(prefix, replacement).path(path).as_deref(), expected, "{path}");
        }
        let ignoring_case = PrefixRewrite { ignore_case: true, ..rewrite("/v1", "") };
        assert_eq!(ignoring_case.path("/V1/X").as_deref(), Some("/X"));
    }

    #[test]
    fn path_in_another_spelling_is_not_rewritten() {
        let paths = [
            "//v1/x",
            "/%76%31/x",
            "/v1%2Fx",
            "/v1\\x",
            "/v1;a/x",
            "/v12/x",
            "/V1/x",
            "/v",
            "",
            "*",
            "/v1//x",
            "/v1/\\x",
            "/v1/%2Fx",
            "/v1/%2fx",
            "/v1/%5Cx",
        ];
        for path in paths {
            assert_eq!(rewrite("/v1", "").path(path), None, "{path}");
        }
        assert_eq!(rewrite("", "/x").path("*"), None);
    }

    #[test]
    fn segments_are_safe_if_no_server_reads_others() {
        for path in ["/a/b", "/", "/a%20b", "/%C3%BC", "/a;b", "/...", "/a%3Bb", "/a.%2E"] {
            assert!(has_safe_segments(path), "{path}");
        }
        for path in [
            "/a%2Fb",
            "/a%5Cb",
            "/..",
            "/a/.",
            "/%2E%2e/",
            "/..;a",
            "/%2E%2E%3Ba",
            "/a%00",
            "/%0A",
            "/%3B/evil.example",
            "/%3Ba=b/evil.example/x",
            "/;/evil.example",
            "//evil.example",
        ] {
            assert!(!has_safe_segments(path), "{path}");
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn rewritten_path_begins_with_one_slash_and_keeps_the_rest(
            path in "[/%5Ccvx12f;\\\\.]{0,12}",
            replacement in prop_oneof![Just(""), Just("/api")],
        ) {
            let path = format!("/v1{path}");
            if let Some(new) = rewrite("/v1", replacement).path(&path) {
                prop_assert!(new.starts_with('/') && !begins_with_slash(&new.as_bytes()[1..]), "{new}");
                prop_assert!(new == "/" || new == format!("{replacement}{}", &path[3..]), "{new}");
            }
        }
    }
}
