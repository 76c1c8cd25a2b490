//! curl: HTTP/1.1, HTTP/2 with TLS, and HTTP/2 in clear by prior knowledge, on the same listeners.

use super::{Site, clear_listener, file, tls_listener};
use crate::support::{
    Authority, DEMO, Gateway, PeerServer, Upstream, curl, fetch, fetch_all, proxy_to,
};

const TWO_A_DAY: &str = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"2/d\"\n";

#[test]
fn tls_listener_serves_http1_and_http2() {
    let upstream = Upstream::echo();
    let site = Site::start(&proxy_to(&[upstream.address]));
    for (arguments, version) in [
        (&["--http1.1"][..], "1.1"),
        (&["--http2"][..], "2"),
        (&["--http2", "--tls-max", "1.2"][..], "2"),
        (&["--http1.1", "--tls-max", "1.2"][..], "1.1"),
        (&["--http1.0"][..], "1.1"),
        (&["--http2", "--tlsv1.3"][..], "2"),
        (&["--no-alpn", "--http2"][..], "1.1"),
    ] {
        let answer = site.https(&[arguments, &["--data", "body"]].concat(), "/path?query");
        let seen = (answer.version.as_str(), answer.status, answer.body.as_str());
        assert_eq!(seen, (version, 200, "body"), "{arguments:?}: {answer:?}");
    }
    for request in upstream.requests() {
        assert!(request.line().starts_with("POST /path?query HTTP/1."), "{request:?}");
        assert_eq!(request.header("x-forwarded-proto"), Some("https"), "{request:?}");
        assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"), "{request:?}");
        let host = format!("api.test:{}", site.tls.port());
        assert_eq!(request.header("host"), Some(host.as_str()), "{request:?}");
    }
    assert_eq!(upstream.requests().len(), 7);
    site.assert_requests([("200", 7)]);
}

#[test]
fn clear_listener_serves_http1_and_http2_by_prior_knowledge() {
    let upstream = Upstream::echo();
    let site = Site::start(&proxy_to(&[upstream.address]));
    // With `--http2`, curl asks an HTTP/1.1 connection for an upgrade, which RFC 9113 removed.
    for (argument, version) in
        [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2"), ("--http2", "1.1")]
    {
        let answer = site.http(&[argument, "--data", "body"], "/path?query");
        let seen = (answer.version.as_str(), answer.status, answer.body.as_str());
        assert_eq!(seen, (version, 200, "body"), "{argument}: {answer:?}");
    }
    for request in upstream.requests() {
        assert_eq!(request.header("x-forwarded-proto"), Some("http"), "{request:?}");
    }
    assert_eq!(upstream.requests().len(), 3);
    site.assert_requests([("200", 3)]);
}

#[test]
fn refused_request_has_its_headers_over_http2_and_keeps_the_connection() {
    let site = Site::start(&format!("{DEMO}{TWO_A_DAY}"));
    let url = format!("https://api.test:{}/[1-5]", site.tls.port());
    let ca = site.authority.ca();
    let answers = fetch_all(&["--http2", "--cacert", &ca, "--data", "a body", &url]);
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let connects: u32 = answers.iter().map(|answer| answer.connects).sum();
    assert_eq!(connects, 1, "{answers:?}");
    let refused = site.https(&["--http2", "--data", "a body"], "/");
    assert_eq!((refused.version.as_str(), refused.status), ("2", 429), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(refused.header("x-ratelimit-reason"), Some("per-ip"));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["per-ip"]));
    // One bucket for the address, over any version and listener.
    assert_eq!(site.http(&["--http1.1"], "/").status, 429);
    site.assert_requests([("200", 2), ("429", 5)]);
}

#[test]
fn large_bodies_pass_both_ways_over_http2() {
    let server = PeerServer::node(None);
    let config = proxy_to(&[server.address]).replace("servers", "protocol = \"h2c\"\nservers");
    let site = Site::start(&config);
    let body = site.authority.path("body");
    std::fs::write(&body, vec![b'x'; 3_000_000]).unwrap();
    let data = format!("@{body}");
    let sent = site.https(&["--http2", "--data-binary", &data], "/upload");
    assert_eq!((sent.status, &sent.json()["length"]), (200, &3_000_000.into()), "{sent:?}");
    let received = site.https(&["--http2"], "/large");
    assert_eq!((received.status, received.body.len()), (200, 1_000_000));
}

#[test]
fn parallel_requests_share_one_http2_connection() {
    let server = PeerServer::node(None);
    let config = proxy_to(&[server.address]).replace("servers", "protocol = \"h2c\"\nservers");
    let site = Site::start(&config);
    let url = format!("https://api.test:{}/[1-100]", site.tls.port());
    let ca = site.authority.ca();
    let parallel = ["--http2", "--parallel", "--parallel-max", "50", "--cacert", &ca];
    let answers = fetch_all(&[&parallel[..], &["--output", "/dev/null", &url]].concat());
    let complete = answers.iter().filter(|answer| answer.status == 200 && answer.version == "2");
    assert_eq!(complete.count(), 100);
    let connects: u32 = answers.iter().map(|answer| answer.connects).sum();
    assert!(connects <= 3, "{connects} connections");
    server.wait_for_count("request GET /", 100);
    site.assert_requests([("200", 100)]);
}

#[test]
fn cookie_crumbs_are_joined_for_an_http1_upstream() {
    let upstream = Upstream::echo();
    let site = Site::start(&proxy_to(&[upstream.address]));
    // curl sends one field per header over HTTP/2.
    site.https(&["--http2", "-H", "Cookie: a=1", "-H", "Cookie: b=2"], "/");
    assert_eq!(upstream.only_request().values("cookie"), ["a=1; b=2"]);
}

#[test]
fn server_name_selects_the_certificate() {
    let authority = Authority::new();
    let issued = [
        authority.issue("default", &["default.test"]),
        authority.issue("one", &["one.test"]),
        authority.issue("wild", &["*.wild.test"]),
    ];
    let listeners = tls_listener(&issued.each_ref());
    let gateway = Gateway::start_full(&file("", &listeners, DEMO));
    let ca = authority.ca();
    let status = |host: &str| {
        let url = format!("https://{host}:{}/", gateway.address.port());
        let to = "::127.0.0.1:";
        let result = curl(&["--cacert", &ca, "--connect-to", to, "-o", "/dev/null", &url]);
        result.exit
    };
    for host in ["default.test", "one.test", "ONE.TEST", "a.wild.test", "b.wild.test"] {
        assert_eq!(status(host), Some(0), "{host}");
    }
    // A wildcard is one label, and other names get the first certificate: curl refuses it (60).
    for host in ["wild.test", "a.b.wild.test", "other.test"] {
        assert_eq!(status(host), Some(60), "{host}");
    }
}

#[test]
fn client_certificate_is_required_verified_and_limited() {
    let authority = Authority::new();
    let api = authority.issue("api", &["api.test"]);
    let listener = format!("{}client_ca = {:?}\n", tls_listener(&[&api]), authority.ca());
    let rule = "[rules.per-cert]\nper = [\"cert\"]\nrate = \"2/d\"\n";
    let gateway = Gateway::start_full(&file("", &listener, &format!("{DEMO}{rule}")));
    let ca = authority.ca();
    let send = |arguments: &[&str]| {
        let url = format!("https://api.test:{}/", gateway.address.port());
        let base = ["--cacert", &ca, "--connect-to", "::127.0.0.1:"];
        curl(&[&base, &["-w", "%{http_code}", "-o", "/dev/null"], arguments, &[&url]].concat())
    };
    let with = |issued: &crate::support::Issued| {
        send(&["--cert", &issued.certificate, "--key", &issued.key])
    };
    let [alice, bob] = ["alice", "bob"].map(|name| authority.issue_client(name));
    let statuses: Vec<String> =
        [&alice, &alice, &alice, &bob].map(|issued| with(issued).text()).into();
    assert_eq!(statuses, ["200", "200", "429", "200"]);
    // Without a certificate, or with one of another authority, no response arrives.
    assert_ne!(send(&[]).exit, Some(0));
    let other = Authority::new();
    assert_ne!(with(&other.issue_client("alice")).exit, Some(0));
    gateway.wait_for_count("tollgate_tls_handshakes_total", &[("result", "client_certificate")], 2);
    assert!(gateway.log().contains("alice") || !gateway.log().contains("BEGIN"));
}

#[test]
fn optional_client_certificate_may_be_absent() {
    let site = Authority::new();
    let api = site.issue("api", &["api.test"]);
    let listener = format!(
        "{}client_ca = {:?}\nclient_auth = \"optional\"\n",
        tls_listener(&[&api]),
        site.ca()
    );
    let rule = "[rules.per-cert]\nper = [\"cert\"]\nrate = \"1/d\"\n";
    let gateway = Gateway::start_full(&file("", &listener, &format!("{DEMO}{rule}")));
    let alice = site.issue_client("alice");
    let (ca, url) = (site.ca(), format!("https://api.test:{}/", gateway.address.port()));
    let base = ["--cacert", &ca];
    let own = ["--cert", &alice.certificate, "--key", &alice.key];
    let statuses: Vec<u16> = [&[][..], &own, &own, &[]]
        .map(|more| fetch(&[&base, more, &[&url]].concat()).status)
        .into();
    // The rule does not apply to a client without a certificate.
    assert_eq!(statuses, [200, 200, 429, 200]);
    let other = Authority::new().issue_client("alice");
    let other = ["--cert", &other.certificate, "--key", &other.key];
    let local = ["--connect-to", "::127.0.0.1:"];
    assert_ne!(curl(&[&base, &local[..], &other, &[&url]].concat()).exit, Some(0));
}

#[test]
fn redirect_leads_to_the_tls_listener() {
    let authority = Authority::new();
    let api = authority.issue("api", &["api.test"]);
    let listeners = format!("{}{}", clear_listener("redirect = \"https\""), tls_listener(&[&api]));
    let listeners = format!("{listeners}hsts = \"365d\"\n");
    let gateway = Gateway::start_full(&file("", &listeners, DEMO));
    let [clear, tls] = gateway.listeners()[..] else { panic!("{}", gateway.log()) };
    let url = format!("http://api.test:{}/a%20b?c=d&e", clear.port());
    let answer = fetch(&["--data", "kept", &url]);
    let location = format!("https://api.test:{}/a%20b?c=d&e", tls.port());
    assert_eq!(answer.status, 308);
    assert_eq!(answer.header("location"), Some(location.as_str()));
    assert_eq!(answer.header("strict-transport-security"), None);
    // curl follows it, with the method and the body.
    let ca = authority.ca();
    let followed = fetch(&["--location", "--cacert", &ca, "--data", "kept", &url]);
    assert_eq!((followed.status, followed.version.as_str()), (200, "2"), "{followed:?}");
    assert_eq!(followed.header("strict-transport-security"), Some("max-age=31536000"));
}

#[test]
fn requests_pass_through_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let listeners =
        format!("[[listeners]]\naddress = \"unix:{}\"\nhttp2 = true\n", socket.display());
    let listeners = format!("{listeners}{}", clear_listener(""));
    let mut gateway = Gateway::start_full(&file("", &listeners, DEMO));
    let socket_path = socket.to_str().unwrap();
    for (argument, version) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let answer = fetch(&[argument, "--unix-socket", socket_path, "http://api.test/"]);
        assert_eq!((answer.status, answer.version.as_str()), (200, version), "{answer:?}");
    }
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    assert!(!socket.exists(), "the socket should be removed at exit");
}
