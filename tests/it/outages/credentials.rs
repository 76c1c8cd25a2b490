//! Wrong passwords and certificates that are corrected later, without a restart.

use std::path::Path;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::{HIGH_RATE, assert_survives, config, get, wait_until_closed, wait_until_connected};
use crate::support::{Gateway, Redis, eventually, free_port};

#[test]
fn row_15_corrected_password_works_without_a_restart() {
    let redis = Redis::start();
    let gateway = Gateway::start(&config(&redis.table(), HIGH_RATE));
    wait_until_connected(&gateway);
    // Existing connections stay authenticated.
    let operator = redis.session();
    operator.execute(&["CONFIG", "SET", "requirepass", "pw"]).unwrap();
    assert_survives(
        &gateway,
        || operator.execute(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap(),
        || {
            eventually("the reason in the log", || gateway.log().contains("NOAUTH").then_some(()));
            operator.execute(&["CONFIG", "SET", "requirepass", ""]).unwrap();
        },
    );
}

/// Writes a self-signed certificate for this name.
fn issue(file: &Path, key: &KeyPair, last_year: i32) -> String {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(last_year, 12, 31);
    let certificate = params.self_signed(key).unwrap().pem();
    std::fs::write(file, &certificate).unwrap();
    certificate
}

#[test]
fn row_23_expired_certificate_is_logged_and_can_be_renewed() {
    let mut redis = Redis::stopped();
    let path = |name: &str| redis.folder().join(name).display().to_string();
    let [expired, valid, key, ca] = ["expired.pem", "valid.pem", "server.key", "ca.pem"].map(path);
    let pair = KeyPair::generate().unwrap();
    std::fs::write(&key, pair.serialize_pem()).unwrap();
    let authorities =
        [issue(expired.as_ref(), &pair, 2021), issue(valid.as_ref(), &pair, 2099)].concat();
    std::fs::write(&ca, authorities).unwrap();
    let port = free_port().to_string();
    redis.launch_with(|command| {
        command.args(["--tls-port", &port, "--tls-auth-clients", "no", "--tls-ca-cert-file", &ca]);
        command.args(["--tls-cert-file", &expired, "--tls-key-file", &key]);
    });
    let table = format!(
        "\n[redis]\nurl = \"rediss://localhost:{port}\"\nca = \"{ca}\"\ntimeout = \"1s\"\n"
    );
    let gateway = Gateway::start(&config(&table, HIGH_RATE));
    eventually("the reason in the log", || {
        assert_eq!(get(&gateway), 200);
        gateway.log().contains("certificate expired").then_some(())
    });
    redis.configure("tls-cert-file", &valid);
    wait_until_connected(&gateway);
    wait_until_closed(&gateway);
}
