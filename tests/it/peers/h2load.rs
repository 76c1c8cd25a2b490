//! h2load: many streams on few connections.

use super::Site;
use crate::support::{DEMO, H2Load};

/// One bucket for all, which does not refill during a test.
const HUNDRED: &str = "[rules.all]\nper = []\nrate = \"100/d\"\n";

#[test]
fn h2load_is_allowed_exactly_its_limit_over_h2_with_tls() {
    let site = Site::start(&format!("{DEMO}{HUNDRED}"));
    let result = H2Load::run(&format!("https://localhost:{}/", site.tls.port()), 1_000, &[]);
    assert_eq!((result.done, result.errored), (1_000, 0), "{result:?}");
    assert_eq!(result.statuses, [100, 0, 900, 0]);
    assert_eq!(result.protocol, "h2");
    site.assert_requests([("200", 100), ("429", 900)]);
}

#[test]
fn h2load_is_allowed_exactly_its_limit_over_h2c() {
    let site = Site::start(&format!("{DEMO}{HUNDRED}"));
    let result = H2Load::run(&format!("http://{}/", site.clear), 1_000, &[]);
    assert_eq!((result.done, result.errored), (1_000, 0), "{result:?}");
    assert_eq!(result.statuses, [100, 0, 900, 0]);
    assert_eq!(result.protocol, "h2c");
    site.assert_requests([("200", 100), ("429", 900)]);
}

#[test]
fn h2load_over_http1_with_tls_is_served_beside_h2() {
    let site = Site::start(DEMO);
    let url = format!("https://localhost:{}/", site.tls.port());
    let result = H2Load::run(&url, 500, &["--h1", "-m1"]);
    assert_eq!(result.statuses, [500, 0, 0, 0], "{result:?}");
    assert_eq!(result.protocol, "http/1.1");
    let result = H2Load::run(&url, 500, &[]);
    assert_eq!(result.statuses, [500, 0, 0, 0], "{result:?}");
    site.assert_requests([("200", 1_000)]);
}

#[test]
fn bodies_of_many_streams_arrive_complete() {
    let site = Site::start(DEMO);
    let body = site.authority.path("body");
    std::fs::write(&body, vec![b'x'; 100_000]).unwrap();
    let url = format!("https://localhost:{}/", site.tls.port());
    let result = H2Load::run(&url, 200, &["-d", &body]);
    assert_eq!(result.statuses, [200, 0, 0, 0], "{result:?}");
    assert_eq!(result.errored, 0);
}
