//! Parameters in the path of a route: `{tenant}` in `/v1/{tenant}/chat` matches one segment, which
//! is not empty.

use smallvec::SmallVec;

/// Names and values of the parameters of one path, in the order of the path.
pub type Params<'a> = SmallVec<[(&'a str, &'a str); 4]>;

/// The parameters in a route's path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathParams(Box<[PathParam]>);

/// One parameter in a route's path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PathParam {
    name: Box<str>,
    /// Index of its segment; that after the first slash is 0.
    segment: usize,
}

impl PathParams {
    /// The parameters in the text of a path, which is valid.
    pub fn of(path: &str) -> Self {
        let each = segments(path).enumerate().filter_map(|(segment, text)| {
            Some(PathParam { name: param_name(text)?.into(), segment })
        });
        Self(each.collect())
    }

    /// Whether the path has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, in the order of the path. Each is there once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|param| &*param.name)
    }

    /// The values in a path that the route matches.
    pub fn values<'a>(&'a self, path: &'a str) -> Params<'a> {
        let mut rest = segments(path);
        let mut next = 0;
        let each = self.0.iter().filter_map(|param| {
            let value = rest.nth(param.segment.checked_sub(next)?)?;
            next = param.segment.saturating_add(1);
            Some((&*param.name, value))
        });
        each.collect()
    }
}

/// The segments of a path: what is between its slashes, after the first one.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').skip(1)
}

/// Name of the parameter that a segment of a route's path is; `None`: the segment is text.
pub(super) fn param_name(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

/// Whether the path of a request matches the text of a route's path, without its `*`. A prefix ends
/// in a slash.
pub(super) fn matches(pattern: &str, is_prefix: bool, path: &str, ignore_case: bool) -> bool {
    if !path.starts_with('/') {
        return false;
    }
    let pattern = if is_prefix { pattern.strip_suffix('/').unwrap_or(pattern) } else { pattern };
    let mut rest = segments(path);
    let is_equal = |own: &str, segment: &str| match param_name(own) {
        Some(_) => !segment.is_empty(),
        None if ignore_case => own.eq_ignore_ascii_case(segment),
        None => own == segment,
    };
    let begins =
        segments(pattern).all(|own| rest.next().is_some_and(|segment| is_equal(own, segment)));
    begins && rest.next().is_some() == is_prefix
}

/// Whether the first segment in which two paths that match the same request differ is text in the
/// first and a parameter in the other.
pub fn has_text_first(first: &str, other: &str) -> bool {
    let mut pairs = segments(first).zip(segments(other));
    let differing =
        pairs.find(|(first, other)| param_name(first).is_some() != param_name(other).is_some());
    differing.is_some_and(|(first, _)| param_name(first).is_none() && !first.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pattern: &str, path: &str) -> Vec<(String, String)> {
        let params = PathParams::of(pattern);
        let values = params.values(path);
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_are_the_segments_as_they_are_written() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(values("/v1/{tenant}/chat", "/v1/a%20b/chat"), [pair("tenant", "a%20b")]);
        assert_eq!(values("/{a}/{b}", "/1/2"), [pair("a", "1"), pair("b", "2")]);
        assert_eq!(values("/{a}/x/{b}/", "/1/x/2/y/z"), [pair("a", "1"), pair("b", "2")]);
        assert_eq!(values("/a", "/a"), []);
    }

    #[test]
    fn parameter_matches_one_segment_that_is_not_empty() {
        let table = [
            ("/v1/{t}/chat", false, "/v1/a/chat", true),
            ("/v1/{t}/chat", false, "/v1//chat", false),
            ("/v1/{t}/chat", false, "/v1/a/b/chat", false),
            ("/v1/{t}/chat", false, "/v1/a/chat/", false),
            ("/v1/{t}/", true, "/v1/a/chat", true),
            ("/v1/{t}/", true, "/v1/a/", true),
            ("/v1/{t}/", true, "/v1/a", false),
            ("/{t}", false, "/", false),
            ("/", true, "/", true),
            ("/", true, "*", false),
            ("/", false, "/", true),
            ("/A/{t}", false, "/a/B", false),
        ];
        for (pattern, is_prefix, path, expected) in table {
            assert_eq!(matches(pattern, is_prefix, path, false), expected, "{pattern} {path}");
        }
        assert!(matches("/A/{t}", false, "/a/B", true));
    }
}
