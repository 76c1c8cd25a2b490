//! `ban`: clients that go on after refusals.

use super::super::render;

/// The diagnostics of a rule with these settings.
fn rule(settings: &str) -> String {
    render(&format!(
        "[clients]\nanonymous_plan = 'pro'\n[plans.pro]\n[rules.r]\nrate = '10/s'\n{settings}"
    ))
}

#[test]
fn bans_of_rules_that_count_clients_apart() {
    for settings in [
        "per = ['ip']\nban = {}",
        "per = ['key', 'route']\nban = { after = 1, within = '1s', for = '1s', grow = 100, max = '30d' }",
        "per = ['header:x-user']\nban = { for = '7d' }",
        "per = ['tenant']\nenforce = '10%'\nban = { after = 100000 }",
        "per = ['ip']\ncandidate = { rate = '5/s' }\nban = { for = '1m', max = '1m' }",
    ] {
        assert_eq!(rule(settings), "no errors\n", "{settings}");
    }
}

#[test]
fn mistakes_in_ban() {
    let written = [
        "per = ['ip']\nban = '10m'",
        "per = ['ip']\nban = { after = 0 }",
        "per = ['ip']\nban = { for = 600 }",
        "per = ['ip']\nban = { within = '1ms' }",
        "per = ['ip']\nban = { grow = 0.5 }",
        "per = ['ip']\nban = { for = '2h', max = '1h' }",
        "per = ['ip']\nban = { findtime = '1m' }",
        "per = ['ip']\nmode = 'shadow'\nban = {}",
        "per = []\nban = {}",
        "per = ['plan', 'route']\nban = {}",
    ];
    let all: Vec<String> = written.into_iter().map(rule).collect();
    insta::assert_snapshot!(all.join("\n"));
}
