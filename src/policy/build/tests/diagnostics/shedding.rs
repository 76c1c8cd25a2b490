//! `max_in_flight` of upstreams and `priority` of plans.

use super::super::render;

#[test]
fn number_of_requests_in_flight_is_named_beside_the_word() {
    let line = |value: &str| {
        let file = format!("[upstreams.b]\nservers = ['demo']\nmax_in_flight = {value}\n");
        let shown = render(&file);
        // Without the errors about other tables.
        let own = shown.split("\n\n").find(|error| error.contains("max_in_flight` is")).unwrap();
        let lines =
            own.lines().filter(|line| line.contains("max_in_flight` is") || line.contains("help"));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("'many'"), "error: `max_in_flight` is a number or `auto`, not `many`");
    assert_eq!(
        line("'200'"),
        "error: `max_in_flight` is a number or `auto`, not `200` = help: write `max_in_flight = 200`"
    );
    assert_eq!(
        line("true"),
        "error: `max_in_flight` is a number or `auto`, not a boolean = help: possible here: a number and `\"auto\"`"
    );
}

#[test]
fn limits_on_requests_in_flight_are_invalid() {
    let file = "[plans.a]\npriority = 1001\n[plans.b]\npriority = 'high'\n[plans.c]\npriority = -2.5\n[upstreams.b]\nservers = ['demo']\nmax_in_flight = 0\n[upstreams.c]\nservers = ['demo']\nmax_in_flight = 'Auto'\n[upstreams.d]\nservers = ['demo']\nmax_conns = 100\n";
    insta::assert_snapshot!(render(file), @r#"
    error: no plan is set for clients without a key
     --> gateway.toml:1:8
      |
    1 | [plans.a]
      |        ^
      |
      = help: under `[clients]`, write `anonymous_plan = "a"`; the plans are `a`, `b` and `c`

    error: `priority` is at least -1000 and at most 1000
     --> gateway.toml:2:12
      |
    2 | priority = 1001
      |            ^^^^

    error: `priority` is a whole number, not a string
     --> gateway.toml:4:12
      |
    4 | priority = 'high'
      |            ^^^^^^

    error: `priority` is a whole number, not a fraction
     --> gateway.toml:6:12
      |
    6 | priority = -2.5
      |            ^^^^

    error: `max_in_flight` is at least 1 and at most 10000000
     --> gateway.toml:9:17
      |
    9 | max_in_flight = 0
      |                 ^
      |
      = help: for as many as the upstream serves well, write `max_in_flight = "auto"`

    error: `max_in_flight` is a number or `auto`, not `Auto`
      --> gateway.toml:12:17
       |
    12 | max_in_flight = 'Auto'
       |                 ^^^^^^
       |
       = help: did you mean `max_in_flight = "auto"`?

    error: unknown name `max_conns` in `upstreams.d`
      --> gateway.toml:15:1
       |
    15 | max_conns = 100
       | ^^^^^^^^^
       |
       = help: write `max_in_flight = 100`: `"auto"` finds the number

    error: the route `all` has no upstream
      --> gateway.toml:19:9
       |
    19 | [routes.all]
       |         ^^^
       |
       = help: add `upstream = "b"`, or another one

    gateway.toml: 8 errors
    "#);
}

#[test]
fn limits_on_connections_are_invalid() {
    let own = |settings: &str| {
        let shown = render(&format!("[upstreams.b]\nservers = ['demo']\n{settings}\n"));
        let errors = shown.split("\n\n").filter(|error| error.contains("max_"));
        let lines = errors.flat_map(|error| error.lines()).map(str::trim);
        let lines = lines.filter(|line| line.starts_with("error") || line.starts_with("= help"));
        lines.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(own("max_connections = 1\nmax_pending = 0"), "");
    assert_eq!(
        own("max_connections = 0"),
        "error: `max_connections` is at least 1 and at most 1000000"
    );
    assert_eq!(
        own("max_pending = 10"),
        "error: `max_pending` is for requests that wait because of `max_connections` = help: write \
         `max_connections = 200`, too, or take `max_pending` out"
    );
}
