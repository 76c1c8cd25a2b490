//! What a location does with a request: `proxy_pass`, `return`, `rewrite`.

use toml::Table;

use super::locations::Path;
use super::scope::{Scope, Text, text};
use super::servers::Server;
use super::upstreams::{Scheme, upstream};
use super::{Directive, Importer};
use crate::import::common::{prefix_of, redirect, replace};
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};

/// Directives that answer from files or by other protocols.
const UNSUPPORTED: [(&str, &str); 11] = [
    (
        "fastcgi_pass",
        "the gateway speaks HTTP only: put a server with HTTP before it, or forward to nginx",
    ),
    (
        "uwsgi_pass",
        "the gateway speaks HTTP only: start uWSGI with `--http-socket`, and write its address",
    ),
    ("scgi_pass", "the gateway speaks HTTP only: put a server with HTTP before it"),
    ("memcached_pass", "the gateway speaks HTTP only"),
    ("root", "files are not served: forward to a server that has them"),
    ("alias", "files are not served: forward to a server that has them"),
    ("try_files", "files are not served: forward to a server that has them"),
    ("index", "files are not served: forward to a server that has them"),
    ("autoindex", "files are not served"),
    ("stub_status", "metrics are at the admin port: http://127.0.0.1:9090/metrics"),
    ("empty_gif", "files are not served"),
];

/// The settings of a route for what the own directives of a scope do. None if it is nothing that
/// the gateway can do, which is noted if `is_last` says that no location in it could.
pub(super) fn target(
    importer: &Importer<'_>,
    scope: &Scope<'_>,
    path: &Path,
    server: &Server,
    is_last: bool,
    imported: &mut Imported,
) -> Option<Settings> {
    let own = |name: &str| scope.own_one(name);
    if let Some(directive) = scope.one("internal") {
        let why = "there are no internal redirects: clients get 404 for these paths, as from nginx";
        imported.notes.omitted(path.place, format!("{}: {}", path.shown, directive.shown()), why);
        return Some(refusal(404));
    }
    let denies_all =
        scope.lists().first().is_some_and(|it| it.name == "deny" && it.first() == "all");
    if denies_all && own("return").is_none() {
        return Some(refusal(403));
    }
    if let Some(directive) = own("return") {
        return answer(directive, scope, server, &mut imported.notes);
    }
    if let Some(directive) = own("proxy_pass").or_else(|| own("grpc_pass")) {
        let mut route = pass(importer, directive, scope, imported)?;
        rewriting(directive, scope, path, &mut route, &mut imported.notes);
        return Some(route);
    }
    for (name, why) in UNSUPPORTED {
        if let Some(directive) = own(name).filter(|_| is_last) {
            imported.notes.omitted(
                directive.place,
                format!("{}: {}", path.shown, directive.shown()),
                why,
            );
            return None;
        }
    }
    if is_last {
        imported.notes.omitted(path.place, &path.shown, "it forwards to no server");
    }
    None
}

/// A route that answers with a status.
fn refusal(status: i64) -> Settings {
    let mut respond = Table::new();
    respond.insert("status".into(), status.into());
    Settings::default().with("respond", respond)
}

/// `proxy_pass`.
fn pass(
    importer: &Importer<'_>,
    directive: &Directive,
    scope: &Scope<'_>,
    imported: &mut Imported,
) -> Option<Settings> {
    let url = scope.expanded(directive.first());
    let why = if url.contains('$') {
        "the upstream is a variable: write a route for each value, with `headers`, `query`, `cookies` or `host` as conditions"
    } else if url.contains("unix:") {
        "servers over Unix sockets are not supported: let it listen on 127.0.0.1"
    } else {
        "it is no URL of a server"
    };
    let name = Scheme::split(&url).and_then(|(scheme, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        upstream(importer, scheme, authority, scope, directive.place, imported)
    });
    match name {
        Some(name) => Some(Settings::default().with("upstream", name)),
        None => {
            imported.notes.omitted(directive.place, directive.shown(), why);
            None
        }
    }
}

/// What the path of `proxy_pass` and `rewrite` make of the path.
fn rewriting(
    pass: &Directive,
    scope: &Scope<'_>,
    path: &Path,
    route: &mut Settings,
    notes: &mut Notes,
) {
    let url = scope.expanded(pass.first());
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    if let Some((_, uri)) = rest.split_once('/') {
        let uri = format!("/{uri}");
        let (place, shown) = (pass.place, pass.shown());
        if uri.contains(['?', '#']) {
            notes.omitted(place, shown, "a path for the upstream has no query");
        } else if let Some(exact) = &path.exact {
            if *exact != uri {
                route.set("replace_path", uri);
            }
        } else if let Some(prefix) = &path.prefix {
            replace(prefix, &uri, route);
            if prefix.ends_with('/') != uri.ends_with('/') && prefix != "/" && uri != "/" {
                let why = "nginx replaces the prefix as a text, also within a segment; here it is whole segments";
                notes.approximate(place, shown, why);
            }
        }
    }
    let rewrites = scope.own().iter().filter(|it| it.name == "rewrite");
    for directive in rewrites {
        rewrite(directive, path, route, notes);
    }
}

/// `rewrite ^/old/(.*)$ /new/$1 break`.
fn rewrite(directive: &Directive, path: &Path, route: &mut Settings, notes: &mut Notes) {
    let why = "only a prefix can be replaced: `replace_prefix = { \"/old\" = \"/new\" }`, or `redirect` in a route of its own";
    let parsed = match directive.arguments.as_slice() {
        [pattern, by] => prefix_of(pattern).zip(Some(by.as_str())),
        [pattern, by, flag] if flag == "break" || flag == "last" => {
            prefix_of(pattern).zip(Some(by.as_str()))
        }
        _ => None,
    };
    let new = parsed.and_then(|(prefix, by)| Some((prefix, by.strip_suffix("$1")?)));
    let fits = |prefix: &str| {
        let own = path.prefix.as_deref().or(path.exact.as_deref()).unwrap_or_default();
        prefix.is_empty() || own == prefix || own.starts_with(&format!("{prefix}/"))
    };
    match new {
        Some((prefix, by)) if fits(&prefix) && !by.contains(['$', '?']) => {
            replace(&prefix, by, route);
        }
        _ => notes.omitted(directive.place, directive.shown(), why),
    }
}

/// `return`.
fn answer(
    directive: &Directive,
    scope: &Scope<'_>,
    server: &Server,
    notes: &mut Notes,
) -> Option<Settings> {
    let (status, rest) = match directive.arguments.as_slice() {
        [status] if status.parse::<u16>().is_ok() => (status.parse().ok()?, None),
        [url] => (302, Some(url)),
        [status, rest, ..] => (status.parse::<u16>().ok()?, Some(rest)),
        [] => return None,
    };
    let (place, shown) = (directive.place, directive.shown());
    let rest = rest.map(|text| scope.expanded(text));
    if matches!(status, 301 | 302 | 303 | 307 | 308) {
        let to = rest.map(|to| text(&to, server.name(), server.scheme()));
        return match to {
            Some(Text::Known(to)) => {
                Some(Settings::default().with("redirect", redirect(&to, i64::from(status))))
            }
            Some(Text::Unknown(variable)) => {
                let why = format!("`{variable}` is not known here: write `redirect` of a route");
                notes.omitted(place, shown, why);
                None
            }
            None => None,
        };
    }
    if status == 444 {
        let why = "it is 404: no connection is closed without an answer";
        notes.approximate(place, shown, why);
        return Some(refusal(404));
    }
    if !(200..600).contains(&status) || (300..400).contains(&status) || status == 205 {
        notes.omitted(
            place,
            shown,
            "a fixed answer has a status of 200 to 599, without 205 and 3xx",
        );
        return None;
    }
    let mut respond = Table::new();
    respond.insert("status".into(), i64::from(status).into());
    if let Some(body) = rest.filter(|body| !body.is_empty()) {
        if body.contains('$') {
            notes.approximate(place, shown, "the body of a fixed answer has no variables");
        }
        respond.insert("body".into(), body.into());
        if let Some(kind) = scope.one("default_type").filter(|it| it.first().contains('/')) {
            respond.insert("content_type".into(), kind.first().into());
        }
    }
    Some(Settings::default().with("respond", respond))
}
