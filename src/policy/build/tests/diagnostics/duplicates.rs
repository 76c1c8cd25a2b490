//! Tables and settings that are written twice.

use super::super::{messages, render};

#[test]
fn table_is_written_twice() {
    insta::assert_snapshot!(render("[server]\nthreads = 1\n\n[plans.free]\n\n[server]\nthreads = 2\nread_timeout = '5s'\n"), @r"
    error: the table `server` is written twice
     --> gateway.toml:6:2
      |
    1 | [server]
      |  ------ here first
    ...
    6 | [server]
      |  ^^^^^^
      |
      = help: write the settings of both under one `[server]`

    gateway.toml: 1 error
    ");
}

#[test]
fn setting_is_written_twice() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nburst = 5\nrate = '2/s'\n"), @r"
    error: `rate` is written twice
     --> gateway.toml:5:1
      |
    3 | rate = '1/s'
      | ---- here first
    4 | burst = 5
    5 | rate = '2/s'
      | ^^^^
      |
      = help: keep one of them

    gateway.toml: 1 error
    ");
}

#[test]
fn setting_in_braces_is_written_twice() {
    insta::assert_snapshot!(render("[plans.free]\n[rules.r]\nper = []\nplans.free = { rate = '1/s', rate = '2/s' }\n"), @r"
    error: `rate` is written twice
     --> gateway.toml:4:30
      |
    4 | plans.free = { rate = '1/s', rate = '2/s' }
      |                ----          ^^^^
      |                |
      |                here first
      |
      = help: keep one of them

    gateway.toml: 1 error
    ");
}

#[test]
fn table_in_braces_is_written_again_as_a_table() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nexempt = { ips = [] }\n[rules.r.exempt]\nips = []\n"), @r"
    error: `exempt` is written twice
     --> gateway.toml:5:10
      |
    4 | exempt = { ips = [] }
      | ------ here first
    5 | [rules.r.exempt]
      |          ^^^^^^
      |
      = help: keep one of them

    gateway.toml: 1 error
    ");
}

#[test]
fn dotted_setting_of_a_table_is_written_twice() {
    insta::assert_snapshot!(render("[plans.free]\n[rules.r]\nper = []\nplans.free.rate = '1/s'\nplans.free.rate = '2/s'\n[redis.breaker]\nprobes = 1\n[redis]\nurl = 'redis://h'\nbreaker.open = '1s'\n"), @r"
    error: `rate` is written twice
     --> gateway.toml:5:12
      |
    4 | plans.free.rate = '1/s'
      |            ---- here first
    5 | plans.free.rate = '2/s'
      |            ^^^^
      |
      = help: keep one of them

    error: `breaker` is written twice
      --> gateway.toml:10:1
       |
     6 | [redis.breaker]
       |        ------- here first
    ...
    10 | breaker.open =*****
       | ^^^^^^^
       |
       = help: keep one of them

    gateway.toml: 2 errors
    ");
}

#[test]
fn value_is_written_again_as_a_table() {
    insta::assert_snapshot!(render("[server]\nthreads = 1\nthreads.a = 1\n"), @r"
    error: `threads` is written twice
     --> gateway.toml:3:1
      |
    2 | threads = 1
      | ------- here first
    3 | threads.a = 1
      | ^^^^^^^
      |
      = help: keep one of them

    gateway.toml: 1 error
    ");
}

#[test]
fn list_of_tables_is_written_again_as_a_table() {
    insta::assert_snapshot!(render("[[rules]]\nname = 'a'\n[rules]\n"), @r"
    error: the table `rules` is written twice
     --> gateway.toml:3:2
      |
    1 | [[rules]]
      |   ----- here first
    2 | name = 'a'
    3 | [rules]
      |  ^^^^^
      |
      = help: write `[rules.<name>]` for each rule, without double brackets

    gateway.toml: 1 error
    ");
}

#[test]
fn each_duplicate_is_one_error() {
    let table: [(&str, &[&str]); 5] = [
        ("[server]\nthreads = 1\n[server]\nthreads = 2", &["the table `server` is written twice"]),
        ("[memory]\n[memory]\n[memory]", &["the table `memory` is written twice"; 2]),
        ("[server]\nthreads = 1\nthreads = 2\nthreads = 3", &["`threads` is written twice"; 2]),
        (
            "[server]\nthreads = 1\nthreads = 2\nlisten = 5",
            &["`threads` is written twice", "`listen` is a list, not a number"],
        ),
        // The same names in two entries of a list are no duplicates.
        (
            "[[rules]]\nname = 'a'\n[[rules]]\nname = 'b'",
            &["`rules` is a table with names, not a list"],
        ),
    ];
    for (text, expected) in table {
        assert_eq!(messages(&format!("{text}\n{}", super::super::SMALLEST)), expected, "{text}");
    }
}

#[test]
fn table_is_written_again_as_a_list_of_tables() {
    let rules = render("[rules.r]\nper = []\nrate = '1/s'\n\n[[rules]]\nname = 's'\n");
    insta::assert_snapshot!(rules, @r"
    error: the table `rules` is written twice
     --> gateway.toml:5:3
      |
    1 | [rules.r]
      |  ----- here first
    ...
    5 | [[rules]]
      |   ^^^^^
      |
      = help: write `[rules.<name>]` for each rule, without double brackets

    gateway.toml: 1 error
    ");
    for text in ["[[rules]]\n[rules]\n", "[rules]\n[[rules]]\n"] {
        let shown = render(text);
        assert!(shown.contains("write `[rules.<name>]` for each rule"), "{shown}");
    }
    for text in ["[server]\n[[server]]\n", "[[server]]\n[server]\n"] {
        let shown = render(text);
        assert!(shown.contains("under one `[server]`"), "{shown}");
    }
}
