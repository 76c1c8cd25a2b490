//! Traces as a collector of another project decodes them: Python, with OpenTelemetry's published
//! definition of OTLP.

use serde_json::Value;

use crate::support::{Gateway, PeerServer, Upstream, proxy_to};

#[test]
fn traces_are_decoded_by_the_published_definition_of_otlp() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let collector = PeerServer::otlp_collector();
    let gateway = Gateway::start(&format!(
        "{}[rules.all]\nper = []\nrate = \"9/d\"\n\
         [tracing]\nendpoint = \"http://{}\"\nsample = 1\nservice_name = \"edge\"\n",
        proxy_to(&[upstream.address]),
        collector.address
    ));
    assert_eq!(gateway.get("/some?query").status, 200);
    collector.wait_for_count("span ", 3);
    assert_eq!(collector.count("fault"), 0, "{}", collector.log());

    let log = collector.log();
    let spans: Vec<Value> = (log.lines().filter_map(|line| line.strip_prefix("span ")))
        .map(|json| serde_json::from_str(json).unwrap())
        .collect();
    let of_kind = |kind: &str| {
        let found: Vec<&Value> = spans.iter().filter(|span| span["kind"] == kind).collect();
        let [only] = found[..] else { panic!("{kind}: {log}") };
        only
    };
    let server = of_kind("SPAN_KIND_SERVER");
    let children = [of_kind("SPAN_KIND_CLIENT"), of_kind("SPAN_KIND_INTERNAL")];
    assert_eq!(server["parent"], "");
    for child in children {
        assert_eq!((&child["trace"], &child["parent"]), (&server["trace"], &server["id"]));
        assert!(child["start"].as_u64() >= server["start"].as_u64(), "{log}");
    }
    for span in &spans {
        assert_eq!(span["resource"]["service.name"], "edge");
        // The request took some time, and less than a minute.
        assert!(span["ns"].as_i64().is_some_and(|ns| (0..60_000_000_000).contains(&ns)), "{log}");
    }
    assert_eq!(server["attributes"]["http.response.status_code"], 200);
    assert_eq!(server["attributes"]["url.path"], "/some");
    assert_eq!(server["attributes"]["tollgate.decision"], "allow");
    assert_eq!(children[0]["attributes"]["server.port"], upstream.address.port());
}
