//! Bodies of the gateway's own errors (`[errors.429]`, `[errors.5xx]`), instead of problem
//! documents. Pure.
//!
//! Reading order: [`Errors`] here (which body a response has), `accept` (what a client asks for),
//! `template` (the text of a body, with values of the request), `html` (where its values can be).

pub mod accept;
mod html;
pub mod template;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};

use accept::Accept;
use template::{ErrorTemplate, Escape};

/// Media type of problem documents.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Bodies by status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    /// Of single statuses. They include those of the class for other media types.
    pub by_status: HashMap<u16, Bodies>,
    /// Of all other statuses from 400 to 499.
    pub client: Bodies,
    /// Of all other statuses from 500 to 599.
    pub server: Bodies,
}

/// The bodies of one status, one for each media type, in the order of the file.
pub type Bodies = Vec<Arc<ErrorBody>>;

/// A body of one media type.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorBody {
    /// In lower case, without parameters.
    pub media_type: Box<str>,
    /// The same, with a charset where it has one.
    pub content_type: HeaderValue,
    /// The text.
    pub template: ErrorTemplate,
}

impl Errors {
    /// The body of a response with this status to a request with these headers; `None`: a problem
    /// document.
    ///
    /// The media type with the highest quality in `Accept` is chosen. Of several, the one that is
    /// named rather than matched by a range, then the default, then the first of the file. The
    /// default is the body of `application/json`, else the first other JSON, else the problem
    /// document. It is also chosen if nothing matches, and without `Accept`.
    pub fn body(&self, status: StatusCode, request: &HeaderMap) -> Option<&ErrorBody> {
        let bodies = self.of(status);
        let named = bodies.iter().find(|body| *body.media_type == *accept::JSON);
        let default = named.or_else(|| bodies.iter().find(|body| body.is_json()));
        let Some(accept) = Accept::of(request).filter(|_| !bodies.is_empty()) else {
            return default.map(Arc::as_ref);
        };
        let (mut chosen, mut most) = (default, None);
        // The default occurs twice: the first of equals is chosen.
        for body in std::iter::once(default).chain(bodies.iter().map(Some)).chain([None]) {
            let preference = match body {
                Some(body) => accept.preference(&body.media_type, body.is_json()),
                None => accept.preference(PROBLEM_JSON, true),
            };
            if preference > most {
                (chosen, most) = (body, preference);
            }
        }
        chosen.map(Arc::as_ref)
    }

    /// The statuses that have bodies, and their media types: `429: text/html`.
    pub fn words(&self) -> Vec<String> {
        let words = |status: &str, bodies: &Bodies| {
            let types: Vec<&str> = bodies.iter().map(|body| &*body.media_type).collect();
            (!types.is_empty()).then(|| format!("{status}: {}", types.join(", ")))
        };
        let mut statuses: Vec<_> = self.by_status.iter().collect();
        statuses.sort_unstable_by_key(|(status, _)| **status);
        let single = statuses.into_iter();
        let single = single.filter_map(|(status, bodies)| words(&status.to_string(), bodies));
        let classes = [words("4xx", &self.client), words("5xx", &self.server)];
        single.chain(classes.into_iter().flatten()).collect()
    }

    /// The bodies of a status.
    pub fn of(&self, status: StatusCode) -> &[Arc<ErrorBody>] {
        match self.by_status.get(&status.as_u16()) {
            Some(bodies) => bodies,
            None if status.is_client_error() => &self.client,
            None if status.is_server_error() => &self.server,
            None => &[],
        }
    }
}

impl ErrorBody {
    fn is_json(&self) -> bool {
        self.template.escape() == Escape::Json
    }
}
