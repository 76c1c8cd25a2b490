//! TLS: private authorities, client certificates, and errors of both.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::fixture::{Running, Server, free_port, refusal};

/// An authority, and a folder for what it issues.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder }
    }

    /// A certificate `<name>.pem` and its key `<name>.key`.
    fn issue(&self, name: &str, host: &str, last_year: i32) {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server with that certificate, and the line with its url.
    async fn server(&self, name: &str, auth_clients: &str) -> (Server, String) {
        let port = free_port();
        let shown = |name: String| self.path(&name).display().to_string();
        let server = Server::start(&[
            "--tls-port",
            &port.to_string(),
            "--port",
            "0",
            "--tls-cert-file",
            &shown(format!("{name}.pem")),
            "--tls-key-file",
            &shown(format!("{name}.key")),
            "--tls-ca-cert-file",
            &shown("ca.pem".to_owned()),
            "--tls-auth-clients",
            auth_clients,
        ])
        .await;
        (server, format!("url = 'rediss://localhost:{port}'"))
    }
}

fn ca(path: &Path) -> String {
    format!("ca = '{}'", path.join("ca.pem").display())
}

#[tokio::test]
async fn private_authority_and_client_certificate_are_used() {
    let authority = Authority::new();
    authority.issue("server", "localhost", 2099);
    authority.issue("gateway", "gateway", 2099);
    let (_server, url) = authority.server("server", "yes").await;
    let folder = authority.folder.path();
    let lines = format!("{url}\n{}", ca(folder));
    let refused = refusal(&lines).await;
    assert!(
        refused.contains("certificate required") || refused.contains("CertificateRequired"),
        "{refused}"
    );
    let running = Running::start(&format!(
        "{lines}\nclient_cert = '{0}/gateway.pem'\nclient_key = '{0}/gateway.key'",
        folder.display()
    ));
    running.until_writes().await;
}

#[tokio::test]
async fn row_23_error_says_what_is_wrong_with_a_certificate() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.issue("server", "localhost", 2099);
    authority.issue("expired", "localhost", 2021);
    authority.issue("other_host", "redis.example", 2099);
    let folder = authority.folder.path();
    let failure = async |name: &str, authority_of: &Path| {
        let (_server, url) = authority.server(name, "no").await;
        refusal(&format!("{url}\n{}", ca(authority_of))).await
    };
    assert_eq!(failure("server", folder).await, "connected");
    let wrong_ca = failure("server", other.folder.path()).await;
    assert!(wrong_ca.contains("TLS: invalid peer certificate"), "{wrong_ca}");
    let expired = failure("expired", folder).await;
    assert!(expired.contains("certificate expired"), "{expired}");
    let other_host = failure("other_host", folder).await;
    assert!(other_host.contains("not valid for name"), "{other_host}");

    let (_server, url) = authority.server("server", "no").await;
    let public = refusal(&url).await;
    assert!(public.contains("UnknownIssuer"), "{public}");
    let plain = Server::start(&[]).await;
    let port = free_port();
    plain.ask(&format!("CONFIG SET port {port}"));
    let plain = refusal(&format!("url = 'rediss://localhost:{port}'")).await;
    assert!(plain.contains("the TLS handshake"), "{plain}");
}

/// A certificate that is renewed in place serves for the next connection.
#[tokio::test]
async fn certificate_files_are_read_for_every_connection() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.issue("server", "localhost", 2099);
    let (_server, url) = authority.server("server", "no").await;
    let running = Running::start(&format!("{url}\n{}", ca(other.folder.path())));
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(running.link.current().is_none());
    fs::copy(authority.path("ca.pem"), other.path("ca.pem")).unwrap();
    running.until_writes().await;
}
