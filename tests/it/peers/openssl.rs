//! `openssl s_client`: certificates, versions, ciphers, resumption, stapled OCSP responses.

use std::process::{Command, Stdio};

use super::{Site, file, tls_listener};
use crate::support::{Authority, DEMO, Gateway};

/// What `openssl s_client` printed.
struct Session(String);

impl Session {
    /// Connects to the port, sends `GET /` and reads to the end.
    fn open(port: u16, ca: &str, arguments: &[&str]) -> Self {
        use std::io::Write as _;

        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-CAfile"]).arg(ca);
        command.args(["-ign_eof", "-verify_quiet"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("install it: apt-get install openssl");
        // A refused handshake closes the input.
        let request = b"GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n";
        let _ = process.stdin.take().unwrap().write_all(request);
        let output = process.wait_with_output().unwrap();
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Self(format!("{stdout}\n{stderr}"))
    }

    fn has(&self, words: &str) -> bool {
        self.0.contains(words)
    }
}

#[test]
fn versions_and_ciphers_without_forward_secrecy_are_refused() {
    let site = Site::start(DEMO);
    let (port, ca) = (site.tls.port(), site.authority.ca());
    let open = |arguments: &[&str]| Session::open(port, &ca, arguments);
    for (argument, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let session = open(&[argument]);
        assert!(session.has("HTTP/1.1 200 OK"), "{argument}: {}", session.0);
        assert!(session.has(&format!("New, {version}, Cipher is")), "{}", session.0);
        assert!(session.has("Verify return code: 0 (ok)"), "{}", session.0);
    }
    // At this level openssl itself allows the old versions and ciphers.
    for refused in [
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"][..],
        &["-tls1", "-cipher", "ALL:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256:AES256-SHA:kRSA:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384:@SECLEVEL=0"],
    ] {
        let session = open(refused);
        assert!(!session.has("HTTP/1.1"), "{refused:?}: {}", session.0);
        assert!(session.has("Cipher is (NONE)"), "{refused:?}: {}", session.0);
    }
    // The client can see the alert before it is counted.
    for (result, count) in [("ok", 2), ("protocol", 4)] {
        let labels = [("result", result)];
        site.gateway.wait_for_count("tollgate_tls_handshakes_total", &labels, count);
    }
}

#[test]
fn alpn_selects_h2_before_http1() {
    let site = Site::start(DEMO);
    let ca = site.authority.ca();
    for (offered, selected) in
        [("h2,http/1.1", "h2"), ("http/1.1,h2", "h2"), ("http/1.1", "http/1.1")]
    {
        let session = Session::open(site.tls.port(), &ca, &["-alpn", offered]);
        let line = format!("ALPN protocol: {selected}\n");
        assert!(session.has(&line), "{offered}: {}", session.0);
    }
    // An unknown protocol only: the handshake fails (RFC 7301).
    let session = Session::open(site.tls.port(), &ca, &["-alpn", "spdy/3"]);
    assert!(!session.has("HTTP/1.1 200"), "{}", session.0);
}

#[test]
fn sessions_are_resumed_with_both_versions() {
    let site = Site::start(DEMO);
    let (port, ca) = (site.tls.port(), site.authority.ca());
    let file = &site.authority.path("session");
    for version in ["-tls1_2", "-tls1_3"] {
        let first = Session::open(port, &ca, &[version, "-sess_out", file]);
        assert!(first.has("New, TLS"), "{}", first.0);
        let second = Session::open(port, &ca, &[version, "-sess_in", file]);
        assert!(second.has("Reused, TLS"), "{version}: {}", second.0);
        assert!(second.has("HTTP/1.1 200 OK"), "{version}: {}", second.0);
    }
    let handshakes =
        |result| site.gateway.count("tollgate_tls_handshakes_total", &[("result", result)]);
    assert_eq!((handshakes("ok"), handshakes("resumed")), (2, 2));
}

#[test]
fn server_name_selects_certificate_and_staple() {
    let authority = Authority::new();
    let [one, two] = ["one", "two"].map(|name| authority.issue(name, &[&format!("{name}.test")]));
    let staple = authority.staple(&one);
    let listener =
        tls_listener(&[&one, &two]).replacen(" }", &format!(", ocsp = {staple:?} }}"), 1);
    let gateway = Gateway::start_full(&file("", &listener, DEMO));
    let (port, ca) = (gateway.address.port(), authority.ca());
    let stapled = Session::open(port, &ca, &["-status", "-servername", "one.test"]);
    assert!(stapled.has("subject=CN = one"), "{}", stapled.0);
    assert!(stapled.has("OCSP Response Status: successful"), "{}", stapled.0);
    assert!(stapled.has("Cert Status: good"), "{}", stapled.0);
    let without = Session::open(port, &ca, &["-status", "-servername", "two.test"]);
    assert!(without.has("subject=CN = two"), "{}", without.0);
    assert!(without.has("OCSP response: no response sent"), "{}", without.0);
    let default = Session::open(port, &ca, &["-noservername"]);
    assert!(default.has("subject=CN = one"), "{}", default.0);
}

#[test]
fn minimum_version_is_enforced() {
    let site = Site::with("", "min_tls = \"1.3\"\n", DEMO);
    let (port, ca) = (site.tls.port(), site.authority.ca());
    assert!(Session::open(port, &ca, &["-tls1_3"]).has("HTTP/1.1 200 OK"));
    let refused = Session::open(port, &ca, &["-tls1_2"]);
    assert!(!refused.has("HTTP/1.1"), "{}", refused.0);
}

#[test]
fn replaced_certificate_is_served_within_a_second() {
    use std::time::Duration;

    use crate::support::{eventually, timed_below};

    let site = Site::start(DEMO);
    let (port, ca) = (site.tls.port(), site.authority.ca());
    // The serial number is at the beginning.
    let serial = || {
        let session = Session::open(port, &ca, &["-showcerts"]);
        let pem = session.0.split_once("-----BEGIN").map(|(_, rest)| rest.to_owned()).unwrap();
        pem.lines().nth(1).unwrap().to_owned()
    };
    let before = serial();
    site.authority.issue("api", &["api.test", "localhost"]);
    let is_there = || (serial() != before).then_some(());
    timed_below(Duration::from_secs(1), || eventually("the new certificate", is_there));
}
