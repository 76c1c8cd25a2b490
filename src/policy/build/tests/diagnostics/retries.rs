//! `retries` of upstreams and routes.

use super::super::render;

/// The diagnostics of an upstream with this `retries`.
fn upstream(retries: &str) -> String {
    render(&format!(
        "[upstreams.b]\nservers = ['demo']\nretries = {retries}\n[routes.r]\nupstream = 'b'\npath = '/r'\n"
    ))
}

#[test]
fn retries_of_every_kind() {
    for retries in [
        "{}",
        "{ count = 0 }",
        "{ count = 10, on = ['connect', 'reset', 'timeout', '5xx', '429'], budget = '1000%' }",
        "{ on = [], non_idempotent = true }",
        "{ on = ['408', '425', '500', '599'], budget = '1%' }",
    ] {
        let shown = upstream(retries);
        assert!(!shown.contains("retries") && !shown.contains("`on`"), "{retries}: {shown}");
    }
}

#[test]
fn retries_that_are_not_possible() {
    let written = [
        "3",
        "{ count = 11 }",
        "{ attempts = 3 }",
        "{ on = ['404', 'conect', 'http_503', 'error', 'connect-failure', 'gateway_error'] }",
        "{ budget = '20' }",
        "{ budget = 20 }",
        "{ budget = '0%' }",
        "{ non_idempotent = 'yes' }",
    ];
    let own = |shown: String| {
        let errors: Vec<String> = shown
            .split("\n\n")
            .filter(|error| error.contains(":3:") && error.starts_with("error"))
            .map(|error| {
                let lines = error.lines().map(str::trim);
                lines
                    .filter(|line| line.starts_with("error") || line.starts_with("= help"))
                    .collect::<Vec<_>>()
                    .join("\n")
            })
            .collect();
        errors.join("\n")
    };
    let all: Vec<String> =
        written.into_iter().map(|one| format!("{one}\n{}\n", own(upstream(one)))).collect();
    insta::assert_snapshot!(all.join("\n"));
}
