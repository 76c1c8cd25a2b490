//! The rule of a router: `Host(`a.example`) && (PathPrefix(`/api`) || Path(`/x`))`.

use toml::Value;

use crate::import::common::{escaped, exact_value};

/// Maximum number of alternatives of a rule.
const MAX_ALTERNATIVES: usize = 64;

/// Maximum depth of parentheses.
const MAX_DEPTH: usize = 32;

/// One alternative of a rule: all that is set must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Alternative {
    /// Any of them; none for all hosts.
    pub(super) hosts: Vec<String>,
    pub(super) path: Option<Path>,
    pub(super) methods: Vec<String>,
    pub(super) headers: Vec<(String, Value)>,
    pub(super) query: Vec<(String, Value)>,
    pub(super) allow_ips: Vec<String>,
    /// Paths that it does not match.
    pub(super) excluded: Vec<Path>,
    /// Expressions for hosts that match fewer than those in `hosts`.
    pub(super) widened: Vec<String>,
    /// What was left out although the alternative then matches more.
    pub(super) left_out: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Path {
    Exact(String),
    Prefix(String),
    Expression(String),
}

/// The alternatives of a rule.
///
/// # Errors
/// What cannot be taken over.
pub(super) fn parse(text: &str) -> Result<Vec<Alternative>, String> {
    let mut parser = Parser { rest: text.trim(), depth: 0 };
    let alternatives = parser.or()?;
    if !parser.rest.is_empty() {
        return Err(format!("`{}` is not understood", parser.rest));
    }
    Ok(joined(alternatives))
}

/// Joins alternatives that differ only in their hosts.
fn joined(alternatives: Vec<Alternative>) -> Vec<Alternative> {
    let mut result: Vec<Alternative> = Vec::new();
    for alternative in alternatives {
        let without = |it: &Alternative| Alternative { hosts: Vec::new(), ..it.clone() };
        let same = result.iter_mut().find(|known| without(known) == without(&alternative));
        match same {
            Some(known) if known.hosts.is_empty() || alternative.hosts.is_empty() => {
                known.hosts.clear();
            }
            Some(known) => known.hosts.extend(alternative.hosts),
            None => result.push(alternative),
        }
    }
    result
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn or(&mut self) -> Result<Vec<Alternative>, String> {
        let mut alternatives = self.and()?;
        while self.eat("||") {
            alternatives.extend(self.and()?);
            if alternatives.len() > MAX_ALTERNATIVES {
                return Err(format!("it has more than {MAX_ALTERNATIVES} alternatives"));
            }
        }
        Ok(alternatives)
    }

    fn and(&mut self) -> Result<Vec<Alternative>, String> {
        let mut alternatives = self.one()?;
        while self.eat("&&") {
            let others = self.one()?;
            if alternatives.len() * others.len() > MAX_ALTERNATIVES {
                return Err(format!("it has more than {MAX_ALTERNATIVES} alternatives"));
            }
            let mut both = Vec::new();
            for first in &alternatives {
                for second in &others {
                    both.push(first.clone().and(second.clone())?);
                }
            }
            alternatives = both;
        }
        Ok(alternatives)
    }

    fn one(&mut self) -> Result<Vec<Alternative>, String> {
        if self.eat("!") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err("it has too many negations".to_owned());
            }
            let before = self.rest;
            let negated = self.one()?;
            let shown = before[..before.len() - self.rest.len()].trim();
            // Paths of other routes are more specific, so a request for them does not get this one.
            let is_path = negated.iter().all(|it| {
                it.path.is_some()
                    && Alternative { path: None, ..it.clone() } == Alternative::default()
            });
            return if is_path {
                Ok(vec![Alternative {
                    left_out: vec![format!("!{shown}")],
                    excluded: negated.into_iter().filter_map(|it| it.path).collect(),
                    ..Alternative::default()
                }])
            } else {
                Err(format!("`!{shown}`: a condition of a route cannot be negated"))
            };
        }
        if self.eat("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err("it has too many parentheses".to_owned());
            }
            let inner = self.or()?;
            self.depth -= 1;
            return if self.eat(")") { Ok(inner) } else { Err("a `)` is missing".to_owned()) };
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if name.is_empty() || !self.eat("(") {
            return Err(format!("`{name}{}` is not understood", self.rest));
        }
        let arguments = self.arguments()?;
        matcher(name, &arguments)
    }

    /// Texts in backticks or quotes, up to the `)`.
    fn arguments(&mut self) -> Result<Vec<&'a str>, String> {
        let mut arguments = Vec::new();
        loop {
            if self.eat(")") {
                return Ok(arguments);
            }
            let quote = self.rest.chars().next().filter(|c| matches!(c, '`' | '"' | '\''));
            let Some(quote) = quote else { return Err("a text is missing".to_owned()) };
            let inner = &self.rest[1..];
            let Some(end) = inner.find(quote) else { return Err("a text does not end".to_owned()) };
            arguments.push(&inner[..end]);
            self.rest = inner[end + 1..].trim_start();
            self.eat(",");
        }
    }
}

// === impl Alternative ===

impl Alternative {
    fn of_path(path: Path) -> Self {
        Self { path: Some(path), ..Self::default() }
    }

    /// Both at once.
    fn and(mut self, other: Self) -> Result<Self, String> {
        if !self.hosts.is_empty() && !other.hosts.is_empty() {
            self.hosts.retain(|host| other.hosts.contains(host));
            if self.hosts.is_empty() {
                return Err("it has two conditions on the host".to_owned());
            }
        } else {
            self.hosts.extend(other.hosts);
        }
        self.path = match (self.path, other.path) {
            (Some(first), Some(second)) => match (first, second) {
                (Path::Prefix(a), Path::Prefix(b)) if b.starts_with(&a) => Some(Path::Prefix(b)),
                (Path::Prefix(a), Path::Prefix(b)) if a.starts_with(&b) => Some(Path::Prefix(a)),
                (Path::Prefix(a), Path::Exact(b)) | (Path::Exact(b), Path::Prefix(a))
                    if b.starts_with(&a) =>
                {
                    Some(Path::Exact(b))
                }
                (first, second) if first == second => Some(first),
                _ => return Err("it has two conditions on the path".to_owned()),
            },
            (first, second) => first.or(second),
        };
        if !self.methods.is_empty() && !other.methods.is_empty() {
            return Err("it has two conditions on the method".to_owned());
        }
        self.methods.extend(other.methods);
        self.headers.extend(other.headers);
        self.query.extend(other.query);
        if !self.allow_ips.is_empty() && !other.allow_ips.is_empty() {
            return Err("it has two conditions on the address".to_owned());
        }
        self.allow_ips.extend(other.allow_ips);
        self.widened.extend(other.widened);
        self.left_out.extend(other.left_out);
        self.excluded.extend(other.excluded);
        Ok(self)
    }
}

/// The alternatives of one matcher.
fn matcher(name: &str, arguments: &[&str]) -> Result<Vec<Alternative>, String> {
    let texts = || arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let paths = |path: fn(String) -> Path| {
        texts().into_iter().map(|text| Alternative::of_path(path(text))).collect::<Vec<_>>()
    };
    let found = match name {
        "Host" | "HostHeader" => {
            vec![Alternative {
                hosts: texts().iter().map(|it| it.to_lowercase()).collect(),
                ..Alternative::default()
            }]
        }
        "HostRegexp" => {
            let found = arguments.iter().map(|text| host(text)).collect::<Result<Vec<_>, _>>()?;
            let widened = arguments
                .iter()
                .zip(&found)
                .filter(|(_, (_, is_exact))| !is_exact)
                .map(|(text, _)| format!("HostRegexp(`{text}`)"))
                .collect();
            let is_all = found.iter().any(|(host, _)| host.is_none());
            let hosts = found.into_iter().filter_map(|(host, _)| host);
            let hosts = if is_all { Vec::new() } else { hosts.collect() };
            vec![Alternative { hosts, widened, ..Alternative::default() }]
        }
        "Path" => texts()
            .into_iter()
            .map(|text| Alternative::of_path(path(&text, Path::Exact, "$")))
            .collect(),
        "PathPrefix" => texts()
            .into_iter()
            .map(|text| Alternative::of_path(path(&text, Path::Prefix, "")))
            .collect(),
        "PathRegexp" => paths(Path::Expression),
        "Method" => vec![Alternative { methods: texts(), ..Alternative::default() }],
        "Headers" | "Header" => match arguments {
            [name] => vec![Alternative {
                headers: vec![((*name).to_owned(), true.into())],
                ..Alternative::default()
            }],
            [name, value] => {
                let value = exact_value(value).ok_or_else(|| is_prefix(value))?;
                vec![Alternative {
                    headers: vec![((*name).to_owned(), value)],
                    ..Alternative::default()
                }]
            }
            _ => return Err(format!("`{name}` has a name and a value")),
        },
        "Query" => {
            let value = |text: &str| exact_value(text).ok_or_else(|| is_prefix(text));
            let pair = match arguments {
                [name, text] => ((*name).to_owned(), value(text)?),
                [pair] => match pair.split_once('=') {
                    Some((name, text)) => (name.to_owned(), value(text)?),
                    None => ((*pair).to_owned(), true.into()),
                },
                _ => return Err("`Query` has a name and a value".to_owned()),
            };
            vec![Alternative { query: vec![pair], ..Alternative::default() }]
        }
        "ClientIP" => vec![Alternative { allow_ips: texts(), ..Alternative::default() }],
        _ => return Err(format!("`{name}` is not a condition of routes")),
    };
    if found.is_empty() || arguments.is_empty() {
        return Err(format!("`{name}` has no value"));
    }
    Ok(found)
}

fn is_prefix(value: &str) -> String {
    format!("`{value}`: a value that ends with `*` is a prefix here")
}

/// A wildcard for an expression for hosts; none if it is for all. And whether it matches no more.
fn host(text: &str) -> Result<(Option<String>, bool), String> {
    let plain = text.trim_start_matches('^').trim_end_matches('$').replace("\\.", ".");
    let any = [
        "{any:.+}",
        ".+",
        ".*",
        "{host:.+}",
        "{host:.*}",
        "{catchall:.*}",
        "{any:.*}",
        "[^.]+",
        "[a-z0-9-]+",
        "[a-zA-Z0-9-]+",
    ];
    // A class of characters alone is less than all hosts.
    if any.contains(&plain.as_str()) && !plain.starts_with('[') {
        return Ok((None, true));
    }
    let is_exact = !plain.starts_with('[')
        && (!plain.starts_with('{') || any.iter().any(|any| plain.starts_with(any)));
    // `{sub:[a-z]+}.example.com` of version 2.
    let rest = match plain.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        Some((_, rest)) => rest,
        None => any.iter().find_map(|any| plain.strip_prefix(any)).unwrap_or_default(),
    };
    let is_host = |host: &str| {
        !host.is_empty()
            && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
    };
    match rest.strip_prefix('.').filter(|rest| is_host(rest)) {
        Some(rest) => Ok((Some(format!("*.{}", rest.to_lowercase())), is_exact)),
        None => {
            Err(format!("`{text}`: a host is a name, or `*.example.com` for all names below one"))
        }
    }
}

/// The path of a text, which may have `{name}` and `{name:expression}` of version 2. With an
/// expression, or a `*`, it is an expression as a whole.
fn path(text: &str, plain: fn(String) -> Path, end: &str) -> Path {
    let (mut result, mut expression) = (String::new(), "^".to_owned());
    let mut is_plain = true;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let mut depth = 1;
        let inner = after.find(|c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let Some(inner) = inner else { break };
        let (name, own) = after[..inner].split_once(':').unwrap_or((&after[..inner], "[^/]+"));
        is_plain &= own == "[^/]+";
        result.extend([before, "{", &name.to_lowercase(), "}"]);
        expression.extend([&escaped(before), "(?:", own, ")"]);
        rest = &after[inner + 1..];
    }
    result += rest;
    expression.extend([&escaped(rest), end]);
    if is_plain && !text.contains('*') { plain(result) } else { Path::Expression(expression) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rules_become_alternatives() {
        let one = |text: &str| parse(text).unwrap().remove(0);
        let host = one("Host(`A.example`) && PathPrefix(`/api`) && Method(`GET`, `POST`)");
        assert_eq!(host.hosts, ["a.example"]);
        assert_eq!(host.path, Some(Path::Prefix("/api".into())));
        assert_eq!(host.methods, ["GET", "POST"]);
        assert_eq!(one("Host(`a`) || Host(`b`)").hosts, ["a", "b"]);
        assert_eq!(parse("Host(`a`) && (Path(`/x`) || PathPrefix(`/y`))").unwrap().len(), 2);
        assert_eq!(one("HostRegexp(`^.+\\.a\\.example$`)").hosts, ["*.a.example"]);
        assert_eq!(one("HostRegexp(`{sub:[a-z]+}.a.example`)").hosts, ["*.a.example"]);
        assert_eq!(one("HostRegexp(`{any:.+}`)"), Alternative::default());
        assert_eq!(one("Path(`/u/{id}/x`)").path, Some(Path::Exact("/u/{id}/x".into())));
        let expression = Path::Expression("^/u/(?:[0-9]{2})/x\\.y$".into());
        assert_eq!(one("Path(`/u/{id:[0-9]{2}}/x.y`)").path, Some(expression));
        let expression = Path::Expression("^/u/\\*".into());
        assert_eq!(one("PathPrefix(`/u/*`)").path, Some(expression));
        assert_eq!(one("HostRegexp(`{sub:[a-z]+}.a.example`)").widened.len(), 1);
        assert_eq!(one("HostRegexp(`^[a-z0-9-]+\\.a\\.example$`)").widened.len(), 1);
        assert!(one("HostRegexp(`^.+\\.a\\.example$`)").widened.is_empty());
        assert_eq!(one("Query(`a`, `b`)").query, [("a".to_owned(), Value::from("b"))]);
        assert_eq!(one("Host(`a`) && !PathPrefix(`/api`)").left_out, ["!PathPrefix(`/api`)"]);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for text in [
            "",
            "Host",
            "Host(a)",
            "Host(`a`",
            "!Host(`a`)",
            "Foo(`a`)",
            "Host()",
            "Path(`/a`) && Path(`/b`)",
            "Header(`x`, `a*`)",
            "Query(`x`, `*`)",
            ")",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"(".repeat(10_000)).is_err());
        assert!(parse(&"!".repeat(100_000)).is_err());
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn no_text_panics(text in "([!()|&,` '\"a-z{}:]|Host|Path|\\PC){0,60}") {
            let _ = parse(&text);
        }
    }
}
