//! `[acme]`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use http::uri::Uri;

use super::environment::{Environment, expand, expand_part};
use super::names::twice;
use super::words::meaning;
use crate::base::text::cut;
use crate::config::Config;
use crate::config::acme as written;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::net::address::{HostPort, is_host};
use crate::policy::acme::{Acme, AcmeStorage, Eab, EabKey};
use crate::policy::redis::Secret;

/// The settings of automatic certificates; none without the table or with an error.
pub(super) fn acme(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Acme> {
    let table = config.acme.as_ref()?;
    let acme = table.get_ref();
    let directory = directory(acme.directory.as_ref(), environment, diagnostics);
    let email = acme.email.as_ref().map(|field| email(field, environment, diagnostics));
    let domains = domains(table, diagnostics);
    let storage = storage(config, acme, environment, diagnostics);
    let ca = acme.ca.as_ref().map(|field| {
        expand(&written::Acme::ca, field, environment, diagnostics).map(PathBuf::from)
    });
    let eab = acme.eab.as_ref().map(|table| eab(table, environment, diagnostics));
    Some(Acme {
        directory: directory?,
        email: transposed(email)?,
        domains: domains?,
        storage: storage?,
        challenge: meaning(acme.challenge.as_ref()),
        ca: transposed(ca)?,
        eab: transposed(eab)?,
    })
}

/// A setting that may be left out; none if it has an error.
#[allow(
    clippy::option_option,
    reason = "an error and a setting that is left out are different things"
)]
fn transposed<T>(field: Option<Option<T>>) -> Option<Option<T>> {
    match field {
        Some(None) => None,
        Some(some) => Some(some),
        None => Some(None),
    }
}

fn refuse<T>(
    span: Range<usize>,
    message: impl Into<String>,
    help: impl Into<String>,
    diagnostics: &mut Diagnostics,
) -> Option<T> {
    diagnostics.push(Diagnostic::new(span, message.into()).help(help.into()));
    None
}

/// The URL of the directory.
fn directory(
    field: Option<&Spanned<String>>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let lets_encrypt = written::Acme::directory.text()?;
    let Some(field) = field else { return Some(lets_encrypt.to_owned()) };
    let part = expand_part(field.get_ref(), field, environment, &|value| value, diagnostics)?;
    if part.is_assumed || is_directory(&part.text) {
        return Some(part.text);
    }
    let help = format!("it looks like `{lets_encrypt}`");
    refuse(field.span(), "`directory` is not a URL with `https://`", help, diagnostics)
}

/// Whether a text is a URL with `https://`, a host, and neither a login nor a fragment.
fn is_directory(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['@', '#']);
    let Some(uri) = text.parse::<Uri>().ok().filter(|_| is_plain) else { return false };
    let authority = uri.authority().map(http::uri::Authority::as_str);
    uri.scheme_str() == Some("https")
        && authority.is_some_and(|text| HostPort::parse(text, Some(443)).is_ok())
}

/// An address for notices.
fn email(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let part = expand_part(field.get_ref(), field, environment, &|value| value, diagnostics)?;
    let text = part.text;
    let (name, host) = text.rsplit_once('@').unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b",;:<>()[]?\\\"@".contains(&byte);
    if part.is_assumed || (!name.is_empty() && name.bytes().all(is_plain) && is_host(host)) {
        return Some(text);
    }
    let help = "write one address, such as `ops@example.com`, without `mailto:`";
    refuse(field.span(), "`email` is not an address", help, diagnostics)
}

/// The names that get certificates, in lower case.
fn domains(table: &Spanned<written::Acme>, diagnostics: &mut Diagnostics) -> Option<Vec<String>> {
    let list = table.get_ref().domains.as_ref();
    let Some(list) = list.filter(|list| !list.get_ref().is_empty()) else {
        if !diagnostics.explain_absence(&["acme", "domains"]) {
            let span = list.map_or_else(|| table.span(), Spanned::span);
            let help = "write `domains = [\"api.example.com\"]`";
            return refuse(span, "`[acme]` has no `domains`", help, diagnostics);
        }
        return None;
    };
    let mut seen = HashMap::new();
    let mut domains = Vec::new();
    for item in list.get_ref() {
        if let Some((message, help)) = wrong_domain(item.get_ref()) {
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
            continue;
        }
        let domain = item.get_ref().to_ascii_lowercase();
        if let Some(first) = seen.insert(domain.clone(), item.span()) {
            diagnostics.push(twice(item, first));
            continue;
        }
        domains.push(domain);
    }
    Some(domains)
}

/// Why a text is not a name that a certificate can be requested for, and what to do.
fn wrong_domain(text: &str) -> Option<(String, &'static str)> {
    let shown = cut(text, 64);
    if text.contains('*') {
        let message =
            format!("`{shown}` needs the challenge dns-01, which the gateway does not have");
        return Some((message, "list each name, or use certificate files for the wildcard"));
    }
    if text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        let message = format!("`{shown}` is an address, and certificates are for names");
        return Some((message, "such as `api.example.com`"));
    }
    if !text.is_ascii() {
        let help = "write it as it is in DNS, in ASCII: such as `xn--bcher-kva.example`";
        return Some((format!("`{shown}` is not a name in ASCII"), help));
    }
    let is_label = |label: &str| !label.starts_with('-') && !label.ends_with('-');
    let is_name = is_host(text) && !text.ends_with('.') && !text.contains('_');
    if is_name && text.split('.').all(is_label) {
        return None;
    }
    let help = "write only the name, such as `api.example.com`, without scheme, port and path";
    Some((format!("`{shown}` is not the name of a domain"), help))
}

/// Where account and certificates are kept.
fn storage(
    config: &Config,
    acme: &written::Acme,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<AcmeStorage> {
    let is_redis = acme.storage.as_ref().is_some_and(|field| field.get_ref() == "redis");
    let Some(field) = acme.storage.as_ref().filter(|_| is_redis) else {
        if let Some(key) = &acme.storage_key
            && !diagnostics.explain_absence(&["acme", "storage"])
        {
            let help = "write `storage = \"redis\"`, or leave it out: files have mode 0600";
            let message = "`storage_key` encrypts what is in Redis, and `storage` is a folder";
            refuse::<()>(key.span(), message, help, diagnostics);
        }
        return folder(acme.storage.as_ref(), environment, diagnostics);
    };
    if config.redis.is_none() && !diagnostics.explain_unknown(&["redis"]) {
        let help = "add `[redis]` with its `url`, or name a folder";
        refuse::<()>(field.span(), "`storage = \"redis\"` needs `[redis]`", help, diagnostics);
    }
    let Some(key) = &acme.storage_key else {
        if !diagnostics.explain_absence(&["acme", "storage_key"]) {
            let message = "`storage = \"redis\"` needs `storage_key`, which encrypts private keys";
            let help = "write `storage_key = \"${ACME_STORAGE_KEY}\"`, the same for all gateways; \
                        `openssl rand -hex 32` makes a good one";
            refuse::<()>(field.span(), message, help, diagnostics);
        }
        return None;
    };
    let text = expand(&written::Acme::storage_key, key, environment, diagnostics)?;
    let (least, most) = written::Acme::storage_key.range().characters();
    if (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(AcmeStorage::Redis { key: Secret::new(text) });
    }
    let message = format!("`storage_key` has {least} to {most} visible ASCII characters");
    refuse(key.span(), message, "`openssl rand -hex 32` makes a good one", diagnostics)
}

fn folder(
    field: Option<&Spanned<String>>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<AcmeStorage> {
    let Some(field) = field else {
        return written::Acme::storage.text().map(|folder| AcmeStorage::Folder(folder.into()));
    };
    let text = expand(&written::Acme::storage, field, environment, diagnostics)?;
    if text.is_empty() || text.contains("://") || text.contains('\0') {
        let help = "it is the path of a folder, such as `\"acme\"`, or `\"redis\"`";
        return refuse(field.span(), "`storage` is not a folder", help, diagnostics);
    }
    Some(AcmeStorage::Folder(PathBuf::from(text)))
}

/// External account binding.
fn eab(
    table: &Spanned<written::Eab>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Eab> {
    let written::Eab { key_id, hmac_key } = table.get_ref();
    let (Some(key_id), Some(key_field)) = (key_id, hmac_key) else {
        let missing = if key_id.is_none() { "key_id" } else { "hmac_key" };
        if !diagnostics.explain_absence(&["acme", "eab", missing]) {
            let message = format!("`eab` has no `{missing}`");
            let help =
                "the authority shows both, `key_id` and `hmac_key`, where the account was made";
            return refuse(table.span(), message, help, diagnostics);
        }
        return None;
    };
    let id = expand(&written::Eab::key_id, key_id, environment, diagnostics);
    let key = expand_part(key_field.get_ref(), key_field, environment, &|value| value, diagnostics);
    let (id, key) = (id?, key?);
    if id.is_empty() {
        let help = "the authority shows it where the account was made";
        return refuse(key_id.span(), "`key_id` is empty", help, diagnostics);
    }
    let bytes = if key.is_assumed { Some(Vec::new()) } else { decode(&key.text) };
    let Some(bytes) = bytes else {
        let help = "copy it from the authority: letters, digits, `-` and `_`";
        return refuse(key_field.span(), "`hmac_key` is not base64url", help, diagnostics);
    };
    Some(Eab { key_id: id, hmac_key: EabKey::new(bytes) })
}

/// Decodes base64url, or base64 as some authorities show it, with or without padding; none if it is
/// empty or neither.
fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    if text.is_empty() || text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(((bits >> count) & 0xff) as u8);
        }
    }
    Some(bytes)
}
