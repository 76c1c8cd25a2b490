//! Invalid files: every error is reported with its line, and nothing panics.

use crate::support::{DEMO, check, check_file};

/// Every size setting. `@` marks the value.
const SIZES: [&str; 2] = ["[server]\nmax_header_bytes = @\n", "[server]\nmax_uri_bytes = @\n"];

/// Every other numeric setting.
const NUMBERS: [&str; 12] = [
    "[server]\nthreads = @\n",
    "[server]\ninstances = @\n",
    "[redis]\nurl = \"redis://h\"\nbreaker.timeouts = @\n",
    "[redis]\nurl = \"redis://h\"\nbreaker.window_calls = @\n",
    "[redis]\nurl = \"redis://h\"\nbreaker.window_timeouts = @\n",
    "[redis]\nurl = \"redis://h\"\nbreaker.probes = @\n",
    "[clients]\nipv6_prefix = @\n",
    "[memory]\nmax_buckets = @\n",
    "[audit]\nmax_records = @\n",
    "[rules.r]\nper = []\nrate = \"9/s\"\nburst = @\n",
    "[rules.r]\nper = []\nplans.free = { rate = \"9/s\", burst = @ }\n",
    "[rules.r]\nper = [\"key\"]\nrate = \"9/s\"\n[keys.k]\nplan = \"free\"\n\
     rules.r = { rate = \"9/s\", burst = @ }\n\
     sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n",
];

/// Every duration setting.
const TIMES: [&str; 12] = [
    "[server]\nkeepalive_timeout = @\n",
    "[server]\nread_timeout = @\n",
    "[server]\nwrite_timeout = @\n",
    "[server]\ndrain_timeout = @\n",
    "[redis]\nurl = \"redis://h\"\nbreaker.window = @\n",
    "[redis]\nurl = \"redis://h\"\nbreaker = { open = @, open_max = \"1h\" }\n",
    "[redis]\nurl = \"redis://h\"\nbreaker.open_max = @\n",
    "[redis]\nurl = \"redis://h\"\nbreaker.ramp_step = @\n",
    "[upstreams.other]\nservers = [\"demo\"]\nconnect_timeout = @\n",
    "[upstreams.other]\nservers = [\"demo\"]\nread_timeout = @\n",
    "[upstreams.other]\nservers = [\"demo\"]\nwrite_timeout = @\n",
    "[upstreams.other]\nservers = [\"demo\"]\nidle_timeout = @\n",
];

/// The cost of a route, with a rule that counts it.
const COST: &str = "[routes.dear]\npath = \"/dear\"\nupstream = \"api\"\ncost = @\n\
                    [rules.r]\nper = []\nrate = \"100/s\"\n";

/// Every rate setting.
const RATES: [&str; 3] = [
    "[rules.r]\nper = []\nrate = @\n",
    "[rules.r]\nper = []\nplans.free = { rate = @ }\n",
    "[rules.r]\nper = [\"key\"]\nrate = \"9/s\"\n[keys.k]\nplan = \"free\"\nrules.r = { rate = @ }\n\
     sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n",
];

/// Asserts that `check` accepts a valid value in every place and rejects each invalid one with its
/// line.
#[track_caller]
fn assert_refused(places: &[&str], good: &str, bad: &[&str]) {
    for place in places {
        let fill = |value: &str| format!("{DEMO}{}", place.replace('@', value));
        let accepted = check(fill(good).as_bytes());
        assert_eq!(accepted.code, Some(0), "{good} in {place}{}", accepted.stderr);
        let before = fill("@").split('@').next().unwrap().to_string();
        let line = before.lines().count();
        for value in bad {
            let refused = check(fill(value).as_bytes());
            let stderr = &refused.stderr;
            assert_eq!(refused.code, Some(64), "{value} in {place}{refused:?}");
            assert!(
                stderr.contains(&format!("gateway.toml:{line}:")),
                "{value} in {place}{stderr}"
            );
            assert!(!stderr.contains("panicked"), "{value} in {place}{stderr}");
        }
    }
}

#[test]
fn row_28_invalid_numbers_are_errors() {
    let bad = [
        "0",
        "-1",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "1e308",
        "1.5",
        "nan",
        "-inf",
        "\"64\"",
        "\"\"",
        "true",
        "[]",
        "{}",
        "",
    ];
    assert_refused(&SIZES, "2048", &bad);
    assert_refused(&NUMBERS, "100", &bad);
    // A cost may have three decimals.
    let bad = bad.map(|value| if value == "1.5" { "1.0005" } else { value });
    assert_refused(&[COST], "100", &bad);
    assert_refused(&[COST], "1.5", &[]);
}

#[test]
fn row_28_invalid_times_are_errors() {
    let bad = [
        "0",
        "5",
        "nan",
        "\"0s\"",
        "\"-1s\"",
        "\"9223372036854775808s\"",
        "\"1e308s\"",
        "\"NaNs\"",
        "\"5\"",
        "\"1.5s\"",
        "\"five seconds\"",
        "\"\"",
    ];
    assert_refused(&TIMES, "\"5s\"", &bad);
}

#[test]
fn row_28_invalid_rates_are_errors() {
    let bad = [
        "0",
        "10",
        "nan",
        "\"0/s\"",
        "\"-1/s\"",
        "\"9223372036854775808/s\"",
        "\"1e308/s\"",
        "\"nan/s\"",
        "\"inf/s\"",
        "\"1/0s\"",
        "\"1/-1s\"",
        "\"1/9223372036854775808d\"",
        "\"10\"",
        "\"10/\"",
        "\"/s\"",
        "\"10/week\"",
        "\"\"",
    ];
    assert_refused(&RATES, "\"5/s\"", &bad);
}

#[test]
fn row_29_cost_above_the_burst_is_an_error() {
    let dear = "[routes.dear]\npath = \"/dear\"\nupstream = \"api\"\ncost = 10\n";
    let rule = "[rules.r]\nper = []\nrate = \"9/s\"\n";
    let outcome = check(format!("{DEMO}{dear}{rule}").as_bytes());
    assert_eq!(outcome.code, Some(64));
    assert!(outcome.stderr.contains("cost") && outcome.stderr.contains("burst"), "{outcome:?}");
    assert_eq!(check(format!("{DEMO}{dear}{rule}burst = 10\n").as_bytes()).code, Some(0));
}

#[test]
fn row_43_all_errors_are_reported_at_once() {
    let wrong = "[server]\nlisten = [\"nowhere\"]\nthraeds = 2\n\n[rules.r]\nper = [\"kye\"]\n\
        rate = \"10/sec\"\nmode = \"shadwo\"\n\n[routes.x]\npath = \"x\"\nupstream = \"apy\"\n";
    let outcome = check(format!("{DEMO}{wrong}").as_bytes());
    assert_eq!(outcome.code, Some(64));
    for word in ["nowhere", "threads", "key", "10/s", "shadow", "`api`"] {
        assert!(outcome.stderr.contains(word), "{word} in {}", outcome.stderr);
    }
}

#[test]
fn row_42_empty_binary_and_unclosed_files_are_errors() {
    let with_mark = [b"\xef\xbb\xbf", DEMO.as_bytes()].concat();
    assert_eq!(check(&with_mark).code, Some(0));
    // (content, part of the error)
    let table: [(&[u8], &str); 5] = [
        (b"", "no routes"),
        (b"\xef\xbb\xbf", "no routes"),
        (b"[server]\nlisten = \"\xff\"\n", "not UTF-8"),
        (b"[server]\n\0\0\0\0", "NUL"),
        (b"[server", "not closed"),
    ];
    for (content, words) in table {
        let outcome = check(content);
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(outcome.stderr.contains(words), "{words} in {}", outcome.stderr);
    }
}

#[test]
fn row_42_file_above_4_mib_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::File::create(&file).unwrap().set_len(100 << 20).unwrap();
    let outcome = check_file(&file);
    assert_eq!(outcome.code, Some(64), "{outcome:?}");
    assert!(outcome.stderr.contains("larger than"), "{outcome:?}");
}

#[test]
fn row_42_truncated_file_is_rejected_or_valid() {
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml")).unwrap();
    for length in (0..file.len()).step_by(file.len() / 100 + 1) {
        let outcome = check(&file[..length]);
        assert!(matches!(outcome.code, Some(0 | 64)), "the first {length} bytes: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    }
}
