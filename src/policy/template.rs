//! Text with variables of a request, such as `{client.id}`. It is parsed when the configuration is
//! read, so that a request only copies its parts.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use smallvec::SmallVec;
use thiserror::Error;

use super::params::PathParams;
use crate::base::text::put_ip;
use crate::client::credential::{is_parameter, query_parameters};
use crate::net::percent::decode_query;

/// A text with variables. A text without any has one part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Variable(Variable),
    /// What follows the colon is the name.
    Named(NamedVariable, Box<str>),
}

/// Where the text of a template goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Into a header, where values are as received.
    Header,
    /// Into a URL, where named values are encoded as a part of a path or of a query.
    Url,
}

/// A value of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// Id of the client's API key.
    ClientId,
    /// Name of the client's plan.
    ClientPlan,
    /// The client's tenant; empty without one.
    ClientTenant,
    /// Address of the client.
    ClientIp,
    /// Identifier of the request.
    RequestId,
    /// Name of the route.
    Route,
    /// Host of the request, in lower case, without port.
    Host,
    /// Method of the request.
    Method,
    /// Path of the request as received, without the query.
    Path,
    /// Query of the request as received, with its `?`; empty without one.
    Query,
}

/// A value of a request that a template selects by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedVariable {
    /// A parameter of the path.
    Param,
    /// A header of the request.
    Header,
    /// A parameter of the query.
    QueryParam,
}

/// The variables that have a name after a colon.
const NAMED: [(&str, NamedVariable); 3] = [
    ("param", NamedVariable::Param),
    ("header", NamedVariable::Header),
    ("query", NamedVariable::QueryParam),
];

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The variables, by their names.
const VARIABLES: [(&str, Variable); 10] = [
    ("client.id", Variable::ClientId),
    ("client.plan", Variable::ClientPlan),
    ("client.tenant", Variable::ClientTenant),
    ("client.ip", Variable::ClientIp),
    ("request.id", Variable::RequestId),
    ("route", Variable::Route),
    ("host", Variable::Host),
    ("method", Variable::Method),
    ("path", Variable::Path),
    ("query", Variable::Query),
];

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// A `{` without its `}`.
    #[error("a `{{` has no `}}`")]
    Unclosed,
    /// A `}` without its `{`.
    #[error("a `}}` has no `{{`")]
    Unopened,
    /// There is no variable of this name.
    #[error("unknown variable `{{{0}}}`")]
    Unknown(String),
    /// What follows the colon of a variable is not a name.
    #[error("`{{{0}}}` has no valid name after its colon")]
    Name(String),
}

/// The values of one request. Texts of the client are as received, so they may contain any byte.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// Id of the client's API key; `None` without a known key.
    pub client_id: Option<&'a str>,
    /// Name of the client's plan.
    pub client_plan: &'a str,
    pub client_tenant: &'a str,
    /// Address of the client; `None` on a Unix socket.
    pub client_ip: Option<IpAddr>,
    /// Identifier of the request.
    pub request_id: &'a str,
    /// Name of the route.
    pub route: &'a str,
    /// Host of the request; empty without one.
    pub host: &'a str,
    /// Method of the request.
    pub method: &'a str,
    /// Path of the request.
    pub path: &'a [u8],
    /// Query of the request, with its `?`; empty without one.
    pub query: &'a [u8],
    /// Where named variables have their values.
    pub named: NamedValues<'a>,
}

/// The values of variables with a name.
#[derive(Debug, Clone, Copy)]
pub enum NamedValues<'a> {
    /// Those of a request.
    Request {
        /// Its headers as received.
        headers: &'a HeaderMap,
        /// The parameters of its route's path.
        params: Option<&'a PathParams>,
    },
    /// The same value for each, to check a template.
    Sample(&'a str),
}

/// The value of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A text as received.
    Bytes(&'a [u8]),
    /// An address.
    Ip(IpAddr),
}

impl Template {
    /// Adds a text to the end, without looking for variables in it.
    pub fn push_text(&mut self, text: &str) {
        if let Some(Part::Text(last)) = self.parts.last_mut() {
            *last = format!("{last}{text}").into();
        } else if !text.is_empty() {
            self.parts.push(Part::Text(text.into()));
        }
    }

    /// Parses a text and adds it to the end: `{name}` is a variable, `{{` and `}}` are braces.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn push(&mut self, text: &str) -> Result<(), TemplateError> {
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, found) = rest.split_at(at);
            self.push_text(before);
            if let Some(after) = found.strip_prefix("{{") {
                self.push_text("{");
                rest = after;
            } else if let Some(after) = found.strip_prefix("}}") {
                self.push_text("}");
                rest = after;
            } else if let Some(after) = found.strip_prefix('{') {
                let (name, after) = after.split_once('}').ok_or(TemplateError::Unclosed)?;
                self.parts.push(part(name)?);
                rest = after;
            } else {
                return Err(TemplateError::Unopened);
            }
        }
        self.push_text(rest);
        Ok(())
    }

    /// The whole text, if it has no variables.
    pub fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The variables without a name of their own.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(*variable),
            Part::Text(_) | Part::Named(..) => None,
        })
    }

    /// The parts that are not variables.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Variable(_) | Part::Named(..) => None,
        })
    }

    /// The names that follow a variable.
    pub fn names_of(&self, variable: NamedVariable) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(move |part| match part {
            Part::Named(own, name) if *own == variable => Some(&**name),
            Part::Named(..) | Part::Text(_) | Part::Variable(_) => None,
        })
    }

    /// Whether one of the variables is this one.
    pub fn has(&self, variable: Variable) -> bool {
        self.parts.contains(&Part::Variable(variable))
    }

    /// What the first variable without a value needs, in words; `None` if all have one.
    pub fn without_value(&self, values: &Values<'_>) -> Option<&'static str> {
        self.parts.iter().find_map(|part| match part {
            Part::Text(_) => None,
            Part::Variable(variable) => values.value(*variable).is_none().then(|| variable.words()),
            Part::Named(variable, name) => {
                values.named(*variable, name).is_none().then(|| variable.words())
            }
        })
    }

    /// The text with the values of a request, as received; `None` if one of its variables has no
    /// value.
    pub fn render(&self, values: &Values<'_>) -> Option<Vec<u8>> {
        self.render_in(Place::Header, values)
    }

    /// The same for a URL: values of named variables are percent-encoded, so that each is a part of
    /// one segment, or of one name or value of a query.
    pub fn render_url(&self, values: &Values<'_>) -> Option<Vec<u8>> {
        self.render_in(Place::Url, values)
    }

    fn render_in(&self, place: Place, values: &Values<'_>) -> Option<Vec<u8>> {
        let mut text = Vec::with_capacity(64);
        for part in &self.parts {
            match part {
                Part::Text(part) => text.extend_from_slice(part.as_bytes()),
                Part::Variable(variable) => values.value(*variable)?.put(&mut text),
                Part::Named(variable, name) => {
                    let value = values.named(*variable, name)?;
                    match place {
                        Place::Header => text.extend_from_slice(value),
                        Place::Url => text.extend(in_url(*variable, value)),
                    }
                }
            }
        }
        Some(text)
    }
}

impl fmt::Display for Template {
    /// The syntax of the file, with the values of the environment.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => formatter.write_str(&text.replace('{', "{{").replace('}', "}}")),
            Part::Variable(variable) => {
                let own = VARIABLES.iter().find(|(_, other)| other == variable);
                write!(formatter, "{{{}}}", own.map_or("", |(name, _)| name))
            }
            Part::Named(variable, name) => {
                let own = NAMED.iter().find(|(_, other)| other == variable);
                write!(formatter, "{{{}:{name}}}", own.map_or("", |(kind, _)| kind))
            }
        })
    }
}

/// The value of a named variable as a part of a URL.
fn in_url(variable: NamedVariable, value: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(value);
    let decoded: Cow<'_, [u8]> = match variable {
        NamedVariable::QueryParam => decode_query(&text),
        NamedVariable::Param => percent_decode(value).collect::<Vec<u8>>().into(),
        NamedVariable::Header => value.into(),
    };
    percent_encode(&decoded, RESERVED).to_string().into_bytes()
}

impl<'a> Values<'a> {
    /// The value of a named variable, as received; `None` if there is none, if it is empty, or if
    /// there are several, of which servers read different ones.
    fn named(&self, variable: NamedVariable, name: &str) -> Option<&'a [u8]> {
        let (headers, params) = match self.named {
            NamedValues::Sample(value) => return Some(value.as_bytes()),
            NamedValues::Request { headers, params } => (headers, params),
        };
        let values: SmallVec<[&'a [u8]; 2]> = match variable {
            NamedVariable::Header => {
                headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
            }
            NamedVariable::QueryParam => {
                let query = std::str::from_utf8(self.query).ok()?.strip_prefix('?')?;
                let own = query_parameters(query).filter(|(other, _)| is_parameter(other, name));
                own.map(|(_, value)| value.as_bytes()).collect()
            }
            NamedVariable::Param => {
                let values = params?.values(std::str::from_utf8(self.path).ok()?);
                let own = values.into_iter().filter(|(other, _)| *other == name);
                own.map(|(_, value)| value.as_bytes()).collect()
            }
        };
        let first = values.first().copied().filter(|value| !value.is_empty())?;
        values.iter().all(|other| *other == first).then_some(first)
    }

    /// The value of a variable; `None` if it has none. The query always has one, which may be
    /// empty.
    pub fn value(&self, variable: Variable) -> Option<Value<'a>> {
        let bytes = match variable {
            Variable::ClientIp => return self.client_ip.map(Value::Ip),
            Variable::Query => return Some(Value::Bytes(self.query)),
            Variable::ClientId => self.client_id?.as_bytes(),
            Variable::ClientPlan => self.client_plan.as_bytes(),
            Variable::ClientTenant => self.client_tenant.as_bytes(),
            Variable::RequestId => self.request_id.as_bytes(),
            Variable::Route => self.route.as_bytes(),
            Variable::Host => self.host.as_bytes(),
            Variable::Method => self.method.as_bytes(),
            Variable::Path => self.path,
        };
        (!bytes.is_empty()).then_some(Value::Bytes(bytes))
    }
}

impl Value<'_> {
    /// Adds it to the end of a text.
    pub fn put(self, text: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => text.extend_from_slice(bytes),
            Self::Ip(ip) => put_ip(text, ip),
        }
    }
}

impl Variable {
    /// What has to be in a request for the variable to have a value.
    const fn words(self) -> &'static str {
        match self {
            Self::ClientId => "a known API key",
            Self::ClientPlan => "a plan",
            Self::ClientTenant => "a tenant",
            Self::ClientIp => "the address of the client",
            Self::RequestId => "an identifier",
            Self::Route => "a route",
            Self::Host => "a host",
            Self::Method => "a method",
            Self::Path => "a path",
            Self::Query => "a query",
        }
    }
}

impl NamedVariable {
    const fn words(self) -> &'static str {
        match self {
            Self::Param => "a parameter of the path",
            Self::Header => "a header, with one value",
            Self::QueryParam => "a query parameter, with one value",
        }
    }
}

/// Names of all variables, for people.
pub fn names() -> Vec<&'static str> {
    let named = ["param:<name>", "header:<name>", "query:<name>"];
    VARIABLES.iter().map(|(name, _)| *name).chain(named).collect()
}

/// The part of a text in braces.
fn part(text: &str) -> Result<Part, TemplateError> {
    let named = text.split_once(':').and_then(|(kind, name)| {
        let (_, variable) = NAMED.iter().find(|(known, _)| *known == kind)?;
        Some((*variable, name))
    });
    let Some((variable, name)) = named else { return self::variable(text).map(Part::Variable) };
    let is_name = match variable {
        NamedVariable::Header => http::HeaderName::from_bytes(name.as_bytes()).is_ok(),
        NamedVariable::Param => {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        }
        NamedVariable::QueryParam => {
            !name.contains(|c: char| c.is_control() || " &=;%+#".contains(c))
        }
    };
    if name.is_empty() || !is_name {
        return Err(TemplateError::Name(text.to_owned()));
    }
    Ok(Part::Named(variable, name.into()))
}

/// The variable of this name.
///
/// # Errors
/// There is none.
pub fn variable(name: &str) -> Result<Variable, TemplateError> {
    let known = VARIABLES.iter().find(|(known, _)| *known == name);
    known.map(|(_, variable)| *variable).ok_or_else(|| TemplateError::Unknown(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUES: Values<'_> = Values {
        client_id: Some("acme"),
        client_plan: "pro",
        client_tenant: "group",
        client_ip: Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        request_id: "01",
        route: "all",
        host: "api.test",
        method: "GET",
        path: b"/a%20b",
        query: b"?c&a=1%20+&b=x&b=y&d=",
        named: NamedValues::Sample("sample"),
    };

    fn parsed(text: &str) -> Result<Template, TemplateError> {
        let mut template = Template::default();
        template.push(text).map(|()| template)
    }

    #[test]
    fn variables_are_replaced_by_the_values_of_the_request() {
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("{{{client.id}}}", "{acme}"),
            ("}}{{", "}{"),
            ("{client.id}/{client.plan}/{client.ip}", "acme/pro/127.0.0.1"),
            (
                "{request.id} {route} {host} {method} {path}{query}",
                "01 all api.test GET /a%20b?c&a=1%20+&b=x&b=y&d=",
            ),
        ];
        for (text, expected) in table {
            let rendered = parsed(text).unwrap().render(&VALUES).unwrap();
            assert_eq!(String::from_utf8(rendered).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn text_without_variables_is_constant() {
        assert_eq!(parsed("a{{b}}").unwrap().constant(), Some("a{b}"));
        assert_eq!(parsed("").unwrap().constant(), Some(""));
        assert_eq!(parsed("a{host}").unwrap().constant(), None);
    }

    #[test]
    fn text_with_a_variable_without_value_is_left_out() {
        let template = parsed("id {client.id}").unwrap();
        assert_eq!(template.render(&Values { client_id: None, ..VALUES }), None);
        assert_eq!(parsed("{host}").unwrap().render(&Values { host: "", ..VALUES }), None);
    }

    #[test]
    fn variable_without_value_is_named_exactly_if_there_is_no_text() {
        let all = [
            "client.id",
            "client.plan",
            "client.ip",
            "request.id",
            "route",
            "host",
            "method",
            "path",
            "query",
        ];
        let template = |name: &str| parsed(&format!("a{{method}}b{{{name}}}")).unwrap();
        let none = Values {
            client_id: None,
            client_plan: "",
            client_tenant: "",
            client_ip: None,
            request_id: "",
            route: "",
            host: "",
            path: b"",
            query: b"",
            ..VALUES
        };
        for name in all {
            for values in [VALUES, none] {
                let template = template(name);
                let missing = template.without_value(&values);
                assert_eq!(missing.is_none(), template.render(&values).is_some(), "{name}");
                assert!(
                    missing.is_none_or(|words| words == super::variable(name).unwrap().words())
                );
            }
        }
    }

    #[test]
    fn braces_without_their_counterpart_are_errors() {
        assert_eq!(parsed("a{b"), Err(TemplateError::Unclosed));
        assert_eq!(parsed("a}b"), Err(TemplateError::Unopened));
        assert_eq!(parsed("{}"), Err(TemplateError::Unknown(String::new())));
        assert_eq!(parsed("{Host}"), Err(TemplateError::Unknown("Host".to_owned())));
    }

    fn headers() -> HeaderMap {
        let each = [("x-a", "1/2"), ("x-b", "x"), ("x-b", "y"), ("x-c", "z"), ("x-c", "z")];
        let mut headers = HeaderMap::new();
        for (name, value) in each.into_iter().chain([("x-d", "")]) {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    /// The texts for a header and for a URL.
    fn rendered(text: &str) -> [Option<String>; 2] {
        let (headers, params) = (headers(), PathParams::of("/{tenant}/x"));
        let named = NamedValues::Request { headers: &headers, params: Some(&params) };
        let values = Values { path: b"/a%20b;c/x", named, ..VALUES };
        let template = parsed(text).unwrap();
        let each = [template.render(&values), template.render_url(&values)];
        assert_eq!(template.without_value(&values).is_none(), each[0].is_some(), "{text}");
        each.map(|text| Some(String::from_utf8(text?).unwrap()))
    }

    #[test]
    fn named_variables_have_one_value_of_the_request() {
        let table = [
            ("{header:X-A}", Some(("1/2", "1%2F2"))),
            ("{header:x-c}", Some(("z", "z"))),
            ("{query:a}", Some(("1%20+", "1%20%20"))),
            ("{param:tenant}", Some(("a%20b;c", "a%20b%3Bc"))),
            ("/{header:x-a}/{query:a}", Some(("/1/2/1%20+", "/1%2F2/1%20%20"))),
            // None, several or an empty one.
            ("{header:x-b}", None),
            ("{header:x-d}", None),
            ("{header:x-e}", None),
            ("{query:b}", None),
            ("{query:c}", None),
            ("{query:d}", None),
            ("{query:e}", None),
            ("{param:other}", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|(header, url): (&str, &str)| [header, url]);
            let found = rendered(text);
            assert_eq!(
                found.each_ref().map(Option::as_deref),
                match expected {
                    Some([header, url]) => [Some(header), Some(url)],
                    None => [None, None],
                },
                "{text}"
            );
        }
        for text in ["{header:}", "{header:a b}", "{param:a-b}", "{query:a&b}", "{query:}"] {
            assert!(matches!(parsed(text), Err(TemplateError::Name(_))), "{text}");
        }
        assert!(matches!(parsed("{cookie:a}"), Err(TemplateError::Unknown(_))));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// In a URL, a value ends no segment, begins no query and has no line break, whatever it
        /// is.
        #[test]
        fn value_in_a_url_is_never_more_than_a_part(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            for variable in [NamedVariable::Header, NamedVariable::Param, NamedVariable::QueryParam] {
                let text = in_url(variable, &bytes);
                let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(byte);
                prop_assert!(text.iter().all(is_plain), "{text:?}");
                let decoded: Vec<u8> = percent_decode(&text).collect();
                if variable == NamedVariable::Header && std::str::from_utf8(&bytes).is_ok() {
                    prop_assert_eq!(&decoded, &bytes);
                }
            }
        }
    }
}
