//! httpx, a Python client with an implementation of HTTP/2 that shares no code with curl's or
//! h2load's.

use super::Site;
use crate::support::{DEMO, http2_client};

#[test]
fn concurrent_requests_of_httpx_share_one_connection() {
    let site = Site::start(&format!("{DEMO}[rules.all]\nper = []\nrate = \"30/d\"\n"));
    let url = format!("https://localhost:{}/", site.tls.port());
    let answers = http2_client(&url, &site.authority.ca(), 50);
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 50);
    assert!(answers.iter().all(|answer| answer["version"] == "HTTP/2"), "{answers:?}");
    let count = |status: u16| answers.iter().filter(|answer| answer["status"] == status).count();
    assert_eq!((count(200), count(429)), (30, 20));
    site.assert_requests([("200", 30), ("429", 20)]);
    assert_eq!(site.gateway.count("tollgate_tls_handshakes_total", &[("result", "ok")]), 1);
}
