//! `[[admin.tokens]]` and `[tenants]`.

use super::super::render;

#[test]
fn tokens_of_the_admin_port_are_wrong() {
    let one = "sha256 = '0000000000000000000000000000000000000000000000000000000000000001'";
    let two = one.replace("01'", "02'");
    insta::assert_snapshot!(render(&format!(
        "[[admin.tokens]]\n{one}\n[[admin.tokens]]\nname = 'a'\n\
         [[admin.tokens]]\nname = 'b'\n{one}\n[[admin.tokens]]\nname = 'b'\n{one}\nroles = []\n\
         [[admin.tokens]]\nname = 'c'\n{two}\nroles = ['reed', 'operate']\n\
         [[admin.tokens]]\nname = 'd'\n{two}\nroles = ['operate']\ntenant = 'acme'\n\
         not_before = 2027-01-01T00:00:00Z\nexpires = 2026-01-01T00:00:00Z\n"
    )));
}

#[test]
fn tenant_does_not_exist() {
    insta::assert_snapshot!(render(
        "[plans.free]\n[plans.pro]\n[tenants.acme]\nplan = 'prro'\n[keys.a]\ntenant = 'acmee'\n\
         sha256 = '0000000000000000000000000000000000000000000000000000000000000001'\nplan = 'free'\n\
         [rules.r]\nper = ['tenants']\nrate = '1/s'\n[tenants.acme.rules.q]\nrate = '1/s'\n"
    ));
}
