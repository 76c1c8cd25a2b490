//! Cross-origin resource sharing (Fetch standard, section "CORS protocol"): which pages of other
//! sites may use the API from browsers, and what responses say about it. Pure.
//!
//! Reading order: [`Cors`] here, `origin` (the origins that are allowed), `tests`.

pub mod origin;

#[cfg(test)]
mod tests;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use smallvec::SmallVec;

use crate::net::vary;
use origin::OriginPattern;

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";
const ALLOW_METHODS: &str = "Access-Control-Allow-Methods";
const ALLOW_HEADERS: &str = "Access-Control-Allow-Headers";
const EXPOSE_HEADERS: &str = "Access-Control-Expose-Headers";
const MAX_AGE: &str = "Access-Control-Max-Age";

/// Prefix of the names of all these headers.
const FAMILY: &str = "access-control-";

/// What the response to a preflight request depends on.
const VARY_OF_PREFLIGHT: &str =
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

/// Headers of responses, each with its name as it is written.
pub type Headers = SmallVec<[(&'static str, HeaderValue); 6]>;

/// `[cors]`, or `cors` of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cors {
    /// The origins of the pages.
    pub origins: Origins,
    /// The methods that pages may use; `None`: all.
    pub methods: Option<Box<[Method]>>,
    /// The request headers that pages may set, as a list in one value; `None`: those that a page
    /// asks for.
    pub headers: Option<HeaderValue>,
    /// The response headers that pages can read.
    pub exposed: Exposed,
    /// Whether browsers send cookies, client certificates and logins of HTTP. Never with
    /// [`Origins::Any`].
    pub credentials: bool,
    /// How long browsers keep the response to a preflight request, in seconds.
    pub max_age_s: u64,
}

/// The origins of the pages that may use the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// `*`: all, also those that have none.
    Any,
    /// These, at least one.
    Listed(Box<[OriginPattern]>),
}

/// Names of headers that pages can read, as a list in one value each; `None`: no others than those
/// that browsers always show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exposed {
    pub plain: Option<HeaderValue>,
    /// In responses to calls of gRPC-Web, whose outcome can be in headers.
    pub grpc_web: Option<HeaderValue>,
}

/// A preflight request: a browser asks whether a page may send another request. It carries no
/// credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight<'a> {
    origin: &'a HeaderValue,
    /// The method of the other request.
    pub method: Method,
}

/// Why a preflight request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreflightRefusal {
    /// The origin is not one of [`Cors::origins`].
    Origin,
    /// The method is not one of [`Cors::methods`].
    Method,
}

impl<'a> Preflight<'a> {
    /// The preflight request that a request with this method and these headers is. One with several
    /// origins or methods is none: browsers send one of each.
    pub fn of(method: &Method, headers: &'a HeaderMap) -> Option<Self> {
        if *method != Method::OPTIONS {
            return None;
        }
        let origin = only(headers, &header::ORIGIN)?;
        let asked = only(headers, &header::ACCESS_CONTROL_REQUEST_METHOD)?;
        Some(Self { origin, method: Method::from_bytes(asked.as_bytes()).ok()? })
    }
}

impl Cors {
    /// Why a preflight request is refused; `None`: it is not.
    pub fn refusal(&self, preflight: &Preflight<'_>) -> Option<PreflightRefusal> {
        if !self.origins.allow(preflight.origin) {
            return Some(PreflightRefusal::Origin);
        }
        let is_listed = |methods: &[Method]| methods.contains(&preflight.method);
        let is_allowed = self.methods.as_deref().is_none_or(is_listed);
        (!is_allowed).then_some(PreflightRefusal::Method)
    }

    /// The headers of the response to a request with these headers. None if the request has no
    /// origin, another one, or several; if all origins are allowed, all responses have them, so
    /// that a cache may use one for every request.
    pub fn of_response(&self, request: &HeaderMap) -> Headers {
        let mut headers = self.of_origin(request);
        let Exposed { plain, grpc_web } = &self.exposed;
        let exposed = if is_grpc_web(request) { grpc_web } else { plain };
        if let (false, Some(names)) = (headers.is_empty(), exposed) {
            headers.push((EXPOSE_HEADERS, names.clone()));
        }
        headers
    }

    /// The headers of the response to a preflight request that is not refused.
    pub fn of_preflight(&self, preflight: &Preflight<'_>, request: &HeaderMap) -> Headers {
        let mut headers = self.of_origin(request);
        // The method that was asked for, not the list: other methods may have other routes, whose
        // settings differ, and browsers keep this response for the URL.
        if let Ok(method) = HeaderValue::from_str(preflight.method.as_str()) {
            headers.push((ALLOW_METHODS, method));
        }
        let names = self.headers.clone().or_else(|| requested_headers(request));
        if let Some(names) = names.filter(|names| !names.is_empty()) {
            headers.push((ALLOW_HEADERS, names));
        }
        headers.push((MAX_AGE, self.max_age_s.into()));
        headers
    }

    fn of_origin(&self, request: &HeaderMap) -> Headers {
        let mut headers = Headers::new();
        let origin = match &self.origins {
            Origins::Any => Some(HeaderValue::from_static("*")),
            // A copy: the value shares a buffer with the rest of the request.
            origins @ Origins::Listed(_) => only(request, &header::ORIGIN)
                .filter(|origin| origins.allow(origin))
                .and_then(|origin| HeaderValue::from_bytes(origin.as_bytes()).ok()),
        };
        if let Some(origin) = origin {
            headers.push((ALLOW_ORIGIN, origin));
            if self.credentials {
                headers.push((ALLOW_CREDENTIALS, HeaderValue::from_static("true")));
            }
        }
        headers
    }

    /// The `Vary` of a response that has this one already, if it has to change: a response depends
    /// on the origin unless all are allowed.
    pub fn vary(&self, response: &HeaderMap, is_preflight: bool) -> Option<HeaderValue> {
        if is_preflight {
            return Some(HeaderValue::from_static(VARY_OF_PREFLIGHT));
        }
        if self.origins == Origins::Any {
            return None;
        }
        vary::also(response, &header::ORIGIN)
    }

    /// In a few words: the origins, and whether credentials are allowed.
    pub fn words(&self) -> String {
        let origins = match &self.origins {
            Origins::Any => "any origin".to_owned(),
            Origins::Listed(origins) => {
                let each: Vec<String> = origins.iter().map(ToString::to_string).collect();
                each.join(", ")
            }
        };
        let credentials = if self.credentials { ", with credentials" } else { "" };
        format!("cors: {origins}{credentials}")
    }
}

impl Origins {
    /// Whether a value of the header `Origin` is allowed.
    pub fn allow(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(patterns) => {
                origin.to_str().is_ok_and(|origin| origin::is_listed(patterns, origin))
            }
        }
    }
}

/// Whether a response header is one that [`Cors`] decides on.
pub fn is_of_cors(name: &HeaderName) -> bool {
    name.as_str().starts_with(FAMILY)
}

/// The value of a header that a request has once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Whether a request is a call of gRPC-Web.
fn is_grpc_web(request: &HeaderMap) -> bool {
    let kind = request.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc-web"))
}

/// The names of headers that a preflight request asks for, in one value; `None` if there are none,
/// or if one of them is not a name.
fn requested_headers(request: &HeaderMap) -> Option<HeaderValue> {
    let lines = request.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let mut list: Vec<u8> = Vec::new();
    for name in names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
        HeaderName::from_bytes(name).ok()?;
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(name);
    }
    if list.is_empty() { None } else { HeaderValue::from_bytes(&list).ok() }
}
