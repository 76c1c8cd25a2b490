//! `[admin]`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::environment::{Environment, expand};
use super::keys;
use super::names::{self, Names, twice};
use crate::base::hash::Digest;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, tables};
use crate::policy::redis::Secret;
use crate::policy::settings::{Admin, AdminRole, AdminToken, Server};

/// What the audit calls a client that replaces its own key. The name of a token has no space.
const CLIENT: &str = "client";

/// Access to the admin port, whose address is part of `server`.
pub(super) fn admin(
    config: &Config,
    names: &Names,
    server: Option<&Server>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Admin> {
    let table = config.admin.as_ref().map(Spanned::get_ref);
    let written = table.and_then(|table| table.tokens.as_ref()).map(Spanned::get_ref);
    let tokens = tokens(written.map_or(&[][..], Vec::as_slice), names, diagnostics);
    if let Some(field) = table.and_then(|table| table.token.as_ref()) {
        return Some(Admin { token: Some(token(field, environment, diagnostics)?), tokens });
    }
    if !tokens.is_empty() {
        return Some(Admin { token: None, tokens });
    }
    let is_reachable = server.is_some_and(|server| !server.admin.ip().to_canonical().is_loopback());
    let address = config.server.as_ref().and_then(|server| server.get_ref().admin.as_ref());
    if let (true, Some(address)) = (is_reachable, address) {
        if !diagnostics.explain_absence(&["admin", "token"]) {
            let message = "`admin` can be reached from other machines without a token";
            let help = "write `token = \"${TOLLGATE_ADMIN_TOKEN}\"` under `[admin]`, or take an \
                        address such as `127.0.0.1:9090`";
            diagnostics.push(Diagnostic::new(address.span(), message).help(help));
        }
        return None;
    }
    Some(Admin::default())
}

/// The items of `tokens` without an error.
fn tokens(
    items: &[Spanned<tables::AdminToken>],
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Vec<AdminToken> {
    let mut seen_names: HashMap<&str, Range<usize>> = HashMap::new();
    let mut seen_digests: HashMap<Digest, Range<usize>> = HashMap::new();
    let mut tokens = Vec::new();
    for item in items {
        if let Some(name) = &item.get_ref().name
            && let Some(first) = seen_names.insert(name.get_ref(), name.span())
        {
            diagnostics.push(twice(name, first));
        }
        let Some(token) = named_token(item, names, diagnostics) else { continue };
        if let Some(first) = seen_digests.insert(token.digest, item.span()) {
            let message = "two tokens have one `sha256`: they are the same token";
            let diagnostic = Diagnostic::new(item.span(), message).and(first, "here first");
            diagnostics.push(diagnostic.help("take one of them out"));
        }
        tokens.push(token);
    }
    tokens
}

/// An item of `tokens`.
fn named_token(
    item: &Spanned<tables::AdminToken>,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Option<AdminToken> {
    let tables::AdminToken { name, sha256, roles, tenant, not_before, expires } = item.get_ref();
    let from = (&tables::AdminToken::not_before, not_before);
    let until = (&tables::AdminToken::expires, expires);
    let validity = keys::validity(from, until, diagnostics);
    let tenant = tenant.as_ref().map(|tenant| names.tenant(tenant, diagnostics));
    let written = roles.as_ref().map(Spanned::get_ref);
    let words = written.map_or(&[][..], Vec::as_slice).iter().map(|role| *role.get_ref());
    let mut roles_of_token: Vec<AdminRole> = words.collect();
    if roles.is_none() {
        roles_of_token.push(AdminRole::Read);
    } else if let (true, Some(roles)) = (roles_of_token.is_empty(), roles) {
        let help = "write `roles = [\"read\"]`, or take the token out";
        let message = "a token without a role may do nothing";
        diagnostics.push(Diagnostic::new(roles.span(), message).help(help));
    }
    let operate = written.and_then(|roles| {
        roles.iter().find(|role| *role.get_ref() == AdminRole::Operate).map(Spanned::span)
    });
    if let (Some(operate), Some(_)) = (operate, &tenant) {
        let message = "`operate` is about all clients, and the token is for one tenant";
        let help = "take out `operate` or `tenant`";
        diagnostics.push(Diagnostic::new(operate, message).help(help));
    }
    if name.is_none() {
        let message = "a token has no `name`, which the log shows";
        let help = "write `name = \"billing\"`";
        diagnostics.push(Diagnostic::new(item.span(), message).help(help));
    }
    if sha256.is_none() {
        let message = "a token has no `sha256`";
        let help = "run `tollgate hash-key --admin NAME`: it makes a token and prints its table";
        diagnostics.push(Diagnostic::new(item.span(), message).help(help));
    }
    let name = name.as_ref()?;
    names::check("token", name, diagnostics);
    if let "token" | "loopback" = name.get_ref().as_str() {
        let message = format!("`{}` is what the log calls another caller", name.get_ref());
        let help = "take another name, such as `billing`";
        diagnostics.push(Diagnostic::new(name.span(), message).help(help));
    }
    if name.get_ref() == CLIENT {
        let message = "`client` is what the audit calls a client that replaces its own key";
        let help = "take another name, such as `billing`: the log and the audit show this token as \
                    `token client`";
        diagnostics.push(Diagnostic::warning(name.span(), message).help(help));
    }
    Some(AdminToken {
        name: shown(name.get_ref()),
        digest: keys::digest(sha256.as_ref()?, diagnostics)?,
        roles: roles_of_token,
        tenant,
        validity: validity?,
    })
}

/// The name of a token in the log and the audit: no other caller has it.
fn shown(name: &str) -> Arc<str> {
    if name == CLIENT { format!("token {name}").into() } else { name.into() }
}

/// Checks that a token is long enough not to be guessed, and that a header can carry it.
fn token(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Secret> {
    let text = expand(&tables::Admin::token, field, environment, diagnostics)?;
    let (least, most) = tables::Admin::token.range().characters();
    let length = text.chars().count();
    let message = if length < least {
        format!("`token` is shorter than {least} characters: it can be guessed")
    } else if length > most {
        format!("`token` is longer than {most} characters")
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        "`token` holds a character that is not visible ASCII: no header can carry it".to_owned()
    } else {
        return Some(Secret::new(text));
    };
    let help = "`openssl rand -hex 32` makes a good one";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}
