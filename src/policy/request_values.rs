//! The values that conditions of routes are about: of headers, of query parameters and of cookies.
//!
//! Servers differ in which value they read if there are several, and in how they decode some of
//! them. As with paths, all values that a usual server may read are kept, so that no spelling of a
//! request gets another route here than it seems to have there.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use http::header;
use percent_encoding::percent_decode;
use smallvec::SmallVec;

use super::condition::{MAX_NAME_BYTES, Source};
use super::matcher::RequestParts;
use crate::net::framing::connection_options;
use crate::net::percent::{decode_query, escape};

/// How many different values of one source are kept.
const MOST_VALUES: usize = 8;

/// Numbers of sources, from 0.
#[derive(Debug, Default)]
pub(super) struct SourceIndex {
    headers: Names,
    query: Names,
    cookies: Names,
    count: u32,
}

type Names = HashMap<Box<[u8]>, u32, RandomState>;

/// The values of a source in one request.
#[derive(Debug)]
pub(super) struct Values<'a> {
    /// Different values, in the order of the request. At most [`MOST_VALUES`].
    each: SmallVec<[Cow<'a, [u8]>; 1]>,
    /// Whether servers exist that read no value.
    may_be_absent: bool,
    /// Whether there are more values than are kept.
    has_more: bool,
}

/// The values of a request, by the numbers of their sources.
#[derive(Debug, Default)]
pub(super) struct RequestValues<'a> {
    by_source: HashMap<u32, Values<'a>, RandomState>,
    none: Values<'a>,
}

/// The values of one source.
pub(super) fn values_of<'a>(source: &Source, request: RequestParts<'a>) -> Values<'a> {
    let mut index = SourceIndex::default();
    let number = index.number(source);
    RequestValues::read(&index, request).by_source.remove(&number).unwrap_or_default()
}

impl SourceIndex {
    /// The number of a source, which is added if it has none.
    pub(super) fn number(&mut self, source: &Source) -> u32 {
        let names = match source {
            Source::Header(_) => &mut self.headers,
            Source::Query(_) => &mut self.query,
            Source::Cookie(_) => &mut self.cookies,
        };
        let next = self.count;
        let number = *names.entry(source.name().as_bytes().into()).or_insert(next);
        self.count += u32::from(number == next);
        number
    }
}

impl Default for Values<'_> {
    fn default() -> Self {
        Self { each: SmallVec::new(), may_be_absent: true, has_more: false }
    }
}

impl<'a> Values<'a> {
    /// Different values that servers may read, without those that are too many.
    pub(super) fn each(&self) -> &[Cow<'a, [u8]>] {
        &self.each
    }

    /// Whether servers exist that read no value.
    pub(super) const fn may_be_absent(&self) -> bool {
        self.may_be_absent
    }

    /// Whether there are more values than [`each`](Self::each) has.
    pub(super) const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Adds a value. `is_certain`: every server reads it, or another one of the source.
    fn add(&mut self, value: Cow<'a, [u8]>, is_certain: bool) {
        self.may_be_absent &= !is_certain;
        if self.each.contains(&value) {
            return;
        }
        if self.each.len() < MOST_VALUES {
            self.each.push(value);
        } else {
            self.has_more = true;
        }
    }
}

impl<'a> RequestValues<'a> {
    /// Reads the values of all sources of an index, in one pass over the request.
    pub(super) fn read(index: &SourceIndex, request: RequestParts<'a>) -> Self {
        let mut values = Self::default();
        if !index.headers.is_empty() {
            values.read_headers(&index.headers, request);
        }
        if !index.query.is_empty() {
            let segments = request.query.into_iter().flat_map(|query| query.split('&'));
            segments.for_each(|segment| values.read_segment(&index.query, segment));
        }
        if !index.cookies.is_empty() {
            let lines = request.headers.get_all(header::COOKIE).iter();
            let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
            pairs.for_each(|pair| values.read_cookie(&index.cookies, pair.trim_ascii()));
        }
        values
    }

    /// The values of the source with this number.
    pub(super) fn get(&self, source: u32) -> &Values<'a> {
        self.by_source.get(&source).unwrap_or(&self.none)
    }

    fn add(&mut self, source: u32, value: Cow<'a, [u8]>, is_certain: bool) {
        self.by_source.entry(source).or_default().add(value, is_certain);
    }

    /// A header whose name has `_` is the one with `-` to servers of CGI and WSGI; others drop it.
    /// One that `Connection` names is not forwarded.
    fn read_headers(&mut self, names: &Names, request: RequestParts<'a>) {
        for (name, value) in request.headers {
            let (name, value) = (name.as_str().as_bytes(), Cow::Borrowed(value.as_bytes()));
            if let Some(source) = names.get(name) {
                self.add(*source, value, true);
            } else if name.contains(&b'_')
                && let Some(source) = lookup_changed(names, name, |byte| match byte {
                    b'_' => b'-',
                    other => other,
                })
            {
                self.add(source, value, false);
            }
        }
        for option in connection_options(request.headers) {
            if let Some(source) = lookup_changed(names, option, |byte| byte.to_ascii_lowercase())
                && let Some(values) = self.by_source.get_mut(&source)
            {
                values.may_be_absent = true;
            }
        }
    }

    /// Reads what is between two `&` of a query. Some servers separate parameters by `;` as well,
    /// and some ignore what has a `;` or a malformed escape.
    fn read_segment(&mut self, names: &Names, segment: &'a str) {
        let is_certain = !segment.contains(';') && !has_malformed_escape(segment);
        self.read_parameter(names, segment, is_certain);
        if segment.contains(';') {
            segment.split(';').for_each(|part| self.read_parameter(names, part, false));
        }
    }

    fn read_parameter(&mut self, names: &Names, pair: &'a str, is_certain: bool) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name.len() <= 3 * MAX_NAME_BYTES
            && let Some(source) = names.get(&*decode_query(name))
        {
            self.add(*source, decode_query(value), is_certain);
        }
    }

    /// Some servers decode names and values of cookies, and take quotes away from values.
    fn read_cookie(&mut self, names: &Names, pair: &'a [u8]) {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = equals.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
        let (name, value) = (name.trim_ascii(), value.trim_ascii());
        if name.len() > 3 * MAX_NAME_BYTES {
            return;
        }
        let plain = names.get(name).copied();
        let of_decoded = decoded(name).find_map(|name| names.get(&*name).copied());
        let is_certain = equals.is_some();
        for (source, is_certain) in [(plain, is_certain), (of_decoded, false)] {
            let Some(source) = source else { continue };
            self.add(source, Cow::Borrowed(value), is_certain);
            let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            if let Some(bare) = bare {
                self.add(source, Cow::Borrowed(bare), false);
            }
            for value in std::iter::once(value).chain(bare) {
                decoded(value).for_each(|value| self.add(source, Cow::Owned(value), false));
            }
        }
    }
}

/// The ways in which servers decode a name or value of a cookie; none if it is the same decoded.
fn decoded(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let has_escape = text.contains(&b'%');
    let has_plus = text.contains(&b'+');
    let escapes = has_escape.then(|| percent_decode(text).collect::<Vec<u8>>());
    let form = has_plus.then(|| {
        let spaced = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte });
        percent_decode(&spaced.collect::<Vec<u8>>()).collect::<Vec<u8>>()
    });
    escapes.into_iter().chain(form)
}

/// Whether a `%` lacks its two digits.
fn has_malformed_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut percents = memchr::memchr_iter(b'%', bytes);
    percents.any(|at| bytes.get(at..).and_then(escape).is_none())
}

/// The number of a name whose bytes are changed first.
fn lookup_changed(names: &Names, name: &[u8], change: impl Fn(u8) -> u8) -> Option<u32> {
    let mut changed = [0; MAX_NAME_BYTES];
    let changed = changed.get_mut(..name.len())?;
    for (to, from) in changed.iter_mut().zip(name) {
        *to = change(*from);
    }
    names.get(&*changed).copied()
}
