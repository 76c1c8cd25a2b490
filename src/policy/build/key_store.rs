//! `[key_store]`.

use std::path::PathBuf;

use super::environment::{Environment, expand};
use super::values::{duration, number, switch};
use super::words::meaning;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, tables};
use crate::policy::key_store::{KeyStore, Place};

const HELP: &str = "write `url = \"redis\"` for the Redis of `[redis]`, or a file, such as \
                    `url = \"file:/var/lib/tollgate/keys.redb\"`";

/// The key store; none without the table or with an error.
pub(super) fn key_store(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<KeyStore> {
    let table = config.key_store.as_ref()?;
    let tables::KeyStore { url, cache, max_stale, on_store_failure, self_rotation } =
        table.get_ref();
    let cache = number(&tables::KeyStore::cache, cache, diagnostics);
    let max_stale = duration(&tables::KeyStore::max_stale, max_stale, diagnostics);
    check_self_rotation(config, self_rotation.as_ref(), diagnostics);
    let Some(url) = url else {
        if !diagnostics.explain_absence(&["key_store", "url"]) {
            let message = "`[key_store]` has no `url`";
            diagnostics.push(Diagnostic::new(table.span(), message).help(HELP));
        }
        return None;
    };
    Some(KeyStore {
        place: place(config, url, environment, diagnostics)?,
        cache: cache?,
        max_stale: max_stale?,
        on_store_failure: meaning(on_store_failure.as_ref()),
        self_rotation: switch(&tables::KeyStore::self_rotation, self_rotation),
    })
}

/// Checks that clients that can replace their keys have a path to do so.
fn check_self_rotation(
    config: &Config,
    self_rotation: Option<&Spanned<bool>>,
    diagnostics: &mut Diagnostics,
) {
    let path = config.clients.as_ref().and_then(|clients| clients.get_ref().limits_path.as_ref());
    let Some(setting) = self_rotation.filter(|setting| *setting.get_ref() && path.is_none()) else {
        return;
    };
    if !diagnostics.explain_absence(&["clients", "limits_path"]) {
        let message = "`self_rotation` needs the path where clients send POST";
        let help = "set it, such as `limits_path = \"/.well-known/ratelimit\"` in `[clients]`";
        diagnostics.push(Diagnostic::new(setting.span(), message).help(help));
    }
}

fn place(
    config: &Config,
    url: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Place> {
    let text = expand(&tables::KeyStore::url, url, environment, diagnostics)?;
    let (message, help) = match text.split_once(':') {
        None if text == "redis" && config.redis.is_some() => return Some(Place::Redis),
        None if text == "redis" => {
            if diagnostics.explain_absence(&["redis"]) {
                return None;
            }
            let help = "add `[redis]` with a `url`, or keep the keys in a file: \
                        `url = \"file:/var/lib/tollgate/keys.redb\"`";
            ("`url = \"redis\"` needs Redis, and the file has no [redis]".to_owned(), help)
        }
        Some(("file", path)) if !path.is_empty() => {
            return Some(Place::File(PathBuf::from(path)));
        }
        Some(("redis" | "rediss" | "redis+sentinel" | "redis+cluster" | "rediss+cluster", _)) => {
            let help = "write `url = \"redis\"`, and the address under `[redis]`";
            ("the key store has the connection of `[redis]`, not one of its own".to_owned(), help)
        }
        // The text may have a password.
        Some(_) if text.contains('@') => ("`url` is not a place for keys".to_owned(), HELP),
        _ => (format!("`url` is not a place for keys: `{}`", cut(&text, 64)), HELP),
    };
    diagnostics.push(Diagnostic::new(url.span(), message).help(help));
    None
}
