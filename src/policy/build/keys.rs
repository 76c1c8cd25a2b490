//! `[keys]`: known clients, by the digests of their keys, and `[tenants]`. Messages never contain
//! possible secrets.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::basic::{self, Users};
use super::environment::Environment;
use super::names::{self, Names, twice};
use super::{forward_auth, introspection, key_store, values};
use crate::base::hash::Digest;
use crate::base::text::cut;
use crate::client::password::Passwords;
use crate::client::principal::{Keys, KnownKey, Principal, Tenant, Tenants, Validity};
use crate::client::settings::Clients;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::Row;
use crate::config::secrets::is_digest;
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::config::tables::{Secret, TimeText};
use crate::config::{Config, in_order, tables};
use crate::policy::introspection::Introspection;
use crate::policy::key_store::KeyStore;

/// An API key of the file.
struct Written {
    digest: Digest,
    /// Place of the digest.
    span: Range<usize>,
    name: Option<Arc<str>>,
    validity: Validity,
}

/// The tenants of `[tenants]`.
fn tenants(config: &Config, names: &Names, diagnostics: &mut Diagnostics) -> Tenants {
    let mut tenants = Tenants::default();
    for ((_, table), id) in in_order(&config.tenants).into_iter().zip(names.tenants.names()) {
        let plan = table.get_ref().plan.as_ref();
        let plan = plan.and_then(|plan| names.plans.find(plan, diagnostics));
        tenants.add(Tenant::new(Arc::clone(id), plan));
    }
    tenants
}

/// The clients that are known by a credential.
pub(super) struct Known {
    pub(super) keys: Keys,
    pub(super) passwords: Option<Passwords>,
    pub(super) tenants: Tenants,
    /// Where other keys are.
    pub(super) key_store: Option<KeyStore>,
    /// How the issuer of bearer tokens is asked; none with an error, the inner one without it.
    #[allow(clippy::option_option, reason = "an error and no table are different things")]
    pub(super) introspection: Option<Option<Box<Introspection>>>,
    /// Servers that are asked about requests; none with an error.
    pub(super) forward_auth: Option<forward_auth::Tables>,
}

/// All keys and users of the file, the tenants of `[tenants]`, and the servers that are asked about
/// requests. `clients` are the settings of `[clients]`.
pub(super) fn all(
    config: &Config,
    names: &Names,
    environment: Environment<'_>,
    clients: Option<&Clients>,
    diagnostics: &mut Diagnostics,
) -> Known {
    let anonymous_plan = clients.map(|clients| clients.anonymous_plan);
    let users = Users::of(config, environment, diagnostics);
    let (mut keys, tenants) = keys(config, names, &users, diagnostics);
    let passwords = basic::passwords(config, names, users, &mut keys, anonymous_plan, diagnostics);
    let key_store = key_store::key_store(config, environment, diagnostics);
    let forward_auth =
        forward_auth::tables(config, names, environment, anonymous_plan, diagnostics);
    let introspection = introspection::introspection(config, names, environment, diagnostics);
    Known { keys, passwords, tenants, key_store, introspection, forward_auth }
}

/// All keys of the file, and the tenants of `[tenants]`. A client of `users` needs no key.
fn keys(
    config: &Config,
    names: &Names,
    users: &Users,
    diagnostics: &mut Diagnostics,
) -> (Keys, Tenants) {
    let tenants = tenants(config, names, diagnostics);
    let mut keys = Keys::default();
    let mut places: HashMap<Digest, Range<usize>> = HashMap::new();
    for ((name, key), id) in in_order(&config.keys).into_iter().zip(names.keys.names()) {
        let tenant = key.get_ref().tenant.as_ref();
        let tenant = tenant.map(|name| tenants.named(&names.tenant(name, diagnostics)));
        let plan = plan(name, key, tenant.as_deref(), names, diagnostics);
        let is_enabled = values::switch(&tables::Key::enabled, &key.get_ref().enabled);
        let principal = Principal::new(Arc::clone(id), plan.unwrap_or(0), is_enabled);
        let principal = keys.add(Principal { tenant, ..principal });
        for Written { digest, span, name, validity } in
            written(name, key.get_ref(), users, diagnostics)
        {
            if let Some(first) = places.get(&digest) {
                let message = "two keys have one `sha256`: they are the same key";
                let diagnostic = Diagnostic::new(span, message).and(first.clone(), "here first");
                diagnostics.push(diagnostic.help("take one of them out"));
            } else {
                places.insert(digest, span);
                let principal = Arc::clone(&principal);
                keys.add_key(digest, KnownKey { principal, name, validity });
            }
        }
    }
    (keys, tenants)
}

/// The keys of a client: that of `sha256`, and those of `secrets`.
fn written(
    id: &Spanned<String>,
    key: &tables::Key,
    users: &Users,
    diagnostics: &mut Diagnostics,
) -> Vec<Written> {
    let own = key.sha256.as_ref().and_then(|field| {
        let digest = digest(field, diagnostics)?;
        Some(Written { digest, span: field.span(), name: None, validity: Validity::ALWAYS })
    });
    let mut written: Vec<Written> = own.into_iter().collect();
    let secrets = key.secrets.as_ref().map(Spanned::get_ref);
    let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
    for item in secrets.into_iter().flatten() {
        if let Some(name) = &item.get_ref().name {
            names::check("key", name, diagnostics);
            if let Some(first) = seen.insert(name.get_ref(), name.span()) {
                diagnostics.push(twice(name, first));
            }
        }
        written.extend(secret(id, item, diagnostics));
    }
    let has_none = key.sha256.is_none() && secrets.is_none_or(Vec::is_empty);
    if has_none && !users.may_have(id.get_ref()) {
        missing(id, id.span(), &["keys", id.get_ref(), "sha256"], diagnostics);
    }
    written
}

/// An item of `secrets`.
fn secret(
    id: &Spanned<String>,
    item: &Spanned<Secret>,
    diagnostics: &mut Diagnostics,
) -> Option<Written> {
    let Secret { name, sha256, not_before, expires } = item.get_ref();
    let validity =
        validity((&Secret::not_before, not_before), (&Secret::expires, expires), diagnostics);
    let Some(field) = sha256 else {
        missing(id, item.span(), &["keys", id.get_ref(), "secrets", "sha256"], diagnostics);
        return None;
    };
    let digest = digest(field, diagnostics)?;
    let name = name.as_ref().map(|name| Arc::from(name.get_ref().as_str()));
    Some(Written { digest, span: field.span(), name, validity: validity? })
}

/// The time between `not_before` and `expires`, each with its row.
pub(super) fn validity(
    (from_row, from): (&Row, &tables::Field<TimeText>),
    (until_row, until): (&Row, &tables::Field<TimeText>),
    diagnostics: &mut Diagnostics,
) -> Option<Validity> {
    let not_before_us = values::optional_time(from_row, from, diagnostics);
    let expires_us = values::optional_time(until_row, until, diagnostics);
    let validity = Validity {
        not_before_us: not_before_us?.unwrap_or(Validity::ALWAYS.not_before_us),
        expires_us: expires_us?.unwrap_or(Validity::ALWAYS.expires_us),
    };
    if let (Some(from), Some(until)) = (from, until)
        && validity.not_before_us >= validity.expires_us
    {
        let message = "`expires` is not after `not_before`: it is never valid";
        let diagnostic = Diagnostic::new(until.span(), message).and(from.span(), "begins here");
        diagnostics.push(diagnostic.help("write a later `expires`, or leave one of them out"));
        return None;
    }
    Some(validity)
}

/// Reports that a client has no key, or that an item of `secrets` has no hash; `path` is where it
/// would be.
fn missing(id: &Spanned<String>, span: Range<usize>, path: &[&str], diagnostics: &mut Diagnostics) {
    if diagnostics.explain_absence(path) {
        return;
    }
    let id = cut(id.get_ref(), 64);
    let message = match path {
        [.., "secrets", _] => format!("a key of `{id}` has no `sha256`"),
        _ => format!("the key `{id}` has no `sha256`"),
    };
    let help = "run `tollgate hash-key`: it makes a key and prints the lines for it";
    diagnostics.push(Diagnostic::new(span, message).help(help));
}

/// The index of a key's plan.
fn plan(
    name: &Spanned<String>,
    key: &Spanned<tables::Key>,
    tenant: Option<&Tenant>,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<u32> {
    if let Some(plan) = &key.get_ref().plan {
        return names.plans.find(plan, diagnostics);
    }
    if let Some(plan) = tenant.and_then(|tenant| tenant.plan) {
        return Some(plan);
    }
    if !names.has_plans {
        return Some(0);
    }
    if !diagnostics.explain_absence(&["keys", name.get_ref(), "plan"]) {
        let message = format!("the key `{}` has no plan", cut(name.get_ref(), 64));
        let plans: Vec<&str> = names.plans.names().iter().map(|name| &**name).collect();
        let help = match plans.as_slice() {
            [only] => format!("add `plan = \"{}\"`", cut(only, 64)),
            _ => format!("add `plan = \"…\"`; the plans are {}", suggest::list(&plans, "and")),
        };
        diagnostics.push(Diagnostic::new(name.span(), message).help(help));
    }
    None
}

/// The digest of a key, or of a token.
pub(super) fn digest(field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Digest> {
    let text = field.get_ref();
    if is_digest(text) {
        return decode(text);
    }
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let message = if is_hex {
        format!("`sha256` has 64 hexadecimal digits, not {}", text.chars().count())
    } else {
        "`sha256` is not the hash of a key: it has 64 hexadecimal digits".to_owned()
    };
    let help = "if this is the key itself, run `tollgate hash-key`: it prints the line to write";
    diagnostics.push(Diagnostic::new(field.span(), message).here("not shown").help(help));
    None
}

/// Decodes 64 hexadecimal digits.
fn decode(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(digest)
}
