//! Tables with names that are written as lists or as single values.

use super::super::render;

const HASH: &str = "9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f";

#[test]
fn rules_are_written_as_a_list_of_tables() {
    insta::assert_snapshot!(render("[[rules]]\nname = 'per-ip'\nper = ['ip']\nrate = '1/s'\n\n[[rules]]\nper = ['key']\nrate = '1/s'\n"), @r"
    error: `rules` is a table with names, not a list
     --> gateway.toml:1:1
      |
    1 | [[rules]]
      | ^^^^^^^^^
    ...
    6 | [[rules]]
      | ---------
      |
      = help: write `[rules.per-ip]`, `[rules.rule-2]`, each with its settings below

    gateway.toml: 1 error
    ");
}

#[test]
fn every_table_with_names_suggests_a_head() {
    let each =
        ["plans", "keys", "rules"].map(|table| render(&format!("[[{table}]]\nname = 'a b'\n")));
    insta::assert_snapshot!(each.join("\n"), @r"
    error: `plans` is a table with names, not a list
     --> gateway.toml:1:1
      |
    1 | [[plans]]
      | ^^^^^^^^^
      |
      = help: write `[plans.plan-1]`, with its settings below

    gateway.toml: 1 error

    error: `keys` is a table with names, not a list
     --> gateway.toml:1:1
      |
    1 | [[keys]]
      | ^^^^^^^^
      |
      = help: write `[keys.key-1]`, with its settings below

    gateway.toml: 1 error

    error: `rules` is a table with names, not a list
     --> gateway.toml:1:1
      |
    1 | [[rules]]
      | ^^^^^^^^^
      |
      = help: write `[rules.rule-1]`, with its settings below

    gateway.toml: 1 error
    ");
    let each = [("upstreams", "routes.all"), ("routes", "plans.free")].map(|(table, rest)| {
        super::super::render_whole(&format!("[[{table}]]\nname = 'main'\n[{rest}]\n"))
    });
    insta::assert_snapshot!(each.join("\n"), @r#"
    error: `upstreams` is a table with names, not a list
     --> gateway.toml:1:1
      |
    1 | [[upstreams]]
      | ^^^^^^^^^^^^^
      |
      = help: write `[upstreams.main]`, with its settings below

    gateway.toml: 1 error

    error: `routes` is a table with names, not a list
     --> gateway.toml:1:1
      |
    1 | [[routes]]
      | ^^^^^^^^^^
      |
      = help: write `[routes.main]`, with its settings below

    gateway.toml: 1 error
    "#);
}

#[test]
fn plans_are_written_as_a_list() {
    insta::assert_snapshot!(render("plans = ['free', 'pro']\n"), @r"
    error: `plans` is a table with names, not a list
     --> gateway.toml:1:9
      |
    1 | plans = ['free', 'pro']
      |         ^^^^^^^^^^^^^^^
      |
      = help: write `[plans.free]`, `[plans.pro]`, each with its settings below

    gateway.toml: 1 error
    ");
}

#[test]
fn limit_of_a_plan_is_written_without_braces() {
    insta::assert_snapshot!(render("[plans.free]\n[plans.pro]\n[rules.r]\nper = []\nplans.free = '2/s'\nplans.pro = 5\n"), @r#"
    error: `free` is a table, not a string
     --> gateway.toml:5:14
      |
    5 | plans.free = '2/s'
      |              ^^^^^
      |
      = help: in `[rules.r]`, write `plans.free = { rate = "2/s" }`

    error: `pro` is a table, not a number
     --> gateway.toml:6:13
      |
    6 | plans.pro = 5
      |             ^
      |
      = help: in `[rules.r]`, write `plans.pro = { rate = "5/s" }`

    gateway.toml: 2 errors
    "#);
}

#[test]
fn limit_of_a_key_is_written_without_braces() {
    let text = format!(
        "[rules.per-key]\nper = ['key']\nrate = '1/s'\n[keys.acme]\nsha256 = '{HASH}'\nrules.per-key = '5/s'\n"
    );
    insta::assert_snapshot!(render(&text), @r#"
    error: `per-key` is a table, not a string
     --> gateway.toml:6:17
      |
    6 | rules.per-key = '5/s'
      |                 ^^^^^
      |
      = help: in `[keys.acme]`, write `rules.per-key = { rate = "5/s" }`

    gateway.toml: 1 error
    "#);
}

#[test]
fn entry_is_written_as_one_value() {
    insta::assert_snapshot!(super::super::render_whole("[upstreams]\napi = '127.0.0.1:3000'\nother = ['a:1', 'b:2']\n[routes]\nx = '/path'\n[plans]\nfree = '10/s'\n[rules]\nr = '10/s'\n"), @r#"
    error: `api` is a table, not a string
     --> gateway.toml:2:7
      |
    2 | api = '127.0.0.1:3000'
      |       ^^^^^^^^^^^^^^^^
      |
      = help: in `[upstreams]`, write `api = { servers = ["127.0.0.1:3000"] }`

    error: `upstreams.other` is a table, not a list
     --> gateway.toml:3:9
      |
    3 | other = ['a:1', 'b:2']
      |         ^^^^^^^^^^^^^^
      |
      = help: in `[upstreams]`, write `other = { servers = ["a:1", "b:2"] }`

    error: `x` is a table, not a string
     --> gateway.toml:5:5
      |
    5 | x = '/path'
      |     ^^^^^^^
      |
      = help: in `[routes]`, write `x = { path = "/path" }`

    error: `free` is a table, not a string
     --> gateway.toml:7:8
      |
    7 | free = '10/s'
      |        ^^^^^^
      |
      = help: a plan is only a name: write `[plans.free]`, and in a rule `plans.free = { rate = "10/s" }`

    error: `r` is a table, not a string
     --> gateway.toml:9:5
      |
    9 | r = '10/s'
      |     ^^^^^^
      |
      = help: in `[rules]`, write `r = { per = ["ip"], rate = "10/s" }`

    gateway.toml: 5 errors
    "#);
}

#[test]
fn key_is_written_as_its_hash() {
    insta::assert_snapshot!(render(&format!("[keys]\nacme = '{HASH}'\nother = 'sk_live_9f86'\n")), @r#"
    error: `acme` is a table, not a string
     --> gateway.toml:2:8
      |
    2 | acme = '9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f'
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: in `[keys]`, write `acme = { sha256 = "9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f" }`

    error: `other` is a table, not a string
     --> gateway.toml:3:9
      |
    3 | other = **************
      |         ^^^^^^^^^^^^^^
      |
      = help: run `tollgate hash-key`: it prints the table of a key

    gateway.toml: 2 errors
    "#);
}

#[test]
fn suggested_rates_can_be_counted() {
    let written = |value: &str| render(&format!("[rules]\nx = {value}\n"));
    let suggested =
        |rate: &str| format!("in `[rules]`, write `x = {{ per = [\"ip\"], rate = \"{rate}\" }}`\n");
    for value in ["0", "-5", "0xff", "99999999999", "'0/s'", "'5/0s'", "'999999999/99d'"] {
        let shown = written(value);
        assert!(shown.contains(&suggested("10/s")), "{shown}");
    }
    for (value, rate) in [("1_000", "1000/s"), ("'1000000/30d'", "1000000/30d")] {
        let shown = written(value);
        assert!(shown.contains(&suggested(rate)), "{shown}");
    }
}

/// Without quotes, a dot would make another table.
#[test]
fn suggested_names_with_a_dot_are_quoted() {
    let key = format!("[keys]\n'a.b' = '{HASH}'\n");
    let key_help = format!("in `[keys]`, write `\"a.b\" = {{ sha256 = \"{HASH}\" }}`");
    let table = [
        ("[rules]\n'a.b' = '5/s'\n", "write `\"a.b\" = { per = [\"ip\"], rate = \"5/s\" }`"),
        ("[plans]\n'a.b' = '5/s'\n", "write `[plans.\"a.b\"]`, and in a rule `plans.\"a.b\" = {"),
        (
            "[rules.'r.1']\nplans.'a.b' = '5/s'\n",
            "in `[rules.\"r.1\"]`, write `plans.\"a.b\" = { rate = \"5/s\" }`",
        ),
        ("[plans.'a.b']\nrate = '5/s'\n", "in a rule, as `plans.\"a.b\" = { rate = \"10/s\" }`"),
        ("[routes.'a.b']\nlimit = '5/s'\n", "write `routes = [\"a.b\"]`"),
        ("[[rules.'a.b'.exempt]]\nips = []\n", "write `[rules.\"a.b\".exempt]`"),
        ("[clients]\nanonymous_plan = 'a.b'\n", "add `[plans.\"a.b\"]`"),
        (&key, &key_help),
    ];
    for (text, help) in table {
        let shown = render(text);
        assert!(shown.contains(help), "{help}: {shown}");
    }
}
