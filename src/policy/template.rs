//! Text with variables of a request, such as `{client.id}`. It is parsed when the configuration is
//! read, so that a request only copies its parts.

use std::net::IpAddr;

use thiserror::Error;

use crate::base::text::put_ip;

/// A text with variables. A text without any has one part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Variable(Variable),
}

/// A value of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// Id of the client's API key.
    ClientId,
    /// Name of the client's plan.
    ClientPlan,
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

/// The variables, by their names.
const VARIABLES: [(&str, Variable); 9] = [
    ("client.id", Variable::ClientId),
    ("client.plan", Variable::ClientPlan),
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
}

/// The values of one request. Texts of the client are as received, so they may contain any byte.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// Id of the client's API key; `None` without a known key.
    pub client_id: Option<&'a str>,
    /// Name of the client's plan.
    pub client_plan: &'a str,
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
                self.parts.push(Part::Variable(variable(name)?));
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

    /// The parts that are not variables.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Variable(_) => None,
        })
    }

    /// Whether one of the variables is this one.
    pub fn has(&self, variable: Variable) -> bool {
        self.parts.contains(&Part::Variable(variable))
    }

    /// The first variable that has no value; `None` if all have one.
    pub fn without_value(&self, values: &Values<'_>) -> Option<Variable> {
        self.parts.iter().find_map(|part| match part {
            Part::Variable(variable) if !values.have(*variable) => Some(*variable),
            Part::Variable(_) | Part::Text(_) => None,
        })
    }

    /// The text with the values of a request; `None` if one of its variables has no value.
    pub fn render(&self, values: &Values<'_>) -> Option<Vec<u8>> {
        let mut text = Vec::with_capacity(64);
        for part in &self.parts {
            let value = match part {
                Part::Text(part) => part.as_bytes(),
                Part::Variable(Variable::ClientId) => values.client_id?.as_bytes(),
                Part::Variable(Variable::ClientPlan) => values.client_plan.as_bytes(),
                Part::Variable(Variable::ClientIp) => {
                    put_ip(&mut text, values.client_ip?);
                    continue;
                }
                Part::Variable(Variable::RequestId) => values.request_id.as_bytes(),
                Part::Variable(Variable::Route) => values.route.as_bytes(),
                Part::Variable(Variable::Host) => values.host.as_bytes(),
                Part::Variable(Variable::Method) => values.method.as_bytes(),
                Part::Variable(Variable::Path) => values.path,
                Part::Variable(Variable::Query) => values.query,
            };
            if value.is_empty() && *part != Part::Variable(Variable::Query) {
                return None;
            }
            text.extend_from_slice(value);
        }
        Some(text)
    }
}

impl Values<'_> {
    /// Whether a variable has a value. The query always has one, which may be empty.
    fn have(&self, variable: Variable) -> bool {
        match variable {
            Variable::ClientId => self.client_id.is_some_and(|id| !id.is_empty()),
            Variable::ClientPlan => !self.client_plan.is_empty(),
            Variable::ClientIp => self.client_ip.is_some(),
            Variable::RequestId => !self.request_id.is_empty(),
            Variable::Route => !self.route.is_empty(),
            Variable::Host => !self.host.is_empty(),
            Variable::Method => !self.method.is_empty(),
            Variable::Path => !self.path.is_empty(),
            Variable::Query => true,
        }
    }
}

impl Variable {
    /// What has to be in a request for the variable to have a value.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ClientId => "a known API key",
            Self::ClientPlan => "a plan",
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

/// Names of all variables.
pub fn names() -> Vec<&'static str> {
    VARIABLES.iter().map(|(name, _)| *name).collect()
}

fn variable(name: &str) -> Result<Variable, TemplateError> {
    let known = VARIABLES.iter().find(|(known, _)| *known == name);
    known.map(|(_, variable)| *variable).ok_or_else(|| TemplateError::Unknown(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: Values<'_> = Values {
        client_id: Some("acme"),
        client_plan: "pro",
        client_ip: Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        request_id: "01",
        route: "all",
        host: "api.test",
        method: "GET",
        path: b"/a%20b",
        query: b"?c",
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
            ("{request.id} {route} {host} {method} {path}{query}", "01 all api.test GET /a%20b?c"),
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
                assert!(missing.is_none_or(|variable| variable == super::variable(name).unwrap()));
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
}
