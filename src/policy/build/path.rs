//! Parses the path of a route: `/api/search`, or `/api/*` for a prefix. A segment `{name}` is a
//! parameter.

use std::collections::HashSet;

use crate::policy::matcher::PathPattern;
use crate::policy::params::{param_name, segments};

/// Maximum length of a path: that of a request by default.
const MAX_PATH_BYTES: usize = 8192;

/// Maximum length of the name of a parameter.
const MAX_PARAM_BYTES: usize = 32;

/// Parses a path.
///
/// # Errors
/// A message, and what to write instead if that is known.
pub(super) fn parse(text: &str) -> Result<PathPattern, (&'static str, Option<String>)> {
    if text.len() > MAX_PATH_BYTES {
        return Err(("the path is longer than a request's may be", None));
    }
    if !text.starts_with('/') {
        if text.starts_with(['~', '^']) {
            let help = expression_help(text);
            return Err(("a path is no regular expression", Some(help)));
        }
        let help = (!text.contains("://")).then(|| format!("write `/{text}`"));
        return Err(("a path begins with `/`", help));
    }
    let prefix = text.strip_suffix('*');
    let fixed = prefix.unwrap_or(text);
    if fixed.contains('*') {
        return Err(("`*` is allowed only at the end of a path, after `/`", star_help(text)));
    }
    if prefix.is_some() && !fixed.ends_with('/') {
        return Err(("`*` is allowed only after `/`", Some(format!("did you mean `{fixed}/*`?"))));
    }
    let wrong = [
        ('?', "a path has no query: `?` and what follows never reach it"),
        ('#', "a path has no fragment: clients do not send `#`"),
        ('%', "a path is written decoded, without `%`"),
        (';', "`;` is not allowed in a path"),
        ('\\', "`\\` is not allowed in a path"),
    ];
    if let Some((_, message)) = wrong.iter().find(|(c, _)| fixed.contains(*c)) {
        return Err((message, None));
    }
    if fixed.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(("a path holds no spaces and no control characters", None));
    }
    if fixed.contains("//") {
        let help = (!fixed.contains("///")).then(|| format!("write `{}`", text.replace("//", "/")));
        return Err(("a path holds no `//`: requests have them collapsed", help));
    }
    if fixed.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(("a path holds no `.` or `..`: requests have them resolved", None));
    }
    check_params(fixed)?;
    Ok(match prefix {
        Some(prefix) => PathPattern::Prefix(prefix.to_owned()),
        None => PathPattern::Exact(text.to_owned()),
    })
}

/// The help for a regular expression: the same path with a parameter for each segment that is none.
fn expression_help(text: &str) -> String {
    let expression = text.trim_start_matches(['~', '*', '^', ' ']).replace("[^/]", ".");
    let expression = expression.as_str();
    let is_open = !expression.ends_with('$');
    let is_text = |segment: &str| {
        segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let mut path = String::new();
    for (at, segment) in expression.trim_end_matches('$').split('/').skip(1).enumerate() {
        path.push('/');
        match segment {
            "" | ".*" => {}
            text if is_text(text) => path.push_str(text),
            _ => path = format!("{path}{{part{}}}", at + 1),
        }
    }
    if is_open || expression.trim_end_matches('$').ends_with("/.*") {
        path = format!("{}/*", path.trim_end_matches('/'));
    }
    match parse(&path) {
        Ok(_) if path.len() <= 64 => {
            format!("a segment in braces matches any text: write `{path}`")
        }
        _ => "a segment in braces matches any text, as in `/api/{version}/*`".to_owned(),
    }
}

/// Checks the parameters of a path, which is valid otherwise.
fn check_params(path: &str) -> Result<(), (&'static str, Option<String>)> {
    let mut names = HashSet::new();
    for segment in segments(path).filter(|segment| segment.contains(['{', '}'])) {
        let Some(name) = param_name(segment).filter(|name| !name.contains(['{', '}'])) else {
            let help = "such as `/v1/{tenant}/chat`; `*` at the end matches the rest";
            return Err(("a parameter is a whole segment, in braces", Some(help.to_owned())));
        };
        if let Some(bare) = name.strip_suffix("...") {
            let help = is_name(bare).then(|| "`*` at the end matches all the rest".to_owned());
            return Err(("a parameter is one segment", help));
        }
        if !is_name(name) {
            let lower = name.to_ascii_lowercase().replace('-', "_");
            let help = match lower.split_once(':') {
                Some(_) => "a parameter matches any text: write only its name".to_owned(),
                None if is_name(&lower) => format!("write `{{{lower}}}`"),
                None => {
                    format!("a name has at most {MAX_PARAM_BYTES} characters, the first no digit")
                }
            };
            return Err((
                "the name of a parameter has only `a` to `z`, digits and `_`",
                Some(help),
            ));
        }
        if !names.insert(name) {
            let help = format!("`{{{name}}}` is there twice");
            return Err(("the parameters of a path have different names", Some(help)));
        }
    }
    Ok(())
}

/// Whether a text can be the name of a parameter.
pub(super) fn is_name(name: &str) -> bool {
    let is_allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    let has_start = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    has_start && name.len() <= MAX_PARAM_BYTES && name.bytes().all(is_allowed)
}

/// The help for a star within a path.
fn star_help(text: &str) -> Option<String> {
    let (before, _) = text.split_once('*')?;
    let (parent, _) = before.rsplit_once('/')?;
    if text.contains("/*/") {
        let help = text.replacen("/*/", "/{name}/", 1);
        return Some(format!("for any segment, write `{help}`; a prefix is `{parent}/*`"));
    }
    Some(format!("a prefix is written as `{parent}/*`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_exact_or_prefixes() {
        let prefix = |text: &str| Ok(PathPattern::Prefix(text.to_owned()));
        let exact = |text: &str| Ok(PathPattern::Exact(text.to_owned()));
        assert_eq!(parse("/*"), prefix("/"));
        assert_eq!(parse("/api/*"), prefix("/api/"));
        assert_eq!(parse("/"), exact("/"));
        assert_eq!(parse("/api/"), exact("/api/"));
        assert_eq!(parse("/\u{e4}pi"), exact("/\u{e4}pi"));
        assert_eq!(parse("/v1/{tenant_1}/chat"), exact("/v1/{tenant_1}/chat"));
        assert_eq!(parse("/{a}/{_b}/*"), prefix("/{a}/{_b}/"));
        let wrong = [
            "",
            "*",
            "api",
            "/api*",
            "/a/*/b",
            "/*/*",
            "/a?b",
            "/a#b",
            "/a%2fb",
            "/a//b",
            "//",
            "/a/./b",
            "/..",
            "/a;b",
            "/a b",
            "/a\nb",
            "/a\\b",
            "http://h/a",
            "/./*",
            "/{}",
            "/{A}",
            "/{1}",
            "/{a}/{a}",
            "/x{a}",
            "/{a}.json",
            "/{a",
            "/a}",
            "/{a}{b}",
            "/{{a}}",
            "/{a...}",
            "/{id:[0-9]+}",
            "/{an_almost_endless_name_of_a_param}",
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
