//! The lines of other gateways in `docs/migrating.md`, and their translation.

use std::time::Duration;

use crate::support::{CpuWaits, Gateway, Nginx, inconclusive, send_concurrently, tollgate};

/// Requests of one client, sent at once.
const REQUESTS: usize = 40;

/// What a fragment of `gateway.toml` needs to be a file.
const FRAME: &str = "[upstreams.api]\nservers = [\"127.0.0.1:3000\"]\n[routes.all]\n";

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migrating.md");
    std::fs::read_to_string(path).unwrap()
}

/// The blocks of the page in these languages, in their order.
fn blocks(page: &str, languages: &[&str]) -> Vec<(String, String)> {
    let parts = page.split("\n```").skip(1).step_by(2);
    let parts = parts.filter_map(|part| part.split_once('\n'));
    let parts = parts.filter(|(language, _)| languages.contains(language));
    parts.map(|(language, text)| (language.to_owned(), text.to_owned())).collect()
}

/// Lines for nginx, and for tollgate.
fn pairs() -> Vec<(String, String)> {
    let blocks = blocks(&page(), &["nginx", "toml"]);
    let pairs = blocks.windows(2).filter(|pair| pair[0].0 == "nginx");
    pairs.map(|pair| (pair[0].1.clone(), pair[1].1.clone())).collect()
}

/// Number of requests that pass, of [`REQUESTS`] sent at once, and of those that are refused with
/// `refusal`.
fn passed(url: &str, refusal: u16) -> usize {
    let counts = send_concurrently(REQUESTS, REQUESTS, |client, _| {
        client.get(url).header("X-Api-Key", "acme")
    });
    let [passed, refused] = [200, refusal].map(|status| *counts.get(&status).unwrap_or(&0));
    assert_eq!(passed + refused, REQUESTS, "{counts:?}");
    passed
}

/// Judges the requests that pass in nginx, and in a gateway with the translation, while both run.
fn both(nginx: &str, toml: &str, judge: impl FnOnce([usize; 2])) {
    let (http, location): (Vec<&str>, Vec<&str>) =
        nginx.lines().partition(|line| line.contains("_zone "));
    let nginx = Nginx::limited(&http.join("\n"), &location.join("\n"));
    let frame = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n";
    let gateway = Gateway::start(&[frame, toml].concat());
    judge([passed(&format!("http://{}/", nginx.address), 503), passed(&gateway.url("/"), 429)]);
}

#[test]
fn every_file_of_the_page_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let files = blocks(&page(), &["toml"]);
    assert!(files.len() > 8, "{files:?}");
    for (_, file) in files {
        let frame = if file.contains("[upstreams") { "" } else { FRAME };
        std::fs::write(&path, [frame, &file].concat()).unwrap();
        let outcome = tollgate(&["check", path.to_str().unwrap()], "");
        assert_eq!(outcome.code, Some(0), "{file}{outcome:?}");
    }
}

/// Rates are lowered to those of a minute, so that none adds a token while the requests are sent.
#[test]
fn limits_of_nginx_and_their_translation_let_equally_many_requests_pass() {
    let mut compared = 0;
    for (nginx, toml) in pairs().into_iter().filter(|(_, toml)| !toml.contains("kind")) {
        both(&nginx.replace("r/s", "r/m"), &toml.replace("/s\"", "/m\""), |[nginx_passed, own]| {
            assert_eq!(nginx_passed, own, "{nginx}{toml}");
        });
        compared += 1;
    }
    assert_eq!(compared, 4);
}

/// Both let one request pass at once, and delay those of the next two seconds.
#[test]
fn delays_of_nginx_and_their_translation_let_equally_many_requests_wait() {
    let (nginx, toml) = pairs().into_iter().find(|(_, toml)| toml.contains("leaky")).unwrap();
    let waits = CpuWaits::now();
    both(&nginx, &toml, |counts| {
        assert!(counts.iter().all(|passed| *passed >= 21), "{counts:?}");
        // The rate lets another one pass for each 100 ms that a busy machine needs to send the
        // requests.
        let more = counts.iter().max().unwrap() - 21;
        let sending = Duration::from_millis(100) * u32::try_from(more).unwrap();
        if let Some(why) = waits.judge(sending, Duration::from_millis(400)) {
            inconclusive(&format!("{counts:?}; {why}"));
        }
    });
}
