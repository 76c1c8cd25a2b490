//! Which of two routes a request gets in the file, and which one here: the most specific one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use toml::{Table, Value};

use super::finish::hosts;
use super::note::Notes;
use super::settings::{Entries, Settings};

/// Routes of one group that are compared with each other. Of more, only the number is noted.
const MAX_COMPARED: usize = 2_000;

/// Routes that a note names.
const MAX_NAMED: usize = 3;

/// The precedence of a route in the file.
#[derive(Debug)]
pub(super) struct Order {
    /// Name of the route.
    pub(super) route: String,
    /// Routes of different groups are not compared.
    pub(super) group: usize,
    /// The higher one comes first.
    pub(super) rank: Vec<i64>,
    /// Whether the rank is exact: a route that never gets a request is left out.
    pub(super) is_exact: bool,
}

/// Leaves out routes that get no request in the file, and notes those that get fewer here.
pub(super) fn note(order: &[Order], routes: &mut Entries, notes: &mut Notes) {
    let mut groups: BTreeMap<usize, Vec<&Order>> = BTreeMap::new();
    for own in order {
        groups.entry(own.group).or_default().push(own);
    }
    let mut unreachable: Vec<String> = Vec::new();
    for mut group in groups.into_values() {
        group.retain(|it| routes.get(&it.route).is_some());
        if group.len() > MAX_COMPARED {
            let Some(first) = group.first().and_then(|it| routes.get(&it.route)) else { continue };
            let why = "the most specific route is used, whatever the order of the file";
            notes.approximate(first.place, format!("{} routes", group.len()), why);
            continue;
        }
        // The first comes first in the file.
        group.sort_by(|a, b| b.rank.cmp(&a.rank));
        for (number, later) in group.iter().enumerate() {
            let earlier = group.get(..number).unwrap_or_default();
            let is_gone = |own: &&&Order| {
                let pair = settings_of(own, later, routes);
                own.rank > later.rank && pair.is_some_and(|(own, later)| covers(own, later))
            };
            let Some(by) = earlier.iter().filter(|_| later.is_exact).find(is_gone) else {
                continue;
            };
            if let Some(entry) = routes.get(&later.route) {
                let why = format!(
                    "the route {} comes first in the file, and gets all of its requests",
                    by.route
                );
                notes.omitted(entry.place, format!("route {}", later.route), why);
                unreachable.push(later.route.clone());
            }
        }
        group.retain(|it| !unreachable.contains(&it.route));
        for (number, own) in group.iter().enumerate() {
            let later = group.get(number + 1..).unwrap_or_default();
            let loses_to = |other: &&&Order| {
                let is_first = routes.index(&own.route) < routes.index(&other.route);
                let pair = settings_of(own, other, routes);
                own.rank > other.rank
                    && pair.is_some_and(|(own, other)| loses(own, other, is_first))
            };
            let names: Vec<&str> =
                later.iter().filter(loses_to).map(|it| it.route.as_str()).collect();
            let Some(entry) = routes.get(&own.route).filter(|_| !names.is_empty()) else {
                continue;
            };
            let shown = names.get(..MAX_NAMED).unwrap_or(&names).join(", ");
            let more = if names.len() > MAX_NAMED { " and others" } else { "" };
            let why = format!(
                "requests that match both this one and {shown}{more} get the latter here, which is more specific"
            );
            notes.approximate(entry.place, format!("route {}", own.route), why);
        }
    }
    routes.retain(|route| !unreachable.contains(&route.name));
}

fn settings_of<'a>(
    one: &Order,
    other: &Order,
    routes: &'a Entries,
) -> Option<(&'a Settings, &'a Settings)> {
    let (one, other) = (routes.get(&one.route)?, routes.get(&other.route)?);
    // Alternatives of one rule.
    (one.place != other.place).then_some((&one.settings, &other.settings))
}

/// Whether all requests for `other` match `own`, too.
fn covers(own: &Settings, other: &Settings) -> bool {
    let has_conditions =
        ["methods", "headers", "query", "cookies"].iter().any(|name| own.get(name).is_some());
    let has_hosts = || {
        let all = hosts(own);
        all.contains(&String::new()) || hosts(other).iter().all(|host| all.contains(host))
    };
    !has_conditions && has_hosts() && Path::of(own).covers(&Path::of(other))
}

/// Whether some requests match both routes, and get `other`. `is_first` says that the table of
/// `own` comes first, which matters for expressions.
fn loses(own: &Settings, other: &Settings, is_first: bool) -> bool {
    let (path, of_other) = (Path::of(own), Path::of(other));
    have_common_host(own, other)
        && path.overlaps(&of_other)
        && have_common_method(own, other)
        && ["headers", "query"].iter().all(|name| can_both_hold(own, other, name))
        && match precedence(own, &path, other, &of_other) {
            Ordering::Greater => true,
            Ordering::Equal => matches!(path, Path::Expression(_)) && !is_first,
            Ordering::Less => false,
        }
}

/// Less if the first route comes first here.
fn precedence(own: &Settings, path: &Path, other: &Settings, of_other: &Path) -> Ordering {
    let host = |route: &Settings| hosts(route).iter().map(|it| host_rank(it)).max();
    let conditions = |route: &Settings| -> usize {
        ["headers", "query", "cookies"]
            .iter()
            .filter_map(|name| route.get(name)?.as_table())
            .map(Table::len)
            .sum()
    };
    host(other)
        .cmp(&host(own))
        .then_with(|| path.compare(of_other))
        .then_with(|| other.get("methods").is_some().cmp(&own.get("methods").is_some()))
        .then_with(|| conditions(other).cmp(&conditions(own)))
}

/// A name comes before a longer wildcard, that before a shorter one, and that before all hosts.
fn host_rank(host: &str) -> usize {
    match host.strip_prefix('*') {
        None if host.is_empty() => 0,
        None => usize::MAX,
        Some(end) => end.len(),
    }
}

fn have_common_host(own: &Settings, other: &Settings) -> bool {
    let is_below = |host: &str, known: &str| {
        known.is_empty() || known.strip_prefix('*').is_some_and(|end| host.ends_with(end))
    };
    let others = hosts(other);
    hosts(own).iter().any(|own| {
        others.iter().any(|other| own == other || is_below(own, other) || is_below(other, own))
    })
}

fn have_common_method(own: &Settings, other: &Settings) -> bool {
    match (own.get("methods"), other.get("methods")) {
        (Some(Value::Array(own)), Some(Value::Array(other))) => {
            own.iter().any(|method| other.contains(method))
        }
        _ => true,
    }
}

/// Whether a request can meet the conditions of both routes.
fn can_both_hold(own: &Settings, other: &Settings, name: &str) -> bool {
    let (Some(Value::Table(own)), Some(Value::Table(other))) = (own.get(name), other.get(name))
    else {
        return true;
    };
    own.iter().all(|(name, own)| match (own, other.get(name)) {
        (_, None) => true,
        (Value::Boolean(own), Some(Value::Boolean(other))) => own == other,
        (Value::Boolean(has), Some(_)) | (_, Some(Value::Boolean(has))) => *has,
        (own, Some(other)) => {
            let texts = own.as_str().zip(other.as_str());
            let is_prefix = |(own, other): (&str, &str)| own.ends_with('*') || other.ends_with('*');
            own == other || texts.is_some_and(is_prefix)
        }
    })
}

/// What a route matches of the path.
enum Path {
    /// Segments, of which a last `*` is any number.
    Segments(Vec<String>),
    /// An expression, by the text that all of its paths begin with.
    Expression(String),
}

// === impl Path ===

impl Path {
    fn of(route: &Settings) -> Self {
        if let Some(expression) = route.get("path_regex").and_then(Value::as_str) {
            return Self::Expression(literal_prefix(expression));
        }
        let path = route.get("path").and_then(Value::as_str).unwrap_or("/*");
        let path = path.trim_matches('/');
        Self::Segments(path.split('/').map(str::to_owned).collect())
    }

    fn is_all(&self) -> bool {
        matches!(self, Self::Segments(segments) if *segments == ["*"])
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Segments(own), Self::Segments(other)) => {
                for number in 0.. {
                    match (
                        own.get(number).map(String::as_str),
                        other.get(number).map(String::as_str),
                    ) {
                        (Some("*"), _) | (_, Some("*")) | (None, None) => return true,
                        (None, _) | (_, None) => return false,
                        (Some(own), Some(other)) => {
                            if own != other && !own.starts_with('{') && !other.starts_with('{') {
                                return false;
                            }
                        }
                    }
                }
                true
            }
            (Self::Expression(own), Self::Expression(other)) => {
                own.starts_with(other.as_str()) || other.starts_with(own.as_str())
            }
            (Self::Expression(prefix), Self::Segments(segments))
            | (Self::Segments(segments), Self::Expression(prefix)) => {
                let text = literal_of(segments);
                text.starts_with(prefix.as_str()) || prefix.starts_with(&text)
            }
        }
    }

    /// Whether all of the other's paths are paths of this one.
    fn covers(&self, other: &Self) -> bool {
        let Self::Segments(own) = self else { return false };
        let [begin @ .., last] = own.as_slice() else { return false };
        if last != "*" || begin.iter().any(|segment| segment.starts_with('{')) {
            return false;
        }
        match other {
            Self::Segments(other) => other.starts_with(begin),
            Self::Expression(prefix) => {
                let begin = format!("/{}", begin.join("/"));
                begin == "/" || prefix.starts_with(&format!("{begin}/"))
            }
        }
    }

    /// Less if this one comes first.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Expression(_), Self::Expression(_)) => Ordering::Equal,
            (Self::Expression(_), other) if other.is_all() => Ordering::Less,
            (Self::Expression(_), _) => Ordering::Greater,
            (own, Self::Expression(_)) if own.is_all() => Ordering::Greater,
            (_, Self::Expression(_)) => Ordering::Less,
            (Self::Segments(own), Self::Segments(other)) => {
                // Text, a parameter, the end of a path and `*`, in this order.
                let kind = |segment: Option<&String>| match segment.map(String::as_str) {
                    Some("*") => 3,
                    None => 2,
                    Some(segment) => u8::from(segment.starts_with('{')),
                };
                (0..=own.len().max(other.len()))
                    .map(|number| kind(own.get(number)).cmp(&kind(other.get(number))))
                    .find(|ordering| ordering.is_ne())
                    .unwrap_or(Ordering::Equal)
            }
        }
    }
}

/// The text that all paths of these segments begin with.
fn literal_of(segments: &[String]) -> String {
    let is_text = |segment: &&String| *segment != "*" && !segment.starts_with('{');
    let begin: Vec<&str> = segments.iter().take_while(is_text).map(String::as_str).collect();
    format!("/{}", begin.join("/"))
}

/// The text that all texts which an expression matches begin with, as far as it is plain.
fn literal_prefix(expression: &str) -> String {
    let Some(inner) = expression.strip_prefix('^') else { return String::new() };
    let inner = inner.strip_prefix("(?:").unwrap_or(inner);
    if inner.contains('|') {
        return String::new();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    let end = inner.find(|c: char| !is_plain(c)).unwrap_or(inner.len());
    let (text, rest) = inner.split_at(end);
    // The last character may be repeated, or absent.
    let is_counted = rest.starts_with(['*', '?', '{']);
    let text =
        if is_counted { text.get(..text.len().saturating_sub(1)).unwrap_or("") } else { text };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(key: &'static str, path: &str) -> Settings {
        Settings::default().with(key, path)
    }

    #[test]
    fn more_specific_routes_come_first() {
        let table = [
            // The first loses to the second.
            ("path", "/*", "path", "/a/*", true),
            ("path", "/a/*", "path", "/*", false),
            ("path", "/a/*", "path", "/b/*", false),
            ("path", "/{x}/b", "path", "/a/*", true),
            ("path_regex", "^/a/[0-9]+$", "path", "/a/*", true),
            ("path_regex", "^/a/[0-9]+$", "path", "/b/*", false),
            ("path_regex", "^/a/[0-9]+$", "path", "/*", false),
            ("path_regex", "^/ab?", "path", "/a", true),
            ("path_regex", "[.]php$", "path", "/b/c", true),
            ("path", "/*", "path_regex", "^/a", true),
        ];
        for (kind, own, other_kind, other, expected) in table {
            let found = loses(&route(kind, own), &route(other_kind, other), true);
            assert_eq!(found, expected, "{own} {other}");
        }
        let get = |path| route("path", path).with("methods", vec![Value::from("GET")]);
        let post = route("path", "/a").with("methods", vec![Value::from("POST")]);
        assert!(!loses(&get("/*"), &post, true));
        assert!(loses(&get("/*"), &get("/a"), true));
    }

    #[test]
    fn prefixes_cover_what_is_below_them() {
        let covers =
            |own: &str, kind, other: &str| covers(&route("path", own), &route(kind, other));
        assert!(covers("/*", "path", "/a"));
        assert!(covers("/a/*", "path", "/a/b/*"));
        assert!(covers("/a/*", "path_regex", "^(?:/a/[0-9]+)$"));
        assert!(!covers("/a/*", "path_regex", "^(?:/a[0-9]+)$"));
        assert!(!covers("/a/*", "path", "/ab"));
        assert!(!covers("/a", "path", "/a"));
    }
}
