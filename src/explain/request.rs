//! A request by hand: what somebody asks about, as the request that a client would send.

use std::net::{IpAddr, Ipv4Addr};

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use pingora::prelude::RequestHeader;
use thiserror::Error;

use crate::config::suggest::cut;
use crate::decide::Head;
use crate::net::percent;
use crate::policy::Policy;
use crate::policy::settings::KeySource;

/// The host of a request that is asked about without one.
const HOST_ASSUMED: &str = "localhost";

/// The address of a request that is asked about without one.
const IP_ASSUMED: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What somebody asks about. Not `Debug`: it holds a key.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestSpec {
    /// Its method.
    pub method: String,
    /// Its target: a path, and a query if it has one.
    pub path: String,
    /// Its host; none: that of its headers, or one that is assumed.
    pub host: Option<String>,
    /// Its headers, in order.
    pub headers: Vec<(String, String)>,
    /// Its API key, which is put where the file looks first.
    pub key: Option<String>,
    /// The address of the connection's other end; none: one that is assumed.
    pub ip: Option<IpAddr>,
}

/// Why somebody asks about what no client could send. Holds nothing of a key or a header's value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Not a method.
    #[error("`{0}` is not a method; write it like `GET`")]
    Method(String),
    /// A path that cannot stand on a request's first line.
    #[error("the path holds a space or a control character; write it encoded, such as `%20`")]
    PathCharacter,
    /// A path that no request can have.
    #[error("the path is nothing that a request can ask for; write it like `/api/search`")]
    Path,
    /// Not the name of a header.
    #[error("`{0}` is not the name of a header")]
    HeaderName(String),
    /// Not the value of a header.
    #[error("the value of the header `{0}` holds a control character")]
    HeaderValue(String),
    /// A host that no header can hold.
    #[error("the host holds a control character")]
    Host,
    /// Two hosts.
    #[error("the host is given twice, by itself and as a header; give it once")]
    TwoHosts,
    /// A key that cannot be sent.
    #[error("no client can send this key: HTTP carries no control characters")]
    Key,
}

/// A request that nobody sent.
pub struct HypotheticalRequest {
    parts: Parts,
    target: Vec<u8>,
    peer: IpAddr,
    /// Whether the host is assumed.
    pub host_is_assumed: bool,
    /// Whether the address is assumed.
    pub ip_is_assumed: bool,
}

impl Default for RequestSpec {
    /// `GET /` by nobody.
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            host: None,
            headers: Vec::new(),
            key: None,
            ip: None,
        }
    }
}

impl RequestSpec {
    /// The request that a client would send.
    ///
    /// # Errors
    /// No client could.
    pub fn request(&self, policy: &Policy) -> Result<HypotheticalRequest, SpecError> {
        let method = Method::from_bytes(self.method.as_bytes())
            .map_err(|_| SpecError::Method(cut(&self.method, 32)))?;
        let source = self.key.as_ref().and(policy.clients.key_sources.first());
        let path = match (source, &self.key) {
            (Some(KeySource::Query(name)), Some(key)) => with_parameter(&self.path, name, key),
            _ => self.path.clone(),
        };
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(SpecError::PathCharacter);
        }
        // As the server reads it from the wire.
        let read = RequestHeader::build(method, path.as_bytes(), None);
        let read = read.map_err(|_| SpecError::Path)?;
        let mut parts = read.as_owned_parts();
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| SpecError::HeaderName(cut(name, 64)))?;
            let value = HeaderValue::from_bytes(value.trim().as_bytes())
                .map_err(|_| SpecError::HeaderValue(name.to_string()))?;
            parts.headers.append(name, value);
        }
        let key = self.key.as_deref().unwrap_or_default();
        let (name, value) = match source {
            Some(KeySource::Header(name)) => (Some(name), key.to_owned()),
            Some(KeySource::Bearer) => (Some(&AUTHORIZATION), format!("Bearer {key}")),
            Some(KeySource::Query(_)) | None => (None, String::new()),
        };
        if let Some(name) = name {
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| SpecError::Key)?;
            parts.headers.append(name, value);
        }
        let host_is_assumed = self.set_host(&mut parts)?;
        Ok(HypotheticalRequest {
            target: read.raw_path().to_vec(),
            parts,
            peer: self.ip.unwrap_or(IP_ASSUMED),
            host_is_assumed,
            ip_is_assumed: self.ip.is_none(),
        })
    }

    /// Puts the host where clients put it. Returns whether it is assumed.
    fn set_host(&self, parts: &mut Parts) -> Result<bool, SpecError> {
        let in_headers = parts.headers.contains_key(HOST);
        let host = match &self.host {
            Some(_) if in_headers => return Err(SpecError::TwoHosts),
            None if in_headers => return Ok(false),
            Some(host) => HeaderValue::from_str(host).map_err(|_| SpecError::Host)?,
            None => HeaderValue::from_static(HOST_ASSUMED),
        };
        parts.headers.insert(HOST, host);
        Ok(self.host.is_none())
    }
}

impl HypotheticalRequest {
    /// What it says of itself.
    pub fn head(&self) -> Head<'_> {
        let has = |name| self.parts.headers.contains_key(name);
        let has_conflicting_lengths = has(CONTENT_LENGTH) && has(TRANSFER_ENCODING);
        Head::of(&self.parts, &self.target, Some(self.peer), has_conflicting_lengths)
    }
}

/// A target with one more parameter in its query.
fn with_parameter(target: &str, name: &str, value: &str) -> String {
    let separator = if target.contains('?') { '&' } else { '?' };
    format!("{target}{separator}{name}={}", percent::encode_component(value))
}
