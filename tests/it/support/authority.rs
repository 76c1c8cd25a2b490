//! A certificate authority in a temporary folder.

use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

use super::child::spawned;
use super::files::replace_file;

/// An authority, and the folder with what it has issued.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

/// Paths of a certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Tests' authority");
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(path("ca.key"), key.serialize_pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder }
    }

    /// Path of the authority's certificate.
    pub(crate) fn ca(&self) -> String {
        self.path("ca.pem")
    }

    /// Path of a file of the folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Issues the server certificate `<file>.pem` and its key `<file>.key` for these names and
    /// addresses.
    pub(crate) fn issue(&self, file: &str, names: &[&str]) -> Issued {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, file);
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        self.sign(file, params)
    }

    /// Issues a client certificate with the subject `CN=<name>,O=tests`.
    pub(crate) fn issue_client(&self, name: &str) -> Issued {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "tests");
        params.distinguished_name.push(DnType::CommonName, name);
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ClientAuth);
        self.sign(name, params)
    }

    fn sign(&self, file: &str, mut params: CertificateParams) -> Issued {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2099, 12, 31);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let issued = Issued {
            certificate: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
        };
        replace_file(&issued.certificate, certificate.pem());
        replace_file(&issued.key, key.serialize_pem());
        issued
    }

    /// Signs an OCSP response, valid for a week, that says that the certificate is good.
    pub(crate) fn staple(&self, issued: &Issued) -> String {
        let name = issued.certificate.rsplit('/').next().unwrap().trim_end_matches(".pem");
        let [request, response, index] =
            ["request.der", "ocsp", "index"].map(|ending| self.path(&format!("{name}.{ending}")));
        let serial = openssl(|command| {
            command.args(["x509", "-noout", "-serial", "-in"]).arg(&issued.certificate);
        });
        let serial = serial.trim().trim_start_matches("serial=");
        // The database of `openssl ca`: status, expiry, revocation, serial, file, subject.
        std::fs::write(&index, format!("V\t991231000000Z\t\t{serial}\tunknown\t/CN={name}\n"))
            .unwrap();
        openssl(|command| {
            command.args(["ocsp", "-issuer"]).arg(self.ca()).arg("-cert").arg(&issued.certificate);
            command.arg("-no_nonce").arg("-reqout").arg(&request);
        });
        openssl(|command| {
            command.args(["ocsp", "-ndays", "7", "-index"]).arg(&index);
            command.arg("-CA").arg(self.ca()).arg("-rsigner").arg(self.ca());
            command.arg("-rkey").arg(self.path("ca.key"));
            command.arg("-reqin").arg(&request).arg("-respout").arg(&response);
        });
        response
    }
}

impl Issued {
    /// The entry of `certificates` in `gateway.toml`.
    pub(crate) fn entry(&self) -> String {
        format!("{{ cert = {:?}, key = {:?} }}", self.certificate, self.key)
    }
}

/// Runs openssl and returns its standard output. Panics if it fails.
#[track_caller]
fn openssl(arguments: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new("openssl");
    arguments(&mut command);
    let output = spawned(command.output(), &command, "apt-get install openssl");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command:?}: {stderr}");
    stdout
}
