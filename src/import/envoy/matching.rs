//! What a route matches.

use toml::{Table, Value};

use super::{get, items, snake, text};
use crate::import::common::prefix_path;
use crate::import::note::Notes;
use crate::import::settings::Settings;
use crate::import::yaml::Node;

/// What is read of `match`.
const KNOWN: [&str; 9] = [
    "prefix",
    "path",
    "path_separated_prefix",
    "safe_regex",
    "regex",
    "path_match_policy",
    "case_sensitive",
    "headers",
    "query_parameters",
];

/// Sets path and conditions of a route by `match`. Returns false if it cannot, which is noted.
pub(super) fn apply(node: &Node, what: &str, route: &mut Settings, notes: &mut Notes) -> bool {
    if let Some(prefix) = text(node, "prefix") {
        let path = prefix_path(prefix, node.place, what, notes);
        route.set("path", path);
    } else if let Some(path) = text(node, "path") {
        route.set("path", path);
        route.set("trailing_slash", "distinct");
    } else if let Some(prefix) = text(node, "path_separated_prefix") {
        route.set("path", format!("{}/*", prefix.trim_end_matches('/')));
    } else if let Some(regex) =
        get(node, "safe_regex").and_then(|it| text(it, "regex")).or(text(node, "regex"))
    {
        let inner = regex.trim_start_matches('^').trim_end_matches('$');
        route.set("path_regex", format!("^(?:{inner})$"));
    } else if let Some(template) = get(node, "path_match_policy")
        .and_then(|it| get(it, "typed_config"))
        .and_then(|it| text(it, "path_template"))
    {
        route.set("path", template);
    } else {
        notes.omitted(
            node.place,
            what,
            "its match is none of prefix, path, path_separated_prefix and safe_regex",
        );
        return false;
    }
    if get(node, "case_sensitive").and_then(Node::flag) == Some(false) {
        let why = "upper and lower case are the same for all routes: `path_case = \"insensitive\"` in `[server]`";
        notes.omitted(node.place, format!("{what}: case_sensitive"), why);
    }
    let mut is_complete = true;
    for pair in node.pairs() {
        let key = snake(&pair.key);
        let Some(unknown) = get(node, &key).filter(|_| !KNOWN.contains(&key.as_str())) else {
            continue;
        };
        let why = match key.as_str() {
            "runtime_fraction" => {
                "the route is left out: a share of the requests is `split` of a route"
            }
            "cookies" => "the route is left out: write it with `cookies`",
            _ => "the route is left out: routes have no such condition",
        };
        notes.omitted(unknown.place, format!("{what}: {key}"), why);
        is_complete = false;
    }
    is_complete && headers(node, what, route, notes) && query(node, what, route, notes)
}

/// The value of a condition; none if there is none of its kind.
fn condition(node: &Node) -> Option<Value> {
    if get(node, "invert_match").and_then(Node::flag) == Some(true) {
        return None;
    }
    if let Some(present) = get(node, "present_match").and_then(Node::flag) {
        return Some(present.into());
    }
    let string = get(node, "string_match").unwrap_or(node);
    let value = |key: &str, old: &str| text(string, key).or_else(|| text(node, old));
    if let Some(exact) = value("exact", "exact_match") {
        return Some(exact.into());
    }
    if let Some(prefix) = value("prefix", "prefix_match") {
        return Some(format!("{prefix}*").into());
    }
    // A name alone is any value.
    let is_name_only = node.pairs().iter().all(|pair| pair.key == "name");
    is_name_only.then(|| true.into())
}

fn headers(node: &Node, what: &str, route: &mut Settings, notes: &mut Notes) -> bool {
    let mut conditions = Table::new();
    for header in items(node, "headers") {
        let name = text(header, "name").unwrap_or_default().to_lowercase();
        let value = condition(header);
        match (name.as_str(), value) {
            (":method", Some(Value::String(method))) if !method.ends_with('*') => {
                route.extend("methods", [method]);
            }
            (":method", _) => {
                let regex = get(header, "string_match").unwrap_or(header);
                let regex = get(regex, "safe_regex").or(get(header, "safe_regex_match"));
                let methods = regex.and_then(|it| text(it, "regex")).unwrap_or_default();
                let methods =
                    methods.trim_start_matches('^').trim_end_matches('$').trim_matches(['(', ')']);
                if methods.is_empty()
                    || !methods.chars().all(|c| c.is_ascii_uppercase() || c == '|')
                {
                    notes.omitted(
                        header.place,
                        format!("{what}: :method"),
                        "write `methods` of the route",
                    );
                    return false;
                }
                route.extend("methods", methods.split('|').map(str::to_owned));
            }
            (":authority" | "host", Some(Value::String(host))) if !host.ends_with('*') => {
                route.set("host", host.split(':').next().unwrap_or_default());
            }
            (name, Some(value)) if !name.starts_with(':') && !name.is_empty() => {
                conditions.insert(name.to_owned(), value);
            }
            _ => {
                let why = "a condition is a value, a prefix, or whether there is one: the route would match more";
                notes.omitted(header.place, format!("{what}: header {name}"), why);
                return false;
            }
        }
    }
    if !conditions.is_empty() {
        route.set("headers", conditions);
    }
    true
}

fn query(node: &Node, what: &str, route: &mut Settings, notes: &mut Notes) -> bool {
    let mut conditions = Table::new();
    for parameter in items(node, "query_parameters") {
        let name = text(parameter, "name").unwrap_or_default();
        match condition(parameter).filter(|_| !name.is_empty()) {
            Some(value) => {
                conditions.insert(name.to_owned(), value);
            }
            None => {
                let why = "a condition is a value, a prefix, or whether there is one: the route would match more";
                notes.omitted(parameter.place, format!("{what}: query parameter {name}"), why);
                return false;
            }
        }
    }
    if !conditions.is_empty() {
        route.set("query", conditions);
    }
    true
}
