//! TLS to Redis and to others that the gateway asks: who may vouch for the server, and who the gateway is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio_rustls::TlsConnector;

use crate::policy::redis::Tls;

/// Files beyond this are not read; all authorities of a system together have a quarter of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why the files that a table names cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("`{setting}` of [{table}]: cannot read {path}: {source}")]
    Unreadable {
        /// The table.
        table: &'static str,
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("`{setting}` of [{table}]: {path} holds no {wanted} in PEM")]
    Empty {
        /// The table.
        table: &'static str,
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
    },
    /// Certificate and key do not fit, or neither is of a kind that is supported.
    #[error("`client_cert` and `client_key` of [{0}]: {1}")]
    Identity(&'static str, rustls::Error),
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Library(rustls::Error),
}

/// Reads the files, and makes of them what connections are encrypted with. `table` is what names them
/// in the file.
///
/// # Errors
/// See [`TlsError`].
pub fn connector(table: &'static str, tls: &Tls) -> Result<TlsConnector, TlsError> {
    // The provider is named here rather than installed in the process, so that nothing depends on
    // who comes first.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?
        .with_root_certificates(roots(table, tls.ca.as_deref())?);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = certificates(table, "client_cert", &identity.certificate)?;
            let key = key(table, "client_key", &identity.key)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::Identity(table, error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Those who may vouch for the server. Without a file, the public ones: built in, since small
/// containers have no file of them.
fn roots(table: &'static str, file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            // A system's bundle holds some that are out of use; one good one is enough.
            let (added, _) = roots.add_parsable_certificates(certificates(table, "ca", path)?);
            if added == 0 {
                let path = path.to_owned();
                return Err(TlsError::Empty { table, setting: "ca", path, wanted: "authority" });
            }
        }
    }
    Ok(roots)
}

fn certificates(
    table: &'static str,
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(table, setting, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates.ok().filter(|found| !found.is_empty()).ok_or_else(|| TlsError::Empty {
        table,
        setting,
        path: path.to_owned(),
        wanted: "certificate",
    })
}

fn key(
    table: &'static str,
    setting: &'static str,
    path: &Path,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(table, setting, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsError::Empty {
        table,
        setting,
        path: path.to_owned(),
        wanted: "private key",
    })
}

fn read(table: &'static str, setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable =
        |source| TlsError::Unreadable { table, setting, path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}
