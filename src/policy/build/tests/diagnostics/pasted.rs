//! What a help suggests is valid where it is suggested.

use super::super::{render, render_whole};

/// The text between the first `write ` and the end of its code, without the backticks.
fn suggested(shown: &str) -> String {
    let help = shown.split_once("= help: ").unwrap_or_else(|| panic!("no help: {shown}")).1;
    let (_, code) = help.split_once("write `").unwrap_or_else(|| panic!("no line: {shown}"));
    code.split_once('`').unwrap().0.to_owned()
}

#[test]
fn suggested_value_is_valid_in_its_place() {
    let rate = "[rules.r]\nper = []\nrate = @";
    let listen = "[server]\nlisten = [@]";
    let admin = "[server]\nadmin = @\n";
    let plan = "[plans.free]\n[rules.r]\nper = []\nplans.free = { rate = @ }";
    let table = [
        (rate, "'1.5/s'"),
        (rate, "'0.5/s'"),
        (rate, "'1.5/m'"),
        (rate, "'0.5/d'"),
        (rate, "'10 per second'"),
        (rate, "'10rps'"),
        (rate, "'10r/s'"),
        (rate, "'10'"),
        (rate, "'100/min'"),
        (rate, "'100/hour'"),
        (rate, "'10 / s'"),
        (rate, "'10/1.5s'"),
        (rate, "'10/'"),
        (rate, "'10/10'"),
        (plan, "'1.5/s'"),
        (listen, "':8080'"),
        (listen, "'8080'"),
        (listen, "8080"),
        (listen, "'*:8080'"),
        (listen, "'localhost:8080'"),
        (listen, "'http://0.0.0.0:8080'"),
        (listen, "'https://0.0.0.0:8443'"),
        (listen, "'::1'"),
        (admin, "':9191'"),
        (admin, "'9191'"),
        (admin, "'127.0.0.1'"),
    ];
    for (place, wrong) in table {
        let shown = render(&place.replace('@', wrong));
        assert!(shown.ends_with("gateway.toml: 1 error\n"), "{wrong}: {shown}");
        let suggested = suggested(&shown);
        let value = format!("'{}'", suggested.trim_matches('"'));
        assert_eq!(render(&place.replace('@', &value)), "no errors\n", "{wrong}: {suggested}");
    }
}

#[test]
fn suggested_line_is_valid_in_its_place() {
    let hash = "9f".repeat(32);
    let key = format!("[rules.k]\nper = ['key']\nrate = '1/s'\n[keys.acme]\nsha256 = '{hash}'\n@");
    let hashed = format!("acme = '{hash}'");
    let table = [
        ("[server]\n@", "listen = ':8080'"),
        ("[server]\n@", "listen = 8080"),
        ("[server]\n@", "listen = '127.0.0.1:80'"),
        ("[server]\n@", "admin = 9191"),
        ("[server]\n@", "port = 8080"),
        ("[rules.r]\nper = []\n@", "rate = 10"),
        ("[rules.r]\nper = []\n@", "limit = 10"),
        ("[rules.r]\nrate = '1/s'\n@", "per = 'ip'"),
        ("[rules.r]\nrate = '1/s'\n@", "by = 'key'"),
        ("[plans.free]\n[rules.r]\nper = []\n@", "plans.free = '2/s'"),
        ("[plans.free]\n[rules.r]\nper = []\n@", "plans.free = 2"),
        ("[plans.free]\n[rules.r]\nper = []\n@", "plans.free = '2rps'"),
        (&key, "rules.k = '5/s'"),
        ("[rules]\n@", "r = '10/s'"),
        ("[rules.k]\nper = ['key']\nrate = '1/s'\n[keys]\n@", &hashed),
        ("[routes]\n@", "x = '/path'"),
        ("[upstreams]\n@\n[routes.b]\nupstream = 'b'\npath = '/b'", "b = '127.0.0.1:3000'"),
        ("[routes.b]\nupstream = 'b'\npath = '/b'\n[upstreams]\n@", "b = ['a:1', 'b:2']"),
    ];
    // Without heads of the same tables.
    let rest = "upstreams.api.servers = ['demo']\nroutes.all = { upstream = 'api' }\n";
    for (place, wrong) in table {
        let is_apart = place.contains("[upstreams]") || place.contains("[routes]");
        let show = |line: &str| {
            let text = place.replace('@', line);
            if is_apart {
                render_whole(&format!("{}{text}", rest_of(&text, rest)))
            } else {
                render(&text)
            }
        };
        let shown = show(wrong);
        assert!(shown.ends_with("gateway.toml: 1 error\n"), "{wrong}: {shown}");
        let suggested = suggested(&shown);
        assert_eq!(show(&suggested), "no errors\n", "{wrong}: {suggested}");
    }
}

/// The settings of the smallest file that do not exclude the heads of `text`.
fn rest_of(text: &str, rest: &str) -> String {
    let is_free = |line: &&str| {
        let table = line.split('.').next().unwrap_or_default();
        !text.contains(&format!("[{table}"))
    };
    let lines = rest.lines().filter(is_free).map(|line| format!("{line}\n"));
    lines.collect()
}
