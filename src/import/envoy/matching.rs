//! What a route matches.

use toml::{Table, Value};

use super::{get, items, snake, text};
use crate::import::common::{escaped, exact_value, is_literal_path, set_prefix};
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
    let special = |key| text(node, key).filter(|path| !is_literal_path(path));
    if let Some(prefix) = special("prefix") {
        route.set("path_regex", format!("^{}", escaped(prefix)));
    } else if let Some(path) = special("path") {
        route.set("path_regex", format!("^{}$", escaped(path)));
    } else if let Some(prefix) = special("path_separated_prefix") {
        route.set("path_regex", format!("^{}(?:/|$)", escaped(prefix)));
    } else if let Some(prefix) = text(node, "prefix") {
        set_prefix(route, prefix, node.place, what, notes);
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
        let Some(path) = of_template(template) else {
            let why = "a template has segments of text, `*`, `{name}`, and `**` at its end: write `path` or `path_regex`";
            notes.omitted(node.place, format!("{what}: {template}"), why);
            return false;
        };
        route.set("path", path);
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

/// The path of a template, in which `*` is one segment, and `**` at the end any number of them.
/// None if a path does not have its parts.
fn of_template(template: &str) -> Option<String> {
    let segments: Vec<&str> = template.strip_prefix('/')?.split('/').collect();
    let mut path = String::new();
    for (number, segment) in segments.iter().enumerate() {
        let is_last = number + 1 == segments.len();
        let variable = segment.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let (name, pattern) = match variable {
            Some(variable) => variable.split_once('=').unwrap_or((variable, "*")),
            None => ("", *segment),
        };
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        path.push('/');
        match pattern {
            "**" if is_last => path.push('*'),
            "*" if name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(is_name) =>
            {
                path.extend(["{", name, "}"]);
            }
            "*" => path.extend(["{segment", &number.to_string(), "}"]),
            text if text.contains(['*', '{', '}', '=']) => return None,
            text => path += text,
        }
    }
    Some(path)
}

fn is_inverted(node: &Node) -> bool {
    get(node, "invert_match").and_then(Node::flag) == Some(true)
}

/// The value of a condition; none if there is none of its kind.
fn condition(node: &Node) -> Option<Value> {
    if is_inverted(node) {
        return None;
    }
    if let Some(present) = get(node, "present_match").and_then(Node::flag) {
        return Some(present.into());
    }
    let string = get(node, "string_match").unwrap_or(node);
    let value = |key: &str, old: &str| text(string, key).or_else(|| text(node, old));
    if let Some(exact) = value("exact", "exact_match") {
        return exact_value(exact);
    }
    if let Some(prefix) = value("prefix", "prefix_match") {
        return Some(format!("{prefix}*").into());
    }
    // A name alone is any value.
    let is_name_only = node.pairs().iter().all(|pair| pair.key == "name");
    is_name_only.then(|| true.into())
}

/// Notes a condition that does not distinguish upper and lower case.
fn note_case(node: &Node, what: &str, notes: &mut Notes) {
    let ignores = get(node, "string_match").and_then(|it| get(it, "ignore_case"));
    if let Some(ignores) = ignores.filter(|it| it.flag() == Some(true)) {
        notes.approximate(ignores.place, what, "upper and lower case of the value differ");
    }
}

/// Whether one of the hosts of a route is this one, or all below a name that it is below.
fn has_host(route: &Settings, host: &str) -> bool {
    let host = host.split(':').next().unwrap_or_default();
    let is_own = |known: &Value| {
        let known = known.as_str().unwrap_or_default();
        known == host || known.strip_prefix('*').is_some_and(|end| host.ends_with(end))
    };
    match route.get("host") {
        None => true,
        Some(Value::Array(hosts)) => hosts.iter().any(is_own),
        Some(known) => is_own(known),
    }
}

fn headers(node: &Node, what: &str, route: &mut Settings, notes: &mut Notes) -> bool {
    let mut conditions = Table::new();
    for header in items(node, "headers") {
        let name = text(header, "name").unwrap_or_default().to_lowercase();
        let value = condition(header);
        note_case(header, &format!("{what}: header {name}"), notes);
        match (name.as_str(), value) {
            (":method", Some(Value::String(method)))
                if !method.ends_with('*') && route.get("methods").is_none() =>
            {
                route.extend("methods", [method]);
            }
            (":method", _) => {
                let regex = get(header, "string_match").unwrap_or(header);
                let regex = get(regex, "safe_regex").or(get(header, "safe_regex_match"));
                let methods = regex.and_then(|it| text(it, "regex")).unwrap_or_default();
                let methods =
                    methods.trim_start_matches('^').trim_end_matches('$').trim_matches(['(', ')']);
                if methods.is_empty()
                    || is_inverted(header)
                    || route.get("methods").is_some()
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
            (":authority" | "host", Some(Value::String(host)))
                if !host.ends_with('*') && has_host(route, &host) =>
            {
                route.set("host", host.split(':').next().unwrap_or_default());
            }
            (name, Some(value))
                if !name.starts_with(':')
                    && !name.is_empty()
                    && conditions.get(name).is_none_or(|known| *known == value) =>
            {
                conditions.insert(name.to_owned(), value);
            }
            _ => {
                let why = "a condition is one value, a prefix, or whether there is one: the route would match more";
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
        note_case(parameter, &format!("{what}: query parameter {name}"), notes);
        match condition(parameter).filter(|_| !name.is_empty()) {
            Some(value) if conditions.get(name).is_none_or(|known| *known == value) => {
                conditions.insert(name.to_owned(), value);
            }
            _ => {
                let why = "a condition is one value, a prefix, or whether there is one: the route would match more";
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
