//! `[admin]`.

use super::environment::{Environment, expand};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, tables};
use crate::policy::redis::Secret;
use crate::policy::settings::{Admin, Server};

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
