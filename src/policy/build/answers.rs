//! `respond`, `redirect` and `maintenance` of routes: answers of the gateway instead of an
//! upstream.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::address::networks;
use super::environment::Environment;
use super::header_edits::{self, Direction};
use super::template::{Expanded, template};
use super::values::written_duration;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::handling::{self, SwitchOr};
use crate::config::spanned::Spanned;
use crate::config::tables;
use crate::net::address::HostPort;
use crate::policy::handling::{FixedResponse, Maintenance, Redirect, RouteAnswer};
use crate::policy::template::{NamedValues, Template, Values};

/// Maximum length of a body, in bytes.
const MAX_BODY_BYTES: usize = 65_536;

/// Statuses of redirects.
const REDIRECTS: [u64; 5] = [301, 302, 303, 307, 308];

/// What the gateway answers instead of an upstream; none if the route forwards, or with an error.
pub(super) fn answer(
    name: &str,
    route: &tables::Route,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<RouteAnswer> {
    let of_upstreams: [(&str, Option<Range<usize>>); 8] = [
        ("upstream", route.upstream.as_ref().map(Spanned::span)),
        ("split", route.split.as_ref().map(Spanned::span)),
        ("strip_prefix", route.strip_prefix.as_ref().map(Spanned::span)),
        ("replace_prefix", route.replace_prefix.keys().next().map(Spanned::span)),
        ("add_prefix", route.add_prefix.as_ref().map(Spanned::span)),
        ("replace_path", route.replace_path.as_ref().map(Spanned::span)),
        ("upstream_host", route.upstream_host.as_ref().map(Spanned::span)),
        ("request_headers", route.request_headers.as_ref().map(Spanned::span)),
    ];
    let (setting_of_answer, place) = match (&route.respond, &route.redirect) {
        (None, None) => return None,
        (Some(respond), None) => ("respond", respond.span()),
        (None, Some(redirect)) => ("redirect", redirect.span()),
        (Some(respond), Some(redirect)) => {
            let message = "`respond` and `redirect` exclude each other";
            let diagnostic = Diagnostic::new(redirect.span(), message).and(respond.span(), "here");
            diagnostics.push(diagnostic.help("keep one of them"));
            return None;
        }
    };
    for (setting, span) in of_upstreams.into_iter().filter_map(|(name, span)| Some((name, span?))) {
        let message = format!(
            "`{setting}` has no effect: `{setting_of_answer}` answers instead of an upstream"
        );
        let diagnostic = Diagnostic::new(span, message).and(place.clone(), "here");
        diagnostics.push(diagnostic.help("keep one of them"));
    }
    if let Some(respond) = &route.respond {
        return fixed(respond.get_ref(), environment, diagnostics).map(RouteAnswer::Fixed);
    }
    redirect(name, route.redirect.as_ref()?, environment, diagnostics).map(RouteAnswer::Redirect)
}

fn fixed(
    table: &handling::Respond,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<FixedResponse> {
    let status = status(table, diagnostics);
    let body = table.body.as_ref().map_or("", |body| body.get_ref());
    if let Some(field) = table.body.as_ref().filter(|_| body.len() > MAX_BODY_BYTES) {
        let message = format!("`body` is longer than {MAX_BODY_BYTES} bytes");
        let help = "larger files are a task of an upstream";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    }
    if let (Some(StatusCode::NO_CONTENT), Some(field)) = (status, &table.body) {
        let message = "a response with status 204 has no body";
        diagnostics.push(Diagnostic::new(field.span(), message).help("leave it out, or write 200"));
    }
    let content_type = match &table.content_type {
        None => HeaderValue::from_static(handling::Respond::content_type.text()?),
        Some(field) => {
            let text = field.get_ref();
            let is_type = text.split_once('/').is_some_and(|(kind, rest)| {
                !kind.is_empty() && !rest.is_empty() && !text.contains(['\r', '\n'])
            });
            let Some(value) = HeaderValue::from_str(text).ok().filter(|_| is_type) else {
                let message = format!("`{}` is not a media type", cut(text, 64));
                let help = "such as `application/json` or `text/html; charset=utf-8`";
                diagnostics.push(Diagnostic::new(field.span(), message).help(help));
                return None;
            };
            value
        }
    };
    let mut seen = HashMap::new();
    let headers = header_edits::headers(
        &table.headers,
        Direction::Response,
        environment,
        &mut seen,
        diagnostics,
    );
    Some(FixedResponse {
        status: status?,
        content_type: (!body.is_empty()).then_some(content_type),
        headers,
        body: Bytes::from(body.to_owned()),
    })
}

fn status(table: &handling::Respond, diagnostics: &mut Diagnostics) -> Option<StatusCode> {
    let Some(field) = &table.status else {
        let number = handling::Respond::status.number()?;
        return u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
    };
    let number = *field.get_ref();
    let (message, help) = if REDIRECTS.contains(&number) {
        let help = format!(
            "write `redirect = {{ to = \"https://new.example{{path}}\", status = {number} }}`"
        );
        (format!("{number} is a redirect"), help)
    } else if (200..600).contains(&number) && !(300..400).contains(&number) && number != 205 {
        return u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
    } else {
        let help = "a status is a number from 200 to 599, without 205 and 3xx".to_owned();
        (format!("{number} is not a status of an answer"), help)
    };
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

fn redirect(
    name: &str,
    table: &Spanned<handling::Redirect>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Redirect> {
    let number = match &table.get_ref().status {
        Some(status) => *status.get_ref(),
        None => handling::Redirect::status.number()?,
    };
    let status = u16::try_from(number).ok().filter(|_| REDIRECTS.contains(&number));
    if let (None, Some(field)) = (status, &table.get_ref().status) {
        let message = format!("{number} is not the status of a redirect");
        let help =
            "301 and 308 are permanent, 302, 303 and 307 are not; 307 and 308 keep the method";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    }
    let Some(field) = &table.get_ref().to else {
        if diagnostics.explain_absence(&["routes", name, "redirect", "to"]) {
            return None;
        }
        let message = "the redirect has no `to`";
        let help = "such as `to = \"https://new.example{path}{query}\"`";
        diagnostics.push(Diagnostic::new(table.span(), message).help(help));
        return None;
    };
    let Expanded { template: to, is_assumed } = template(field, environment, diagnostics)?;
    // A host that is assumed is not known.
    if let Some(message) = wrong_url(&to).filter(|_| !is_assumed) {
        let help = "it begins with `https://` and a host, or with one `/`, such as \
                    `https://new.example{path}{query}`; of the variables, only `{host}` can be in the host";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    Some(Redirect { status: StatusCode::from_u16(status?).ok()?, to })
}

/// Why a text is not the URL of a redirect. Rendered with several sets of values, its host must be
/// the same.
fn wrong_url(to: &Template) -> Option<&'static str> {
    let values = |text: &'static str, path: &'static [u8], query: &'static [u8]| Values {
        client_id: Some(text),
        client_plan: text,
        client_tenant: text,
        client_ip: None,
        request_id: text,
        route: text,
        host: "host.example",
        method: text,
        path,
        query,
        named: NamedValues::Sample(text),
    };
    let each = [values("a", b"/p", b"?q"), values("b", b"/", b""), values("c", b"//p", b"")];
    let rendered = each.map(|values| {
        let values = Values { client_ip: Some(std::net::Ipv4Addr::LOCALHOST.into()), ..values };
        to.render_url(&values).and_then(|text| String::from_utf8(text).ok())
    });
    let [Some(one), Some(other), Some(slashes)] = rendered else {
        return Some("the redirect has no URL");
    };
    if !one.bytes().all(|byte| byte.is_ascii_graphic()) || one.contains('\\') {
        return Some("the URL has a character that a URL cannot have");
    }
    // With two slashes, what follows would be a host.
    if [&one, &other, &slashes].iter().all(|url| url.starts_with('/') && !url.starts_with("//")) {
        return None;
    }
    match (authority(&one), authority(&other)) {
        (Some(host), Some(other)) if host == other => {
            let is_host = HostPort::parse(host, Some(443)).is_ok();
            (!is_host).then_some("the URL has no valid host")
        }
        (Some(_), Some(_)) => Some("the host of the URL depends on the request"),
        _ => Some("the redirect is neither a URL nor a path"),
    }
}

/// The host of a URL of HTTP, with its port.
fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    rest.split(['/', '?', '#']).next()
}

/// The maintenance of a route: its own setting, else that of the server; none if it is off.
pub(super) fn maintenance(
    own: Option<&Spanned<SwitchOr<handling::Maintenance>>>,
    server: Option<&Maintenance>,
    diagnostics: &mut Diagnostics,
) -> Option<Maintenance> {
    let table = match own.map(Spanned::get_ref) {
        None => return server.cloned(),
        Some(SwitchOr::Switch(false)) => return None,
        Some(SwitchOr::Switch(true)) => return Some(Maintenance::default()),
        Some(SwitchOr::Table(table)) => table,
    };
    let retry_after = table.retry_after.as_ref().and_then(|field| {
        written_duration(&handling::Maintenance::retry_after, field, diagnostics)
    });
    let retry_after_s = retry_after.map(|time| time.as_millis().div_ceil(1000));
    Some(Maintenance {
        retry_after_s: retry_after_s.and_then(|seconds| u64::try_from(seconds).ok()),
        allow_ips: networks(&table.allow_ips, diagnostics),
    })
}
