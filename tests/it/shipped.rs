//! The files that are shipped: `gateway.toml`, and the examples of the documentation.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::support::{DEMO, Gateway, full_config, inconclusive, send_many, tollgate};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The keys that `gateway.toml` documents, to try the gateway.
const DEMO_KEYS: [&str; 3] = ["demo-free", "demo-pro", "demo-enterprise"];

/// Words that examples are made of, and what is tried first when keys are guessed.
const WORDS: &str = "0 1 123 1234 12345 123456 12345678 a abc abc123 abcdef acme admin alice api api-key \
    api_key apikey bar baz billing bob changeme client client1 customer default demo dev enterprise \
    example foo foobar free gateway globex guest hello hunter2 initech internal key key1 key2 letmein \
    monitor mykey my-key my-secret-key partner pass passw0rd password pro prod production public qwerty \
    root secret secret-key secret123 sk-test test test-key test1 test123 test_key testing token tollgate \
    user x xxx yyy zzz";

/// A file of the repository.
fn shipped(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// `gateway.toml` with ports chosen by the kernel.
fn shipped_gateway() -> Gateway {
    let file = shipped("gateway.toml");
    let file = file
        .replace("\"0.0.0.0:8080\"", "\"127.0.0.1:0\"")
        .replace("\"127.0.0.1:9090\"", "\"127.0.0.1:0\"");
    Gateway::start_full(&file)
}

#[test]
fn shipped_configuration_is_valid() {
    for file in ["gateway.toml", "docker/gateway/gateway.toml", "docker/cluster/gateway.toml"] {
        let path = Path::new(ROOT).join(file);
        let outcome = tollgate(&["check", path.to_str().unwrap()], "");
        let unset = outcome.stderr.contains("`TOLLGATE_ADMIN_TOKEN` is not set");
        let token_is_missing = unset && outcome.stderr.contains("1 error");
        assert!(outcome.code == Some(0) || token_is_missing, "{outcome:?}");
    }
}

/// The keys are in the comments of the file, so that they must not stay in a copy of it.
#[test]
fn shipped_keys_are_reported() {
    let path = Path::new(ROOT).join("gateway.toml");
    let path = path.to_str().unwrap();
    let message = "the keys `alice`, `acme` and `globex` are public";
    for (arguments, code) in [(&["check", path][..], 0), (&["check", "--strict", path], 64)] {
        let outcome = tollgate(arguments, "");
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        assert!(outcome.stderr.contains(message), "{outcome:?}");
    }
    let log = shipped_gateway().log();
    assert!(log.contains(message), "{log}");
}

/// One client of each plan at one address, as the comments in the file show.
#[test]
fn shipped_configuration_limits_every_plan() {
    let gateway = shipped_gateway();
    // A client without a key has its burst, and then what its address has left for the plan. A
    // search takes five tokens, so the buckets hardly refill meanwhile.
    let table = [
        (None, "/", 20, 10),
        (Some("demo-free"), "/", 20, 5),
        (Some("demo-pro"), "/api/search", 60, 20),
        (Some("demo-enterprise"), "/api/search", 600, 200),
    ];
    for (secret, path, sent, allowed) in table {
        let url = gateway.url(path);
        let counts = send_many(sent, |client, _| match secret {
            Some(secret) => client.get(&url).header("X-Api-Key", secret),
            None => client.get(&url),
        });
        let count = |status: u16| counts.get(&status).copied().unwrap_or(0);
        assert!(count(200) >= allowed && count(429) > 0, "{secret:?}: {counts:?}");
        assert_eq!(count(200) + count(429), sent, "{secret:?}: {counts:?}");
    }
}

/// Other than the documented demo keys, examples have the hash of a key that cannot be guessed:
/// readers copy them.
#[test]
fn examples_do_not_contain_the_hash_of_a_guessable_key() {
    let guessable: Vec<(String, &str)> =
        WORDS.split_whitespace().map(|word| (digest(word), word)).collect();
    let demo: Vec<String> = DEMO_KEYS.iter().map(|key| digest(key)).collect();
    let mut seen = 0;
    for file in examples() {
        let text = std::fs::read_to_string(&file).unwrap();
        for found in digests_in(&text) {
            seen += 1;
            if let Some((_, word)) = guessable.iter().find(|(digest, _)| *digest == found) {
                panic!("{}: {found} is the hash of `{word}`", file.display());
            }
            let is_shipped = file.ends_with("gateway.toml");
            assert!(!demo.contains(&found) || is_shipped, "{}: a demo key", file.display());
        }
    }
    assert!(seen >= 4, "{seen} hashes found");
}

#[test]
fn readme_example_is_valid() {
    let readme = shipped("README.md");
    let example = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, example).unwrap();
    let outcome = tollgate(&["check", file.to_str().unwrap()], "");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
}

/// The response that the README prints, of the example in it. Header fields that every response has
/// are left out there.
#[test]
fn readme_refusal_is_what_a_client_gets() {
    let readme = shipped("README.md");
    let example = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let printed = readme.split("```\nHTTP/1.1 ").nth(1).unwrap().split("\n```").next().unwrap();
    let (head, body) = printed.split_once("\n\n").unwrap();

    let gateway = Gateway::start(&example.replace("127.0.0.1:3000", "demo"));
    let refused =
        (0..500).map(|_| gateway.get("/")).find(|response| response.status != 200).unwrap();
    assert_eq!(head.lines().next().unwrap(), "429 Too Many Requests");
    assert_eq!(refused.status, 429);
    let left_out = ["cache-control", "content-length", "date", "connection"];
    let headers: Vec<String> = (refused.headers.iter())
        .filter(|(name, _)| !left_out.contains(&name.to_ascii_lowercase().as_str()))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    // Later responses have a later reset.
    let is_reset = |line: &&str| line.starts_with("X-RateLimit-Reset: ");
    let printed: Vec<&str> = head.lines().skip(1).filter(|line| !is_reset(line)).collect();
    let sent: Vec<&str> =
        headers.iter().map(String::as_str).filter(|line| !is_reset(line)).collect();
    assert_eq!(sent, printed);
    assert_eq!(head.lines().filter(is_reset).count(), 1);
    assert!(refused.header("x-ratelimit-reset").is_some());

    let printed: Value = serde_json::from_str(body).unwrap();
    assert_eq!(without_time(refused.json()), without_time(printed));
}

/// The problem document without what differs between two refusals.
fn without_time(mut problem: Value) -> Value {
    let detail = problem["detail"].as_str().unwrap();
    let (before, after) = detail.split_once("retry in ").unwrap();
    let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    problem["detail"] = Value::String(format!("{before}retry in{after}"));
    for name in ["retry_after_ms", "request_id"] {
        assert!(problem[name].is_u64() || problem[name].is_string(), "{name} in {problem}");
        problem[name] = Value::Null;
    }
    problem
}

/// As in a container with `--read-only`.
#[test]
fn gateway_needs_no_file_that_it_can_write() {
    let setup = "mount -o remount,bind,ro / && ! touch /tmp/tollgate-read-only 2>/dev/null";
    let Some(gateway) = Gateway::start_in_namespace(setup, &full_config(DEMO)) else {
        return inconclusive("this user cannot create a mount namespace");
    };
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.admin("/ready").status, 200);
}

/// SHA-256 in hexadecimal.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The files from which readers copy examples.
fn examples() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let mut files: Vec<PathBuf> = ["README.md", "gateway.toml", "docker/gateway/gateway.toml"]
        .map(|file| root.join(file))
        .into();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_text =
                ["md", "json", "yml"].iter().any(|kind| path.extension() == Some(kind.as_ref()));
            if path.is_dir() {
                folders.push(path);
            } else if is_text {
                files.push(path);
            }
        }
    }
    files
}

/// All words of 64 hexadecimal digits.
fn digests_in(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .map(str::to_ascii_lowercase)
}
