//! Responses of the admin port: text, JSON and problem documents.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value, json};
use smallvec::SmallVec;

use crate::policy::errors::PROBLEM_JSON;

const TEXT: &str = "text/plain; charset=utf-8";

const JSON: &str = "application/json";

/// A response that is ready to be sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    kind: &'static str,
    body: Vec<u8>,
    /// Headers in addition to those that every response has.
    headers: SmallVec<[(HeaderName, HeaderValue); 2]>,
    /// What is wrong, of a problem document.
    detail: String,
    /// The change that the call made, for the log and the audit.
    pub(super) note: Option<String>,
    /// Ids of the clients that the change is about.
    pub(super) clients: Vec<String>,
    /// Ids of their tenants, each once.
    pub(super) tenants: Vec<String>,
}

impl Answer {
    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        Self::of(status, TEXT, text.as_bytes().to_vec())
    }

    /// A response with the given body.
    pub(super) fn of(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Self {
        Self {
            status,
            kind,
            body,
            headers: SmallVec::new(),
            detail: String::new(),
            note: None,
            clients: Vec::new(),
            tenants: Vec::new(),
        }
    }

    pub(super) fn json(value: &impl Serialize) -> Self {
        Self::json_with(StatusCode::OK, value)
    }

    /// A JSON response, indented for readers.
    pub(super) fn json_with(status: StatusCode, value: &impl Serialize) -> Self {
        let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
        body.push(b'\n');
        Self::of(status, JSON, body)
    }

    /// A JSON response in one line, for large values.
    pub(super) fn compact_json(status: StatusCode, value: &impl Serialize) -> Self {
        let mut body = serde_json::to_vec(value).unwrap_or_default();
        body.push(b'\n');
        Self::of(status, JSON, body)
    }

    /// A problem document (RFC 9457).
    pub(super) fn problem(status: StatusCode, detail: &str) -> Self {
        Self::problem_with(status, detail, Map::new())
    }

    /// A boxed problem document, for use as an error.
    pub(super) fn refusal(status: StatusCode, detail: &str) -> Box<Self> {
        Box::new(Self::problem(status, detail))
    }

    /// A problem document with additional members.
    pub(super) fn problem_with(
        status: StatusCode,
        detail: &str,
        members: Map<String, Value>,
    ) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        let mut problem = json!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
        });
        if let Value::Object(problem) = &mut problem {
            problem.extend(members);
        }
        let detail = detail.to_owned();
        Self { kind: PROBLEM_JSON, detail, ..Self::json_with(status, &problem) }
    }

    pub(super) fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// What is wrong, if this is a problem document.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// Adds a note for the log and the audit about the change that the call made.
    pub(super) fn noting(self, note: String) -> Self {
        Self { note: Some(note), ..self }
    }

    /// Adds the ids of the clients that the change is about, for the audit.
    pub(super) fn about(self, clients: Vec<String>) -> Self {
        Self { clients, ..self }
    }

    /// Adds the ids of the tenants of these clients, for the audit.
    pub(super) fn of_tenants<'a>(self, tenants: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tenants: Vec<String> = tenants.into_iter().map(str::to_owned).collect();
        tenants.sort_unstable();
        tenants.dedup();
        Self { tenants, ..self }
    }

    /// The HTTP response, without the body for a HEAD request.
    pub(super) fn response(self, is_head: bool) -> Response<Vec<u8>> {
        let length = self.body.len();
        let mut response = Response::new(if is_head { Vec::new() } else { self.body });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::CONTENT_LENGTH, length.into());
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
        headers.extend(self.headers);
        response
    }
}
