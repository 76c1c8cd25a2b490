//! `[errors.<status>]`: bodies of the gateway's own errors.

use std::net::Ipv4Addr;
use std::sync::Arc;

use http::HeaderValue;

use super::environment::{Environment, Lookup, Missing};
use super::mistake::Mistake;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::reference::{FileContent, Reference, plain_file};
use crate::config::spanned::Spanned;
use crate::config::{Config, Named, in_order, suggest};
use crate::policy::errors::template::{
    self, ErrorTemplate, ErrorTemplateError, ErrorValues, Escape, MAX_BYTES,
};
use crate::policy::errors::{Bodies, ErrorBody, Errors};
use crate::policy::template::{NamedValues, Values};

/// What a table of errors is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Status(u16),
    /// 400 to 499.
    Client,
    /// 500 to 599.
    Server,
}

/// The bodies of errors, without those that have an error; `None` without any.
pub(super) fn errors(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Box<Errors>> {
    let mut errors = Errors::default();
    for (name, table) in in_order(&config.errors) {
        let bodies = bodies(table.get_ref(), environment, diagnostics);
        match target(name.get_ref()) {
            Ok(Target::Status(status)) => drop(errors.by_status.insert(status, bodies)),
            Ok(Target::Client) => errors.client = bodies,
            Ok(Target::Server) => errors.server = bodies,
            Err(mistake) => diagnostics.push(mistake.at(name.span())),
        }
    }
    for (status, bodies) in &mut errors.by_status {
        let of_class = if *status < 500 { &errors.client } else { &errors.server };
        for body in of_class {
            if bodies.iter().all(|own| own.media_type != body.media_type) {
                bodies.push(Arc::clone(body));
            }
        }
    }
    (!config.errors.is_empty()).then(|| Box::new(errors))
}

/// The statuses that a table is for.
///
/// # Errors
/// See [`Mistake`].
fn target(name: &str) -> Result<Target, Mistake> {
    match (name, name.parse()) {
        ("4xx", _) => Ok(Target::Client),
        ("5xx", _) => Ok(Target::Server),
        (_, Ok(status @ 400..=599)) if name.len() == 3 => Ok(Target::Status(status)),
        _ => {
            let shown = cut(name, 40);
            let message =
                format!("`{shown}` is neither the status of an error nor a class of statuses");
            Err(Mistake::new(message, "write `[errors.429]`, `[errors.4xx]` or `[errors.5xx]`"))
        }
    }
}

fn bodies(
    table: &Named<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Bodies {
    let mut body = |name: &Spanned<String>, field: &Spanned<String>| {
        let media_type = name.get_ref();
        let escape = match escape(media_type) {
            Ok(escape) => escape,
            Err(mistake) => {
                diagnostics.push(mistake.at(name.span()));
                return None;
            }
        };
        let charset = if escape == Escape::Json { "" } else { "; charset=utf-8" };
        Some(Arc::new(ErrorBody {
            media_type: media_type.as_str().into(),
            content_type: HeaderValue::try_from(format!("{media_type}{charset}")).ok()?,
            template: template(field, escape, environment, diagnostics)?,
        }))
    };
    in_order(table).into_iter().filter_map(|(name, field)| body(name, field)).collect()
}

/// How values are written in a media type.
///
/// # Errors
/// It is none, or its values cannot be escaped.
fn escape(media_type: &str) -> Result<Escape, Mistake> {
    let shown = cut(media_type, 64);
    if let Some((bare, _)) = media_type.split_once(';') {
        let help = format!("write `\"{}\"`; the charset is always UTF-8", cut(bare.trim(), 64));
        return Err(Mistake::new("a media type of errors has no parameters", help));
    }
    let is_name = |text: &str| {
        let is_in_name =
            |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"+-._".contains(&c);
        !text.is_empty() && text.bytes().all(is_in_name)
    };
    let is_media_type =
        media_type.split_once('/').is_some_and(|(kind, name)| is_name(kind) && is_name(name));
    match media_type {
        _ if !is_media_type => {
            let message = format!("`{shown}` is not a media type in lower case");
            Err(Mistake::new(message, "such as `\"text/html\"` or `\"application/json\"`"))
        }
        "text/html" | "text/xml" | "application/xml" => Ok(Escape::Markup),
        "text/plain" => Ok(Escape::Text),
        "application/json" => Ok(Escape::Json),
        _ if media_type.ends_with("+xml") => Ok(Escape::Markup),
        _ if media_type.ends_with("+json") => Ok(Escape::Json),
        _ => {
            let message = format!("errors cannot be `{shown}`: values could not be escaped");
            let help = "possible here: `text/html`, `text/plain`, `application/json`, \
                        `application/xml`, and what ends in `+json` or `+xml`";
            Err(Mistake::new(message, help))
        }
    }
}

/// The template of a text, or of the file that it names.
fn template(
    field: &Spanned<String>,
    escape: Escape,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<ErrorTemplate> {
    let file = plain_file(field.get_ref());
    let text = match content(field.get_ref(), file, environment) {
        Ok(text) => text,
        Err(mistake) => {
            diagnostics.push(mistake.at(field.span()));
            return None;
        }
    };
    // Of a file that is not at hand, nothing can be checked.
    let Some(text) = text else { return ErrorTemplate::parse("", escape).ok() };
    match parse(&text, escape) {
        Ok(template) => Some(template),
        Err((line, Mistake { message, help })) => {
            let message = match file {
                Some(path) => format!("{}:{line}: {message}", cut(path, 64)),
                None => message,
            };
            diagnostics.push(Diagnostic::new(field.span(), message).help(help));
            None
        }
    }
}

/// The text of a body; `None`: that of a file that is not at hand.
///
/// # Errors
/// See [`Mistake`].
fn content(
    written: &str,
    file: Option<&str>,
    environment: Environment<'_>,
) -> Result<Option<String>, Mistake> {
    const RELATIVE: &str = "a relative path begins at the folder of the configuration file";
    match file {
        Some("") => {
            Err(Mistake::new("`file:` names no file", format!("write `file:429.html`; {RELATIVE}")))
        }
        Some(path) => match environment(Reference::File(FileContent::ErrorBody, path)) {
            Lookup::Value(text) => Ok(Some(text.trim_start_matches('\u{feff}').to_owned())),
            Lookup::Assumed => Ok(None),
            Lookup::Missing(Missing { message, help }) => Err(Mistake { message, help }),
        },
        None if is_path(written) => Err(Mistake::new(
            format!("`{}` is a path, not the text of a body", cut(written, 64)),
            format!("write `file:{}`; {RELATIVE}", cut(written, 64)),
        )),
        None => Ok(Some(written.to_owned())),
    }
}

/// Whether a text looks like the path of a file.
fn is_path(text: &str) -> bool {
    let endings = [".html", ".htm", ".http", ".json", ".txt", ".xml"];
    !text.contains([' ', '\n', '{', '<'])
        && endings.iter().any(|ending| text.to_ascii_lowercase().ends_with(ending))
}

/// Parses and checks the text of a body.
///
/// # Errors
/// See [`Mistake`]; with its line.
fn parse(text: &str, escape: Escape) -> Result<ErrorTemplate, (usize, Mistake)> {
    if text.len() > MAX_BYTES {
        let message = format!("the text of a body is longer than {} KiB", MAX_BYTES >> 10);
        return Err((1, Mistake::new(message, "shorten it")));
    }
    let template = ErrorTemplate::parse(text, escape).map_err(|(offset, error)| {
        let line = 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
        (line, Mistake::new(cut(&error.to_string(), 200), help(&error)))
    })?;
    match escape {
        Escape::Json => wrong_json(&template).map_or(Ok(template), Err),
        Escape::Markup | Escape::Text => Ok(template),
    }
}

/// What to do about an error in a text.
fn help(error: &ErrorTemplateError) -> String {
    match error {
        ErrorTemplateError::Unknown(name)
            if name.starts_with("query") || name.starts_with("header") =>
        {
            "there is none, because it may contain an API key".to_owned()
        }
        ErrorTemplateError::Unknown(name) => {
            let names = template::names();
            let literal = format!("`{{ {} }}`, with spaces, is text", cut(name, 64));
            suggest::wrap(&match suggest::closest(name, &names) {
                Some(meant) => format!("did you mean `{{{meant}}}`? {literal}"),
                None => format!("possible here: {}; {literal}", suggest::list(&names, "and")),
            })
        }
        ErrorTemplateError::InScript(name) => {
            format!("write it as an attribute, `data-value=\"{{{name}}}\"`, and read it from there")
        }
        ErrorTemplateError::InTag(name) => format!("write `\"{{{name}}}\"`"),
        ErrorTemplateError::TooManyVariables => "shorten it".to_owned(),
    }
}

/// Why a text is not JSON with the values of one error, or of another, and in which line.
fn wrong_json(template: &ErrorTemplate) -> Option<(usize, Mistake)> {
    // With a character that is escaped in each value, and without values.
    let values = |text: &'static str, number| ErrorValues {
        status: 429,
        title: text,
        kind: text,
        detail: text,
        retry_after: number,
        retry_after_ms: number,
        request: Values {
            client_id: Some(text),
            client_plan: text,
            client_tenant: text,
            client_ip: number.map(|_| Ipv4Addr::LOCALHOST.into()),
            request_id: text,
            route: text,
            host: text,
            method: text,
            path: text.as_bytes(),
            query: b"",
            named: NamedValues::Sample(text),
        },
    };
    let error = [values("\"", Some(1)), values("", None)].iter().find_map(|values| {
        serde_json::from_str::<serde::de::IgnoredAny>(&template.render(values)).err()
    })?;
    let words = error.to_string();
    // Columns are not those of the text, because its variables have been replaced.
    let words = words.split(" at line ").next().unwrap_or_default();
    let message = format!("the text of the body is not JSON: {words}");
    let help =
        "it has to be JSON when its variables are replaced, as in `\"{detail}\"` and `{status}`";
    Some((error.line(), Mistake::new(message, help)))
}
