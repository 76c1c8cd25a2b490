//! Relative paths in the configuration file, which begin at its folder.

use std::path::{Path, PathBuf};

use crate::policy::Policy;
use crate::policy::acme::AcmeStorage;
use crate::policy::key_store::{KeyStore, Place};

/// Completes the relative paths of listeners, upstreams, `[usage]`, `[key_store]` and
/// `[acme]`.
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
    policy.usage.file.iter_mut().for_each(complete);
    if let Some(KeyStore { place: Place::File(path), .. }) = &mut policy.key_store {
        complete(path);
    }
    if let Some(acme) = &mut policy.acme {
        acme.ca.iter_mut().for_each(complete);
        if let AcmeStorage::Folder(path) = &mut acme.storage {
            complete(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::from_text;

    #[test]
    fn relative_paths_begin_at_the_folder_of_the_file() {
        let text = "[[listeners]]\naddress = '127.0.0.1:1'\nclient_ca = 'ca.pem'\n\
            certificates = [{ cert = 'a.pem', key = '/k/a.key', ocsp = 'a.ocsp' }, 'acme']\n\
            [acme]\ndomains = ['a.example']\nca = 'ca.pem'\n[usage]\nfile = 'usage.redb'\n\
            [key_store]\nurl = 'file:keys.redb'\n\
            [upstreams.api]\nservers = ['https://h']\n\
            tls = { ca = 'ca.pem', cert = '../c.pem', key = 'c.key' }\n[routes.all]\n";
        let mut policy = from_text("gateway.toml", text).unwrap();
        complete(&mut policy, Path::new("/etc/t"));
        let Policy { listeners, acme, upstreams, usage, key_store, .. } = &policy;
        let shown = format!("{listeners:?}{acme:?}{upstreams:?}{usage:?}{key_store:?}");
        let expected = [
            ("/etc/t/a.pem", 1),
            ("\"/k/a.key", 1),
            ("/etc/t/a.ocsp", 1),
            ("/etc/t/ca.pem", 3),
            ("/etc/t/acme\"", 1),
            ("/etc/t/usage.redb\"", 1),
            ("/etc/t/keys.redb\"", 1),
            ("/etc/t/../c.pem", 1),
            ("/etc/t/c.key", 1),
        ];
        for (path, count) in expected {
            assert_eq!(shown.matches(path).count(), count, "{path} in {shown}");
        }
    }
}
