//! W3C Trace Context, Level 1: parses and formats `traceparent`, and validates `tracestate`.

use std::fmt;

use http::HeaderValue;
use serde::{Serialize, Serializer};

/// The header with the trace and the span of the caller.
pub const TRACEPARENT: &str = "traceparent";

/// The header with vendor-specific data of a trace.
pub const TRACESTATE: &str = "tracestate";

/// Length of a `traceparent` of version 00: `00-<trace>-<span>-<flags>`.
const LENGTH: usize = 55;

/// The flag of a recorded trace.
const SAMPLED: u8 = 1;

/// Maximum number of members of `tracestate`.
const MAX_MEMBERS: usize = 32;

/// Maximum length of the key of a member.
const MAX_KEY_BYTES: usize = 256;
/// Maximum length of the value of a member.
const MAX_VALUE_BYTES: usize = 256;

/// The id of a trace; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// The content of a `traceparent` header (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Id of the caller's trace.
    pub trace: TraceId,
    /// Id of the span of the caller.
    pub span: SpanId,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

impl TraceId {
    /// Returns the id with this number; `None` for 0.
    pub fn of(number: u128) -> Option<Self> {
        (number != 0).then(|| Self(number.to_be_bytes()))
    }

    /// Returns the bytes, most significant first.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns the last 64 bits, which are random.
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is the result")]
    pub fn random(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }
}

impl SpanId {
    /// Returns the id with this number; `None` for 0.
    pub fn of(number: u64) -> Option<Self> {
        (number != 0).then(|| Self(number.to_be_bytes()))
    }

    /// Returns the bytes, most significant first.
    pub fn bytes(self) -> [u8; 8] {
        self.0
    }
}

impl Parent {
    /// Parses a `traceparent`; `None` if it is invalid. Of a later version, the part that version
    /// 00 defines is parsed, as W3C demands.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let dashes = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        let version = lower_hex(known.get(..2)?)?;
        let fits = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !dashes || !fits {
            return None;
        }
        let trace = TraceId::of(lower_hex(known.get(3..35)?)?)?;
        let span = SpanId::of(u64::try_from(lower_hex(known.get(36..52)?)?).ok()?)?;
        let flags = u8::try_from(lower_hex(known.get(53..)?)?).ok()?;
        Some(Self { trace, span, is_sampled: flags & SAMPLED != 0 })
    }

    /// Formats the value of the header.
    pub fn header(&self) -> HeaderValue {
        let mut text = [b'-'; LENGTH];
        let flags = u8::from(self.is_sampled) * SAMPLED;
        for (at, bytes) in [(0, &[0][..]), (3, &self.trace.0), (36, &self.span.0), (53, &[flags])] {
            write_hex(&mut text, at, bytes);
        }
        // Digits and dashes are always valid in a header.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Whether the lines of `tracestate` are together a valid one: at most 32 members `key=value`, in
/// the syntax of W3C.
pub fn is_tracestate<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut count = 0;
    let members = lines.into_iter().flat_map(|line| line.split(|byte| *byte == b','));
    for member in members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty()) {
        count += 1;
        if count > MAX_MEMBERS || !is_member(member) {
            return false;
        }
    }
    true
}

fn is_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&member[..at], &member[at + 1..]);
    let is_first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_key = |byte: &u8| is_first(byte) || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@');
    // Commas and trailing spaces have been removed already.
    let is_value = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'=';
    let has_first = key.first().is_some_and(is_first);
    has_first
        && key.len() <= MAX_KEY_BYTES
        && key.iter().all(is_key)
        && (1..=MAX_VALUE_BYTES).contains(&value.len())
        && value.iter().all(is_value)
}

/// Parses at most 32 hexadecimal digits in lower case.
fn lower_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// Writes bytes as hexadecimal digits, beginning at index `at`.
fn write_hex(text: &mut [u8], at: usize, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, nibble) in text.iter_mut().skip(at).zip(nibbles) {
        *place = HEX.get(usize::from(nibble)).copied().unwrap_or_default();
    }
}

/// Formats an id as hexadecimal digits.
fn show(bytes: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0; 32];
    write_hex(&mut text, 0, bytes);
    let text = text.get(..2 * bytes.len()).unwrap_or_default();
    formatter.write_str(std::str::from_utf8(text).unwrap_or_default())
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, formatter)
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, formatter)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, formatter)
    }
}

#[cfg(test)]
mod tests;
