//! Selection of a certificate by the server name that a client sends (SNI), among 1 and among
//! 10,000 certificates, and their memory.
//!
//! ```sh
//! cargo bench --bench certificates
//! ```

#![allow(clippy::unwrap_used, reason = "a benchmark speaks by its output")]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use divan::{Bencher, black_box};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::SignatureScheme;
use tollgate::policy::listener::{CertificateFiles, Listener, ListenerTls, TlsVersion};
use tollgate::tls::certificate::Certificate;
use tollgate::tls::files::TlsFiles;
use tollgate::tls::server::ServerTls;
use tollgate::tls::store::CertificateStore;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MANY: usize = 10_000;
/// What a client with OpenSSL accepts first.
const SCHEMES: [SignatureScheme; 2] =
    [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256];

static ONE: LazyLock<ServerTls> = LazyLock::new(|| listener(&issued(1)));
static ALL: LazyLock<ServerTls> = LazyLock::new(|| listener(&issued(MANY)));

fn main() {
    let issued = issued(MANY);
    let before = resident_bytes();
    let tls = listener(&issued);
    let bytes = (resident_bytes() - before) / MANY;
    assert!(tls.certificate_for(Some("name-9999.example.com"), &SCHEMES).is_some());
    println!(
        "{bytes} bytes of resident memory per certificate (ECDSA P-256, two names, chain of 2)"
    );
    divan::main();
}

/// Chain and key of a certificate, in PEM.
type Pem = (String, String);

/// Certificates for `name-N.example.com` and all names below it.
fn issued(count: usize) -> Vec<Pem> {
    let authority = CertificateParams::new(Vec::new()).unwrap();
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let issue = |number| {
        let name = format!("name-{number}.example.com");
        let params = CertificateParams::new([name.clone(), format!("*.{name}")]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (certificate.pem() + &issuer.pem(), key.serialize_pem())
    };
    (0..count).map(issue).collect()
}

/// A listener with these certificates.
fn listener(issued: &[Pem]) -> ServerTls {
    let mut loaded = TlsFiles::default();
    let mut certificates = Vec::new();
    for (number, (chain, key)) in issued.iter().enumerate() {
        let path = Path::new(&format!("{number}.pem")).to_owned();
        let certificate =
            Certificate::from_pem(&path, chain.as_bytes(), key.as_bytes(), 1_800_000_000).unwrap();
        let files = CertificateFiles { cert: path.clone(), key: path, ocsp: None };
        loaded.replace(files.clone(), Arc::new(certificate));
        certificates.push(files);
    }
    let tls =
        ListenerTls { certificates, acme: false, client_auth: None, min_version: TlsVersion::V1_2 };
    let clear = Listener::clear("127.0.0.1:443".parse().unwrap());
    let listener = Listener { tls: Some(tls), ..clear };
    let store = Arc::new(CertificateStore::default());
    ServerTls::new(&listener, &loaded, &store, None).unwrap().unwrap()
}

#[divan::bench]
fn exact_name_of_one(bencher: Bencher<'_, '_>) {
    let tls = &*ONE;
    bencher.bench(|| tls.certificate_for(black_box(Some("name-0.example.com")), &SCHEMES));
}

#[divan::bench]
fn exact_name_of_10_000(bencher: Bencher<'_, '_>) {
    let (tls, names) = (&*ALL, names("name-"));
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + 7_919) % MANY;
        tls.certificate_for(black_box(Some(&names[turn])), &SCHEMES)
    });
}

#[divan::bench]
fn wildcard_of_10_000(bencher: Bencher<'_, '_>) {
    let (tls, names) = (&*ALL, names("www.name-"));
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + 7_919) % MANY;
        tls.certificate_for(black_box(Some(&names[turn])), &SCHEMES)
    });
}

#[divan::bench]
fn unknown_name_of_10_000(bencher: Bencher<'_, '_>) {
    let tls = &*ALL;
    bencher.bench(|| tls.certificate_for(black_box(Some("unknown.example.org")), &SCHEMES));
}

fn names(start: &str) -> Vec<String> {
    (0..MANY).map(|number| format!("{start}{number}.example.com")).collect()
}

/// Resident memory of this process. Assumes pages of 4 KiB.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    4_096 * statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}
