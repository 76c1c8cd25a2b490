//! Text that is not TOML.

use super::super::{messages, render};

const BRACES: &str = "a table in braces is not closed, or lacks a comma";
const COLON: &str = "`=` follows a name, not `:`";

#[test]
fn a_string_needs_quotes() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = 10/s\nburst = []\n"), @r#"
    error: a string needs quotes
     --> gateway.toml:3:8
      |
    3 | rate = 10/s
      |        ^^^^
      |
      = help: write it as `"…"`

    error: `burst` is a whole number or a duration, not a list
     --> gateway.toml:4:9
      |
    4 | burst = []
      |         ^^

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
    3 | rate = '1/s'
      | ---- here first
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

#[test]
fn colon_in_place_of_the_equals_sign() {
    insta::assert_snapshot!(render("[rules.r]\nplans.free = { rate = '1/s', burst: 10 }\nper: []"), @r"
    error: `=` follows a name, not `:`
     --> gateway.toml:2:35
      |
    2 | plans.free = { rate = '1/s', burst: 10 }
      |                                   ^
      |
      = help: write `burst = …`

    error: `=` follows a name, not `:`
     --> gateway.toml:3:4
      |
    3 | per: []
      |    ^
      |
      = help: write `per = …`

    gateway.toml: 2 errors
    ");
}

#[test]
fn table_in_braces_is_not_closed() {
    let text = "[rules.r]\nplans.a = { rate = '1/s', burst = 10  # ten\nplans.b = { rate = '2/s' }\n\n\
                [keys.k]\nplan = 'b'\n";
    insta::assert_snapshot!(render(text), @r"
    error: a table in braces is not closed, or lacks a comma
     --> gateway.toml:2:37
      |
    2 | plans.a = { rate = '1/s', burst = 10  # ten
      |                                     ^
      |
      = help: end it with `}`, or put `,` between its settings

    gateway.toml: 1 error
    ");
}

#[test]
fn value_ends_with_its_line() {
    insta::assert_snapshot!(render("[server]\nadmin = '127.0.0.1:9090';\nthreads = 4,"), @r"
    error: a value ends with its line
     --> gateway.toml:2:25
      |
    2 | admin = '127.0.0.1:9090';
      |                         ^
      |
      = help: remove the `,` or `;` after it

    error: a value ends with its line
     --> gateway.toml:3:12
      |
    3 | threads = 4,
      |            ^
      |
      = help: remove the `,` or `;` after it

    gateway.toml: 2 errors
    ");
}

#[test]
fn head_with_a_space() {
    insta::assert_snapshot!(render("[keys.acme inc]\nplan = 'b'\n[plans.b]"), @r"
    error: a table's name holds a character that it cannot hold
     --> gateway.toml:1:11
      |
    1 | [keys.acme inc]
      |           ^
      |
      = help: write it in letters A-Z and a-z, digits, `_` and `-`, without spaces

    gateway.toml: 1 error
    ");
}

/// The first error of each text, with its line and column.
#[test]
fn each_kind_of_invalid_syntax_is_named() {
    let table = [
        ("[[rules.r]", "a table's name is not closed", "1:11"),
        ("[rules.r # x", "a table's name is not closed", "1:9"),
        ("[server]\nthreads =\n", "a value is missing after `=`", "2:10"),
        ("[server]\nthreads # 1", "a name without a value", "2:9"),
        ("[server]\nth\u{e4}d = 1", "a name holds a character that it cannot hold", "2:3"),
        ("[server]\n'threads = 1", "a string is not closed", "2:13"),
        ("[clients]\nhide_key = ture", "this is neither a number, nor `true` or `false`", "2:12"),
        ("[server]\nadmin = a:1", "a string needs quotes", "2:9"),
        ("[server]\nadmin = \"a\\\"", "a string is not closed", "2:12"),
        ("[server]\nadmin = '''a\nb = 1", "a string over several lines is not closed", "6:13"),
        ("[rules.r]\nper = ['a' 'b']", "a list is not closed, or lacks a comma", "2:11"),
        ("[rules.r]\nper = ['a' # b\nrate", "a list is not closed, or lacks a comma", "2:11"),
        ("[plans]\na = { b = '1' c = '2' }", BRACES, "2:14"),
        ("[plans]\na = { b = [1] # c\n\n[x]", BRACES, "2:14"),
        ("[plans]\na = { b.c = { d = 1 } ]", BRACES, "2:22"),
        ("server: 1", COLON, "1:7"),
        ("[server]\nthreads:4", COLON, "2:8"),
        ("[rules.r]\nplans.a = { rate: '1/s' }", COLON, "2:17"),
        ("// x", "a comment begins with `#`", "1:1"),
        ("[server]\n; x", "a comment begins with `#`", "2:1"),
        ("[server]\nthreads = 4;", "a value ends with its line", "2:11"),
        ("[server]\nthreads = 4,", "a value ends with its line", "2:12"),
        ("[server]\nadmin = 'a' ;", "a value ends with its line", "2:13"),
        ("[rules.r]\nper = ['ip'], # x", "a value ends with its line", "2:13"),
        ("[rules.r]\nplans.a = { rate = '1/s' };", "a value ends with its line", "2:27"),
        ("[keys.two words]", "a table's name holds a character that it cannot hold", "1:10"),
        ("[keys.a # [b]", "a table's name is not closed", "1:8"),
        ("[rules.r]\nexempt = { ips }", "a name without a value", "2:16"),
        ("[server]\n[server]", "the table `server` is written twice", "2:2"),
        ("[server]\nthreads = 1\nthreads.a = 1", "`threads` is written twice", "3:1"),
    ];
    let mut wrong = String::new();
    for (text, message, place) in table {
        let shown = render(text);
        let expected = format!("error: {message}\n --> gateway.toml:{place}\n");
        if !shown.starts_with(&expected) {
            wrong = format!("{wrong}{expected}instead of\n{shown}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn settings_of_a_broken_head_are_skipped_up_to_the_next_head() {
    let rest = "rate = 5\n[plans.free]\n[routes.r]\ncost = 'x'\n";
    for (head, message) in [
        ("[keys.{id}]", "a name is missing"),
        ("[keys.", "a table's name is not closed"),
        ("[", "a table's name is not closed"),
        ("[[keys.a]", "a table's name is not closed"),
        ("[keys.a", "a table's name is not closed"),
    ] {
        let expected = [message, "`cost` is a number with at most three decimals, not a string"];
        assert_eq!(messages(&format!("{head}\n{rest}")), expected, "{head}");
    }
    assert_eq!(messages("[rules.r\nrate = 5\n"), ["a table's name is not closed"]);
}

#[test]
fn faults_of_names_and_values_are_named() {
    for (text, expected) in [
        ("[a..b]", "a name is missing"),
        ("= 5", "a name is missing"),
        ("a.{b} = 1", "a name is missing"),
        ("\"\"\"a\"\"\" = 1", "a name is written in three quotes"),
        ("server = { l isten = ['x'] }", "a name without a value"),
        ("server = { listen ['x'] }", "a name without a value"),
        ("server = { listen }", "a name without a value"),
        ("server = { listen = }", "a value is missing after `=`"),
        ("a = \"a\u{1}b\"", "a string holds a control character"),
        ("a = 'a\u{7f}b'", "a string holds a control character"),
        ("a = \"\"\"a\u{1}b\"\"\"", "a string holds a control character"),
        ("a = -", "a string needs quotes"),
    ] {
        assert_eq!(messages(text), [expected], "{text}");
    }
}
