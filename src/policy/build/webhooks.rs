//! `[webhooks.<name>]`.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::environment::{Environment, PLACEHOLDER, expand};
use super::values::{duration, optional};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::tables::Webhook as Table;
use crate::config::words::Word as _;
use crate::config::{Config, in_order, suggest};
use crate::net::url::HttpUrl;
use crate::policy::webhook::{SigningKey, Webhook, WebhookEvent};

/// What a URL looks like.
const URL_HELP: &str = "such as `url = \"https://billing.example.com/events\"`";

/// What a secret looks like.
const SECRET_HELP: &str = "a secret is `whsec_` and 24 to 64 random bytes in Base64: `echo whsec_$(openssl rand -base64 32)`; best set as \
                           `\"${NAME}\"` or `\"${file:PATH}\"`";

/// Shortest and longest key, in bytes: those of Standard Webhooks.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The webhooks, in the order of the file; those with errors are left out.
pub(super) fn webhooks(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Webhook> {
    let each = in_order(&config.webhooks).into_iter();
    let webhooks: Vec<Webhook> =
        each.filter_map(|(name, table)| webhook(name, table, environment, diagnostics)).collect();
    let has_usage = config.redis.is_some()
        || config.usage.as_ref().is_some_and(|usage| usage.get_ref().file.is_some());
    if let Some((name, _)) = config.webhooks.iter().next().filter(|_| !has_usage) {
        let message = "webhooks need `[redis]` or `usage.file`, which say what clients used";
        let help = "add `[usage]` with `file = \"/var/lib/tollgate/usage.redb\"`";
        diagnostics.push(Diagnostic::warning(name.span(), message.to_owned()).help(help));
    }
    webhooks
}

fn webhook(
    name: &Spanned<String>,
    field: &Spanned<Table>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Webhook> {
    let table = field.get_ref();
    let mut required =
        |setting: &'static str, row: &Row, own: &Option<Spanned<String>>, help: &'static str| {
            let Some(own) = own else {
                if !diagnostics.explain_absence(&["webhooks", name.get_ref(), setting]) {
                    let message = format!("`[webhooks.{}]` has no `{setting}`", name.get_ref());
                    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
                }
                return None;
            };
            Some((expand(row, own, environment, diagnostics)?, own.span()))
        };
    let url = required("url", &Table::url, &table.url, URL_HELP);
    let secret = required("secret", &Table::secret, &table.secret, SECRET_HELP);
    let url = url.and_then(|(text, span)| {
        if text.starts_with(PLACEHOLDER) {
            return HttpUrl::parse("https://localhost/");
        }
        let url = HttpUrl::parse(&text).filter(HttpUrl::is_private);
        if url.is_none() {
            let message = "`url` is not a URL with `https://`";
            diagnostics.push(Diagnostic::new(span, message).help(URL_HELP));
        }
        url
    });
    let key = secret.and_then(|(text, span)| {
        if text.contains(PLACEHOLDER) {
            return Some(SigningKey::new(Vec::new()));
        }
        let key = key(&text);
        if key.is_none() {
            let diagnostic = Diagnostic::new(span, "`secret` is not the secret of a webhook");
            diagnostics.push(diagnostic.here("not shown").help(SECRET_HELP));
        }
        key
    });
    let events = events(table, diagnostics);
    let timeout = duration(&Table::timeout, &table.timeout, diagnostics);
    let ca = optional(table.ca.as_ref(), |ca| {
        expand(&Table::ca, ca, environment, diagnostics).map(PathBuf::from)
    });
    let name = Arc::from(name.get_ref().as_str());
    Some(Webhook { name, url: url?, key: key?, events: events?, timeout: timeout?, ca: ca? })
}

/// The key of a secret; `None` if it is malformed.
fn key(secret: &str) -> Option<SigningKey> {
    let bytes = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    KEY_BYTES.contains(&bytes.len()).then(|| SigningKey::new(bytes))
}

/// The events that are sent, each once; all by default.
fn events(table: &Table, diagnostics: &mut Diagnostics) -> Option<Vec<WebhookEvent>> {
    let Some(list) = &table.events else { return Some(WebhookEvent::ALL.to_vec()) };
    let mut events = Vec::new();
    for item in list.get_ref() {
        let Some(event) = WebhookEvent::of_word(item.get_ref()) else {
            let message = suggest::unknown("`events`", item.get_ref(), WebhookEvent::WORDS);
            diagnostics.push(Diagnostic::new(item.span(), message));
            return None;
        };
        if !events.contains(&event) {
            events.push(event);
        }
    }
    Some(events)
}
