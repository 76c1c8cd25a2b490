//! `[tracing]`.

use std::path::PathBuf;

use http::uri::Uri;
use http::{HeaderName, HeaderValue};

use super::environment::{Environment, Expanded, expand, expand_part};
use super::values::{duration, fraction_in};
use super::words::meaning;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order, tables};
use crate::net::address::{AddressError, HostPort};
use crate::net::tls::ClientTls;
use crate::policy::tracing::{Endpoint, SamplingRatio, Tracing};

/// The endpoint that is checked if a part of it is assumed and `ca` is set.
const ASSUMED_TLS_ENDPOINT: &str = "https://assumed.invalid";

/// Path for traces, which is appended to the address of the collector.
const TRACES_PATH: &str = "/v1/traces";

/// Headers that the connection or the export sets.
const RESERVED: [&str; 6] = [
    "host",
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "connection",
];

/// A message, and what to write instead.
type Reason = (&'static str, &'static str);

/// The settings of tracing; none without the table or with an error.
pub(super) fn tracing(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Tracing> {
    let tables::Tracing { endpoint, ca, headers, timeout, sample, follow, service_name } =
        config.tracing.as_ref()?.get_ref();
    let endpoint = self::endpoint(endpoint.as_ref(), ca.as_ref(), environment, diagnostics);
    let is_twice = twice(config, diagnostics);
    let headers: Vec<_> = in_order(headers)
        .into_iter()
        .map(|(name, value)| header(name, value, environment, diagnostics))
        .collect();
    let headers: Option<Vec<_>> = headers.into_iter().collect();
    let headers = headers.filter(|_| !is_twice);
    let timeout = duration(&tables::Tracing::timeout, timeout, diagnostics);
    let sample = match sample {
        None => tables::Tracing::sample.fraction().and_then(SamplingRatio::of),
        Some(field) => {
            let help = "`0.01` traces one in a hundred requests";
            fraction_in(&tables::Tracing::sample, field, help, diagnostics)
                .and_then(SamplingRatio::of)
        }
    };
    let service_name = match service_name {
        None => tables::Tracing::service_name.text().map(str::to_owned),
        Some(field) => self::service_name(field, environment, diagnostics),
    };
    Some(Tracing {
        endpoint: endpoint?,
        headers: headers?,
        timeout: timeout?,
        sample: sample?,
        follow: meaning(follow.as_ref()),
        service_name: service_name?,
    })
}

/// The address of the collector.
fn endpoint(
    field: Option<&Spanned<String>>,
    ca: Option<&Spanned<String>>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Endpoint> {
    let ca_path = match ca {
        None => Some(None),
        Some(ca) => expand(&tables::Tracing::ca, ca, environment, diagnostics)
            .map(|path| Some(PathBuf::from(path))),
    };
    let default = tables::Tracing::endpoint.text()?;
    let Expanded { text, is_assumed } = match field {
        None => Expanded { text: default.to_owned(), is_assumed: false },
        Some(field) => {
            expand_part(field.get_ref(), field, environment, &|value| value, diagnostics)?
        }
    };
    let assumed = if ca.is_some() { ASSUMED_TLS_ENDPOINT } else { default };
    let endpoint =
        match parse(&text).or_else(|why| if is_assumed { parse(assumed) } else { Err(why) }) {
            Ok(endpoint) => endpoint,
            Err((message, help)) => {
                let span = field.map_or(0..0, Spanned::span);
                diagnostics.push(Diagnostic::new(span, message).help(help));
                return None;
            }
        };
    match (ca, endpoint.tls) {
        (Some(ca), None) => {
            let message = "`ca` is for TLS, and the connection has none";
            let help = "write `https://` in `endpoint`, or leave it out";
            diagnostics.push(Diagnostic::new(ca.span(), message).help(help));
            None
        }
        (_, None) => Some(Endpoint { tls: None, ..endpoint }),
        (_, Some(tls)) => {
            Some(Endpoint { tls: Some(ClientTls { ca: ca_path?, ..tls }), ..endpoint })
        }
    }
}

fn parse(text: &str) -> Result<Endpoint, Reason> {
    const LOOKS_LIKE: &str = "it looks like `http://127.0.0.1:4318` or `https://otlp.example.com`";
    let not_a_url = ("`endpoint` is not the address of a collector", LOOKS_LIKE);
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(("`endpoint` has no scheme", "write `http://` or `https://` before it"));
    };
    let (tls, default_port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (None, 80),
        "https" => (Some(ClientTls::default()), 443),
        "grpc" | "grpcs" => {
            let help = "take the collector's port for HTTP: `http://127.0.0.1:4318`";
            return Err(("traces are sent by OTLP over HTTP, not gRPC", help));
        }
        _ => return Err(not_a_url),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let help = "write `headers = { authorization = \"Basic ${OTLP_LOGIN}\" }`";
        return Err(("`endpoint` cannot hold a login", help));
    }
    if rest.contains(['?', '#']) {
        let help = "write credentials for the collector in `headers`";
        return Err(("`endpoint` cannot hold a query", help));
    }
    let uri: Uri = Some(text)
        .filter(|text| text.is_ascii())
        .and_then(|text| text.parse().ok())
        .ok_or(not_a_url)?;
    let origin = HostPort::parse(authority, Some(default_port)).map_err(|error| match error {
        AddressError::NotPort => {
            ("`endpoint` has no valid port", "a port is a number from 1 to 65535")
        }
        _ => not_a_url,
    })?;
    let base = uri.path().trim_end_matches('/');
    let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
    Ok(Endpoint { origin, tls, path: format!("{base}{TRACES_PATH}") })
}

fn header(
    name: &Spanned<String>,
    value: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<(HeaderName, HeaderValue)> {
    let shown = cut(name.get_ref(), 64);
    let header = HeaderName::from_bytes(name.get_ref().as_bytes()).ok();
    if header.is_none() {
        let message = format!("`{shown}` is not the name of a header");
        let help = "a name has letters, digits, `-` and `_`";
        diagnostics.push(Diagnostic::new(name.span(), message).help(help));
    } else if header.as_ref().is_some_and(|header| RESERVED.contains(&header.as_str())) {
        let message = format!("the header `{shown}` is set by the gateway itself");
        diagnostics.push(Diagnostic::new(name.span(), message).help("leave it out"));
        return None;
    }
    let text = expand(&tables::Tracing::headers, value, environment, diagnostics)?;
    let Some(mut value_of) = HeaderValue::from_str(&text).ok().filter(|_| text.is_ascii()) else {
        let message = format!("the value of `{shown}` holds a character that no header can carry");
        let help = "it can have visible ASCII characters and spaces; is there a line break?";
        diagnostics.push(Diagnostic::new(value.span(), message).help(help));
        return None;
    };
    value_of.set_sensitive(true);
    Some((header?, value_of))
}

/// Whether two names of headers are the same but for case.
fn twice(config: &Config, diagnostics: &mut Diagnostics) -> bool {
    let Some(table) = &config.tracing else { return false };
    let names: Vec<_> = in_order(&table.get_ref().headers);
    let mut found = false;
    for (at, (name, _)) in names.iter().enumerate() {
        let same =
            |other: &&(&Spanned<String>, _)| other.0.get_ref().eq_ignore_ascii_case(name.get_ref());
        if let Some((first, _)) = names[..at].iter().find(same) {
            let message = format!("the header `{}` is written twice", cut(name.get_ref(), 64));
            let diagnostic = Diagnostic::new(name.span(), message).and(first.span(), "first here");
            diagnostics.push(diagnostic.help("names of headers are case-insensitive; keep one"));
            found = true;
        }
    }
    found
}

fn service_name(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let name = expand(&tables::Tracing::service_name, field, environment, diagnostics)?;
    let (least, most) = tables::Tracing::service_name.range().characters();
    if (least..=most).contains(&name.chars().count()) {
        return Some(name);
    }
    let message = if name.is_empty() {
        "`service_name` is empty".to_owned()
    } else {
        format!("`service_name` is longer than {most} characters")
    };
    let help = "it is the name of the gateway in traces, such as `\"tollgate\"`";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_a_url_without_login_and_query() {
        let table = [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("HTTP://Collector", "http://collector:80/v1/traces"),
            ("https://otlp.example.com", "https://otlp.example.com:443/v1/traces"),
            ("https://example.com/otlp/", "https://example.com:443/otlp/v1/traces"),
            ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
            ("http://[::1]", "http://[::1]:80/v1/traces"),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        }
        let wrong = [
            "",
            "127.0.0.1:4318",
            "http://",
            "http:///x",
            "http://a b",
            "http://h:0",
            "http://h:",
            "http://h:65536",
            "http://999.0.0.1",
            "http://[::1",
            "http://u:p@h",
            "http://h/?a=b",
            "http://h#a",
            "ftp://h",
            "grpc://h:4317",
            "http://h/\u{e4}",
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
