//! `strip_prefix`, `replace_prefix`, `add_prefix`, `replace_path` and `upstream_host` of routes.

use std::ops::Range;

use http::HeaderValue;

use super::environment::Environment;
use super::path;
use super::template::{Expanded, template};
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::in_order;
use crate::config::spanned::Spanned;
use crate::config::tables;
use crate::net::address::HostPort;
use crate::net::percent::decode_strict;
use crate::policy::handling::UpstreamHost;
use crate::policy::matcher::{Matcher, PathPattern};
use crate::policy::rewrite::{PrefixRewrite, Rewrite};
use crate::policy::template::{NamedValues, Template, Values};

/// The value of `upstream_host` for the host of the server.
const OF_THE_SERVER: &str = "{upstream}";

/// A request in which each variable with a name has a value.
const SAMPLE: Values<'_> = Values {
    client_id: None,
    client_plan: "",
    client_tenant: "",
    client_ip: None,
    request_id: "",
    route: "",
    host: "",
    method: "",
    path: b"",
    query: b"",
    named: NamedValues::Sample("a"),
};

/// How the path is rewritten; none if it is not, or with an error. `matcher` is none if a route has
/// an error.
pub(super) fn rewrite(
    name: &str,
    route: &tables::Route,
    matcher: Option<&Matcher>,
    environment: Environment<'_>,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<Rewrite> {
    match &route.replace_path {
        Some(field) => whole(route, field, environment, diagnostics).map(Rewrite::Path),
        None => prefix(name, route, matcher, ignore_case, diagnostics).map(Rewrite::Prefix),
    }
}

/// The path of `replace_path`.
fn whole(
    route: &tables::Route,
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Template> {
    let others = [
        ("strip_prefix", route.strip_prefix.as_ref().map(Spanned::span)),
        ("replace_prefix", route.replace_prefix.keys().next().map(Spanned::span)),
        ("add_prefix", route.add_prefix.as_ref().map(Spanned::span)),
    ];
    if let Some((other, span)) = others.into_iter().find_map(|(name, span)| Some((name, span?))) {
        let message = format!("`{other}` has no effect beside `replace_path`");
        let diagnostic = Diagnostic::new(span, message).and(field.span(), "the whole path");
        diagnostics.push(diagnostic.help("keep one of them"));
        return None;
    }
    let Expanded { template, is_assumed } = template(field, environment, diagnostics)?;
    let wrong = if template.variables().next().is_some() {
        let help = "a part of the path for the upstream is `{param:id}`, `{header:x-tenant}` or `{query:page}`";
        Some(("`replace_path` has a variable whose value may be more than a segment", help))
    } else if is_assumed {
        None
    } else {
        let path = Rewrite::Path(template.clone()).path(&SAMPLE).unwrap_or_default();
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/%".contains(&byte);
        let is_path = path.starts_with('/')
            && !path.contains("//")
            && path.bytes().all(is_plain)
            && decode_strict(&path).is_some();
        let of_prefix = "to keep what follows a prefix, write `replace_prefix`, such as `{ \"/v1\" = \"/api\" }`; \
                         for the character, write `%2A`";
        let help = "such as `/users/{param:id}`: it begins with one slash, has no query, and other characters than \
                    letters, digits and `-._~` percent-encoded";
        if !is_path {
            Some(("`replace_path` is not a path", help))
        } else if path.ends_with("/*") {
            Some(("`replace_path` is the whole path, in which `*` stands for itself", of_prefix))
        } else {
            None
        }
    };
    if let Some((message, help)) = wrong {
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    Some(template)
}

/// The rewrite of the beginning of the path.
fn prefix(
    name: &str,
    route: &tables::Route,
    matcher: Option<&Matcher>,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<PrefixRewrite> {
    let removed = removed(route, diagnostics)?;
    let has_path = !diagnostics.explain_absence(&["routes", name, "path"]);
    if let (Some((prefix, span)), Some(matcher), true) = (&removed.prefix, matcher, has_path) {
        check_covered(prefix, span.clone(), matcher, ignore_case, diagnostics)?;
    }
    let added = match &route.add_prefix {
        None => "",
        Some(field) => match part("add_prefix", field.get_ref(), field.span(), diagnostics)? {
            "" => {
                let message = "`add_prefix` adds nothing";
                diagnostics.push(Diagnostic::new(field.span(), message).help("such as `/api`"));
                return None;
            }
            added => added,
        },
    };
    let rewrite = PrefixRewrite {
        prefix: removed.prefix.map_or_else(Box::default, |(prefix, _)| prefix.into()),
        replacement: format!("{added}{}", removed.replacement).into(),
        is_announced: route.strip_prefix.is_some(),
        ignore_case,
    };
    (!rewrite.prefix.is_empty() || !rewrite.replacement.is_empty()).then_some(rewrite)
}

/// The prefix that is taken away, and what replaces it.
#[derive(Default)]
struct Removed<'a> {
    prefix: Option<(&'a str, Range<usize>)>,
    replacement: &'a str,
}

fn removed<'a>(route: &'a tables::Route, diagnostics: &mut Diagnostics) -> Option<Removed<'a>> {
    let replaced = in_order(&route.replace_prefix);
    let (name, prefix, span, replacement) = match (&route.strip_prefix, replaced.as_slice()) {
        (None, []) => return Some(Removed::default()),
        (Some(field), []) => ("strip_prefix", field.get_ref(), field.span(), ""),
        (None, [(prefix, replacement)]) => {
            let text = replacement.get_ref();
            let replacement = part("replace_prefix", text, replacement.span(), diagnostics)?;
            ("replace_prefix", prefix.get_ref(), prefix.span(), replacement)
        }
        (Some(field), [(prefix, _), ..]) => {
            let message = "`strip_prefix` and `replace_prefix` exclude each other";
            let diagnostic = Diagnostic::new(field.span(), message).and(prefix.span(), "here");
            diagnostics.push(diagnostic.help("keep one of them"));
            return None;
        }
        (None, [(first, _), (second, _), ..]) => {
            let message = "`replace_prefix` has one entry";
            let diagnostic = Diagnostic::new(second.span(), message).and(first.span(), "the first");
            diagnostics.push(diagnostic.help("give each prefix a route"));
            return None;
        }
    };
    let prefix = part(name, prefix, span.clone(), diagnostics)?;
    if prefix.is_empty() {
        let message = format!("`{name}` takes nothing away");
        let help = "such as `/v1`; to put something in front of every path, write `add_prefix`";
        diagnostics.push(Diagnostic::new(span, message).help(help));
        return None;
    }
    Some(Removed { prefix: Some((prefix, span)), replacement })
}

/// A part of a path without a final slash; empty for `/`.
fn part<'a>(
    name: &str,
    text: &'a str,
    span: Range<usize>,
    diagnostics: &mut Diagnostics,
) -> Option<&'a str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte);
    let (message, help) = match path::parse(text) {
        Err((message, help)) => (message.to_owned(), help),
        Ok(PathPattern::Expression(_)) => return None,
        Ok(PathPattern::Exact(_)) if !text.bytes().all(plain) => {
            let message = format!("`{name}` has a character that is percent-encoded in requests");
            (message, Some("take a prefix of letters, digits and `-._~`".to_owned()))
        }
        Ok(PathPattern::Exact(_)) if text == "/" => return Some(""),
        Ok(PathPattern::Exact(_)) => match text.strip_suffix('/') {
            None => return Some(text),
            Some(bare) => {
                let message = format!("`{name}` ends with a slash");
                (message, Some(format!("write `{bare}`: the slash after it stays in the path")))
            }
        },
        Ok(PathPattern::Prefix(prefix)) => {
            let bare = prefix.trim_end_matches('/');
            let help = if bare.is_empty() {
                "such as `/v1`".to_owned()
            } else {
                format!("write `{bare}`")
            };
            (format!("`{name}` is a prefix without `*`"), Some(help))
        }
    };
    let diagnostic = Diagnostic::new(span, message);
    diagnostics.push(match help {
        Some(help) => diagnostic.help(cut(&help, 120)),
        None => diagnostic,
    });
    None
}

/// Checks that all paths of the route begin with the prefix.
fn check_covered(
    prefix: &str,
    span: Range<usize>,
    matcher: &Matcher,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Option<()> {
    let fold = |text: &str| if ignore_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let Some(path) = matcher.path.text() else {
        let message = "a prefix is taken away only from the paths of `path`, not of `path_regex`";
        let help = "write the route with `path`, whose segments may be parameters";
        diagnostics.push(Diagnostic::new(span, message).help(help));
        return None;
    };
    let rest = fold(path).strip_prefix(&fold(prefix)).map(str::to_owned);
    if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return Some(());
    }
    let shown = cut(prefix, 64);
    let message = format!("not every path of the route begins with `{shown}`");
    let help = format!("write `path = \"{shown}/*\"`, or a path below it");
    diagnostics.push(Diagnostic::new(span, message).help(help));
    None
}

/// The host that the upstream gets; none: that of the client.
pub(super) fn host(
    field: Option<&Spanned<String>>,
    diagnostics: &mut Diagnostics,
) -> Option<UpstreamHost> {
    let field = field?;
    let text = field.get_ref();
    if text == OF_THE_SERVER {
        return Some(UpstreamHost::OfServer);
    }
    // The default port is that of any scheme: it is not looked at.
    let is_valid = text.is_ascii() && HostPort::parse(text, Some(80)).is_ok();
    let value = HeaderValue::from_str(text).ok().filter(|_| is_valid);
    if value.is_none() {
        let message = format!("`{}` is not a host", cut(text, 64));
        let help = "such as `b.internal` or `b.internal:8080`, without scheme and path; `{upstream}` is the host \
                    of the server";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    }
    value.map(UpstreamHost::Fixed)
}
