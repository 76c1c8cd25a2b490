//! Filters, filter chains and clusters of Envoy.

use super::*;

/// A file with one listener whose filter chain has these conditions, filters and one virtual host.
fn file(chain: &str, filters: &str, virtual_host: &str, cluster: &str) -> String {
    format!(
        "static_resources:\n  listeners:\n  - address: {{socket_address: {{address: 0.0.0.0, port_value: 80}}}}\n    filter_chains:\n{}\n  clusters:\n  - {{name: a, load_assignment: {{endpoints: [{}]}}}}\n",
        chain_of(chain, filters, virtual_host),
        if cluster.is_empty() { endpoints("a.internal", "") } else { cluster.to_owned() },
    )
}

fn chain_of(chain: &str, filters: &str, virtual_host: &str) -> String {
    format!(
        "    - {chain}\n      filters:\n      - name: envoy.filters.network.http_connection_manager\n        typed_config:\n          http_filters: [{filters}]\n          route_config: {{virtual_hosts: [{{name: v, {virtual_host}}}]}}"
    )
}

fn endpoints(host: &str, settings: &str) -> String {
    format!(
        "{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {host}, port_value: 1}}}}}}}}], {settings}}}"
    )
}

const ALL: &str = "domains: ['*'], routes: [{name: r, match: {prefix: /}, route: {cluster: a}}]";

fn limit(settings: &str) -> String {
    format!(
        "{{name: envoy.filters.http.local_ratelimit, typed_config: {{stat_prefix: all, token_bucket: {{max_tokens: 9, tokens_per_fill: 9, fill_interval: 1s}}, {settings}}}}}"
    )
}

#[test]
fn shares_of_requests_are_never_less_than_written() {
    let share = |enabled: &str, enforced: &str| {
        let one = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!("{name}: {{default_value: {value}}}, "),
        };
        let settings = one("filter_enabled", enabled) + &one("filter_enforced", enforced);
        file("name: c", &limit(&settings), ALL, "")
    };
    let all = "{numerator: 100, denominator: HUNDRED}";
    let part = imported(Format::Envoy, "file", &share(all, "{numerator: 25}"));
    assert!(part.contains("no errors"), "{part}");
    let settings = "filter_enabled: {runtime_key: x, default_value: {numerator: 0}}, filter_enforced: {runtime_key: y}";
    let runtime = file("name: c", &limit(settings), ALL, "");
    holds(
        Format::Envoy,
        &[
            (&share(all, all), &["burst = 9\n"], &["enabled", "mode", "enforce"]),
            (
                &share("{numerator: 1000000, denominator: MILLION}", all),
                &["burst = 9"],
                &["enabled"],
            ),
            // Without a share, Envoy takes none.
            (&share("", all), &["enabled = false"], &["mode", "enforce"]),
            (&share(all, ""), &["mode = \"shadow\""], &["enabled", "enforce"]),
            (&share("{numerator: 0}", all), &["enabled = false"], &[]),
            (
                &share("{numerator: 50}", all),
                &["filter_enabled: approximately: all requests are checked"],
                &["enabled", "enforce"],
            ),
            (
                &share(all, "{numerator: 25}"),
                &["enforce = \"25.0%\"", "filter_enforced: approximately"],
                &[],
            ),
            (
                &share(all, "{numerator: 5, denominator: TEN_THOUSAND}"),
                &["enforce = \"0.1%\""],
                &[],
            ),
            (
                &share(all, "{numerator: 1250, denominator: TEN_THOUSAND}"),
                &["enforce = \"12.5%\""],
                &[],
            ),
            (
                &share(all, "{numerator: 1, denominator: MILLION}"),
                &["enforce = \"0.1%\""],
                &["mode"],
            ),
            (
                &runtime,
                &["enabled = false", "filter_enabled: approximately: `default_value` is used"],
                &["mode"],
            ),
        ],
    );
}

#[test]
fn filters_limit_the_routes_that_they_are_for() {
    let on = "filter_enabled: {default_value: {numerator: 100}}, filter_enforced: {default_value: {numerator: 100}}";
    let own = |config: &str| {
        format!("typed_per_filter_config: {{envoy.filters.http.local_ratelimit: {{{config}}}}}")
    };
    let routes = |first: &str, host: &str| {
        format!(
            "domains: ['*'], {host} routes: [{{name: r, match: {{prefix: /r/}}, route: {{cluster: a}}, {first}}}, {{name: s, match: {{prefix: /s/}}, route: {{cluster: a}}}}]"
        )
    };
    let limit_of = limit(on);
    let disabled = file("name: c", &limit_of, &routes(&own("disabled: true"), ""), "");
    let host = own(&format!(
        "stat_prefix: host, token_bucket: {{max_tokens: 3, tokens_per_fill: 50, fill_interval: 1s}}, {on}"
    ));
    let host = file("name: c", &limit_of, &routes("", &format!("{host},")), "");
    let named = limit_of.replace(
        "name: envoy.filters.http.local_ratelimit, typed_config: {",
        "name: own, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, ",
    );
    let named_of = routes("typed_per_filter_config: {own: {disabled: true}}", "");
    let named = file("name: c", &named, &named_of, "");
    let off =
        file("name: c", &format!("{{disabled: true, {}", &limit_of[1..]), &routes("", ""), "");
    let empty = "{name: envoy.filters.http.local_ratelimit, typed_config: {stat_prefix: x, descriptors: [{entries: [{key: k}]}]}}";
    let empty = file("name: c", empty, ALL, "");
    let zero = "{name: envoy.filters.http.local_ratelimit, typed_config: {token_bucket: {max_tokens: 0, fill_interval: 1s}}}";
    let zero = file("name: c", zero, ALL, "");
    let rest = file(
        "name: c",
        &limit(&format!("{on}, local_cluster_rate_limit: {{}}, rate_limits: [{{actions: []}}]")),
        ALL,
        "",
    );
    holds(
        Format::Envoy,
        &[
            (&disabled, &["rate = \"9/s\"\nburst = 9\nroutes = [\"s\"]"], &[]),
            // Not more than the bucket holds.
            (
                &host,
                &["[rules.host]\nper = []\nrate = \"3/s\"\nburst = 3\n"],
                &["[rules.all]", "routes = ["],
            ),
            (&named, &["rate = \"9/s\"\nburst = 9\nroutes = [\"s\"]"], &[]),
            (&off, &["[routes.r]"], &["[rules"]),
            (
                &empty,
                &[
                    "local_ratelimit: not taken over: it has no `token_bucket`",
                    "descriptors: not taken over",
                ],
                &["[rules"],
            ),
            (&zero, &["local_ratelimit: token_bucket: not taken over"], &["[rules"]),
            (
                &rest,
                &["local_cluster_rate_limit: not taken over", "rate_limits: not taken over"],
                &[],
            ),
        ],
    );
}

#[test]
fn filter_chains_stay_restricted() {
    let matched = |conditions: &str| format!("filter_chain_match: {{{conditions}}}");
    let one = |conditions: &str| file(&matched(conditions), "", ALL, "");
    let named =
        "domains: [b.example.com], routes: [{name: r, match: {prefix: /}, route: {cluster: a}}]";
    let other = "domains: ['*'], routes: [{name: s, match: {prefix: /s/}, route: {cluster: a}}]";
    let two = file(
        &matched("source_prefix_ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]"),
        "",
        ALL,
        "",
    )
    .replace("  clusters:", &format!("{}\n  clusters:", chain_of("name: rest", "", other)));
    let default = one("destination_port: 81").replace(
        "  clusters:",
        &format!(
            "    default_filter_chain:\n{}\n  clusters:",
            chain_of("name: rest", "", other).replacen("    - ", "      ", 1)
        ),
    );
    holds(
        Format::Envoy,
        &[
            (
                &one("server_names: [A.example.com, '*.example.org']"),
                &[
                    "[routes.r]\nhost = [\"a.example.com\", \"*.example.org\"]",
                    "server_names: approximately",
                ],
                &[],
            ),
            (
                &file(&matched("server_names: [a.example.com]"), "", named, ""),
                &["[routes.r]\nhost = \"b.example.com\""],
                &[],
            ),
            (
                &two,
                &[
                    "allow_ips = [\"10.0.0.0/8\"]",
                    "[routes.s]\npath = \"/s/*\"\nupstream = \"a\"\ntimeout = \"15s\"\n\n",
                ],
                &[],
            ),
            (
                &one("source_prefix_ranges: [{address_prefix: office}]"),
                &["deny_ips = [\"0.0.0.0/0\", \"::/0\"]", "office/0: not taken over"],
                &["allow_ips"],
            ),
            (
                &one(
                    "source_prefix_ranges: [{address_prefix: '::1', prefix_len: 128}], direct_source_prefix_ranges: [{address_prefix: '::2', prefix_len: 128}]",
                ),
                &["direct_source_prefix_ranges: not taken over"],
                &["[routes"],
            ),
            (
                &one("destination_port: 81"),
                &["destination_port: not taken over"],
                &["[routes", "listen"],
            ),
            (&one("source_type: EXTERNAL"), &["source_type: not taken over"], &["[routes"]),
            (
                &one("source_type: ANY, transport_protocol: raw_buffer"),
                &["[routes.r]", "transport_protocol: approximately"],
                &[],
            ),
            (&default, &["[routes.s]", "listen = [\"0.0.0.0:80\"]"], &["[routes.r]"]),
        ],
    );
}

#[test]
fn priorities_of_endpoints_are_those_of_servers() {
    let groups =
        format!("{}, {}", endpoints("a.internal", ""), endpoints("b.internal", "priority: 1"));
    let draining = "{lb_endpoints: [{health_status: DRAINING, endpoint: {address: {socket_address: {address: c, port_value: 1}}}}]}";
    let groups = file("name: c", "", ALL, &format!("{groups}, {draining}"));
    let high =
        file("name: c", "", &ALL.replace("{cluster: a}", "{cluster: a, priority: HIGH}"), "");
    holds(
        Format::Envoy,
        &[
            (
                &groups,
                &[
                    "servers = [\"a.internal:1\", { address = \"b.internal:1\", priority = 1 }]",
                    "priority 1: approximately",
                    "endpoint: not taken over: its `health_status`",
                ],
                &["c:1"],
            ),
            (&high, &["priority HIGH: not taken over"], &[]),
        ],
    );
}

#[test]
fn settings_on_one_line_are_apart() {
    let on = r#""filter_enabled": {"default_value": {"numerator": 100}}, "filter_enforced": {"default_value": {"numerator": 100}}"#;
    let route = |name: &str, tokens: u8| {
        format!(
            r#"{{"name": "{name}", "match": {{"prefix": "/{name}/"}}, "route": {{"cluster": "{name}"}}, "typedPerFilterConfig": {{"envoy.filters.http.local_ratelimit": {{"statPrefix": "{name}", "tokenBucket": {{"maxTokens": {tokens}, "fillInterval": "1s"}}, {on}}}}}}}"#
        )
    };
    let cluster = |name: &str| {
        format!(
            r#"{{"name": "{name}", "loadAssignment": {{"endpoints": [{{"lbEndpoints": [{{"endpoint": {{"address": {{"socketAddress": {{"address": "{name}.internal", "portValue": 1}}}}}}}}]}}]}}}}"#
        )
    };
    let text = format!(
        r#"{{"static_resources": {{"listeners": [{{"address": {{"socketAddress": {{"address": "0.0.0.0", "portValue": 80}}}}, "filterChains": [{{"filters": [{{"name": "envoy.filters.network.http_connection_manager", "typedConfig": {{"httpFilters": [{{"name": "envoy.filters.http.local_ratelimit"}}, {{"name": "envoy.filters.http.lua"}}, {{"name": "envoy.filters.http.lua"}}], "routeConfig": {{"virtualHosts": [{{"name": "v", "domains": ["*"], "routes": [{}, {}]}}]}}}}}}]}}]}}], "clusters": [{}, {}]}}}}"#,
        route("one", 1),
        route("two", 2),
        cluster("one"),
        cluster("two"),
    );
    let text =
        text.replace(on, &on.replace("filter_e", "filterE").replace("default_v", "defaultV"));
    assert!(!text.contains('\n'), "{text}");
    let shown = imported(Format::Envoy, "file", &text);
    for part in [
        "[upstreams.one]\nservers = [\"one.internal:1\"]",
        "[upstreams.two]\nservers = [\"two.internal:1\"]",
        "path = \"/two/*\"\nupstream = \"two\"",
        "burst = 1\nroutes = [\"one\"]",
        "burst = 2\nroutes = [\"two\"]",
    ] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    let at = |word: &str, nth: usize| text.match_indices(word).nth(nth).unwrap().0;
    for nth in [0, 1] {
        let column = at(r#"{"name": "envoy.filters.http.lua"}"#, nth) + 1;
        let note = format!("file:1:{column}: filter envoy.filters.http.lua: not taken over");
        assert!(shown.contains(&note), "{note} is not in:\n{shown}");
    }
}
