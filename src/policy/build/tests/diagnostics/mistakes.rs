//! Files of users of other gateways: one error for each mistake, whose help has lines with the
//! values of the file, and the file with these lines is valid.

use super::super::render_whole;

/// Tables that most files have.
const API: &str = "[upstreams.api]\nservers = ['127.0.0.1:3000']\n";
const ROUTE: &str = "[routes.all]\n";

/// A file with a mistake, what its help has, and the same file as the help says.
struct Mistake {
    written: String,
    help: &'static [&'static str],
    mended: String,
}

fn mistake(table: &str, written: &str, help: &'static [&'static str], mended: &str) -> Mistake {
    let file = |lines: &str| table.replace('@', lines);
    Mistake { written: file(written), help, mended: file(mended) }
}

fn in_rule(written: &str, help: &'static [&'static str], mended: &str) -> Mistake {
    mistake(&format!("{API}{ROUTE}[rules.r]\n@"), written, help, mended)
}

fn in_route(written: &str, help: &'static [&'static str], mended: &str) -> Mistake {
    mistake(&format!("{API}[routes.api]\n@"), written, help, mended)
}

fn in_upstream(written: &str, help: &'static [&'static str], mended: &str) -> Mistake {
    mistake(&format!("{ROUTE}[upstreams.api]\n@"), written, help, mended)
}

fn check(mistakes: &[Mistake]) {
    for Mistake { written, help, mended } in mistakes {
        let shown = render_whole(written);
        assert!(shown.ends_with("gateway.toml: 1 error\n"), "{written}\n{shown}");
        // A long help is wrapped.
        let unwrapped = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in *help {
            assert!(
                unwrapped.contains(&format!("`{line}`")),
                "no `{line}` for\n{written}\n{shown}"
            );
        }
        // A quota in memory is lost at a restart, which is a warning.
        let mended_shown = render_whole(mended);
        assert!(!mended_shown.contains("error:"), "{mended}\n{mended_shown}");
    }
}

#[test]
fn rates_of_other_gateways_become_rates_with_the_same_numbers() {
    check(&[
        in_rule(
            "per = []\naverage = 100\nperiod = '1m'\n",
            &["rate = \"100/m\""],
            "per = []\nrate = '100/m'\n",
        ),
        in_rule(
            "per = []\naverage = 100\nperiod = 60\nburst = 5\n",
            &["rate = \"100/m\""],
            "per = []\nrate = '100/m'\nburst = 5\n",
        ),
        in_rule("per = []\naverage = 20\n", &["rate = \"20/s\""], "per = []\nrate = '20/s'\n"),
        in_rule(
            "per = []\nrequests_per_unit = 300\nunit = 'minute'\n",
            &["rate = \"300/m\""],
            "per = []\nrate = '300/m'\n",
        ),
        in_rule(
            "per = []\ntokens_per_fill = 10\nfill_interval = '2s'\n",
            &["rate = \"10/2s\""],
            "per = []\nrate = '10/2s'\n",
        ),
        in_rule(
            "per = []\nrequests = 5\nwindow = '1h'\n",
            &["rate = \"5/h\""],
            "per = []\nrate = '5/h'\n",
        ),
        in_rule(
            "per = []\nminute = 100\n",
            &["kind = \"fixed_window\"", "limit = \"100/m\""],
            "per = []\nkind = 'fixed_window'\nlimit = '100/m'\n",
        ),
        in_rule(
            "per = []\nminute = 100\nsecond = 9\n",
            &["kind = \"fixed_window\"", "limit = \"9/s\"", "limit = \"100/m\""],
            "per = []\nkind = 'fixed_window'\nlimit = '100/m'\n[rules.s]\nper = []\nkind = 'fixed_window'\nlimit = '9/s'\n",
        ),
        in_rule(
            "per = []\nlimit = '100000/month'\n",
            &["kind = \"fixed_window\"", "limit = \"100000/month\""],
            "per = []\nkind = 'fixed_window'\nlimit = '100000/month'\n",
        ),
        in_rule(
            "per = []\nrate = '7/week'\n",
            &["kind = \"fixed_window\"", "limit = \"7/week\""],
            "per = []\nkind = 'fixed_window'\nlimit = '7/week'\n",
        ),
    ]);
}

#[test]
fn other_settings_of_limits_become_settings_of_rules() {
    check(&[
        in_rule(
            "per = []\namount = 10\n",
            &["kind = \"concurrency\"", "limit = 10"],
            "per = []\nkind = 'concurrency'\nlimit = 10\n",
        ),
        in_rule(
            "per = []\nlimit_conn = 'addr 4'\n",
            &["kind = \"concurrency\"", "limit = 4"],
            "per = []\nkind = 'concurrency'\nlimit = 4\n",
        ),
        in_rule(
            "per = []\nrate = '10/s'\nburst = '20 nodelay'\n",
            &["burst = 21"],
            "per = []\nrate = '10/s'\nburst = 21\n",
        ),
        in_rule(
            "per = []\nrate = '10/s'\nmode = 'dry_run'\n",
            &["mode = \"shadow\""],
            "per = []\nrate = '10/s'\nmode = 'shadow'\n",
        ),
        in_rule(
            "per = []\nrate = '10/s'\nshadow_mode = true\n",
            &["mode = \"shadow\""],
            "per = []\nrate = '10/s'\nmode = 'shadow'\n",
        ),
        in_rule(
            "per = ['$binary_remote_addr']\nrate = '10/s'\n",
            &["per = [\"ip\"]"],
            "per = ['ip']\nrate = '10/s'\n",
        ),
        in_rule(
            "per = ['$http_x_tenant']\nrate = '10/s'\n",
            &["per = [\"header:x-tenant\"]"],
            "per = ['header:x-tenant']\nrate = '10/s'\n",
        ),
        in_rule(
            "per = ['consumer']\nrate = '10/s'\n",
            &["per = [\"key\"]"],
            "per = ['key']\nrate = '10/s'\n",
        ),
        in_rule(
            "per = []\nrate = '10/s'\nmax_tokens = 50\n",
            &["burst = 50"],
            "per = []\nrate = '10/s'\nburst = 50\n",
        ),
    ]);
}

#[test]
fn routes_of_other_gateways_become_routes_with_the_same_paths_and_upstreams() {
    check(&[
        in_route(
            "rule = 'Host(`a.example`) && PathPrefix(`/api`)'\n",
            &["host = \"a.example\"", "path = \"/api/*\""],
            "host = 'a.example'\npath = '/api/*'\n",
        ),
        in_route(
            "rule = \"Path(`/a`) && Method(`POST`)\"\n",
            &["path = \"/a\"", "methods = [\"POST\"]"],
            "path = '/a'\nmethods = ['POST']\n",
        ),
        in_route("path = '~ ^/api/v[0-9]+/'\n", &["/api/{part2}/*"], "path = '/api/{part2}/*'\n"),
        in_route("path = '~ ^/users/[^/]+$'\n", &["/users/{part2}"], "path = '/users/{part2}'\n"),
        in_route(
            "paths = ['/api']\nstrip_path = true\n",
            &["path = \"/api/*\"", "strip_prefix = \"/api\""],
            "path = '/api/*'\nstrip_prefix = '/api'\n",
        ),
        in_route(
            "path = '/v1/*'\nstripPrefix = ['/v1']\n",
            &["strip_prefix = \"/v1\""],
            "path = '/v1/*'\nstrip_prefix = '/v1'\n",
        ),
        in_route(
            "path = '/v1/*'\nstrip_prefix = ['/v1']\n",
            &["strip_prefix = \"/v1\""],
            "path = '/v1/*'\nstrip_prefix = '/v1'\n",
        ),
        in_route(
            "path = '/*'\nproxy_pass = 'http://127.0.0.1:3000/'\n",
            &["upstream = \"api\""],
            "path = '/*'\nupstream = 'api'\n",
        ),
        in_route(
            "path = '/*'\nservice = 'api'\n",
            &["upstream = \"api\""],
            "path = '/*'\nupstream = 'api'\n",
        ),
        in_route(
            "max_body_bytes = '10m'\n",
            &["max_body_bytes = 10485760"],
            "max_body_bytes = 10485760\n",
        ),
        in_route("split = { api = '95%' }\n", &["api = 95"], "split = { api = 95 }\n"),
        mistake(
            "[upstreams.a]\nservers = ['a:80']\n[upstreams.b]\nservers = ['b:80']\n[routes.api]\n@",
            "proxy_pass = 'b'\n",
            &["upstream = \"b\""],
            "upstream = 'b'\n",
        ),
        in_upstream(
            "servers = ['127.0.0.1:3000 weight=3']\n",
            &["{ address = \"127.0.0.1:3000\", weight = 3 }"],
            "servers = [{ address = '127.0.0.1:3000', weight = 3 }]\n",
        ),
        in_upstream(
            "servers = ['a:80', 'b:80 backup;']\n",
            &["{ address = \"b:80\", backup = true }"],
            "servers = ['a:80', { address = 'b:80', backup = true }]\n",
        ),
        in_upstream(
            "url = 'http://127.0.0.1:3000/'\n",
            &["servers = [\"http://127.0.0.1:3000\"]"],
            "servers = ['http://127.0.0.1:3000']\n",
        ),
    ]);
}

#[test]
fn certificates_of_other_gateways_become_certificates_of_the_same_files() {
    let listener = format!("{API}{ROUTE}[[listeners]]\naddress = '0.0.0.0:443'\n@");
    for written in [
        "certFile = 'a.pem'\nkeyFile = 'a.key'\n",
        "ssl_certificate = 'a.pem'\nssl_certificate_key = 'a.key'\n",
    ] {
        let shown = render_whole(&listener.replace('@', written));
        assert!(shown.ends_with("gateway.toml: 1 error\n"), "{shown}");
        assert!(
            shown.contains("write `certificates = [{ cert = \"a.pem\", key = \"a.key\" }]`"),
            "{shown}"
        );
    }
    let server =
        format!("{API}{ROUTE}[server]\nssl_certificate = 'a.pem'\nssl_certificate_key = 'a.key'\n");
    let shown = render_whole(&server);
    assert!(shown.ends_with("gateway.toml: 1 error\n"), "{shown}");
    assert!(shown.contains("`certificates = [{ cert = \"a.pem\", key = \"a.key\" }]`"), "{shown}");
}

#[test]
fn line_of_nginx_is_one_error_at_its_directive() {
    insta::assert_snapshot!(render_whole("limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;\n[upstreams.api]\nservers = ['a:80']\n[routes.all]\n"), @r#"
    error: this is a line of nginx, not `name = value`
     --> gateway.toml:1:1
      |
    1 | limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
      | ^^^^^^^^^^^^^^
      |
      = help: a zone is a rule: `[rules.one]` with `per = ["ip"]`, `rate = "10/s"` and `burst = 1`

    gateway.toml: 1 error
    "#);
}
