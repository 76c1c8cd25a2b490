//! Loads certificate files again after they have changed. Files that do not fit together are read
//! again for a while before they count as wrong: a certificate and its key are replaced one after
//! the other.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::authorities::Authorities;
use super::certificate::{Certificate, CertificateError};
use super::files::TlsFiles;
use crate::policy::listener::CertificateFiles;

/// How long files may be wrong before they are reported, in microseconds.
const GRACE_US: u64 = 3_000_000;

/// What is known of the files of the listeners on disk.
#[derive(Debug, Default)]
pub struct Refresher {
    certificates: HashMap<CertificateFiles, OnDisk>,
    authorities: HashMap<PathBuf, OnDisk>,
}

/// The state of files as of the last round.
#[derive(Debug, Default)]
struct OnDisk {
    signatures: Vec<Option<Signature>>,
    failing: Option<Failing>,
}

/// A file that cannot be used.
#[derive(Debug)]
struct Failing {
    /// Since when, in microseconds of the monotonic clock.
    since: u64,
    /// The message that was reported.
    reported: Option<String>,
}

/// What changes if the content of a file may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signature {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The result of a round.
#[derive(Debug, Default)]
pub struct Round {
    /// What to put in force.
    pub certificates: Vec<(CertificateFiles, Arc<Certificate>)>,
    /// What to put in force.
    pub authorities: Vec<(PathBuf, Authorities)>,
    /// What to report.
    pub events: Vec<RefreshEvent>,
    /// Whether files are wrong that have not been reported: the next round follows soon.
    pub is_pending: bool,
}

/// What happened to a certificate, or to the authorities of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefreshEvent {
    /// Other files are in use now.
    Replaced {
        /// Name of the certificate, or path of the authorities.
        name: Arc<str>,
        /// Path of the certificate or of the authorities.
        file: PathBuf,
        /// Its end, as Unix time in seconds; `None` for authorities.
        not_after: Option<u64>,
    },
    /// The files cannot be used; the previous ones stay in use.
    Failed {
        /// Name of the certificate that stays in use, or path of the authorities.
        name: Arc<str>,
        /// Path of the certificate or of the authorities.
        file: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// Files that could not be used are as they are in use again.
    Recovered {
        /// Name of the certificate, or path of the authorities.
        name: Arc<str>,
        /// Path of the certificate or of the authorities.
        file: PathBuf,
    },
    /// The OCSP response has expired and is no longer stapled.
    StapleExpired {
        /// Name of the certificate.
        name: Arc<str>,
    },
}

/// The times of a round: microseconds of the monotonic clock, and Unix time in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Microseconds of the monotonic clock.
    pub monotonic_us: u64,
    /// Unix time in seconds.
    pub unix_s: u64,
}

/// What was read of the files of a certificate, or of a list of authorities.
struct Load<'a, T> {
    /// Its name in events.
    name: &'a Arc<str>,
    file: &'a Path,
    result: Result<T, CertificateError>,
}

impl Refresher {
    /// Reads the files of `in_force` again that may have changed. Blocks as long as the file system
    /// does.
    pub fn round(&mut self, in_force: &TlsFiles, times: Times) -> Round {
        let mut round = Round::default();
        self.certificates.retain(|files, _| in_force.certificate(files).is_some());
        self.authorities.retain(|path, _| in_force.authorities_of(path).is_some());
        for (files, certificate) in in_force.certificates() {
            let on_disk = self.certificates.entry(files.clone()).or_default();
            let now = signatures(&[Some(&files.cert), Some(&files.key), files.ocsp.as_ref()]);
            let is_staple_over = certificate.is_staple_over(times.unix_s);
            if !on_disk.may_have_changed(now) && !is_staple_over {
                continue;
            }
            let name = certificate.name();
            let result = Certificate::load_again(files, certificate, times.unix_s);
            let load = Load { name, file: &files.cert, result };
            let is_in_force = |loaded: &Arc<Certificate>| Arc::ptr_eq(loaded, certificate);
            let Some(loaded) = on_disk.settle(load, is_in_force, times, &mut round) else {
                continue;
            };
            round.events.push(if is_staple_over && loaded.is_same(certificate) {
                RefreshEvent::StapleExpired { name: Arc::clone(name) }
            } else {
                let not_after = Some(loaded.not_after());
                RefreshEvent::Replaced {
                    name: Arc::clone(loaded.name()),
                    file: files.cert.clone(),
                    not_after,
                }
            });
            round.certificates.push((files.clone(), loaded));
        }
        for (path, authorities) in in_force.authorities() {
            let on_disk = self.authorities.entry(path.clone()).or_default();
            if !on_disk.may_have_changed(signatures(&[Some(path)])) {
                continue;
            }
            let name: Arc<str> = path.display().to_string().into();
            let load = Load { name: &name, file: path, result: Authorities::load(path) };
            let is_in_force = |loaded: &Authorities| loaded.digest == authorities.digest;
            let Some(loaded) = on_disk.settle(load, is_in_force, times, &mut round) else {
                continue;
            };
            round.events.push(RefreshEvent::Replaced { name, file: path.clone(), not_after: None });
            round.authorities.push((path.clone(), loaded));
        }
        round
    }
}

impl OnDisk {
    /// Whether the files must be read: their signatures have changed, or they could not be used.
    fn may_have_changed(&mut self, signatures: Vec<Option<Signature>>) -> bool {
        let is_other = self.signatures != signatures;
        self.signatures = signatures;
        is_other || self.failing.is_some()
    }

    /// Takes the result of a load: what has changed, if it has.
    fn settle<T>(
        &mut self,
        load: Load<'_, T>,
        is_in_force: impl FnOnce(&T) -> bool,
        times: Times,
        round: &mut Round,
    ) -> Option<T> {
        let Load { name, file, result } = load;
        match result {
            Ok(loaded) => {
                let failing = self.failing.take();
                if !is_in_force(&loaded) {
                    return Some(loaded);
                }
                if failing.is_some_and(|failing| failing.reported.is_some()) {
                    round.events.push(RefreshEvent::Recovered {
                        name: Arc::clone(name),
                        file: file.to_owned(),
                    });
                }
                None
            }
            Err(error) => {
                let since = times.monotonic_us;
                let failing = self.failing.get_or_insert(Failing { since, reported: None });
                let message = error.to_string();
                if times.monotonic_us.saturating_sub(failing.since) < GRACE_US {
                    round.is_pending = true;
                } else if failing.reported.as_ref() != Some(&message) {
                    failing.reported = Some(message.clone());
                    round.events.push(RefreshEvent::Failed {
                        name: Arc::clone(name),
                        file: file.to_owned(),
                        message,
                    });
                }
                None
            }
        }
    }
}

fn signatures(paths: &[Option<&PathBuf>]) -> Vec<Option<Signature>> {
    paths.iter().flatten().map(|path| signature(path)).collect()
}

/// `None` if the file cannot be read.
fn signature(path: &Path) -> Option<Signature> {
    let about = std::fs::metadata(path).ok()?;
    Some(Signature {
        device: about.dev(),
        inode: about.ino(),
        bytes: about.size(),
        modified: (about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Authority, listener, shown};
    use super::*;

    const UNIX_S: u64 = 1_790_000_000;

    struct Disk {
        authority: Authority,
        in_force: TlsFiles,
        refresher: Refresher,
    }

    impl Disk {
        fn new() -> (Self, CertificateFiles) {
            let authority = Authority::new();
            let files = authority.issue("a", &["a.example"]);
            let listeners = [listener(vec![files.clone()], None)];
            let (in_force, _) = TlsFiles::load(&listeners, UNIX_S);
            let mut disk = Self { authority, in_force, refresher: Refresher::default() };
            assert_eq!(disk.round(0), "");
            (disk, files)
        }

        /// One round at a time in milliseconds: its events in one line.
        fn round(&mut self, at_ms: u64) -> String {
            let times = Times { monotonic_us: at_ms * 1_000, unix_s: UNIX_S };
            let round = self.refresher.round(&self.in_force, times);
            for (files, certificate) in round.certificates {
                self.in_force.replace(files, certificate);
            }
            let events = round.events.iter().map(|event| match event {
                RefreshEvent::Replaced { name, .. } => format!("replaced {name}"),
                RefreshEvent::Failed { name, message, .. } => format!("failed {name}: {message}"),
                RefreshEvent::Recovered { name, .. } => format!("recovered {name}"),
                RefreshEvent::StapleExpired { name } => format!("staple of {name}"),
            });
            let mut events = events.collect::<Vec<_>>();
            events.extend(round.is_pending.then(|| "pending".to_owned()));
            shown(self.authority.folder.path(), &events.join(", "))
        }
    }

    #[test]
    fn certificate_and_key_may_be_replaced_one_after_the_other() {
        let (mut disk, files) = Disk::new();
        let old_key = std::fs::read(&files.key).unwrap();
        disk.authority.issue("a", &["a.example", "b.example"]);
        let new_key = std::fs::read(&files.key).unwrap();
        std::fs::write(&files.key, &old_key).unwrap();
        assert_eq!(disk.round(1_000), "pending");
        assert_eq!(disk.round(3_999), "pending");
        std::fs::write(&files.key, &new_key).unwrap();
        assert_eq!(disk.round(4_100), "replaced a.example");
        assert_eq!(disk.in_force.certificate(&files).unwrap().dns_names().len(), 2);
        assert_eq!(disk.round(5_000), "");
    }

    #[test]
    fn wrong_files_are_reported_once_and_the_previous_certificate_stays() {
        let (mut disk, files) = Disk::new();
        let good = std::fs::read(&files.key).unwrap();
        std::fs::write(&files.key, "x").unwrap();
        assert_eq!(disk.round(1_000), "pending");
        let failed = "failed a.example: ./a.key contains no private key in PEM";
        assert_eq!(disk.round(4_000), failed);
        assert_eq!(disk.round(9_000), "");
        std::fs::remove_file(&files.key).unwrap();
        let failed =
            "failed a.example: cannot read ./a.key: No such file or directory (os error 2)";
        assert_eq!(disk.round(9_500), failed);
        assert_eq!(disk.round(60_000), "");
        std::fs::write(&files.key, &good).unwrap();
        assert_eq!(disk.round(61_000), "recovered a.example");
        assert_eq!(disk.round(62_000), "");
        disk.authority.issue("a", &["b.example"]);
        assert_eq!(disk.round(63_000), "replaced b.example");
    }
}
