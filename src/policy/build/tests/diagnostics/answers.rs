//! Answers of routes without an upstream, redirects and maintenance.

use super::super::render;

/// The diagnostics of routes with these settings, one each.
fn routes(settings: &[&str]) -> String {
    let route = |(number, settings): (usize, &&str)| {
        format!("[routes.r{number}]\npath = '/{number}'\n{settings}\n")
    };
    render(&settings.iter().enumerate().map(route).collect::<String>())
}

#[test]
fn answers() {
    let valid = [
        "respond = {}",
        "respond = { status = 204 }",
        "respond = { status = 503, body = '<p>', content_type = 'text/html', headers = { X-A = '{path}' } }",
        "redirect = { to = 'https://new.example{path}{query}', status = 301 }",
        "redirect = { to = 'http://new.example:8080/a?b={client.plan}' }",
        "redirect = { to = 'https://{host}{path}' }",
        "redirect = { to = 'https://www.{host}' }",
        "redirect = { to = '/new{path}', status = 307 }",
        "redirect = { to = '/' }",
        "maintenance = true",
        "maintenance = false",
        "maintenance = { retry_after = '10m', allow_ips = ['10.0.0.0/8', '::1'] }",
    ];
    assert_eq!(routes(&valid), "no errors\n");
    // A file with such routes only needs no upstream.
    let without = "[routes.a]\nrespond = { body = 'a' }";
    assert_eq!(super::super::render_whole(without), "no errors\n");
}

/// A redirect that has no URL for some requests is a warning.
#[test]
fn redirects_may_have_no_url() {
    const TO_CLIENT: &str = "[routes.r]\nredirect = { to = 'https://a/{client.id}' }\n";
    const TO_ADDRESS: &str = "[routes.r]\nredirect = { to = 'https://a/{client.ip}' }\n";
    let (deny, key) = (
        "[clients]\non_missing_key = 'deny'\non_preflight = 'deny'\n",
        "[keys.acme]\nsha256 = '0000000000000000000000000000000000000000000000000000000000000000'\n[rules.r]\nper = ['key']\nrate = '1/s'\n",
    );
    let unix = "[[listeners]]\naddress = 'unix:/run/tollgate.sock'\n";
    let warning = |file: &str| {
        let shown = super::super::render_whole(file);
        assert!(!shown.contains("error:"), "{shown}");
        shown.lines().find(|line| line.starts_with("warning: a request")).map(str::to_owned)
    };
    assert_eq!(
        warning(TO_CLIENT).as_deref(),
        Some("warning: a request without a known API key gets 400: `{client.id}` has no value")
    );
    assert_eq!(warning(&format!("{TO_CLIENT}{deny}{key}")), None);
    let accepted = deny.replace("on_preflight", "on_unknown_key = 'accept'\non_preflight");
    assert!(warning(&format!("{TO_CLIENT}{accepted}{key}")).is_some());
    assert_eq!(warning(TO_ADDRESS), None);
    assert_eq!(
        warning(&format!("{TO_ADDRESS}{unix}")).as_deref(),
        Some("warning: a request on a Unix socket gets 400: `{client.ip}` has no value there")
    );
    assert_eq!(warning(&format!("{TO_ADDRESS}{unix}proxy_protocol = true\n")), None);
}

#[test]
fn shortest_time_of_maintenance_is_a_second() {
    let at = |time: &str| routes(&[&format!("maintenance = {{ retry_after = '{time}' }}")]);
    for time in ["0s", "999ms"] {
        assert!(at(time).contains("help: the shortest is `1s`"), "{}", at(time));
    }
    assert_eq!(at("1s"), "no errors\n");
}

#[test]
fn fixed_answers_are_invalid() {
    insta::assert_snapshot!(routes(&[
        "respond = { status = 302 }",
        "respond = { status = 100 }",
        "respond = { status = 204, body = 'a' }",
        "respond = { content_type = 'text' }",
        "respond = { headers = { Content-Length = '5', X-A = '{x}' } }",
        "respond = { status = 'x', bdy = 1 }",
        "respond = 503",
        "respond = { }\nupstream = 'api'\nstrip_prefix = '/5'",
        "return = '503'",
    ]));
}

#[test]
fn redirects_are_invalid() {
    insta::assert_snapshot!(routes(&[
        "redirect = { status = 308 }",
        "redirect = { to = 'https://a', status = 200 }",
        "redirect = { to = '{path}' }",
        "redirect = { to = '/{path}' }",
        "redirect = { to = '//evil.test' }",
        "redirect = { to = 'https://{client.id}.example' }",
        "redirect = { to = 'https://new.example{method}' }",
        "redirect = { to = 'https://new.example.{path}.x:99999' }",
        "redirect = { to = 'https:///x' }",
        "redirect = { to = 'javascript:alert(1)' }",
        "redirect = { to = \"https://a/\\r\\nSet-Cookie: b\" }",
        "redirect = { to = 'https://a' }\nrespond = {}",
        "redirect = 'https://a'",
    ]));
}

#[test]
fn maintenance_is_invalid() {
    insta::assert_snapshot!(render(
        "[server]\nmaintenance = 'yes'\n[routes.a]\npath = '/a'\nmaintenance = { retry_after = '31d', allow_ips = ['10.0.0.1/8'] }\n[routes.b]\npath = '/b'\nmaintenance = { message = 'x' }"
    ));
}
