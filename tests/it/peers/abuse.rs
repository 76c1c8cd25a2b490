//! Abuse of HTTP/2 by a client that is built for it.

use super::{clear_listener, file};
use crate::support::{DEMO, Gateway, fetch, http2_abuse};

/// Resident memory that all floods together may take.
const MAX_BYTES: u64 = 100_000_000;

#[test]
fn row_60_floods_end_their_own_connection_or_cost_nothing() {
    let gateway = Gateway::start_full(&file("", &clear_listener("http2 = true"), DEMO));
    let abuse = |scenario| http2_abuse(scenario, gateway.address.port());
    // Long before the flood is complete.
    for (scenario, most) in [("rapid_reset", 10_000), ("continuation", 200), ("malformed", 5_000)] {
        let result = abuse(scenario);
        // The reset of the connection may overtake its code.
        assert!(result["code"] == 11 || result["code"].is_null(), "{scenario}: {result}");
        assert!(result["sent"].as_u64().unwrap() < most, "{scenario}: {result}");
    }
    for scenario in ["empty_data", "large_head"] {
        let result = abuse(scenario);
        assert_eq!(result["complete"], false, "{scenario}: {result}");
    }
    // These are answered or ignored, one by one.
    for scenario in ["settings", "pings"] {
        let result = abuse(scenario);
        assert_eq!(result["code"], serde_json::json!(null), "{scenario}: {result}");
    }
    assert_eq!(fetch(&["--http2-prior-knowledge", &gateway.url("/")]).status, 200);
    let (resident, peak) = gateway.memory_bytes();
    assert!(peak < MAX_BYTES, "{peak} bytes at the peak, {resident} now");
    assert_eq!(gateway.count("tollgate_client_connections_open", &[]), 0);
}
