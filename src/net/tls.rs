//! TLS configurations, made from PEM files: rustls with `ring` as the provider of cryptography.
//!
//! Clients read their files for every new connection, so that renewed certificates need no restart.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// Maximum number of bytes read from a file. The certificate authorities of a whole system have a
/// quarter of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// TLS to a server, as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Certificate authorities that the certificate of the server is verified against. None: the
    /// public authorities that browsers trust.
    pub ca: Option<PathBuf>,
    /// The client certificate; none: the gateway presents no certificate.
    pub certificate: Option<CertificateFiles>,
}

impl ClientTls {
    /// Paths of the files that it names.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let own = self.certificate.iter().flat_map(|files| [&files.chain, &files.key]);
        self.ca.iter().chain(own).map(PathBuf::as_path)
    }
}

/// A certificate and its private key, which the gateway presents to the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate certificates up to its authority.
    pub chain: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// Settings of `gateway.toml` that name the files, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct SettingNames<'a> {
    /// The table of the settings.
    pub table: &'a str,
    /// The setting for the certificate authorities.
    pub ca: &'a str,
    /// The setting for the certificate.
    pub chain: &'a str,
    /// The setting for the private key.
    pub key: &'a str,
}

/// The names under `[redis]`.
pub const REDIS: SettingNames<'static> =
    SettingNames { table: "redis", ca: "ca", chain: "client_cert", key: "client_key" };

/// The names under `[tracing]`, which has no client certificate.
pub const TRACING: SettingNames<'static> = SettingNames { table: "tracing", ..REDIS };

/// The names under `[acme]`, which has no client certificate.
pub const ACME: SettingNames<'static> = SettingNames { table: "acme", ..REDIS };

/// The names under `[clients.jwt]`, which has no client certificate.
pub const JWT: SettingNames<'static> = SettingNames { table: "clients.jwt", ..REDIS };

/// The names under `forward_auth`, which has no client certificate.
pub const FORWARD_AUTH: SettingNames<'static> = SettingNames { table: "forward_auth", ..REDIS };

/// The names under `[clients.introspection]`, which has no client certificate.
pub const INTROSPECTION: SettingNames<'static> =
    SettingNames { table: "clients.introspection", ..REDIS };

/// The names under `[webhooks.<name>]`, which has no client certificate.
pub const WEBHOOKS: SettingNames<'static> = SettingNames { table: "webhooks.<name>", ..REDIS };

/// Why a TLS configuration cannot be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{setting}: cannot read {path}: {source}")]
    Unreadable {
        /// The setting that names the file, with its table.
        setting: String,
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{setting}: {path} holds no {wanted} in PEM")]
    Empty {
        /// The setting that names the file, with its table.
        setting: String,
        /// Path of the file.
        path: PathBuf,
        /// What the file should contain.
        wanted: &'static str,
    },
    /// Certificate and key do not belong together, or one has an unsupported type.
    #[error("{settings}: {source}")]
    Certificate {
        /// The settings that name both files, with their table.
        settings: String,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The TLS library rejects its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Library(rustls::Error),
}

/// Reads the files of `tls` and returns a connector that uses them. Blocks while it reads.
///
/// # Errors
/// See [`TlsError`].
pub fn connector(names: SettingNames<'_>, tls: &ClientTls) -> Result<TlsConnector, TlsError> {
    Ok(TlsConnector::from(Arc::new(client_config(names, tls)?)))
}

/// Reads the files of `tls` and returns the configuration of a client that uses them. Blocks while
/// it reads.
///
/// # Errors
/// See [`TlsError`].
pub fn client_config(names: SettingNames<'_>, tls: &ClientTls) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?
        .with_root_certificates(authorities(names, tls.ca.as_deref())?);
    match &tls.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some(files) => {
            let (chain, key) = certificate(names, files)?;
            let mismatch = |source| TlsError::Certificate {
                settings: format!("`{}` and `{}` of [{}]", names.chain, names.key, names.table),
                source,
            };
            builder.with_client_auth_cert(chain, key).map_err(mismatch)
        }
    }
}

/// Returns the name that the certificate of `host` must have: a DNS name or an IP address.
///
/// # Errors
/// `host` is neither.
pub fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let host = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// The provider is named here instead of installed in the process, so that no configuration depends
/// on which code runs first.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns the trusted authorities. Without a file these are the public ones, which are built in:
/// small containers have no file of them.
fn authorities(names: SettingNames<'_>, file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut authorities = RootCertStore::empty();
    match file {
        None => authorities.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let setting = setting(names, names.ca);
            // The bundle of a system may contain certificates that rustls rejects; one valid
            // certificate is enough.
            let (added, _) = authorities.add_parsable_certificates(certificates(&setting, path)?);
            if added == 0 {
                let path = path.to_owned();
                return Err(TlsError::Empty { setting, path, wanted: "authority" });
            }
        }
    }
    Ok(authorities)
}

/// Reads a certificate chain and its private key.
fn certificate(
    names: SettingNames<'_>,
    files: &CertificateFiles,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates(&setting(names, names.chain), &files.chain)?;
    let key = private_key(&setting(names, names.key), &files.key)?;
    Ok((chain, key))
}

fn setting(names: SettingNames<'_>, setting: &str) -> String {
    format!("`{setting}` of [{}]", names.table)
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(setting, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| empty(setting, path, "certificate"))
}

fn private_key(setting: &str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(setting, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| empty(setting, path, "private key"))
}

fn empty(setting: &str, path: &Path, wanted: &'static str) -> TlsError {
    TlsError::Empty { setting: setting.to_owned(), path: path.to_owned(), wanted }
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        setting: setting.to_owned(),
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Writes a self-signed certificate `<name>.pem` and its key `<name>.key`.
    fn issue(folder: &Path, name: &str) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    #[test]
    fn errors_name_the_setting_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        issue(folder.path(), "a");
        issue(folder.path(), "b");
        fs::write(path("empty"), "").unwrap();
        fs::write(path("garbage"), [0xff; 100]).unwrap();
        let prefix = folder.path().display().to_string();
        let error = |ca: Option<&str>, certificate: Option<(&str, &str)>| {
            let certificate = certificate
                .map(|(chain, key)| CertificateFiles { chain: path(chain), key: path(key) });
            let tls = ClientTls { ca: ca.map(path), certificate };
            let error = connector(REDIS, &tls).err();
            error.map_or_else(String::new, |error| error.to_string().replace(&prefix, "."))
        };
        assert_eq!(error(None, None), "");
        assert_eq!(error(Some("a.pem"), Some(("a.pem", "a.key"))), "");
        let missing = "`ca` of [redis]: cannot read ./x: No such file or directory (os error 2)";
        assert_eq!(error(Some("x"), None), missing);
        for name in ["empty", "garbage", "a.key"] {
            let expected = format!("`ca` of [redis]: ./{name} holds no certificate in PEM");
            assert_eq!(error(Some(name), None), expected);
        }
        let no_key = "`client_key` of [redis]: ./a.pem holds no private key in PEM";
        assert_eq!(error(None, Some(("a.pem", "a.pem"))), no_key);
        let other_key = error(None, Some(("a.pem", "b.key")));
        let settings = "`client_cert` and `client_key` of [redis]: ";
        assert!(other_key.starts_with(settings), "{other_key}");
    }
}
