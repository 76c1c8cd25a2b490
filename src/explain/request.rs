//! The request to explain: its parts, and the request that a client would send.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use pingora::prelude::RequestHeader;
use thiserror::Error;

use crate::base::text::cut;
use crate::client::credential::Credential;
use crate::client::principal::Principal;
use crate::client::settings::KeySource;
use crate::config::suggest;
use crate::decide::Head;
use crate::decide::raw_head::RawHead;
use crate::net::percent;
use crate::net::url_target::UrlTarget;
use crate::policy::Policy;

/// Host of a request if none is given.
const HOST_ASSUMED: &str = "localhost";

/// Address of a client if none is given.
const IP_ASSUMED: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The parts of a request to explain. Not `Debug`: it contains a key.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestSpec {
    /// Method, such as `GET`.
    pub method: String,
    /// Path, with the query if there is one.
    pub path: String,
    /// Host; `None`: that of the headers, or of a URL as path, or `localhost`.
    pub host: Option<String>,
    /// Names and values of headers, in the order in which they are sent.
    pub headers: Vec<(String, String)>,
    /// API key, sent in the first place that `clients.api_key` lists.
    pub key: Option<String>,
    /// Id of the key that the request is assumed to have, in the same place, instead of `key`.
    pub key_id: Option<String>,
    /// Address of the client's end of the connection; `None`: 127.0.0.1.
    pub ip: Option<IpAddr>,
    /// Subject of the client's certificate, as text of RFC 4514; `None`: no certificate.
    pub cert: Option<String>,
}

/// Why no client could send the request. Contains neither the key nor the value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The method is empty or has a character that methods cannot contain.
    #[error("`{0}` is not a method; write it like `GET`")]
    Method(String),
    /// A path with characters that are not valid on a request line.
    #[error("the path contains a space or a control character; percent-encode it, such as `%20`")]
    PathCharacter,
    /// The path cannot be parsed as the target of a request.
    #[error("the path is not valid; write it like `/api/search`")]
    Path,
    /// The name of this header is not valid.
    #[error("`{0}` is not the name of a header")]
    HeaderName(String),
    /// The value of the header of this name contains a control character.
    #[error("the value of the header `{0}` contains a control character")]
    HeaderValue(String),
    /// A host that is not valid in a header.
    #[error("the host contains a control character")]
    Host,
    /// The host is given as `host` and as a `Host` header.
    #[error("the host is given twice, as a host and as a header; give it once")]
    TwoHosts,
    /// The key contains a control character, so no header can carry it.
    #[error("no client can send this key: it contains a control character")]
    Key,
    /// The file has no key with this id.
    #[error("the file has no key `{name}`: {help}")]
    UnknownKeyId {
        /// The id, shortened.
        name: String,
        /// The id that may be meant.
        help: String,
    },
    /// A key and the id of one, or the id of a key and a request that already has one.
    #[error("the request has a key and the id of a key; give one of them")]
    TwoKeys,
}

/// A request that is not sent.
pub struct HypotheticalRequest {
    parts: Parts,
    target: Vec<u8>,
    peer: IpAddr,
    cert: Option<String>,
    /// The client whose key the request is assumed to have.
    pub assumed_key: Option<Arc<Principal>>,
    pub host_is_assumed: bool,
    /// Whether the address is assumed.
    pub ip_is_assumed: bool,
}

impl Default for RequestSpec {
    /// `GET /` without a key.
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            host: None,
            headers: Vec::new(),
            key: None,
            key_id: None,
            ip: None,
            cert: None,
        }
    }
}

impl RequestSpec {
    /// Builds the request that a client would send.
    ///
    /// # Errors
    /// If no client could send it.
    pub fn request(&self, policy: &Policy) -> Result<HypotheticalRequest, SpecError> {
        self.request_of(policy, None)
    }

    /// The same, where `stored` is the client of the key store with the id `key_id`.
    ///
    /// # Errors
    /// If no client could send it.
    pub fn request_of(
        &self,
        policy: &Policy,
        stored: Option<Arc<Principal>>,
    ) -> Result<HypotheticalRequest, SpecError> {
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
        // Parsed as the server parses it from the wire.
        let parsed = RequestHeader::build(method, path.as_bytes(), None);
        let parsed = parsed.map_err(|_| SpecError::Path)?;
        let mut parts = parsed.as_owned_parts();
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
            Some(KeySource::Basic) => {
                (Some(&AUTHORIZATION), format!("Basic {}", STANDARD.encode(key)))
            }
            Some(KeySource::Query(_)) | None => (None, String::new()),
        };
        if let Some(name) = name {
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| SpecError::Key)?;
            parts.headers.append(name, value);
        }
        let host_is_assumed = self.set_host(&mut parts)?;
        let assumed_key = self.assumed_key(policy, stored, &parts)?;
        Ok(HypotheticalRequest {
            assumed_key,
            target: parsed.raw_path().to_vec(),
            parts,
            peer: self.ip.unwrap_or(IP_ASSUMED),
            cert: self.cert.clone(),
            host_is_assumed,
            ip_is_assumed: self.ip.is_none(),
        })
    }

    /// The client with the id `key_id`. The request must not have a key besides.
    fn assumed_key(
        &self,
        policy: &Policy,
        stored: Option<Arc<Principal>>,
        parts: &Parts,
    ) -> Result<Option<Arc<Principal>>, SpecError> {
        let Some(id) = &self.key_id else { return Ok(None) };
        let found = Credential::of(&policy.clients, &parts.headers, parts.uri.query());
        if self.key.is_some() || found.is_ok_and(|credential| credential.is_some()) {
            return Err(SpecError::TwoKeys);
        }
        let unknown = || {
            let ids: Vec<&str> = policy.keys.all().iter().map(|key| &*key.id).collect();
            SpecError::UnknownKeyId { name: cut(id, 64), help: suggest::help(id, &ids) }
        };
        policy.keys.named(id).cloned().or(stored).map(Some).ok_or_else(unknown)
    }

    /// Sets the `Host` header. Returns whether the host is assumed.
    fn set_host(&self, parts: &mut Parts) -> Result<bool, SpecError> {
        let in_headers = parts.headers.contains_key(HOST);
        let host = match &self.host {
            Some(_) if in_headers => return Err(SpecError::TwoHosts),
            None if in_headers => return Ok(false),
            Some(host) => HeaderValue::from_str(host).map_err(|_| SpecError::Host)?,
            None => match UrlTarget::of(self.path.as_bytes()) {
                Some(url) => HeaderValue::from_bytes(url.authority).map_err(|_| SpecError::Host)?,
                None => HeaderValue::from_static(HOST_ASSUMED),
            },
        };
        parts.headers.insert(HOST, host);
        Ok(self.host.is_none() && UrlTarget::of(self.path.as_bytes()).is_none())
    }
}

impl HypotheticalRequest {
    pub fn head(&self) -> Head<'_> {
        let has = |name| self.parts.headers.contains_key(name);
        let raw = if has(CONTENT_LENGTH) && has(TRANSFER_ENCODING) {
            RawHead::ConflictingLengths
        } else {
            RawHead::Plain
        };
        Head::of(&self.parts, &self.target, Some(self.peer), raw)
            .with_certificate(self.cert.as_deref())
    }
}

/// Adds a parameter to the query of a target.
fn with_parameter(target: &str, name: &str, value: &str) -> String {
    let separator = if target.contains('?') { '&' } else { '?' };
    format!("{target}{separator}{name}={}", percent::encode_component(value))
}
