//! Certificates for tests.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

use crate::policy::listener::{
    CertificateFiles, ClientAuth, ListenAddress, Listener, ListenerTls, TlsVersion,
};

/// An authority, and a folder for the certificates that it issues.
pub(super) struct Authority {
    pub(super) folder: tempfile::TempDir,
    pub(super) issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority whose certificate is in the file `ca.pem`.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate for these names as the files `<stem>.pem` and `<stem>.key`.
    pub(super) fn issue(&self, stem: &str, names: &[&str]) -> CertificateFiles {
        self.issue_as(stem, names, |_| {})
    }

    /// The same, after a change of the certificate.
    pub(super) fn issue_as(
        &self,
        stem: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateFiles {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = self.files(stem);
        std::fs::write(&files.cert, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// The files `<stem>.pem` and `<stem>.key`.
    pub(super) fn files(&self, stem: &str) -> CertificateFiles {
        let [cert, key] = ["pem", "key"].map(|end| self.path(&format!("{stem}.{end}")));
        CertificateFiles { cert, key, ocsp: None }
    }
}

/// A listener with these certificates.
pub(super) fn listener(certificates: Vec<CertificateFiles>, auth: Option<ClientAuth>) -> Listener {
    let tls =
        ListenerTls { certificates, acme: false, client_auth: auth, min_version: TlsVersion::V1_2 };
    Listener { tls: Some(tls), http2: true, ..Listener::clear("127.0.0.1:8443".parse().unwrap()) }
}

/// The address of [`listener`].
pub(super) fn address() -> ListenAddress {
    ListenAddress::Tcp("127.0.0.1:8443".parse().unwrap())
}

/// Replaces the path of the folder in an error.
pub(super) fn shown(folder: &Path, text: &str) -> String {
    text.replace(&folder.display().to_string(), ".")
}
