//! `path_regex`: regular expressions for paths.
//!
//! An expression is compiled to a complete automaton of limited size. A search takes one step for
//! each byte of the path, whatever the expression, and allocates nothing.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use regex_automata::Anchored;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::{primitives::StateID, start, syntax};

/// Largest size of the automaton of an expression in memory, in bytes.
const MAX_AUTOMATON_BYTES: usize = 256 << 10;

/// Longest expression, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 1024;

/// Number of steps that all searches for one request may take together. A step takes one or two
/// nanoseconds.
const MAX_STEPS: usize = 256 << 10;

/// A regular expression. Two are equal if their texts are.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    automaton: Arc<dense::DFA<Vec<u32>>>,
    start: start::Config,
}

/// Why a text is not an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpressionError {
    /// Why the text is malformed, or what it uses that is not there.
    Syntax(String),
    /// The automaton is larger than is allowed.
    TooLarge,
}

/// The steps that are left to the searches for one request.
#[derive(Debug)]
pub(super) struct StepsLeft(Cell<usize>);

/// The searches for a request take too many steps.
#[derive(Debug)]
pub(super) struct OutOfSteps;

impl Default for StepsLeft {
    fn default() -> Self {
        Self(Cell::new(MAX_STEPS))
    }
}

impl Expression {
    /// Compiles an expression in the syntax of the crate `regex`, without Unicode classes: `\w`,
    /// `\d`, `.` and `[^…]` match bytes, `.` any byte.
    ///
    /// # Errors
    /// See [`ExpressionError`].
    pub fn parse(text: &str, ignore_case: bool) -> Result<Self, ExpressionError> {
        let syntax = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .case_insensitive(ignore_case)
            // Else a line break at the end of a path would get it another route.
            .dot_matches_new_line(true)
            .nest_limit(50);
        let nfa = thompson::Compiler::new()
            .syntax(syntax)
            .configure(
                thompson::Config::new()
                    .utf8(false)
                    .nfa_size_limit(Some(MAX_AUTOMATON_BYTES))
                    .which_captures(WhichCaptures::None),
            )
            .build(text);
        let nfa = nfa.map_err(|error| match error.size_limit() {
            Some(_) => ExpressionError::TooLarge,
            None => ExpressionError::Syntax(cause(&error)),
        })?;
        // A search that begins anywhere never fails before the end of the path.
        let (kind, anchored) = if nfa.is_always_start_anchored() {
            (StartKind::Anchored, Anchored::Yes)
        } else {
            (StartKind::Unanchored, Anchored::No)
        };
        let config = dense::Config::new()
            .start_kind(kind)
            .accelerate(false)
            .dfa_size_limit(Some(MAX_AUTOMATON_BYTES))
            .determinize_size_limit(Some(4 * MAX_AUTOMATON_BYTES));
        let automaton = dense::Builder::new().configure(config).build_from_nfa(&nfa);
        let automaton = automaton.map_err(|error| {
            if error.is_size_limit_exceeded() {
                ExpressionError::TooLarge
            } else {
                ExpressionError::Syntax(cause(&error))
            }
        })?;
        let start = start::Config::new().anchored(anchored);
        Ok(Self { text: text.into(), automaton: Arc::new(automaton), start })
    }

    /// The text in the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a path matches, however long the search takes.
    pub fn matches(&self, path: &str) -> bool {
        self.matches_within(path, &StepsLeft(Cell::new(usize::MAX))).unwrap_or(false)
    }

    /// Whether a path matches. `path` begins with a slash, else it does not.
    pub(super) fn matches_within(&self, path: &str, left: &StepsLeft) -> Result<bool, OutOfSteps> {
        let automaton = &*self.automaton;
        let Ok(mut state) = automaton.start_state(&self.start) else { return Ok(false) };
        if !path.starts_with('/') {
            return Ok(false);
        }
        let mut taken = 0;
        let mut found = None;
        for byte in path.bytes() {
            taken += 1;
            state = automaton.next_state(state, byte);
            if automaton.is_special_state(state) {
                found = ended(automaton, state);
                if found.is_some() {
                    break;
                }
            }
            if taken > left.0.get() {
                return Err(OutOfSteps);
            }
        }
        left.0.set(left.0.get() - taken.min(left.0.get()));
        Ok(found.unwrap_or_else(|| automaton.is_match_state(automaton.next_eoi_state(state))))
    }
}

/// Whether a search that has come to this state has found a match, or none; none if it is not over.
fn ended(automaton: &dense::DFA<Vec<u32>>, state: StateID) -> Option<bool> {
    if automaton.is_match_state(state) {
        return Some(true);
    }
    (automaton.is_dead_state(state) || automaton.is_quit_state(state)).then_some(false)
}

/// The innermost cause of an error, in one line. That of the parser ends with the reason.
fn cause(error: &dyn std::error::Error) -> String {
    let innermost = std::iter::successors(Some(error), |error| error.source()).last();
    let text = innermost.map(ToString::to_string).unwrap_or_default();
    let line = text.lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl std::hash::Hash for Expression {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Expression({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, path: &str) -> bool {
        Expression::parse(text, false).unwrap().matches(path)
    }

    #[test]
    fn expression_is_searched_for_unless_it_is_anchored() {
        let table = [
            ("^/v[0-9]+/search$", "/v12/search", true),
            ("^/v[0-9]+/search$", "/v12/search/", false),
            ("^/v[0-9]+/search$", "/x/v1/search", false),
            ("^/v[0-9]+/search$", "/v/search", false),
            ("search", "/v1/search/x", true),
            ("search$", "/search/x", false),
            ("^/(a|b)*$", "/", true),
            ("^/a|b$", "/x/b", true),
            ("", "/", true),
            ("^$", "/", false),
            (r"^/\d{3}$", "/123", true),
            (r"^/\w+$", "/\u{fc}", false),
            ("^/\u{fc}$", "/\u{fc}", true),
            (r"\bx\b", "/a-x", true),
            ("^/A", "/a", false),
            ("^/a/.*$", "/a/b\n", true),
            ("^/a$", "/a\n", false),
        ];
        for (text, path, expected) in table {
            assert_eq!(matches(text, path), expected, "{text} {path}");
        }
        assert!(Expression::parse("^/A", true).unwrap().matches("/a"));
    }

    #[test]
    fn what_has_no_small_automaton_is_refused() {
        for text in [r"(a|b)*a(a|b){20}", r"((a{1000}){1000}){1000}", r"[a-z]{1000}x.{500}y.{500}"]
        {
            assert_eq!(Expression::parse(text, false).unwrap_err(), ExpressionError::TooLarge);
        }
        for text in ["(", "a{2,1}", r"(a)\1", "(?=a)", "[z-a]", "\\p{Greek}"] {
            let error = Expression::parse(text, false).unwrap_err();
            assert!(matches!(&error, ExpressionError::Syntax(why) if !why.is_empty()), "{error:?}");
        }
    }

    #[test]
    fn searches_for_one_request_have_a_number_of_steps() {
        let expression = Expression::parse("x$", false).unwrap();
        let path = format!("/{}", "a".repeat(8191));
        let left = StepsLeft::default();
        let searches = (0..100).take_while(|_| expression.matches_within(&path, &left).is_ok());
        assert_eq!(searches.count(), MAX_STEPS / path.len());
        // An anchored one ends where it cannot match any more.
        let expression = Expression::parse("^/b.*x$", false).unwrap();
        let left = StepsLeft::default();
        assert!((0..10_000).all(|_| expression.matches_within(&path, &left).is_ok()));
    }
}
