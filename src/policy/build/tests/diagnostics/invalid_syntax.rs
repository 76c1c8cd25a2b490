//! Text that is not TOML.

use super::super::render;

#[test]
fn a_string_needs_quotes() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = 10/s\nburst = 'x'\n"), @r#"
    error: a string needs quotes
     --> gateway.toml:3:8
      |
    3 | rate = 10/s
      |        ^^^^
      |
      = help: write it as `"…"`

    error: `burst` is a whole number, not a string
     --> gateway.toml:4:9
      |
    4 | burst = 'x'
      |         ^^^

    gateway.toml: 2 errors
    "#);
}

#[test]
fn a_string_is_not_closed() {
    insta::assert_snapshot!(render("[rules.r]\nrate = \"10/s\nburst = 5"), @r#"
    error: a string is not closed
     --> gateway.toml:2:13
      |
    2 | rate = "10/s
      |             ^
      |
      = help: end it with the quote that begins it

    gateway.toml: 1 error
    "#);
}

#[test]
fn a_table_s_name_is_not_closed() {
    insta::assert_snapshot!(render("[rules.r\nrate = '1/s'"), @r"
    error: a table's name is not closed
     --> gateway.toml:1:9
      |
    1 | [rules.r
      |         ^
      |
      = help: end it with `]`

    gateway.toml: 1 error
    ");
}

#[test]
fn rate_is_written_twice() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '1/s'\nrate = '2/s'"), @r"
    error: `rate` is written twice
     --> gateway.toml:4:1
      |
    4 | rate = '2/s'
      | ^^^^
      |
      = help: keep one of them

    gateway.toml: 1 error
    ");
}

#[test]
fn a_list_is_not_closed_or_lacks_a_comma() {
    insta::assert_snapshot!(render("[rules.r]\nper = ['a'\nrate = '1/s'"), @r"
    error: a list is not closed, or lacks a comma
     --> gateway.toml:2:11
      |
    2 | per = ['a'
      |           ^
      |
      = help: end it with `]`, or put `,` between its items

    gateway.toml: 1 error
    ");
}

#[test]
fn a_name_without_a_value() {
    insta::assert_snapshot!(render("[server]\nlisten"), @r"
    error: a name without a value
     --> gateway.toml:2:7
      |
    2 | listen
      |       ^
      |
      = help: write it as `name = value`

    gateway.toml: 1 error
    ");
}

#[test]
fn threads_is_a_whole_number_not_a_string() {
    insta::assert_snapshot!(render("\r\n[server]\r\n\tthreads = 'ä'  # tab and CRLF\r\n"), @r"
    error: `threads` is a whole number, not a string
     --> gateway.toml:3:12
      |
    3 |     threads = 'ä'  # tab and CRLF
      |               ^^^

    gateway.toml: 1 error
    ");
}
