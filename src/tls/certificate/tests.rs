//! Errors and warnings of certificate files.

use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;

use super::super::fixture::{Authority, shown};
use super::*;

const NOW: u64 = 1_790_000_000;

#[test]
fn byte_order_mark_of_an_editor_is_ignored() {
    let authority = Authority::new();
    let files = authority.issue("a", &["a.example"]);
    for path in [&files.cert, &files.key] {
        let pem = std::fs::read(path).unwrap();
        std::fs::write(path, [b"\xef\xbb\xbf", &pem[..]].concat()).unwrap();
    }
    assert_eq!(&**Certificate::load(&files, NOW).unwrap().name(), "a.example");
}

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

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// Damaged files are errors or, if the damage is in a place that is not read, certificates.
    #[test]
    fn damaged_files_do_not_panic(
        noise in prop::collection::vec(any::<u8>(), 0..100),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        static PEM: LazyLock<(String, String)> = LazyLock::new(|| {
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
            (certificate.self_signed(&key).unwrap().pem(), key.serialize_pem())
        });
        let (chain, key) = &*PEM;
        let origin = Path::new("a");
        let load = |chain: &[u8], key: &[u8]| {
            let loaded = Certificate::from_pem(origin, chain, key, NOW);
            loaded.map(|_| ()).map_err(|error| (error.to_string(), error.help()))
        };
        prop_assert!(load(chain.as_bytes(), key.as_bytes()).is_ok());
        prop_assert!(load(&noise, key.as_bytes()).is_err());
        prop_assert!(load(chain.as_bytes(), &noise).is_err());
        let mut damaged = chain.clone().into_bytes();
        let place = at.index(damaged.len());
        damaged[place] = byte;
        let _ = load(&damaged, key.as_bytes());
        prop_assert!(load(&damaged[..place.min(damaged.len() - 2)], key.as_bytes()).is_err());
        let mut damaged = key.clone().into_bytes();
        let place = at.index(damaged.len());
        damaged[place] = byte;
        let _ = load(chain.as_bytes(), &damaged);
        let der = pem_der(chain);
        let place = at.index(der.len());
        let mut damaged = der.clone();
        damaged[place] = byte;
        let _ = Content::of(&damaged);
        prop_assert!(Content::of(&der[..place]).is_none());
    }
}

fn pem_der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}
