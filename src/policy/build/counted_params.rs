//! Checks the parameters of paths that rules count by (`per = ["param:<name>"]`).

use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, in_order, suggest};
use crate::policy::params::PathParams;
use crate::policy::{Dimension, Rule};

/// The parameter of a rule, and the routes that the rule counts.
struct Counted<'a> {
    /// The item of `per`.
    item: &'a Spanned<String>,
    name: &'a str,
    /// Names and parameters of the routes.
    routes: Vec<(&'a str, PathParams)>,
}

/// Reports each parameter that none of the rule's routes has.
pub(super) fn check(config: &Config, rules: &[Rule], diagnostics: &mut Diagnostics) {
    for Counted { item, name, routes } in each(config, rules) {
        let mut all: Vec<&str> = routes.iter().flat_map(|(_, params)| params.names()).collect();
        if all.contains(&name) || diagnostics.explain_absence(&["routes"]) {
            continue;
        }
        all.sort_unstable();
        all.dedup();
        let shown = cut(name, 32);
        let message = format!("no route of the rule has the parameter `{shown}` in its path");
        let help = if all.is_empty() {
            format!("a parameter is a segment in braces: `path = \"/v1/{{{shown}}}/*\"`")
        } else {
            suggest::help(name, &all)
        };
        diagnostics.push(Diagnostic::new(item.span(), message).help(help));
    }
}

/// Warns of routes of a rule whose path lacks the parameter, beside others that have it: their
/// requests share one bucket.
pub(super) fn warn(config: &Config, rules: &[Rule], diagnostics: &mut Diagnostics) {
    for Counted { item, name, routes } in each(config, rules) {
        let has = |params: &PathParams| params.names().any(|own| own == name);
        let others: Vec<&str> =
            routes.iter().filter(|(_, params)| !has(params)).map(|(route, _)| *route).collect();
        if others.is_empty() {
            continue;
        }
        let (routes, have, their) = match others.as_slice() {
            [_] => ("route", "has", "its"),
            _ => ("routes", "have", "their"),
        };
        let message = format!(
            "the {routes} {} {have} no parameter `{}`: {their} requests share one bucket",
            suggest::list(&others, "and"),
            cut(name, 32),
        );
        let help = "name the routes with the parameter in `routes` of the rule";
        diagnostics.push(Diagnostic::warning(item.span(), message).help(help));
    }
}

/// The parameters that enabled rules count by.
fn each<'a>(config: &'a Config, rules: &'a [Rule]) -> Vec<Counted<'a>> {
    let mut counted = Vec::new();
    for ((_, table), rule) in in_order(&config.rules).into_iter().zip(rules) {
        let items = table.get_ref().per.iter().flat_map(Spanned::get_ref);
        for dimension in rule.per.iter().filter(|_| rule.enabled) {
            let Dimension::Param(name) = dimension else { continue };
            let written = dimension.to_string();
            let Some(item) = items.clone().find(|item| *item.get_ref() == written) else {
                continue;
            };
            let routes = in_order(&config.routes).into_iter().zip(0..);
            let routes = routes.filter(|(_, index)| rule.applies_to_route(*index).is_ok());
            let routes = routes.map(|((route, table), _)| {
                let path = table.get_ref().path.as_ref().map_or("", |path| path.get_ref());
                (route.get_ref().as_str(), PathParams::of(path))
            });
            counted.push(Counted { item, name, routes: routes.collect() });
        }
    }
    counted
}
