//! Which directives apply in a block: those of the innermost level that has any of that name. And
//! what variables are here.

use std::collections::HashMap;
use std::rc::Rc;

use super::Directive;

/// The levels that a block inherits from, the outermost first.
#[derive(Debug, Clone)]
pub(super) struct Scope<'a> {
    levels: Vec<Rc<Level<'a>>>,
}

/// The directives of a block.
#[derive(Debug)]
struct Level<'a> {
    all: &'a [Directive],
    by_name: HashMap<&'a str, Vec<&'a Directive>>,
}

/// What a text with variables of nginx is here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// A text with the gateway's variables.
    Known(String),
    /// It has a variable that the gateway does not have.
    Unknown(String),
}

// === impl Scope ===

impl<'a> Scope<'a> {
    /// The outermost level.
    pub(super) fn of(level: &'a [Directive]) -> Self {
        Self { levels: vec![Rc::new(Level::new(level))] }
    }

    /// The scope of a block in this one.
    pub(super) fn within(&self, level: &'a [Directive]) -> Self {
        let mut levels = self.levels.clone();
        levels.push(Rc::new(Level::new(level)));
        Self { levels }
    }

    /// The directives of this name that apply.
    pub(super) fn all(&self, name: &str) -> Vec<&'a Directive> {
        let mut levels = self.levels.iter().rev();
        levels.find_map(|level| level.by_name.get(name)).cloned().unwrap_or_default()
    }

    /// The directive of this name that applies.
    pub(super) fn one(&self, name: &str) -> Option<&'a Directive> {
        self.all(name).into_iter().next()
    }

    /// The directive, unless it is of the outermost level.
    pub(super) fn one_below_http(&self, name: &str) -> Option<&'a Directive> {
        Self { levels: self.levels.get(1..).unwrap_or_default().to_vec() }.one(name)
    }

    /// The directives of the innermost level.
    pub(super) fn own(&self) -> &'a [Directive] {
        self.levels.last().map(|level| level.all).unwrap_or_default()
    }

    /// The own directive of a name.
    pub(super) fn own_one(&self, name: &str) -> Option<&'a Directive> {
        self.levels.last()?.by_name.get(name)?.first().copied()
    }

    /// `allow` and `deny` of the innermost level that has any.
    pub(super) fn lists(&self) -> Vec<&'a Directive> {
        let is_list = |it: &&Directive| it.name == "allow" || it.name == "deny";
        let has = |level: &&Rc<Level<'_>>| {
            level.by_name.contains_key("allow") || level.by_name.contains_key("deny")
        };
        let level = self.levels.iter().rev().find(has);
        level.map(|level| level.all.iter().filter(is_list).collect()).unwrap_or_default()
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.one(name).is_some_and(|it| it.first() == "on")
    }

    /// The text with the values of `set` whose values have no variables.
    pub(super) fn expanded(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for level in self.levels.iter().rev() {
            for set in level.by_name.get("set").into_iter().flatten() {
                if let [name, value] = set.arguments.as_slice()
                    && !value.contains('$')
                    && name.starts_with('$')
                {
                    text = replace_variable(&text, name.trim_start_matches('$'), value);
                }
            }
        }
        text
    }
}

impl<'a> Level<'a> {
    fn new(all: &'a [Directive]) -> Self {
        let mut by_name: HashMap<&str, Vec<&Directive>> = HashMap::new();
        for directive in all {
            by_name.entry(&directive.name).or_default().push(directive);
        }
        Self { all, by_name }
    }
}

/// Replaces a variable, which ends where its name does.
pub(super) fn replace_variable(text: &str, name: &str, value: &str) -> String {
    let mut result = String::new();
    for part in parts(text) {
        match part {
            Part::Variable(own) if own == name => result += value,
            Part::Variable(own) => result.extend(["${", own, "}"]),
            Part::Literal(literal) => result += literal,
        }
    }
    result
}

/// The names of the variables of a text.
pub(super) fn variables(text: &str) -> Vec<&str> {
    let name = |part| match part {
        Part::Variable(name) => Some(name),
        Part::Literal(_) => None,
    };
    parts(text).into_iter().filter_map(name).collect()
}

enum Part<'a> {
    Literal(&'a str),
    Variable(&'a str),
}

/// The literal parts and the variables of a text.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (literal, after) = rest.split_at(at);
        let after = &after[1..];
        let (name, behind) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}').unwrap_or((inner, "")),
            None => {
                let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                after.split_at(after.find(is_end).unwrap_or(after.len()))
            }
        };
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        // A single `$` is one.
        parts.push(if name.is_empty() { Part::Literal("$") } else { Part::Variable(name) });
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest));
    }
    parts
}

/// A text with variables as the gateway writes it. `server_name` and `scheme` are those of the
/// server.
pub(super) fn text(text: &str, server_name: &str, scheme: &str) -> Text {
    let mut result = String::new();
    for part in parts(text) {
        let variable = match part {
            Part::Literal(literal) => {
                result += &literal.replace('{', "{{").replace('}', "}}");
                continue;
            }
            Part::Variable(name) => name,
        };
        match variable {
            "remote_addr" | "realip_remote_addr" | "proxy_protocol_addr" => result += "{client.ip}",
            "host" | "http_host" => result += "{host}",
            "server_name" if !server_name.is_empty() => result += server_name,
            "scheme" => result += scheme,
            "request_id" => result += "{request.id}",
            "request_method" => result += "{method}",
            "request_uri" => result += "{path}{query}",
            "uri" | "document_uri" => result += "{path}",
            // `$is_args$args`: the query has its `?`.
            "is_args" => {}
            "args" | "query_string" => result += "{query}",
            name => match (name.strip_prefix("http_"), name.strip_prefix("arg_")) {
                (Some(header), _) => result.extend(["{header:", &header.replace('_', "-"), "}"]),
                (_, Some(parameter)) => result.extend(["{query:", parameter, "}"]),
                _ => return Text::Unknown(format!("${name}")),
            },
        }
    }
    Text::Known(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_those_of_the_gateway() {
        let known = |written: &str| match text(written, "a.example", "https") {
            Text::Known(text) => text,
            Text::Unknown(name) => format!("unknown {name}"),
        };
        assert_eq!(known("https://$host$request_uri"), "https://{host}{path}{query}");
        assert_eq!(known("$scheme://$server_name/x{1}"), "https://a.example/x{{1}}");
        assert_eq!(known("/a${is_args}$args"), "/a{query}");
        assert_eq!(known("$http_x_tenant;$arg_p"), "{header:x-tenant};{query:p}");
        assert_eq!(known("/new/$1"), "unknown $1");
        assert_eq!(known("100$"), "100$");
        assert_eq!(known("${open"), "unknown $open");
    }

    #[test]
    fn literal_values_of_set_are_used() {
        let directives = super::super::syntax::parse("set $a app; set $b $host;", 0).unwrap();
        let scope = Scope::of(&directives);
        assert_eq!(scope.expanded("http://$a:80$b"), "http://app:80${b}");
        assert_eq!(scope.expanded("http://${a}b"), "http://appb");
    }
}
