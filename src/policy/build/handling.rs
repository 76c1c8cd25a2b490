//! `request_headers`, `response_headers` of routes: what a route does beside forwarding.

use std::sync::Arc;

use super::environment::Environment;
use super::header_edits::{self, Direction};
use crate::config::diagnostic::Diagnostics;
use crate::config::{Config, in_order};
use crate::policy::handling::Handling;

/// What each route does, in the order of the file; none for a route that only forwards.
pub(super) fn handlings(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Option<Arc<Handling>>> {
    let entries = in_order(&config.routes).into_iter();
    let handlings = entries.map(|(_, table)| {
        let table = table.get_ref();
        let mut edits = |edits: &Option<_>, direction| {
            header_edits::edits(edits.as_ref(), direction, environment, diagnostics)
        };
        let handling = Handling {
            request_headers: edits(&table.request_headers, Direction::Request),
            response_headers: edits(&table.response_headers, Direction::Response),
        };
        (!handling.is_empty()).then(|| Arc::new(handling))
    });
    handlings.collect()
}
