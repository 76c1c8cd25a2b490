//! Warnings of valid files.

use super::super::{render, render_whole};

const RULE: &str = "[rules.per-key]\nper = ['key']\n";

/// A key of a plan. `digit` makes its hash.
fn key(id: &str, plan: &str, digit: char) -> String {
    format!("[keys.{id}]\nsha256 = '{}'\nplan = '{plan}'\n", digit.to_string().repeat(64))
}

#[test]
fn no_rule_limits_a_key_of_a_plan() {
    let plans = "[plans.free]\n[plans.pro]\n";
    let rule = format!("{RULE}plans.free = {{ rate = '10/s' }}\n");
    insta::assert_snapshot!(render(&format!("{plans}{}{rule}", key("acme", "pro", 'a'))), @r#"
    warning: no rule limits the key `acme` of the plan `pro`
     --> gateway.toml:2:8
      |
    2 | [plans.pro]
      |        ^^^
    3 | [keys.acme]
      |       ---- unlimited
      |
      = help: under `[rules.per-key]`, add `plans.pro = { rate = "100/s" }`; to leave a key unlimited on purpose, list it under `exempt.keys` of the rule

    gateway.toml: 1 warning
    "#);
    let keys = format!("{}{}", key("acme", "pro", 'a'), key("umbrella", "pro", 'b'));
    let shadow = format!("{RULE}rate = '10/s'\nmode = 'shadow'\n");
    insta::assert_snapshot!(render(&format!("{plans}{keys}{shadow}")), @r#"
    warning: no rule limits 2 keys of the plan `pro`
     --> gateway.toml:2:8
      |
    2 | [plans.pro]
      |        ^^^
    3 | [keys.acme]
      |       ---- unlimited
    ...
    9 | [rules.per-key]
      |        ------- this rule has a rate for it, but `mode = "shadow"`
      |
      = help: under `[rules.per-key]`, write `mode = "enforce"`

    gateway.toml: 1 warning
    "#);
    insta::assert_snapshot!(render(&key("acme", "pro", 'a').replace("plan = 'pro'\n", "")), @r#"
    warning: no rule limits the key `acme` of the plan `default`
     --> gateway.toml:1:7
      |
    1 | [keys.acme]
      |       ^^^^
      |
      = help: add a rule, such as

              [rules.all-keys]
              per = ["key"]
              rate = "100/s"

    gateway.toml: 1 warning
    "#);
}

#[test]
fn plan_is_limited_by_a_rate_a_table_or_overrides_or_exempt_on_purpose() {
    let file = format!("[plans.free]\n[plans.pro]\n{}", key("acme", "pro", 'a'));
    for limits in [
        format!("{RULE}rate = '10/s'"),
        format!("{RULE}plans.pro = {{ rate = '10/s' }}"),
        format!(
            "{RULE}plans.free = {{ rate = '10/s' }}\n[keys.acme.rules]\nper-key = {{ rate = '5/s' }}"
        ),
        format!("{RULE}plans.free = {{ rate = '10/s' }}\nexempt = {{ keys = ['acme'] }}"),
        "[rules.all]\nper = []\nrate = '10/s'".to_owned(),
    ] {
        assert_eq!(render(&format!("{file}{limits}\n")), "no errors\n", "{limits}");
    }
    for limits in [
        format!("{RULE}rate = '10/s'\nenabled = false"),
        format!("{RULE}rate = '10/s'\nmode = 'shadow'"),
        format!("{RULE}plans.free = {{ rate = '10/s' }}"),
        format!("{RULE}rate = '10/s'\nenabled = false\nexempt = {{ keys = ['acme'] }}"),
    ] {
        let shown = render(&format!("{file}{limits}\n"));
        assert!(shown.ends_with("gateway.toml: 1 warning\n"), "{limits}\n{shown}");
    }
    // A plan without keys, such as that of clients without one.
    assert_eq!(
        render(&format!("[plans.free]\n[plans.pro]\n{RULE}plans.free = {{ rate = '1/s' }}")),
        "no errors\n"
    );
}

#[test]
fn burst_doubles_the_limit_of_a_day() {
    let per_ip = "[rules.day]\nper = ['ip']\nrate = '1000/d'\n";
    insta::assert_snapshot!(render(per_ip), @r#"
    warning: the rule `day` lets 2000 requests pass in the first day
     --> gateway.toml:3:8
      |
    3 | rate = '1000/d'
      |        ^^^^^^^^ 1000 at once, because the default burst is 1000, and 1000 by the rate
      |
      = help: for at most 1000, write `rate = "750/d"` and `burst = 250`; with `burst = 41`, it lets 1041 pass

    gateway.toml: 1 warning
    "#);
    insta::assert_snapshot!(render("[plans.free]\n[rules.day]\nper = []\nplans.free = { rate = '10/h', burst = 240 }\n"), @r#"
    warning: the rule `day` lets 480 requests pass in the first day for the plan `free`
     --> gateway.toml:4:39
      |
    4 | plans.free = { rate = '10/h', burst = 240 }
      |                                       ^^^ 240 at once, and 240 by the rate `10/h`
      |
      = help: for at most 240, write `rate = "8/h"` and `burst = 48`; with `burst = 10`, it lets 250 pass

    gateway.toml: 1 warning
    "#);
    for burst in ["burst = 999", "burst = 1", "burst = 5000\nenabled = false"] {
        assert_eq!(render(&format!("{per_ip}{burst}")), "no errors\n", "{burst}");
    }
}

#[test]
fn preflight_requests_get_401() {
    insta::assert_snapshot!(render("[clients]\non_missing_key = 'deny'\non_unknown_key = 'accept'\n"), @r#"
    warning: CORS preflight requests carry no key, and get 401
     --> gateway.toml:2:18
      |
    2 | on_missing_key = 'deny'
      |                  ^^^^^^
    ...
    7 | [routes.all]
      |         --- this route takes OPTIONS
      |
      = help: if pages of other sites call the API, write `[cors]` with their `origins`, or, if upstreams answer such requests, `on_preflight = "anonymous"` under `[clients]`; if not, `on_preflight = "deny"`

    gateway.toml: 1 warning
    "#);
    let rule = format!("{RULE}rate = '10/s'\non_missing = 'deny'\n");
    insta::assert_snapshot!(render(&rule), @r#"
    warning: every request that `per-key` applies to gets 401: it needs an API key, and the file has none
     --> gateway.toml:4:14
      |
    4 | on_missing = 'deny'
      |              ^^^^^^
      |
      = help: `tollgate hash-key` makes a key and its lines for the file

    warning: CORS preflight requests carry no key, and get 401
     --> gateway.toml:4:14
      |
    4 | on_missing = 'deny'
      |              ^^^^^^
    ...
    8 | [routes.all]
      |         --- this route takes OPTIONS
      |
      = help: if pages of other sites call the API, write `[cors]` with their `origins`, or, if upstreams answer such requests, `on_preflight = "anonymous"` under `[clients]`; if not, `on_preflight = "deny"`

    gateway.toml: 2 warnings
    "#);
    for settled in ["on_preflight = 'deny'", "on_preflight = 'anonymous'"] {
        let clients = format!(
            "[clients]\non_missing_key = 'deny'\non_unknown_key = 'accept'\n{settled}\n{rule}"
        );
        assert_eq!(render(&clients), "no errors\n", "{settled}");
    }
    let listed = "[clients]\non_missing_key = 'deny'\non_unknown_key = 'accept'\n[upstreams.api]\nservers = ['demo']\n\
                  [routes.a]\nmethods = ['GET', 'POST']\n";
    assert_eq!(render_whole(listed), "no errors\n");
    let named = listed.replace("'POST'", "'OPTIONS'");
    assert!(render_whole(&named).starts_with("warning: CORS preflight"));
    // Only the rule of a route that takes OPTIONS.
    let rule = format!("{rule}routes = ['a']\n");
    let both = listed.replace("on_missing_key = 'deny'", "") + "[routes.b]\nhost = 'b'\n" + &rule;
    assert_eq!(render_whole(&both), "no errors\n");
}

#[test]
fn errors_come_before_warnings_and_both_are_counted() {
    let text = "[clients]\non_missing_key = 'deny'\n[rules.day]\nper = ['ip']\nrate = '1000/d'\n[rules.b]\nper = ['ips']\nrate = '1/x'\n";
    insta::assert_snapshot!(render(text), @r#"
    error: `per` does not take `ips`
     --> gateway.toml:7:8
      |
    7 | per = ['ips']
      |        ^^^^^
      |
      = help: did you mean `ip`?

    error: unknown unit `x`
     --> gateway.toml:8:8
      |
    8 | rate = '1/x'
      |        ^^^^^
      |
      = help: a rate looks like `10/s`, `100/10s` or `5/250ms`; the units are ms, s, m, h and d

    warning: every request gets 401: it needs an API key, and the file has none
     --> gateway.toml:2:18
      |
    2 | on_missing_key = 'deny'
      |                  ^^^^^^
      |
      = help: `tollgate hash-key` makes a key and its lines for the file

    warning: CORS preflight requests carry no key, and get 401
      --> gateway.toml:2:18
       |
     2 | on_missing_key = 'deny'
       |                  ^^^^^^
    ...
    12 | [routes.all]
       |         --- this route takes OPTIONS
       |
       = help: if pages of other sites call the API, write `[cors]` with their `origins`, or, if upstreams answer such requests, `on_preflight = "anonymous"` under `[clients]`; if not, `on_preflight = "deny"`

    warning: the rule `day` lets 2000 requests pass in the first day
     --> gateway.toml:5:8
      |
    5 | rate = '1000/d'
      |        ^^^^^^^^ 1000 at once, because the default burst is 1000, and 1000 by the rate
      |
      = help: for at most 1000, write `rate = "750/d"` and `burst = 250`; with `burst = 41`, it lets 1041 pass

    gateway.toml: 2 errors, 3 warnings
    "#);
}

#[test]
fn misspelt_setting_is_not_also_a_warning() {
    for text in [
        "[clients]\non_unknown_key = 'accept'\non_missing_key = 'deny'\non_prefligth = 'deny'\n",
        "[clients]\non_unknown_key = 'accept'\non_missing_key = 'deny'\non_preflight = 'alow'\n",
    ] {
        let shown = render(text);
        assert!(shown.ends_with("gateway.toml: 1 error\n"), "{shown}");
    }
}

#[test]
fn path_with_a_slash_at_its_end_is_no_prefix() {
    let file = |route: &str| render(&format!("[routes.api]\n{route}\n"));
    insta::assert_snapshot!(file("path = '/api/'"), @r#"
    warning: `/api/` matches this path only, and no path below it
     --> gateway.toml:2:8
      |
    2 | path = '/api/'
      |        ^^^^^^^
      |
      = help: for all paths below it, write `/api/*`; for this path only, `/api`, which matches both

    gateway.toml: 1 warning
    "#);
    let root = "[upstreams.api]\nservers = ['demo']\n[routes.api]\npath = '/'\n";
    insta::assert_snapshot!(render_whole(root), @r#"
    warning: `/` matches this path only, and no path below it
     --> gateway.toml:4:8
      |
    4 | path = '/'
      |        ^^^
      |
      = help: for all paths, write `/*`; for this path only, add `trailing_slash = "distinct"`

    gateway.toml: 1 warning
    "#);
    for meant in ["trailing_slash = 'distinct'", "[routes.rest]", "[routes.rest]\npath = '/*'"] {
        assert_eq!(render_whole(&format!("{root}{meant}\n")), "no errors\n", "{meant}");
    }
    for meant in [
        "path = '/api/*'",
        "path = '/api'",
        "path = '/'",
        "path = '/api/'\ntrailing_slash = 'distinct'",
        "path = '/api/'\n[routes.below]\npath = '/api/*'",
        "path = '/api/'\n[routes.below]\npath = '/api/users'",
    ] {
        assert_eq!(file(meant), "no errors\n", "{meant}");
    }
}

#[test]
fn clients_choose_what_they_are_counted_by() {
    let rule = "[rules.own]\nper = ['header:X-Forwarded-For', 'route']\nrate = '1/s'\n";
    let file = format!("[server]\ntrusted_proxies = ['10.0.0.0/8', '0.0.0.0/0']\n{rule}");
    insta::assert_snapshot!(render(&file), @r#"
    warning: `0.0.0.0/0` trusts every client: each can choose its address by X-Forwarded-For
     --> gateway.toml:2:34
      |
    2 | trusted_proxies = ['10.0.0.0/8', '0.0.0.0/0']
      |                                  ^^^^^^^^^^^
      |
      = help: list the addresses of the proxies, such as `"10.0.0.0/8"`

    warning: `own` counts by a header that clients can write: each value has the whole limit
     --> gateway.toml:4:8
      |
    4 | per = ['header:X-Forwarded-For', 'route']
      |        ^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: for the address of the client, write `"ip"`, and list the proxies in front of the gateway in `trusted_proxies`

    gateway.toml: 2 warnings
    "#);
    let tenant = rule.replace("X-Forwarded-For", "X-Tenant");
    assert_eq!(render(&tenant), "no errors\n");
    assert_eq!(render(&format!("{rule}enabled = false\n")), "no errors\n");
}
