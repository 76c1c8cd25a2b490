//! Conditions of a route on a header, a query parameter or a cookie.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;

use super::matcher::RequestParts;
use super::request_values::{Values, values_of};
use crate::base::text::cut;

/// Longest name of a source, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// Where a condition finds its values. In the order in which conditions are kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A request header, by its name in lower case.
    Header(Box<str>),
    /// A parameter of the query, decoded.
    Query(Box<str>),
    /// A cookie.
    Cookie(Box<str>),
}

/// What the values of a source are compared with, byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// The value is this text.
    Is(Box<str>),
    /// The value begins with this text, which is not empty.
    Begins(Box<str>),
    /// There is a value, which may be empty.
    Present,
    /// There is none.
    Absent,
}

/// A condition of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub source: Source,
    pub test: Test,
    /// Whether the values in requests may be API keys or other secrets, which no text shows.
    pub is_secret: bool,
}

/// Whether a request meets a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    No,
    /// Some servers read a value that meets it, and others another, or none.
    Depends,
    Yes,
}

/// How specific a list of conditions is: the more specific of two is less. The number of all
/// conditions, of those that are a whole value, of those that are a prefix, and of the bytes of
/// these prefixes.
pub type Specificity = Reverse<(usize, usize, usize, usize)>;

/// See [`Specificity`].
pub fn specificity(conditions: &[Condition]) -> Specificity {
    let (mut whole, mut prefixes, mut bytes) = (0, 0, 0);
    for condition in conditions {
        match &condition.test {
            Test::Is(_) => whole += 1,
            Test::Begins(prefix) => {
                prefixes += 1;
                bytes += prefix.len();
            }
            Test::Present | Test::Absent => {}
        }
    }
    Reverse((conditions.len(), whole, prefixes, bytes))
}

/// Whether all of the conditions can hold for one request, which also meets all of the others. Each
/// list has at most one condition a source.
pub fn are_compatible(one: &[Condition], other: &[Condition]) -> bool {
    one.iter().all(|condition| {
        let same = other.iter().find(|other| other.source == condition.source);
        same.is_none_or(|other| {
            condition.test.implies(&other.test) || other.test.implies(&condition.test)
        })
    })
}

/// Conditions that hold exactly for the requests for which both lists hold. The lists are
/// compatible.
pub fn both(one: &[Condition], other: &[Condition]) -> Vec<Condition> {
    let mut both = one.to_vec();
    for condition in other {
        match both.iter_mut().find(|own| own.source == condition.source) {
            Some(own) if !own.test.implies(&condition.test) => own.test = condition.test.clone(),
            Some(_) => {}
            None => both.push(condition.clone()),
        }
    }
    both
}

/// Whether all requests that meet the first conditions meet the others.
pub fn imply(strict: &[Condition], others: &[Condition]) -> bool {
    others.iter().all(|other| {
        let same = strict.iter().find(|own| own.source == other.source);
        same.is_some_and(|own| own.test.implies(&other.test))
    })
}

impl Source {
    /// The name of the header, the parameter or the cookie.
    pub fn name(&self) -> &str {
        let (Self::Header(name) | Self::Query(name) | Self::Cookie(name)) = self;
        name
    }

    /// Whether a preflight request of a browser lacks the source, although the request that it is
    /// for may have it.
    pub const fn is_of_headers(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Cookie(_))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(formatter, "the header {name}"),
            Self::Query(name) => write!(formatter, "the query parameter {name}"),
            Self::Cookie(name) => write!(formatter, "the cookie {name}"),
        }
    }
}

impl Test {
    /// Whether every value that passes this test passes the other, and if no value does, none.
    /// Of two tests that one value passes, one implies the other.
    fn implies(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, _) | (_, Self::Absent) => self == other,
            (_, Self::Present) => true,
            (Self::Is(own), Self::Is(other)) => own == other,
            (Self::Is(own) | Self::Begins(own), Self::Begins(other)) => own.starts_with(&**other),
            (Self::Begins(_) | Self::Present, Self::Is(_)) | (Self::Present, Self::Begins(_)) => {
                false
            }
        }
    }

    /// Whether values pass the test.
    pub(super) fn outcome(&self, values: &Values<'_>) -> Outcome {
        let passes = |value: &Cow<'_, [u8]>| match self {
            Self::Is(text) => **value == *text.as_bytes(),
            Self::Begins(text) => value.starts_with(text.as_bytes()),
            Self::Present => true,
            Self::Absent => false,
        };
        let without = *self == Self::Absent;
        let (mut some, mut others) = (false, false);
        if values.may_be_absent() {
            some |= without;
            others |= !without;
        }
        for value in values.each() {
            let passes = passes(value);
            some |= passes;
            others |= !passes;
        }
        if values.has_more() && matches!(self, Self::Is(_) | Self::Begins(_)) {
            return Outcome::Depends;
        }
        match (some, others) {
            (true, false) => Outcome::Yes,
            (true, true) => Outcome::Depends,
            (false, _) => Outcome::No,
        }
    }
}

impl Condition {
    /// Whether a request meets the condition.
    pub fn outcome(&self, request: RequestParts<'_>) -> Outcome {
        self.test.outcome(&values_of(&self.source, request))
    }

    /// Why a request does not meet the condition, or not for sure; none if it does.
    pub fn why_not(&self, request: RequestParts<'_>) -> Option<String> {
        let values = values_of(&self.source, request);
        let source = &self.source;
        let wanted = match &self.test {
            Test::Is(text) => text.to_string(),
            Test::Begins(text) => format!("{text}*"),
            Test::Present | Test::Absent => String::new(),
        };
        Some(match (self.test.outcome(&values), &self.test, values.each()) {
            (Outcome::Yes, ..) => return None,
            (Outcome::Depends, _, [first, second, ..]) if !self.is_secret => {
                let (first, second) = (shown(first), shown(second));
                format!("{source} is {first} to some servers, and {second} to others")
            }
            (Outcome::Depends, ..) => format!("servers differ in how they read {source}"),
            (Outcome::No, Test::Absent, _) => format!("only for requests without {source}"),
            (Outcome::No, Test::Present, _) => format!("only for requests with {source}"),
            (Outcome::No, ..) if self.is_secret => {
                format!("{source} is not the one that the route is for")
            }
            (Outcome::No, _, []) => format!("only for requests in which {source} is {wanted}"),
            (Outcome::No, _, [value, ..]) => format!("{source} is {}, not {wanted}", shown(value)),
        })
    }
}

impl fmt::Display for Condition {
    /// `header x-version = 2`, with the whole value.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.source {
            Source::Header(name) => ("header", name),
            Source::Query(name) => ("query", name),
            Source::Cookie(name) => ("cookie", name),
        };
        match &self.test {
            Test::Is(text) => write!(formatter, "{kind} {name} = {text}"),
            Test::Begins(text) => write!(formatter, "{kind} {name} = {text}*"),
            Test::Present => write!(formatter, "{kind} {name}"),
            Test::Absent => write!(formatter, "no {kind} {name}"),
        }
    }
}

/// A value of a request, for people.
fn shown(value: &[u8]) -> String {
    if value.is_empty() { "empty".to_owned() } else { cut(&String::from_utf8_lossy(value), 64) }
}

#[cfg(test)]
mod tests;
