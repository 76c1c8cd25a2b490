//! All files that the listeners of a policy name, loaded.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::authorities::Authorities;
use super::certificate::{Certificate, CertificateError};
use crate::policy::listener::{CertificateFiles, Listener, ListenerTls};

/// The certificates and authorities that listeners name. Each file is read once, even if several
/// listeners name it.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    certificates: HashMap<CertificateFiles, Arc<Certificate>>,
    authorities: HashMap<PathBuf, Authorities>,
}

/// A file of a listener that cannot be used.
#[derive(Debug)]
pub struct FileProblem {
    /// Index of the listener in the policy.
    pub listener: usize,
    /// Which of its settings names the file.
    pub setting: FileSetting,
    /// Why it cannot be used.
    pub error: CertificateError,
}

/// A setting of a listener that names files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSetting {
    /// The certificate files with this index in [`ListenerTls::certificates`].
    Certificate(usize),
    ClientCa,
}

impl TlsFiles {
    /// Reads all files of `listeners`, and returns those that could be used with the problems of
    /// the others. `now` is the Unix time in seconds. Blocks as long as the file system does.
    pub fn load(listeners: &[Listener], now: u64) -> (Self, Vec<FileProblem>) {
        let mut files = Self::default();
        let mut problems = Vec::new();
        for (listener, tls) in with_tls(listeners) {
            for (index, named) in tls.certificates.iter().enumerate() {
                if files.certificates.contains_key(named) {
                    continue;
                }
                match Certificate::load(named, now) {
                    Ok(loaded) => drop(files.certificates.insert(named.clone(), Arc::new(loaded))),
                    Err(error) => {
                        let setting = FileSetting::Certificate(index);
                        problems.push(FileProblem { listener, setting, error });
                    }
                }
            }
            let ca = tls.client_auth.as_ref().map(|auth| &auth.ca);
            let Some(path) = ca.filter(|path| !files.authorities.contains_key(*path)) else {
                continue;
            };
            match Authorities::load(path) {
                Ok(loaded) => drop(files.authorities.insert(path.clone(), loaded)),
                Err(error) => {
                    let setting = FileSetting::ClientCa;
                    problems.push(FileProblem { listener, setting, error });
                }
            }
        }
        (files, problems)
    }

    /// The certificate of these files.
    pub fn certificate(&self, files: &CertificateFiles) -> Option<&Arc<Certificate>> {
        self.certificates.get(files)
    }

    /// All certificates with their files, in no particular order.
    pub fn certificates(&self) -> impl Iterator<Item = (&CertificateFiles, &Arc<Certificate>)> {
        self.certificates.iter()
    }

    /// Replaces the certificate of these files.
    pub fn replace(&mut self, files: CertificateFiles, certificate: Arc<Certificate>) {
        self.certificates.insert(files, certificate);
    }

    /// All files of authorities, in no particular order.
    pub fn authorities(&self) -> impl Iterator<Item = (&PathBuf, &Authorities)> {
        self.authorities.iter()
    }

    /// The authorities of this file.
    pub(super) fn authorities_of(&self, path: &Path) -> Option<&Authorities> {
        self.authorities.get(path)
    }

    /// Replaces the authorities of this file.
    pub fn replace_authorities(&mut self, path: PathBuf, authorities: Authorities) {
        self.authorities.insert(path, authorities);
    }

    /// Whether the authorities of this file are loaded.
    pub fn has_authorities(&self, path: &Path) -> bool {
        self.authorities.contains_key(path)
    }

    /// Whether no file is loaded.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty() && self.authorities.is_empty()
    }

    /// Paths of all files that these listeners name, each once.
    pub fn paths_of(listeners: &[Listener]) -> Vec<PathBuf> {
        let mut paths = BTreeSet::new();
        for (_, tls) in with_tls(listeners) {
            for CertificateFiles { cert, key, ocsp } in &tls.certificates {
                paths.extend([cert.clone(), key.clone()]);
                paths.extend(ocsp.clone());
            }
            paths.extend(tls.client_auth.as_ref().map(|auth| auth.ca.clone()));
        }
        paths.into_iter().collect()
    }
}

/// The listeners with TLS, with their indexes.
fn with_tls(listeners: &[Listener]) -> impl Iterator<Item = (usize, &ListenerTls)> {
    listeners.iter().enumerate().filter_map(|(index, it)| Some((index, it.tls.as_ref()?)))
}
