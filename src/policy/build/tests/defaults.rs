//! The default that a row states is the one in force: a file with it, written out, has the policy
//! of a file without it.

use crate::config::Config;
use crate::config::findings::Findings;
use crate::config::row::{DefaultValue, Row};
use crate::config::tables::Limits;
use crate::load::from_text;

/// Files by the table whose settings they can have in place of `@`. Not all settings of a table fit
/// together, so a table may have several.
const FILES: [(&str, &str); 28] = [
    ("server", "[server]\n@"),
    ("server.limits", "[server.limits]\n@"),
    ("server.http2", "[server.http2]\n@"),
    ("listeners", "[[listeners]]\naddress = 'unix:/run/a.sock'\n@"),
    (
        "listeners",
        "[acme]\ndomains = ['a.test']\n[[listeners]]\naddress = '127.0.0.1:8443'\n\
         certificates = ['acme']\nclient_ca = '/ca.pem'\n@",
    ),
    (
        "listeners.hsts",
        "[acme]\ndomains = ['a.test']\n[[listeners]]\naddress = '127.0.0.1:8443'\n\
         certificates = ['acme']\n[listeners.hsts]\nmax_age = '1d'\n@",
    ),
    ("acme", "[acme]\ndomains = ['a.test']\n@"),
    ("redis", "[redis]\nurl = 'redis://h'\n@"),
    ("redis", "[redis]\nurl = 'redis+cluster://h'\n@"),
    ("redis.breaker", "[redis]\nurl = 'redis://h'\n[redis.breaker]\n@"),
    ("clients", "[keys.k]\nsha256 = '#'\n[clients]\n@"),
    ("headers", "[headers]\n@"),
    ("memory", "[memory]\n@"),
    ("usage", "[usage]\n@"),
    ("access_log", "[access_log]\n@"),
    ("log", "[log]\n@"),
    ("tracing", "[tracing]\n@"),
    ("audit", "[redis]\nurl = 'redis://h'\n[audit]\nstream = true\n@"),
    ("audit", "[audit]\n@"),
    ("plans", "[plans.free]\n@"),
    ("upstreams", "[upstreams.b]\nservers = ['127.0.0.1:1']\n@"),
    ("upstreams.servers", "[[upstreams.b.servers]]\naddress = '127.0.0.1:1'\n@"),
    ("routes", "[routes.b]\nhost = 'b.test'\nupstream = 'api'\n@"),
    ("routes", "[routes.b]\nhost = 'b.test'\nsplit = { api = 1 }\n@"),
    ("routes.respond", "[routes.b]\nhost = 'b.test'\n[routes.b.respond]\nbody = 'a'\n@"),
    ("routes.redirect", "[routes.b]\nhost = 'b.test'\n[routes.b.redirect]\nto = '/a'\n@"),
    ("rules", "[rules.r]\nper = ['key']\nrate = '1/s'\n@"),
    ("rules", "[rules.r]\nper = []\nkind = 'fixed_window'\nlimit = '5/month'\n@"),
];

/// Of a leaky bucket, which has settings of its own.
const LEAKY: &str = "[rules.r]\nper = []\nkind = 'leaky_bucket'\nrate = '1/s'\n@";

fn collect(path: &str, rows: &'static [Row], all: &mut Vec<(String, &'static Row)>) {
    for row in rows {
        if !matches!(row.default, DefaultValue::Unstated | DefaultValue::InWords(_)) {
            all.push((path.to_owned(), row));
        }
        let inner = format!("{path}.{}", row.name);
        collect(inner.trim_start_matches('.'), row.rows(), all);
    }
}

/// What the files have beside. Some have a second upstream, so the route names its own.
const REST: &str = "[upstreams.api]\nservers = ['demo']\n[routes.all]\nupstream = 'api'\n";

/// The policy of a file without its warnings, in text.
fn policy(text: &str) -> Option<String> {
    let text = format!("{}\n{}", text.replace('#', &"0".repeat(64)), REST);
    let mut policy = from_text("gateway.toml", &text).ok()?;
    policy.warnings = Findings::default();
    Some(format!("{policy:?}"))
}

#[test]
fn written_default_is_the_default_in_force() {
    let mut all = Vec::new();
    collect("", Config::rows(), &mut all);
    assert!(all.len() > 90, "{}", all.len());
    let files = FILES.into_iter().chain([("rules", LEAKY)]);
    let files: Vec<_> = files.collect();
    // The policy keeps whether the file has it: a limit that does not fit is then reported.
    all.retain(|(_, row)| row.name != Limits::max_connections.name);
    for (table, row) in all {
        let value = row.default.to_string();
        let line = format!("{} = {}", row.name, value.trim_matches('`'));
        let fitting = files.iter().filter(|(own, _)| *own == table).find_map(|(_, file)| {
            let with = policy(&file.replace('@', &line))?;
            Some((with, policy(&file.replace('@', "")).unwrap()))
        });
        let (with, without) = fitting.unwrap_or_else(|| panic!("no file has {table}: {line}"));
        assert_eq!(with, without, "{table}: {line}");
    }
}
