//! `allow_ips` and `deny_ips` of `[server]` and of routes.

use super::super::render;

#[test]
fn lists_are_valid() {
    let file = "[server]\nallow_ips = ['0.0.0.0/0', '::/0']\ndeny_ips = []\n[routes.a]\npath = '/a'\n\
        allow_ips = ['192.0.2.7', '2001:db8::/32']\ndeny_ips = ['192.0.2.7', '192.0.2.7']\n\
        respond = {}\n";
    assert_eq!(render(file), "no errors\n");
}

#[test]
fn lists_are_invalid() {
    insta::assert_snapshot!(render(
        "[server]\nallow_ips = []\ndeny_ips = ['10.0.0.1/8', '::ffff:192.0.2.7', 'localhost']\n\
         [routes.a]\npath = '/a'\nallow_ips = '10.0.0.0/8'\ndeny_ips = ['file:', 'none.txt', 7]"
    ));
}

#[test]
fn lists_have_the_names_of_other_gateways() {
    insta::assert_snapshot!(render(
        "[server]\ndeny = ['192.0.2.7']\nwhitelist = []\n[routes.a]\npath = '/a'\nallow = '10.0.0.0/8'\n\
         ip_restriction = {}\nipallowlist = {}\nsource_range = []\nallow_ip = []"
    ));
}
