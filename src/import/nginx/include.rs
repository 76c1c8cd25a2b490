//! `include`: the directives of other files, where it stands.

use std::collections::BTreeSet;

use glob::{MatchOptions, Pattern};

use super::syntax::{self, Directive};
use crate::import::note::Notes;
use crate::import::{File, SyntaxError};

/// Maximum number of files that include each other in a row.
const MAX_DEPTH: usize = 10;

/// Maximum number of directives, each counted as often as its file is included.
const MAX_DIRECTIVES: usize = 500_000;

/// Where the configuration of a package of nginx is, or of one that was built by hand.
pub(in crate::import) const FOLDERS: [&str; 2] = ["/etc/nginx/", "/usr/local/nginx/conf/"];

/// As in nginx: `*` and `?` stand neither for `/` nor for the dot at the beginning of a name.
pub(in crate::import) const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The files of an import, while each is put in the place of its `include`.
struct Includes<'a> {
    parsed: &'a [Vec<Directive>],
    /// The folders and the name of each file, below the folder of the first if it is there.
    names: Vec<Vec<&'a str>>,
    /// Number of directives that there is room for.
    left: usize,
}

/// The directives of all files: those of the first, and those of files that no other includes.
///
/// # Errors
/// A file is not nginx', or there are too many directives.
pub(super) fn read(files: &[File<'_>], notes: &mut Notes) -> Result<Vec<Directive>, SyntaxError> {
    let each = files.iter().enumerate();
    let parsed: Vec<Vec<Directive>> =
        each.map(|(number, file)| syntax::parse(file.text, number)).collect::<Result<_, _>>()?;
    let first = files.first().map(|file| parts(file.name)).unwrap_or_default();
    let folder = first.split_last().map_or(&[][..], |(_, folder)| folder);
    let names = files.iter().map(|file| below(folder, file.name)).collect();
    let mut includes = Includes { parsed: &parsed, names, left: MAX_DIRECTIVES };
    let included: BTreeSet<usize> = parsed
        .iter()
        .flat_map(|directives| patterns(directives))
        .flat_map(|pattern| includes.matching(&pattern))
        .collect();
    let mut top = Vec::new();
    for (number, directives) in parsed.iter().enumerate() {
        if number == 0 || !included.contains(&number) {
            top.extend(includes.expanded(directives, &mut vec![number], notes)?);
        }
    }
    Ok(top)
}

/// The arguments of all `include`s.
pub(super) fn patterns(directives: &[Directive]) -> Vec<String> {
    let mut found = Vec::new();
    for directive in directives {
        match directive.name.as_str() {
            "include" => found.push(directive.first().to_owned()),
            _ => found.extend(patterns(directive.inner())),
        }
    }
    found
}

// === impl Includes ===

impl Includes<'_> {
    /// The directives with those of included files. `open` are the files that they are in.
    fn expanded(
        &mut self,
        directives: &[Directive],
        open: &mut Vec<usize>,
        notes: &mut Notes,
    ) -> Result<Vec<Directive>, SyntaxError> {
        let mut all = Vec::new();
        for directive in directives {
            let Some(left) = self.left.checked_sub(1) else {
                let why =
                    "the files have more than 500,000 directives with those that they include";
                return Err(SyntaxError::new(directive.place, why));
            };
            self.left = left;
            if directive.name == "include" {
                self.include(directive, open, notes, &mut all)?;
                continue;
            }
            let block = directive.block.as_ref();
            let block = block.map(|block| self.expanded(block, open, notes)).transpose()?;
            all.push(Directive { block, ..directive.clone_head() });
        }
        Ok(all)
    }

    /// Adds the directives of the files that match; the `include` itself if none does.
    fn include(
        &mut self,
        directive: &Directive,
        open: &mut Vec<usize>,
        notes: &mut Notes,
        all: &mut Vec<Directive>,
    ) -> Result<(), SyntaxError> {
        let found = self.matching(directive.first());
        if found.is_empty() {
            all.push(directive.clone());
        }
        for number in found {
            if open.contains(&number) || open.len() >= MAX_DEPTH {
                let why = "the file includes itself, or more than 10 files include each other";
                notes.omitted(directive.place, directive.shown(), why);
                continue;
            }
            let parsed = self.parsed;
            open.push(number);
            let directives = parsed.get(number).map(Vec::as_slice).unwrap_or_default();
            all.extend(self.expanded(directives, open, notes)?);
            open.pop();
        }
        Ok(())
    }

    /// Indexes of the files that an `include` is for, by name.
    fn matching(&self, pattern: &str) -> Vec<usize> {
        let wanted = parts(pattern);
        let each = self.names.iter().enumerate();
        let mut found: Vec<(&[&str], usize)> = each
            .filter(|(_, name)| is_for(&wanted, name))
            .map(|(number, name)| (name.as_slice(), number))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect()
    }
}

/// Whether a pattern is for a file. The files may be a copy in another folder: then those of a
/// folder below are known by the end of the pattern.
fn is_for(pattern: &[&str], name: &[&str]) -> bool {
    let folders = FOLDERS.map(parts);
    let relative = folders.iter().find_map(|folder| pattern.strip_prefix(folder.as_slice()));
    let pattern = relative.unwrap_or(pattern);
    let from = pattern.len().checked_sub(name.len());
    let Some(from) = from.filter(|from| *from == 0 || name.len() > 1) else { return false };
    let pattern = pattern.get(from..).unwrap_or_default().join("/");
    let name = name.join("/");
    match Pattern::new(&pattern) {
        Ok(pattern) => pattern.matches_with(&name, MATCHING),
        Err(_) => pattern == name,
    }
}

/// The parts of a path, without those of the folder if it is there.
fn below<'a>(folder: &[&'a str], path: &'a str) -> Vec<&'a str> {
    let parts = parts(path);
    parts.strip_prefix(folder).map(<[&str]>::to_vec).unwrap_or(parts)
}

/// The parts of a path.
fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::note::Place;

    /// The names of the directives with their places, and the notes.
    fn shown(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        fn add(directives: &[Directive], lines: &mut Vec<String>) {
            for directive in directives {
                let Place { file, line } = directive.place;
                lines.push(format!("{file}:{line} {}", directive.shown()));
                add(directive.inner(), lines);
            }
        }
        let files: Vec<File<'_>> = files.iter().map(|(name, text)| File { name, text }).collect();
        let mut notes = Notes::default();
        let mut lines = Vec::new();
        add(&read(&files, &mut notes).unwrap(), &mut lines);
        (lines, notes.into_sorted().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn files_are_where_they_are_included() {
        let (lines, notes) = shown(&[
            ("/etc/nginx/nginx.conf", "http {\n include conf.d/*.conf;\n a;\n}"),
            ("/etc/nginx/conf.d/b.conf", "server { include snippets/tls.conf; include gone; }"),
            ("/etc/nginx/conf.d/a.conf", "server { include /etc/nginx/snippets/tls.conf; }"),
            ("/etc/nginx/snippets/tls.conf", "ssl on;"),
            ("/etc/nginx/other.conf", "b;"),
        ]);
        let expected = [
            "0:1 http",
            "2:1 server",
            "3:1 ssl on",
            "1:1 server",
            "3:1 ssl on",
            "1:1 include gone",
            "0:3 a",
            "4:1 b",
        ];
        assert_eq!(lines, expected);
        assert_eq!(notes, [""; 0]);
    }

    #[test]
    fn copies_are_known_by_the_end_of_their_paths() {
        let table = [
            ("/etc/nginx/conf.d/*.conf", "conf.d/a.conf", true),
            ("/etc/nginx/conf.d/*.conf", "a.conf", false),
            ("/etc/nginx/a.conf", "a.conf", true),
            ("/opt/nginx/conf.d/*.conf", "conf.d/a.conf", true),
            ("conf.d/*.conf", "conf.d/deep/a.conf", false),
            ("*.conf", "conf.d/a.conf", false),
            ("conf.d/*", "conf.d/.hidden", false),
            ("conf.d/[ab].conf", "conf.d/b.conf", true),
            ("conf.d/[", "conf.d/[", true),
            ("./a.conf", "a.conf", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(is_for(&parts(pattern), &parts(name)), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_that_include_themselves_or_too_much_end() {
        let (lines, notes) = shown(&[("a", "include b;"), ("b", "c;\ninclude a;")]);
        assert_eq!(lines, ["1:1 c"]);
        let why =
            "not taken over: the file includes itself, or more than 10 files include each other";
        assert_eq!(notes, [format!("include a: {why}")]);
        let names: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        let texts: Vec<String> =
            (1..10).map(|next| format!("include {next};").repeat(10)).collect();
        let files: Vec<File<'_>> =
            names.iter().zip(&texts).map(|(name, text)| File { name, text }).collect();
        let error = read(&files, &mut Notes::default()).unwrap_err();
        assert!(error.to_string().contains("500,000"), "{error}");
    }
}
