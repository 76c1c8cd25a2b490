//! Policies of valid files.

use std::time::Duration;

use crate::client::settings::{KeySource, OnUnknownKey};
use crate::limit::Limit;
use crate::limit::breaker::Settings;
use crate::limit::charge::Mode;
use crate::limit::cost::Cost;
use crate::limit::fixed_window::Overage;
use crate::load::{from_text, from_text_in};
use crate::net::address::{HostPort, Origin};
use crate::policy::redis::{Address, Login, Ready, Secret, StartWithout};
use crate::policy::servers::Server;
use crate::policy::settings::{MaxBytes, Target};
use crate::policy::split::Destination;
use crate::policy::tracing::SamplingRatio;
use crate::policy::{Dimension, Grant, Kind, OnFailure, OnMissing, Policy, Rate, WrittenLimit};

const EXAMPLE: &str = include_str!("../fixtures/example.toml");
const SECOND: u64 = 1_000_000;

fn policy(text: &str) -> Policy {
    from_text("gateway.toml", text).unwrap_or_else(|report| panic!("{report}"))
}

fn smallest_with(text: &str) -> Policy {
    policy(&format!("{text}\n{}", super::SMALLEST))
}

fn names<'a>(list: impl IntoIterator<Item = &'a std::sync::Arc<str>>) -> Vec<&'a str> {
    list.into_iter().map(|name| &**name).collect()
}

#[test]
fn example_is_resolved() {
    let policy = policy(EXAMPLE);
    assert_eq!(policy.server.listen, ["0.0.0.0:8080".parse().unwrap()]);
    assert_eq!(policy.server.trusted_proxies, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(names(&policy.plans), ["free", "pro", "enterprise"]);
    assert_eq!(policy.clients.anonymous_plan, 0);
    assert_eq!(policy.clients.on_unknown_key, Some(OnUnknownKey::Deny));
    assert_eq!(policy.clients.key_sources[2], KeySource::Query("api_key".to_owned()));
    assert_eq!((&*policy.keys.all()[0].id, policy.keys.all()[0].plan), ("acme", 1));
    assert_eq!(policy.keys.digests().count(), 1);
    assert!(policy.keys.digests().all(|(digest, _)| digest[..2] == [0x9f, 0x86]));
    let origin = |port| Server {
        origin: Origin::Host(HostPort { host: "127.0.0.1".to_owned(), port }),
        weight: 1,
        priority: 0,
    };
    assert_eq!(policy.upstreams[0].target, Target::Servers(vec![origin(3000), origin(3001)]));
    assert_eq!(names(policy.routes.iter().map(|route| &route.name)), ["search", "rest"]);
    assert_eq!(policy.routes[0].cost, Cost::parse("5").unwrap());
    assert_eq!(policy.routes[1].cost, Cost::ONE);
    assert_eq!(policy.routes[0].rules, [0, 1, 2, 3]);
    assert_eq!(policy.routes[1].rules, [0, 1, 3]);

    let stored_rules = names(policy.rules.iter().map(|rule| &rule.name));
    assert_eq!(stored_rules, ["per-key", "per-ip", "search", "everyone"]);
    let [per_key, per_ip, search, everyone] = &policy.rules[..] else { panic!("four rules") };
    let pro = per_key.grant_by_plan[1].unwrap();
    assert_eq!(pro.limit, Limit::token_bucket(100, SECOND, 500).unwrap());
    assert_eq!(policy.limits[pro.index as usize], pro.limit);
    assert_eq!(pro.written, WrittenLimit::Rate(Rate { tokens: 100, period_us: SECOND }));
    assert!(per_key.has_plan_table(1) && !per_ip.has_plan_table(1));
    assert_eq!(per_ip.grant_by_plan[0], per_ip.grant_by_plan[2]);
    assert_eq!(search.per, [Dimension::Key, Dimension::Route]);
    assert_eq!(search.on_failure, OnFailure::Deny);
    assert_eq!(
        search.grant_by_plan[0].unwrap().limit,
        Limit::token_bucket(5, SECOND, 300).unwrap()
    );
    assert!(everyone.per.is_empty());
    assert_eq!(everyone.mode, Mode::Enforce);
    assert_eq!(policy.limits.len(), 6);
}

#[test]
fn limit_by_window_is_a_bucket_of_the_rest_of_the_limit() {
    const HOUR: u64 = 3600 * SECOND;
    // (settings, rate per hour, burst, as written)
    let table = [
        ("limit = '1000/h'\nburst = 100", 900, 100, "1000/h"),
        ("limit = '1000/h'", 900, 100, "1000/h"),
        ("limit = '2/h'", 1, 1, "2/h"),
        ("limit = '19/h'", 18, 1, "19/h"),
        ("limit = '29/h'", 27, 2, "29/h"),
        ("limit = '2000/2h'\nburst = 200", 900, 200, "2000/2h"),
        // As much as the rest yields: 800 an hour are 200 in 15 minutes.
        ("limit = '1000/h'\nburst = '15m'", 800, 200, "1000/h"),
        ("limit = '1000/h'\nburst = '1h'", 500, 500, "1000/h"),
        ("limit = '1000/h'\nburst = '1ms'", 999, 1, "1000/h"),
        ("limit = '1000/h'\nburst = '366d'", 1, 999, "1000/h"),
        ("rate = '900/h'\nburst = 100", 900, 100, "900/h"),
        ("kind = 'token_bucket'\nrate = '900/h'\nburst = 100", 900, 100, "900/h"),
        ("rate = '900/h'", 900, 900, "900/h"),
        ("rate = '900/h'\nburst = '5m'", 900, 75, "900/h"),
        ("rate = '900/h'\nburst = '1ms'", 900, 1, "900/h"),
        ("rate = '900/h'\nburst = '2h'", 900, 1800, "900/h"),
    ];
    for (settings, tokens, burst, written) in table {
        let policy = smallest_with(&format!("[rules.r]\nper = []\n{settings}"));
        let rule = &policy.rules[0];
        let grant = rule.grant_by_plan[0].unwrap();
        assert_eq!(grant.limit, Limit::token_bucket(tokens, HOUR, burst).unwrap(), "{settings}");
        assert_eq!(grant.written.to_string(), written, "{settings}");
        assert_eq!(rule.kind, Kind::TokenBucket);
        let setting = if settings.contains("limit") { "limit" } else { "rate" };
        assert_eq!(grant.written.setting(), setting, "{settings}");
    }
}

#[test]
fn tokens_have_the_parts_that_the_costs_of_the_rules_routes_take() {
    let routes = "[routes.a]\npath = '/a'\ncost = 0.5\n[routes.b]\npath = '/b'\ncost = 2.125\n\
        [routes.c]\npath = '/c'\ncost = 3.0\n";
    // (routes of the rule, rate, parts, units per microsecond, units per token)
    let table = [
        ("['c', 'all']", "10/s", 1, 1, 100_000),
        ("['a', 'c']", "10/s", 2, 1, 100_000),
        ("['b']", "10/s", 8, 1, 100_000),
        ("['a', 'b']", "32/s", 8, 4, 125_000),
        // A token is 15,625 units, which has no half.
        ("['a']", "64/s", 2, 2, 31_250),
        ("['a', 'b']", "64/s", 8, 8, 125_000),
    ];
    for (counted, rate, parts, units_per_us, token) in table {
        let rule = format!("{routes}[rules.r]\nper = []\nroutes = {counted}\nrate = '{rate}'");
        let grant = smallest_with(&rule).rules[0].grant_by_plan[0].unwrap();
        let limit = grant.limit;
        assert_eq!(limit.parts(), parts, "{counted} {rate}");
        assert_eq!((limit.units_in(1), limit.token_units(1)), (units_per_us, token), "{rate}");
        assert_eq!(limit.full(), token * i64::try_from(limit.capacity()).unwrap());
        assert_eq!(limit.window_us(), SECOND);
    }
    // The rule's own cost replaces those of routes.
    let own = format!("{routes}[rules.r]\nper = []\nrate = '10/s'\ncost = 0.25");
    assert_eq!(smallest_with(&own).rules[0].grant_by_plan[0].unwrap().limit.parts(), 4);
    // All routes, with one of the smallest cost.
    let all = "[routes.a]\npath = '/a'\ncost = 0.001\n[rules.r]\nper = []\nrate = '1000000/s'\n";
    let limit = smallest_with(all).rules[0].grant_by_plan[0].unwrap().limit;
    assert_eq!((limit.parts(), limit.units(1), limit.units_in(1)), (1_000, 1, 1_000));
}

#[test]
fn plans_and_keys_have_limits_by_window_and_bursts_by_time() {
    let sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let policy = smallest_with(&format!(
        "[plans.free]\n[plans.pro]\n[keys.acme]\nsha256 = '{sha256}'\nplan = 'pro'\n\
         rules.r = {{ limit = '60/m', burst = 10 }}\n[rules.r]\nper = ['key']\nrate = '1/s'\n\
         plans.pro = {{ rate = '10/s', burst = '1m' }}\n"
    ));
    let rule = &policy.rules[0];
    let of_plan = |plan: usize| rule.grant_by_plan[plan].unwrap().limit;
    assert_eq!(of_plan(0), Limit::token_bucket(1, SECOND, 1).unwrap());
    assert_eq!(of_plan(1), Limit::token_bucket(10, SECOND, 600).unwrap());
    let of_key = rule.grant_by_key["acme"];
    assert_eq!(of_key.limit, Limit::token_bucket(50, 60 * SECOND, 10).unwrap());
    assert_eq!(of_key.written.to_string(), "60/m");
}

#[test]
fn smallest_file_has_every_default() {
    let policy = smallest_with("");
    assert_eq!(names(&policy.plans), ["default"]);
    assert_eq!(policy.server.admin, "127.0.0.1:9090".parse().unwrap());
    assert_eq!((policy.server.threads, policy.server.instances), (None, None));
    assert!(!policy.headers.mode);
    assert_eq!(policy.server.keepalive_timeout, Duration::from_secs(75));
    assert_eq!(policy.server.max_uri_bytes, 8192);
    assert_eq!(policy.memory.max_buckets, 1_000_000);
    assert_eq!(policy.memory.max_bytes, MaxBytes::Cgroup);
    assert_eq!(policy.server.limits.max_connections(), 20_000);
    assert_eq!(policy.server.limits.max_connections_per_ip, 1000);
    assert!(!policy.server.limits.unready_on_overload);
    assert_eq!(policy.clients.ipv6_prefix, 64);
    assert_eq!(policy.clients.key_sources.len(), 3);
    assert_eq!(policy.upstreams[0].target, Target::Demo);
    assert_eq!(policy.upstreams[0].connect_timeout, Duration::from_secs(1));
    assert_eq!(policy.routes[0].destination, Destination::One(0));
    assert!(policy.rules.is_empty() && policy.keys.all().is_empty());
}

#[test]
fn plan_without_own_rate_has_that_of_the_rule() {
    let policy = smallest_with(
        "[plans.free]\n[plans.pro]\n[rules.r]\nper = ['ip']\nrate = '1/s'\n\
         plans.pro = { rate = '2/s' }",
    );
    let bursts: Vec<u64> =
        policy.rules[0].grant_by_plan.iter().map(|grant| grant.unwrap().limit.capacity()).collect();
    assert_eq!(bursts, [1, 2]);
}

#[test]
fn rule_for_one_plan_does_not_apply_to_others() {
    let policy = smallest_with(
        "[plans.free]\n[plans.pro]\n[rules.r]\nper = ['ip']\nplans.free.rate = '2/s'",
    );
    let applies: Vec<bool> = policy.rules[0].grant_by_plan.iter().map(Option::is_some).collect();
    assert_eq!(applies, [true, false]);
}

#[test]
fn disabled_rule_counts_no_route() {
    let policy =
        smallest_with("[rules.r]\nper = ['ip']\nrate = '1/s'\nenabled = false\nmode = 'shadow'");
    assert_eq!(policy.rules[0].mode, Mode::Shadow);
    assert!(policy.routes[0].rules.is_empty());
}

#[test]
fn keys_may_override_and_be_exempt() {
    let digest = "0F".repeat(32);
    let policy = smallest_with(&format!(
        "[keys.b]\nsha256 = '{digest}'\nrules.r = {{ rate = '9/s', burst = 7 }}\n\
         [rules.r]\nper = ['key', 'header:X-Tenant']\nrate = '1/s'\non_missing = 'skip'\n\
         exempt = {{ ips = ['192.0.2.1', '10.0.0.0/8'], keys = ['b'] }}"
    ));
    let rule = &policy.rules[0];
    assert_eq!(rule.grant_by_key["b"].limit.capacity(), 7);
    assert_eq!(rule.on_missing, OnMissing::Skip);
    assert_eq!(names(&rule.exempt.keys), ["b"]);
    assert_eq!(rule.exempt.ips[0], "192.0.2.1/32".parse().unwrap());
    assert_eq!(rule.per[1], Dimension::Header("x-tenant".parse().unwrap()));
    assert_eq!(&*policy.keys.with_digest(&[0x0f; 32]).unwrap().principal.id, "b");
}

/// A limit of a single client or tenant has `soft` and `overage` of its plan, unless it has its
/// own.
#[test]
fn limit_of_a_client_keeps_the_warning_and_overage_of_its_plan() {
    let digest = "0f".repeat(32);
    let policy = smallest_with(&format!(
        "[plans.pro]\n[plans.free]\n[tenants.t]\nplan = 'pro'\nrules.r = {{ limit = '6/d' }}\n\
         [keys.a]\nplan = 'pro'\nsha256 = '{digest}'\nrules.r = {{ limit = '9/d' }}\n\
         [keys.b]\nplan = 'pro'\nsecrets = [{{ sha256 = '{}' }}]\n\
         rules.r = {{ limit = '8/d', overage = 'refuse', soft = '10%' }}\n\
         [keys.c]\nplan = 'free'\nsecrets = [{{ sha256 = '{}' }}]\nrules.r = {{ limit = '7/d' }}\n\
         [rules.r]\nper = ['key']\nkind = 'fixed_window'\nlimit = '5/d'\nsoft = '50%'\n\
         plans.pro = {{ limit = '6/d', overage = 'count', soft = '80%' }}",
        "1f".repeat(32),
        "2f".repeat(32),
    ));
    let rule = &policy.rules[0];
    let terms = |grant: &Grant| match grant.limit {
        Limit::FixedWindow(window) => (window.limit(), window.overage(), window.soft()),
        _ => panic!("{grant:?}"),
    };
    assert_eq!(terms(&rule.grant_by_tenant["t"]), (6, Overage::Count, 800));
    assert_eq!(terms(&rule.grant_by_key["a"]), (9, Overage::Count, 800));
    assert_eq!(terms(&rule.grant_by_key["b"]), (8, Overage::Refuse, 100));
    assert_eq!(terms(&rule.grant_by_key["c"]), (7, Overage::Refuse, 500));
    for grant in rule.grant_by_key.values() {
        assert_eq!(policy.limits[grant.index as usize], grant.limit);
    }
}

#[test]
fn salt_is_the_hash_of_the_name() {
    let policy = smallest_with("[rules.test]\nper = []\nrate = '1/s'");
    assert_eq!(policy.rules[0].salt, 0x9f86_d081_884c_7d65_9a2f_eaa0_c55a_d015);
}

/// The settings of a `[redis]` with these lines, where `PW` and `URL` are variables.
fn redis(lines: &str) -> Policy {
    let environment = |name: &str| match name {
        "PW" => Some("p/w@1%".to_owned()),
        "URL" => Some("rediss://u:p%2Fw@h:7/5".to_owned()),
        _ => None,
    };
    let text = format!("[redis]\n{lines}\n{}", super::SMALLEST);
    from_text_in("gateway.toml", &text, &environment).unwrap_or_else(|report| panic!("{report}"))
}

#[test]
fn redis_has_its_defaults() {
    let redis = redis("url = 'redis://h'").redis.unwrap();
    assert_eq!(redis.address, Address::Server(HostPort { host: "h".to_owned(), port: 6379 }));
    assert_eq!((redis.tls, redis.login, redis.database), (None, Login::default(), 0));
    assert_eq!((redis.timeout, redis.on_failure), (Duration::from_millis(10), OnFailure::Local));
    assert_eq!(redis.prefix, "tollgate:");
    assert_eq!((redis.ready, redis.breaker), (Ready::Always, Settings::default()));
    assert_eq!(redis.start_without, StartWithout::Empty);
    assert!(smallest_with("").redis.is_none());
}

#[test]
fn variables_need_no_encoding() {
    let login = |lines| redis(lines).redis.unwrap().login;
    let expected =
        Login { username: Some("u".to_owned()), password: Some(Secret::new("p/w@1%".to_owned())) };
    assert_eq!(login("url = 'redis://h'\nusername = 'u'\npassword = '${PW}'"), expected);
    assert_eq!(login("url = 'redis://u:${PW}@h/1'"), expected);
    let password = login("url = 'redis://h'\npassword = 'a$${b}${PW}'").password.unwrap();
    assert_eq!(password.reveal(), "a${b}p/w@1%");

    let whole = redis("url = '${URL}'\nca = '${PW}.pem'").redis.unwrap();
    assert_eq!(whole.login.password.unwrap().reveal(), "p/w");
    assert_eq!((whole.database, whole.tls.unwrap().ca.unwrap()), (5, "p/w@1%.pem".into()));
}

#[test]
fn sentinels_have_a_separate_login() {
    let redis = redis(
        "url = 'rediss+sentinel://a,b:1/m/2'\npassword = 'x'\nsentinel_username = 's'\n\
         sentinel_password = '${PW}'\nclient_cert = 'c'\nclient_key = 'k'",
    )
    .redis
    .unwrap();
    let Address::Sentinel(sentinel) = redis.address else { panic!("sentinels") };
    assert_eq!((sentinel.servers.len(), &*sentinel.master), (2, "m"));
    assert_eq!(sentinel.login.password.unwrap().reveal(), "p/w@1%");
    assert_eq!((redis.login.password.unwrap().reveal(), redis.database), ("x", 2));
    assert_eq!(redis.tls.unwrap().certificate.unwrap().key, std::path::PathBuf::from("k"));
}

#[test]
fn on_failure_of_a_rule_overrides_that_of_redis() {
    let rules = "[rules.a]\nper = []\nrate = '1/s'\n\
                 [rules.b]\nper = []\nrate = '1/s'\non_failure = 'local'";
    let policy = redis(&format!("url = 'redis://h'\non_failure = 'deny'\n{rules}"));
    let words: Vec<OnFailure> = policy.rules.iter().map(|rule| rule.on_failure).collect();
    assert_eq!(words, [OnFailure::Deny, OnFailure::Local]);
}

#[test]
fn breaker_settings_are_read() {
    let policy = redis(
        "url = 'redis://h'\nready = 'connected'\nstart_without = 'full'\n\
         [redis.breaker]\ntimeouts = 1\nwindow = '1h'\nwindow_calls = 100_000\n\
         window_timeouts = 100\nopen = '1ms'\nopen_max = '1ms'\nprobes = 100\n\
         ramp = [5, 5, 100]\nramp_step = '250ms'\n\
         [server]\ninstances = 10_000\n[headers]\nmode = true",
    );
    assert_eq!((policy.server.instances, policy.headers.mode), (Some(10_000), true));
    let redis = policy.redis.unwrap();
    assert_eq!((redis.ready, redis.start_without), (Ready::Connected, StartWithout::Full));
    let expected = Settings {
        timeouts: 1,
        window_us: 3600 * SECOND,
        window_calls: 100_000,
        window_timeouts_percent: 100,
        open_us: 1_000,
        open_max_us: 1_000,
        probes: 100,
        ramp: vec![5, 5, 100],
        ramp_step_us: SECOND / 4,
    };
    assert_eq!(redis.breaker, expected);
}

#[test]
fn open_max_defaults_to_1s_with_sentinels() {
    let open_max = |lines: &str| {
        let text = format!("url = 'redis+sentinel://a/m'\n{lines}");
        redis(&text).redis.unwrap().breaker.open_max_us
    };
    assert_eq!(open_max(""), SECOND);
    assert_eq!(open_max("breaker.open = '1s'"), SECOND);
    assert_eq!(open_max("breaker.open_max = '15s'"), 15 * SECOND);
}

#[test]
fn sample_may_be_any_number() {
    for number in ["1", "+1", "1.0", "1e0", "0x1", "0o1", "0b1", "10_0e-2"] {
        let policy = smallest_with(&format!("[tracing]\nsample = {number}"));
        let tracing = policy.tracing.unwrap();
        assert_eq!(Some(tracing.sample), SamplingRatio::of(1.0), "{number}");
    }
}

#[test]
fn database_may_be_zero_in_any_notation() {
    for number in ["0", "-0", "+0", "0x0"] {
        let text = format!("[redis]\nurl = 'redis://127.0.0.1'\ndatabase = {number}");
        assert_eq!(smallest_with(&text).redis.unwrap().database, 0, "{number}");
    }
}
