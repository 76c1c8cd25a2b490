//! The TLS of all listeners in force. New connections use it; established ones keep theirs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::certificate::Certificate;
use super::failures::Failures;
use super::files::TlsFiles;
use super::server::{ServerTls, ServerTlsError};
use super::store::CertificateStore;
use crate::policy::listener::{CertificateFiles, ListenAddress, Listener};

#[derive(Debug, Default)]
pub struct TlsListeners {
    store: Arc<CertificateStore>,
    current: ArcSwap<Current>,
    failures: Failures,
    /// Held while the current one is replaced.
    replacing: Mutex<()>,
}

/// What the listeners use.
#[derive(Debug, Default)]
struct Current {
    listeners: Vec<Listener>,
    files: TlsFiles,
    /// One for each of `listeners`; `None`: in clear.
    servers: Vec<Option<Arc<ServerTls>>>,
}

impl TlsListeners {
    /// The certificates that the gateway obtains itself.
    pub fn store(&self) -> &Arc<CertificateStore> {
        &self.store
    }

    /// The TLS of the listener at this address; `None`: it is in clear. `hint`: see
    /// [`Listener::position`].
    pub fn of(&self, hint: usize, address: &ListenAddress) -> Option<Arc<ServerTls>> {
        let current = self.current.load();
        let index = Listener::position(&current.listeners, hint, address)?;
        current.servers.get(index)?.clone()
    }

    /// Puts the listeners of a policy in force, with their files.
    ///
    /// # Errors
    /// See [`ServerTlsError`]; then nothing changes.
    pub fn apply(&self, listeners: &[Listener], files: TlsFiles) -> Result<(), ServerTlsError> {
        let _replacing = self.replacing.lock();
        self.put(listeners.to_vec(), files)
    }

    /// Changes the files in force.
    ///
    /// # Errors
    /// See [`ServerTlsError`]; then nothing changes.
    pub fn change_files(&self, change: impl FnOnce(&mut TlsFiles)) -> Result<(), ServerTlsError> {
        let _replacing = self.replacing.lock();
        let current = self.current.load_full();
        let mut files = current.files.clone();
        change(&mut files);
        self.put(current.listeners.clone(), files)
    }

    /// The certificates that could not be replaced or obtained.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The files in force.
    pub fn files(&self) -> TlsFiles {
        self.current.load().files.clone()
    }

    /// All certificates in force: those of files in the order of the configuration, each once, then
    /// those of `[acme]`, which have no files.
    pub fn certificates(&self) -> Vec<(Option<CertificateFiles>, Arc<Certificate>)> {
        let current = self.current.load();
        let tls = current.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let mut found: Vec<(Option<CertificateFiles>, Arc<Certificate>)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for files in tls.flat_map(|tls| &tls.certificates).filter(|files| seen.insert(*files)) {
            let certificate = current.files.certificate(files);
            found.extend(certificate.map(|it| (Some(files.clone()), Arc::clone(it))));
        }
        found.extend(self.store.acme().into_iter().map(|certificate| (None, certificate)));
        found
    }

    fn put(&self, listeners: Vec<Listener>, files: TlsFiles) -> Result<(), ServerTlsError> {
        let server = |(index, listener): (usize, &Listener)| {
            let previous = self.of(index, &listener.address);
            let server = ServerTls::new(listener, &files, &self.store, previous.as_deref());
            server.map(|server| server.map(Arc::new))
        };
        let servers = listeners.iter().enumerate().map(server).collect::<Result<_, _>>()?;
        self.current.store(Arc::new(Current { listeners, files, servers }));
        Ok(())
    }
}
