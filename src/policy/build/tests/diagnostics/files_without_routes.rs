//! Files that serve nothing, and characters of all kinds.

use super::super::render_whole;

#[test]
fn an_empty_file() {
    insta::assert_snapshot!(render_whole(""), @r#"
    error: there are no routes: every request would be answered 404
    --> gateway.toml:1:1
     = help: the smallest file that serves is

             [upstreams.api]
             servers = ["127.0.0.1:3000"]

             [routes.all]
             path = "/*"
             upstream = "api"

    gateway.toml: 1 error
    "#);
}

#[test]
fn a_blank_file() {
    insta::assert_snapshot!(render_whole("\n\n"), @r#"
    error: there are no routes: every request would be answered 404
    --> gateway.toml:1:1
     = help: the smallest file that serves is

             [upstreams.api]
             servers = ["127.0.0.1:3000"]

             [routes.all]
             path = "/*"
             upstream = "api"

    gateway.toml: 1 error
    "#);
}

#[test]
fn a_file_without_routes() {
    insta::assert_snapshot!(render_whole("[upstreams.api]\nservers = ['demo']\n"), @r#"
    error: there are no routes: every request would be answered 404
     --> gateway.toml:1:1
      |
    1 | [upstreams.api]
      | ^
      |
      = help: the smallest file that serves is

              [upstreams.api]
              servers = ["127.0.0.1:3000"]

              [routes.all]
              path = "/*"
              upstream = "api"

    gateway.toml: 1 error
    "#);
}

#[test]
fn the_route_all_has_no_upstream() {
    insta::assert_snapshot!(render_whole("[routes.all]\n"), @r#"
    error: the route `all` has no upstream
     --> gateway.toml:1:9
      |
    1 | [routes.all]
      |         ^^^
      |
      = help: add `[upstreams.api]` with `servers = ["127.0.0.1:3000"]`

    gateway.toml: 1 error
    "#);
}

#[test]
fn a_list_is_not_closed() {
    insta::assert_snapshot!(render_whole("[server]\nlisten = ["), @r"
    error: a list is not closed
     --> gateway.toml:2:11
      |
    2 | listen = [
      |           ^
      |
      = help: end it with `]`

    gateway.toml: 1 error
    ");
}

#[test]
fn a_name_holds_a_character_that_it_cannot_hold() {
    insta::assert_snapshot!(render_whole("[routes.äöü漢]\npath = '漢字*'\t# 漢字\nhost = 'ä'\n[upstreams.a]\nservers = ['demo']"), @r"
    error: a name holds a character that it cannot hold
     --> gateway.toml:1:9
      |
    1 | [routes.äöü漢]
      |         ^^^^^
      |
      = help: write it in letters A-Z and a-z, digits, `_` and `-`

    error: a path begins with `/`
     --> gateway.toml:2:8
      |
    2 | path = '漢字*'    # 漢字
      |        ^^^^^^^
      |
      = help: write `/漢字*`

    error: `ä` is not the name of a host
     --> gateway.toml:3:8
      |
    3 | host = 'ä'
      |        ^^^
      |
      = help: write it as clients send it, in ASCII: such as `xn--bcher-kva.example`

    gateway.toml: 3 errors
    ");
}
