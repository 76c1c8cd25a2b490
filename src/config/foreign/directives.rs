//! Lines of nginx's configuration in the file: `limit_req_zone $binary_remote_addr zone=one:10m
//! rate=10r/s;`.

use super::dimensions::dimension;
use super::{Place, find, prefix_path};
use crate::base::text::cut;

/// What to write instead of a line that is a directive of nginx, and the length of the directive's
/// name in bytes.
pub(in crate::config) fn directive(line: &str) -> Option<(usize, String)> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let statement = line.strip_suffix([';', '{'])?.trim();
    let (name, arguments) = statement.split_once(char::is_whitespace)?;
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !is_name
        || arguments
            .first()
            .is_some_and(|first| first.starts_with(['=', '.']) && name != "location")
    {
        return None;
    }
    let help = match name {
        "limit_req_zone" => zone(&arguments)?,
        "limit_req" => request_limit(&arguments)?,
        "limit_conn" => {
            let limit: u64 = arguments.last()?.parse().ok()?;
            format!("in the rule, write `kind = \"concurrency\"` and `limit = {limit}`")
        }
        "location" => {
            let path = arguments.last().filter(|path| path.starts_with('/'))?;
            let path = match arguments.first() {
                Some(&"=") => (*path).to_owned(),
                _ => prefix_path(path),
            };
            format!("a location is a route: `[routes.<name>]` with `path = \"{}\"`", cut(&path, 64))
        }
        "server" | "upstream" | "http" | "listen" => {
            "servers are in `[upstreams.<name>]`, as `servers = [\"127.0.0.1:3000\"]`, and the address of the gateway is \
             `listen = [\"0.0.0.0:8080\"]` in `[server]`"
                .to_owned()
        }
        _ => of_entry(name)?,
    };
    Some((name.len(), help))
}

/// The rule of `limit_req_zone KEY zone=NAME:SIZE rate=RATE`.
fn zone(arguments: &[&str]) -> Option<String> {
    let value = |name: &str| arguments.iter().find_map(|argument| argument.strip_prefix(name));
    let per = match dimension(arguments.first()?) {
        Some(per) if per.is_empty() => "[]".to_owned(),
        Some(per) => format!("[\"{per}\"]"),
        None => "[\"ip\"]".to_owned(),
    };
    let zone = value("zone=")?.split(':').next().unwrap_or_default();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let rule = if !zone.is_empty() && zone.chars().all(is_bare) {
        cut(zone, 64)
    } else {
        "one".to_owned()
    };
    let (count, unit) = value("rate=")?.split_once("r/")?;
    let count: u64 = count.parse().ok()?;
    matches!(unit, "s" | "m").then(|| {
        format!("a zone is a rule: `[rules.{rule}]` with `per = {per}`, `rate = \"{count}/{unit}\"` and `burst = 1`")
    })
}

/// The burst of `limit_req zone=NAME burst=N nodelay`: nginx' burst is in excess of one request.
fn request_limit(arguments: &[&str]) -> Option<String> {
    let burst: Option<u64> =
        arguments.iter().find_map(|argument| argument.strip_prefix("burst=")?.parse().ok());
    Some(match burst {
        None => "in the rule of the zone, write `burst = 1`".to_owned(),
        Some(burst) if arguments.contains(&"nodelay") => {
            format!("in the rule of the zone, write `burst = {}`", burst.checked_add(1)?)
        }
        Some(burst) => format!(
            "in the rule of the zone, write `kind = \"leaky_bucket\"` and a `max_delay` of {burst} divided by the rate, or \
             to refuse at once, `burst = {}`",
            burst.checked_add(1)?
        ),
    })
}

/// What to write instead of a directive of this name, as a part of a sentence.
pub(crate) fn instead_of_directive(name: &str) -> Option<String> {
    of_entry(name)
}

/// The help of the setting of that name.
fn of_entry(name: &str) -> Option<String> {
    let entry = find(name, |place| place.head().is_some() || place == Place::Any)?;
    let why = entry.why.replace('@', "<name>");
    Some(match (entry.place.head(), entry.line) {
        (Some(head), line) if !line.is_empty() => format!("in `{head}`, write `{line}`"),
        _ => why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_of_nginx_become_lines() {
        let help = |line| directive(line).map(|(_, help)| help);
        let table = [
            (
                "limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;",
                "a zone is a rule: `[rules.one]` with `per = [\"ip\"]`, `rate = \"10/s\"` and `burst = 1`",
            ),
            (
                "limit_req_zone $server_name zone=all:10m rate=30r/m; # all",
                "a zone is a rule: `[rules.all]` with `per = []`, `rate = \"30/m\"` and `burst = 1`",
            ),
            (
                "  limit_req zone=one burst=20 nodelay;",
                "in the rule of the zone, write `burst = 21`",
            ),
            ("limit_req zone=one;", "in the rule of the zone, write `burst = 1`"),
            ("limit_conn addr 10;", "in the rule, write `kind = \"concurrency\"` and `limit = 10`"),
            (
                "location /api/ {",
                "a location is a route: `[routes.<name>]` with `path = \"/api/*\"`",
            ),
            (
                "location = /api {",
                "a location is a route: `[routes.<name>]` with `path = \"/api\"`",
            ),
        ];
        for (line, expected) in table {
            assert_eq!(help(line).as_deref(), Some(expected), "{line}");
        }
        assert!(help("proxy_cache one;").is_some_and(|help| help.contains("cache")));
        for other in ["rate = \"10/s\";", "rate 10", "a b;", "=;", ";", "{", "limit_req_zone;"] {
            assert_eq!(help(other), None, "{other}");
        }
    }
}
