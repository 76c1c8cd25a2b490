//! What a route does with its requests and responses beside forwarding them.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use ipnet::IpNet;
use thiserror::Error;

use super::cors::Cors;
use super::network_path;
use super::rewrite::Rewrite;
use super::template::{NamedVariable, Template, Values};

/// What a route does with its requests and responses beside forwarding them. Most routes have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handling {
    /// Changes of the headers that the upstream gets.
    pub request_headers: HeaderEdits,
    /// Changes of the headers that the client gets.
    pub response_headers: HeaderEdits,
    /// How the path is rewritten for the upstream.
    pub rewrite: Option<Rewrite>,
    /// Host that the upstream gets; `None`: that of the request.
    pub upstream_host: Option<UpstreamHost>,
    /// What the gateway answers instead of an upstream; `None`: requests are forwarded.
    pub answer: Option<RouteAnswer>,
    /// Whether requests are answered 503.
    pub maintenance: Option<Maintenance>,
    /// Which pages of other sites can read responses; `None`: what the upstream says.
    pub cors: Option<Arc<Cors>>,
}

/// An answer of the gateway instead of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteAnswer {
    Fixed(FixedResponse),
    Redirect(Redirect),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedResponse {
    pub status: StatusCode,
    /// Media type of the body; `None` without a body.
    pub content_type: Option<HeaderValue>,
    /// Further headers.
    pub headers: Vec<HeaderEdit>,
    pub body: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub status: StatusCode,
    /// The URL. Values of a request change neither its scheme nor its host, unless it has `{host}`.
    pub to: Template,
}

/// Requests are answered 503.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Value of `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// Networks of clients that are served all the same.
    pub allow_ips: Vec<IpNet>,
}

/// Why a redirect has no URL for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoLocation {
    /// A variable has no value, since this is missing.
    #[error("the redirect here needs {0}, which the request does not have")]
    NoValue(&'static str),
    /// The URL would be another host's: a path that begins with two slashes.
    #[error("the redirect here would lead to another host; send the path with one slash")]
    OtherHost,
}

impl Redirect {
    /// The URL for a request; `None` if there is [none](Self::no_location).
    pub fn location(&self, values: &Values<'_>) -> Option<HeaderValue> {
        let location = self.to.render_url(values)?;
        let location = Some(location).filter(|location| !is_of_other_host(location))?;
        HeaderValue::from_maybe_shared(Bytes::from(location)).ok()
    }

    /// Why there is no URL for a request.
    pub fn no_location(&self, values: &Values<'_>) -> Option<NoLocation> {
        match self.to.without_value(values) {
            Some(words) => Some(NoLocation::NoValue(words)),
            None => self
                .to
                .render_url(values)
                .is_some_and(|location| is_of_other_host(&location))
                .then_some(NoLocation::OtherHost),
        }
    }
}

/// Whether browsers read this path as a host, or clients that decode it first do.
fn is_of_other_host(location: &[u8]) -> bool {
    network_path::is(location)
}

impl Maintenance {
    /// Whether a client with this address is answered 503.
    pub fn applies_to(&self, ip: Option<IpAddr>) -> bool {
        !ip.is_some_and(|ip| self.allow_ips.iter().any(|network| network.contains(&ip)))
    }
}

/// The host that the upstream gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamHost {
    /// This one.
    Fixed(HeaderValue),
    OfServer,
}

/// Changes of headers: `remove` applies first, then `set`, then `add`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Headers that are removed.
    pub remove: Vec<HeaderName>,
    /// Headers that replace all of the same name.
    pub set: Vec<HeaderEdit>,
    /// Headers that are added to those of the same name.
    pub add: Vec<HeaderEdit>,
}

/// A header with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderEdit {
    pub name: HeaderName,
    /// Its name as written in the file, which HTTP/1.1 sends.
    pub written: Bytes,
    pub value: HeaderText,
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderText {
    /// The same for all requests.
    Constant(HeaderValue),
    /// With variables of the request.
    Template(Template),
}

impl Handling {
    /// All texts that depend on the request.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let (headers, to) = match &self.answer {
            None => (&[][..], None),
            Some(RouteAnswer::Fixed(fixed)) => (&fixed.headers[..], None),
            Some(RouteAnswer::Redirect(redirect)) => (&[][..], Some(&redirect.to)),
        };
        let edits = self.request_headers.templates().chain(self.response_headers.templates());
        let path = match &self.rewrite {
            Some(Rewrite::Path(path)) => Some(path),
            Some(Rewrite::Prefix(_)) | None => None,
        };
        edits.chain(path).chain(headers.iter().filter_map(|edit| edit.value.template())).chain(to)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What the route does, each in a few words and without secrets.
    pub fn words(&self) -> Vec<String> {
        let request = self.request_headers.words().into_iter();
        let response = self.response_headers.words().into_iter();
        let request = request.map(|words| format!("request headers: {words}"));
        let response = response.map(|words| format!("response headers: {words}"));
        let rewrite = self.rewrite.as_ref().map(Rewrite::words);
        let host = self.upstream_host.as_ref().map(|host| match host {
            UpstreamHost::Fixed(host) => format!("host: {}", host.to_str().unwrap_or_default()),
            UpstreamHost::OfServer => "host: that of the server".to_owned(),
        });
        let answer = self.answer.as_ref().map(|answer| match answer {
            RouteAnswer::Fixed(fixed) => format!("answers {}", fixed.status.as_u16()),
            RouteAnswer::Redirect(redirect) => format!("redirects by {}", redirect.status.as_u16()),
        });
        let maintenance = self.maintenance.as_ref().map(|_| "maintenance: answers 503".to_owned());
        let cors = self.cors.as_ref().map(|cors| cors.words());
        let first = maintenance.into_iter().chain(answer).chain(rewrite).chain(host).chain(cors);
        first.chain(request).chain(response).collect()
    }
}

impl HeaderEdits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Whether a value depends on the request.
    pub fn has_variables(&self) -> bool {
        let is_variable = |edit: &HeaderEdit| matches!(edit.value, HeaderText::Template(_));
        self.set.iter().chain(&self.add).any(is_variable)
    }

    /// Whether a value has this variable with a name.
    pub fn has(&self, variable: NamedVariable) -> bool {
        self.templates().any(|template| template.names_of(variable).next().is_some())
    }

    /// The values that depend on the request.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.set.iter().chain(&self.add).filter_map(|edit| edit.value.template())
    }

    /// Each change in a few words, without the values, which may be secret: `set X-Client`.
    pub fn words(&self) -> Vec<String> {
        let name = |edit: &HeaderEdit| String::from_utf8_lossy(&edit.written).into_owned();
        let remove = self.remove.iter().map(|name| format!("remove {name}"));
        let set = self.set.iter().map(|edit| format!("set {}", name(edit)));
        let add = self.add.iter().map(|edit| format!("add {}", name(edit)));
        remove.chain(set).chain(add).collect()
    }
}

impl HeaderText {
    /// The text, if it depends on the request.
    pub const fn template(&self) -> Option<&Template> {
        match self {
            Self::Constant(_) => None,
            Self::Template(template) => Some(template),
        }
    }

    /// The value for a request; `None` if a variable has no value, or one that is not valid in a
    /// header.
    pub fn value(&self, values: Option<&Values<'_>>) -> Option<HeaderValue> {
        match self {
            Self::Constant(value) => Some(value.clone()),
            Self::Template(template) => {
                HeaderValue::from_maybe_shared(Bytes::from(template.render(values?)?)).ok()
            }
        }
    }
}
