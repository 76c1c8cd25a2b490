//! Path normalization, so that a different spelling of a path cannot avoid a rule.
//!
//! Some servers treat `/api%2Fsearch`, `/api//search`, `/api\search` and `/api;x/search` as
//! `/api/search`, others do not. The gateway does not know what its upstream does. It therefore
//! looks up the route for every *reading* of a path: the result of each combination of
//! normalizations that servers apply. If the readings match different routes, the request is
//! refused. The path itself is forwarded unchanged.

use std::borrow::Cow;

use smallvec::SmallVec;
use thiserror::Error;

use super::network_path::{self, NetworkPath};
use crate::net::percent;

/// All readings of one path, at least one. A plain path has exactly one: itself.
pub type Readings<'a> = SmallVec<[Cow<'a, str>; 1]>;

/// Why a path has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// A `.` or `..` segment, plain or encoded. Servers differ in whether they resolve it.
    #[error("the path has a dot segment; send the path that it resolves to")]
    DotSegment,
    /// A percent sign that is not followed by two hexadecimal digits, or an encoded NUL.
    #[error("the path has a malformed percent-encoding")]
    BadEscape,
    /// The readings of the path match different routes.
    #[error("the path can be read as more than one route; send slashes plain and single")]
    Ambiguous,
    /// The readings of a header, of a query parameter or of a cookie meet the conditions of
    /// different routes.
    #[error(
        "a header, query parameter or cookie can be read as several values, which have different routes; send it once and unencoded"
    )]
    DifferentValues,
    /// The path is too long for the regular expressions of routes.
    #[error("the path is too long to be compared with the regular expressions of the routes")]
    TooLong,
    /// The route takes a prefix away, which the path has only in another spelling.
    #[error(
        "the path cannot be rewritten as its route does; send slashes plain and single, and the first segments unencoded"
    )]
    Unrewritable,
    /// The path for the upstream has a variable that has no value in this request, or one that
    /// would be more than a segment.
    #[error(
        "the path for the upstream is made of a header, query parameter or part of the path that this request does not have exactly once, or that has a slash, a backslash, a control character or only dots"
    )]
    NoPathValue,
}

/// Length of the longest UTF-8 character in bytes. A truncated reading keeps this many bytes more
/// than any route's path, since its last character may be incomplete.
const LONGEST_CHARACTER: usize = 4;

/// Normalizations that some servers apply to a path and others do not.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "four independent normalizations")]
struct Normalization {
    /// `%2F` separates segments as a slash does.
    escaped_slash: bool,
    /// `\` and `%5C` separate segments.
    backslash: bool,
    /// Consecutive slashes are one.
    merge: bool,
    /// `;` and the rest of its segment are removed.
    parameters: bool,
}

/// A decoded byte of the path, and whether it was percent-encoded.
#[derive(Clone, Copy)]
struct Decoded {
    byte: u8,
    escaped: bool,
}

/// The readings of `path`, a request's target without its query; in lower case if `ignore_case`.
/// Readings other than the path itself are truncated somewhere beyond `longest` bytes, the length
/// of the longest path of any route, so that each reading costs at most one pass over a long path.
///
/// # Errors
/// [`PathError::DotSegment`] or [`PathError::BadEscape`].
pub fn readings(path: &str, ignore_case: bool, longest: usize) -> Result<Readings<'_>, PathError> {
    Ok(readings_and_own(path, ignore_case, longest)?.0)
}

/// As [`readings`], and beside these, those of the path behind a host of its own
/// ([`network_path`](super::network_path)), which are among them; none if it has no such host.
pub(super) fn readings_and_own(
    path: &str,
    ignore_case: bool,
    longest: usize,
) -> Result<(Readings<'_>, Readings<'static>), PathError> {
    let (mut readings, mut own) = (Readings::new(), Readings::new());
    if is_plain(path) {
        readings.push(Cow::Borrowed(path));
    } else {
        let decoded = unescape(path)?;
        if has_dot_segment(&decoded) {
            return Err(PathError::DotSegment);
        }
        let most = longest.saturating_add(LONGEST_CHARACTER);
        add_readings(&decoded, most, &mut readings);
        if let Some((_, path)) = network_path::split(path) {
            add_readings(&unescape(&path)?, most, &mut own);
            for reading in &own {
                if !readings.contains(reading) {
                    readings.push(reading.clone());
                }
            }
        }
    }
    if ignore_case {
        fold(&mut readings);
        fold(&mut own);
    }
    Ok((readings, own))
}

/// The readings of a path by servers that take what follows its first two slashes for a host;
/// `None` if it begins with one. The rest as in [`readings`].
///
/// # Errors
/// As [`readings`].
pub fn network_path(
    path: &str,
    ignore_case: bool,
    longest: usize,
) -> Result<Option<NetworkPath<'_>>, PathError> {
    let Some((authority, _)) = network_path::split(path) else { return Ok(None) };
    let (_, readings) = readings_and_own(path, ignore_case, longest)?;
    Ok(Some(NetworkPath { authority, host: network_path::host(authority), readings }))
}

fn fold(readings: &mut Readings<'_>) {
    for reading in readings {
        if reading.bytes().any(|byte| byte.is_ascii_uppercase()) {
            reading.to_mut().make_ascii_lowercase();
        }
    }
}

/// Adds the reading by each combination of normalizations, without duplicates.
fn add_readings(decoded: &[Decoded], most: usize, readings: &mut Readings<'_>) {
    for normalization in normalizations(decoded) {
        let reading = read(decoded, normalization, most);
        if !readings.iter().any(|seen| *seen == reading) {
            readings.push(Cow::Owned(reading));
        }
    }
}

/// Whether any reading has a `.` or `..` segment. A segment of dots contains no separator, so it
/// suffices to check the reading that splits at every slash and removes parameters.
fn has_dot_segment(decoded: &[Decoded]) -> bool {
    let mut segments = decoded.split(|one| matches!(one.byte, b'/' | b'\\'));
    segments.any(|segment| {
        let dots = segment.iter().take_while(|one| one.byte == b'.').count();
        let is_end = segment.get(dots).is_none_or(|one| one.byte == b';' && !one.escaped);
        matches!(dots, 1 | 2) && is_end
    })
}

/// Whether the only reading of the path is the path itself. True for nearly all requests, so this
/// does not allocate.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let has_special = bytes.iter().any(|byte| matches!(byte, b'%' | b';' | b'\\'));
    let after_slash = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    !has_special && !bytes.windows(2).any(after_slash)
}

/// Decodes every `%xx` of the path once.
fn unescape(path: &str) -> Result<Vec<Decoded>, PathError> {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        if byte == b'%' {
            let byte = bytes.get(index..).and_then(percent::escape).filter(|byte| *byte != 0);
            decoded.push(Decoded { byte: byte.ok_or(PathError::BadEscape)?, escaped: true });
            index += 3;
        } else {
            decoded.push(Decoded { byte, escaped: false });
            index += 1;
        }
    }
    Ok(decoded)
}

/// All combinations of normalizations that may change this path, at most 16.
fn normalizations(decoded: &[Decoded]) -> impl Iterator<Item = Normalization> {
    let has = |test: fn(&Decoded) -> bool| decoded.iter().any(test);
    let both = |possible: bool| if possible { &[false, true][..] } else { &[false][..] };
    let escaped_slash = both(has(|decoded| decoded.byte == b'/' && decoded.escaped));
    let backslash = both(has(|decoded| decoded.byte == b'\\'));
    let parameters = both(has(|decoded| decoded.byte == b';' && !decoded.escaped));
    let combine = move |escaped_slash: bool| {
        backslash.iter().flat_map(move |&backslash| {
            parameters.iter().flat_map(move |&parameters| {
                [false, true].map(|merge| Normalization {
                    escaped_slash,
                    backslash,
                    merge,
                    parameters,
                })
            })
        })
    };
    escaped_slash.iter().copied().flat_map(combine)
}

/// One reading, truncated at `most` bytes or a few more. Merged slashes and removed parameters are
/// skipped in one step, since a long path may consist of little else.
fn read(decoded: &[Decoded], normalization: Normalization, most: usize) -> String {
    let separates = |one: &Decoded| match one.byte {
        b'/' => !one.escaped || normalization.escaped_slash,
        b'\\' => normalization.backslash,
        _ => false,
    };
    let mut bytes: Vec<u8> = Vec::with_capacity(decoded.len().min(most));
    let mut rest = decoded;
    while bytes.len() < most
        && let Some((one, after)) = rest.split_first()
    {
        let mut skipped = 0;
        match one.byte {
            _ if separates(one) => {
                if !(normalization.merge && bytes.last() == Some(&b'/')) {
                    bytes.push(b'/');
                }
                if normalization.merge {
                    skipped = after.iter().take_while(|one| separates(one)).count();
                }
            }
            b';' if !one.escaped && normalization.parameters => {
                skipped = after.iter().take_while(|one| !separates(one)).count();
            }
            // An encoded slash that does not separate segments must not become a separator.
            b'/' => bytes.extend_from_slice(b"%2f"),
            byte => bytes.push(byte),
        }
        rest = after.get(skipped..).unwrap_or_default();
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(path: &str) -> Result<Vec<String>, PathError> {
        let readings = readings(path, false, usize::MAX)?;
        Ok(readings.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn plain_path_is_its_only_reading_and_is_not_copied() {
        for path in ["/", "/api/search", "/a.b/c..d/e.", "*", "/ü"] {
            let readings = readings(path, false, 0).unwrap();
            assert_eq!(readings.as_slice(), [path]);
            assert!(matches!(readings[0], Cow::Borrowed(_)), "{path}");
        }
    }

    #[test]
    fn readings_are_all_combinations_of_normalizations() {
        let table: [(&str, &[&str]); 12] = [
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
            ("/%2fx/api", &["/%2fx/api", "//x/api", "/x/api", "/api"]),
        ];
        for (path, expected) in table {
            assert_eq!(read_all(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn dot_segments_in_any_spelling_are_refused() {
        let paths = [
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
        for path in paths {
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
    fn readings_are_in_lower_case_only_with_ignore_case() {
        assert_eq!(readings("/API", true, 9).unwrap().as_slice(), ["/api"]);
        assert_eq!(readings("/%41PI", true, 9).unwrap().as_slice(), ["/api"]);
        assert_eq!(readings("/API", false, 9).unwrap().as_slice(), ["/API"]);
    }

    /// All paths of up to four of these parts, which cover every normalization.
    fn paths() -> impl Iterator<Item = String> {
        const PARTS: [&str; 12] =
            ["/", "%2f", "\\", "%5C", ".", "%2e", ";", "%3b", "a", "B", "\u{fc}", "%ff"];
        let of = |count: u32| (0..12_usize.pow(count)).map(move |number| (count, number));
        (0..=4).flat_map(of).map(|(count, number)| {
            let parts = (0..count).map(|place| PARTS[number / 12_usize.pow(place) % 12]);
            std::iter::once("/").chain(parts).collect()
        })
    }

    /// [`readings`] without truncation, sorted.
    fn complete_readings(path: &str) -> Vec<String> {
        let rest = network_path::split(path).map(|(_, rest)| rest);
        let parts = std::iter::once(Cow::Borrowed(path)).chain(rest);
        let each = parts.flat_map(|path| {
            let decoded = unescape(&path).unwrap();
            let readings = normalizations(&decoded)
                .map(|normalization| read(&decoded, normalization, usize::MAX));
            readings.collect::<Vec<_>>()
        });
        let mut each: Vec<String> = each.collect();
        each.sort_unstable();
        each.dedup();
        each
    }

    #[test]
    fn path_is_refused_exactly_if_a_reading_has_a_dot_segment() {
        for path in paths() {
            let has_dots = |reading: &String| reading.split('/').any(|s| matches!(s, "." | ".."));
            let expected = complete_readings(&path).iter().any(has_dots);
            assert_eq!(read_all(&path) == Err(PathError::DotSegment), expected, "{path}");
        }
    }

    #[test]
    fn truncated_readings_match_the_same_routes() {
        for path in paths() {
            for longest in 1..4 {
                let Ok(readings) = readings(&path, false, longest) else { continue };
                // One more byte shows that the reading is longer than any route's path.
                let start = |text: &str| text.as_bytes()[..text.len().min(longest + 1)].to_vec();
                let mut truncated: Vec<_> = readings.iter().map(|reading| start(reading)).collect();
                let mut whole: Vec<_> =
                    complete_readings(&path).iter().map(|text| start(text)).collect();
                for list in [&mut truncated, &mut whole] {
                    list.sort_unstable();
                    list.dedup();
                }
                assert_eq!(truncated, whole, "{path}, {longest}");
            }
        }
    }

    #[test]
    fn readings_of_a_long_path_are_truncated() {
        let long = format!("//x/b%2fc\\d;e//{}", "/%2f\\;e".repeat(8_000));
        let readings = readings(&long, false, 100).unwrap();
        assert!(readings.len() <= 32);
        assert!(readings.iter().all(|reading| reading.len() < 110), "{readings:?}");
    }
}
