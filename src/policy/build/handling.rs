//! What routes do beside forwarding: changes of headers, of paths and of hosts.

use std::sync::Arc;

use super::answers;
use super::cors;
use super::environment::Environment;
use super::header_edits::{self, Direction};
use super::rewrite;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order, suggest};
use crate::policy::cors::Cors;
use crate::policy::handling::Handling;
use crate::policy::matcher::Matcher;
use crate::policy::template::NamedVariable;

/// What each route does, in the order of the file; none for a route that only forwards.
pub(super) fn handlings(
    config: &Config,
    environment: Environment<'_>,
    of_all: Option<&Arc<Cors>>,
    matchers: Option<&[Matcher]>,
    ignore_case: bool,
    diagnostics: &mut Diagnostics,
) -> Vec<Option<Arc<Handling>>> {
    let of_server = config.server.as_ref().and_then(|server| server.get_ref().maintenance.as_ref());
    let of_server = answers::maintenance(of_server, None, diagnostics);
    let entries = in_order(&config.routes).into_iter().enumerate();
    let handlings = entries.map(|(index, (name, table))| {
        let matcher = matchers.and_then(|matchers| matchers.get(index));
        let table = table.get_ref();
        let mut edits = |edits: &Option<_>, direction| {
            header_edits::edits(edits.as_ref(), direction, environment, diagnostics)
        };
        let handling = Handling {
            request_headers: edits(&table.request_headers, Direction::Request),
            response_headers: edits(&table.response_headers, Direction::Response),
            rewrite: rewrite::rewrite(
                name.get_ref(),
                table,
                matcher,
                environment,
                ignore_case,
                diagnostics,
            ),
            upstream_host: rewrite::host(table.upstream_host.as_ref(), diagnostics),
            answer: answers::answer(name.get_ref(), table, environment, diagnostics),
            maintenance: answers::maintenance(
                table.maintenance.as_ref(),
                of_server.as_ref(),
                diagnostics,
            ),
            cors: cors::of_route(config, name.get_ref(), table, of_all, diagnostics),
        };
        if let Some(matcher) = matcher {
            check_params(&handling, name, matcher, diagnostics);
        }
        (!handling.is_empty()).then(|| Arc::new(handling))
    });
    handlings.collect()
}

/// Reports variables for parameters that the path of the route does not have.
fn check_params(
    handling: &Handling,
    name: &Spanned<String>,
    matcher: &Matcher,
    diagnostics: &mut Diagnostics,
) {
    let mut unknown: Vec<&str> = handling
        .templates()
        .flat_map(|template| template.names_of(NamedVariable::Param))
        .filter(|param| !matcher.params.names().any(|own| own == *param))
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    for param in unknown {
        let shown = cut(param, 32);
        let message = format!(
            "`{{param:{shown}}}` has no value: the path of the route `{}` has no parameter `{shown}`",
            cut(name.get_ref(), 64)
        );
        let names: Vec<&str> = matcher.params.names().collect();
        let help = if names.is_empty() {
            format!("a parameter is a segment in braces: `path = \"/v1/{{{shown}}}/*\"`")
        } else {
            suggest::help(param, &names)
        };
        diagnostics.push(Diagnostic::new(name.span(), message).help(help));
    }
}
