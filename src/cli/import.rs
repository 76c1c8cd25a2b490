//! `tollgate import`: makes a file of the configuration of another gateway.

mod includes;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::{EXIT_BAD_FILE, print};
use crate::config::diagnostic::Report;
use crate::import::{self, Effect, Format, Import, Includes, Note, Place};
use crate::load::{LoadError, MAX_FILE_BYTES, Source};
use crate::net::io_text;

/// What to import, and where to write it.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The files, which belong together, such as traefik.yml and dynamic/*.yml; `-` is standard
    /// input. Files that nginx.conf includes are read, too.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What they are written for [default: by their content]
    #[arg(long, value_name = "FORMAT")]
    from: Option<From>,
    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(long, requires = "output")]
    force: bool,
}

/// The formats by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum From {
    Nginx,
    Traefik,
    Kong,
    Envoy,
}

/// A file that was read.
struct Content {
    name: String,
    text: String,
}

impl Content {
    fn file(&self) -> import::File<'_> {
        import::File { name: &self.name, text: &self.text }
    }

    fn format(&self) -> Option<Format> {
        Format::of(self.file())
    }
}

impl std::convert::From<From> for Format {
    fn from(from: From) -> Self {
        match from {
            From::Nginx => Self::Nginx,
            From::Traefik => Self::Traefik,
            From::Kong => Self::Kong,
            From::Envoy => Self::Envoy,
        }
    }
}

/// Writes the result, and its list to standard error.
pub(super) fn import(flags: &Flags) -> ExitCode {
    let mut contents = Vec::new();
    for path in &flags.files {
        match read(path) {
            Ok(content) => contents.push(content),
            Err(error) => return refuse(&error),
        }
    }
    let Some(format) =
        flags.from.map(Format::from).or_else(|| contents.iter().find_map(Content::format))
    else {
        let name = &contents[0].name;
        return refuse(&format!(
            "{name} is not known as a file of nginx, Traefik, Kong or Envoy\n  name it: --from nginx|traefik|kong|envoy"
        ));
    };
    let includes = match flags.files.as_slice() {
        [first, ..] if format == Format::Nginx && first.as_os_str() != "-" => {
            includes::follow(first, &mut contents)
        }
        _ => Ok(Includes::new()),
    };
    let includes = match includes {
        Ok(includes) => includes,
        Err(error) => return refuse(&error),
    };
    let files: Vec<import::File<'_>> = contents.iter().map(Content::file).collect();
    let import = match import::import(format, &files, &includes) {
        Ok(import) => import,
        Err(error) => return refuse(&format!("{}: {error}", shown(&contents, error.place))),
    };
    let report = checked(&import.toml);
    eprint!("{}", list(&contents, &import, report.as_ref().err().map(String::as_str)));
    let is_valid = match &report {
        Ok(report) => {
            if !report.errors.list.is_empty() || !report.warnings.list.is_empty() {
                eprintln!("{}", report.render(io::stderr().is_terminal()).trim_end());
            }
            report.errors.list.is_empty()
        }
        Err(_) => false,
    };
    let written = write(flags, &import.toml);
    if written == ExitCode::SUCCESS && !is_valid { ExitCode::FAILURE } else { written }
}

fn refuse(error: &str) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(EXIT_BAD_FILE)
}

/// Reads a file, or standard input.
fn read(path: &Path) -> Result<Content, String> {
    if path.as_os_str() == "-" {
        content("standard input".to_owned(), io::stdin().lock())
    } else {
        read_file(path)
    }
}

/// Reads a file of up to 4 MiB.
fn read_file(path: &Path) -> Result<Content, String> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => content(name, file),
        Err(error) => Err(format!("cannot read {name}: {}", io_text::plain(&error))),
    }
}

fn content(name: String, reader: impl io::Read) -> Result<Content, String> {
    let mut bytes = Vec::new();
    if let Err(error) = reader.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes) {
        return Err(format!("cannot read {name}: {}", io_text::plain(&error)));
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("{name} is larger than 4 MiB"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Content { name, text }),
        Err(_) => Err(format!("{name} is not UTF-8")),
    }
}

/// Errors and warnings of the result, without a look at the files that it names.
fn checked(toml: &str) -> Result<Report, String> {
    let name = Path::new("gateway.toml");
    let source = Source::unresolved(name, toml.into()).map_err(|error| error.to_string())?;
    match source.check() {
        Ok((_, report)) | Err(LoadError::Diagnostics(report)) => Ok(report),
        Err(error) => Err(error.to_string()),
    }
}

/// `file:line`.
fn shown(contents: &[Content], place: Place) -> String {
    place.shown(contents.get(place.file).map_or("", |it| it.name.as_str()))
}

/// The list of what is missing or different, and its end.
fn list(contents: &[Content], import: &Import, error: Option<&str>) -> String {
    let mut text = String::new();
    for note in &import.notes {
        let _ = writeln!(text, "{}: {note}", shown(contents, note.place));
    }
    let count =
        |effect: Effect| import.notes.iter().filter(|note: &&Note| note.effect == effect).count();
    let _ = writeln!(
        text,
        "{} not taken over, {} approximately",
        count(Effect::Omitted),
        count(Effect::Approximate)
    );
    if let Some(error) = error {
        let _ = writeln!(text, "error: {error}");
    }
    text
}

/// Writes the result.
fn write(flags: &Flags, toml: &str) -> ExitCode {
    let Some(path) = &flags.output else { return print(toml) };
    let shown = path.display();
    let written = if flags.force {
        fs::write(path, toml)
    } else {
        let created = File::options().write(true).create_new(true).open(path);
        created.and_then(|mut file| file.write_all(toml.as_bytes()))
    };
    match written {
        Ok(()) => print(&format!(
            "{shown} is written\n\n  to check it:  tollgate check {shown}\n  to serve it:  tollgate run {shown}\n"
        )),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => refuse(&format!(
            "{shown} exists, and is not overwritten\n  name another file, or overwrite it: --force"
        )),
        Err(error) => {
            eprintln!("error: cannot write {shown}: {}", io_text::plain(&error));
            ExitCode::FAILURE
        }
    }
}
