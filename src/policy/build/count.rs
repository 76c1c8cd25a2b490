//! `count` and `reserve` of a rule: what a request costs by its response.

use super::refund::of_requests_in_flight;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules as written;
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::limit::cost::Cost;
use crate::meter::{Source, Unreadable};

/// The word for requests, whose cost is known before they are forwarded.
const REQUESTS: &str = "requests";

/// Forms of `count`.
const FORMS: [&str; 6] =
    [REQUESTS, "header:<name>", "json:<path>", "request_bytes", "response_bytes", "duration_ms"];

/// Where the cost of a request is read; `None`: it is known before, or there is an error.
pub(super) fn count(table: &written::Rule, diagnostics: &mut Diagnostics) -> Option<Source> {
    let count = table.count.as_ref().filter(|count| count.get_ref() != REQUESTS);
    let Some(count) = count else {
        if let Some(reserve) = &table.reserve {
            let message = "`reserve` is for rules whose `count` reads the cost of a request";
            let help = "write `cost` instead, or add `count = \"json:usage.total_tokens\"`";
            diagnostics.push(Diagnostic::new(reserve.span(), message).help(help));
        }
        return None;
    };
    let source = match Source::parse(count.get_ref()) {
        Ok(source) => source,
        Err(error) => {
            diagnostics.push(unreadable(count, error));
            return None;
        }
    };
    if let Some(cost) = &table.cost {
        let message = "a request of this rule costs what `count` reads";
        let diagnostic = Diagnostic::new(cost.span(), message);
        let diagnostic = diagnostic.and(count.span(), "the cost".to_owned());
        diagnostics.push(diagnostic.help("write `reserve` for what it takes before that is known"));
    }
    if let Some(wrong) = of_requests_in_flight(table, "count", count.span()) {
        diagnostics.push(wrong);
        return None;
    }
    Some(source)
}

/// What a request takes before it is forwarded, if the rule says so.
pub(super) fn own_cost(table: &written::Rule) -> Option<Cost> {
    let is_read = table.count.as_ref().is_some_and(|count| count.get_ref() != REQUESTS);
    let written = written_cost(table).map(|cost| *cost.get_ref());
    written.or_else(|| is_read.then_some(Cost::ONE))
}

/// The setting of it: `reserve`, or else `cost`.
pub(super) fn written_cost(table: &written::Rule) -> Option<&Spanned<Cost>> {
    table.reserve.as_ref().or(table.cost.as_ref())
}

fn unreadable(count: &Spanned<String>, error: Unreadable) -> Diagnostic {
    let text = cut(count.get_ref(), 64);
    let (message, help) = match error {
        Unreadable::Form => (
            format!("`count` does not take `{text}`"),
            suggest::help_lines(count.get_ref(), &FORMS),
        ),
        Unreadable::Header => (
            format!("`{text}` does not end with the name of a header"),
            "such as `header:x-cost`".to_owned(),
        ),
        Unreadable::Path => (
            format!("`{text}` has no path to a number"),
            "write names with dots between them, without `$`, such as `json:usage.total_tokens`: at \
             most 8, of at most 64 bytes each"
                .to_owned(),
        ),
        Unreadable::TooManyPaths => (
            format!("`{text}` has more than 8 paths"),
            "write fewer paths, or let the API send the sum".to_owned(),
        ),
    };
    Diagnostic::new(count.span(), message).help(help)
}
