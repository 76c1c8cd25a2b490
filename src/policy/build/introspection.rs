//! `[clients.introspection]`.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::environment::{Environment, PLACEHOLDER, expand};
use super::jwt::{Builder, texts};
use super::names::Names;
use super::values::{duration, number, optional, switch};
use super::words::meaning;
use crate::base::duration::micros;
use crate::client::jwt::key_set::KeySet;
use crate::client::jwt::settings::{Issuer, KeySource};
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::introspection::Introspection as Table;
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::net::url::HttpUrl;
use crate::policy::introspection::Introspection;
use crate::policy::redis::Secret;

/// What the URL looks like.
const URL_HELP: &str = "such as `url = \"https://id.example.com/introspect\"`, the `introspection_endpoint` of the issuer";

/// The settings of the table; the inner result is none without it.
#[allow(clippy::option_option, reason = "an error and no table are different things")]
pub(super) fn introspection(
    config: &Config,
    names: &Names,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Option<Box<Introspection>>> {
    let clients = config.clients.as_ref().map(Spanned::get_ref);
    let Some(field) = clients.and_then(|clients| clients.introspection.as_ref()) else {
        return Some(None);
    };
    let table = field.get_ref();
    let mut required = |name: &'static str, row: &Row, own: &Option<Spanned<String>>| {
        let Some(own) = own else {
            if !diagnostics.explain_absence(&["clients", "introspection", name]) {
                let message = format!("`[clients.introspection]` has no `{name}`");
                let help = if name == "url" {
                    URL_HELP
                } else {
                    "the issuer answers only to clients that it knows: register the gateway there"
                };
                diagnostics.push(Diagnostic::new(field.span(), message).help(help));
            }
            return None;
        };
        let text = expand(row, own, environment, diagnostics)?;
        Some((text, own.span()))
    };
    let url = required("url", &Table::url, &table.url);
    let id = required("client_id", &Table::client_id, &table.client_id);
    let secret = required("client_secret", &Table::client_secret, &table.client_secret);
    let url = url.and_then(|(text, span)| {
        if text.starts_with(PLACEHOLDER) {
            return HttpUrl::parse("https://localhost/");
        }
        let url = HttpUrl::parse(&text).filter(HttpUrl::is_private);
        if url.is_none() {
            let message = "`url` is not a URL with `https://`: it gets tokens and a secret";
            diagnostics.push(Diagnostic::new(span, message).help(URL_HELP));
        }
        url
    });
    for (row, given) in [(&Table::client_id, &id), (&Table::client_secret, &secret)] {
        let Some((text, span)) = given else { continue };
        let (least, most) = row.range().characters();
        if !(least..=most).contains(&text.chars().count()) {
            let message = format!("`{}` has {least} to {most} characters", row.name);
            diagnostics.push(Diagnostic::new(span.clone(), message).here("not shown"));
        }
    }
    let timeout = duration(&Table::timeout, &table.timeout, diagnostics);
    let max_in_flight = number(&Table::max_in_flight, &table.max_in_flight, diagnostics);
    let kept = duration(&Table::cache, &table.cache, diagnostics);
    let ca = optional(table.ca.as_ref(), |ca| {
        expand(&Table::ca, ca, environment, diagnostics).map(PathBuf::from)
    });
    let mut builder = Builder { table: "clients.introspection", names, environment, diagnostics };
    let claims = claims(&mut builder, field, url.as_ref());
    let (id, secret) = (id?.0, secret?.0);
    Some(Some(Box::new(Introspection {
        url: url?,
        ca: ca?,
        login: login(&id, &secret),
        claims: claims?,
        scopes: table.scopes.iter().flat_map(Spanned::get_ref).map(boxed).collect(),
        timeout: timeout?,
        max_in_flight: max_in_flight?,
        kept_us: micros(kept?),
        on_failure: meaning(table.on_failure.as_ref()),
    })))
}

fn boxed(item: &Spanned<String>) -> Box<str> {
    item.get_ref().as_str().into()
}

/// What the members of an answer mean.
fn claims(
    builder: &mut Builder<'_, '_>,
    field: &Spanned<Table>,
    url: Option<&HttpUrl>,
) -> Option<Issuer> {
    let table = field.get_ref();
    let plan = builder.plan(
        field.span(),
        table.plan_claim.as_ref(),
        &table.plans,
        table.default_plan.as_ref(),
    );
    let skew = duration(&Table::clock_skew, &table.clock_skew, builder.diagnostics);
    let headers = builder.headers(&table.headers);
    let id_claim = builder.claim(table.id_claim.as_ref());
    let tenant_claim = builder.claim(table.tenant_claim.as_ref());
    let url = url?;
    let scheme = if url.is_tls { "https" } else { "http" };
    Some(Issuer {
        issuer: format!("{scheme}://{}", url.server).into(),
        audience: table.audience.as_ref().map(texts).unwrap_or_default(),
        keys: KeySource::Fixed(Arc::new(KeySet::of_secret(&[]))),
        algorithms: Vec::new(),
        clock_skew_us: micros(skew?),
        required: Vec::new(),
        types: None,
        id_claim: id_claim?.unwrap_or_else(|| "sub".into()),
        plan: plan?,
        tenant_claim: tenant_claim?,
        headers: headers?,
        hide_token: switch(&Table::hide_token, &table.hide_token),
    })
}

/// The value of `Authorization` with the gateway's name and secret (RFC 6749, section 2.3.1).
fn login(id: &str, secret: &str) -> Secret {
    let [id, secret] =
        [id, secret].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string());
    Secret::new(format!("Basic {}", STANDARD.encode(format!("{id}:{secret}"))))
}
