//! `[keys]`: known clients, by the digest of their key. Messages never contain possible secrets.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::names::Names;
use crate::base::hash::Digest;
use crate::base::text::cut;
use crate::client::principal::{Keys, Principal};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::secrets::is_digest;
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::config::{Config, in_order, tables};

/// All keys.
pub(super) fn keys(config: &Config, names: &Names, diagnostics: &mut Diagnostics) -> Keys {
    let mut keys = Keys::default();
    let mut places: HashMap<Digest, Range<usize>> = HashMap::new();
    for ((name, key), id) in in_order(&config.keys).into_iter().zip(names.keys.names()) {
        let plan = plan(name, key, names, diagnostics);
        let mut found = digest(name, key, diagnostics);
        if let Some((digest, span)) = &found {
            if let Some(first) = places.get(digest) {
                let message = "two keys have one `sha256`: they are the same key";
                let diagnostic =
                    Diagnostic::new(span.clone(), message).and(first.clone(), "here first");
                diagnostics.push(diagnostic.help("take one of them out"));
                found = None;
            } else {
                places.insert(*digest, span.clone());
            }
        }
        let principal = Principal::new(Arc::clone(id), plan.unwrap_or(0));
        keys.add(principal, found.map(|(digest, _)| digest));
    }
    keys
}

/// The index of a key's plan.
fn plan(
    name: &Spanned<String>,
    key: &Spanned<tables::Key>,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<u32> {
    if let Some(plan) = &key.get_ref().plan {
        return names.plans.find(plan, diagnostics);
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

/// The digest of a key, and its span.
fn digest(
    name: &Spanned<String>,
    key: &Spanned<tables::Key>,
    diagnostics: &mut Diagnostics,
) -> Option<(Digest, Range<usize>)> {
    let Some(field) = &key.get_ref().sha256 else {
        if !diagnostics.explain_absence(&["keys", name.get_ref(), "sha256"]) {
            let message = format!("the key `{}` has no `sha256`", cut(name.get_ref(), 64));
            let help = "run `tollgate hash-key`: it makes a key and prints the lines for it";
            diagnostics.push(Diagnostic::new(name.span(), message).help(help));
        }
        return None;
    };
    let text = field.get_ref();
    if is_digest(text) {
        return decode(text).map(|digest| (digest, field.span()));
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
