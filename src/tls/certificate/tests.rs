//! Errors and warnings of certificate files.

use std::time::Duration;

use super::super::fixture::{Authority, shown};
use super::*;

const NOW: u64 = 1_790_000_000;

#[test]
fn errors_of_files_say_what_is_wrong_and_what_to_do() {
    let authority = Authority::new();
    let path = |name: &str| authority.path(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).unwrap();
    authority.issue("a", &["a.example"]);
    authority.issue("b", &["b.example"]);
    let pem = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    write("chain.pem", (pem("b.pem") + &pem("a.pem")).as_bytes());
    write("empty", b"");
    write("garbage", &[0xff; 100]);
    write("cut.pem", &pem("a.pem").as_bytes()[..200]);
    write("cut.key", &pem("a.key").as_bytes()[..100]);
    write("other.pem", pem("a.pem").replace('M', "!").as_bytes());
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    write("encrypted.key", encrypted.as_bytes());
    write("noise.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write("noise.key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    write("der", &[0x30, 0x82, 1, 1]);
    write("large", &vec![b'a'; (1 << 20) + 1]);
    write("try-later.der", &[0x30, 3, 0x0a, 1, 3]);
    let mut table = String::new();
    for (cert, key, ocsp) in [
        ("a.pem", "a.key", None),
        ("none.pem", "a.key", None),
        (".", "a.key", None),
        ("empty", "a.key", None),
        ("garbage", "a.key", None),
        ("cut.pem", "a.key", None),
        ("other.pem", "a.key", None),
        ("noise.pem", "a.key", None),
        ("der", "a.key", None),
        ("large", "a.key", None),
        ("a.key", "a.key", None),
        ("a.pem", "none.key", None),
        ("a.pem", "a.pem", None),
        ("a.pem", "der", None),
        ("a.pem", "cut.key", None),
        ("a.pem", "encrypted.key", None),
        ("a.pem", "noise.key", None),
        ("a.pem", "b.key", None),
        ("chain.pem", "a.key", None),
        ("a.pem", "a.key", Some("none.der")),
        ("a.pem", "a.key", Some("a.pem")),
        ("a.pem", "a.key", Some("try-later.der")),
    ] {
        let ocsp = ocsp.map(path);
        let files = CertificateFiles { cert: path(cert), key: path(key), ocsp };
        let text = match Certificate::load(&files, NOW) {
            Ok(certificate) => format!("certificate of {}", certificate.name()),
            Err(error) => format!("{:?}: {error}\n  {}", error.part(), error.help()),
        };
        table += &shown(authority.folder.path(), &text);
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}

#[test]
fn warnings_say_what_clients_object_to() {
    let authority = Authority::new();
    let day = |day: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(NOW + day * DAY_S);
    let warnings = |name: &str, change: &dyn Fn(&mut rcgen::CertificateParams)| {
        let names = if name.is_empty() { vec![] } else { vec![name] };
        let files = authority.issue_as("a", &names, |params| {
            params.not_before = day(0) - Duration::from_secs(DAY_S);
            params.not_after = day(90);
            params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
            change(params);
        });
        let certificate = Certificate::load(&files, NOW).unwrap();
        let texts = certificate.warnings(NOW).iter().map(ToString::to_string).collect::<Vec<_>>();
        format!("{}: {}", certificate.name(), texts.join("; "))
    };
    let table = [
        warnings("a.example", &|_| {}),
        warnings("a.example", &|params| params.not_after = day(0)),
        warnings("a.example", &|params| params.not_after = day(1)),
        warnings("a.example", &|params| params.not_after = day(7) - Duration::from_secs(1)),
        warnings("a.example", &|params| params.not_after = day(7)),
        warnings("a.example", &|params| params.not_before = day(1)),
        warnings("", &|_| {}),
        warnings("192.0.2.1", &|_| {}),
        warnings("a.example", &|params| {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }),
        warnings("a.example", &|params| {
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        }),
        warnings("a.example", &|params| {
            params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        }),
    ];
    insta::assert_snapshot!(table.join("\n"));
}
