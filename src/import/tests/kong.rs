//! Plugins and routes of Kong.

use super::*;

/// A file with two services without names, each with one route, and further tables.
fn two_services(first: &str, second: &str, rest: &str) -> String {
    format!(
        "_format_version: '3.0'\nservices:\n\
         - url: http://a:1\n  plugins: [{first}]\n  routes: [{{name: a, paths: [/a/]}}]\n\
         - url: http://b:1\n  plugins: [{second}]\n  routes: [{{name: b, paths: [/b/]}}]\n{rest}"
    )
}

/// The same with one plugin for all routes.
fn with_plugin(plugin: &str) -> String {
    two_services("", "", &format!("plugins: [{{{plugin}}}]\n"))
}

#[test]
fn shared_settings_of_plugins_are_used() {
    let limit = "name: rate-limiting, _config: usual";
    let shared = "_plugin_configs: {usual: {minute: 5, hour: 7, limit_by: ip}}\n";
    let both = two_services(
        &format!("{{{limit}}}"),
        &format!("{{{limit}, config: {{minute: 9}}}}"),
        shared,
    );
    let missing = two_services("{name: rate-limiting, _config: other}", "", shared);
    holds(
        Format::Kong,
        &[
            (
                &both,
                &[
                    "per = [\"ip\"]\nkind = \"fixed_window\"\nlimit = \"5/m\"\nroutes = [\"a\"]",
                    "limit = \"7/h\"\nroutes = [\"a\"]",
                    "limit = \"9/m\"\nroutes = [\"b\"]",
                    "limit = \"7/h\"\nroutes = [\"b\"]",
                ],
                &[],
            ),
            (
                &missing,
                &[
                    "file:4: _config: other: not taken over",
                    "file:4: plugin rate-limiting: not taken over: it has no limit",
                ],
                &["[rules"],
            ),
        ],
    );
}

#[test]
fn windows_of_the_advanced_plugin_are_never_wider() {
    let file = |config: &str| {
        with_plugin(&format!(
            "name: rate-limiting-advanced, config: {{disable_penalty: true, {config}}}"
        ))
    };
    let large = file("limit: [10000], window_size: [60]");
    let sliding = file("limit: [4096, 5], window_size: [60, 7]");
    let fixed = file("limit: [10000, 9], window_size: [3600, 90], window_type: fixed");
    let uneven = file("limit: [5, '${N}', 9], window_size: [10, 20]");
    let penalty = with_plugin(
        "name: rate-limiting-advanced, config: {limit: [5], window_size: [9], namespace: x}",
    );
    let service = with_plugin("name: service-protection, config: {limit: [5], window_size: [9]}");
    holds(
        Format::Kong,
        &[
            (
                &large,
                &["per = [\"key\"]\nlimit = \"10000/m\"\n", "limit 10000: approximately"],
                &["rate = ", "sliding", "burst"],
            ),
            (
                &sliding,
                &["\"sliding_window\"\nlimit = \"4096/m\"", "\"sliding_window\"\nlimit = \"5/7s\""],
                &[],
            ),
            (
                &fixed,
                &[
                    "\"fixed_window\"\nlimit = \"10000/h\"",
                    "\"sliding_window\"\nlimit = \"9/90s\"",
                    "window_type: approximately",
                ],
                &[],
            ),
            (
                &uneven,
                &["limit = \"5/10s\"", "window_size: not taken over", "limit: not taken over"],
                &["9/"],
            ),
            (&penalty, &["disable_penalty: approximately", "namespace: approximately"], &[]),
            (&service, &["[rules.in-9s]", "[rules.in-9s-2]"], &[]),
        ],
    );
}

#[test]
fn global_limit_by_service_counts_each_service() {
    let limit = "name: rate-limiting, config: {minute: 5, limit_by: service}";
    let global = with_plugin(limit);
    let own = two_services(&format!("{{{limit}}}"), "", "");
    let path = with_plugin("name: rate-limiting, config: {minute: 5, limit_by: path, path: /a/x}");
    let group = with_plugin("name: rate-limiting, config: {minute: 5, limit_by: consumer-group}");
    let header =
        with_plugin("name: rate-limiting, config: {minute: 5, limit_by: header, header_name: X-A}");
    holds(
        Format::Kong,
        &[
            (
                &global,
                &[
                    "per = []\nkind = \"fixed_window\"\nlimit = \"5/m\"\nroutes = [\"a\"]",
                    "per = []\nkind = \"fixed_window\"\nlimit = \"5/m\"\nroutes = [\"b\"]",
                ],
                &[],
            ),
            (&own, &["limit = \"5/m\"\nroutes = [\"a\"]"], &["routes = [\"b\"]"]),
            (&path, &["[rules.minute]\nper = []", "limit_by: path: approximately"], &[]),
            (&group, &["per = [\"plan\"]", "limit_by: consumer-group: approximately"], &[]),
            (&header, &["per = [\"header:x-a\"]", "limit_by: header: approximately"], &[]),
        ],
    );
}

#[test]
fn keys_are_read_where_any_plugin_reads_them() {
    let auth = |config: &str| format!("{{name: key-auth, config: {{{config}}}}}");
    let same = two_services(&auth(""), &auth(""), "");
    let differ = two_services(
        &auth("key_names: [x-one], key_in_query: false, hide_credentials: true"),
        &auth("key_names: [x-two], key_in_body: true"),
        "",
    );
    let encrypted = two_services(
        "{name: key-auth-enc}",
        "",
        "consumers: [{username: c, keyauth_enc_credentials: [{key: k}]}]\n",
    );
    holds(
        Format::Kong,
        &[
            (&encrypted, &["on_missing = \"deny\"\nroutes = [\"a\"]", "[keys.c]"], &[]),
            (
                &same,
                &["api_key = [\"header:apikey\", \"query:apikey\"]", "on_missing_key = \"deny\""],
                &["key-required"],
            ),
            (
                &differ,
                &[
                    "api_key = [\"header:x-one\", \"header:x-two\", \"query:x-two\"]",
                    "hide_key = true",
                    "file:7: key-auth: key_names: approximately",
                    "file:7: key-auth: hide_credentials: approximately",
                    "file:7: key-auth: key_in_body: not taken over",
                ],
                &[],
            ),
        ],
    );
}

#[test]
fn plugins_belong_to_their_service_route_or_consumer_alone() {
    let deny = "name: ip-restriction, config: {deny: [10.0.0.0/8]}";
    let one = two_services(&format!("{{{deny}}}"), "", "");
    // Services and plugins on one line, as JSON has them.
    let line = r#"{"_format_version": "3.0", "services": [
        {"url": "http://a:1", "plugins": [{"name": "rate-limiting", "config": {"minute": 1, "limit_by": "ip"}}, {"name": "key-auth"}], "routes": [{"name": "a", "paths": ["/a/"]}]},
        {"url": "http://b:1", "plugins": [{"name": "rate-limiting", "config": {"minute": 2, "limit_by": "ip"}}, {"name": "acl"}], "routes": [{"name": "b", "paths": ["/b/"]}]}]}"#
        .replace('\n', " ");
    // The same settings by an alias are still two plugins.
    let alias = two_services("&limit {name: rate-limiting, config: {minute: 3}}", "*limit", "");
    let consumer = |reference: &str| {
        format!(
            "consumers: [{{custom_id: acme, keyauth_credentials: [{{key: k, ttl: 60}}]}}]\nplugins: [{{name: rate-limiting, config: {{minute: 4}}, {reference}}}]\n"
        )
    };
    let of_consumer = two_services("", "", &consumer("consumer: acme"));
    let of_missing = two_services("", "", &consumer("consumer: other"));
    let unclear = two_services("", "", &consumer("service: {host: a}"));
    let missing = two_services("", "", &consumer("route: other"));
    holds(
        Format::Kong,
        &[
            (
                &one,
                &[
                    "upstream_host = \"{upstream}\"\nstrip_prefix = \"/a\"\ndeny_ips = [\"10.0.0.0/8\"]\n\n",
                ],
                &["strip_prefix = \"/b\"\ndeny_ips"],
            ),
            (
                &line,
                &[
                    "limit = \"1/m\"\nroutes = [\"a\"]",
                    "limit = \"2/m\"\nroutes = [\"b\"]",
                    "on_missing = \"deny\"\nroutes = [\"a\"]",
                    "[upstreams.all]\nservers = [\"a:1\"]",
                    "[upstreams.all-2]\nservers = [\"b:1\"]",
                    "plugin acl: not taken over",
                ],
                &[],
            ),
            (
                &alias,
                &["limit = \"3/m\"\nroutes = [\"a\"]", "limit = \"3/m\"\nroutes = [\"b\"]"],
                &[],
            ),
            (
                &of_consumer,
                &[
                    "consumer acme: plugin rate-limiting: not taken over: a consumer is known on routes",
                    "acme: ttl: not taken over",
                ],
                &["[rules"],
            ),
            (&of_missing, &["plugin rate-limiting: not taken over: its consumer"], &["[rules"]),
            (&unclear, &["plugin rate-limiting: not taken over: what it is for"], &["[rules"]),
            (&missing, &["plugin rate-limiting: not taken over: its route"], &["[rules"]),
        ],
    );
}

#[test]
fn policies_that_share_counts_are_noted() {
    let file = |policy: &str| {
        with_plugin(&format!("name: rate-limiting, config: {{minute: 5, {policy}}}"))
    };
    let two = two_services(
        "{name: rate-limiting, config: {minute: 5, policy: redis, redis: {host: a, username: u}}}",
        "{name: rate-limiting, config: {minute: 5, policy: redis, redis: {host: b}}}",
        "",
    );
    holds(
        Format::Kong,
        &[
            (&file("policy: cluster"), &["policy: cluster: approximately"], &["[redis]"]),
            (&file("policy: redis"), &["redis: not taken over"], &["[redis]"]),
            (&file("policy: own"), &["policy: own: not taken over"], &["[redis]"]),
            (
                &two,
                &["url = \"redis://a:6379\"\nusername = \"u\"", "redis b:6379: approximately"],
                &["b:6379"],
            ),
        ],
    );
}

#[test]
fn conditions_of_routes_are_kept_or_the_route_is_left_out() {
    let file = |condition: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- url: http://a:1\n  routes:\n  - {{name: r, paths: [/a/], {condition}}}\n  - {{name: other, paths: [/b/]}}\n"
        )
    };
    holds(
        Format::Kong,
        &[
            (
                &file("headers: {X-Version: ['1', '2'], X-Kind: [a]}"),
                &[
                    "[routes.r]\npath = \"/a/*\"\ntrailing_slash = \"distinct\"\nheaders = { x-kind = \"a\", x-version = \"1\" }",
                    "[routes.r-2]\npath = \"/a/*\"\ntrailing_slash = \"distinct\"\nheaders = { x-kind = \"a\", x-version = \"2\" }",
                    "header X-Kind: approximately: upper and lower case",
                ],
                &[],
            ),
            (
                &file("headers: {x-version: ['~*^v[12]$']}"),
                &["header x-version: not taken over"],
                &["[routes.r]"],
            ),
            (&file("sources: [{ip: 10.0.0.0/8}]"), &["sources: not taken over"], &["[routes.r]"]),
            (&file("snis: [a.example.com]"), &["snis: not taken over"], &["[routes.r]"]),
            (
                &file("destinations: [{port: 9}]"),
                &["destinations: not taken over"],
                &["[routes.r]"],
            ),
        ],
    );
}

#[test]
fn hosts_and_defaults_that_upstreams_see_are_kept_or_noted() {
    let file = "_format_version: '3.0'\n_info: {defaults: {service: {retries: 1}}}\nupstreams: [{name: u, host_header: api.internal, targets: [{target: 'a:1'}]}]\n\
        services:\n- {host: u, client_certificate: x, routes: [{name: r, paths: [/a/]}]}\n";
    holds(
        Format::Kong,
        &[(
            file,
            &[
                "upstream_host = \"api.internal\"",
                "_info: not taken over",
                "client_certificate: not taken over",
            ],
            &[],
        )],
    );
}

#[test]
fn empty_conditions_of_routes_are_none_and_empty_values_leave_the_route_out() {
    let file = |condition: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- url: http://a:1\n  routes:\n  - {{name: r, paths: [/a/], {condition}}}\n  - {{name: other, paths: [/b/]}}\n"
        )
    };
    holds(
        Format::Kong,
        &[
            (&file("snis: [], sources: [], destinations: []"), &["[routes.r]"], &[]),
            (&file("headers: {x-a: [a, '']}"), &["header x-a: not taken over"], &["[routes.r"]),
        ],
    );
}

#[test]
fn what_plugins_do_beside_their_limits_is_noted() {
    let plugin = |config: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- url: http://a:1\n  routes: [{{name: r, paths: [/a/]}}]\n  plugins:\n  - {{name: rate-limiting, config: {{minute: 5, limit_by: ip, {config}}}}}\n"
        )
    };
    let settings = plugin("error_code: 503, error_message: slow down, throttling: {enabled: true}");
    let usual = plugin("error_code: 429, throttling: {enabled: false}");
    let twice = plugin("") + "  - {name: rate-limiting, config: {hour: 9}}\n";
    let global = plugin("") + "plugins: [{name: rate-limiting, config: {hour: 9}}]\n";
    let usual = imported(Format::Kong, "file", &usual);
    assert!(!usual.contains("rate-limiting"), "{usual}");
    let global = imported(Format::Kong, "file", &global);
    assert!(!global.contains("rate-limiting"), "{global}");
    holds(
        Format::Kong,
        &[
            (
                &settings,
                &[
                    "rate-limiting: error_code: not taken over: a refused request gets 429",
                    "rate-limiting: error_message: not taken over",
                    "rate-limiting: throttling: not taken over",
                ],
                &[],
            ),
            (
                &twice,
                &["plugin rate-limiting: not taken over: an earlier plugin of this name", "5/m"],
                &["9/h"],
            ),
        ],
    );
}

#[test]
fn plugins_of_consumers_are_noted_with_what_to_do() {
    let file = |plugin: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- url: http://a:1\n  routes: [{{name: r, paths: [/a/]}}]\n  plugins: [{{name: key-auth, config: {{key_in_header: false, anonymous: anon}}}}]\nconsumers: [{{username: anon, plugins: [{{name: {plugin}, config: {{}}}}]}}]\n"
        )
    };
    holds(
        Format::Kong,
        &[
            (
                &file("request-termination"),
                &[
                    "plugin request-termination: not taken over: its requests are allowed",
                    "`on_missing_key = \"deny\"`",
                    "api_key = [\"query:apikey\"]",
                ],
                &["on_missing"],
            ),
            (
                &file("rate-limiting"),
                &[
                    "plugin rate-limiting: not taken over: the consumer has no key here: limits of one client",
                ],
                &[],
            ),
            (&file("cors"), &["plugin cors: not taken over: plugins are for all clients"], &[]),
        ],
    );
}

/// Two services with `key-auth`, and consumers with keys.
fn with_consumers(consumers: &str, rest: &str) -> String {
    let rest = format!("consumers:\n{consumers}\n{rest}");
    two_services("", "", &rest).replace("plugins: []\n", "plugins: [{name: key-auth}]\n")
}

#[test]
fn limits_of_consumers_replace_those_of_the_plugin_for_all() {
    let consumer = |name: &str, plugin: &str| {
        format!(
            "- {{username: {name}, keyauth_credentials: [{{key: {name}}}], plugins: [{plugin}]}}\n"
        )
    };
    let limit = |config: &str| format!("{{name: rate-limiting, config: {{{config}}}}}");
    let all = consumer("a", &limit("minute: 50, hour: 70"))
        + &consumer("b", "")
        + &consumer("c", &limit("minute: 9"))
        + &consumer("d", &limit("minute: 8"))
        + &consumer("e", &limit("minute: 5, hour: 70"));
    let global = "plugins: [{name: rate-limiting, config: {minute: 5, hour: 7}}]\n";
    let text = with_consumers(&all, global);
    let shown = imported(Format::Kong, "file", &text);
    for part in [
        "[keys.a]\nsha256 = ",
        "rules = { hour = { limit = \"70/h\" }, minute = { limit = \"50/m\" } }",
        // Another period: they are exempt from both.
        "[rules.minute]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"5/m\"\nexempt = { keys = [\"c\", \"d\"] }",
        "limit = \"7/h\"\nexempt = { keys = [\"c\", \"d\"] }",
        "[rules.minute-consumer]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"9/m\"\non_missing = \"skip\"",
        "exempt = { keys = [\"a\", \"b\", \"e\"] }",
        "rules = { minute-consumer = { limit = \"8/m\" } }",
        "rules = { hour = { limit = \"70/h\" } }",
        "gateway.toml: 2 warnings",
    ] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    assert!(!shown.contains("plugin rate-limiting"), "{shown}");
}

#[test]
fn limits_of_groups_are_those_of_their_consumers() {
    let limit = "{name: rate-limiting, config: {minute: 9}}";
    let consumers = |groups: &str| {
        format!(
            "- {{username: a, keyauth_credentials: [{{key: a}}], groups: [{groups}]}}\n- {{username: b, keyauth_credentials: [{{key: b}}]}}\n"
        )
    };
    let own = format!("consumer_groups: [{{name: gold, plugins: [{limit}, {{name: cors}}]}}]\n");
    let beside = "consumer_groups: [{name: gold}]\nplugins: [{name: rate-limiting, consumer_group: gold, config: {minute: 9}}]\n";
    let first = format!(
        "{own}plugins: [{{name: rate-limiting, route: a, service: a, config: {{minute: 1}}}}]\n"
    );
    let two = format!(
        "consumer_groups: [{{name: gold, plugins: [{limit}]}}, {{name: silver, plugins: [{limit}]}}]\n"
    );
    let by_address = beside.replace("minute: 9", "minute: 9, limit_by: ip");
    let some_routes =
        with_consumers(&consumers("gold"), &own).replacen("[{name: key-auth}]", "[]", 1);
    let rule = "[rules.minute-consumer]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"9/m\"\non_missing = \"skip\"";
    holds(
        Format::Kong,
        &[
            (
                &with_consumers(&consumers("{name: gold}"), &own),
                &[
                    rule,
                    "exempt = { keys = [\"b\"] }",
                    "consumer group gold: plugin cors: not taken over",
                    "gateway.toml: 1 warning",
                ],
                &[],
            ),
            (&with_consumers(&consumers("gold"), beside), &[rule, "gateway.toml: 1 warning"], &[]),
            (
                &with_consumers(&consumers("gold, silver"), &two),
                &["consumer a: plugin rate-limiting: not taken over: several plugins"],
                &["[rules"],
            ),
            (
                &with_consumers(&consumers("gold"), &by_address),
                &[
                    "consumer a: plugin rate-limiting: not taken over: it does not count by consumer",
                ],
                &["[rules"],
            ),
            (
                &with_consumers(&consumers("gold"), &first),
                &[
                    "plugin rate-limiting: not taken over: another plugin is for a route and its service",
                ],
                &["minute-consumer"],
            ),
            (
                &some_routes,
                &[
                    "consumer a: plugin rate-limiting: not taken over: a consumer is known on routes with `key-auth` only",
                ],
                &["[rules.minute"],
            ),
        ],
    );
}

#[test]
fn paths_of_versions_before_3_are_expressions_by_their_characters() {
    let file = |version: &str, path: &str| {
        format!(
            "_format_version: '{version}'\nservices:\n- url: http://a:1\n  routes:\n  - {{name: r, strip_path: false, paths: ['{path}']}}\n  - {{name: other, paths: [/b]}}\n"
        )
    };
    for version in ["1.1", "2.1"] {
        holds(
            Format::Kong,
            &[
                (&file(version, r"/users/\d+/x"), &[r"path_regex = '^/users/\d+/x'"], &[]),
                (&file(version, "/a|/c"), &["path_regex = \"^(?:/a|/c)\""], &[]),
                (&file(version, "/a.b_c~d-e%20"), &["path = \"/a.b_c~d-e%20/*\""], &["path_regex"]),
                (
                    &file(version, "/a(?!b)"),
                    &["route r: /a(?!b): not taken over: the expression is none of RE2"],
                    &["[routes.r]"],
                ),
            ],
        );
    }
    holds(
        Format::Kong,
        &[
            (&file("3.0", "~/a|/c"), &["path_regex = \"^(?:/a|/c)\""], &[]),
            // It has no meaning there.
            (&file("3.0", "/a/*"), &[r"path_regex = '^/a/\*'"], &["path = \"/a/*\""]),
        ],
    );
}

#[test]
fn routes_with_more_conditions_come_first_in_kong() {
    let route =
        |name: &str, rest: &str| format!("  - {{name: {name}, strip_path: false, {rest}}}\n");
    let file = |routes: &[String]| {
        format!(
            "_format_version: '3.0'\nservices:\n- url: http://a:1\n  routes:\n{}",
            routes.concat()
        )
    };
    let all = file(&[
        route("get", "paths: [/], methods: [GET]"),
        route("admin", "paths: [/admin/]"),
        route("expression", "paths: [~/admin/x]"),
    ]);
    let usual = file(&[route("rest", "paths: [/]"), route("admin", "paths: [/admin/]")]);
    let usual = imported(Format::Kong, "file", &usual);
    assert!(!usual.contains("more specific"), "{usual}");
    holds(
        Format::Kong,
        &[(
            &all,
            &[
                "route get: approximately: requests that match both this one and expression, admin get the latter",
                "route expression: approximately: requests that match both this one and admin get",
            ],
            &[],
        )],
    );
}
