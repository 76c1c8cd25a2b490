//! Relative paths in the configuration file, which begin at its folder.

use std::path::{Path, PathBuf};

use crate::policy::Policy;
use crate::policy::acme::AcmeStorage;

/// Completes the relative paths of listeners, upstreams and `[acme]`.
pub(super) fn complete(policy: &mut Policy, folder: &Path) {
    let complete = |path: &mut PathBuf| *path = folder.join(&*path);
    for tls in policy.listeners.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
        for files in &mut tls.certificates {
            complete(&mut files.cert);
            complete(&mut files.key);
            files.ocsp.iter_mut().for_each(complete);
        }
        tls.client_auth.iter_mut().for_each(|auth| complete(&mut auth.ca));
    }
    for tls in policy.upstreams.iter_mut().filter_map(|upstream| upstream.tls.as_mut()) {
        tls.files.ca.iter_mut().for_each(complete);
        if let Some(files) = &mut tls.files.certificate {
            complete(&mut files.chain);
            complete(&mut files.key);
        }
    }
    if let Some(acme) = &mut policy.acme {
        acme.ca.iter_mut().for_each(complete);
        if let AcmeStorage::Folder(path) = &mut acme.storage {
            complete(path);
        }
    }
}
