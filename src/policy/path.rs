//! The ways in which an API may read a path, so that no spelling of a path dodges a rule.
//!
//! `/api%2Fsearch`, `/api//search`, `/api\search` and `/api;x/search` are the route `/api/search`
//! to some servers and something else to others. Nobody here knows which server stands behind, so
//! a route is chosen by every reading of the path; where they disagree, the request is refused.
//! The path itself goes on as it came.

use std::borrow::Cow;

use smallvec::SmallVec;
use thiserror::Error;

use crate::net::percent;

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

/// The bytes of the longest character: where a reading is cut within one, what is left of it is
/// another character.
const LONGEST_CHARACTER: usize = 4;

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
/// `ignore_case`. No route has a path of more than `longest` bytes: a reading that differs from the
/// path and is longer is cut somewhere beyond that, so that a long path costs no more than a pass
/// over it for each reading.
///
/// # Errors
/// [`PathError::DotSegment`] and [`PathError::BadEscape`].
pub fn readings(path: &str, ignore_case: bool, longest: usize) -> Result<Readings<'_>, PathError> {
    let mut readings = Readings::new();
    if is_plain(path) {
        readings.push(Cow::Borrowed(path));
    } else {
        let written = unescape(path)?;
        if has_dot_segment(&written) {
            return Err(PathError::DotSegment);
        }
        let most = longest.saturating_add(LONGEST_CHARACTER);
        add_readings(&written, most, &mut readings);
        if let Some(path) = behind_host(path) {
            add_readings(&unescape(path)?, most, &mut readings);
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

/// Adds what each folding makes of a path, each reading once.
fn add_readings(written: &[Written], most: usize, readings: &mut Readings<'_>) {
    for folding in foldings(written) {
        let reading = read(written, folding, most);
        if !readings.iter().any(|seen| *seen == reading) {
            readings.push(Cow::Owned(reading));
        }
    }
}

/// Whether any reading has a `.` or `..` segment. A segment of dots alone holds no separator, so the
/// folding that separates at every slash and drops parameters has each one that any other has.
fn has_dot_segment(written: &[Written]) -> bool {
    let mut segments = written.split(|one| matches!(one.byte, b'/' | b'\\'));
    segments.any(|segment| {
        let dots = segment.iter().take_while(|one| one.byte == b'.').count();
        let is_end = segment.get(dots).is_none_or(|one| one.byte == b';' && !one.escaped);
        matches!(dots, 1 | 2) && is_end
    })
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
    let bytes = path.as_bytes();
    let mut written = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        if byte == b'%' {
            let byte = bytes.get(index..).and_then(percent::escape).filter(|byte| *byte != 0);
            written.push(Written { byte: byte.ok_or(PathError::BadEscape)?, escaped: true });
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

/// One reading, cut where it has `most` bytes or a few more. What leaves nothing in it, slashes that
/// become one and parameters, is skipped in one go: a long path may hold little else.
fn read(written: &[Written], folding: Folding, most: usize) -> String {
    let separates = |one: &Written| match one.byte {
        b'/' => !one.escaped || folding.escaped_slash,
        b'\\' => folding.backslash,
        _ => false,
    };
    let mut bytes: Vec<u8> = Vec::with_capacity(written.len().min(most));
    let mut rest = written;
    while bytes.len() < most
        && let Some((one, after)) = rest.split_first()
    {
        let mut skipped = 0;
        match one.byte {
            _ if separates(one) => {
                if !(folding.merge && bytes.last() == Some(&b'/')) {
                    bytes.push(b'/');
                }
                if folding.merge {
                    skipped = after.iter().take_while(|one| separates(one)).count();
                }
            }
            b';' if !one.escaped && folding.parameters => {
                skipped = after.iter().take_while(|one| !separates(one)).count();
            }
            // A slash that is data, not a separator: it must not become one here.
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
    fn plain_paths_have_one_reading_and_cost_nothing() {
        for path in ["/", "/api/search", "/a.b/c..d/e.", "*", "/ü"] {
            let readings = readings(path, false, 0).unwrap();
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
        assert_eq!(readings("/API", true, 9).unwrap().as_slice(), ["/api"]);
        assert_eq!(readings("/%41PI", true, 9).unwrap().as_slice(), ["/api"]);
        assert_eq!(readings("/API", false, 9).unwrap().as_slice(), ["/API"]);
    }

    /// Every path of up to four of these parts, which are all that readings differ by.
    fn paths() -> impl Iterator<Item = String> {
        const PARTS: [&str; 12] =
            ["/", "%2f", "\\", "%5C", ".", "%2e", ";", "%3b", "a", "B", "\u{fc}", "%ff"];
        let of = |count: u32| (0..12_usize.pow(count)).map(move |number| (count, number));
        (0..=4).flat_map(of).map(|(count, number)| {
            let parts = (0..count).map(|place| PARTS[number / 12_usize.pow(place) % 12]);
            std::iter::once("/").chain(parts).collect()
        })
    }

    /// What [`readings`] makes of a path if every folding is looked at for itself.
    fn unabridged(path: &str) -> Vec<String> {
        let parts = std::iter::once(path).chain(behind_host(path));
        let each = parts.flat_map(|path| {
            let written = unescape(path).unwrap();
            let readings = foldings(&written).map(|folding| read(&written, folding, usize::MAX));
            readings.collect::<Vec<_>>()
        });
        let mut each: Vec<String> = each.collect();
        each.sort_unstable();
        each.dedup();
        each
    }

    #[test]
    fn a_path_is_refused_exactly_if_one_of_its_readings_has_a_dot_segment() {
        for path in paths() {
            let has_dots = |reading: &String| reading.split('/').any(|s| matches!(s, "." | ".."));
            let expected = unabridged(&path).iter().any(has_dots);
            assert_eq!(read_all(&path) == Err(PathError::DotSegment), expected, "{path}");
        }
    }

    /// Of a reading that is cut, all that a route can match is left.
    #[test]
    fn cut_readings_match_what_whole_readings_match() {
        for path in paths() {
            for longest in 1..4 {
                let Ok(readings) = readings(&path, false, longest) else { continue };
                // One byte more shows that the reading is longer than any route's path.
                let start = |text: &str| text.as_bytes()[..text.len().min(longest + 1)].to_vec();
                let mut cut: Vec<_> = readings.iter().map(|reading| start(reading)).collect();
                let mut whole: Vec<_> = unabridged(&path).iter().map(|text| start(text)).collect();
                for list in [&mut cut, &mut whole] {
                    list.sort_unstable();
                    list.dedup();
                }
                assert_eq!(cut, whole, "{path}, {longest}");
            }
        }
    }

    #[test]
    fn a_long_path_has_short_readings() {
        let long = format!("//x/b%2fc\\d;e//{}", "/%2f\\;e".repeat(8_000));
        let readings = readings(&long, false, 100).unwrap();
        assert!(readings.len() <= 32);
        assert!(readings.iter().all(|reading| reading.len() < 110), "{readings:?}");
    }
}
