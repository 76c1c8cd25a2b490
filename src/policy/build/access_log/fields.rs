//! `access_log.fields`.

use std::collections::HashMap;
use std::ops::Range;

use http::HeaderName;

use super::super::names::twice;
use crate::base::text::cut;
use crate::client::settings::KeySource;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::config::tables::List;
use crate::policy::access_log::fields::{Field, Fields, RequestHeader};

/// Maximum number of headers. Each may have 1,024 bytes, and a line is copied as a whole.
const MAX_HEADERS: usize = 16;

/// Headers that carry secrets, whatever the file says.
const SECRET_HEADERS: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key"];

/// Headers that other gateways have as fields without a prefix.
const HEADERS: [&str; 9] = [
    "accept",
    "accept-language",
    "content-type",
    "host",
    "origin",
    "referer",
    "traceparent",
    "user-agent",
    "x-forwarded-for",
];

/// Names of fields in other gateways, with `_`, and the field that is the same here.
const FOREIGN: [(&str, &str); 32] = [
    ("address", "ip"),
    ("api_key", "key"),
    ("body_bytes_sent", "bytes_out"),
    ("bytes_received", "bytes_in"),
    ("bytes_sent", "bytes_out"),
    ("client", "ip"),
    ("client_ip", "ip"),
    ("downstream_peer_subject", "cert_subject"),
    ("downstream_tls_cipher", "tls_cipher"),
    ("downstream_tls_version", "tls_version"),
    ("duration", "total_ms"),
    ("duration_ms", "total_ms"),
    ("grpc_status_number", "grpc_status"),
    ("http_version", "http"),
    ("latency", "total_ms"),
    ("latency_ms", "total_ms"),
    ("protocol", "http"),
    ("remote_addr", "ip"),
    ("request_id", "id"),
    ("request_length", "bytes_in"),
    ("request_method", "method"),
    ("request_time", "total_ms"),
    ("requested_server_name", "sni"),
    ("server_protocol", "http"),
    ("ssl_cipher", "tls_cipher"),
    ("ssl_client_s_dn", "cert_subject"),
    ("ssl_protocol", "tls_version"),
    ("ssl_server_name", "sni"),
    ("status_code", "status"),
    ("timestamp", "time"),
    ("upstream_addr", "server"),
    ("upstream_response_time", "upstream_ms"),
];

/// Names of fields in other gateways that include the query.
const WITH_QUERY: [&str; 7] =
    ["args", "query", "query_string", "request", "request_uri", "uri", "url"];

/// What is wrong with a field.
enum Problem {
    /// There is none of this name.
    Unknown,
    /// It is a header that cannot be logged.
    Header(Diagnostic),
}

/// The members of a line; all of them without the setting.
pub(super) fn fields(
    list: &List,
    key_sources: &[KeySource],
    diagnostics: &mut Diagnostics,
) -> Option<Fields> {
    let Some(list) = list else { return Some(Fields::All) };
    let mut fields = Vec::new();
    let mut seen: HashMap<String, Range<usize>> = HashMap::new();
    let (mut headers, mut has_unknown) = (0, false);
    for item in list.get_ref() {
        let field = match field(item, key_sources) {
            Ok(field) => field,
            Err(Problem::Header(diagnostic)) => {
                diagnostics.push(diagnostic);
                continue;
            }
            Err(Problem::Unknown) => {
                diagnostics.push(unknown(item, !has_unknown));
                has_unknown = true;
                continue;
            }
        };
        if let Some(first) = seen.insert(field.member().to_owned(), item.span()) {
            diagnostics.push(twice(item, first));
        }
        headers += usize::from(matches!(field, Field::Header(_)));
        if headers > MAX_HEADERS {
            let message = format!("`fields` has more than {MAX_HEADERS} headers");
            diagnostics.push(Diagnostic::new(item.span(), message));
            return None;
        }
        fields.push(field);
    }
    if list.get_ref().is_empty() && !diagnostics.explain_absence(&["access_log", "fields"]) {
        let help = "leave `fields` out for all fields, or name some: \
                    `fields = [\"time\", \"key\", \"status\"]`";
        diagnostics.push(Diagnostic::new(list.span(), "`fields` names no field").help(help));
    }
    Some(Fields::Listed(fields.into()))
}

/// Finds one field, or what is wrong with it.
fn field(item: &Spanned<String>, key_sources: &[KeySource]) -> Result<Field, Problem> {
    let text = item.get_ref();
    let Some(header) = text.strip_prefix("header:") else {
        return Field::named(text).ok_or(Problem::Unknown);
    };
    let Ok(name) = HeaderName::from_bytes(header.as_bytes()) else {
        let message = "what follows `header:` is not the name of a header";
        let diagnostic = Diagnostic::new(item.span(), message);
        return Err(Problem::Header(diagnostic.help("such as `header:user-agent`")));
    };
    let Some(why) = why_secret(&name, key_sources) else {
        return Ok(Field::Header(RequestHeader::new(name)));
    };
    let shown = cut(name.as_str(), 64);
    let message =
        format!("the header `{shown}` may carry a secret, which the access log must not contain");
    Err(Problem::Header(Diagnostic::new(item.span(), message).help(why)))
}

/// Why a header may carry a secret; `None` if it does not. Servers may treat `_` as `-`.
fn why_secret(header: &HeaderName, key_sources: &[KeySource]) -> Option<&'static str> {
    let dashed = |name: &str| name.replace('_', "-");
    let header = dashed(header.as_str());
    let is_key = key_sources
        .iter()
        .any(|source| matches!(source, KeySource::Header(name) if dashed(name.as_str()) == header));
    if is_key {
        return Some(
            "`clients.api_key` names it; the fields `key` and `key_from` have the id of the key and \
             where it was",
        );
    }
    SECRET_HEADERS.contains(&&*header).then_some(
        "remove it; the fields `key` and `key_from` have the id of a key and where it was",
    )
}

/// The diagnostic of a field that does not exist: what is meant and, with `has_list`, all fields.
fn unknown(item: &Spanned<String>, has_list: bool) -> Diagnostic {
    let text = item.get_ref();
    let names = Field::names();
    // nginx writes `$status`.
    let folded = text.trim_start_matches('$').to_lowercase().replace('-', "_");
    let dashed = folded.strip_prefix("http_").unwrap_or(&folded).replace('_', "-");
    let foreign = FOREIGN.iter().find(|(name, _)| *name == folded).map(|(_, field)| *field);
    let mut help = Vec::new();
    if WITH_QUERY.contains(&&*folded) {
        help.push("a query may contain a key, so no field has it: `path` has the path".to_owned());
    } else if HEADERS.contains(&&*dashed) {
        help.push(format!("did you mean `header:{dashed}`?"));
    } else if let Some(meant) = foreign.or_else(|| suggest::closest(&folded, &names)) {
        help.push(format!("did you mean `{meant}`?"));
    }
    if has_list {
        let all = [&names[..], &["header:<name>"]].concat();
        help.push(suggest::wrap(&format!("the fields are {}", suggest::list(&all, "and"))));
    }
    let diagnostic = Diagnostic::new(item.span(), format!("there is no field `{}`", cut(text, 64)));
    if help.is_empty() { diagnostic } else { diagnostic.help(help.join("\n")) }
}
