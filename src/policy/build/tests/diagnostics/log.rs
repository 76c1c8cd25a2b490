//! Settings of the log of the process.

use super::super::render;

#[test]
fn format_and_level_are_words() {
    insta::assert_snapshot!(render("[log]\nformat = 'jsn'\nlevel = 'warning'\nfile = '/a'"), @r#"
    error: `format` is `text` or `json`, not `jsn`
     --> gateway.toml:2:10
      |
    2 | format = 'jsn'
      |          ^^^^^
      |
      = help: did you mean `format = "json"`?

    error: `level` is `error`, `warn`, `info` or `debug`, not `warning`
     --> gateway.toml:3:9
      |
    3 | level = 'warning'
      |         ^^^^^^^^^
      |
      = help: did you mean `level = "warn"`?

    error: unknown name `file` in `log`
     --> gateway.toml:4:1
      |
    4 | file = '/a'
      | ^^^^
      |
      = help: possible here: `format` and `level`

    gateway.toml: 3 errors
    "#);
}
