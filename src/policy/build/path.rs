//! Parses the path of a route: `/api/search`, or `/api/*` for a prefix.

use crate::policy::matcher::PathPattern;

/// Maximum length of a path: that of a request by default.
const MAX_PATH_BYTES: usize = 8192;

/// Parses a path.
///
/// # Errors
/// A message, and what to write instead if that is known.
pub(super) fn parse(text: &str) -> Result<PathPattern, (&'static str, Option<String>)> {
    if text.len() > MAX_PATH_BYTES {
        return Err(("the path is longer than a request's may be", None));
    }
    if !text.starts_with('/') {
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
    Ok(match prefix {
        Some(prefix) => PathPattern::Prefix(prefix.to_owned()),
        None => PathPattern::Exact(text.to_owned()),
    })
}

/// The help for a star within a path.
fn star_help(text: &str) -> Option<String> {
    let (before, _) = text.split_once('*')?;
    let (parent, _) = before.rsplit_once('/')?;
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
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
