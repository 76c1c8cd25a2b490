//! What a response says that its request cost, read while it passes. Pure.
//!
//! Reading order: `source` (where it is read), `json` and `events` (numbers in JSON, and in streams
//! of events), this file (a meter of one response).

mod events;
mod json;
mod source;

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};

use crate::limit::cost::Amount;
use events::Events;
use json::Scanner;
pub use source::{Source, Sum, Unreadable};

/// Reads the cost of one request. Its memory does not depend on the response.
#[derive(Debug)]
pub struct Meter {
    source: Arc<Source>,
    reading: Reading,
}

/// How a meter reads a response.
#[derive(Debug)]
enum Reading {
    /// A number in the head or the trailers, once it is there.
    Head(Option<Amount>),
    Json(Scanner),
    Events(Events),
    /// It has no number that can be read.
    Unreadable,
    /// Bytes of the body so far.
    Bytes(u64),
    /// Its cost follows from [`Totals`].
    Nothing,
}

/// What a cost may depend on beside the response.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Bytes of the body of the request.
    pub request_bytes: u64,
    /// Milliseconds that the request has taken.
    pub duration_ms: u64,
}

impl Meter {
    /// A meter of a response with this head.
    pub fn new(source: Arc<Source>, head: &HeaderMap) -> Self {
        let reading = match &*source {
            Source::Header(name) => Reading::Head(head.get(name).and_then(number)),
            Source::Json(sum) => Reading::of_json(sum, head),
            Source::ResponseBytes => Reading::Bytes(0),
            Source::RequestBytes | Source::DurationMs => Reading::Nothing,
        };
        Self { source, reading }
    }

    /// Reads the next part of the body.
    pub fn read_body(&mut self, part: &[u8]) {
        match &mut self.reading {
            Reading::Json(scanner) => scanner.read(part),
            Reading::Events(events) => events.read(part),
            Reading::Bytes(bytes) => {
                *bytes = bytes.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
            }
            Reading::Head(_) | Reading::Unreadable | Reading::Nothing => {}
        }
    }

    /// Reads the trailers.
    pub fn read_trailers(&mut self, trailers: &HeaderMap) {
        if let (Source::Header(name), Reading::Head(found)) = (&*self.source, &mut self.reading) {
            *found = trailers.get(name).and_then(number).or(*found);
        }
    }

    /// The cost, after the last part of the response or of what has come of it; `None` if it does
    /// not say so.
    pub fn cost(&mut self, totals: Totals) -> Option<Amount> {
        match (&*self.source, &mut self.reading) {
            (Source::RequestBytes, _) => Some(Amount::of_tokens(totals.request_bytes)),
            (Source::DurationMs, _) => Some(Amount::of_tokens(totals.duration_ms)),
            (_, Reading::Bytes(bytes)) => Some(Amount::of_tokens(*bytes)),
            (_, Reading::Head(found)) => *found,
            (Source::Json(sum), Reading::Json(scanner)) => sum_of(sum, scanner),
            (Source::Json(sum), Reading::Events(events)) => sum_of(sum, &mut events.scanner),
            _ => None,
        }
    }
}

impl Reading {
    fn of_json(sum: &Sum, head: &HeaderMap) -> Self {
        let is_coded = head
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let media_type = head.get(header::CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
        let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let media_type = media_type.trim_ascii().to_ascii_lowercase();
        let is_json = media_type.ends_with(b"json") || media_type == b"application/json-seq";
        match media_type.as_slice() {
            _ if is_coded => Self::Unreadable,
            b"text/event-stream" => Self::Events(Events::new(Scanner::new(sum.paths()))),
            _ if is_json => Self::Json(Scanner::new(sum.paths())),
            _ => Self::Unreadable,
        }
    }
}

/// The sum of the terms that have a number; `None` if none has.
fn sum_of(sum: &Sum, scanner: &mut Scanner) -> Option<Amount> {
    scanner.end();
    let mut index = 0;
    let mut total: Option<Amount> = None;
    for term in &sum.terms {
        let numbers = index..index + term.len();
        index += term.len();
        if let Some(number) = numbers.into_iter().find_map(|at| scanner.number(at)) {
            total = Some(total.map_or(number, |total| total.plus(number)));
        }
    }
    total
}

/// A number above or equal to 0, as a header has it.
fn number(value: &HeaderValue) -> Option<Amount> {
    Amount::of_json(value.to_str().ok()?.trim())
}

#[cfg(test)]
mod tests;
