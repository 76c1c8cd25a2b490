//! `[cors]`, and `cors` of a route.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};

use super::mistake::Mistake;
use super::names::twice;
use super::routes::each_method;
use super::server;
use super::values::{duration, switch};
use crate::base::duration::{micros, seconds_up};
use crate::base::text::cut;
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::handling::{self, SwitchOr};
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::config::tables;
use crate::policy::cors::origin::{OriginError, OriginPattern};
use crate::policy::cors::{Cors, Exposed, Origins, is_of_cors};

/// Maximum number of origins, of methods and of headers in one table: each request with an origin
/// is compared with all of them.
const MAX_ITEMS: usize = 256;

/// What stands for all origins, methods or headers.
const ANY: &str = "*";

/// Methods of requests that pages cannot send (Fetch standard, section "Methods").
const FORBIDDEN: [&str; 3] = ["CONNECT", "TRACE", "TRACK"];

/// Methods that are in common use.
const USUAL: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Headers of responses to gRPC-Web that have the outcome of a call.
const OF_GRPC_WEB: [&str; 2] = ["Grpc-Status", "Grpc-Message"];

/// `[cors]`; none without it, or with an error.
pub(super) fn of_all(config: &Config, diagnostics: &mut Diagnostics) -> Option<Arc<Cors>> {
    let table = config.cors.as_ref()?;
    cors(config, &["cors"], table, table.get_ref(), diagnostics).map(Arc::new)
}

/// The settings of a route: its own, else `of_all`; none if they are off.
pub(super) fn of_route(
    config: &Config,
    name: &str,
    route: &tables::Route,
    of_all: Option<&Arc<Cors>>,
    diagnostics: &mut Diagnostics,
) -> Option<Arc<Cors>> {
    let cors = match route.cors.as_ref().map(|own| (own, own.get_ref())) {
        None => of_all.cloned(),
        Some((_, SwitchOr::Switch(false))) => None,
        Some((own, SwitchOr::Switch(true))) => {
            if config.cors.is_none() && !diagnostics.explain_unknown(&["cors"]) {
                let message =
                    "`cors = true` takes the settings of `[cors]`, which the file does not have";
                let help = "write `cors = { origins = [\"https://app.example.com\"] }`";
                diagnostics.push(Diagnostic::new(own.span(), message).help(help));
            }
            of_all.cloned()
        }
        Some((own, SwitchOr::Table(table))) => {
            let place = ["routes", name, "cors"];
            cors(config, &place, own, table, diagnostics).map(Arc::new)
        }
    };
    if cors.is_some() {
        check_headers(route, diagnostics);
    }
    cors
}

/// The settings of the table at `place`; none if it has no valid origins. `table` is at `field`.
fn cors<T>(
    config: &Config,
    place: &[&str],
    field: &Spanned<T>,
    table: &handling::Cors,
    diagnostics: &mut Diagnostics,
) -> Option<Cors> {
    let credentials = switch(&handling::Cors::credentials, &table.credentials);
    let max_age = duration(&handling::Cors::max_age, &table.max_age, diagnostics);
    let methods = table.methods.as_ref().and_then(|list| methods(place, list, diagnostics));
    let headers = table.headers.as_ref().and_then(|list| names("headers", list, diagnostics));
    let exposed = exposed(config, table, credentials, diagnostics);
    let Some(list) = &table.origins else {
        let place: Vec<&str> = place.iter().copied().chain(["origins"]).collect();
        if !diagnostics.explain_absence(&place) {
            let help = "write `origins = [\"https://app.example.com\"]`, the origins of the pages";
            diagnostics.push(Diagnostic::new(field.span(), "`cors` has no `origins`").help(help));
        }
        return None;
    };
    let origins = origins(place, list, diagnostics)?;
    if credentials {
        check_credentials(&origins, list, diagnostics);
    }
    let max_age_s = seconds_up(micros(max_age?));
    Some(Cors {
        origins,
        methods: methods.map(Into::into),
        headers: headers.map(|names| listed(names.iter().map(HeaderName::as_str))),
        exposed,
        credentials,
        max_age_s,
    })
}

/// Reports credentials with origins that any page can have.
fn check_credentials(
    origins: &Origins,
    list: &Spanned<Vec<Spanned<String>>>,
    diagnostics: &mut Diagnostics,
) {
    let help = "list the origins of the pages, such as `https://app.example.com`, or leave `credentials` out";
    match origins {
        Origins::Any => {
            let message = "`*` with `credentials`: browsers refuse such responses";
            diagnostics.push(Diagnostic::new(list.span(), message).help(help));
        }
        Origins::Listed(patterns) if patterns.contains(&OriginPattern::Null) => {
            let message = "`null` with `credentials`: every site can send requests with the origin `null`, \
                           in the name of its visitors";
            diagnostics.push(Diagnostic::warning(list.span(), message).help(help));
        }
        Origins::Listed(_) => {}
    }
}

fn origins(
    place: &[&str],
    list: &Spanned<Vec<Spanned<String>>>,
    diagnostics: &mut Diagnostics,
) -> Option<Origins> {
    let help = "list the origins of the pages; `cors = false` in a route switches it off";
    if !has_items(place, "origins", list, help, diagnostics) {
        return None;
    }
    if is_any("origins", list, diagnostics)? {
        return Some(Origins::Any);
    }
    let mut seen = HashMap::new();
    let mut patterns = Vec::new();
    for item in list.get_ref().iter().filter(|item| item.get_ref() != ANY) {
        match OriginPattern::parse(item.get_ref()) {
            Err(error) => diagnostics.push(mistake(item.get_ref(), error).at(item.span())),
            Ok(pattern) => match seen.insert(pattern.clone(), item.span()) {
                Some(first) => diagnostics.push(twice(item, first)),
                None => patterns.push(pattern),
            },
        }
    }
    (!patterns.is_empty()).then(|| Origins::Listed(patterns.into()))
}

/// What is wrong with an origin, and what to write instead.
fn mistake(text: &str, error: OriginError) -> Mistake {
    let shown = cut(text, 64);
    if text.starts_with(['~', '^', '/']) || text.contains(['\\', '(', '$', '+']) {
        let message = "an origin is not a regular expression";
        let help =
            "write the origins as a list; `https://*.example.com` is all hosts below `example.com`";
        return Mistake::new(message, help);
    }
    let help = match error {
        OriginError::NoScheme if text.eq_ignore_ascii_case("null") => "write `null`".to_owned(),
        OriginError::NoScheme if text.starts_with("localhost") || text.starts_with("127.") => {
            format!("write `http://{shown}`")
        }
        OriginError::NoScheme => format!("write `https://{shown}`"),
        OriginError::Slash => format!("write `{}`", cut(text.trim_end_matches('/'), 64)),
        OriginError::Path => {
            let host = text.find("://").map_or(0, |at| at + 3);
            let end = text[host..].find(['/', '?', '#']).map_or(text.len(), |at| host + at);
            format!("write `{}`", cut(&text[..end], 64))
        }
        OriginError::Wildcard if text.ends_with("://*") => {
            "write `origins = [\"*\"]` for all origins".to_owned()
        }
        OriginError::Wildcard => {
            "such as `https://*.example.com`, which is all hosts below `example.com`".to_owned()
        }
        OriginError::Port if text.ends_with(":*") => "write an origin for each port".to_owned(),
        OriginError::Host if !text.is_ascii() => {
            "write it as browsers send it, in ASCII: such as `https://xn--bcher-kva.example`"
                .to_owned()
        }
        OriginError::Scheme | OriginError::User | OriginError::Port | OriginError::Host => {
            "an origin looks like `https://app.example.com` or `http://localhost:5173`".to_owned()
        }
    };
    Mistake::new(error.to_string(), help)
}

/// Whether a list that must not be empty has items; if not, that is reported.
fn has_items(
    place: &[&str],
    setting: &str,
    list: &Spanned<Vec<Spanned<String>>>,
    help: &str,
    diagnostics: &mut Diagnostics,
) -> bool {
    if !list.get_ref().is_empty() {
        return true;
    }
    let place: Vec<&str> = place.iter().copied().chain([setting]).collect();
    if !diagnostics.explain_absence(&place) {
        let message = format!("`{setting}` is empty");
        diagnostics.push(Diagnostic::new(list.span(), message).help(help));
    }
    false
}

/// Whether a list is `["*"]`; none if it has too many items, which is reported.
fn is_any(
    setting: &str,
    list: &Spanned<Vec<Spanned<String>>>,
    diagnostics: &mut Diagnostics,
) -> Option<bool> {
    let items = list.get_ref();
    if items.len() > MAX_ITEMS {
        let message = format!("`{setting}` has {} items; {MAX_ITEMS} are allowed", items.len());
        diagnostics.push(Diagnostic::new(list.span(), message));
        return None;
    }
    let any = items.iter().find(|item| item.get_ref() == ANY);
    if let Some(any) = any.filter(|_| items.len() > 1) {
        let message = "`*` stands for all, so the other items have no effect";
        diagnostics.push(Diagnostic::new(any.span(), message).help("keep `*`, or the others"));
    }
    Some(any.is_some())
}

/// The methods; none: all.
fn methods(
    place: &[&str],
    list: &Spanned<Vec<Spanned<String>>>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Method>> {
    let help = "leave `methods` out for all of them";
    if !has_items(place, "methods", list, help, diagnostics)
        || is_any("methods", list, diagnostics)?
    {
        return None;
    }
    for item in list.get_ref() {
        let text = item.get_ref().as_str();
        let meant = suggest::closest(text, &USUAL).filter(|meant| *meant != text);
        if FORBIDDEN.contains(&text) {
            let message = format!("pages cannot send {text}");
            diagnostics.push(Diagnostic::new(item.span(), message).help("leave it out"));
        } else if let Some(meant) = meant.filter(|meant| !text.eq_ignore_ascii_case(meant)) {
            let message = format!("unknown method `{}`", cut(text, 40));
            let help = format!("did you mean `{meant}`?");
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
        }
    }
    Some(each_method(list.get_ref(), diagnostics))
}

/// The response headers that pages can read.
fn exposed(
    config: &Config,
    table: &handling::Cors,
    credentials: bool,
    diagnostics: &mut Diagnostics,
) -> Exposed {
    let own: Vec<String> = match &table.exposed_headers {
        None => {
            let of_limits = server::headers(config).names();
            ["Retry-After"].into_iter().chain(of_limits).map(str::to_owned).collect()
        }
        Some(list) => {
            let names = names("exposed_headers", list, diagnostics);
            let is_any = list.get_ref().iter().any(|item| item.get_ref() == ANY);
            if is_any && credentials {
                let message = "`*` with `credentials` is the name of a header to browsers";
                let help = "list the headers that pages read, such as `x-total-count`";
                diagnostics.push(Diagnostic::new(list.span(), message).help(help));
            }
            let any = is_any.then(|| ANY.to_owned());
            let names = names.unwrap_or_default();
            any.into_iter().chain(names.iter().map(|name| name.as_str().to_owned())).collect()
        }
    };
    let with = |more: &[&'static str]| {
        let names = own.iter().map(String::as_str).chain(more.iter().copied());
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| listed(names.into_iter()))
    };
    Exposed { plain: with(&[]), grpc_web: with(&OF_GRPC_WEB) }
}

/// The headers of a list, without those that have an error; none if it is `["*"]`.
fn names(
    setting: &str,
    list: &Spanned<Vec<Spanned<String>>>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<HeaderName>> {
    if is_any(setting, list, diagnostics) != Some(false) {
        return None;
    }
    let mut seen = HashMap::new();
    let mut names = Vec::new();
    for item in list.get_ref() {
        let Ok(name) = HeaderName::from_bytes(item.get_ref().as_bytes()) else {
            let message = format!("`{}` is not the name of a header", cut(item.get_ref(), 64));
            let help = "a name has letters, digits, `-` and `_`";
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            continue;
        };
        match seen.insert(name.clone(), item.span()) {
            Some(first) => diagnostics.push(twice(item, first)),
            None => names.push(name),
        }
    }
    Some(names)
}

/// A list in the value of a header. Its items are names, which are valid in a value.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> HeaderValue {
    let names: Vec<&str> = names.collect();
    HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static(""))
}

/// Reports headers that a route with `cors` sets itself.
fn check_headers(route: &tables::Route, diagnostics: &mut Diagnostics) {
    let edits = route.response_headers.as_ref().map(Spanned::get_ref);
    let respond = route.respond.as_ref().map(Spanned::get_ref);
    let edits = edits.into_iter().flat_map(|edits| edits.set.keys().chain(edits.add.keys()));
    let names = edits.chain(respond.into_iter().flat_map(|respond| respond.headers.keys()));
    for name in names {
        let parsed = HeaderName::from_bytes(name.get_ref().as_bytes());
        if parsed.is_ok_and(|name| is_of_cors(&name)) {
            let message = format!("the header `{}` is set by `cors`", cut(name.get_ref(), 64));
            let help = "leave it out here, or write `cors = false` in the route";
            diagnostics.push(Diagnostic::new(name.span(), message).help(help));
        }
    }
}
