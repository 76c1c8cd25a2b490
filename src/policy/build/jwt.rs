//! `[clients.jwt]`: issuers of tokens.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderName;

use super::environment::{Environment, Lookup, Missing, expand, expand_part};
use super::header_edits::{Direction, name as header_name};
use super::names::{Names, twice};
use super::values::{duration, optional, switch};
use crate::base::duration::micros;
use crate::base::text::cut;
use crate::client::jwt::key_set::{KeySet, KeySetError};
use crate::client::jwt::settings::{FetchFrom, Fetched, Issuer, KeySource, PlanOf};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::jwt::{Jwt, OneOrSeveral};
use crate::config::reference::{FileContent, Reference, plain_file};
use crate::config::spanned::Spanned;
use crate::config::tables::TextOrList;
use crate::config::words::{JwtAlgorithm, Word as _};
use crate::config::{Config, Named, in_order, suggest};
use crate::net::url::HttpUrl;

/// Algorithms with a secret.
const HMAC: [JwtAlgorithm; 3] = [JwtAlgorithm::Hs256, JwtAlgorithm::Hs384, JwtAlgorithm::Hs512];

/// Where a provider's metadata are (OpenID Connect Discovery 1.0, section 4).
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// What a key that is not a URL looks like.
const FILE_HELP: &str = "a file is written as `file:NAME`, and a relative path begins at the folder of the \
                         configuration file";

/// Builds the issuers of all tables, in the order of the file; none if one of them has an error.
pub(super) fn issuers(
    config: &Config,
    names: &Names,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Issuer>> {
    let Some(field) = config.clients.as_ref().and_then(|clients| clients.get_ref().jwt.as_ref())
    else {
        return Some(Vec::new());
    };
    let mut builder = Builder { table: "clients.jwt", names, environment, diagnostics };
    let tables: Vec<(&Jwt, std::ops::Range<usize>)> = match field.get_ref() {
        OneOrSeveral::One(table) => vec![(table, field.span())],
        OneOrSeveral::Several(tables) => {
            tables.iter().map(|table| (table.get_ref(), table.span())).collect()
        }
    };
    let mut issuers = Some(Vec::new());
    let mut seen: HashMap<Arc<str>, std::ops::Range<usize>> = HashMap::new();
    for (table, span) in tables {
        let built = builder.issuer(table, span);
        if let (Some(built), Some(field)) = (&built, &table.issuer)
            && let Some(first) = seen.insert(Arc::clone(&built.issuer), field.span())
        {
            builder.diagnostics.push(twice(field, first));
        }
        match (built, &mut issuers) {
            (Some(built), Some(issuers)) => issuers.push(built),
            _ => issuers = None,
        }
    }
    issuers
}

/// What the settings of a table need.
pub(super) struct Builder<'a, 'd> {
    /// Its path.
    pub(super) table: &'static str,
    pub(super) names: &'a Names,
    pub(super) environment: Environment<'a>,
    pub(super) diagnostics: &'d mut Diagnostics,
}

impl Builder<'_, '_> {
    fn issuer(&mut self, table: &Jwt, span: std::ops::Range<usize>) -> Option<Issuer> {
        let issuer = self.issuer_name(table, span.clone());
        let audience = self.audience(table, span.clone());
        let keys = self.keys(table, issuer.as_deref());
        let algorithms = self.algorithms(table);
        let skew = duration(&Jwt::clock_skew, &table.clock_skew, self.diagnostics);
        let plan =
            self.plan(span, table.plan_claim.as_ref(), &table.plans, table.default_plan.as_ref());
        let headers = self.headers(&table.headers);
        let id_claim = self.claim(table.id_claim.as_ref());
        let tenant_claim = self.claim(table.tenant_claim.as_ref());
        Some(Issuer {
            issuer: issuer?.into(),
            audience: audience?,
            keys: keys?,
            algorithms: algorithms?,
            clock_skew_us: micros(skew?),
            required: required_claims(table.required_claims.as_ref()),
            types: table.typ.as_ref().map(texts),
            id_claim: id_claim?.unwrap_or_else(|| "sub".into()),
            plan: plan?,
            tenant_claim: tenant_claim?,
            headers: headers?,
            hide_token: switch(&Jwt::hide_token, &table.hide_token),
        })
    }

    fn refuse<T>(
        &mut self,
        span: std::ops::Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        self.diagnostics.push(Diagnostic::new(span, message.into()).help(help.into()));
        None
    }

    fn issuer_name(&mut self, table: &Jwt, span: std::ops::Range<usize>) -> Option<String> {
        let Some(field) = &table.issuer else {
            if self.diagnostics.explain_absence(&["clients", "jwt", "issuer"]) {
                return None;
            }
            let help =
                "write the value of the claim `iss`, such as `issuer = \"https://id.example.com\"`";
            return self.refuse(span, "`[clients.jwt]` has no `issuer`", help);
        };
        let text = expand(&Jwt::issuer, field, self.environment, self.diagnostics)?;
        let (least, most) = Jwt::issuer.range().characters();
        let is_plain = text.chars().all(|c| !c.is_whitespace() && !c.is_control());
        if (least..=most).contains(&text.len()) && is_plain {
            return Some(text);
        }
        let message = format!("`issuer` has {least} to {most} characters without white space");
        self.refuse(field.span(), message, "it is the value of the claim `iss`, exactly")
    }

    fn audience(&mut self, table: &Jwt, span: std::ops::Range<usize>) -> Option<Vec<Box<str>>> {
        let Some(field) = &table.audience else {
            if self.diagnostics.explain_absence(&["clients", "jwt", "audience"]) {
                return None;
            }
            let help = "write the value of the claim `aud` of tokens for this API; `audience = []` accepts those for \
                        other services, too";
            return self.refuse(span, "`[clients.jwt]` has no `audience`", help);
        };
        Some(texts(field))
    }

    /// Where the keys come from.
    fn keys(&mut self, table: &Jwt, issuer: Option<&str>) -> Option<KeySource> {
        let each =
            [("jwks", &table.jwks), ("public_key", &table.public_key), ("secret", &table.secret)];
        let mut written = each.iter().filter_map(|(_, field)| field.as_ref());
        if let (Some(first), Some(second)) = (written.next(), written.next()) {
            let diagnostic = Diagnostic::new(second.span(), "the keys are written twice")
                .and(first.span(), "here first");
            self.diagnostics.push(diagnostic.help(
                "keep one of `jwks`, `public_key` and `secret`; a JWK Set may have several keys",
            ));
            return None;
        }
        if let Some(field) = &table.jwks {
            return self.jwks(table, field);
        }
        if let Some(field) = &table.public_key {
            let pem = self.content(&Jwt::public_key, field)?;
            return self.fixed(field, pem, |text| KeySet::of_pem(text.as_bytes()));
        }
        if let Some(field) = &table.secret {
            return self.secret(field);
        }
        let (issuer, field) = (issuer?, table.issuer.as_ref()?);
        let url = format!("{}{DISCOVERY_PATH}", issuer.trim_end_matches('/'));
        self.fetched(table, field, &url, FetchFrom::Discovery)
    }

    fn jwks(&mut self, table: &Jwt, field: &Spanned<String>) -> Option<KeySource> {
        let written = field.get_ref();
        if plain_file(written).is_some() {
            let json = self.content(&Jwt::jwks, field)?;
            return self.fixed(field, json, |text| KeySet::of_jwks(text.as_bytes()));
        }
        let part = expand_part(written, field, self.environment, &|value| value, self.diagnostics)?;
        if part.is_assumed || part.text.trim_start().starts_with('{') {
            let json = (!part.is_assumed).then_some(part.text);
            return self.fixed(field, json, |text| KeySet::of_jwks(text.as_bytes()));
        }
        self.fetched(table, field, &part.text, FetchFrom::Jwks)
    }

    /// The content of a file, or of a `${…}`; the inner result is none if it is not at hand.
    #[allow(
        clippy::option_option,
        reason = "an error and a file that is not at hand are different things"
    )]
    fn content(
        &mut self,
        row: &crate::config::row::Row,
        field: &Spanned<String>,
    ) -> Option<Option<String>> {
        let Some(path) = plain_file(field.get_ref()) else {
            let part = expand_part(
                field.get_ref(),
                field,
                self.environment,
                &|value| value,
                self.diagnostics,
            )?;
            return Some((!part.is_assumed).then_some(part.text));
        };
        if path.is_empty() {
            let message = format!("`file:` of `{}` names no file", row.name);
            return self.refuse(field.span(), message, FILE_HELP);
        }
        match (self.environment)(Reference::File(FileContent::Secret, path)) {
            Lookup::Value(text) => Some(Some(text)),
            Lookup::Assumed => Some(None),
            Lookup::Missing(Missing { message, help }) => self.refuse(field.span(), message, help),
        }
    }

    /// Keys that are part of the configuration. `None` as text: any.
    fn fixed(
        &mut self,
        field: &Spanned<String>,
        text: Option<String>,
        read: impl FnOnce(&str) -> Result<KeySet, KeySetError>,
    ) -> Option<KeySource> {
        let Some(text) = text else {
            // Verifies no token: the configuration is only checked.
            return Some(KeySource::Fixed(Arc::new(KeySet::of_secret(&[]))));
        };
        match read(&text) {
            Ok(keys) => Some(KeySource::Fixed(Arc::new(keys))),
            Err(error) => self.refuse(field.span(), error.to_string(), FILE_HELP),
        }
    }

    fn secret(&mut self, field: &Spanned<String>) -> Option<KeySource> {
        let secret = expand(&Jwt::secret, field, self.environment, self.diagnostics)?;
        let (least, most) = Jwt::secret.range().characters();
        if !(least..=most).contains(&secret.len()) {
            let message = format!("`secret` has {least} to {most} characters");
            let diagnostic = Diagnostic::new(field.span(), message).here("not shown");
            let help =
                "`openssl rand -hex 32` makes a good one; a provider with a key pair needs none";
            self.diagnostics.push(diagnostic.help(help));
            return None;
        }
        Some(KeySource::Fixed(Arc::new(KeySet::of_secret(secret.as_bytes()))))
    }

    fn fetched(
        &mut self,
        table: &Jwt,
        field: &Spanned<String>,
        url: &str,
        from: impl FnOnce(HttpUrl) -> FetchFrom,
    ) -> Option<KeySource> {
        let refresh = duration(&Jwt::refresh, &table.refresh, self.diagnostics);
        let ca = optional(table.ca.as_ref(), |ca| {
            expand(&Jwt::ca, ca, self.environment, self.diagnostics).map(PathBuf::from)
        });
        let Some(url) = HttpUrl::parse(url) else {
            let is_jwks = table.jwks.is_some();
            let message = if is_jwks {
                "`jwks` is neither a URL with `https://` nor a file"
            } else {
                "keys cannot be discovered: `issuer` is not a URL with `https://`"
            };
            let help = if is_jwks { FILE_HELP } else { "add `jwks` or `public_key`" };
            return self.refuse(field.span(), message, help);
        };
        if !url.is_private() {
            let message =
                "keys are not fetched without TLS: who can change them can sign any token";
            return self.refuse(field.span(), message, "write `https://`, or name a file");
        }
        Some(KeySource::Fetched(Fetched { from: from(url), refresh: refresh?, ca: ca? }))
    }

    /// The algorithms that are accepted: by default all that fit a public key, or the secret.
    fn algorithms(&mut self, table: &Jwt) -> Option<Vec<JwtAlgorithm>> {
        let has_secret = table.secret.is_some();
        let fits = |algorithm: &JwtAlgorithm| HMAC.contains(algorithm) == has_secret;
        let Some(list) = &table.algorithms else {
            return Some(JwtAlgorithm::ALL.iter().copied().filter(fits).collect());
        };
        if list.get_ref().is_empty() {
            let help = "leave `algorithms` out for all that fit the keys";
            return self.refuse(
                list.span(),
                "`algorithms` is empty: no token would be accepted",
                help,
            );
        }
        let mut accepted = Some(Vec::new());
        for item in list.get_ref() {
            let algorithm = *item.get_ref();
            if !fits(&algorithm) {
                let (message, help) = if has_secret {
                    let message =
                        format!("`{}` needs a public key, not `secret`", algorithm.name());
                    (message, "write `jwks` or `public_key`")
                } else {
                    let message = format!("`{}` needs `secret`", algorithm.name());
                    (message, "public keys are not secrets, so they verify other algorithms only")
                };
                self.diagnostics.push(Diagnostic::new(item.span(), message).help(help));
                accepted = None;
            } else if let Some(accepted) = &mut accepted {
                accepted.push(algorithm);
            }
        }
        accepted
    }

    /// The plan of clients, by these settings of the table at `span`.
    pub(super) fn plan(
        &mut self,
        span: std::ops::Range<usize>,
        plan_claim: Option<&Spanned<String>>,
        plans: &Named<String>,
        default_plan: Option<&Spanned<String>>,
    ) -> Option<PlanOf> {
        let default = optional(default_plan, |plan| self.names.plans.find(plan, self.diagnostics))?;
        let implicit = (!self.names.has_plans).then_some(0);
        let claim = self.claim(plan_claim)?;
        if claim.is_none() && default.or(implicit).is_none() {
            let absent = ["plan_claim", "default_plan"];
            let own = self.table.rsplit('.').next().unwrap_or_default();
            if absent.iter().any(|name| self.diagnostics.explain_absence(&["clients", own, name])) {
                return None;
            }
            let own: Vec<&str> = self.names.plans.names().iter().map(|name| &**name).collect();
            let help = format!(
                "write `plan_claim`, or `default_plan = \"{}\"`; the plans are {}",
                cut(own.first().map_or("", |plan| plan), 64),
                suggest::list(&own, "and"),
            );
            let message = format!("`[{}]` says no plan of its clients", self.table);
            return self.refuse(span, message, help);
        }
        if claim.is_none()
            && let Some((_, plan)) = in_order(plans).first()
        {
            let help = "write `plan_claim`, or leave `plans` out";
            return self.refuse(plan.span(), "`plans` are by the value of `plan_claim`", help);
        }
        let mut by_value = HashMap::new();
        for (value, plan) in plans {
            let plan = self.names.plans.find(plan, self.diagnostics)?;
            by_value.insert(value.get_ref().as_str().into(), plan);
        }
        if plans.is_empty() && self.names.has_plans {
            let own = self.names.plans.names().iter().zip(0..);
            by_value = own.map(|(name, index)| ((**name).into(), index)).collect();
        }
        Some(PlanOf { claim, by_value, default: default.or(implicit) })
    }

    /// Headers that upstreams get, and the claims that are their values.
    pub(super) fn headers(
        &mut self,
        written: &Named<String>,
    ) -> Option<Vec<(HeaderName, Box<str>)>> {
        let mut headers = Some(Vec::new());
        let mut seen = HashMap::new();
        for (written, claim) in in_order(written) {
            let name = header_name(
                written.get_ref(),
                written.span(),
                Direction::Request,
                self.diagnostics,
            );
            let name = name.filter(|name| {
                let first = seen.insert(name.clone(), written.span());
                first.is_none_or(|first| {
                    self.diagnostics.push(twice(written, first));
                    false
                })
            });
            match (name, &mut headers) {
                (Some(name), Some(headers)) => {
                    headers.push((name, claim.get_ref().as_str().into()));
                }
                _ => headers = None,
            }
        }
        headers
    }

    /// The name of a claim; the inner result is none if it is left out.
    #[allow(
        clippy::option_option,
        reason = "an error and a setting that is left out are different things"
    )]
    pub(super) fn claim(&mut self, field: Option<&Spanned<String>>) -> Option<Option<Box<str>>> {
        optional(field, |field| {
            if field.get_ref().is_empty() {
                return self.refuse(field.span(), "the name of a claim is empty", "such as `sub`");
            }
            Some(field.get_ref().as_str().into())
        })
    }
}

/// The claims that a token must have. A list of others does not mean that tokens never expire.
fn required_claims(list: Option<&Spanned<Vec<Spanned<String>>>>) -> Vec<Box<str>> {
    const EXPIRY: &str = "exp";
    let names = list.map(|list| list.get_ref().iter().map(|name| name.get_ref().as_str()));
    let Some(names) = names else { return vec![EXPIRY.into()] };
    let mut names: Vec<Box<str>> = names.map(Box::from).collect();
    if !names.is_empty() && !names.iter().any(|name| **name == *EXPIRY) {
        names.push(EXPIRY.into());
    }
    names
}

/// The texts of a setting that is one, or a list of them.
pub(super) fn texts(field: &Spanned<TextOrList>) -> Vec<Box<str>> {
    match field.get_ref() {
        TextOrList::Text(text) => vec![text.as_str().into()],
        TextOrList::List(list) => list.iter().map(|text| text.get_ref().as_str().into()).collect(),
    }
}
