//! `mirror` of an upstream or a route.

use super::names::Names;
use super::percentage::thousandths;
use super::upstreams::is_demo;
use super::values::{duration, number};
use crate::config::Config;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::handling::SwitchOr;
use crate::config::mirror as written;
use crate::config::spanned::Spanned;
use crate::policy::mirror::{Mirror, RouteMirror};

/// Help for a mirror without an upstream.
const TO: &str = "write `mirror = { to = \"shadow\", share = \"5%\" }` with another upstream";

/// `mirror` of the upstream with this name; none with an error.
pub(super) fn of_upstream(
    config: &Config,
    names: &Names,
    name: &str,
    table: &Spanned<written::Mirror>,
    diagnostics: &mut Diagnostics,
) -> Option<Mirror> {
    let place = ["upstreams", name, "mirror", "to"];
    mirror(config, names, &place, table, table.get_ref(), diagnostics, &|to| to == name)
}

/// `mirror` of a route that sends its requests to these upstreams; none with an error.
pub(super) fn of_route(
    config: &Config,
    names: &Names,
    name: &str,
    upstreams: &[&str],
    own: &Spanned<SwitchOr<written::Mirror>>,
    diagnostics: &mut Diagnostics,
) -> Option<RouteMirror> {
    match own.get_ref() {
        SwitchOr::Switch(false) => Some(RouteMirror::Off),
        SwitchOr::Switch(true) => {
            let message = "`mirror = true` does not say where copies are sent";
            diagnostics.push(Diagnostic::new(own.span(), message).help(TO));
            None
        }
        SwitchOr::Table(table) => {
            let place = ["routes", name, "mirror", "to"];
            let is_own = |to: &str| upstreams.contains(&to);
            let mirror = mirror(config, names, &place, own, table, diagnostics, &is_own);
            mirror.map(RouteMirror::To)
        }
    }
}

/// The setting of the table at `field`, whose `to` is at `place`. `is_own`: whether the requests
/// themselves are sent to the upstream with a name.
fn mirror<T>(
    config: &Config,
    names: &Names,
    place: &[&str],
    field: &Spanned<T>,
    table: &written::Mirror,
    diagnostics: &mut Diagnostics,
    is_own: &dyn Fn(&str) -> bool,
) -> Option<Mirror> {
    let share = thousandths(&written::Mirror::share, &table.share, diagnostics);
    let max_body_bytes =
        number(&written::Mirror::max_body_bytes, &table.max_body_bytes, diagnostics);
    let max_in_flight = number(&written::Mirror::max_in_flight, &table.max_in_flight, diagnostics);
    let timeout = duration(&written::Mirror::timeout, &table.timeout, diagnostics);
    let Some(name) = &table.to else {
        if !diagnostics.explain_absence(place) {
            let message = "`mirror` has no `to`, the upstream that gets the copies";
            diagnostics.push(Diagnostic::new(field.span(), message).help(TO));
        }
        return None;
    };
    let to = names.upstreams.find(name, diagnostics)?;
    let target = config.upstreams.get(name.get_ref().as_str());
    let wrong = if is_own(name.get_ref()) {
        Some("the requests themselves are sent to this upstream")
    } else if target.is_some_and(|target| is_demo(target.get_ref())) {
        Some("this upstream is the built-in responder, to which nothing is sent")
    } else {
        None
    };
    if let Some(message) = wrong {
        diagnostics.push(Diagnostic::new(name.span(), message).help(TO));
        return None;
    }
    Some(Mirror {
        to,
        name: name.get_ref().as_str().into(),
        share: share?,
        max_body_bytes: max_body_bytes?,
        max_in_flight: u32::try_from(max_in_flight?).ok()?,
        timeout: timeout?,
    })
}
