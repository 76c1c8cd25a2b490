//! `enforce` and `candidate`: limits that are introduced step by step.

use super::super::render;

/// The diagnostics of a rule with these settings.
fn rollout(settings: &str) -> String {
    render(&format!(
        "[clients]\nanonymous_plan = 'pro'\n[plans.pro]\n[rules.r]\nper = []\n{settings}"
    ))
}

#[test]
fn shares_and_candidates_of_every_kind() {
    for settings in [
        "rate = '10/s'\nenforce = '0.5%'",
        "rate = '10/s'\nenforce = '0%'",
        "rate = '10/s'\nmode = 'enforce'\nenforce = '100%'",
        "rate = '10/s'\ncandidate = { rate = '5/s', burst = 20 }",
        "kind = 'fixed_window'\nlimit = '10/m'\nzone = 'Europe/Berlin'\ncandidate = { limit = '5/m' }",
        "kind = 'sliding_window'\nlimit = '10/s'\ncandidate = { limit = '5/s' }",
        "kind = 'leaky_bucket'\nrate = '10/s'\ncandidate = { rate = '5/s', max_delay = '2s' }",
        "kind = 'concurrency'\nlimit = 5\ncandidate = { limit = 2 }",
        "mode = 'shadow'\nrate = '10/s'\ncandidate = { rate = '5/s' }",
    ] {
        assert_eq!(rollout(settings), "no errors\n", "{settings}");
    }
}

#[test]
fn mistakes_in_enforce_and_candidate() {
    let written = [
        "rate = '10/s'\nenforce = 0.1",
        "rate = '10/s'\nenforce = '0.1'",
        "rate = '10/s'\nenforce = '101%'",
        "rate = '10/s'\nmode = 'shadow'\nenforce = '10%'",
        "rate = '10/s'\ncandidate = {}",
        "rate = '10/s'\ncandidate = '5/s'",
        "rate = '10/s'\ncandidate = { limit = 'x' }",
        "kind = 'concurrency'\nlimit = 5\ncandidate = { rate = '5/s' }",
        "plans.pro = { rate = '10/s' }\ncandidate = { rate = '5/s' }",
        "rate = '10/s'\ncost = 7\ncandidate = { rate = '5/s' }",
        "rate = '10/s'\ncandidate = { rate = '5/s' }\n[rules.'r.candidate']\nper = []\nrate = '1/s'",
    ];
    let all: Vec<String> = written.into_iter().map(rollout).collect();
    insta::assert_snapshot!(all.join("\n"));
}
