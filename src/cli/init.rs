//! `tollgate init`: writes a small configuration file to start with.

mod file;
mod questions;

use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::file::ConfigFile;
use super::{EXIT_BAD_FILE, print};
use crate::config::diagnostic::Report;
use crate::load::{LoadError, Source};
use crate::net::io_text;
use file::{Choices, Per, Tls, UPSTREAM};
use questions::Known;

/// What to write.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// A server that requests are forwarded to; may be repeated [default: 127.0.0.1:3000]
    #[arg(long, value_name = "ADDRESS", alias = "server")]
    upstream: Vec<String>,
    /// Where clients connect [default: 127.0.0.1:8080, with certificates 0.0.0.0:443]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the admin port, on loopback [default: 127.0.0.1:9090, or 9091 if clients connect
    /// to port 9090]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// The rate of the limit, such as 10/s, 100/m or 1000/h [default: 10/s]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// How many requests may come at once after a pause [default: by the rate]
    #[arg(long, value_name = "N")]
    burst: Option<String>,
    /// What has a limit of its own: ip, key, host, method, route or header:NAME, or several with
    /// commas; all for one limit for all clients together [default: ip]
    #[arg(long, value_name = "NAMES", value_parser = Per::parse)]
    per: Option<Per>,
    /// URL of the Redis that several gateways share, such as redis://127.0.0.1:6379.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Serve HTTPS for this domain, with a certificate of Let's Encrypt; may be repeated.
    #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["cert", "key"])]
    acme: Vec<String>,
    /// Where Let's Encrypt sends notices.
    #[arg(long, value_name = "ADDRESS", requires = "acme")]
    email: Option<String>,
    /// Serve HTTPS with this certificate, a PEM file.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<String>,
    /// PEM file with the private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,
    /// The file to write, the same as FILE.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,
    /// Ask nothing, also on a terminal: what no flag says is the default.
    #[arg(short, long)]
    yes: bool,
}

impl Flags {
    /// What the flags say, with defaults for the rest.
    fn choices(&self) -> Choices {
        let default = Choices::default();
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Tls::Files { cert: cert.clone(), key: key.clone() },
            _ if self.acme.is_empty() => Tls::None,
            _ => Tls::Acme { domains: self.acme.clone(), email: self.email.clone() },
        };
        let is_default = self.upstream.is_empty();
        Choices {
            servers: if is_default { vec![UPSTREAM.to_owned()] } else { self.upstream.clone() },
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            tls,
            per: self.per.clone().unwrap_or(default.per),
            rate: self.rate.clone().unwrap_or(default.rate),
            burst: self.burst.clone(),
            redis: self.redis.clone(),
        }
    }

    fn known(&self) -> Known {
        Known {
            servers: !self.upstream.is_empty(),
            tls: !self.acme.is_empty() || self.cert.is_some() || self.listen.is_some(),
            listen: self.listen.is_some(),
            per: self.per.is_some(),
            rate: self.rate.is_some(),
            redis: self.redis.is_some(),
        }
    }
}

/// Writes the file, unless it exists.
pub(super) fn init(file: &ConfigFile, flags: &Flags) -> ExitCode {
    let path = file.path.as_path();
    let shown = path.display();
    if path.exists() && !flags.force {
        return refuse_to_overwrite(path);
    }
    let mut choices = flags.choices();
    if io::stdin().is_terminal() && io::stderr().is_terminal() && !flags.yes {
        let problem = |choices: &Choices| first_problem(path, choices);
        let (mut input, mut output) = (io::stdin().lock(), io::stderr());
        if let Err(error) =
            questions::ask(&mut choices, flags.known(), &mut input, &mut output, &problem)
        {
            if error.kind() == ErrorKind::UnexpectedEof {
                eprintln!(
                    "{shown} is not written: the input ended\n  for the defaults: tollgate init --yes"
                );
            } else {
                eprintln!("error: cannot ask: {}", io_text::plain(&error));
            }
            return ExitCode::FAILURE;
        }
    }
    let text = choices.text();
    if let Err(report) = checked(path, &text).and_then(|()| tls_files(path, &choices)) {
        eprintln!("{}\n{shown} is not written", report.trim_end());
        return ExitCode::from(EXIT_BAD_FILE);
    }
    let written = if flags.force {
        fs::write(path, &text)
    } else {
        let created = File::options().write(true).create_new(true).open(path);
        created.and_then(|mut file| file.write_all(text.as_bytes()))
    };
    match written {
        Ok(()) => print(&format!(
            "{shown} is written\n\n  to check it:  tollgate check {shown}\n  to serve it:  tollgate run {shown}\n"
        )),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => refuse_to_overwrite(path),
        Err(error) => {
            eprintln!("error: cannot write {shown}: {}", io_text::plain(&error));
            ExitCode::FAILURE
        }
    }
}

fn refuse_to_overwrite(path: &Path) -> ExitCode {
    eprintln!(
        "error: {} exists, and is not overwritten\n  name another file: tollgate init FILE; or overwrite it: --force",
        path.display()
    );
    ExitCode::from(EXIT_BAD_FILE)
}

/// Errors and warnings of the file, without a look at the files that it names.
fn report(path: &Path, text: &str) -> Result<Report, String> {
    let source = Source::unresolved(path, text.into()).map_err(|error| error.to_string())?;
    match source.check() {
        Ok((_, report)) | Err(LoadError::Diagnostics(report)) => Ok(report),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks the file. Warnings are printed.
fn checked(path: &Path, text: &str) -> Result<(), String> {
    let report = report(path, text)?;
    let rendered = report.render(io::stderr().is_terminal());
    if !report.errors.list.is_empty() {
        return Err(rendered);
    }
    if !report.warnings.list.is_empty() {
        eprintln!("{}", rendered.trim_end());
    }
    Ok(())
}

/// Message of the first error of the file, in one line.
fn first_problem(path: &Path, choices: &Choices) -> Option<String> {
    let report = match report(path, &choices.text()) {
        Ok(report) => report,
        Err(error) => return Some(error),
    };
    let first = report.errors.list.into_iter().next()?;
    let help = first.help.map(|help| format!("; {help}")).unwrap_or_default();
    Some(format!("{}{help}", first.message))
}

/// Checks that the certificate is there: relative paths begin at the folder of the file.
fn tls_files(path: &Path, choices: &Choices) -> Result<(), String> {
    let Tls::Files { cert, key } = &choices.tls else { return Ok(()) };
    let folder = path.parent().unwrap_or(Path::new(""));
    for name in [cert, key] {
        if let Err(error) = File::open(folder.join(name)) {
            return Err(format!("error: cannot read {name}: {}", io_text::plain(&error)));
        }
    }
    Ok(())
}
