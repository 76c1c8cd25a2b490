//! The certificates of the listeners, which are loaded with the configuration file: a file that
//! cannot be used is an error at the setting that names it.

use std::ops::Range;
use std::path::PathBuf;

use super::values::{Unknown, Values};
use crate::config::Config;
use crate::config::diagnostic::Diagnostic;
use crate::config::listeners::Listener as Written;
use crate::config::spanned::Spanned;
use crate::config::tables::{Field, TextOr};
use crate::policy::Policy;
use crate::policy::build::PLACEHOLDER;
use crate::tls::certificate::{CertificateError, Part};
use crate::tls::files::{FileProblem, FileSetting, TlsFiles};

/// The loaded files, and the paths of all files, which include those that could not be loaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded {
    pub(super) files: TlsFiles,
    pub(super) paths: Vec<PathBuf>,
}

/// Loads the files of the listeners of a policy, which was built from `config`. `now` is the Unix
/// time in seconds.
pub(super) fn load(
    policy: &Policy,
    config: &Config,
    values: &Values,
    now: u64,
) -> (Loaded, Vec<Diagnostic>) {
    if values.unknown() == Unknown::AssumeAll {
        return (Loaded::default(), Vec::new());
    }
    let (files, problems) = TlsFiles::load(&policy.listeners, now);
    let places = Places::of(policy, config);
    let mut diagnostics = Vec::new();
    for problem in &problems {
        if values.unknown() == Unknown::Assume
            && let CertificateError::Unreadable { path, .. } = &problem.error
        {
            let path = path.display().to_string();
            // A path with a placeholder is listed by its reference.
            if !path.contains(PLACEHOLDER) {
                values.assume(&path);
            }
            continue;
        }
        diagnostics.push(places.error(problem));
    }
    diagnostics.extend(warnings(policy, &files, &places, now));
    let paths = TlsFiles::paths_of(&policy.listeners);
    (Loaded { files, paths }, diagnostics)
}

/// What clients may object to, once for each certificate.
fn warnings(policy: &Policy, files: &TlsFiles, places: &Places<'_>, now: u64) -> Vec<Diagnostic> {
    let mut seen = Vec::new();
    let mut diagnostics = Vec::new();
    for (index, listener) in policy.listeners.iter().enumerate() {
        let named = listener.tls.iter().flat_map(|tls| tls.certificates.iter().enumerate());
        for (number, certificate) in named.filter_map(|(at, it)| Some((at, files.certificate(it)?)))
        {
            if seen.iter().any(|other| std::ptr::eq::<_>(*other, &raw const **certificate)) {
                continue;
            }
            seen.push(&raw const **certificate);
            for warning in certificate.warnings(now) {
                let part = if warning.is_of_staple() { Part::Ocsp } else { Part::Cert };
                let span = places.span(index, FileSetting::Certificate(number), part);
                let message = format!("the certificate of {} {warning}", certificate.name());
                let diagnostic = Diagnostic::warning(span, message);
                diagnostics.push(match warning.help() {
                    Some(help) => diagnostic.help(help),
                    None => diagnostic,
                });
            }
        }
    }
    diagnostics
}

/// Where the file has the settings of each listener.
struct Places<'a> {
    tables: &'a [Spanned<Written>],
    /// Number of listeners before those of `[[listeners]]`.
    others: usize,
}

impl<'a> Places<'a> {
    fn of(policy: &Policy, config: &'a Config) -> Self {
        let tables = config.listeners.as_ref().map_or(&[][..], |list| list.get_ref());
        let others = policy.listeners.len().saturating_sub(tables.len());
        Self { tables, others }
    }

    fn error(&self, problem: &FileProblem) -> Diagnostic {
        let FileProblem { listener, setting, error } = problem;
        let span = self.span(*listener, *setting, error.part());
        let diagnostic = Diagnostic::new(span, error.to_string()).help(error.help());
        if matches!(error, CertificateError::Mismatch { .. }) {
            return diagnostic.and(self.span(*listener, *setting, Part::Cert), "the certificate");
        }
        diagnostic
    }

    /// The bytes of the setting that names a file.
    fn span(&self, listener: usize, setting: FileSetting, part: Part) -> Range<usize> {
        let table = listener.checked_sub(self.others).and_then(|index| self.tables.get(index));
        let Some(table) = table else { return 0..0 };
        let span = match setting {
            FileSetting::ClientCa => table.get_ref().client_ca.as_ref().map(Spanned::span),
            FileSetting::Certificate(index) => certificate(table.get_ref(), index, part),
        };
        span.unwrap_or_else(|| table.span())
    }
}

/// The bytes of a setting of the certificate files with this index.
fn certificate(table: &Written, index: usize, part: Part) -> Option<Range<usize>> {
    let items = table.certificates.as_ref()?.get_ref().iter();
    let mut files = items.filter_map(|item| match item.get_ref() {
        TextOr::Table(files) => Some((files, item.span())),
        TextOr::Text(_) => None,
    });
    let (files, span) = files.nth(index)?;
    let field: &Field<String> = match part {
        Part::Cert => &files.cert,
        Part::Key => &files.key,
        Part::Ocsp => &files.ocsp,
    };
    Some(field.as_ref().map_or(span, Spanned::span))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{CertificateParams, KeyPair};

    use crate::load::{Checked, Unknown, check, load, load_settings};

    /// Writes the certificate `<stem>.pem` for these names, and its key `<stem>.key`.
    fn issue(folder: &Path, stem: &str, change: impl FnOnce(&mut CertificateParams)) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([format!("{stem}.example")]).unwrap();
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.join(format!("{stem}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{stem}.key")), key.serialize_pem()).unwrap();
    }

    /// A file with a listener that has these certificates.
    fn file(listener: &str) -> String {
        format!(
            "[[listeners]]\naddress = '127.0.0.1:8443'\n{listener}\n[upstreams.api]\nservers = \
             ['demo']\n[routes.all]\n"
        )
    }

    #[test]
    fn file_that_cannot_be_used_is_an_error_at_its_setting() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        issue(folder, "a", |_| {});
        issue(folder, "b", |_| {});
        let path = folder.join("gateway.toml");
        let text = |listener: &str| {
            std::fs::write(&path, file(listener)).unwrap();
            let error = load(&path).err().map_or_else(String::new, |error| error.to_string());
            error.replace(&folder.display().to_string(), ".")
        };
        let pair = "{ cert = 'a.pem', key = 'a.key' }";
        let mut table = text(&format!("certificates = [{pair}]"));
        assert_eq!(table, "");
        for listener in [
            format!("certificates = [\n  {pair},\n  {{ cert = 'a.pem', key = 'b.key' }},\n]"),
            "certificates = [{ cert = 'none.pem', key = 'a.key' }]".to_owned(),
            format!("certificates = [{pair}]\nclient_ca = 'a.key'"),
            "certificates = [{ cert = 'a.pem', key = 'a.key', ocsp = 'a.pem' }]".to_owned(),
        ] {
            table += &text(&listener);
            table += "\n\n";
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn expired_certificate_is_a_warning_and_missing_files_can_be_assumed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        issue(folder, "old", |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        let path = folder.join("gateway.toml");
        let old = "{ cert = 'old.pem', key = 'old.key' }";
        std::fs::write(&path, file(&format!("certificates = [{old}]"))).unwrap();
        let Checked { policy, report, source, .. } = check(&path, Unknown::Reject).unwrap();
        assert!(
            report.to_string().contains("the certificate of old.example has expired"),
            "{report}"
        );
        assert_eq!(policy.warnings.list.len(), 1);
        assert_eq!(source.tls_files().certificates().count(), 1);

        let absent = "certificates = [{ cert = 'none.pem', key = 'none.key' }]";
        std::fs::write(&path, file(absent)).unwrap();
        assert!(check(&path, Unknown::Reject).is_err());
        assert_eq!(load_settings(&path).unwrap().listeners.len(), 1);
        let Checked { source, .. } = check(&path, Unknown::Assume).unwrap();
        assert_eq!(source.assumed(), [folder.join("none.pem").display().to_string()]);
        assert_eq!(source.tls_paths().len(), 2);
    }
}
