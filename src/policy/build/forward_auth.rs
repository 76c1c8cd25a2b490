//! `[forward_auth]`, and that of routes.

use std::path::PathBuf;

use http::HeaderName;

use super::environment::{Environment, expand};
use super::header_edits::{Direction, name as header_name};
use super::names::{Names, twice};
use super::values::{duration, number, optional};
use super::words::meaning;
use crate::base::duration::micros;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::forward_auth::ForwardAuth as Table;
use crate::config::handling::SwitchOr;
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::tables::{Field, List};
use crate::config::{Config, in_order};
use crate::net::url::HttpUrl;
use crate::policy::forward_auth::{AnswerCache, CachedBy, ClientOfAnswer, ForwardAuth};

/// Maximum number of headers in one list.
const MAX_HEADERS: usize = 32;

/// All tables, and which one each route has.
pub(super) struct Tables {
    /// The settings of each table.
    pub(super) all: Vec<ForwardAuth>,
    /// For each route in the order of the file, the index of its table; `None`: no server is asked.
    pub(super) of_routes: Vec<Option<u32>>,
}

/// What the settings of a table need.
struct Builder<'a, 'd> {
    names: &'a Names,
    environment: Environment<'a>,
    /// Index of the plan of clients without a key.
    anonymous_plan: u32,
    diagnostics: &'d mut Diagnostics,
}

/// The tables of the file; none if one of them has an error. `anonymous_plan` is the plan of
/// clients without a key; none if that has an error.
pub(super) fn tables(
    config: &Config,
    names: &Names,
    environment: Environment<'_>,
    anonymous_plan: Option<u32>,
    diagnostics: &mut Diagnostics,
) -> Option<Tables> {
    let anonymous_plan = anonymous_plan.unwrap_or_default();
    let mut builder = Builder { names, environment, anonymous_plan, diagnostics };
    let mut all = Vec::new();
    let mut is_complete = true;
    let mut add = |built: Option<ForwardAuth>| {
        let index = u32::try_from(all.len()).ok();
        is_complete &= built.is_some();
        all.extend(built);
        index
    };
    let of_all = config
        .forward_auth
        .as_ref()
        .and_then(|table| add(builder.table(&["forward_auth"], table.span(), table.get_ref())));
    let mut of_routes = Vec::new();
    for (name, route) in in_order(&config.routes) {
        let own = route.get_ref().forward_auth.as_ref();
        of_routes.push(match own.map(|own| (own, own.get_ref())) {
            None => of_all,
            Some((_, SwitchOr::Switch(false))) => None,
            Some((own, SwitchOr::Switch(true))) => {
                builder.check_of_all(config, own);
                of_all
            }
            Some((own, SwitchOr::Table(table))) => {
                let place = ["routes", name.get_ref(), "forward_auth"];
                add(builder.table(&place, own.span(), table))
            }
        });
    }
    is_complete.then_some(Tables { all, of_routes })
}

impl Builder<'_, '_> {
    /// Reports `forward_auth = true` in a file without the table.
    fn check_of_all(&mut self, config: &Config, own: &Spanned<SwitchOr<Table>>) {
        if config.forward_auth.is_none() && !self.diagnostics.explain_unknown(&["forward_auth"]) {
            let message = "`forward_auth = true` takes the settings of `[forward_auth]`, which the file does not have";
            let help = "write `forward_auth = { url = \"http://127.0.0.1:9000/auth\" }`";
            self.diagnostics.push(Diagnostic::new(own.span(), message).help(help));
        }
    }

    fn table(
        &mut self,
        place: &[&str],
        span: std::ops::Range<usize>,
        table: &Table,
    ) -> Option<ForwardAuth> {
        let url = self.url(place, span, table.url.as_ref());
        let timeout = duration(&Table::timeout, &table.timeout, self.diagnostics);
        let max_in_flight = number(&Table::max_in_flight, &table.max_in_flight, self.diagnostics);
        let sent =
            self.headers(&Table::request_headers, &table.request_headers, Direction::Request);
        let copied =
            self.headers(&Table::response_headers, &table.response_headers, Direction::Request);
        let refused =
            self.headers(&Table::refusal_headers, &table.refusal_headers, Direction::Response);
        let ca = optional(table.ca.as_ref(), |ca| {
            expand(&Table::ca, ca, self.environment, self.diagnostics).map(PathBuf::from)
        });
        let (url, sent) = (url?, sent?);
        let cache = self.cache(table, &sent);
        let client = self.client(table, &url);
        Some(ForwardAuth {
            ca: ca?,
            timeout: timeout?,
            max_in_flight: max_in_flight?,
            response_headers: copied?,
            refusal_headers: refused?,
            on_failure: meaning(table.on_failure.as_ref()),
            cache: cache?,
            client: client?,
            url,
            request_headers: sent,
        })
    }

    fn url(
        &mut self,
        place: &[&str],
        span: std::ops::Range<usize>,
        field: Option<&Spanned<String>>,
    ) -> Option<HttpUrl> {
        let help = "such as `url = \"http://127.0.0.1:9000/auth\"`";
        let Some(field) = field else {
            let place: Vec<&str> = place.iter().copied().chain(["url"]).collect();
            if !self.diagnostics.explain_absence(&place) {
                let message = "`forward_auth` has no `url`";
                self.diagnostics.push(Diagnostic::new(span, message).help(help));
            }
            return None;
        };
        let text = expand(&Table::url, field, self.environment, self.diagnostics)?;
        if text.starts_with(super::PLACEHOLDER) {
            return HttpUrl::parse("http://localhost/");
        }
        let url = HttpUrl::parse(&text);
        if url.is_none() {
            let message = "`url` is not a URL with `http://` or `https://`, without a login";
            self.diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        }
        url
    }

    /// The names of a list, or those of its row if it is left out.
    fn headers(&mut self, row: &Row, list: &List, direction: Direction) -> Option<Vec<HeaderName>> {
        let Some(list) = list else {
            return Some(
                row.texts()
                    .unwrap_or_default()
                    .iter()
                    .map(|name| HeaderName::from_static(name))
                    .collect(),
            );
        };
        let mut names = Some(Vec::new());
        if list.get_ref().len() > MAX_HEADERS {
            let message = format!("`{}` has more than {MAX_HEADERS} headers", row.name);
            self.diagnostics.push(Diagnostic::new(list.span(), message));
            names = None;
        }
        let mut seen = std::collections::HashMap::new();
        for item in list.get_ref() {
            let name = header_name(item.get_ref(), item.span(), direction, self.diagnostics);
            let first = name.as_ref().and_then(|name| seen.insert(name.clone(), item.span()));
            match (name, first, &mut names) {
                (Some(name), None, Some(names)) => names.push(name),
                (_, Some(first), _) => {
                    self.diagnostics.push(twice(item, first));
                    names = None;
                }
                _ => names = None,
            }
        }
        names
    }

    /// How answers are used again; the inner result is none if they are not.
    #[allow(clippy::option_option, reason = "an error and no cache are different things")]
    fn cache(&mut self, table: &Table, sent: &[HeaderName]) -> Option<Option<AnswerCache>> {
        let kept_us = micros(duration(&Table::cache, &table.cache, self.diagnostics)?);
        if kept_us == 0 {
            if let Some(list) = &table.cache_by {
                let message = "`cache_by` has no meaning without `cache`";
                let help = "write `cache = \"10s\"`, or leave `cache_by` out";
                self.diagnostics.push(Diagnostic::new(list.span(), message).help(help));
                return None;
            }
            return Some(None);
        }
        let Some(list) = &table.cache_by else {
            let of_request = [CachedBy::Method, CachedBy::Host, CachedBy::Path];
            let headers = sent.iter().cloned().map(CachedBy::Header);
            return Some(Some(AnswerCache { kept_us, by: headers.chain(of_request).collect() }));
        };
        let by: Option<Vec<CachedBy>> =
            list.get_ref().iter().map(|item| self.cached_by(item)).collect();
        let by = by?;
        let is_there = |name: &&HeaderName| by.contains(&CachedBy::Header((*name).clone()));
        if let Some(missing) = sent.iter().find(|name| !is_there(name)) {
            let message = format!(
                "the server gets `{missing}`, which `cache_by` does not have: clients could get the answer of another one"
            );
            let help = format!("add `header:{missing}`, or take it out of `request_headers`");
            self.diagnostics.push(Diagnostic::new(list.span(), message).help(help));
            return None;
        }
        Some(Some(AnswerCache { kept_us, by }))
    }

    fn cached_by(&mut self, item: &Spanned<String>) -> Option<CachedBy> {
        let text = item.get_ref().as_str();
        let by = match text {
            "method" => Some(CachedBy::Method),
            "host" => Some(CachedBy::Host),
            "path" => Some(CachedBy::Path),
            "ip" => Some(CachedBy::Ip),
            _ => text
                .strip_prefix("header:")
                .and_then(|name| HeaderName::from_bytes(name.as_bytes()).ok())
                .map(CachedBy::Header),
        };
        if by.is_none() {
            let message = format!("answers cannot be cached by `{}`", cut(text, 64));
            let help = "write `header:<name>`, `method`, `host`, `path` or `ip`";
            self.diagnostics.push(Diagnostic::new(item.span(), message).help(help));
        }
        by
    }

    /// How answers name the client; the inner result is none if they do not.
    #[allow(clippy::option_option, reason = "an error and no client are different things")]
    fn client(&mut self, table: &Table, url: &HttpUrl) -> Option<Option<ClientOfAnswer>> {
        let id = self.header(&table.id_header);
        let plan = self.header(&table.plan_header);
        let tenant = self.header(&table.tenant_header);
        let default_plan = optional(table.default_plan.as_ref(), |plan| {
            self.names.plans.find(plan, self.diagnostics)
        });
        let (id, plan, tenant) = (id?, plan?, tenant?);
        let default_plan = default_plan?.unwrap_or(self.anonymous_plan);
        let Some(id) = id else {
            let of_client = [&table.plan_header, &table.tenant_header, &table.default_plan];
            if let Some(field) = of_client.into_iter().flatten().next() {
                let message = "without `id_header`, the answer names no client";
                let help = "write `id_header`, the header with the client's id";
                self.diagnostics.push(Diagnostic::new(field.span(), message).help(help));
                return None;
            }
            return Some(None);
        };
        let scheme = if url.is_tls { "https" } else { "http" };
        let issuer = format!("{scheme}://{}", url.server).into();
        Some(Some(ClientOfAnswer { issuer, id, plan, tenant, default_plan }))
    }

    #[allow(clippy::option_option, reason = "an error and no header are different things")]
    fn header(&mut self, field: &Field<String>) -> Option<Option<HeaderName>> {
        optional(field.as_ref(), |field| {
            let name = HeaderName::from_bytes(field.get_ref().as_bytes()).ok();
            if name.is_none() {
                let message = format!("`{}` is not the name of a header", cut(field.get_ref(), 64));
                let help = "such as `X-User`";
                self.diagnostics.push(Diagnostic::new(field.span(), message).help(help));
            }
            name
        })
    }
}
