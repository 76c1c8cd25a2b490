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
                    "timeout = \"15s\"\ndeny_ips = [\"10.0.0.0/8\"]\n",
                    "source_prefix_ranges: approximately: a filter chain is for the connections",
                ],
                &[],
            ),
            (
                &one("source_prefix_ranges: [{address_prefix: office}]"),
                &["deny_ips = [\"0.0.0.0/0\", \"::/0\"]", "office/0: not taken over"],
                &["allow_ips"],
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
        "path = \"/two/*\"\ntrailing_slash = \"distinct\"\nupstream = \"two\"",
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

#[test]
fn numbers_and_flags_that_may_be_absent_have_a_value() {
    let chain = |length: &str| {
        let range = format!("{{address_prefix: 10.0.0.0, {length}}}");
        let matched = format!("filter_chain_match: {{source_prefix_ranges: [{range}]}}");
        file(&matched, "", ALL, "")
    };
    let limit = limit("filter_enabled: {default_value: {numerator: 100}}").replace(
        "max_tokens: 9, tokens_per_fill: 9",
        "max_tokens: {value: 9}, tokensPerFill: {value: 2}",
    );
    let servers = endpoints("a.internal", "")
        .replace("{endpoint:", "{load_balancing_weight: {value: 3}, endpoint:");
    let servers = format!("{servers}, {}", endpoints("b.internal", ""));
    let all = file("name: c", &limit, ALL, &servers).replace(
        "{name: a, load",
        "{name: a, circuit_breakers: {thresholds: [{max_requests: {value: 5}, maxConnections: {value: 7}}]}, load",
    );
    let insensitive = ALL.replace("prefix: /}", "prefix: /, case_sensitive: {value: false}}");
    let left_out = |text: &str| {
        holds(
            Format::Envoy,
            &[(text, &["source_prefix_ranges: not taken over"], &["[routes", "listen"])],
        );
    };
    left_out(&chain("prefix_len: x"));
    left_out(&chain("prefix_len: {}"));
    left_out(&chain("prefixLen: {value: {value: 8}}"));
    holds(
        Format::Envoy,
        &[
            (&chain("prefix_len: {value: 8}"), &["allow_ips = [\"10.0.0.0/8\"]"], &["0.0.0.0/0"]),
            (&chain("prefixLen: 8"), &["allow_ips = [\"10.0.0.0/8\"]"], &["0.0.0.0/0"]),
            (
                &all,
                &[
                    "rate = \"2/s\"\nburst = 9",
                    "address = \"a.internal:1\", weight = 3",
                    "max_in_flight = 5",
                    "max_connections = 7",
                ],
                &[],
            ),
            (&file("name: c", "", &insensitive, ""), &["case_sensitive: not taken over"], &[]),
        ],
    );
}

#[test]
fn connections_get_the_filter_chain_of_the_smallest_network() {
    let matched = |networks: &[(&str, u8)]| {
        let range = |(address, length): &(&str, u8)| {
            format!("{{address_prefix: {address}, prefix_len: {length}}}")
        };
        let ranges: Vec<String> = networks.iter().map(range).collect();
        format!("filter_chain_match: {{source_prefix_ranges: [{}]}}", ranges.join(", "))
    };
    let routes = |name: &str| {
        ALL.replace(
            "name: r, match: {prefix: /}",
            &format!("name: {name}, match: {{prefix: /{name}/}}"),
        )
    };
    let add = |text: &str, chain: &str, name: &str| {
        text.replace("  clusters:", &format!("{}\n  clusters:", chain_of(chain, "", &routes(name))))
    };
    let first = file(&matched(&[("10.0.0.0", 8), ("172.16.0.0", 12)]), "", &routes("wide"), "");
    let three = add(&first, &matched(&[("10.1.0.0", 16)]), "narrow");
    let three = add(&three, "name: rest", "rest");
    let named = add(&first, "filter_chain_match: {server_names: [a.example.com]}", "named");
    let of_ten = |condition: &str| {
        let network = "{address_prefix: 10.0.0.0, prefix_len: 8}";
        let chain =
            format!("filter_chain_match: {{{condition}, source_prefix_ranges: [{network}]}}");
        file(&chain, "", &routes("inner"), "")
    };
    let names = "filter_chain_match: {server_names: [a.example.com, b.example.com]}";
    let with_common_name = add(&of_ten("server_names: [a.example.com]"), names, "outer");
    let with_one_left_out = add(&of_ten("source_type: EXTERNAL"), "name: rest", "rest");
    holds(
        Format::Envoy,
        &[
            (
                &three,
                &[
                    "path = \"/wide/*\"\ntrailing_slash = \"distinct\"\nupstream = \"a\"\ntimeout = \"15s\"\ndeny_ips = [\"10.1.0.0/16\"]\nallow_ips = [\"10.0.0.0/8\", \"172.16.0.0/12\"]\n",
                    "path = \"/narrow/*\"\ntrailing_slash = \"distinct\"\nupstream = \"a\"\ntimeout = \"15s\"\nallow_ips = [\"10.1.0.0/16\"]\n",
                    "deny_ips = [\"10.0.0.0/8\", \"10.1.0.0/16\", \"172.16.0.0/12\"]\n",
                    "no errors",
                ],
                &[],
            ),
            (&with_common_name, &["deny_ips = [\"10.0.0.0/8\"]\n", "path = \"/inner/*\""], &[]),
            (&with_one_left_out, &["deny_ips = [\"10.0.0.0/8\"]\n"], &["/inner/"]),
            // Envoy looks for a name first.
            (&named, &["host = \"a.example.com\""], &["deny_ips"]),
        ],
    );
}

#[test]
fn conditions_that_are_not_read_leave_routes_out() {
    let with = |condition: &str| {
        file("name: c", "", &ALL.replace("prefix: /}", &format!("prefix: /, {condition}}}")), "")
    };
    for key in
        ["filter_state", "cookies", "filterState", "dynamicMetadata", "runtime_fraction", "x"]
    {
        let text = with(&format!("{key}: [{{key: k, string_match: {{exact: x}}}}]"));
        holds(
            Format::Envoy,
            &[(&text, &[": not taken over: the route is left out"], &["[routes"])],
        );
    }
    let matcher = "domains: ['*'], matcher: {matcher_tree: {}}";
    let chains = file(
        "filter_chain_match: {prefix_ranges: [], source_ports: [], server_names: []}",
        "",
        ALL,
        "",
    );
    let unknown = file("filter_chain_match: {x: 1}", "", ALL, "");
    let listener = |rest: &str| {
        file("name: c", "", ALL, "")
            .replace("    filter_chains:", &format!("    {rest}\n    filter_chains:"))
    };
    let addresses = "additional_addresses: [{address: {socket_address: {address: '::1', port_value: 81}}}, {address: {pipe: {path: x}}}]";
    holds(
        Format::Envoy,
        &[
            // As if it were absent.
            (&with("cookies: [], dynamic_metadata: [], tls_context: ~"), &["[routes.r]"], &[]),
            (&chains, &["[routes.r]"], &["host"]),
            (&unknown, &["filter_chain_match: x: not taken over"], &["[routes"]),
            (
                &file("name: c", "", matcher, ""),
                &["virtual host v: matcher: not taken over"],
                &["[routes"],
            ),
            (
                &listener("filter_chain_matcher: {matcher_tree: {}}"),
                &["filter_chain_matcher: not taken over"],
                &["[routes", "listen"],
            ),
            (
                &listener(addresses),
                &[
                    "listen = [\"0.0.0.0:80\", \"[::1]:81\"]",
                    "listener listener: not taken over: a listener has an address and a port",
                ],
                &[],
            ),
        ],
    );
}

#[test]
fn a_limit_of_a_route_is_its_own_or_that_of_the_filter() {
    let on = "filter_enabled: {default_value: {numerator: 100}}, filter_enforced: {default_value: {numerator: 100}}";
    let filter = limit(on);
    let disabled = format!("{{disabled: true, {}", &filter[1..]);
    let with = |filter: &str, own: &str| {
        let own = format!(
            "typed_per_filter_config: {{envoy.filters.http.local_ratelimit: {{'@type': type.googleapis.com/envoy.config.route.v3.FilterConfig, {own}}}}}"
        );
        file(
            "name: c",
            filter,
            &ALL.replace("route: {cluster: a}", &format!("route: {{cluster: a}}, {own}")),
            "",
        )
    };
    let bucket =
        format!("config: {{token_bucket: {{max_tokens: 2, fill_interval: 0.0505s}}, {on}}}");
    let table = file("name: c", &filter, ALL, "").replace(
        "route_config: {",
        "route_config: {typed_per_filter_config: {envoy.filters.http.local_ratelimit: {disabled: true}}, ",
    );
    let nanos = filter.replace("fill_interval: 1s", "fill_interval: {seconds: 1, nanos: 500000}");
    holds(
        Format::Envoy,
        &[
            (&with(&filter, "config: {}"), &["rate = \"9/s\"\nburst = 9"], &["rate = \"1/"]),
            (&with(&disabled, "config: {}"), &["rate = \"9/s\"\nburst = 9"], &[]),
            (&with(&disabled, "disabled: false"), &["rate = \"9/s\"\nburst = 9"], &[]),
            (&with(&filter, "disabled: true"), &["[routes.r]"], &["[rules"]),
            // Never a shorter time.
            (&with(&filter, &bucket), &["rate = \"1/51ms\"\nburst = 2"], &["9/s"]),
            (&file("name: c", &nanos, ALL, ""), &["rate = \"9/1001ms\""], &[]),
            (&table, &["[routes.r]"], &["[rules"]),
        ],
    );
}

/// A filter chain for these networks, `direct_source_prefix_ranges` and `source_prefix_ranges`.
fn of_networks(direct: &str, networks: &str) -> String {
    let list = |key: &str, networks: &str| {
        let range = |network: &str| {
            let (address, length) = network.split_once('/').unwrap();
            format!("{{address_prefix: '{address}', prefix_len: {length}}}")
        };
        let ranges: Vec<String> = networks.split_whitespace().map(range).collect();
        format!("{key}: [{}]", ranges.join(", "))
    };
    let (direct, networks) =
        (list("direct_source_prefix_ranges", direct), list("source_prefix_ranges", networks));
    format!("filter_chain_match: {{{direct}, {networks}}}")
}

#[test]
fn both_lists_of_networks_of_a_filter_chain_must_hold() {
    let one = |direct: &str, networks: &str| file(&of_networks(direct, networks), "", ALL, "");
    let routes = |name: &str| {
        ALL.replace(
            "name: r, match: {prefix: /}",
            &format!("name: {name}, match: {{prefix: /{name}/}}"),
        )
    };
    let two = |first: (&str, &str), second: (&str, &str)| {
        file(&of_networks(first.0, first.1), "", &routes("one"), "").replace(
            "  clusters:",
            &format!(
                "{}\n  clusters:",
                chain_of(&of_networks(second.0, second.1), "", &routes("two"))
            ),
        )
    };
    let proxied = one("10.0.0.0/8", "").replace(
        "    filter_chains:",
        "    listener_filters: [{name: envoy.filters.listener.proxy_protocol}]\n    filter_chains:",
    );
    holds(
        Format::Envoy,
        &[
            (
                &one("10.0.0.0/8 172.16.0.0/12", "10.1.0.0/16 172.0.0.0/8 192.168.0.0/16"),
                &["allow_ips = [\"10.1.0.0/16\", \"172.16.0.0/12\"]\n"],
                &[],
            ),
            (&one("", "10.1.0.0/16"), &["allow_ips = [\"10.1.0.0/16\"]\n"], &[]),
            (
                &one("::1/128", "::2/128"),
                &["filter_chain_match: not taken over: the filter chain is left out: no address"],
                &["[routes", "listen ="],
            ),
            // Those of the proxy.
            (
                &proxied,
                &["direct_source_prefix_ranges: not taken over: the filter chain is left out"],
                &["[routes"],
            ),
            // Envoy looks at the direct address first: all of 10.0.0.0/8 gets the first chain or
            // none.
            (
                &two(("10.0.0.0/8", "10.1.0.0/16"), ("", "10.0.0.0/7")),
                &[
                    "deny_ips = [\"10.0.0.0/8\"]\nallow_ips = [\"10.0.0.0/7\"]\n",
                    "timeout = \"15s\"\nallow_ips = [\"10.1.0.0/16\"]\n",
                ],
                &[],
            ),
            // Among chains for the same direct addresses, at the network.
            (
                &two(("10.0.0.0/8", ""), ("10.0.0.0/8", "10.1.0.0/16")),
                &["deny_ips = [\"10.1.0.0/16\"]\nallow_ips = [\"10.0.0.0/8\"]\n"],
                &[],
            ),
        ],
    );
}

#[test]
fn listeners_for_both_families_are_one() {
    let tls = |address: &str, more: &str, certificate: &str, validation: &str| {
        format!(
            "  - address: {{socket_address: {{address: '{address}', port_value: 443}}}}\n{more}    filter_chains:\n    - transport_socket: {{typed_config: {{common_tls_context: {{tls_certificates: [{{certificate_chain: {{filename: {certificate}.pem}}, private_key: {{filename: {certificate}.key}}}}], {validation}}}, require_client_certificate: {}}}}}\n      filters: [{{name: envoy.filters.network.http_connection_manager, typed_config: {{route_config: {{virtual_hosts: [{{name: v, domains: ['*'], routes: [{{match: {{prefix: /{certificate}}}, direct_response: {{status: 200}}}}]}}]}}}}}}]\n",
            !validation.is_empty(),
        )
    };
    let listeners = |all: &[String]| format!("static_resources:\n  listeners:\n{}", all.concat());
    let more = |address: &str, rest: &str| {
        format!(
            "    additional_addresses: [{{address: {{socket_address: {{address: '{address}', port_value: 443{rest}}}}}}}]\n"
        )
    };
    let ca = "validation_context: {trusted_ca: {filename: ca.pem}}";
    let both = listeners(&[tls("0.0.0.0", &more("::", ""), "a", "")]);
    let compatible =
        both.replace("0.0.0.0", "127.0.0.1").replace("443}}}]", "443, ipv4_compat: true}}}]");
    let only_ipv6 = listeners(&[tls("::", "", "a", "")]);
    let two = listeners(&[tls("0.0.0.0", "", "a", ca), tls("::", "", "b", "")]);
    let others = listeners(&[
        tls("::", "", "a", ca),
        tls("0.0.0.0", "", "b", &ca.replace("ca.pem", "other.pem")),
    ]);
    for one in [&both, &compatible] {
        let shown = imported(Format::Envoy, "file", one);
        assert_eq!(shown.matches("[[listeners]]").count(), 1, "{shown}");
        assert!(shown.contains("address = \"[::]:443\""), "{shown}");
        assert!(!shown.contains("approximately: it also accepts"), "{shown}");
    }
    let shown = imported(Format::Envoy, "file", &others);
    assert_eq!(shown.matches("[[listeners]]").count(), 2, "{shown}");
    holds(
        Format::Envoy,
        &[
            (
                &two,
                &[
                    "[[listeners]]\naddress = \"[::]:443\"\ncertificates = [",
                    "{ cert = \"b.pem\", key = \"b.key\" }, { cert = \"a.pem\", key = \"a.key\" }",
                    "client_ca = \"ca.pem\"",
                    "listen 0.0.0.0:443: approximately: [::]:443 includes it",
                ],
                &["0.0.0.0", "client_auth"],
            ),
            (&only_ipv6, &["[::]:443: approximately: it also accepts connections by IPv4"], &[]),
        ],
    );
}

#[test]
fn routes_that_come_first_in_the_file_are_noted_if_another_is_used() {
    let of = |routes: &str| file("name: c", "", &format!("domains: ['*'], routes: [{routes}]"), "");
    let to = |name: &str, matched: &str| {
        format!("{{name: {name}, match: {{{matched}}}, route: {{cluster: a}}}}")
    };
    let closed = "{name: closed, match: {prefix: /admin/}, direct_response: {status: 403}}";
    let unreachable = of(&format!("{closed}, {}", to("open", "prefix: /admin/x/")));
    let expression = of(&format!(
        "{}, {}, {}",
        to("secret", "safe_regex: {regex: '/admin/[a-z]+'}"),
        to("admin", "prefix: /admin/"),
        to("rest", "prefix: /")
    ));
    let condition = of(&format!(
        "{}, {}",
        to("two", "prefix: /, headers: [{name: x, string_match: {exact: '2'}}]"),
        to("other", "prefix: /a/")
    ));
    holds(
        Format::Envoy,
        &[
            (
                &unreachable,
                &["route open: not taken over: the route closed comes first in the file"],
                &["[routes.open]"],
            ),
            (
                &expression,
                &[
                    "route secret: approximately: requests that match both this one and admin get the latter",
                ],
                &[],
            ),
            (
                &condition,
                &["route two: approximately: requests that match both this one and other"],
                &[],
            ),
        ],
    );
    let usual = of(&format!("{closed}, {}", to("rest", "prefix: /")));
    let usual = imported(Format::Envoy, "file", &usual);
    assert!(!usual.contains("more specific"), "{usual}");
}

#[test]
fn conditions_match_no_more_than_in_the_file() {
    let with = |matched: &str| {
        file("name: c", "", &ALL.replace("prefix: /}", &format!("{matched}}}")), "")
    };
    let template = |path: &str| {
        with(&format!("path_match_policy: {{typed_config: {{path_template: '{path}'}}}}"))
    };
    let header = |header: &str| with(&format!("prefix: /, headers: [{header}]"));
    let left_out: [&str; 7] = [
        "{name: ':method', string_match: {safe_regex: {regex: GET}}, invert_match: true}",
        "{name: ':method', exact_match: GET}, {name: ':method', exact_match: PUT}",
        "{name: x, exact_match: 'a*'}",
        "{name: x, exact_match: a}, {name: x, prefix_match: b}",
        "{name: ':authority', exact_match: other.example.com}",
        "{name: x, string_match: {contains: a}}",
        "{name: ':path', exact_match: /}",
    ];
    for condition in left_out {
        let text = header(condition).replace("domains: ['*']", "domains: [a.example.com]");
        holds(Format::Envoy, &[(&text, &[": not taken over"], &["[routes"])]);
    }
    holds(
        Format::Envoy,
        &[
            (&template("/v1/*/{id}/x"), &["path = \"/v1/{segment1}/{id}/x\""], &[]),
            (&template("/v1/{rest=**}"), &["path = \"/v1/*\""], &[]),
            (&template("/v1/*"), &["path = \"/v1/{segment1}\""], &[]),
            (&template("/v1/{a=x/*}"), &["/v1/{a=x/*}: not taken over"], &["[routes"]),
            (
                &header("{name: x, string_match: {exact: a, ignore_case: true}}"),
                &["header x: approximately: upper and lower case"],
                &[],
            ),
        ],
    );
}

#[test]
fn limits_of_listeners_and_cors_that_is_off_are_kept() {
    let filter = "{name: envoy.filters.http.cors}";
    let cors = |enabled: &str| {
        let policy = format!(
            "cors: {{allow_origin_string_match: [{{exact: 'https://a.example'}}], {enabled}}}"
        );
        file("name: c", filter, &ALL.replace("domains:", &format!("{policy}, domains:")), "")
    };
    let off = cors("filter_enabled: {default_value: {numerator: 0}}");
    let limits = file("name: c", "", ALL, "")
        .replace("          http_filters", "          common_http_protocol_options: {max_headers_count: 50, max_requests_per_connection: {value: 9}}\n          http_filters")
        .replace("    filter_chains:", "    listener_filters: [{name: envoy.filters.listener.local_ratelimit}]\n    filter_chains:");
    holds(
        Format::Envoy,
        &[
            (&cors(""), &["cors = {"], &[]),
            (&off, &[], &["cors"]),
            (
                &limits,
                &[
                    "max_headers = 50\nmax_requests_per_connection = 9\n",
                    "envoy.filters.listener.local_ratelimit: not taken over",
                ],
                &[],
            ),
        ],
    );
}

/// A file whose connection manager has these settings.
fn with_manager(settings: &str) -> String {
    let with = format!("          {settings}\n          http_filters");
    file("name: c", "", ALL, "").replace("          http_filters", &with)
}

/// A file whose only route has these settings beside its cluster.
fn with_action(settings: &str) -> String {
    let with = format!("{{cluster: a, {settings}}}");
    file("name: c", "", &ALL.replace("{cluster: a}", &with), "")
}

/// A file whose only cluster has these settings.
fn with_cluster(settings: &str) -> String {
    file("name: c", "", ALL, "").replace("- {name: a,", &format!("- {{name: a, {settings},"))
}

#[test]
fn settings_that_nothing_reads_are_listed() {
    let plain = imported(
        Format::Envoy,
        "file",
        &with_cluster("type: STRICT_DNS, dns_lookup_family: V4_ONLY"),
    );
    assert!(plain.contains("=== list ===\n\n"), "{plain}");
    let whole = file("name: c", "", ALL, "");
    let first_in_an_item = whole.trim_end().strip_suffix('}').unwrap().replace(
        "- {name: a, load_assignment",
        "- own_setting: 1\n    name: a\n    type: ORIGINAL_DST\n    load_assignment",
    );
    let unused =
        file("name: c", "", ALL, "") + "  - {name: b, type: STATIC, lb_subset_config: {x: y}}\n";
    holds(
        Format::Envoy,
        &[
            (
                &with_action("hedge_policy: {x: {y: z}}"),
                &["hedge_policy: not taken over: a request"],
                &[],
            ),
            (
                &with_action("own_policy: 1"),
                &["own_policy: not taken over: the importer does not"],
                &[],
            ),
            (&with_action("hedge_policy: {}"), &["=== list ===\n\n"], &[]),
            (
                &with_action("max_stream_duration: {grpc_timeout_header_max: 0s}"),
                &["max_stream_duration: not taken over"],
                &[],
            ),
            // In camel case, as in JSON.
            (
                &with_cluster("lbSubsetConfig: {x: y}"),
                &["file:", "lb_subset_config: not taken over"],
                &[],
            ),
            (&unused, &["cluster b: not taken over: no route"], &[]),
            (
                &first_in_an_item,
                &["own_setting: not taken over", "not taken over: an upstream has servers"],
                &[],
            ),
            (
                &with_manager("normalize_path: true"),
                &["normalize_path: not taken over: such paths"],
                &[],
            ),
        ],
    );
    assert!(!imported(Format::Envoy, "file", &unused).contains("lb_subset_config"), "{unused}");
}

#[test]
fn settings_of_http2_paths_and_retries_are_taken_over() {
    let rewrite = |matched: &str, template: &str| {
        let route = format!(
            "match: {{path_match_policy: {{typed_config: {{path_template: '{matched}'}}}}}}, route: {{cluster: a, path_rewrite_policy: {{name: x, typed_config: {{path_template_rewrite: '{template}'}}}}}}"
        );
        file("name: c", "", &format!("domains: ['*'], routes: [{{name: r, {route}}}]"), "")
    };
    holds(
        Format::Envoy,
        &[
            (
                &with_manager(
                    "http2_protocol_options: {max_concurrent_streams: 50, allow_connect: true}",
                ),
                &["[server.http2]\nmax_concurrent_streams = 50\n", "allow_connect: not taken over"],
                &[],
            ),
            (
                &with_manager("http2_protocol_options: {max_concurrent_streams: 2147483647}"),
                &["max_concurrent_streams = 10000"],
                &[],
            ),
            (
                &with_manager("upgrade_configs: [{upgrade_type: websocket}]"),
                &["=== list ===\n\n"],
                &[],
            ),
            (
                &with_manager("upgrade_configs: [{upgrade_type: CONNECT}]"),
                &["upgrade to CONNECT: not taken over"],
                &[],
            ),
            (
                &rewrite("/a/{id}/x", "/b/{id}"),
                &["replace_path = \"/b/{param:id}\"", "=== list ===\n\n"],
                &[],
            ),
            (
                &rewrite("/a/{id}/x", "/b/{other}"),
                &["path_rewrite_policy: not taken over"],
                &["replace_path"],
            ),
            (
                &rewrite("/a/{id}/x", "/b/{id"),
                &["path_rewrite_policy: not taken over"],
                &["replace_path"],
            ),
            (
                &with_action(
                    "retry_policy: {retry_on: retriable-status-codes, retriable_status_codes: [503, 429, 404]}",
                ),
                &["\"429\", \"503\"", "retriable_status_codes 404: not taken over"],
                &[],
            ),
        ],
    );
}

#[test]
fn health_checks_accept_the_same_responses() {
    let check = |settings: &str| with_cluster(&format!("health_checks: [{{{settings}}}]"));
    holds(
        Format::Envoy,
        &[
            (&check("http_health_check: {path: /h}"), &["path = \"/h\"", "status = [200]"], &[]),
            (
                &check(
                    "http_health_check: {expected_statuses: [{start: 200, end: 202}, {start: 204, end: 205}]}",
                ),
                &["status = [200, 201, 204]"],
                &[],
            ),
            (
                &check("http_health_check: {expected_statuses: [{start: 100, end: 400}]}"),
                &["path = \"/\""],
                &["status"],
            ),
            (
                &check("http_health_check: {expected_statuses: [{start: 300, end: 300}]}"),
                &["expected_statuses: not taken over"],
                &["status"],
            ),
            (&check("grpc_health_check: {service_name: api}"), &["service = \"api\""], &[]),
            (
                &check(
                    "http_health_check: {request_headers_to_add: [{header: {key: a, value: b}}]}",
                ),
                &["request_headers_to_add: not taken over"],
                &[],
            ),
        ],
    );
}
