//! `[admin]`.

use super::environment::{Environment, expand};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, tables};
use crate::policy::redis::Secret;
use crate::policy::settings::{Admin, Server};

/// Minimum length of a token: 64 bits if it has only hexadecimal digits.
const MIN_TOKEN_BYTES: usize = 16;

/// Maximum length of a token: it fits into a header with any `max_header_bytes`.
const MAX_TOKEN_BYTES: usize = 1024;

/// Access to the admin port, whose address is part of `server`.
pub(super) fn admin(
    config: &Config,
    server: Option<&Server>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Admin> {
    let field = config.admin.as_ref().and_then(|admin| admin.get_ref().token.as_ref());
    if let Some(field) = field {
        return Some(Admin { token: Some(token(field, environment, diagnostics)?) });
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

/// Checks that a token is long enough not to be guessed, and that a header can carry it.
fn token(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Secret> {
    let text = expand(&tables::Admin::token, field, environment, diagnostics)?;
    let message = if text.len() < MIN_TOKEN_BYTES {
        "`token` is shorter than 16 characters: it can be guessed"
    } else if text.len() > MAX_TOKEN_BYTES {
        "`token` is longer than 1024 characters"
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        "`token` holds a character that is not visible ASCII: no header can carry it"
    } else {
        return Some(Secret::new(text));
    };
    let help = "`openssl rand -hex 32` makes a good one";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}
