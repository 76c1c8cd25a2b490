//! Warns of a path that ends with a slash, which other gateways read as a prefix.
//!
//! The condition: the path of a route ends with `/`, its `trailing_slash` is not `"distinct"`, and
//! no other route is below the path; for `/`, no route has another path. A path but `/` is the same
//! as that without the slash, so writing it without settles the warning.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::words::TrailingSlash;
use crate::config::{Config, in_order};

/// Adds one warning for each such route.
pub(super) fn add(config: &Config, diagnostics: &mut Diagnostics) {
    let routes = in_order(&config.routes);
    let paths: Vec<&Spanned<String>> =
        routes.iter().filter_map(|(_, table)| table.get_ref().path.as_ref()).collect();
    let is_root =
        |field: &Option<Spanned<String>>| field.as_ref().is_some_and(|path| path.get_ref() == "/");
    let is_root_alone = routes.iter().all(|(_, table)| is_root(&table.get_ref().path));
    for (_, table) in &routes {
        let route = table.get_ref();
        let is_distinct = (route.trailing_slash.as_ref())
            .is_some_and(|word| *word.get_ref() == TrailingSlash::Distinct);
        let Some(field) = route.path.as_ref().filter(|_| !is_distinct) else { continue };
        let path = field.get_ref().as_str();
        let is_below = |other: &&Spanned<String>| {
            other.get_ref().len() > path.len() && other.get_ref().starts_with(path)
        };
        if path == "/" {
            if is_root_alone {
                let message = "`/` matches this path only, and no path below it";
                let help = "for all paths, write `/*`; for this path only, add `trailing_slash = \"distinct\"`";
                diagnostics.push(Diagnostic::warning(field.span(), message).help(help));
            }
            continue;
        }
        if !path.ends_with('/') || paths.iter().any(is_below) {
            continue;
        }
        let bare = path.trim_end_matches('/');
        let message = format!("`{path}` matches this path only, and no path below it");
        let help = format!(
            "for all paths below it, write `{bare}/*`; for this path only, `{bare}`, which matches both"
        );
        diagnostics.push(Diagnostic::warning(field.span(), message).help(help));
    }
}
