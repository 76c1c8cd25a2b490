//! Leases that cannot be, or have no effect.

use super::super::render;

/// The diagnostics of a rule with these settings.
fn lease(settings: &str) -> String {
    render(&format!("[redis]\nurl = 'redis://127.0.0.1'\n[rules.r]\nper = []\n{settings}"))
}

#[test]
fn leases_of_token_buckets() {
    for limit in ["rate = '10/s'", "limit = '100/m'", "rate = '10/s'\nburst = 500"] {
        for value in ["'auto'", "'off'", "1", "1000000"] {
            assert_eq!(lease(&format!("{limit}\nlease = {value}")), "no errors\n", "{value}");
        }
    }
    assert_eq!(lease("kind = 'concurrency'\nlimit = 5\nlease = 'off'"), "no errors\n");
}

#[test]
fn lease_of_another_kind() {
    insta::assert_snapshot!(lease("kind = 'sliding_window'\nlimit = '10/s'\nlease = 'auto'"));
    for kind in ["fixed_window'\nlimit = '10/d", "leaky_bucket'\nrate = '10/s"] {
        let found = lease(&format!("kind = '{kind}'\nlease = 10"));
        assert!(found.contains("`lease` is for token buckets"), "{found}");
    }
}

#[test]
fn lease_of_0() {
    insta::assert_snapshot!(lease("rate = '10/s'\nlease = 0"));
}

#[test]
fn lease_of_another_word() {
    insta::assert_snapshot!(lease("rate = '10/s'\nlease = 'on'"));
}

#[test]
fn lease_of_another_type() {
    insta::assert_snapshot!(lease("rate = '10/s'\nlease = true"));
}

#[test]
fn lease_in_shadow_mode() {
    insta::assert_snapshot!(lease("rate = '10/s'\nmode = 'shadow'\nlease = 'auto'"));
}

#[test]
fn lease_without_redis() {
    insta::assert_snapshot!(render("[rules.r]\nper = []\nrate = '10/s'\nlease = 'auto'"));
    let disabled = "[rules.r]\nper = []\nrate = '10/s'\nenabled = false\nlease = 'auto'";
    assert_eq!(render(disabled), "no errors\n");
}
