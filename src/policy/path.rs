//! The ways in which an API may read a path, so that no spelling of a path dodges a rule.
//!
//! `/api%2Fsearch`, `/api//search`, `/api\search` and `/api;x/search` are the route `/api/search`
//! to some servers and something else to others. Nobody here knows which server stands behind, so
//! a route is chosen by every reading of the path; where they disagree, the request is refused.
//! The path itself goes on as it came.

use std::borrow::Cow;

use smallvec::SmallVec;
use thiserror::Error;

/// Every way to read one path; at least one. Plain paths have exactly one, which is the path.
pub type Readings<'a> = SmallVec<[Cow<'a, str>; 1]>;

/// Why a path is refused before any route is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// A `.` or `..` segment, plain or encoded, which servers resolve or not as they please.
    #[error("the path has a dot segment; send the path that it resolves to")]
    DotSegment,
    /// A percent sign that is not followed by two hexadecimal digits, or an encoded NUL.
    #[error("the path has a malformed percent-encoding")]
    BadEscape,
    /// The readings of the path lead to different routes.
    #[error("the path can be read as more than one route; send slashes plain and single")]
    Ambiguous,
}

/// What some servers do to a path before they look at it, and others do not.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "four independent habits of servers")]
struct Folding {
    /// `%2F` separates segments.
    escaped_slash: bool,
    /// `\` and `%5C` separate segments.
    backslash: bool,
    /// `//` is one slash.
    merge: bool,
    /// `;` and what follows it in a segment is dropped.
    parameters: bool,
}

/// A byte of the path and how it was written.
#[derive(Clone, Copy)]
struct Written {
    byte: u8,
    escaped: bool,
}

/// The readings of `path`, a request's target without its query; in lower case where
/// `ignore_case`.
///
/// # Errors
/// [`PathError::DotSegment`] and [`PathError::BadEscape`].
pub fn readings(path: &str, ignore_case: bool) -> Result<Readings<'_>, PathError> {
    let mut readings = Readings::new();
    if is_plain(path) {
        readings.push(Cow::Borrowed(path));
    } else {
        for path in std::iter::once(path).chain(behind_host(path)) {
            let written = unescape(path)?;
            for folding in foldings(&written) {
                let reading = read(&written, folding);
                if reading.split('/').any(|segment| segment == "." || segment == "..") {
                    return Err(PathError::DotSegment);
                }
                if !readings.iter().any(|seen| *seen == reading) {
                    readings.push(Cow::Owned(reading));
                }
            }
        }
    }
    if ignore_case {
        for reading in &mut readings {
            if reading.bytes().any(|byte| byte.is_ascii_uppercase()) {
                reading.to_mut().make_ascii_lowercase();
            }
        }
    }
    Ok(readings)
}

/// Whether the path has one reading only: itself. Nearly all do, so this allocates nothing.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let odd = bytes.iter().any(|byte| matches!(byte, b'%' | b';' | b'\\'));
    let after_slash = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    !odd && !bytes.windows(2).any(after_slash)
}

/// What is left of a path that begins with two slashes to servers that read it as a reference to a
/// URL (RFC 3986, section 4.2), where they announce a host: `//x/api` is `/api` to `new URL(…)` of
/// JavaScript and to Python's `urlparse`.
fn behind_host(path: &str) -> Option<&str> {
    const SLASHES: [char; 2] = ['/', '\\'];
    let host = path.strip_prefix('/')?.strip_prefix(SLASHES)?.trim_start_matches(SLASHES);
    Some(host.find(SLASHES).map_or("/", |end| &host[end..]))
}

/// The path with every `%xx` decoded once.
fn unescape(path: &str) -> Result<Vec<Written>, PathError> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = path.as_bytes();
    let mut written = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        if byte == b'%' {
            let pair = (digit(bytes.get(index + 1)), digit(bytes.get(index + 2)));
            let (Some(high), Some(low)) = pair else { return Err(PathError::BadEscape) };
            let byte = u8::try_from(high * 16 + low).map_err(|_| PathError::BadEscape)?;
            if byte == 0 {
                return Err(PathError::BadEscape);
            }
            written.push(Written { byte, escaped: true });
            index += 3;
        } else {
            written.push(Written { byte, escaped: false });
            index += 1;
        }
    }
    Ok(written)
}

/// Every combination of foldings, at most 16; those that change nothing give equal readings.
fn foldings(written: &[Written]) -> impl Iterator<Item = Folding> {
    let has = |test: fn(&Written) -> bool| written.iter().any(test);
    let both = |possible: bool| if possible { &[false, true][..] } else { &[false][..] };
    let escaped_slash = both(has(|written| written.byte == b'/' && written.escaped));
    let backslash = both(has(|written| written.byte == b'\\'));
    let parameters = both(has(|written| written.byte == b';' && !written.escaped));
    let combine = move |escaped_slash: bool| {
        backslash.iter().flat_map(move |&backslash| {
            parameters.iter().flat_map(move |&parameters| {
                [false, true].map(|merge| Folding { escaped_slash, backslash, merge, parameters })
            })
        })
    };
    escaped_slash.iter().copied().flat_map(combine)
}

/// One reading.
fn read(written: &[Written], folding: Folding) -> String {
    let mut bytes: Vec<u8> = Vec::with_capacity(written.len());
    let mut in_parameters = false;
    for Written { byte, escaped } in written.iter().copied() {
        let separates = match byte {
            b'/' => !escaped || folding.escaped_slash,
            b'\\' => folding.backslash,
            _ => false,
        };
        if separates {
            in_parameters = false;
            if !(folding.merge && bytes.last() == Some(&b'/')) {
                bytes.push(b'/');
            }
        } else if byte == b';' && !escaped && folding.parameters {
            in_parameters = true;
        } else if in_parameters {
            // Dropped with the parameter that it belongs to.
        } else if byte == b'/' {
            // A slash that is data, not a separator: it must not become one here.
            bytes.extend_from_slice(b"%2f");
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(path: &str) -> Result<Vec<String>, PathError> {
        readings(path, false).map(|readings| readings.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn plain_paths_have_one_reading_and_cost_nothing() {
        for path in ["/", "/api/search", "/a.b/c..d/e.", "*", "/ü"] {
            let readings = readings(path, false).unwrap();
            assert_eq!(readings.as_slice(), [path]);
            assert!(matches!(readings[0], Cow::Borrowed(_)), "{path}");
        }
    }

    #[test]
    fn every_way_to_read_a_path_is_considered() {
        let table: [(&str, &[&str]); 11] = [
            ("/%61pi", &["/api"]),
            ("/api%2Fsearch", &["/api%2fsearch", "/api/search"]),
            ("/api//search", &["/api//search", "/api/search"]),
            ("/api\\search", &["/api\\search", "/api/search"]),
            ("/api%5csearch", &["/api\\search", "/api/search"]),
            ("/api;v=1/search", &["/api;v=1/search", "/api/search"]),
            ("/;/api", &["/;/api", "//api", "/api"]),
            ("/a%3bb", &["/a;b"]),
            ("//x/api", &["//x/api", "/x/api", "/api"]),
            ("///x/api", &["///x/api", "/x/api", "/api"]),
            ("/\\x", &["/\\x", "//x", "/x", "/"]),
        ];
        for (path, expected) in table {
            assert_eq!(read_all(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn dot_segments_are_refused_however_they_are_spelt() {
        let spelt = [
            "/..",
            "/.",
            "/a/../b",
            "/a/./b",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a%2f..%2fb",
            "/a\\..\\b",
            "/..;x/b",
            "/a/..%5cb",
            "/%2e",
        ];
        for path in spelt {
            assert_eq!(read_all(path), Err(PathError::DotSegment), "{path}");
        }
    }

    #[test]
    fn malformed_escapes_are_refused() {
        for path in ["/%", "/%2", "/%zz", "/a%00b", "/%%32%66"] {
            assert_eq!(read_all(path), Err(PathError::BadEscape), "{path}");
        }
    }

    #[test]
    fn case_is_folded_only_when_asked() {
        assert_eq!(readings("/API", true).unwrap().as_slice(), ["/api"]);
        assert_eq!(readings("/%41PI", true).unwrap().as_slice(), ["/api"]);
        assert_eq!(readings("/API", false).unwrap().as_slice(), ["/API"]);
    }
}
